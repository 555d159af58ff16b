//! Population of areas by the calls that have to populate them.

use crate::{context::Context, direct_reclaim::Retry};
use memwright::{PopulateError, ToPopulate};

/// Populates the areas that a call has to populate. If a page has a userfaultfd context, waits for the context to
/// resolve the fault. Pages that cannot be populated are left to later faults (Linux 7.2 `mm/gup.c`, `__mm_populate`).
pub(super) fn make_resident(context: &Context<'_>, mut rest: ToPopulate) {
    if rest.is_empty() {
        return;
    }
    let space = context.space();
    loop {
        let populate = || (space.populate_rest(&mut rest), rest.next());
        let had = match context.kernel.reclaim.retry_onward(populate) {
            Ok(()) => return,
            Err(PopulateError::Watched(awaited)) => context
                .kernel
                .userfaults
                .await_watcher(context.thread, &space, awaited)
                .is_ok(),
            Err(PopulateError::OutOfMemory) => false,
        };
        if context.thread.fatal_pending() {
            return;
        }
        if !had {
            space.pass_area(&mut rest);
        }
    }
}
