//! Operations that swap pages out and in.

use core::sync::atomic::Ordering;

use super::cursor::Cursor;
use super::numbers;
use super::record::record;
use super::runs::{TOGETHER, are_pages};
use crate::addr::Page;
use crate::arch::{TableSlot, word};
use crate::entry::{Bits, Entry, Present, Swapped, change};
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};

impl<M: Machine> Cursor<'_, M> {
    /// Replaces the 4 KiB page here by a swap entry for `slot`. `bits` derives the bits that the swap entry carries
    /// from the old bits. Returns the old page, whose dirty bit records every store that a CPU made through the entry.
    /// The caller takes over the page's reference, and must not read the frame before the gather has flushed (rule:
    /// flush-what-shrank).
    ///
    /// # Panics
    /// If no page of 4 KiB is mapped here.
    pub fn swap_out(
        &mut self,
        slot: u64,
        bits: impl Fn(Bits) -> Bits,
        gather: &mut Gather<'_, M>,
    ) -> Present {
        assert!(self.level == 1, "only pages of 4 KiB are swapped out");
        let word = self.slot_word();
        let mut old = word.load(Ordering::Relaxed);
        loop {
            assert!(word::is_present(old), "no page at {:?}", self.position);
            let page = word::decode_present(old, 1);
            let new = Entry::Swapped(Swapped {
                slot,
                bits: bits(page.bits) & Bits::CARRIED,
            });
            match word.exchange(old, word::encode(new)) {
                Ok(_) => {
                    self.add_to_numbers(numbers::SWAPPED.wrapping_sub(numbers::COUNTED));
                    let what = change(Entry::Present(page), new);
                    record(gather, self.position, page.size, what, old);
                    return page;
                }
                // Hardware set the accessed or dirty bit meanwhile: retry.
                Err(seen) => old = seen,
            }
        }
    }

    /// Replaces the swap entry here by `page`. The entry takes over the reference to the frame of `page`, and the
    /// caller takes over the reference to the swap slot. No flush is needed, because no CPU has cached a translation
    /// here.
    ///
    /// # Panics
    /// If there is no swap entry here.
    pub fn swap_in(&mut self, page: Present) {
        let slot = self.slot_word();
        let old = slot.load(Ordering::Relaxed);
        assert!(
            matches!(word::decode(old, self.level), Entry::Swapped(_)),
            "nothing is swapped out at {:?}",
            self.position
        );
        self.break_before_make(1);
        let new = word::encode_present(page);
        slot.store(new, Ordering::Release);
        self.add_to_numbers(numbers::COUNTED.wrapping_sub(numbers::SWAPPED));
    }

    /// Changes the bits that swap entries carry, from the position to the end of the table or of the range. The cursor
    /// keeps its position and its lock, so that the caller can edit the pages of the same table before any of them is
    /// swapped out or in.
    pub fn edit_swapped(&mut self, rule: impl Fn(Bits) -> Bits) {
        if self.level != 1 {
            return;
        }
        let slots = self.slots_to(self.table_end(self.range().end));
        let all_pages = |group: &&[SlotOf<M>]| {
            let whole = group.first_chunk::<TOGETHER>();
            whole.is_some_and(|slots| are_pages::<M>(slots, 1))
        };
        let groups = slots.chunks(TOGETHER).filter(|group| !all_pages(group));
        for slot in groups.flatten() {
            // Hardware does not change a swap entry, and the table is locked.
            let word = slot.load(Ordering::Relaxed);
            if word::swapped(word).is_some() {
                let new = word::with_carried(word, rule(word::carried(word)));
                slot.store(new, Ordering::Release);
            }
        }
    }

    /// Returns the end of the pages whose entries the cursor has locked, and so the end of what one call of
    /// [`edit_swapped`](Self::edit_swapped) edits. It is the end of the last-level table (of the slot, if the cursor is
    /// in an upper-level table) or the end of the range, whichever comes first.
    #[inline]
    pub fn locked_end(&self) -> Page {
        let last = self.range().end;
        let span = super::level::slot_pages(self.level.max(2));
        Page::new((self.position.number() | (span - 1)) + 1).min(last)
    }
}
