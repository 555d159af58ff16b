//! Swap-out (Linux 7.2 `mm/vmscan.c`, `shrink_folio_list`, and `mm/rmap.c`, `try_to_unmap_one`).
//!
//! Pages are swapped out in groups from one page table. Their entries are replaced by swap entries, one flush
//! invalidates the translations of all CPUs, and the frames are written to the device and then freed. The page-table
//! lock is held from start to end, so that no fault finds a swap entry whose page is not written yet.

use memwright_table::{
    Bits, Cursor, Entry, FrameKind, Gather, Machine, Page, PageRange, PageSize, Present,
};

use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::reclaim::effort::{Choice, Effort};
use crate::swap::device::{DeviceError, Direction};
use crate::swap::transfers::Transfers;
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;
use crate::vma::idle::aging;

/// The maximum number of pages swapped out per flush. Linux takes twice as many (`SWAP_CLUSTER_MAX`), but writes them
/// without a page-table lock. Here the page-table lock is held meanwhile, and the CPU's other threads wait: to compress
/// one page may take 100,000 instructions.
const TOGETHER: usize = 16;

/// A page that is being swapped out.
#[derive(Clone, Copy)]
struct Leaving {
    page: Page,
    old: Present,
    slot: u64,
    /// Whether the slot already holds the contents of the page.
    kept: bool,
}

/// Returns the bits that a swap entry carries for a page with `bits`, in an area with `flags`. A swap entry carries
/// neither the dirty bit nor the accessed bit. This function therefore records them in the bits of the store tracking
/// and of the access tracking (rule: fold-before-clearing).
fn carried(flags: AreaFlags, bits: Bits) -> Bits {
    const KEPT: Bits = Bits::EXCLUSIVE
        .union(Bits::SOFT_DIRTY)
        .union(Bits::UFFD_WP)
        .union(Bits::WATCHED)
        .union(Bits::IDLE);
    let mut kept = bits.without_past_idle() & KEPT;
    if bits.contains(Bits::DIRTY) {
        kept -= Bits::WATCHED;
        if !flags.contains(AreaFlags::WATCH_STORES) {
            kept |= Bits::SOFT_DIRTY;
        }
    }
    kept
}

impl<M: Machine> Core<M> {
    /// Returns whether private pages of the area are allowed to be swapped out.
    pub(crate) fn may_leave(&self, area: &Area<M>) -> bool {
        let kept = AreaFlags::LOCKED | AreaFlags::SECRET | AreaFlags::SHARED;
        !area.flags().intersects(kept)
    }

    /// Swaps out private pages of `range`, which is a part of `area`, until `effort` is used up. `choice` selects the
    /// pages. Pages with other users are swapped out only with `Choice::Unused`. Pages for which no slot is available
    /// stay in memory. Returns the page at which the scan stopped.
    pub(crate) fn page_out(
        &self,
        area: &Area<M>,
        range: PageRange,
        choice: Choice,
        effort: &mut Effort,
    ) -> Page {
        let cpu = self.cpu();
        self.note_peak(cpu);
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(range).pausing();
        let mut out = 0;
        while let Some(extent) = cursor.next_filled() {
            if effort.is_over() {
                break;
            }
            if extent.size != PageSize::Size4K {
                effort.look = effort.look.saturating_sub(1);
                let parted = self.part_huge(&mut cursor, extent.entry, choice, &mut gather);
                if !parted && !cursor.advance() {
                    break;
                }
                continue;
            }
            out += self.page_out_some(area, &mut cursor, choice, effort, &mut gather);
            if cursor.position() == range.end {
                break;
            }
            cursor.pause_point();
        }
        let end = cursor.position();
        drop(cursor);
        let counts = gather.close();
        self.note_gather(cpu, counts);
        self.note_swapped(out as i64);
        self.memory.count_on(cpu, Row::SwapOut, out);
        end
    }

