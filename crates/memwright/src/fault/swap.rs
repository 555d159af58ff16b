//! A fault at an entry that names a slot: the page comes back (Linux 7.2 `mm/memory.c`, `do_swap_page`).

use memwright_table::mistake::{Mistake, planted};
use memwright_table::{
    Bits, Cursor, Entry, FrameKind, FrameRef, Machine, Page, PageRange, PageSize, Present, Slots,
    Swapped,
};

use super::{Fault, FaultKind};
use crate::error::FaultError;
use crate::object::{Object, ObjectError};
use crate::policy::SwapInReuse;
use crate::space::access_bits;
use crate::stats::Row;
use crate::swap::{Cached, Direction, MOST_AROUND, Place, Transfers, Window};
use crate::writable::writable;

/// Pages of a lowest table.
const TABLE_PAGES: u64 = 512;

/// State of the page that its entry has again, whoever maps it.
const RESTORED: Bits = Bits::SOFT_DIRTY.union(Bits::UFFD_WP).union(Bits::WATCHED);

/// A page that is back, before an entry shows it.
pub(super) struct Back<'a, M: Machine> {
    pub(super) frame: FrameRef<'a, M>,
    /// Nobody else can reach it.
    pub(super) exclusive: bool,
    kind: FaultKind,
}

/// Pages next to the one that faulted, on their way back.
struct Neighbours<'a, M: Machine> {
    pages: [Option<(Swapped, FrameRef<'a, M>)>; MOST_AROUND],
    count: usize,
    transfers: Transfers<M, MOST_AROUND>,
}

impl<M: Machine> Neighbours<'_, M> {
    const fn new() -> Self {
        Self {
            pages: [const { None }; MOST_AROUND],
            count: 0,
            transfers: Transfers::new(),
        }
    }
}

impl<'a, M: Machine> Fault<'a, M> {
    /// Brings the page back that the entry under the cursor names.
    #[cold]
    #[inline(never)]
    pub(super) fn swap_in(
        self,
        mut cursor: Cursor<'a, M>,
        swapped: Swapped,
    ) -> Result<FaultKind, FaultError> {
        let core = self.core;
        let protected = swapped.bits.contains(Bits::UFFD_WP);
        // A store to a protected page comes back as by a load, then is dealt with like any other.
        let stores = self.access.write && !protected;
        let back = self.bring(swapped, stores)?;
        let page = Present {
            frame: back.frame.frame(),
            size: PageSize::Size4K,
            bits: self.bits_of(swapped.bits, back.exclusive, stores),
        };
        cursor.swap_in(page);
        let _ = back.frame.into_raw();
        self.note_private();
        core.note_filled(self.cpu, 1);
        core.note_swapped(-1);
        if self.access.write && protected {
            self.resolve_present(cursor, page)?;
            return Ok(back.kind);
        }
        drop(cursor);
        if core.memory.policy().swapin_around() && back.kind.is_major() {
            self.swap_in_around(swapped.slot);
        }
        Ok(back.kind)
    }

    /// Brings pages back that follow the one that faulted, as long as their slots follow its own: all are asked for
    /// before the first is waited for.
    fn swap_in_around(self, slot: u64) {
        let core = self.core;
        let window = self.area.window.get();
        let hits = self.hits(window, 0);
        core.memory.count_ahead(self.cpu, window.ahead().1, hits);
        let wanted = window.pages_at(self.page, hits);
        // What lies in the same table is changed under one lock.
        let table_end = (self.page.number() | (TABLE_PAGES - 1)) + 1;
        let end = (self.page.number() + wanted).min(table_end);
        let end = Page::new(end).min(self.area.end());
        let first = self.page.add(1);
        let mut neighbours = Neighbours::new();
        if first < end {
            let mut cursor = core.table.cursor(PageRange::new(first, end));
            while neighbours.count < MOST_AROUND {
                let page = first.add(neighbours.count as u64);
                let expected = Place::of(slot).after(neighbours.count as u32 + 1).slot();
                if page == end || !self.ask_for(&mut cursor, page, expected, &mut neighbours) {
                    break;
                }
            }
            self.map_asked_for(&mut cursor, first, &mut neighbours);
        }
        let ahead = neighbours.count as u64;
        self.area
            .window
            .set(Window::after(first.add(ahead), wanted, ahead));
    }

