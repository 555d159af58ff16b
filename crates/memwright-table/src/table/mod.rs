//! Page tables: four levels that are walked, locked and changed through a [`Cursor`].
//!
//! # The protocol
//! - **One lock per table**, a word in the metadata of its frame. A cursor holds the lock of the table that contains
//!   its slot, at any level, from its creation until it moves to another table or is dropped. While the lock is held,
//!   no other software changes that table's entries, and hardware can only set accessed and dirty bits. An entry that
//!   maps a page is therefore changed by one atomic operation. A compare-exchange fails only if hardware has set such a
//!   bit since the cursor read the entry. Other entries can be changed by stores.
//! - **A walk takes no locks on its way down.** It reads the words of upper-level tables atomically until a word does
//!   not point to a table. It locks the table that contains this word, and reads the word again. If a lower table has
//!   been linked since the first read, the walk continues in that table. Faults in different last-level tables share no
//!   lock.
//! - **Growing.** An upper-level entry changes from empty, or from a marker, to a table under the lock of the table
//!   that contains the entry. The new table is complete before it is linked. If there was a marker, every entry of the
//!   new table is that marker. A walk therefore reads either the old state or the complete new one.
//! - **Shrinking.** [`Table::free_tables`] frees empty tables. Its caller holds the write lock of the address space, so
//!   that no walk is in progress. The tables are freed through the gather, after every CPU that has the root loaded has
//!   invalidated its cached upper-level entries (rule: flush-freed-tables). [`Table::cut_tables`] frees last-level
//!   tables with their entries in the same way (`prune.rs`). A shared table is freed when the last address space leaves
//!   it (`leave_tables.rs`). The drop of a [`Table`] frees its remaining tables. As a second defense, a cursor that has
//!   locked a table checks in the table's metadata that the table still belongs to this root, level and address, and
//!   walks again if it does not. Code that violates the protocol can therefore read an unexpected entry, but not a
//!   frame that is no longer a table.
//! - **Two locks at a time** are held only by a fork, by `free_tables` and `cut_tables`, by a collapse, by a move of
//!   whole tables, when an address space gets a table of its own (`own_tables.rs`), and when a cursor links a new
//!   table. The lock of the first table has rank `Table`. The lock of the second table, which is the child's or the
//!   lower one, has rank `TableChild`. While the first cursor of a fork moves, the second holds no lock. A cursor locks
//!   a new table before it links it; both locks then have the rank of the cursor. A move of single entries holds one
//!   lock at a time. During a move, the write lock of the address space prevents other threads from looking up a page
//!   that has left its old address and has not reached its new one.
//! - **Markers** can be in any entry that covers up to 1 GiB, and apply to all pages of the entry. [`Cursor::fill`]
//!   pushes a marker down one level at a time. [`Cursor::split_edges`] pushes down the markers, and splits the huge
//!   pages, that are only partly in a range. After that, every operation on the range works on whole slots and cannot
//!   fail.
//! - **Huge pages.** For each 2 MiB page in a table, another page table is deposited, so that a split needs no memory
//!   (`aside.rs`). A split converts the entry's whole-folio reference into one reference to each page of the folio
//!   ([`crate::frame`]), and copies rights and state, including exclusivity, to each new entry.
//! - **Skippable tables.** A scan for written pages skips a last-level table if no page of it was accessed since the
//!   last check. The accessed bit of the entry that points to the table proves this (`quiet.rs`).
//! - **Counting.** The metadata of each table contains the number of entries that are not empty. Code can therefore
//!   detect an empty table without reading its entries.

mod aside;
mod batch;
mod collapse;
mod copy;
mod copy_entries;
mod cursor;
mod drop;
mod extent;
mod huge;
mod leave_tables;
pub(crate) mod level;
mod look;
mod migrate;
mod move_entries;
mod move_table;
mod numbers;
mod own_tables;
mod prune;
mod quiet;
mod record;
#[cfg_attr(not(feature = "inline"), path = "rule_small.rs")]
mod rule;
mod runs;
mod shape;
mod share_tables;
mod shared;
mod swap;
mod translate;

pub use batch::{Edit, Edited};
pub use collapse::Collapsed;
pub use copy::Copied;
pub use copy_entries::{CopyRule, CopyStop};
pub use cursor::Cursor;
pub use extent::Extent;
pub use look::Look;
pub use move_entries::MoveRule;
pub use numbers::TableTotals;
pub use prune::CutTables;
pub use quiet::{AlikeRun, EditedRuns, Prepared, Touched, Tracked};
pub use share_tables::ShareRule;
pub use translate::{PageAccess, Translation};

