//! Faults in shared memory for which a setting enables large folios: a new folio provides the missing pages of the
//! object around the fault, and one fault maps all pages of the folio (Linux 7.2 `mm/memory.c`, `finish_fault`).

use memwright_table::{Bits, FOLIO_ORDER, Frame, Machine, Page, PageRange};

use crate::fault::attempt::Fault;
use crate::fault::object_entry::{AROUND, TABLE_PAGES};
use crate::mm::object::Object;
use crate::types::folio_orders::FolioOrders;
use crate::types::huge::HugeMode;
use crate::vma::area::AreaFlags;
use crate::vma::huge::{HugeAsker, may_be_huge};

impl<M: Machine> Fault<'_, M> {
    /// Returns whether a setting enables large folios of less than 2 MiB for any shared memory.
    #[inline(always)]
    pub(super) fn may_fill_object_folio(self) -> bool {
        self.core.memory.huge().any_shared_of_pages()
    }

    /// Adds a new folio to the object. The folio contains the page that faulted and is inside the area. Returns false
    /// if the object has the page already, or if no folio fits or is available.
    #[cold]
    #[inline(never)]
    pub(super) fn fill_object_folio(self, object: &dyn Object<M>) -> bool {
        let core = self.core;
        let flags = self.area.flags();
        // The huge page mode applies to anonymous memory only. The object checks the setting of shared memory.
        let refusal = core.huge_refusal();
        if !may_be_huge(flags, HugeMode::Always, refusal, HugeAsker::Setting) {
            return false;
        }
        let index = self.area.offset_of(self.page);
        let area = self.area.range();
        let fitting = FolioOrders::OF_PAGES.around_shown(self.page, index, area);
        let asked = flags.contains(AreaFlags::HUGE);
        let filled = object.fill_folio(&core.memory, index, fitting, asked);
        filled.is_some()
    }

    /// Maps the other pages of the folio that contains `frame`, which the fault has mapped. Their entries get the bits
    /// `written` of the entry of `frame`, as on Linux (`set_pte_range`).
    #[cold]
    #[inline(never)]
    pub(super) fn map_object_folio(
        self,
        object: &dyn Object<M>,
        generation: u64,
        frame: Frame,
        written: Bits,
    ) {
        let order = self.core.memory.frames().folio_order(frame);
        let is_watched = self.area.flags().intersects(AreaFlags::UFFD);
        let within = u64::from(frame.number()) & ((1 << order) - 1);
        let Some(range) = shown_together(self.page, within, order, self.area.range(), is_watched)
        else {
            return;
        };
        // If the object must be notified of stores, map the pages clean: the first store to each page faults, and the
        // fault notifies the object.
        let state = if object.notify_first_write() {
            Bits::empty()
        } else {
            written
        };
        let mut start = range.start;
        while start < range.end {
            let end = start.add(AROUND as u64).min(range.end);
            let window = self.window_of(PageRange::new(start, end));
            self.map_present(object, generation, window, state);
            start = end;
        }
    }
}

/// Returns the pages that a fault at `page` maps if `page` is the page with index `within` in a folio of order `order`.
/// These are the pages of the complete folio, if it is inside the area and in one lowest-level page table, and no
/// userfaultfd must be notified of faults on single pages. Otherwise returns `None`, and the fault maps only `page`.
fn shown_together(
    page: Page,
    within: u64,
    order: u8,
    area: PageRange,
    is_watched: bool,
) -> Option<PageRange> {
    // Order 0 is a single page. A folio of order `FOLIO_ORDER` is mapped by a huge entry, which this fault has already
    // tried to set.
    if is_watched || order == 0 || order >= FOLIO_ORDER {
        return None;
    }
    let start = page.number().checked_sub(within)?;
    let end = start + (1 << order);
    let is_in_area = area.start.number() <= start && end <= area.end.number();
    let is_in_table = start / TABLE_PAGES == (end - 1) / TABLE_PAGES;
    (is_in_area && is_in_table).then(|| PageRange::new(Page::new(start), Page::new(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folio_is_shown_whole_or_by_one_page() {
        let all = (0, 2048);
        #[rustfmt::skip]
        let rows = [
            // The columns: the page, its index in the folio, the folio's order, the area, whether the area has a
            // userfaultfd, and the pages that the fault maps.
            (515, 3,  2, all,        false, Some((512, 516))),
            (515, 3,  8, all,        false, Some((512, 768))),
            (515, 3,  2, all,        true,  None),
            (515, 0,  0, all,        false, None),
            (515, 3,  9, all,        false, None),
            // The area ends where the folio ends, begins inside the folio, or ends inside it.
            (515, 3,  2, (512, 516), false, Some((512, 516))),
            (515, 3,  2, (513, 600), false, None),
            (513, 1,  2, (512, 515), false, None),
            // The folio crosses the end of a page table, ends there, or would begin below page 0.
            (511, 2,  2, all,        false, None),
            (510, 2,  2, all,        false, Some((508, 512))),
            (1,   2,  2, all,        false, None),
        ];
        for (page, within, order, (start, end), is_watched, expected) in rows {
            let range = |(start, end)| PageRange::new(Page::new(start), Page::new(end));
            let found = shown_together(
                Page::new(page),
                within,
                order,
                range((start, end)),
                is_watched,
            );
            assert_eq!(found, expected.map(range), "{page}, {within} of {order}");
        }
    }
}
