//! Splitting huge entries of which an operation covers only a part.

use memwright_table::{Cursor, Gather, Machine, Page, PageRange, PageSize, Present};

use crate::mm::core::Core;
use crate::types::huge::HUGE_PAGES;
use crate::types::stats::Row;

/// Returns whether `page` is mapped by a huge entry. The caller checks that it is not a hugetlb page, which is not
/// split.
#[inline(always)]
pub(crate) fn is_splittable(page: Present) -> bool {
    page.size != PageSize::Size4K
}

/// Returns the size of the entry that maps frame `number` of device memory at `page`, in an area that ends at page
/// `end`. The size is 2 MiB if the page and the frame are both aligned to it and the area has room.
pub(crate) fn device_entry_size(page: Page, number: u64, end: Page) -> PageSize {
    let is_aligned = (page.number() | number) % HUGE_PAGES == 0;
    if is_aligned && end.number() - page.number() >= HUGE_PAGES {
        PageSize::Size2M
    } else {
        PageSize::Size4K
    }
}

impl<M: Machine> Core<M> {
    /// Splits the huge pages that an edge of the cursor's range cuts, and counts them in row `cause`.
    #[inline]
    pub(crate) fn split_cut(
        &self,
        cursor: &mut Cursor<'_, M>,
        gather: &mut Gather<'_, M>,
        cause: Row,
    ) {
        let split = cursor.split_pages(gather);
        if split > 0 {
            self.memory.count(cause, split);
        }
    }

    /// Splits the huge pages that an edge of `range` cuts, before an area is split there.
    pub(crate) fn split_at_edges(&self, range: PageRange, cause: Row) {
        let aligned = |page: Page| page.number() % HUGE_PAGES == 0;
        if aligned(range.start) && aligned(range.end) || range.is_empty() {
            return;
        }
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(range);
        self.split_cut(&mut cursor, &mut gather, cause);
        drop(cursor);
        let counts = gather.close();
        self.note_gather(self.cpu(), counts);
    }
}
