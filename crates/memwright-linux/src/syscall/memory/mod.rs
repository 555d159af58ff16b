//! System calls on mappings, one operation per file.

mod advise;
mod heap;
mod lock;
mod map;
mod mincore;
mod plan;
mod prctl;
mod remap;
mod seal;
mod sync;
mod unmap;

pub(in crate::syscall) use advise::{advice, advise};
pub(in crate::syscall) use map::map;
pub(in crate::syscall) use plan::known_rights;

pub use advise::madvise;
pub use heap::brk;
pub use lock::{mlock, mlock2, mlockall, munlock, munlockall};
pub use map::mmap;
pub use mincore::mincore;
pub use plan::rights;
pub use prctl::{
    get_exec_gain, get_huge_refusal, get_merging, set_exec_gain, set_huge_refusal, set_merging,
};
pub use remap::mremap;
pub use seal::mseal;
pub use sync::msync;
pub use unmap::munmap;

use crate::{Space, context::Context, direct_reclaim::Retry, userfault::Announced};
use memwright::{
    PopulateError, ToPopulate,
    uffd::{Watch, WatchEvent},
};

/// Bytes of a page.
pub(in crate::syscall) const PAGE: u64 = 4096;

/// Executes `change`, which changes mappings. Then sends the userfaultfd events of the change, even if it failed.
fn telling<R>(
    context: &Context<'_>,
    change: impl FnOnce(&Space, &mut dyn FnMut(&Watch, WatchEvent)) -> R,
) -> R {
    let mut announced = Announced::new(context.kernel.userfaults);
    let result =
        context.with_space(|space| change(space, &mut |watch, event| announced.note(watch, event)));
    announced.tell(context.thread);
    result
}

/// Populates the areas that a call has to populate. If a page has a userfaultfd context, waits for the context to
/// resolve the fault. Pages that cannot be populated are left to later faults (Linux 7.2 `mm/gup.c`, `__mm_populate`).
fn make_resident(context: &Context<'_>, mut rest: ToPopulate) {
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
