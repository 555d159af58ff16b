//! Folios are split because somebody asks for it (Linux 7.2 `mm/huge_memory.c`, `split_huge_pages_pid`,
//! `split_huge_pages_in_file`, `split_huge_pages_all` and `__folio_split`).
//!
//! Who shows a huge page by one entry shows it by 512 from then on, wherever that is; an object that has it has its pages
//! one by one. Nobody loses a page or a right by it. Then the frames are told that they make up smaller folios, or none.
//! Linux takes the pages of a file out of all tables instead: the next access maps them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use memwright_table::{
    FOLIO_ORDER, Frame, Frames, Machine, OutOfMemory, Page, PageRange, PageSize, Present, TryPush,
};

use super::{AddressSpace, Area, Areas, Core, Holes};
use crate::huge::{HUGE_PAGES, around};
use crate::memory::Memory;
use crate::numa::ShownPage;
use crate::object::{Mappings, Object};
use crate::stats::Row;
use crate::vma::AreaFlags;

/// What a folio is to be split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolioSplit {
    /// The order of the folios that it becomes; 0 for single pages. Those that are no larger stay as they are.
    pub order: u32,
    /// Only the part with this page of the folio becomes so small: it is halved until it is. `None`, or a page beyond
    /// the folio, for all of it.
    pub at: Option<u64>,
}

impl FolioSplit {
    /// Into single pages.
    pub const SINGLE: Self = Self { order: 0, at: None };
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolioSplits {
    /// Folios that are larger than they were to be. What is mapped by its pages and not split is found by each of them.
    pub found: u64,
    /// Of these, those that were split.
    pub split: u64,
}

impl FolioSplits {
    fn add(&mut self, split: bool) {
        self.found += 1;
        self.split += u64::from(split);
    }
}

/// Page counts of anonymous folios: one of two pages is none of them.
const NEVER_ANONYMOUS: u8 = 1;

/// One step of a split: the folio of an order that begins at a page becomes folios of a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SplitStep {
    first: u32,
    from: u8,
    to: u8,
}

/// The steps in which a folio of order `from` is split, one after the other, to order `to`.
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

/// A folio in which a page lies.
#[derive(Clone, Copy)]
struct Folio {
    head: Frame,
    order: u8,
}

impl Folio {
    /// The one that `frame` is of, if it is larger than `split` says.
    fn larger<M: Machine>(frames: &Frames<M>, frame: Frame, split: FolioSplit) -> Option<Self> {
        let order = frames.folio_order(frame);
        let head = Frame::new(frame.number() & !((1 << order) - 1));
        (u32::from(order) > split.order).then_some(Self { head, order })
    }

    fn frames(self) -> Range<u32> {
        self.head.number()..self.head.number() + (1 << self.order)
    }

    /// Whether somebody may read or write it at any time without asking (design rule 6).
    fn is_pinned<M: Machine>(self, frames: &Frames<M>) -> bool {
        let pinned = |number| frames.pins(Frame::new(number)) != 0;
        self.frames().any(pinned)
    }

    /// Tells the frames of it that they make up smaller folios, unless an entry shows it whole still, or it is no folio
    /// any more.
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

/// A page of a folio that is to be split, and where.
struct Found<M: Machine> {
    page: Page,
    /// After what the entry shows.
    end: Page,
    frame: Frame,
    folio: Folio,
    shown: ShownPage<M>,
}

impl<M: Machine> AddressSpace<M> {
    /// Splits the folios of which `range` shows a page, anonymous or an object's, up to the first hole. Those of the
    /// pool stay, and so do pinned ones, and those to which somebody else has a reference for the moment.
    ///
    /// Of anonymous ones that become single pages, the pages full of zeroes that are this address space's alone show the
    /// zero frame then, but in locked and watched areas (Linux 7.2 `mm/migrate.c`, `try_to_map_unused_to_zeropage`).
    pub fn split_folios(&self, range: PageRange, split: FolioSplit) -> FolioSplits {
        self.core.split_folios_in(range, split, Holes::Stop)
    }
}

impl<M: Machine> Memory<M> {
    /// Splits the folios among the `pages` of an object, whoever shows them, as [`AddressSpace::split_folios`] does.
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
            let mut cached = [None];
            object.cached_run(self, index, &mut cached);
            let frame = cached[0].map(|frame| self.frames().adopt(frame).frame());
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

