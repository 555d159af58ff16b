//! What one CPU counts of a table.

use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use crate::sync::stat::{self, Line};

/// One CPU's share of the counts of a table, in a cache line of its own: operations in different
/// parts of a table, on different CPUs, write no common line (design rule 14).
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct CpuShare {
    /// Gathers that have recorded an invalidation here and have not made it yet.
    pending: AtomicU64,
    /// Tables made here less those freed here.
    tables: AtomicI64,
    /// What the CPU may have cached of the table: `NOTHING`, `KEPT` or `LOADED`. Written only where the
    /// machine keeps translations.
    cached: AtomicU8,
}

/// The CPU must forget all that it kept before it loads the root again.
const NOTHING: u8 = 0;
/// What the CPU kept, without having the root loaded, is as the table says.
const KEPT: u8 = 1;
/// The CPU has the root loaded, or is about to.
const LOADED: u8 = 2;

impl CpuShare {
    /// A gather has recorded something.
    #[inline]
    pub(crate) fn begin_pending(&self) {
        self.pending.fetch_add(1, Ordering::SeqCst);
    }

    /// It has made the invalidation.
    #[inline]
    pub(crate) fn end_pending(&self) {
        self.pending.fetch_sub(1, Ordering::SeqCst);
    }

    /// Says to the lock statistics that the calling CPU wrote its share.
    pub(super) fn note_line(&self) {
        stat::line(Line::Table, self);
    }

    #[inline]
    pub(super) fn pending(&self) -> u64 {
        self.pending.load(Ordering::SeqCst)
    }

    /// Counts tables made, or, negative, freed.
    #[inline]
    pub(super) fn count_tables(&self, tables: i64) {
        self.tables.fetch_add(tables, Ordering::Relaxed);
        self.note_line();
    }

    /// The CPU is about to load the root. Whether what it kept may be used.
    pub(super) fn begin_loaded(&self) -> bool {
        self.cached.swap(LOADED, Ordering::SeqCst) == KEPT
    }

    /// The CPU has loaded another root, and keeps what it has cached of this one.
    pub(super) fn end_loaded(&self) {
        self.cached.store(KEPT, Ordering::SeqCst);
    }

    /// Something was taken from the table: what the CPU kept is stale from now on. Whether it must
    /// be told at once, for it has the root loaded.
    ///
    /// One word answers both, so a CPU that comes or goes meanwhile is told, or finds that what it
    /// kept is stale.
    pub(super) fn make_stale(&self) -> bool {
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        match self
            .cached
            .compare_exchange(KEPT, NOTHING, order.0, order.1)
        {
            Ok(_) => false,
            Err(seen) => seen == LOADED,
        }
    }

    pub(super) fn tables(&self) -> i64 {
        self.tables.load(Ordering::Relaxed)
    }
}
