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

/// Tells the watcher of a fault, and waits until the access may be tried again.
pub(crate) fn wait_for_watcher(
    kernel: &Kernel,
    thread: &Arc<Thread>,
    space: &Arc<Space>,
    address: u64,
    access: Access,
    fault: WatchedFault,
) -> Resolved {
    let refused = Resolved::Signal(Signal::SIGBUS, code::BUS_ADRERR);
    let place = VirtAddr::new(address);
    // Nobody watches any more: the next try finds it as it is now.
    let Some(watched) = space.watched(place.page()) else {
        return Resolved::Retry;
    };
    let Some(userfault) = kernel.userfaults.find(watched.watch.number) else {
        return Resolved::Retry;
    };
    if userfault.opened_as.user_only && !access.user {
        return refused;
    }
    let waiting = {
        let mut state = userfault.state.lock();
        let Some((features, _)) = &state.agreed else {
            return Resolved::Retry;
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
    if still {
        userfault.messages.wake_all(kernel);
        let interest = if access.user {
            Interest::Signals
        } else {
            Interest::Fatal
        };
        let woken = || waiting.woken.load(Ordering::Acquire).then_some(());
        // A signal is delivered, and the access tried again after it.
        let _ = kernel.wait(thread, &[&userfault.resolved], None, interest, woken);
    }
    let mut state = userfault.state.lock();
    state.waiting.retain(|one| !Arc::ptr_eq(one, &waiting));
    drop(state);
    if thread.fatal_pending() {
        return Resolved::Signal(Signal::SIGKILL, code::SI_KERNEL);
    }
    Resolved::Retry
}