    /// Splits a huge page that may be swapped out, so that its small pages are swapped out separately. With
    /// `Choice::Unused`, a huge page that was accessed is aged instead. Returns whether the entry was split.
    fn part_huge(
        &self,
        cursor: &mut Cursor<'_, M>,
        entry: Entry,
        choice: Choice,
        gather: &mut Gather<'_, M>,
    ) -> bool {
        let Entry::Present(page) = entry else {
            return false;
        };
        if choice == Choice::Unused {
            if let Some(edit) = aging(page.bits) {
                cursor.widen();
                cursor.edit(edit.set, edit.clear, gather);
                return false;
            }
        }
        let frames = self.memory.frames();
        let leaves = page.size == PageSize::Size2M
            && !page.bits.contains(Bits::BORROWED)
            // Hugetlb pages are not split and stay in memory: only anonymous pages are split.
            && matches!(frames.kind(page.frame), FrameKind::Anonymous)
            && frames.pins(page.frame) == 0
            && frames.is_sole_whole(page.frame);
        if !leaves || cursor.split(gather).is_err() {
            return false;
        }
        self.memory.count(Row::HugeSplitsSwap, 1);
        true
    }

    /// Swaps out the next pages of the page table at the cursor, and leaves the cursor after them. Returns the number
    /// of entries that became swap entries.
    fn page_out_some(
        &self,
        area: &Area<M>,
        cursor: &mut Cursor<'_, M>,
        choice: Choice,
        effort: &mut Effort,
        gather: &mut Gather<'_, M>,
    ) -> u64 {
        let flags = area.flags();
        let shows_object = area.object().is_some();
        let nothing = Leaving {
            page: Page::new(0),
            old: Present {
                frame: self.memory.zero_frame(),
                size: PageSize::Size4K,
                bits: Bits::empty(),
            },
            slot: 0,
            kept: false,
        };
        let mut leaving = [nothing; TOGETHER];
        let mut count = 0;
        let (end, last) = (cursor.locked_end(), cursor.range().end);
        let mut went = 0;
        let mut next = cursor.position();
        // A page with other users counts towards `TOGETHER` as well, because it may need a separate write.
        while next < end && count + (went as usize) < TOGETHER && effort.look > 0 {
            cursor.seek(next);
            let at = next;
            next = next.add(1);
            let Entry::Present(page) = cursor.peek() else {
                continue;
            };
            if shows_object && !self.is_private(page.frame) {
                // A page of the object itself is reclaimed by `page_out_objects`.
                continue;
            }
            effort.look -= 1;
            if choice == Choice::Unused {
                if let Some(edit) = aging(page.bits) {
                    cursor.edit(edit.set, edit.clear, gather);
                    continue;
                }
            }
            if self.drop_lazy(cursor, page, gather) {
                effort.wanted = effort.wanted.saturating_sub(1);
                continue;
            }
            if choice == Choice::Unused && self.frames_are_shared(page) {
                went += u64::from(self.share_out(area, cursor, page, effort, gather));
                continue;
            }
            let Some((slot, kept)) = self.slot_for(page) else {
                continue;
            };
            let old = cursor.swap_out(slot, |bits| carried(flags, bits), gather);
            // A CPU may have stored to the page after the check, so the contents of the slot may be stale.
            let kept = kept && !old.bits.intersects(Bits::DIRTY | Bits::FOLDED_DIRTY);
            leaving[count] = Leaving {
                page: at,
                old,
                slot,
                kept,
            };
            count += 1;
        }
        gather.flush();
        let out = went + self.write_out(cursor, &leaving[..count], effort, gather);
        if next < last {
            cursor.seek(next);
        } else {
            while cursor.advance() {}
        }
        out
    }

    /// Returns whether the page can be swapped out although it has other users. It must be a single anonymous page that
    /// is neither pinned nor exclusive to an entry, so that no user can write to it.
    fn frames_are_shared(&self, page: Present) -> bool {
        let frames = self.memory.frames();
        !page
            .bits
            .intersects(Bits::BORROWED | Bits::MERGED | Bits::EXCLUSIVE)
            && self.is_anonymous(page.frame)
            && frames.references(page.frame) > 1
            && !frames.is_in_folio(page.frame)
            && frames.pins(page.frame) == 0
    }

