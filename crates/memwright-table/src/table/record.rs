//! The record of a change of one entry.

use crate::addr::{Page, PageSize};
use crate::arch::word;
use crate::entry::Change;
use crate::gather::Gather;
use crate::machine::Machine;

/// Records a change of the entry `old`, and elides its flush if no CPU can have cached it.
#[inline]
pub(super) fn record<M: Machine>(
    gather: &mut Gather<'_, M>,
    page: Page,
    size: PageSize,
    what: Change,
    old: u64,
) {
    if what.needs_local() && word::is_uncached(old) {
        gather.elide(page, size, what, 1);
    } else {
        gather.record(page, size, what);
    }
}
