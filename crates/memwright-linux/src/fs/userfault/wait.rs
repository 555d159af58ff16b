//! A fault that a userfaultfd is to resolve (`handle_userfault`).

use super::{Features, Message, Waiting};
use crate::{
    Space,
    context::Context,
    errno::Errno,
    kernel::Kernel,
    process::Thread,
    run::{Accessor, Resolved},
    signal::{Signal, code},
    wait::Interest,
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use memwright::{Access, Awaited, FaultError, uffd::WatchedFault};
use memwright_table::{TryPush, VirtAddr};

/// What came of a wait for a watcher.
pub(crate) enum Waited {
    /// The access may be tried again.
    Again,
    /// The same, once a signal is delivered.
    Interrupted,
    /// This answers it.
    Refused(Resolved),
}

/// Tells the watcher of a fault, and waits until the access may be tried again. A thread that is ending waits for nobody
/// (Linux 7.2 asks for `PF_EXITING`).
pub(crate) fn wait_for_watcher(
    kernel: &Kernel,
    thread: &Arc<Thread>,
    space: &Arc<Space>,
    (address, accessor): (u64, Accessor),
    access: Access,
    fault: WatchedFault,
) -> Waited {
    let refused = Waited::Refused(Resolved::Signal(Signal::SIGBUS, code::BUS_ADRERR));
    let place = VirtAddr::new(address);
    // Nobody watches any more: the next try finds it as it is now.
    let Some(watched) = space.watched(place.page()) else {
        return Waited::Again;
    };
    let Some(userfault) = kernel.userfaults.find(watched.watch.number) else {
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
    // It may have been resolved before anybody could be told who waits.
    let still = matches!(space.fault(place, access), Err(FaultError::Watched(_)));
    let mut interrupted = false;
    if still {
        userfault.messages.wake_all(kernel);
        let interest = match accessor {
            Accessor::Program => Interest::Signals,
            Accessor::Kernel => Interest::Fatal,
        };
        let woken = || waiting.woken.load(Ordering::Acquire).then_some(());
        let waited = kernel.wait(thread, &[&userfault.resolved], None, interest, woken);
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

/// Has the watcher resolve a fault that a system call met by a walk of its own (Linux 7.2 `mm/gup.c`, `faultin_page`).
///
/// # Errors
/// `EFAULT`, where the watcher wants no faults of the kernel's; `EINTR`, if the thread is killed.
pub(crate) fn await_watcher(
    context: &Context<'_>,
    space: &Arc<Space>,
    awaited: Awaited,
) -> Result<(), Errno> {
    let Awaited { at, access, fault } = awaited;
    // Such a walk goes by pages.
    let place = (at.page().address().as_u64(), Accessor::Kernel);
    let (kernel, thread) = (context.kernel, context.thread);
    match wait_for_watcher(kernel, thread, space, place, access, fault) {
        Waited::Again => Ok(()),
        Waited::Interrupted => Err(Errno::EINTR),
        Waited::Refused(_) => Err(Errno::EFAULT),
    }
}

/// Repeats what needs memory each time a watcher has resolved the fault that it met.
///
/// # Errors
/// As of [`await_watcher`].
pub(crate) fn awaiting<R>(
    context: &Context<'_>,
    space: &Arc<Space>,
    mut attempt: impl FnMut() -> Result<R, Awaited>,
) -> Result<R, Errno> {
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(awaited) => await_watcher(context, space, awaited)?,
        }
    }
}
