//! Splitting folios on request (Linux 7.2 `mm/huge_memory.c`, `split_huge_pages_pid`, `split_huge_pages_in_file`,
//! `split_huge_pages_all` and `__folio_split`).
//!
//! A split first replaces every huge entry that maps the folio by 512 entries, in all address spaces. If an object owns
//! the folio, the object then stores single pages. The pages stay mapped, with unchanged rights. Then the split marks
//! the frames as smaller folios, or as single pages. Linux instead unmaps the pages of a file in all address spaces,
//! and the next access maps them again.

use alloc::sync::Arc;

use core::ops::Range;
use memwright_table::{
    Architecture, FOLIO_ORDER, Frame, Frames, Machine, OutOfMemory, Page, PageRange, PageSize,
    Present,
};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::mappings::{Mappings, Places};
use crate::mm::memory::Memory;
use crate::mm::object::Object;
use crate::mm::space::Area;
use crate::mm::theme::HugePages;
use crate::range::flags::Holes;
use crate::range::rmap::{MappedPage, Mapper};
use crate::types::folio_split::{FolioSplit, FolioSplits};
use crate::types::huge::{HUGE_PAGES, around};
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;

impl<M: Machine> Mappings<M> {
    /// Splits the huge entries that map the pages `first..end` of the object, which are one huge page. The pages stay
    /// mapped.
    ///
    /// Before this call, the object has split its huge page and called [`stale`](Self::stale).
    pub(crate) fn split(&self, first: u64, end: u64) {
        let span = first..end;
        self.visit(&span, |space, places| {
            space.split_of_object(self, places, &span);
        });
    }
}

/// Order 1. Anonymous folios of two pages do not exist, so the steps to a smaller order skip order 1.
const NEVER_ANONYMOUS: u8 = 1;

/// One step of a split: the folio of order `from` that begins at page `first` becomes folios of order `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SplitStep {
    first: u32,
    from: u8,
    to: u8,
}

/// Returns the successive steps that split a folio of order `from` into order `to`: a single step that splits the
/// complete folio, or, with `at`, several steps that each split the part that contains page `at`.
fn steps(from: u8, to: u8, at: Option<u64>, anonymous: bool) -> impl Iterator<Item = SplitStep> {
    let at = at.filter(|at| *at < 1 << from);
    let mut order = from;
    core::iter::from_fn(move || {
        if order <= to {
            return None;
        }
        let mut next = if at.is_some() { order - 1 } else { to };
        if anonymous && next == NEVER_ANONYMOUS && next > to {
            next -= 1;
        }
        let step = SplitStep {
            first: at.unwrap_or(0) as u32 & !((1 << order) - 1),
            from: order,
            to: next,
        };
        order = next;
        Some(step)
    })
}

/// A folio: its first frame and its order.
#[derive(Clone, Copy)]
struct Folio {
    head: Frame,
    order: u8,
}

impl Folio {
    /// Returns the folio of `frame`, or `None` if its order is not larger than that of `split`.
    fn larger<M: Machine>(frames: &Frames<M>, frame: Frame, split: FolioSplit) -> Option<Self> {
        let order = frames.folio_order(frame);
        let head = Frame::new(frame.number() & !((1 << order) - 1));
        (u32::from(order) > split.order).then_some(Self { head, order })
    }

    fn frames(self) -> Range<u32> {
        self.head.number()..self.head.number() + (1 << self.order)
    }

    /// Returns whether a frame of the folio is pinned. The owner of a pin can access the frame at any time without a
    /// page-table entry (rule: exclusive-before-pin).
    fn is_pinned<M: Machine>(self, frames: &Frames<M>) -> bool {
        let pinned = |number| frames.pins(Frame::new(number)) != 0;
        self.frames().any(pinned)
    }

