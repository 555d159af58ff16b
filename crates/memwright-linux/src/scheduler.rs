//! Who runs: one run queue per CPU, round-robin, and the deadlines of waits and alarms.
//!
//! The kernel is not preemptible: a thread gives the CPU away when it waits, ends, or returns to
//! user mode after its time slice while others are ready. The context a CPU booted on is its idle
//! loop.

use crate::{
    Space,
    host::{ContextId, Host},
    kernel::Kernel,
    process::{Process, RunState, Thread, UsageSnapshot},
    sync::{Lock, Rank},
    time::Expiry,
};
use alloc::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds a thread runs while others are ready.
pub const TIME_SLICE: u64 = 4_000_000;

/// Identifies a deadline: its time and a number that keeps equal times in order.
pub type TimerKey = (u64, u64);

/// What happens at a deadline.
pub enum TimerAction {
    /// A waiting thread is woken.
    Wake(Arc<Thread>),
    /// `ITIMER_REAL` of a process expires.
    Alarm(Arc<Process>),
    /// Something else is told, if it still exists.
    Expire(Weak<dyn Expiry>),
}

/// The scheduling state of one CPU.
struct Cpu {
    /// Threads that may run, next first.
    ready: Lock<VecDeque<Arc<Thread>>>,
    /// The thread that runs; `None` while idle.
    current: Lock<Option<Arc<Thread>>>,
    /// The address space whose table is loaded; an idle CPU keeps the last one.
    loaded: Lock<Option<Arc<Space>>>,
    /// The context of a thread that ended here, until its stack is left.
    finished: Lock<Option<ContextId>>,
    /// When the running thread's slice ends.
    slice_end: AtomicU64,
    /// The deadline the host was told; `u64::MAX` for none.
    armed: AtomicU64,
    /// Instruction counts at the last switch: user, kernel.
    counted: [AtomicU64; 2],
}

