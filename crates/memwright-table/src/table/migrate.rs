//! Page migration: a page changes its frame while it stays mapped.

use core::sync::atomic::Ordering;

use super::aside::HUGE_LEVEL;
use super::cursor::{Cursor, record};
use crate::addr::{Frame, PageSize};
use crate::entry::x86_64;
use crate::entry::{Bits, Change, Entry, Migrating, Present, change};
use crate::frame::FrameRef;
use crate::gather::Gather;
use crate::machine::Machine;

impl<M: Machine> Cursor<'_, M> {
    /// Copies the page here into `target` and maps `target` in its place; the reference becomes the entry's. The entry
    /// is emptied, flushed, and filled only after the copy (rule: flush-what-shrank). A store by another CPU either
    /// precedes the copy, or faults and waits for the table's lock. `decide` derives the bits of the new entry from the
    /// final bits of the old one, which record every store that was made through it. Returns the old page; the gather
    /// defers dropping its reference.
    ///
    /// The caller has checked, under this lock, that nothing else writes to the old frame.
    ///
    /// # Panics
    /// If no page of the target's size, 4 KiB or 2 MiB, is mapped here with its own reference.
    pub fn migrate(
        &mut self,
        target: FrameRef<'_, M>,
        decide: impl FnOnce(Bits) -> Bits,
        gather: &mut Gather<'_, M>,
    ) -> Present {
        self.debug_check_whole();
        let huge = self.level == HUGE_LEVEL;
        assert!(
            target.is_whole() == huge && (huge || self.level == 1),
            "the target is of another size than the page at {:?}",
            self.position
        );
        let slot = self.slot_word();
        let old = slot.swap(0, Ordering::AcqRel);
        assert!(
            x86_64::is_present(old),
            "no page to migrate at {:?}",
            self.position
        );
        let page = x86_64::decode_present(old, self.level);
        assert!(
            !page.bits.contains(Bits::BORROWED),
            "a borrowed frame has no place of its own"
        );
        record(gather, self.slot_start(), self.size(), Change::Freed, old);
        gather.flush();
        let frames = self.table.frames();
        let count = match page.size {
            PageSize::Size4K => 1,
            PageSize::Size2M | PageSize::Size1G => page.size.pages() as u32,
        };
        for part in 0..count {
            let from = Frame::new(page.frame.number() + part);
            let to = Frame::new(target.frame().number() + part);
            frames.copy(from, to);
        }
        if huge {
            gather.hold_whole(page.frame);
        } else {
            gather.hold(page.frame);
        }
        let new = Present {
            frame: target.into_raw(),
            size: page.size,
            bits: decide(page.bits),
        };
        slot.store(x86_64::encode_present(new), Ordering::Release);
        page
    }

    /// Marks the entry here as migrating until [`end_migration`](Self::end_migration): once the gather has flushed, no
    /// CPU can access the page through it. Returns the page as it was; its bits record every store that was made
    /// through this entry. Its reference stays with the entry.
    ///
    /// # Panics
    /// If no page with its own reference is mapped here.
    pub fn begin_migration(&mut self, gather: &mut Gather<'_, M>) -> Present {
        self.debug_check_whole();
        let slot = self.slot_word();
        let mut old = slot.load(Ordering::Relaxed);
        loop {
            assert!(
                x86_64::is_present(old),
                "no page to migrate at {:?}",
                self.position
            );
            let page = x86_64::decode_present(old, self.level);
            assert!(
                !page.bits.contains(Bits::BORROWED),
                "a borrowed frame has no place of its own"
            );
            let new = Entry::Migrating(Migrating {
                frame: page.frame,
                size: page.size,
                bits: page.bits.without_past_idle() & (Bits::CARRIED | Bits::WRITE),
            });
            let word = x86_64::encode(new);
            match slot.compare_exchange(old, word, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    self.count(old, word);
                    let what = change(Entry::Present(page), new);
                    record(gather, self.slot_start(), self.size(), what, old);
                    return page;
                }
                // Hardware set the accessed or dirty bit meanwhile: retry.
                Err(seen) => old = seen,
            }
        }
    }

    /// Replaces the migrating entry here by `page`. The reference to its frame becomes the entry's, and the caller
    /// takes over the reference to the old frame. No flush is needed: no CPU has cached a translation here.
    ///
    /// # Panics
    /// If no page of this size is migrating here.
    pub fn end_migration(&mut self, page: Present) {
        let slot = self.slot_word();
        let old = slot.load(Ordering::Relaxed);
        let migrating = x86_64::decode(old, self.level);
        assert!(
            matches!(migrating, Entry::Migrating(one) if one.size == page.size),
            "nothing is migrating at {:?}",
            self.position
        );
        let new = x86_64::encode_present(page);
        slot.store(new, Ordering::Release);
        self.count(old, new);
    }
}
