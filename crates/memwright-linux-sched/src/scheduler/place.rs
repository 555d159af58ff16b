//! Placement of threads on CPUs: decisions without any state.

use memwright_table::{CpuId, CpuSet};

/// The properties of a thread that becomes runnable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// The CPU on which the thread last ran.
    pub(super) last: CpuId,
    /// Whether the CPU `last` still uses the thread's stack.
    pub(super) on_cpu: bool,
    /// The CPUs on which the thread is allowed to run, at least one.
    pub(super) allowed: CpuSet,
}

/// Returns the CPU whose run queue a runnable thread enters. If a CPU still uses the thread's stack, it is that CPU.
/// Otherwise it is an allowed idle CPU, preferably the one on which the thread last ran. If no allowed CPU is idle, it
/// is the CPU on which the thread last ran, or any allowed CPU if that one is not allowed.
pub(super) fn place(thread: Candidate, idle: CpuSet) -> CpuId {
    let Candidate {
        last,
        on_cpu,
        allowed,
    } = thread;
    if on_cpu {
        return last;
    }
    let free = CpuSet::from_bits(allowed.bits() & idle.bits());
    if free.contains(last) {
        last
    } else if let Some(first) = free.iter().next() {
        first
    } else if allowed.contains(last) {
        last
    } else {
        allowed.iter().next().unwrap_or(last)
    }
}

/// Returns whether the idle CPU `thief` is allowed to take this thread from another CPU's queue.
pub(super) fn may_steal(thread: Candidate, thief: CpuId) -> bool {
    !thread.on_cpu && thread.allowed.contains(thief)
}

/// Returns whether the running thread has used up its time slice while `waiting` other threads are in the run queue.
pub(super) fn slice_is_over(now: u64, slice_end: u64, waiting: usize) -> bool {
    waiting > 0 && now >= slice_end
}

#[cfg(test)]
mod tests {
    use super::{Candidate, CpuId, CpuSet, may_steal, place, slice_is_over};

    fn thread(last: u16, on_cpu: bool, allowed: u64) -> Candidate {
        Candidate {
            last: CpuId::new(last),
            on_cpu,
            allowed: CpuSet::from_bits(allowed),
        }
    }

    #[test]
    fn a_thread_goes_where_it_can_run_at_once() {
        for (last, on_cpu, allowed, idle, expected) in [
            // The last CPU is preferred.
            (2, false, 0b1111, 0b1111, 2),
            // An idle CPU is preferred to a busy one, the lowest first.
            (2, false, 0b1111, 0b1010, 1),
            // No CPU is idle: the thread waits where it was.
            (2, false, 0b1111, 0, 2),
            // Idle CPUs that are not allowed do not count.
            (2, false, 0b1100, 0b0011, 2),
            // The last CPU is no longer allowed.
            (2, false, 0b1010, 0, 1),
            (2, false, 0b1010, 0b1000, 3),
            // The thread's stack is in use on its last CPU, so only that CPU can run the thread.
            (2, true, 0b0001, 0b0001, 2),
        ] {
            let found = place(thread(last, on_cpu, allowed), CpuSet::from_bits(idle));
            assert_eq!(
                found.index(),
                expected,
                "{last} {on_cpu} {allowed:b} {idle:b}"
            );
        }
    }

    #[test]
    fn only_what_left_its_stack_is_stolen() {
        for (on_cpu, allowed, may) in [(false, 0b11, true), (true, 0b11, false), (false, 1, false)]
        {
            assert_eq!(may_steal(thread(0, on_cpu, allowed), CpuId::new(1)), may);
        }
    }

    #[test]
    fn a_lone_thread_keeps_the_cpu() {
        for (now, end, waiting, over) in [
            (10, 5, 0, false),
            (10, 5, 1, true),
            (5, 5, 2, true),
            (4, 5, 2, false),
        ] {
            assert_eq!(slice_is_over(now, end, waiting), over);
        }
    }
}