    /// Brings the object's page `index` back, which the fault wants, with those that follow it. Whether a device was
    /// read for it.
    #[cold]
    pub(super) fn bring_object_in(
        self,
        object: &dyn Object<M>,
        index: u64,
    ) -> Result<bool, ObjectError> {
        let memory = &*self.core.memory;
        if !memory.policy().swapin_around() {
            return Ok(object.bring_in(memory, index, 1)? > 0);
        }
        let window = self.area.window.get();
        let (first, ahead) = window.ahead();
        let seen = self.area.range().contains(first) && ahead > 0;
        let asked = if seen {
            object.asked_for(self.area.offset_of(first), ahead)
        } else {
            0
        };
        let hits = self.hits(window, asked);
        let wanted = window.pages_at(self.page, hits);
        let most = wanted.min(self.area.end().number() - self.page.number());
        let read = object.bring_in(memory, index, most)?;
        memory.count_ahead(self.cpu, ahead, hits);
        let next = Window::after_read(self.page, wanted, read);
        self.area.window.set(next);
        memory.count_on(self.cpu, Row::SwapAround, read.saturating_sub(1));
        Ok(read > 0)
    }

    /// How many of the pages that came unasked with the last fault were used since: by this program, or as `asked` says
    /// of an object's, by somebody, a bit for each.
    fn hits(self, window: Window, asked: u64) -> u64 {
        let core = self.core;
        let (first, ahead) = window.ahead();
        let range = PageRange::new(first, first.add(ahead)).intersect(self.area.range());
        if range.is_empty() {
            return 0;
        }
        let used = Bits::ACCESSED | Bits::FOLDED_ACCESSED;
        let mut hits = 0;
        let mut cursor = core.table.cursor(range);
        let mut next = range.start;
        while next < range.end {
            cursor.seek(next);
            let page = cursor.peek().present();
            let is_used = page.is_some_and(|page| page.bits.intersects(used))
                || asked >> (next.number() - first.number()) & 1 != 0;
            hits += u64::from(is_used);
            next = next.add(1);
        }
        hits
    }

    /// Has a page read that nobody has asked for yet, if it is in this slot, one entry's alone, and there is a frame
    /// for it.
    fn ask_for(
        self,
        cursor: &mut Cursor<'_, M>,
        page: Page,
        slot: u64,
        neighbours: &mut Neighbours<'a, M>,
    ) -> bool {
        cursor.seek(page);
        let swapped = match cursor.peek() {
            Entry::Swapped(swapped) if swapped.slot == slot => swapped,
            Entry::Swapped(_)
            | Entry::Empty
            | Entry::Marker(_)
            | Entry::Migrating(_)
            | Entry::Present(_) => return false,
        };
        let (frames, swap) = (self.core.memory.frames(), self.core.memory.swap());
        let found = swap.find(frames, slot);
        if found.uses != 1 || found.frame.is_some() {
            return false;
        }
        let Ok(frame) = frames.allocate(0, FrameKind::Anonymous) else {
            return false;
        };
        let number = neighbours.count;
        let to = (slot, frame.frame());
        let transfers = &mut neighbours.transfers;
        transfers.begin(swap, frames, number, Direction::In, to);
        neighbours.pages[number] = Some((swapped, frame));
        neighbours.count += 1;
        true
    }

    /// Maps the pages from `first` on that were asked for. The table's lock was held since: each is where it was. One
    /// that cannot be read stays out.
    fn map_asked_for(
        self,
        cursor: &mut Cursor<'_, M>,
        first: Page,
        neighbours: &mut Neighbours<'a, M>,
    ) {
        let core = self.core;
        let (frames, swap) = (core.memory.frames(), core.memory.swap());
        let mut back = 0;
        for number in 0..neighbours.count {
            let read = neighbours.transfers.finish(frames, number);
            let Some((swapped, frame)) = neighbours.pages[number].take() else {
                continue;
            };
            if read.is_err() {
                core.memory.count_on(self.cpu, Row::SwapFailed, 1);
                continue;
            }
            swap.keep(frames, swapped.slot, frame.frame());
            let bits = self.bits_of(swapped.bits, true, false) - Bits::ACCESSED;
            cursor.seek(first.add(number as u64));
            cursor.swap_in(Present {
                frame: frame.into_raw(),
                size: PageSize::Size4K,
                bits,
            });
            back += 1;
        }
        core.memory.count_on(self.cpu, Row::SwapIn, back);
        core.memory.count_on(self.cpu, Row::SwapAround, back);
        core.note_filled(self.cpu, back);
        core.note_swapped(-(back as i64));
    }