pub use crate::root::Table;

extern crate alloc as rust_alloc;

use core::sync::atomic::{AtomicU64, Ordering};

use rust_alloc::sync::Arc;
use rust_alloc::vec::Vec;

use crate::addr::{Frame, Page};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::frame::{Frames, SetupError};
use crate::handle::TryPush;
use crate::machine::Machine;
use crate::root::{CpuShare, State};
use crate::sync::stat::{self, Line};

use self::level::{ENTRIES, USER_ENTRIES, slot_index, table_owner};

impl<M: Machine> Table<M> {
    /// Creates an empty table. Copies its kernel half from the machine's [template](Machine::template), if there is one.
    ///
    /// # Errors
    /// [`SetupError::ManagedTemplate`] if the template is a frame of the allocator that is not of the kind
    /// [`FrameKind::Kernel`](crate::FrameKind::Kernel). [`SetupError::OutOfFrames`] or [`SetupError::OutOfHeap`] if the
    /// root, or the per-CPU shares on the heap, cannot be allocated.
    pub fn new(frames: Arc<Frames<M>>) -> Result<Self, SetupError> {
        let template = match frames.machine().template() {
            Some(root) => Some(frames.template_words(root)?),
            None => None,
        };
        let mut others = Vec::new();
        let more = frames.machine().cpu_count() - 1;
        others.try_make_room(more)?;
        others.resize_with(more, CpuShare::default);
        let root = frames.allocate_table()?;
        if let Some(template) = template {
            let kernel = &template[USER_ENTRIES..];
            for (to, from) in frames.table_words(root)[USER_ENTRIES..].iter().zip(kernel) {
                to.store_hardware(from.load(Ordering::Relaxed));
            }
        }
        let meta = frames.meta(root);
        meta.owner
            .store(table_owner(root, M::Arch::LEVELS), Ordering::Relaxed);
        meta.index.store(0, Ordering::Relaxed);
        meta.live.store(0, Ordering::Relaxed);
        let state = State {
            large: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            loaded: AtomicU64::new(0),
            first: CpuShare::default(),
        };
        state.first.count_tables::<M::Threads>(1);
        Ok(Self {
            frames,
            root,
            others,
            state,
        })
    }

    /// Counts the frames of the tables by walking them, for comparison with [`table_frames`](Self::table_frames). No
    /// thread may change the table during the call.
    pub fn count_tables(&self) -> u64 {
        self.count_below(self.root, M::Arch::LEVELS) * u64::from(M::Arch::TABLE_FRAMES)
    }

    fn count_below(&self, table: Frame, level: u8) -> u64 {
        let entries = if level == M::Arch::LEVELS {
            USER_ENTRIES
        } else {
            ENTRIES
        };
        let mut tables = 1 + self.count_aside(table);
        for word in &self.frames.table_words(table)[..entries] {
            if let Slot::Table(lower) = word::slot(word.load(Ordering::Relaxed), level) {
                tables += self.count_below(lower, level - 1);
            }
        }
        tables
    }

    /// Records in the [lock statistics](stat) that this CPU wrote the cache lines that a fault on `page` writes: the
    /// entry, the metadata of the frame, and the CPU's share of the counts. Reads the entries without a lock, so the
    /// tables must not be freed during the call. Does nothing while the statistics are off.
    pub fn note_lines(&self, page: Page) {
        if !stat::is_on() {
            return;
        }
        self.share().note_line::<M::Threads>();
        let (mut node, mut level) = (self.root, M::Arch::LEVELS);
        loop {
            let slot = &self.frames.table_words(node)[slot_index(page, level)];
            let word = slot.load(Ordering::Acquire);
            match word::slot(word, level) {
                Slot::Table(lower) => (node, level) = (lower, level - 1),
                Slot::Entry => {
                    stat::line::<M::Threads>(Line::Entries, slot);
                    if let Some(frame) = word::decode(word, level).counted_frame() {
                        let first = self.frames.first_frame(frame);
                        stat::line::<M::Threads>(Line::Frame, self.frames.meta(first));
                    }
                    return;
                }
            }
        }
    }
}