    /// Marks the frames as smaller folios or as single pages. Returns false if a huge entry still maps the folio, or if
    /// the folio no longer exists.
    fn cut<M: Machine>(self, frames: &Frames<M>, split: FolioSplit, anonymous: bool) -> bool {
        if frames.is_in_folio(self.head) || frames.folio_order(self.head) != self.order {
            return false;
        }
        for step in steps(self.order, split.order as u8, split.at, anonymous) {
            let first = self.head.number() + step.first;
            let end = first + (1 << step.from);
            frames.split_folios(Frame::new(first), Frame::new(end), step.to);
        }
        true
    }
}

/// A mapped page of a folio that is to be split.
struct Found<M: Machine> {
    page: Page,
    /// The page after the last page that its entry maps.
    end: Page,
    frame: Frame,
    folio: Folio,
    mapped: MappedPage<M>,
}

impl<M: Machine> HugePages<'_, M> {
    /// Splits the folios that are mapped in `range`, up to the first hole between areas. The folios can be anonymous or
    /// belong to an object. Hugetlb pages, pinned folios and folios with extra references are skipped.
    ///
    /// After an anonymous folio was split into single pages, the zero-filled pages that are exclusive to this address
    /// space are replaced by the zero frame, except in locked and userfaultfd areas (Linux 7.2 `mm/migrate.c`,
    /// `try_to_map_unused_to_zeropage`).
    pub fn split_folios(&self, range: PageRange, split: FolioSplit) -> FolioSplits {
        self.space.core.split_folios_in(range, split, Holes::Stop)
    }
}

impl<M: Machine> Memory<M> {
    /// Splits the folios among the pages `pages` of an object, and the huge entries that map them in all address
    /// spaces. Pinned folios and folios with extra references are skipped, as by [`HugePages::split_folios`].
    pub fn split_object(
        &self,
        object: &dyn Object<M>,
        pages: Range<u64>,
        split: FolioSplit,
    ) -> FolioSplits {
        let mut done = FolioSplits::default();
        if object.huge().is_some() {
            return done;
        }
        let mut index = pages.start;
        while index < pages.end && object.contains(index) {
            let frame = object.cached(self, index);
            let frame = frame.map(|frame| self.frames().adopt(frame).frame());
            let larger = frame.and_then(|frame| {
                let folio = Folio::larger(self.frames(), frame, split)?;
                Some((folio, frame.number() - folio.head.number()))
            });
            index += match larger {
                Some((folio, inside)) => {
                    let first = index.saturating_sub(inside.into());
                    done.add(self.split_of_object(object, first, folio, split));
                    (1 << folio.order) - u64::from(inside)
                }
                None => 1,
            };
        }
        done
    }

    /// Splits all folios into single pages: those mapped by address spaces, and those of objects whose pages can be
    /// swapped out.
    ///
    /// # Errors
    /// `OutOfMemory` if the list of the address spaces cannot be allocated.
    pub fn split_all_folios(&self) -> Result<FolioSplits, OutOfMemory> {
        let mut done = FolioSplits::default();
        let all = M::Arch::USER;
        for space in self.spaces().all()? {
            let of_space = space.split_folios_in(all, FolioSplit::SINGLE, Holes::Pass);
            done.found += of_space.found;
            done.split += of_space.split;
        }
        let mut number = 0;
        while let Some((found, store)) = self.swap().listed(number) {
            number = found + 1;
            store.lock().pages.part_folios(&mut |head| {
                let folio = Folio {
                    head,
                    order: FOLIO_ORDER,
                };
                done.add(folio.cut(self.frames(), FolioSplit::SINGLE, false));
            });
        }
        Ok(done)
    }

    /// Splits `folio`, which begins at page `first` of the object. Returns whether it was split.
    fn split_of_object(
        &self,
        object: &dyn Object<M>,
        first: u64,
        folio: Folio,
        split: FolioSplit,
    ) -> bool {
        let frames = self.frames();
        if folio.is_pinned(frames) {
            return false;
        }
        if frames.is_in_folio(folio.head) {
            // From here on the object returns only single pages for this range.
            object.part(first);
            object.mappings().split(first, first + HUGE_PAGES);
        }
        folio.cut(frames, split, false)
    }
}

