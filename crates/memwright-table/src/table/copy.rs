//! The batch operation of fork: copies entries to another table.

use core::sync::atomic::Ordering;

use super::aside::HUGE_LEVEL;
use super::copy_entries::{CopyRule, CopyStop, Pass, cannot_copy, copy_slots};
use super::cursor::Cursor;
use super::numbers::{COUNTED, LIVE, SWAPPED};
use crate::addr::Page;
use crate::arch::{TableSlot, word};
use crate::entry::{Bits, Entry, Marker, Present};
use crate::frame::{FrameKind, OutOfFrames};
use crate::gather::Gather;
use crate::machine::Machine;

/// The result of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The number of copied entries that map pages.
    pub entries: u64,
    /// The number of copied pages, in units of 4 KiB.
    pub pages: u64,
    /// The number of pages among `pages` whose copied entry holds a reference, except pages of the huge page pool. The
    /// entry of a special (`BORROWED`) page holds none.
    pub counted: u64,
    /// The number of pages of objects among `counted`.
    pub objects: u64,
    /// The number of copied swap entries.
    pub swapped: u64,
    /// Why the copy stopped. Both cursors are at the page where it stopped.
    pub stop: CopyStop,
}

impl<M: Machine> Cursor<'_, M> {
    /// Copies the entries from the position on to the same addresses of `to`, until the range ends or the caller must
    /// handle a page. `to` is a cursor on the same range of another table, where nothing is mapped yet. Takes a
    /// reference for each copied entry that holds one.
    ///
    /// # Errors
    /// [`OutOfFrames`] if there is no frame for a table of `to`. Entries that were already copied stay in `to`.
    ///
    /// # Panics
    /// If the cursors are not at the same page, or an entry is migrating.
    pub fn copy_to(
        &mut self,
        to: &mut Cursor<'_, M>,
        rule: CopyRule,
        gather: &mut Gather<'_, M>,
    ) -> Result<Copied, OutOfFrames> {
        assert!(
            self.position == to.position,
            "the cursors of a copy stand apart"
        );
        let mut copied = Copied {
            entries: 0,
            pages: 0,
            counted: 0,
            objects: 0,
            swapped: 0,
            stop: CopyStop::Done,
        };
        while self.next_filled_with(to) {
            if self.level > 1 {
                let here = self.entry().entry;
                match self.copy_slot(to, rule, gather)? {
                    CopyStop::Done => {
                        if here.present().is_some() {
                            copied.entries += 1;
                            copied.pages += self.size().pages();
                        }
                        let frames = self.table.frames();
                        let kind = here.counted_frame().map(|frame| frames.kind(frame));
                        if kind.is_some_and(|kind| !kind.is_pool()) {
                            copied.counted += self.size().pages();
                        }
                        if kind == Some(FrameKind::Object) {
                            copied.objects += self.size().pages();
                        }
                        to.park();
                        self.advance();
                    }
                    stop @ CopyStop::Pinned(_) => {
                        return Ok(Copied { stop, ..copied });
                    }
                }
                continue;
            }
            while to.level > 1 {
                to.push_down()?;
            }
            let end = self.table_end(self.range.end);
            let pass = self.copy_table(to, end, rule, gather);
            copied.entries += pass.pages;
            copied.pages += pass.pages;
            copied.counted += pass.counted;
            copied.objects += pass.objects;
            copied.swapped += pass.swapped;
            if let Some(stop) = pass.stop {
                self.go(pass.end);
                to.go(pass.end);
                return Ok(Copied { stop, ..copied });
            }
            to.park();
            self.go(end);
        }
        Ok(copied)
    }

    /// Moves both cursors of a copy past the slot here. Returns `false` if they are then at the end of the range.
    pub fn pass_with(&mut self, to: &mut Cursor<'_, M>) -> bool {
        to.park();
        let more = self.advance();
        to.go(self.position);
        more
    }

    /// Copies the entries from the position to `end` between two locked last-level tables.
    fn copy_table(
        &self,
        to: &Cursor<'_, M>,
        end: Page,
        rule: CopyRule,
        gather: &mut Gather<'_, M>,
    ) -> Pass {
        let slots = (self.slots_to(end), to.slots_to(end));
        let pass = copy_slots(slots, self.position, rule, gather);
        let entries = pass.pages + pass.markers + pass.swapped;
        let added =
            LIVE * entries as u32 + COUNTED * pass.counted as u32 + SWAPPED * pass.swapped as u32;
        let numbers = to.meta.live.load(Ordering::Relaxed) + added;
        to.meta.live.store(numbers, Ordering::Relaxed);
        pass
    }

    /// Copies one slot of an upper-level table.
    #[cold]
    fn copy_slot(
        &mut self,
        to: &mut Cursor<'_, M>,
        rule: CopyRule,
        gather: &mut Gather<'_, M>,
    ) -> Result<CopyStop, OutOfFrames> {
        self.debug_check_whole();
        while to.level > self.level {
            to.push_down()?;
        }
        let frames = self.table.frames();
        let new = match self.entry().entry {
            Entry::Empty => return Ok(CopyStop::Done),
            Entry::Marker(Marker { marks }) => Entry::marker(marks.intersection(rule.marks)),
            Entry::Present(page) => {
                let counted = !page.bits.contains(Bits::BORROWED);
                let exclusive = page.bits.intersection(rule.clear).contains(Bits::EXCLUSIVE);
                if counted && exclusive && frames.pins(page.frame) != 0 {
                    return Ok(CopyStop::Pinned(page));
                }
                if self.level == HUGE_LEVEL {
                    to.set_aside(to.table.allocate_aside()?);
                }
                if counted {
                    frames.share_whole_raw(page.frame);
                }
                let page = self.edit(Bits::empty(), rule.clear, gather);
                Entry::Present(Present {
                    bits: page.bits.difference(rule.withhold),
                    ..page
                })
            }
            entry @ (Entry::Swapped(_) | Entry::Migrating(_)) => cannot_copy(entry),
        };
        let word = word::encode(new);
        to.slot_word().store(word, Ordering::Release);
        to.count(0, word);
        Ok(CopyStop::Done)
    }
}
