//! Operations on many 2 MiB pages: one atomic operation per entry, and no splits.

use core::sync::atomic::Ordering;

use super::aside::HUGE_LEVEL;
use super::batch::{Alike, Edit, Editor, could_regain};
use super::cursor::Cursor;
use super::level::{ENTRIES, slot_index, slot_pages};
use super::record::record;
use crate::addr::{Page, PageSize};
use crate::arch::{Slot, TableSlot, word};
use crate::entry::{Bits, Change, Entry, Present};
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};
use crate::sync::{Step, step};

impl<M: Machine> Cursor<'_, M> {
    /// Edits the entries of an upper-level table from the position on. Stops at the first slot that points to a lower
    /// table, at `limit`, or at the end of the locked table. The cursor is then at that page.
    pub(super) fn edit_huge<R: FnMut(Bits, PageSize) -> Edit>(
        &mut self,
        limit: Page,
        editor: &mut Editor<R>,
        gather: &mut Gather<'_, M>,
    ) {
        let start = self.slot_start();
        let first = slot_index(start, self.level);
        let pages = slot_pages(self.level);
        let whole = (limit.number().saturating_sub(start.number()) / pages) as usize;
        if start != self.position || whole == 0 {
            // The slot is only partly in the range, so no huge page is mapped there.
            debug_assert!(
                self.entry().entry.present().is_none(),
                "a huge page reaches beyond the cursor's range: split it first"
            );
            let next = start.add(pages).min(limit);
            self.go(next);
            return;
        }
        let slots = &self.words[first..ENTRIES.min(first + whole)];
        let mut done = 0;
        while done < slots.len() {
            let word = slots[done].load(Ordering::Relaxed);
            if let Slot::Table(_) = word::slot(word, self.level) {
                break;
            }
            let page = start.add(done as u64 * pages);
            if editor.regain && could_regain(word) {
                self.edit_sharable(page, &slots[done], editor, gather);
                done += 1;
                continue;
            }
            let alike = Alike::decide(word, self.size(), editor, gather);
            let count = alike.apply::<M>(&slots[done..]);
            let before = editor.edited.made_writable;
            alike.tell(page, self.size(), count as u64, &mut editor.edited, gather);
            // `tell` counted entries of 2 MiB; convert their number to pages of 4 KiB.
            let won = editor.edited.made_writable - before;
            editor.edited.made_writable = before + won * self.size().pages();
            done += count;
        }
        self.go(start.add(done as u64 * pages));
    }

    /// Edits one huge page whose entry may become exclusive again.
    fn edit_sharable<R: FnMut(Bits, PageSize) -> Edit>(
        &self,
        page: Page,
        slot: &SlotOf<M>,
        editor: &mut Editor<R>,
        gather: &mut Gather<'_, M>,
    ) {
        step::<M::Threads>(Step::Entry);
        let frames = self.table.frames();
        let mut old = slot.load(Ordering::Relaxed);
        loop {
            let mapped = word::decode_present(old, self.level);
            let sole =
                frames.kind(mapped.frame).is_anonymous() && frames.is_sole_whole(mapped.frame);
            let (new, what) = editor.decide(old, self.size(), sole, gather);
            if new == old {
                gather.rely_on_pending();
                return;
            }
            match slot.exchange(old, new) {
                Ok(_) => {
                    editor.edited.changed += 1;
                    let won = u64::from(word::gained_write(old, new));
                    editor.edited.made_writable += won * self.size().pages();
                    record(gather, page, self.size(), what, old);
                    return;
                }
                // Hardware set the accessed or dirty bit meanwhile: retry.
                Err(now) => old = now,
            }
        }
    }

    /// Maps the 2 MiB page `new` in place of the one here. Empties the entry, flushes, and then fills the entry (rule:
    /// flush-what-shrank). The deposited page table stays for the new page. The table takes over the reference to the
    /// new page's folio.
    ///
    /// # Panics
    /// If no 2 MiB page is mapped here.
    pub fn replace_huge(&mut self, new: Present, gather: &mut Gather<'_, M>) {
        self.debug_check_whole();
        let slot = self.slot_word();
        let old = slot.swap(0, Ordering::AcqRel);
        assert!(
            self.level == HUGE_LEVEL && word::is_present(old),
            "no huge page to replace at {:?}",
            self.position
        );
        record(gather, self.slot_start(), self.size(), Change::Freed, old);
        gather.flush();
        if let Some(frame) = word::decode(old, self.level).counted_frame() {
            gather.hold_whole(frame);
        }
        slot.store(word::encode_present(new), Ordering::Release);
    }

    /// Splits the 2 MiB pages that are only partly in the range, so that operations on the range work on whole pages.
    /// The split cannot fail, because page tables were deposited. Returns the number of split pages. The cursor returns
    /// to its position.
    ///
    /// # Panics
    /// If a 1 GiB page is only partly in the range.
    #[inline]
    pub fn split_pages(&mut self, gather: &mut Gather<'_, M>) -> u64 {
        if self.table.has_large() {
            self.split_cut_pages(gather)
        } else {
            0
        }
    }

    #[cold]
    fn split_cut_pages(&mut self, gather: &mut Gather<'_, M>) -> u64 {
        let back = self.position;
        let last = Page::new(self.range.end.number() - 1);
        let mut split = 0;
        for edge in [self.range.start, last] {
            self.go(edge);
            if !self.is_cut_by_edge() {
                continue;
            }
            match self.entry().entry {
                Entry::Empty | Entry::Marker(_) => {}
                Entry::Swapped(_) | Entry::Migrating(_) | Entry::Present(_) => {
                    assert!(self.size() == PageSize::Size2M, "a 1 GiB page is cut");
                    let done = self.split(gather);
                    debug_assert!(done.is_ok());
                    split += 1;
                }
            }
        }
        self.go(back);
        split
    }
}