impl<M: Machine> Core<M> {
    fn split_folios_in(&self, range: PageRange, split: FolioSplit, holes: Holes) -> FolioSplits {
        let mut done = FolioSplits::default();
        let mut rest = range;
        while !rest.is_empty() {
            let areas = self.areas.read(self.cpu());
            let Some(found) = self.next_larger(&areas, rest, split, holes) else {
                break;
            };
            drop(areas);
            let is_split = self.split_found(&found, split);
            done.add(is_split);
            rest.start = if is_split {
                found.page.add(1)
            } else {
                found.end
            };
        }
        done
    }

    /// Returns the first page of `rest` whose folio has an order larger than that of `split`. With `Holes::Stop`, ends
    /// the search at the first hole between areas.
    fn next_larger(
        &self,
        areas: &Areas<M>,
        rest: PageRange,
        split: FolioSplit,
        holes: Holes,
    ) -> Option<Found<M>> {
        let mut next = rest.start;
        for area in areas.map.overlapping(rest) {
            match holes {
                Holes::Stop if area.start() > next => return None,
                Holes::Stop | Holes::Pass => {}
            }
            next = area.end();
            if area
                .flags()
                .intersects(AreaFlags::HUGETLB | AreaFlags::PHYSICAL)
            {
                continue;
            }
            let mut look = self.table.look(area.range().intersect(rest)).pausing();
            while let Some(extent) = look.next_filled() {
                let present = extent.entry.present();
                let found = present
                    .and_then(|present| self.larger_at(areas, area, extent.range, present, split));
                if found.is_some() {
                    return found;
                }
                if !look.advance() {
                    break;
                }
            }
        }
        None
    }

    /// Returns a mapped page with its folio, or `None` if the order of the folio is not larger than that of `split`.
    fn larger_at(
        &self,
        areas: &Areas<M>,
        area: &Area<M>,
        PageRange { start: page, end }: PageRange,
        present: Present,
        split: FolioSplit,
    ) -> Option<Found<M>> {
        let frames = self.memory.frames();
        let frame = present.frame_of(page);
        let kind = frames.kind(frame);
        if !kind.is_paged() {
            return None;
        }
        let folio = Folio::larger(frames, frame, split)?;
        let mapped = MappedPage::of_folio(areas, area, page, (frame, folio.head), kind)?;
        Some(Found {
            page,
            end,
            frame,
            folio,
            mapped,
        })
    }

    fn split_found(&self, found: &Found<M>, split: FolioSplit) -> bool {
        if let Some((object, first)) = found.mapped.object() {
            let object = Arc::clone(object);
            let memory = &*self.memory;
            return memory.split_of_object(&*object, first, found.folio, split);
        }
        let frames = self.memory.frames();
        let refused = split.order == u32::from(NEVER_ANONYMOUS);
        if refused || found.folio.is_pinned(frames) {
            return false;
        }
        if frames.is_in_folio(found.folio.head) && self.split_everywhere(&found.mapped).is_err() {
            return false;
        }
        let done = found.folio.cut(frames, split, true);
        if done && split.order == 0 {
            self.give_zeroes_back(found);
        }
        done
    }

    /// Splits every huge entry that maps the anonymous huge page. Does nothing if the page has references besides those
    /// of these entries.
    fn split_everywhere(&self, mapped: &MappedPage<M>) -> Result<(), OutOfMemory> {
        let mappers = mapped.mappers(self)?;
        let references = self.memory.frames().references_of_whole(mapped.frame);
        if references.is_some_and(|references| references as usize != mappers.len()) {
            return Ok(());
        }
        for Mapper { space, page } in &mappers {
            // While the area lock is held, the area cannot be unmapped.
            let _areas = space.areas.read(space.cpu());
            space.split_huge_entry(*page, mapped.frame);
        }
        Ok(())
    }