    /// Replaces one entry of a page with several users by a swap entry. The frame is freed, and counts towards
    /// `effort`, only when no entry maps it any more. Returns whether the entry was replaced.
    fn share_out(
        &self,
        area: &Area<M>,
        cursor: &mut Cursor<'_, M>,
        page: Present,
        effort: &mut Effort,
        gather: &mut Gather<'_, M>,
    ) -> bool {
        let (frames, swap) = (self.memory.frames(), self.memory.swap());
        let dirty = page.bits.intersects(Bits::DIRTY | Bits::FOLDED_DIRTY);
        let Some(slot) = swap.share_out(frames, page.frame, dirty, self.memcg()) else {
            return false;
        };
        let flags = area.flags();
        let old = cursor.swap_out(slot, |bits| carried(flags, bits), gather);
        // The slot is published before the flush, so another CPU may already write the page to the device. This is safe
        // because no CPU can write to the page: the entries of a page with several users are read-only. A CPU may still
        // read the frame until the flush, and the gather frees the frame after the flush.
        gather.free(frames.adopt(old.frame));
        gather.flush();
        let shed = swap.shed(frames, slot);
        if shed.refused {
            // The device would reject the other pages too: end the scan.
            effort.look = 0;
        }
        effort.wanted = effort.wanted.saturating_sub(u64::from(shed.freed));
        self.memory.count(Row::SwapWritten, u64::from(shed.written));
        self.memory.count(Row::SwapRefused, u64::from(shed.refused));
        true
    }

    /// Returns the slot for `page`, and whether the slot already holds the page's contents. Returns `None` if the page
    /// may not be swapped out or there is no slot.
    fn slot_for(&self, page: Present) -> Option<(u64, bool)> {
        let frames = self.memory.frames();
        let leaves = !page.bits.intersects(Bits::BORROWED | Bits::MERGED)
            && self.is_anonymous(page.frame)
            && frames.references(page.frame) == 1
            && frames.pins(page.frame) == 0;
        if !leaves {
            return None;
        }
        let dirty = page.bits.intersects(Bits::DIRTY | Bits::FOLDED_DIRTY);
        let swap = self.memory.swap();
        let way = swap.way_out(frames, page.frame, dirty, self.memcg())?;
        Some((way.slot, way.kept))
    }

    /// Writes the pages to the device, and frees their frames. Restores the entries of pages that the device rejects.
    /// Returns the number of pages that were swapped out.
    fn write_out(
        &self,
        cursor: &mut Cursor<'_, M>,
        leaving: &[Leaving],
        effort: &mut Effort,
        gather: &mut Gather<'_, M>,
    ) -> u64 {
        let (frames, swap) = (self.memory.frames(), self.memory.swap());
        let (mut out, mut written) = (0, 0);
        let mut transfers = Transfers::<M, TOGETHER>::NONE;
        for (number, one) in leaving.iter().enumerate() {
            if !one.kept {
                let page = (one.slot, one.old.frame);
                transfers.begin(swap, frames, number, Direction::Out, page);
            }
        }
        for (number, one) in leaving.iter().enumerate() {
            let kept = one.kept || {
                let taken = transfers.finish(frames, number);
                written += u64::from(taken.is_ok());
                if taken == Err(DeviceError::Full) {
                    // The device would reject the other pages too: end the scan.
                    effort.look = 0;
                }
                taken.is_ok()
            };
            if kept {
                gather.free(frames.adopt(one.old.frame));
                out += 1;
                continue;
            }
            cursor.seek(one.page);
            cursor.swap_in(one.old);
            memwright_table::Slots::release(&**swap, frames, &[one.slot]);
            self.memory.count(Row::SwapRefused, 1);
        }
        effort.wanted = effort.wanted.saturating_sub(out);
        self.memory.count(Row::SwapWritten, written);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_carries_what_its_readers_need() {
        let (x, d, s) = (Bits::EXCLUSIVE, Bits::DIRTY, Bits::SOFT_DIRTY);
        let (u, w) = (Bits::UFFD_WP, Bits::WATCHED);
        let rights = Bits::RIGHTS | Bits::ACCESSED;
        let (plain, watch) = (AreaFlags::empty(), AreaFlags::WATCH_STORES);
        #[rustfmt::skip]
        let rows = [
            ("exclusive, clean",                         plain, x,         x),
            ("written: soft-dirty",                      plain, x | d,     x | s),
            ("written, by faults: the bit alone tells",  watch, x | d,     x),
            ("by faults, written",                       watch, x | d | s, x | s),
            ("protected",                                plain, x | u,     x | u),
            ("watched, unwritten",                       plain, x | w,     x | w),
            ("watched, written",                         plain, x | w | d, x | s),
            ("a page of several",                        plain, s,         s),
        ];
        for (name, flags, bits, expected) in rows {
            assert_eq!(carried(flags, bits | rights), expected, "{name}");
        }
    }
}