    /// Splits all folios that there are into single pages: what address spaces show, and what objects have whose pages
    /// may leave.
    ///
    /// # Errors
    /// No heap for a list of the address spaces.
    pub fn split_all_folios(&self) -> Result<FolioSplits, OutOfMemory> {
        let mut done = FolioSplits::default();
        let all = PageRange::new(Page::new(0), Page::USER_END);
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

    /// Splits the folio that is the pages of an object from `first` on.
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
            // From here on nobody is given it as one.
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

    /// The first page of `rest` that is one of a folio larger than `split` says.
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
            if area.flags().contains(AreaFlags::HUGETLB) {
                continue;
            }
            let mut look = self.table.look(area.range().intersect(rest)).pausing();
            while let Some(extent) = look.next_filled() {
                let present = extent.entry.present();
                let found =
                    present.and_then(|present| self.larger_at(area, extent.range, present, split));
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

    /// The folio of which an entry shows a page, if it is larger than `split` says.
    fn larger_at(
        &self,
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
        let shown = ShownPage::of_folio(area, page, frame, folio.head, kind)?;
        Some(Found {
            page,
            end,
            frame,
            folio,
            shown,
        })
    }

    fn split_found(&self, found: &Found<M>, split: FolioSplit) -> bool {
        if let Some((object, first)) = found.shown.object() {
            let object = Arc::clone(object);
            let memory = &*self.memory;
            return memory.split_of_object(&*object, first, found.folio, split);
        }
        let frames = self.memory.frames();
        let refused = split.order == u32::from(NEVER_ANONYMOUS);
        if refused || found.folio.is_pinned(frames) {
            return false;
        }
        if frames.is_in_folio(found.folio.head) && self.split_everywhere(&found.shown).is_err() {
            return false;
        }
        let done = found.folio.cut(frames, split, true);
        if done && split.order == 0 {
            self.give_zeroes_back(found);
        }
        done
    }

    /// Splits every entry that shows the anonymous huge page, unless others have it than entries.
    fn split_everywhere(&self, shown: &ShownPage<M>) -> Result<(), OutOfMemory> {
        let showing = shown.spaces(self)?;
        let references = self.memory.frames().references_of_whole(shown.frame);
        if references.is_some_and(|references| references as usize != showing.shown) {
            return Ok(());
        }
        for space in &showing.spaces {
            let areas = space.areas.read(space.cpu());
            let mut places = Vec::new();
            let mut kept = Ok(());
            shown.visit(space, &areas, &mut |_, page| {
                kept = kept.and(places.try_push(page));
            });
            kept?;
            for page in places {
                space.split_huge_entry(page, shown.frame);
            }
        }
        Ok(())
    }

    /// Splits the huge entry around `page`, if it shows the folio that begins with `head`.
    fn split_huge_entry(&self, page: Page, head: Frame) {
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(around(page));
        let shows = |present: Present| present.size == PageSize::Size2M && present.frame == head;
        // A table is set aside for every huge page: the split cannot fail.
        if cursor.peek().present().is_some_and(shows) && cursor.split(&mut gather).is_ok() {
            self.memory.count(Row::HugeSplitsAsked, 1);
        }
        drop(cursor);
        let counts = gather.close();
        self.note_gather(self.cpu(), counts);
    }

    /// Splits the huge entries that show pages `first..end` of an object, which are one huge page.
    pub(crate) fn split_of_object(&self, mappings: &Mappings<M>, first: u64, end: u64) {
        let areas = self.areas.read(self.cpu());
        for area in areas.map.iter() {
            let shows = area
                .object()
                .is_some_and(|object| core::ptr::eq(object.mappings(), mappings));
            let range = area.pages_showing(first, end);
            if !shows || range.is_empty() {
                continue;
            }
            let entry = self.table.look(range).peek().present();
            let own = entry.filter(|entry| !self.is_private(entry.frame));
            if let Some(entry) = own.filter(|entry| entry.size == PageSize::Size2M) {
                self.split_huge_entry(range.start, entry.frame);
            }
        }
    }

    /// Lets pages full of zeroes of a folio that was split show the zero frame, where they lie as they did in it.
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

    /// From, to, around which page, anonymous; the first page of each step, and the orders.
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
            // A page beyond the folio is none of it.
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
