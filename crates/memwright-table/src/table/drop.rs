//! Drops a table with all of its entries, or only the reference of one address space to a shared table.

use core::sync::atomic::Ordering;

use super::batch::SWAPPED;
use super::level::{ENTRIES, USER_ENTRIES};
use super::numbers;
use super::runs::{all_empty, pass_together};
use super::shared::{count_last, is_shared_table, stop_sharing};
use crate::addr::Frame;
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::entry::Entry;
use crate::frame::Alike;
use crate::gather::Dropped;
use crate::machine::{Machine, SlotOf};
use crate::root::Table;
use crate::sync::Rank;

impl<M: Machine> Drop for Table<M> {
    /// Frees the tables, and the frames to which entries still hold references. The caller ensures that no CPU has the
    /// root loaded.
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            if let Some(cpu) = self.loaded().iter().next() {
                panic!("dropped a table that CPU {} has loaded", cpu.index());
            }
        }
        self.drop_below(self.root, M::Arch::LEVELS);
        self.frames.release(self.root);
    }
}

impl<M: Machine> Table<M> {
    fn drop_below(&self, table: Frame, level: u8) {
        let entries = if level == M::Arch::LEVELS {
            USER_ENTRIES
        } else {
            ENTRIES
        };
        if self.frames.meta(table).live.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut left = 0;
        for word in &self.frames.table_words(table)[..entries] {
            let word = word.load(Ordering::Relaxed);
            match word::slot(word, level) {
                Slot::Table(lower) if is_shared_table(self.frames.meta(lower)) => {
                    if stop_sharing(self.frames.meta(lower)) {
                        left += 1;
                    } else {
                        self.wait_for_copy(lower);
                        self.drop_below(lower, 1);
                        self.frames.release(lower);
                    }
                }
                Slot::Table(lower) => {
                    self.drop_below(lower, level - 1);
                    self.frames.release(lower);
                }
                Slot::Entry => {
                    let entry = word::decode(word, level);
                    if let Entry::Swapped(swapped) = entry {
                        self.frames.release_slots(&[swapped.slot]);
                    } else if let Some(frame) = entry.counted_frame() {
                        if level == 1 {
                            self.frames.release(frame);
                        } else {
                            self.frames.release_whole(frame);
                        }
                    }
                }
            }
        }
        self.frames.release_earmarks(left);
        self.drop_aside(table);
    }
}

impl<M: Machine> Table<M> {
    /// Drops a table that was shared, and that no other address space shares any more.
    pub(super) fn drop_last_shared(&self, table: Frame) -> Dropped {
        self.wait_for_copy(table);
        self.drop_last_level(table)
    }

    /// Waits until no address space copies `table`. An address space that replaces the table by a copy holds the
    /// table's lock until its CPUs have flushed.
    fn wait_for_copy(&self, table: Frame) {
        let lock = &self.frames().meta(table).lock;
        lock.lock::<M::Threads>(Rank::Table);
        lock.unlock::<M::Threads>(Rank::Table);
    }

    /// Frees a last-level table that is not linked, and drops what its entries hold. The caller ensures that no CPU
    /// walks the table, and that no thread locks it.
    #[inline(never)]
    pub(super) fn drop_last_level(&self, table: Frame) -> Dropped {
        let frames = self.frames();
        let numbers = frames.meta(table).live.load(Ordering::Relaxed);
        let live = numbers::live(numbers) as usize;
        let words = frames.table_words(table);
        let mut rest = up_to_last_of_few::<M>(words, live);
        let (mut empty, mut without_rights) = (ENTRIES - rest.len(), 0);
        let (mut alike, mut objects) = (Alike::new(), 0);
        loop {
            rest = frames.drop_alike(rest, alike);
            let Some((last, others)) = rest.split_last() else {
                break;
            };
            let word = last.load(Ordering::Relaxed);
            if word == 0 {
                if ENTRIES - rest.len() - empty == live {
                    break;
                }
                let count = count_last::<M>(rest, |_, some| some == 0, |word| word == 0);
                empty += count;
                rest = &rest[..rest.len() - count];
                continue;
            }
            if word::is_borrowed(word) {
                let is_borrowed = word::is_borrowed;
                let count = count_last::<M>(rest, |every, _| is_borrowed(every), is_borrowed);
                rest = &rest[..rest.len() - count];
                continue;
            }
            if word::swapped(word).is_some() {
                let before = self.drop_swapped(rest);
                without_rights += (rest.len() - before.len()) as u64;
                rest = before;
                continue;
            }
            rest = others;
            without_rights += u64::from(!word::has_rights(word));
            if let Some(frame) = word::decode(word, 1).counted_frame() {
                objects += u64::from(frames.drop_counted(frame, &mut alike));
            }
        }
        frames.release(table);
        Dropped {
            mapped: live as u64 - without_rights,
            pages: numbers::counted(numbers).into(),
            objects,
            slots: numbers::swapped(numbers).into(),
        }
    }

    /// Drops the references of the swap entries at the end of `slots` to their swap slots. Returns the slots before them.
    #[cold]
    fn drop_swapped<'s>(&self, slots: &'s [SlotOf<M>]) -> &'s [SlotOf<M>] {
        let mut rest = slots;
        loop {
            let (mut names, mut count) = ([0; SWAPPED], 0);
            while let [others @ .., last] = rest {
                let name = word::swapped(last.load(Ordering::Relaxed));
                let (Some(name), Some(place)) = (name, names.get_mut(count)) else {
                    break;
                };
                *place = name;
                count += 1;
                rest = others;
            }
            if count > 0 {
                self.frames().release_slots(&names[..count]);
            }
            if count < SWAPPED {
                return rest;
            }
        }
    }
}

/// The maximum number of entries of a table whose last entry is searched for from the start of the table. In a sparse
/// table, entries are more often at the start than at the end.
const FEW: usize = 8;

/// Returns the slots of a table up to its last entry, or all slots if its number of entries, `live`, is above [`FEW`].
fn up_to_last_of_few<M: Machine>(words: &[SlotOf<M>; ENTRIES], live: usize) -> &[SlotOf<M>] {
    if live > FEW {
        return words;
    }
    let (mut end, mut found) = (0, 0);
    while found < live {
        let Some(slot) = words.get(end) else {
            break;
        };
        if slot.load(Ordering::Relaxed) == 0 {
            end = pass_together(words, end + 1, all_empty::<M>);
        } else {
            found += 1;
            end += 1;
        }
    }
    &words[..end]
}
