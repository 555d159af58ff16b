//! The wait of a faulting thread until a userfaultfd resolves the fault (`handle_userfault`).

use super::{Features, Message, Userfaults, Waiting};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use memwright::{Access, Awaited, FaultError, uffd::WatchedFault};
use memwright_linux_abi::{
    Space,
    errno::Errno,
    signal::{Signal, code},
};
use memwright_linux_sched::wait::Interest;
use memwright_linux_tasks::process::Thread;
use memwright_table::{PageSize, TryPush, VirtAddr};

/// The way in which the faulting thread continues after its fault was handled.
pub enum Resolved {
    /// Retry the access.
    Retry,
    /// Deliver this signal.
    Signal(Signal, i32),
    /// Deliver SIGSEGV, because of the page's protection key.
    Key(u8),
    /// Deliver SIGBUS, because a page of this size is poisoned.
    Poison(PageSize),
}

/// The origin of an access to registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accessor {
    /// The program itself.
    Program,
    /// The kernel, during a system call. A context with `UFFD_USER_MODE_ONLY` does not handle faults of such accesses.
    /// While a context without this flag handles such a fault, only a fatal signal ends the wait.
    Kernel,
}

/// The result of a wait for a userfaultfd.
pub enum Waited {
    /// The caller must retry the access.
    Again,
    /// A signal is pending. The caller must retry the access after the signal has been delivered.
    Interrupted,
    /// The context does not handle the fault, or the thread is being killed. The caller must deliver the contained
    /// signal.
    Refused(Resolved),
}

impl Userfaults {
    /// Queues a message about a fault for the reader of the userfaultfd, and waits until the access must be retried. An
    /// exiting thread does not wait (Linux 7.2 checks `PF_EXITING`).
    pub fn wait_for_watcher(
        &self,
        thread: &Arc<Thread>,
        space: &Arc<Space>,
        (address, accessor): (u64, Accessor),
        access: Access,
        fault: WatchedFault,
    ) -> Waited {
        let refused = Waited::Refused(Resolved::Signal(Signal::SIGBUS, code::BUS_ADRERR));
        let place = VirtAddr::new(address);
        // If the memory is no longer registered, retry the access.
        let Some(watched) = space.uffd().watched(place.page()) else {
            return Waited::Again;
        };
        let Some(userfault) = self.find(watched.watch.number) else {
            return Waited::Again;
        };
        let ends = thread.ends.load(Ordering::Relaxed);
        if ends || (userfault.opened_as.user_only && accessor == Accessor::Kernel) {
            return refused;
        }
        let waiting = {
            let mut state = userfault.state.lock();
            let Some((features, _)) = &state.agreed else {
                return Waited::Again;
            };
            if features.contains(Features::SIGNAL) {
                return refused;
            }
            let place = (address, watched.unit);
            let message = Message::of_fault(*features, place, access, fault, thread.id());
            let waiting = Arc::new(Waiting {
                address,
                message,
                read: AtomicBool::new(false),
                woken: AtomicBool::new(false),
            });
            if state.waiting.try_push(waiting.clone()).is_err() {
                return refused;
            }
            waiting
        };
        // The fault may have been resolved before this thread was added to the list of waiting threads.
        let still = matches!(space.fault(place, access), Err(FaultError::Watched(_)));
        let mut interrupted = false;
        if still {
            userfault.messages.wake_all();
            let interest = match accessor {
                Accessor::Program => Interest::Signals,
                Accessor::Kernel => Interest::Fatal,
            };
            let woken = || waiting.woken.load(Ordering::Acquire).then_some(());
            let waited = self
                .oom
                .wait(thread, &[&userfault.resolved], None, interest, woken);
            interrupted = waited.is_err();
        }
        let mut state = userfault.state.lock();
        state.waiting.retain(|one| !Arc::ptr_eq(one, &waiting));
        drop(state);
        if thread.fatal_pending() {
            return Waited::Refused(Resolved::Signal(Signal::SIGKILL, code::SI_KERNEL));
        }
        if interrupted {
            Waited::Interrupted
        } else {
            Waited::Again
        }
    }

    /// Waits until the userfaultfd resolves a fault that a system call found while it walked page tables (Linux 7.2
    /// `mm/gup.c`, `faultin_page`).
    ///
    /// # Errors
    /// `EFAULT` if the context refuses faults in the kernel; `EINTR` if the thread is killed.
    pub fn await_watcher(
        &self,
        thread: &Arc<Thread>,
        space: &Arc<Space>,
        awaited: Awaited,
    ) -> Result<(), Errno> {
        let Awaited { at, access, fault } = awaited;
        // The fault was found by a page-table walk, so the message contains the address of the page.
        let place = (at.page().address().as_u64(), Accessor::Kernel);
        match self.wait_for_watcher(thread, space, place, access, fault) {
            Waited::Again => Ok(()),
            Waited::Interrupted => Err(Errno::EINTR),
            Waited::Refused(_) => Err(Errno::EFAULT),
        }
    }

    /// Calls `attempt`, and calls it again each time that a userfaultfd has resolved a fault that `attempt`
    /// encountered. Returns the result of the successful call.
    ///
    /// # Errors
    /// The errors of [`Self::await_watcher`].
    pub fn awaiting<R>(
        &self,
        thread: &Arc<Thread>,
        space: &Arc<Space>,
        mut attempt: impl FnMut() -> Result<R, Awaited>,
    ) -> Result<R, Errno> {
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(awaited) => self.await_watcher(thread, space, awaited)?,
            }
        }
    }
}
