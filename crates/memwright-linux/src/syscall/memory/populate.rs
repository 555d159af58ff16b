//! Populates the areas of calls that require it.

use crate::current::Current;
use memwright::{PopulateError, ToPopulate};
use memwright_linux_memory::userfault::Userfaults;
use memwright_linux_vfs::direct_reclaim::Retry;

/// Populates the areas that a call requires to be populated. If a fault needs a userfaultfd context, waits until the
/// context resolves the fault. Skips an area in which a page cannot be populated; later accesses fault there (Linux 7.2
/// `mm/gup.c`, `__mm_populate`).
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
