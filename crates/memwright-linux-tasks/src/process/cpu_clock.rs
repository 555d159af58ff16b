//! Clocks that measure the CPU time of a process or thread (Linux 7.2 `kernel/time/posix-cpu-timers.c`).

use super::{Counted, Process, Thread};
use alloc::sync::{Arc, Weak};
use linux_raw_sys::general as raw;
use memwright_linux_abi::abi::MILLISECOND;

/// The shortest time between two checks of a clock, in nanoseconds: a tick of Linux with `CONFIG_HZ=250`.
pub const TICK: u64 = 4 * MILLISECOND;

/// Returns the nanoseconds until the next check of a process that has `left` nanoseconds of CPU time left: the shortest
/// time in which it can use them on `cpus` CPUs, but at least `TICK`.
pub fn wait_for(left: u64, cpus: u64) -> u64 {
    (left / cpus).max(TICK)
}

/// The process or thread whose time a clock measures.
#[derive(Debug)]
pub(super) enum Owner {
    Process(Weak<Process>),
    Thread(Weak<Thread>),
}

/// A clock that measures CPU time.
#[derive(Debug)]
pub struct CpuClock {
    pub(super) owner: Owner,
    pub(super) counted: Counted,
}

/// The decoded number of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    /// The id of the process or thread; 0 for that of the caller.
    id: u32,
    is_thread: bool,
    counted: Counted,
}

/// Decodes the number of a CPU clock. A negative number contains the id of its process or thread, as the macros
/// `MAKE_PROCESS_CPUCLOCK` and `MAKE_THREAD_CPUCLOCK` of Linux 7.2 compose it.
fn decode(number: i32) -> Option<Named> {
    /// The bit that is set for a thread's clock, and the bits that select the counted time.
    const THREAD: i32 = 4;
    const COUNTED: i32 = 3;
    let (id, is_thread, counted) = match number as u32 {
        raw::CLOCK_PROCESS_CPUTIME_ID => (0, false, Counted::All),
        raw::CLOCK_THREAD_CPUTIME_ID => (0, true, Counted::All),
        _ if number >= 0 => return None,
        _ => {
            let counted = match number & COUNTED {
                0 | 2 => Counted::All,
                1 => Counted::User,
                // The remaining value marks a clock that a file descriptor identifies.
                _ => return None,
            };
            ((!(number >> 3)) as u32, number & THREAD != 0, counted)
        }
    };
    Some(Named {
        id,
        is_thread,
        counted,
    })
}

impl CpuClock {
    /// Returns the clock with this number; `None` if there is no such clock. The clock of a thread is returned only if
    /// the thread belongs to the caller's process.
    #[must_use]
    pub fn find(number: u64, caller: &Arc<Thread>) -> Option<Self> {
        let named = decode(number as i32)?;
        let tasks = caller.process.tasks;
        let owner = match (named.is_thread, named.id) {
            (true, 0) => Owner::Thread(Arc::downgrade(caller)),
            (true, id) => {
                let found = tasks.thread(id)?;
                if !Arc::ptr_eq(&found.process, &caller.process) {
                    return None;
                }
                Owner::Thread(Arc::downgrade(&found))
            }
            (false, 0) => Owner::Process(Arc::downgrade(&caller.process)),
            (false, id) => Owner::Process(Arc::downgrade(&tasks.process(id)?)),
        };
        Some(Self {
            owner,
            counted: named.counted,
        })
    }

    /// Returns the kind of CPU time that the clock counts; `None` if it measures a thread.
    pub(super) fn of_process(&self) -> Option<Counted> {
        match &self.owner {
            Owner::Process(_) => Some(self.counted),
            Owner::Thread(_) => None,
        }
    }

    /// Returns whether the clock measures the process or one of its threads.
    #[must_use]
    pub fn is_of(&self, process: &Arc<Process>) -> bool {
        match &self.owner {
            Owner::Process(owner) => owner.as_ptr() == Arc::as_ptr(process),
            // `find` returns clocks only for threads of the caller's process.
            Owner::Thread(_) => true,
        }
    }

    /// Returns whether the clock measures a thread.
    #[must_use]
    pub fn is_threads(&self) -> bool {
        matches!(self.owner, Owner::Thread(_))
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, Named, TICK, decode, wait_for};
    use memwright_linux_abi::abi::SECOND;

    #[test]
    fn a_process_on_every_cpu_does_not_pass_its_deadline_unseen() {
        assert_eq!(wait_for(SECOND, 1), SECOND);
        assert_eq!(wait_for(SECOND, 4), SECOND / 4);
        assert_eq!(wait_for(1, 4), TICK);
    }

    #[test]
    fn numbers_name_processes_and_threads() {
        let named = |id, is_thread, counted| {
            Some(Named {
                id,
                is_thread,
                counted,
            })
        };
        for (number, expected) in [
            (0, None),
            (1, None),
            (2, named(0, false, Counted::All)),
            (3, named(0, true, Counted::All)),
            (4, None),
            (!0 << 3 | 2, named(0, false, Counted::All)),
            (!7 << 3 | 2, named(7, false, Counted::All)),
            (!7 << 3, named(7, false, Counted::All)),
            (!7 << 3 | 1, named(7, false, Counted::User)),
            (!7 << 3 | 3, None),
            (!7 << 3 | 6, named(7, true, Counted::All)),
            (!7 << 3 | 5, named(7, true, Counted::User)),
            (!7 << 3 | 7, None),
        ] {
            assert_eq!(decode(number), expected, "{number}");
        }
    }
}
