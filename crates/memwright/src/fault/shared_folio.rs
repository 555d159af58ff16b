//! A fault in an area that shows shared memory of which a setting says that pages come together: a folio fills the
//! hole, and one fault maps all of its pages (Linux 7.2 `mm/memory.c`, `finish_fault`).

use memwright_table::{Bits, FOLIO_ORDER, Frame, Machine, Page, PageRange};

use super::Fault;
use super::file::{AROUND, TABLE_PAGES};
use crate::huge::{self, FolioOrders, HugeAsker, HugeMode};
use crate::object::Object;
use crate::vma::AreaFlags;

impl<M: Machine> Fault<'_, M> {
    /// Fills the hole in the object where the fault is by a folio that lies in the area. False if there is none to be had,
    /// or no hole.
    #[cold]
    #[inline(never)]
    pub(super) fn fill_object_folio(self, object: &dyn Object<M>) -> bool {
        let core = self.core;
        let flags = self.area.flags();
        // The mode is for anonymous memory: the object asks its own.
        let refusal = core.huge_refusal();
        if !huge::may_be_huge(flags, HugeMode::Always, refusal, HugeAsker::Setting) {
            return false;
        }
        let index = self.area.offset_of(self.page);
        let area = self.area.range();
        let fitting = FolioOrders::OF_PAGES.around_shown(self.page, index, area);
        let asked = flags.contains(AreaFlags::HUGE);
        let filled = object.fill_folio(&core.memory, index, fitting, asked);
        filled.is_some()
    }

    /// Maps the other pages of the folio that `frame`, which the fault has mapped, is one of. All of them get the state of
    /// that, `written` or not, as on Linux (`set_pte_range`).
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
        // A page of which the object must hear is announced by its own first store.
        let state = if object.notify_first_write() {
            Bits::empty()
        } else {
            written
        };
        let mut start = range.start;
        while start < range.end {
            let end = start.add(AROUND as u64).min(range.end);
            let around = self.look_at(object, PageRange::new(start, end));
            self.map_present(object, generation, around, state);
            start = end;
        }
    }
}

/// The pages that a fault at `page` maps, which is page `within` of a folio of `order` that is mapped by its pages: all of
/// the folio, if the area shows all of it by one lowest table and nobody is told of single pages. `None`: the one alone.
fn shown_together(
    page: Page,
    within: u64,
    order: u8,
    area: PageRange,
    is_watched: bool,
) -> Option<PageRange> {
    // What is mapped whole has been tried, and single pages are folios of one.
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
            // The page, which of the folio it is, the folio's order, the area, whether it is watched.
            (515, 3,  2, all,        false, Some((512, 516))),
            (515, 3,  8, all,        false, Some((512, 768))),
            (515, 3,  2, all,        true,  None),
            (515, 0,  0, all,        false, None),
            (515, 3,  9, all,        false, None),
            // The area ends or begins within the folio.
            (515, 3,  2, (512, 516), false, Some((512, 516))),
            (515, 3,  2, (513, 600), false, None),
            (513, 1,  2, (512, 515), false, None),
            // It lies across two lowest tables, or begins below all memory.
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