    /// Splits the huge entry around `page` if it maps the folio whose first frame is `head`.
    fn split_huge_entry(&self, page: Page, head: Frame) {
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(around(page));
        let shows = |present: Present| present.size == PageSize::Size2M && present.frame == head;
        // The split cannot fail: every huge entry has a deposited page table.
        if cursor.peek().present().is_some_and(shows) && cursor.split(&mut gather).is_ok() {
            self.memory.count(Row::HugeSplitsAsked, 1);
        }
        drop(cursor);
        let counts = gather.close();
        self.note_gather(self.cpu(), counts);
    }

    /// Splits the huge entries by which this address space maps the object's pages `span`, which are one huge page.
    pub(crate) fn split_of_object(
        &self,
        mappings: &Mappings<M>,
        places: &mut Places,
        span: &Range<u64>,
    ) {
        let areas = self.areas.read(self.cpu());
        mappings.for_each_area(&areas, places, span, |_, range| {
            let entry = self.table.look(range).peek().present();
            let own = entry.filter(|entry| !self.is_private(entry.frame));
            if let Some(entry) = own.filter(|entry| entry.size == PageSize::Size2M) {
                self.split_huge_entry(range.start, entry.frame);
            }
        });
    }

    /// Replaces the zero-filled pages of a split folio by the zero frame. Examines only the pages where this address
    /// space would map the folio if all of it were mapped.
    fn give_zeroes_back(&self, found: &Found<M>) {
        let cpu = self.cpu();
        let areas = self.areas.read(cpu);
        let kept = AreaFlags::LOCKED | AreaFlags::UFFD;
        let Some(area) = areas.map.find(found.page) else {
            return;
        };
        if area.flags().intersects(kept) {
            return;
        }
        let before = u64::from(found.frame.number() - found.folio.head.number());
        let start = Page::new(found.page.number().saturating_sub(before));
        let end = found.page.add((1 << found.folio.order) - before);
        let frames = self.memory.frames();
        let may = |present: Present| {
            let number = present.frame.number();
            found.folio.frames().contains(&number) && frames.folio_order(present.frame) == 0
        };
        self.show_zero(area, PageRange::new(start, end), &may);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns: the old order, the new order, the page to split around, whether the folio is anonymous, and the
    /// expected steps, each with its first page, old order and new order.
    type StepsRow = (u8, u8, Option<u64>, bool, &'static [(u32, u8, u8)]);

    #[test]
    fn the_steps_of_a_split() {
        #[rustfmt::skip]
        let rows: &[StepsRow] = &[
            (9, 0, None,       true,  &[(0, 9, 0)]),
            (9, 3, None,       false, &[(0, 9, 3)]),
            (2, 0, None,       true,  &[(0, 2, 0)]),
            (9, 9, None,       true,  &[]),
            (2, 4, None,       true,  &[]),
            (9, 7, Some(0),    true,  &[(0, 9, 8), (0, 8, 7)]),
            (9, 7, Some(511),  true,  &[(0, 9, 8), (256, 8, 7)]),
            (9, 6, Some(128),  false, &[(0, 9, 8), (0, 8, 7), (128, 7, 6)]),
            (3, 0, Some(5),    false, &[(0, 3, 2), (4, 2, 1), (4, 1, 0)]),
            (3, 0, Some(5),    true,  &[(0, 3, 2), (4, 2, 0)]),
            (3, 1, Some(5),    false, &[(0, 3, 2), (4, 2, 1)]),
            // With a page beyond the folio, all of the folio is split.
            (3, 1, Some(8),    false, &[(0, 3, 1)]),
        ];
        for (from, to, at, anonymous, expected) in rows {
            let steps = steps(*from, *to, *at, *anonymous);
            let found: std::vec::Vec<_> =
                steps.map(|step| (step.first, step.from, step.to)).collect();
            assert_eq!(&found, expected, "{from} to {to} at {at:?}");
        }
    }
}