    /// The bits of the entry of a page that is back. What somebody tracks is restored before the rule is asked.
    pub(super) fn bits_of(self, carried: Bits, exclusive: bool, stores: bool) -> Bits {
        let mut bits = access_bits(self.area.rights()) | Bits::ACCESSED | (carried & RESTORED);
        if exclusive {
            bits |= Bits::EXCLUSIVE;
        }
        if stores {
            bits |= Bits::DIRTY | Bits::SOFT_DIRTY;
        }
        let asked = if planted(Mistake::RuleBeforeProtection) {
            bits - Bits::UFFD_WP
        } else {
            bits
        };
        let reuses = stores || self.core.memory.policy().swapin_reuse() == SwapInReuse::On;
        if reuses && writable(self.area.view(), asked).is_writable() {
            bits |= Bits::WRITE;
            if !stores {
                self.core.memory.count_on(self.cpu, Row::SwapReused, 1);
            }
        }
        bits
    }

    /// Gets the page into a frame, for an entry whose use of the slot ends here.
    pub(super) fn bring(self, swapped: Swapped, stores: bool) -> Result<Back<'a, M>, FaultError> {
        let memory = &*self.core.memory;
        let (frames, swap) = (memory.frames(), memory.swap());
        let found = swap.find(frames, swapped.slot);
        if let Some(frame) = found.frame {
            return self.bring_cached(swapped, frame, found.uses, stores);
        }
        let frame = frames.allocate(0, FrameKind::Anonymous)?;
        // Nothing a program can see has changed: only who needed the page is told.
        if swap.read(frames, swapped.slot, frame.frame()).is_err() {
            memory.count_on(self.cpu, Row::SwapFailed, 1);
            return Err(FaultError::Io);
        }
        memory.count_on(self.cpu, Row::SwapIn, 1);
        let mut sole = swapped.bits.contains(Bits::EXCLUSIVE)
            || found.uses == 1
            || planted(Mistake::SwapInExclusive);
        if stores {
            // Whoever else names the slot has its page there.
            swap.release(frames, swapped.slot);
        } else if sole {
            swap.keep(frames, swapped.slot, frame.frame());
        } else {
            match swap.cache(frames, swapped.slot, frame.frame()) {
                Cached::Here => {}
                Cached::Alone => sole = true,
                Cached::Elsewhere(first, uses) => {
                    return self.bring_cached(swapped, first, uses, stores);
                }
            }
        }
        Ok(Back {
            frame,
            exclusive: sole || stores,
            kind: FaultKind::SwapIn,
        })
    }

    /// The same for a page that another of its owners brought back, in `frame`.
    fn bring_cached(
        self,
        swapped: Swapped,
        frame: FrameRef<'a, M>,
        uses: u32,
        stores: bool,
    ) -> Result<Back<'a, M>, FaultError> {
        let memory = &*self.core.memory;
        let (frames, swap) = (memory.frames(), memory.swap());
        // This one's reference and the slot's: nobody else can reach the page, or will (design rule 5).
        let sole = swapped.bits.contains(Bits::EXCLUSIVE)
            || (uses == 1 && frames.references(frame.frame()) == 2)
            || planted(Mistake::SwapCachedExclusive);
        let kind = FaultKind::SwapCached;
        if sole || !stores {
            swap.release(frames, swapped.slot);
            if stores {
                swap.forget(frames, frame.frame());
            }
            return Ok(Back {
                frame,
                exclusive: sole,
                kind,
            });
        }
        let copy = frames.allocate(0, FrameKind::Anonymous)?;
        frames.copy(frame.frame(), copy.frame());
        memory.count_on(self.cpu, Row::FramesCopied, 1);
        swap.release(frames, swapped.slot);
        Ok(Back {
            frame: copy,
            exclusive: true,
            kind,
        })
    }
}
