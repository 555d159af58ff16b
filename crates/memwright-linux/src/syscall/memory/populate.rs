//! Faults in the pages that a system call leaves resident, for example `mlock`, or `mmap` with `MAP_POPULATE`.

use crate::current::Current;
use memwright::{PopulateError, ToPopulate};
use memwright_linux_memory::userfault::Userfaults;
use memwright_linux_vfs::direct_reclaim::Retry;

/// Populates the areas in `rest`. If a fault needs a userfaultfd context, waits until the context resolves the fault.
/// If a page cannot be populated, skips the rest of its area; later accesses fault there (Linux 7.2 `mm/gup.c`,
/// `__mm_populate`).
pub(super) fn make_resident(current: &Current<'_>, userfaults: &Userfaults, mut rest: ToPopulate) {
    if rest.is_empty() {
        return;
    }
    let space = current.space();
    loop {
        let populate = || (space.residency().populate_rest(&mut rest), rest.next());
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
            space.residency().pass_area(&mut rest);
        }
    }
}
