//! What one CPU counts of a table.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

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
}

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

    pub(super) fn tables(&self) -> i64 {
        self.tables.load(Ordering::Relaxed)
    }
}
