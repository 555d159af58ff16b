//! Many entries at a time: one pass over a table's words, one atomic per entry.

use core::sync::atomic::Ordering;

use super::cursor::Cursor;
use super::{ENTRIES, slot_index};
use crate::addr::{Page, PageSize};
use crate::entry::x86_64;
use crate::entry::{Bits, Change, Entry, Present};
use crate::gather::Gather;
use crate::machine::Machine;
use crate::sync::{Step, step};

/// What a rule wants of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Bits to set.
    pub set: Bits,
    /// Bits to clear, unless they are also to be set.
    pub clear: Bits,
}

impl Edit {
    /// Nothing to do.
    pub const NONE: Edit = Edit {
        set: Bits::empty(),
        clear: Bits::empty(),
    };
}

/// Changes of the same kind that follow one another, told to the gather together.
pub(super) struct Run {
    what: Change,
    elided: bool,
    start: u64,
    end: u64,
    entries: u64,
}

impl Run {
    pub(super) const fn new() -> Self {
        Self {
            what: Change::Same,
            elided: false,
            start: 0,
            end: 0,
            entries: 0,
        }
    }

    /// Adds the 4 KiB page `page`, whose entry was `old`.
    #[inline]
    pub(super) fn add<M: Machine>(
        &mut self,
        gather: &mut Gather<'_, M>,
        page: u64,
        what: Change,
        old: u64,
    ) {
        let elided = what.needs_local() && old & x86_64::ACCESSED == 0;
        if what as u8 != self.what as u8 || elided != self.elided {
            self.tell(gather);
            *self = Self {
                what,
                elided,
                start: page,
                end: page,
                entries: 0,
            };
        }
        if self.entries == 0 {
            self.start = page;
        }
        self.end = page + 1;
        self.entries += 1;
    }

    /// Tells the gather. Call it before the table's lock is released.
    pub(super) fn tell<M: Machine>(&mut self, gather: &mut Gather<'_, M>) {
        if self.entries == 0 {
            return;
        }
        if self.elided {
            gather.elide(self.what, self.entries);
        } else {
            let (start, end) = (Page::new(self.start), Page::new(self.end));
            gather.record_run(start, end, PageSize::Size4K, self.what, self.entries);
        }
        self.entries = 0;
    }
}

impl<M: Machine> Cursor<'_, M> {
    /// The page after the last that the locked lowest table, and `limit`, allow.
    #[inline]
    pub(super) fn table_end(&self, limit: Page) -> Page {
        Page::new((self.position.number() | (ENTRIES as u64 - 1)) + 1).min(limit)
    }

    /// Edits every page from the position to `limit` or the end of the range, as `rule` says;
    /// returns how many entries changed. A rule that yields the same bits leaves the entry
    /// untouched. Ends at `limit`. If a huge page may reach beyond the range, `split_edges` first.
    ///
    /// # Panics
    /// In debug builds, if a huge page reaches beyond the range.
    #[inline]
    pub fn edit_run(
        &mut self,
        limit: Page,
        mut rule: impl FnMut(Page, Present) -> Edit,
        gather: &mut Gather<'_, M>,
    ) -> u64 {
        let limit = limit.min(self.range.end);
        let mut changed = 0;
        while self.position < limit {
            if self.level == 1 {
                let end = self.table_end(limit);
                changed += self.edit_table(end, &mut rule, gather);
                self.go(end);
                continue;
            }
            if let Entry::Present(page) = self.entry().entry {
                let edit = rule(self.slot_start(), page);
                let new = self.edit(edit.set, edit.clear, gather);
                changed += u64::from(new.bits != page.bits);
            }
            self.advance();
        }
        changed
    }

    /// The same for the pages from the position to `end` in the locked lowest table.
    #[inline]
    fn edit_table(
        &mut self,
        end: Page,
        rule: &mut impl FnMut(Page, Present) -> Edit,
        gather: &mut Gather<'_, M>,
    ) -> u64 {
        if self.meta.live.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let (mut changed, mut kept) = (0, false);
        let mut run = Run::new();
        let first = slot_index(self.position, 1);
        let count = (end.number() - self.position.number()) as usize;
        for (page, slot) in (self.position.number()..).zip(&self.words[first..first + count]) {
            step(Step::Entry);
            let mut old = slot.load(Ordering::Relaxed);
            if !x86_64::is_present(old) {
                continue;
            }
            loop {
                let edit = rule(Page::new(page), x86_64::decode_present(old, 1));
                let new = x86_64::edit(old, edit.set, edit.clear);
                if new == old {
                    kept = true;
                    break;
                }
                match slot.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => {
                        run.add(gather, page, x86_64::change(old, new), old);
                        changed += 1;
                        break;
                    }
                    // Hardware set accessed or dirty.
                    Err(seen) => old = seen,
                }
            }
        }
        run.tell(gather);
        if kept {
            gather.rely_on_pending();
        }
        changed
    }

    /// Takes out everything from the position to the end of the range; returns how many entries
    /// there were. References are handed to the gather. If a huge page or a marker may reach beyond
    /// the range, `split_edges` first.
    ///
    /// # Panics
    /// In debug builds, if a slot that is not empty reaches beyond the range.
    #[inline]
    pub fn remove_all(&mut self, gather: &mut Gather<'_, M>) -> u64 {
        self.remove_all_with(gather, |_, _| {})
    }

    /// The same; `seen` is told of each entry, as it was when it was taken out, under the lock.
    ///
    /// # Panics
    /// As for `remove_all`.
    #[inline]
    pub fn remove_all_with(
        &mut self,
        gather: &mut Gather<'_, M>,
        mut seen: impl FnMut(Page, Entry),
    ) -> u64 {
        let mut removed = 0;
        while self.position < self.range.end {
            if self.level == 1 {
                let end = self.table_end(self.range.end);
                removed += self.remove_table(end, gather, &mut seen);
                self.go(end);
                gather.relieve();
                continue;
            }
            if self.word() != 0 {
                let start = self.slot_start();
                seen(start, self.remove(gather));
                removed += 1;
            }
            self.advance();
        }
        removed
    }

    /// The same for the pages from the position to `end` in the locked lowest table.
    #[inline]
    fn remove_table(
        &mut self,
        end: Page,
        gather: &mut Gather<'_, M>,
        seen: &mut impl FnMut(Page, Entry),
    ) -> u64 {
        let live = self.meta.live.load(Ordering::Relaxed);
        if live == 0 {
            return 0;
        }
        let mut removed = 0;
        let mut run = Run::new();
        let first = slot_index(self.position, 1);
        let count = (end.number() - self.position.number()) as usize;
        for (page, slot) in (self.position.number()..).zip(&self.words[first..first + count]) {
            step(Step::Entry);
            if slot.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let old = slot.swap(0, Ordering::AcqRel);
            removed += 1;
            let entry = x86_64::decode(old, 1);
            if old & x86_64::READ != 0 {
                run.add(gather, page, Change::Freed, old);
            } else {
                // Whoever took the right to read may not have flushed yet (rule 2).
                gather.rely_on_pending();
            }
            if let Some(frame) = entry.counted_frame() {
                gather.hold(frame);
            }
            seen(Page::new(page), entry);
            if removed == live {
                break;
            }
        }
        run.tell(gather);
        self.meta.live.store(live - removed, Ordering::Relaxed);
        u64::from(removed)
    }
}
