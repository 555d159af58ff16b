//! Page migration: the frame of a page is replaced.

use core::sync::atomic::Ordering;

use super::aside::HUGE_LEVEL;
use super::cursor::Cursor;
use super::record::record;
use crate::addr::{Frame, PageSize};
use crate::arch::{TableSlot, word};
use crate::entry::{Bits, Change, Entry, Migrating, Present, change};
use crate::frame::FrameRef;
use crate::gather::Gather;
use crate::machine::Machine;

impl<M: Machine> Cursor<'_, M> {
    /// Copies the page here into `target` and maps `target` in its place. The entry takes over the reference `target`.
    /// `decide` derives the bits of the new entry from the final bits of the old one, which record every store that was
    /// made through it. Returns the old page; the gather defers dropping its reference.
    ///
    /// Empties the entry, flushes, copies the page, and then fills the entry (rule: flush-what-shrank). A store by
    /// another CPU therefore either precedes the copy, or faults and waits for the table's lock.
    ///
    /// The caller has checked, while the cursor holds the lock of the entry's table, that there is no other writer of
    /// the old frame.
    ///
    /// # Panics
    /// If the entry here does not map a page of the target's size (4 KiB or 2 MiB), or holds no reference to it.
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
            word::is_present(old),
            "no page to migrate at {:?}",
            self.position
        );
        let page = word::decode_present(old, self.level);
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
        slot.store(word::encode_present(new), Ordering::Release);
        page
    }

    /// Replaces the page here by a migrating entry, until [`end_migration`](Self::end_migration). After the gather has
    /// flushed, no CPU can access the page through this entry. Returns the old page, whose bits record every store that
    /// was made through the entry. The migrating entry keeps the reference.
    ///
    /// # Panics
    /// If the entry here does not map a page, or holds no reference to it.
    pub fn begin_migration(&mut self, gather: &mut Gather<'_, M>) -> Present {
        self.debug_check_whole();
        let slot = self.slot_word();
        let mut old = slot.load(Ordering::Relaxed);
        loop {
            assert!(
                word::is_present(old),
                "no page to migrate at {:?}",
                self.position
            );
            let page = word::decode_present(old, self.level);
            assert!(
                !page.bits.contains(Bits::BORROWED),
                "a borrowed frame has no place of its own"
            );
            let new = Entry::Migrating(Migrating {
                frame: page.frame,
                size: page.size,
                bits: page.bits.without_past_idle() & (Bits::CARRIED | Bits::WRITE),
            });
            let word = word::encode(new);
            match slot.exchange(old, word) {
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

    /// Replaces the migrating entry here by `page`. The entry takes over the reference to the frame of `page`, and the
    /// caller takes over the reference to the old frame. No flush is needed, because no CPU has cached a translation
    /// here.
    ///
    /// # Panics
    /// If there is no migrating entry here, or if its size is not that of `page`.
    pub fn end_migration(&mut self, page: Present) {
        let slot = self.slot_word();
        let old = slot.load(Ordering::Relaxed);
        let migrating = word::decode(old, self.level);
        assert!(
            matches!(migrating, Entry::Migrating(one) if one.size == page.size),
            "nothing is migrating at {:?}",
            self.position
        );
        self.break_before_make(1);
        let new = word::encode_present(page);
        slot.store(new, Ordering::Release);
        self.count(old, new);
    }
}
