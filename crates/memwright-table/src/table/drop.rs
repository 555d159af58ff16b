//! Drops a table with all entries, and drops an address space's part in a shared table.

use core::sync::atomic::Ordering;

use super::level::{ENTRIES, ROOT_LEVEL, USER_ENTRIES};
use super::numbers;
use super::shared::is_shared;
use crate::addr::Frame;
use crate::entry::Entry;
use crate::entry::x86_64::{self, Slot};
use crate::machine::Machine;
use crate::root::Table;
use crate::sync::Rank;

/// The result of [`Table::leave_tables`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftTables {
    /// The number of tables.
    pub tables: u64,
    /// The number of their entries that mapped pages and held references.
    pub counted: u64,
    /// The number of their swap entries.
    pub swapped: u64,
}

impl<M: Machine> Drop for Table<M> {
    /// Frees the tables, and the frames to which entries still hold references. The caller ensures that no CPU has the
    /// root loaded.
    fn drop(&mut self) {
        debug_assert!(
            self.loaded().is_empty(),
            "dropped a table that {:?} may use",
            self.loaded()
        );
        self.drop_below(self.root, ROOT_LEVEL);
        self.frames.release(self.root);
    }
}

impl<M: Machine> Table<M> {
    fn drop_below(&self, table: Frame, level: u8) {
        let entries = if level == ROOT_LEVEL {
            USER_ENTRIES
        } else {
            ENTRIES
        };
        if self.frames.meta(table).live.load(Ordering::Relaxed) == 0 {
            return;
        }
        for word in &self.frames.table_words(table)[..entries] {
            let word = word.load(Ordering::Relaxed);
            match x86_64::slot(word, level) {
                Slot::Table(lower) if is_shared(self.frames.meta(lower)) => {
                    self.leave_one(lower, &mut LeftTables::default());
                }
                Slot::Table(lower) => {
                    self.drop_below(lower, level - 1);
                    self.frames.release(lower);
                }
                Slot::Entry => {
                    let entry = x86_64::decode(word, level);
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
        self.drop_aside(table);
    }
}

impl<M: Machine> Table<M> {
    /// Stops sharing the table, which is unlinked. Frees it if all others have unlinked it at the same time.
    pub(super) fn leave_one(&self, table: Frame, left: &mut LeftTables) {
        let frames = self.frames();
        let meta = frames.meta(table);
        meta.lock.lock::<M::Threads>(Rank::Table);
        let numbers = meta.live.load(Ordering::Relaxed);
        let before = meta.references.load(Ordering::Relaxed);
        if before > 1 {
            meta.references.store(before - 1, Ordering::Release);
        }
        meta.lock.unlock::<M::Threads>(Rank::Table);
        left.tables += 1;
        left.counted += u64::from(numbers::counted(numbers));
        left.swapped += u64::from(numbers::swapped(numbers));
        if before > 1 {
            frames.release_earmarks(1);
        } else {
            self.drop_below(table, 1);
            frames.release(table);
        }
    }
}