impl Cpu {
    fn new() -> Self {
        Self {
            ready: Lock::new(Rank::Scheduler, VecDeque::new()),
            current: Lock::new(Rank::Leaf, None),
            loaded: Lock::new(Rank::Leaf, None),
            finished: Lock::new(Rank::Leaf, None),
            slice_end: AtomicU64::new(0),
            armed: AtomicU64::new(u64::MAX),
            counted: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}

/// Run queues and deadlines.
pub struct Scheduler {
    cpus: Vec<Cpu>,
    timers: Lock<BTreeMap<TimerKey, TimerAction>>,
    sequence: AtomicU64,
}

impl Scheduler {
    /// Empty queues for every CPU of the host.
    pub fn new(host: &dyn Host) -> Self {
        Self {
            cpus: (0..host.cpu_count()).map(|_| Cpu::new()).collect(),
            timers: Lock::new(Rank::Scheduler, BTreeMap::new()),
            sequence: AtomicU64::new(0),
        }
    }

    fn cpu(&self, kernel: &Kernel) -> &Cpu {
        &self.cpus[kernel.host.cpu().index()]
    }

    /// The thread that runs on this CPU.
    pub fn current(&self, kernel: &Kernel) -> Option<Arc<Thread>> {
        self.cpu(kernel).current.lock().clone()
    }

    /// Makes a waiting thread runnable; it runs after those that are ready now.
    pub fn wake(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        if thread.try_wake() {
            self.enqueue(kernel, thread.clone());
        }
    }

    /// Makes a thread look at its work: it is woken, or interrupted where it runs.
    pub fn notify(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        self.wake(kernel, thread);
    }

    /// The thread did not give the CPU away after all, or has it back. If somebody woke it in
    /// between, it leaves the run queue again.
    pub(crate) fn stop_waiting(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        if thread.run_state() == RunState::Running {
            let mut ready = self.cpu(kernel).ready.lock();
            ready.retain(|other| !Arc::ptr_eq(other, thread));
        }
        thread.stay_running();
    }

    fn enqueue(&self, kernel: &Kernel, thread: Arc<Thread>) {
        let cpu = self.cpu(kernel);
        let first = {
            let mut ready = cpu.ready.lock();
            ready.push_back(thread);
            ready.len() == 1
        };
        if first {
            self.arm(kernel);
        }
    }

    /// Gives the CPU away until the thread is woken or the deadline passes. The caller has marked
    /// the thread as blocked.
    pub fn block(&self, kernel: &Kernel, thread: &Arc<Thread>, deadline: Option<u64>) {
        let timer =
            deadline.map(|at| self.add_timer(kernel, at, TimerAction::Wake(thread.clone())));
        thread.usage.voluntary.fetch_add(1, Ordering::Relaxed);
        self.switch_away(kernel, thread);
        if let Some(timer) = timer {
            self.remove_timer(kernel, timer);
        }
    }

    /// Lets the other ready threads run first (`sched_yield`).
    pub fn yield_now(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        if self.cpu(kernel).ready.lock().is_empty() {
            return;
        }
        self.cpu(kernel).ready.lock().push_back(thread.clone());
        self.switch_away(kernel, thread);
    }

    /// The deadline passed: expires what is due, and gives the CPU away at the end of a slice.
    pub fn tick(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        self.expire(kernel);
        let cpu = self.cpu(kernel);
        let waiting = cpu.ready.lock().len();
        if slice_is_over(
            kernel.host.now(),
            cpu.slice_end.load(Ordering::Relaxed),
            waiting,
        ) {
            thread.usage.involuntary.fetch_add(1, Ordering::Relaxed);
            self.yield_now(kernel, thread);
        }
        self.arm(kernel);
    }

    fn next(&self, kernel: &Kernel) -> Option<Arc<Thread>> {
        self.cpu(kernel).ready.lock().pop_front()
    }

    fn switch_away(&self, kernel: &Kernel, from: &Arc<Thread>) {
        crate::sync::assert_none_held();
        let next = self.next(kernel);
        if next.as_ref().is_some_and(|next| Arc::ptr_eq(next, from)) {
            return;
        }
        self.count_instructions(kernel);
        kernel.host.save_fpu(&mut from.fpu.lock());
        let to = self.install(kernel, next);
        kernel.host.switch_context(from.context, to);
        self.collect_finished(kernel);
    }

    /// Makes `next` the running thread, or the CPU idle, but for the switch itself.
    fn install(&self, kernel: &Kernel, next: Option<Arc<Thread>>) -> ContextId {
        let cpu = self.cpu(kernel);
        let context = match &next {
            Some(thread) => {
                if let Some(space) = thread.process.space() {
                    self.load_space(kernel, &space);
                }
                kernel.host.restore_fpu(&thread.fpu.lock());
                let end = kernel.host.now() + TIME_SLICE;
                cpu.slice_end.store(end, Ordering::Relaxed);
                thread.context
            }
            None => kernel.host.boot_context(),
        };
        let previous = core::mem::replace(&mut *cpu.current.lock(), next);
        drop(previous);
        self.arm(kernel);
        context
    }

    /// Makes an address space current on this CPU.
    pub fn load_space(&self, kernel: &Kernel, space: &Arc<Space>) {
        let previous = {
            let mut loaded = self.cpu(kernel).loaded.lock();
            if loaded
                .as_ref()
                .is_some_and(|loaded| Arc::ptr_eq(loaded, space))
            {
                return;
            }
            loaded.replace(space.clone())
        };
        space.table().load();
        if let Some(previous) = previous {
            previous.table().note_unloaded(kernel.host.cpu());
        }
    }

    /// Leaves the loaded address space for the kernel's own table, so that it can be taken down.
    pub fn unload_space(&self, kernel: &Kernel) {
        let previous = self.cpu(kernel).loaded.lock().take();
        if let (Some(previous), Some(root)) = (previous, kernel.host.kernel_root()) {
            kernel.host.load_root(root);
            previous.table().note_unloaded(kernel.host.cpu());
        }
    }

    /// Leaves an ended thread's stack for good.
    pub fn leave(&self, kernel: &Kernel, thread: Arc<Thread>) -> ! {
        crate::sync::assert_none_held();
        thread.end();
        let from = thread.context;
        drop(thread);
        self.count_instructions(kernel);
        *self.cpu(kernel).finished.lock() = Some(from);
        let next = self.next(kernel);
        let to = self.install(kernel, next);
        kernel.host.switch_context(from, to);
        unreachable!("an ended thread was continued")
    }

    /// Frees the stack of a thread that ended on this CPU. Called first by whatever runs after it.
    pub fn collect_finished(&self, kernel: &Kernel) {
        let finished = self.cpu(kernel).finished.lock().take();
        if let Some(context) = finished {
            kernel.host.destroy_context(context);
        }
    }

    /// The idle loop of a CPU, on the context it booted on; returns when the run is over.
    pub fn idle(&self, kernel: &'static Kernel) {
        loop {
            self.collect_finished(kernel);
            kernel.serve_control();
            self.expire(kernel);
            if let Some(next) = self.next(kernel) {
                let to = self.install(kernel, Some(next));
                kernel.host.switch_context(kernel.host.boot_context(), to);
            } else if kernel.is_over() {
                self.unload_space(kernel);
                return;
            } else {
                self.arm(kernel);
                kernel.host.idle();
            }
        }
    }

    /// The life of a CPU other than the first: its idle loop, and once the run is over, rest.
    pub fn cpu_start(&self, kernel: &'static Kernel) -> ! {
        self.idle(kernel);
        loop {
            kernel.host.idle();
        }
    }

    /// Adds a deadline.
    pub fn add_timer(&self, kernel: &Kernel, at: u64, action: TimerAction) -> TimerKey {
        let key = (at, self.sequence.fetch_add(1, Ordering::Relaxed));
        self.timers.lock().insert(key, action);
        self.arm(kernel);
        key
    }

    /// Removes a deadline, if it has not passed.
    pub fn remove_timer(&self, kernel: &Kernel, key: TimerKey) {
        let removed = self.timers.lock().remove(&key);
        if removed.is_some() {
            self.arm(kernel);
        }
    }

    /// Acts on every deadline that passed.
    fn expire(&self, kernel: &Kernel) {
        loop {
            let due = {
                let mut timers = self.timers.lock();
                match timers.first_key_value() {
                    Some((key, _)) if key.0 <= kernel.host.now() => timers.pop_first(),
                    _ => None,
                }
            };
            match due {
                Some((_, TimerAction::Wake(thread))) => self.wake(kernel, &thread),
                Some((_, TimerAction::Alarm(process))) => crate::time::expire(kernel, &process),
                Some((_, TimerAction::Expire(expiry))) => {
                    if let Some(expiry) = expiry.upgrade() {
                        expiry.expire(kernel);
                    }
                }
                None => return,
            }
        }
    }

    /// Tells the host the next deadline: the first timer, or the end of the slice when others wait.
    fn arm(&self, kernel: &Kernel) {
        let cpu = self.cpu(kernel);
        let timer = self
            .timers
            .lock()
            .first_key_value()
            .map_or(u64::MAX, |(key, _)| key.0);
        let others = !cpu.ready.lock().is_empty();
        let slice = if others && cpu.current.lock().is_some() {
            cpu.slice_end.load(Ordering::Relaxed)
        } else {
            u64::MAX
        };
        let deadline = timer.min(slice);
        // A deadline that has passed is told again: the host forgets it when it rings.
        let told = cpu.armed.swap(deadline, Ordering::Relaxed);
        if told != deadline || deadline <= kernel.host.now() {
            kernel
                .host
                .set_deadline((deadline != u64::MAX).then_some(deadline));
        }
    }

    /// Writes which thread runs on each CPU, as far as no lock is held.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn report(&self, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        for (number, cpu) in self.cpus.iter().enumerate() {
            match cpu.current.try_lock() {
                None => writeln!(out, "CPU {number}: switching")?,
                Some(current) => match &*current {
                    None => writeln!(out, "CPU {number}: idle")?,
                    Some(thread) => {
                        let (id, process) = (thread.id(), thread.process.id);
                        writeln!(out, "CPU {number}: thread {id} of process {process}")?;
                    }
                },
            }
        }
        Ok(())
    }

    /// Charges the running thread with the instructions since the last switch.
    fn count_instructions(&self, kernel: &Kernel) {
        let cpu = self.cpu(kernel);
        let now = [
            kernel.host.user_instructions(),
            kernel.host.kernel_instructions(),
        ];
        let [user, system] =
            [0, 1].map(|i| now[i] - cpu.counted[i].swap(now[i], Ordering::Relaxed));
        if let Some(thread) = cpu.current.lock().as_ref() {
            thread.usage.user.fetch_add(user, Ordering::Relaxed);
            thread.usage.system.fetch_add(system, Ordering::Relaxed);
        }
    }

    /// What a thread has used until now.
    pub fn usage_of(&self, kernel: &Kernel, thread: &Arc<Thread>) -> UsageSnapshot {
        self.count_instructions(kernel);
        thread.usage.snapshot()
    }
}

/// The running thread has used its slice and `waiting` others want the CPU.
fn slice_is_over(now: u64, slice_end: u64, waiting: usize) -> bool {
    waiting > 0 && now >= slice_end
}

#[cfg(test)]
mod tests {
    use super::slice_is_over;

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
