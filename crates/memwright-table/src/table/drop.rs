//! Drops a table with all entries, and drops an address space's part in a shared table.

use core::sync::atomic::Ordering;

use super::level::{ENTRIES, USER_ENTRIES};
use super::shared::{is_shared_table, stop_sharing};
use crate::addr::Frame;
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::entry::Entry;
use crate::machine::Machine;
use crate::root::Table;
use crate::sync::Rank;

impl<M: Machine> Drop for Table<M> {
    /// Frees the tables, and the frames to which entries still hold references. The caller ensures that no CPU has the
    /// root loaded.
    fn drop(&mut self) {
        debug_assert!(
            self.loaded().is_empty(),
            "dropped a table that {:?} may use",
            self.loaded()
        );
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
                        self.drop_last_shared(lower);
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
    #[cold]
    pub(super) fn drop_last_shared(&self, table: Frame) {
        // An address space that has replaced the table by a copy holds the lock until its CPUs have flushed.
        let lock = &self.frames().meta(table).lock;
        lock.lock::<M::Threads>(Rank::Table);
        lock.unlock::<M::Threads>(Rank::Table);
        self.drop_below(table, 1);
        self.frames().release(table);
    }
}
