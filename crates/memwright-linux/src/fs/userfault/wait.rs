//! A fault that a userfaultfd is to resolve (`handle_userfault`).

use super::{Features, Message, Waiting};
use crate::{
    Space,
    kernel::Kernel,
    process::Thread,
    run::Resolved,
    signal::{Signal, code},
    wait::Interest,
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use memwright::{Access, FaultError, uffd::WatchedFault};
use memwright_table::VirtAddr;

/// What came of a wait for a watcher.
pub(crate) enum Waited {
    /// The access may be tried again.
    Again,
    /// The same, once a signal is delivered.
    Interrupted,
    /// This answers it.
    Refused(Resolved),
}

/// Tells the watcher of a fault, and waits until the access may be tried again.
pub(crate) fn wait_for_watcher(
    kernel: &Kernel,
    thread: &Arc<Thread>,
    space: &Arc<Space>,
    address: u64,
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
    if userfault.opened_as.user_only && !access.user {
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
        if state.waiting.try_reserve(1).is_err() {
            return refused;
        }
        state.waiting.push(waiting.clone());
        waiting
    };
    // It may have been resolved before anybody could be told who waits.
    let still = matches!(space.fault(place, access), Err(FaultError::Watched(_)));
    let mut interrupted = false;
    if still {
        userfault.messages.wake_all(kernel);
        let interest = if access.user {
            Interest::Signals
        } else {
            Interest::Fatal
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
