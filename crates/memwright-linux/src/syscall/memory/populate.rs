//! Population of areas by the calls that have to populate them.

use crate::current::Current;
use memwright::{PopulateError, ToPopulate};
use memwright_linux_memory::userfault::Userfaults;
use memwright_linux_vfs::direct_reclaim::Retry;

/// Populates the areas that a call has to populate. If a page has a userfaultfd context, waits for the context to
/// resolve the fault. Pages that cannot be populated are left to later faults (Linux 7.2 `mm/gup.c`, `__mm_populate`).
pub(super) fn make_resident(current: &Current<'_>, userfaults: &Userfaults, mut rest: ToPopulate) {
    if rest.is_empty() {
        return;
    }
    let space = current.space();
    loop {
        let populate = || (space.populate_rest(&mut rest), rest.next());
        let had = match current.reclaim().retry_onward(populate) {
            Ok(()) => return,
            Err(PopulateError::Watched(awaited)) => userfaults
                .await_watcher(current.thread, &space, awaited)
                .is_ok(),
            Err(PopulateError::OutOfMemory) => false,
        };
        if current.thread.fatal_pending() {
            return;
        }
        if !had {
            space.pass_area(&mut rest);
        }
    }
}
