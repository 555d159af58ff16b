//! Page faults of threads: resolves them, waits for userfaultfd contexts and for memory, and selects the signal for an
//! access that is refused.

use crate::{
    oom::OomKiller,
    reclaim::Reclaim,
    userfault::{Accessor, Resolved, Userfaults, Waited},
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright::{Access, FaultError, uffd::WatchedFault};
use memwright_linux_abi::{
    Memory, Space,
    signal::{Signal, code},
};
use memwright_linux_base::sync;
use memwright_linux_sched::scheduler::Scheduler;
use memwright_linux_tasks::process::Thread;
use memwright_table::VirtAddr;

/// The maximum number of consecutive retries of a fault that finds no free frame because other threads have allocated
/// all frames that became free (`MAX_RECLAIM_RETRIES`). After these retries, the OOM killer runs.
const MOST_WAITS: u32 = 16;

/// Resolves page faults.
pub struct Faults {
    /// Physical memory.
    pub memory: Arc<Memory>,
    /// The userfaultfd contexts, which resolve faults on registered memory.
    pub userfaults: &'static Userfaults,
    /// The scheduler, which runs other threads while a fault waits.
    pub scheduler: &'static Scheduler<Thread>,
    /// Reclaims pages when memory is short.
    pub reclaim: Arc<Reclaim>,
    /// The OOM killer.
    pub oom: Arc<OomKiller>,
}

impl Faults {
    /// Resolves a page fault of a thread, in user mode or during a user copy of the kernel.
    // All faults go through this function, so it is inlined into its callers.
    #[inline(always)]
    pub fn resolve(
        &self,
        thread: &Arc<Thread>,
        space: &Arc<Space>,
        address: u64,
        access: Access,
        accessor: Accessor,
    ) -> Resolved {
        match space.fault(VirtAddr::new(address), access) {
            Ok(kind) => {
                count_fault(thread, kind.is_major());
                Resolved::Retry
            }
            Err(FaultError::Watched(fault)) => {
                self.watched(thread, space, (address, accessor), access, fault)
            }
            Err(FaultError::OutOfMemory) => self.starved(thread, space, address, access),
            Err(error) => self.refused(thread, error),
        }
    }

    /// Waits until the userfaultfd context resolves a fault, and retries the fault. For an access by the program
    /// itself, a successful first retry counts as an ordinary fault. An access by the kernel, and any access that waits
    /// twice, counts as a major fault (Linux 7.2 `do_user_addr_fault`, which first tries under the per-VMA lock, and
    /// `mm_account_fault`, which counts a retried fault as major).
    #[cold]
    fn watched(
        &self,
        thread: &Arc<Thread>,
        space: &Arc<Space>,
        (address, accessor): (u64, Accessor),
        access: Access,
        mut fault: WatchedFault,
    ) -> Resolved {
        let mut tried = accessor == Accessor::Kernel;
        loop {
            let place = (address, accessor);
            match self
                .userfaults
                .wait_for_watcher(thread, space, place, access, fault)
            {
                Waited::Again => {}
                Waited::Interrupted => return Resolved::Retry,
                Waited::Refused(resolved) => return resolved,
            }
            match space.fault(VirtAddr::new(address), access) {
                Ok(kind) => {
                    count_fault(thread, tried || kind.is_major());
                    return Resolved::Retry;
                }
                Err(FaultError::Watched(next)) => (fault, tried) = (next, true),
                Err(FaultError::OutOfMemory) => {
                    return self.starved(thread, space, address, access);
                }
                Err(error) => return self.refused(thread, error),
            }
        }
    }

    #[cold]
    fn refused(&self, thread: &Arc<Thread>, error: FaultError) -> Resolved {
        match error {
            FaultError::Key(key) => return Resolved::Key(key),
            FaultError::Poison(size) => return Resolved::Poison(size),
            FaultError::NoArea
            | FaultError::Guard
            | FaultError::StackLimit
            | FaultError::Denied
            | FaultError::BeyondObject
            | FaultError::Io
            | FaultError::NoHugePage
            | FaultError::OutOfMemory
            | FaultError::WouldBlock
            | FaultError::Watched(_) => {}
        }
        match fault_signal(error) {
            Some((signal, code)) => Resolved::Signal(signal, code),
            None => {
                self.scheduler.yield_now(thread);
                // Pause briefly, because the thread for which this one waits may run on another CPU.
                sync::relax();
                Resolved::Retry
            }
        }
    }

    /// Reclaims memory for a fault that found no free frame, and retries the fault. If no page can be reclaimed, lets
    /// other threads run and retries the fault. Runs the OOM killer once such a retry fails although no thread has
    /// allocated a frame in the meantime, or once other threads have taken all freed memory [`MOST_WAITS`] times in a
    /// row (Linux 7.2 `mm/page_alloc.c`, `should_reclaim_retry`).
    #[cold]
    fn starved(
        &self,
        thread: &Arc<Thread>,
        space: &Space,
        address: u64,
        access: Access,
    ) -> Resolved {
        let frames = self.memory.frames();
        if thread.fatal_pending() {
            return Resolved::Signal(Signal::SIGKILL, code::SI_KERNEL);
        }
        let cpus = u64::from(self.scheduler.all_cpus().len());
        let Some(reclaiming) = self.reclaim.begin(cpus) else {
            // The maximum number of threads already reclaim. Retry the fault: the pages that these threads free may
            // suffice.
            self.scheduler.yield_now(thread);
            sync::relax();
            return Resolved::Retry;
        };
        for _ in 0..MOST_WAITS {
            if thread.fatal_pending() {
                return Resolved::Signal(Signal::SIGKILL, code::SI_KERNEL);
            }
            let allocations = frames.allocations();
            if self.reclaim.relieve(1) {
                return Resolved::Retry;
            }
            self.scheduler.yield_now(thread);
            sync::relax();
            match space.fault(VirtAddr::new(address), access) {
                Err(FaultError::OutOfMemory) => {}
                Ok(kind) => {
                    count_fault(thread, kind.is_major());
                    return Resolved::Retry;
                }
                // Retry the access. It faults again, and the new fault handles this error.
                Err(_) => return Resolved::Retry,
            }
            if frames.allocations() == allocations {
                break;
            }
        }
        self.oom.relieve(thread);
        drop(reclaiming);
        if thread.fatal_pending() {
            return Resolved::Signal(Signal::SIGKILL, code::SI_KERNEL);
        }
        self.scheduler.yield_now(thread);
        // Pause briefly, because the threads of the killed process, which free its memory, may run on another CPU.
        sync::relax();
        Resolved::Retry
    }
}

#[inline(always)]
fn count_fault(thread: &Thread, major: bool) {
    let usage = &thread.usage;
    let faults = if major {
        &usage.major_faults
    } else {
        &usage.minor_faults
    };
    faults.fetch_add(1, Ordering::Relaxed);
}

/// Returns the signal and its `si_code` for a fault that cannot be resolved; `None` if the access must be retried.
fn fault_signal(error: FaultError) -> Option<(Signal, i32)> {
    match error {
        FaultError::NoArea | FaultError::Guard | FaultError::StackLimit => {
            Some((Signal::SIGSEGV, code::SEGV_MAPERR))
        }
        FaultError::Denied => Some((Signal::SIGSEGV, code::SEGV_ACCERR)),
        FaultError::Key(_) => Some((Signal::SIGSEGV, code::SEGV_PKUERR)),
        FaultError::BeyondObject | FaultError::Io | FaultError::NoHugePage => {
            Some((Signal::SIGBUS, code::BUS_ADRERR))
        }
        FaultError::Poison(_) => Some((Signal::SIGBUS, code::BUS_MCEERR_AR)),
        FaultError::OutOfMemory | FaultError::WouldBlock | FaultError::Watched(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{FaultError, Signal, code, fault_signal};

    #[test]
    fn refused_accesses_become_signals() {
        for (error, expected) in [
            (
                FaultError::NoArea,
                Some((Signal::SIGSEGV, code::SEGV_MAPERR)),
            ),
            (
                FaultError::Denied,
                Some((Signal::SIGSEGV, code::SEGV_ACCERR)),
            ),
            (
                FaultError::BeyondObject,
                Some((Signal::SIGBUS, code::BUS_ADRERR)),
            ),
            (FaultError::OutOfMemory, None),
        ] {
            assert_eq!(fault_signal(error), expected);
        }
    }
}
