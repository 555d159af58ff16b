//! The per-CPU counts of a table.

use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use crate::sync::Threads;
use crate::sync::stat::{self, Line};

/// One CPU's share of the counts of a table, on its own cache line. Operations on different CPUs in different parts of
/// a table therefore write no common cache line (rule: no-shared-fault-lock).
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct CpuShare {
    /// The number of gathers that have recorded an invalidation on this CPU and have not performed it yet.
    pending: AtomicU64,
    /// The number of tables that were allocated on this CPU, minus the number that were freed on it.
    tables: AtomicI64,
    /// Whether the CPU may have cached translations of the table: `NOTHING`, `KEPT` or `LOADED`. Written only if the
    /// machine keeps translations.
    cached: AtomicU8,
}

/// The CPU does not have the root loaded, and must drop all translations that it kept of the root when it loads the
/// root again.
const NOTHING: u8 = 0;
/// The CPU does not have the root loaded, and the translations that it kept match the table.
const KEPT: u8 = 1;
/// The CPU has the root loaded, or is about to load it.
const LOADED: u8 = 2;

impl CpuShare {
    /// Records that a gather of this CPU has an invalidation pending.
    #[inline]
    pub(crate) fn begin_pending(&self) {
        self.pending.fetch_add(1, Ordering::SeqCst);
    }

    /// Records that the gather has performed the invalidation.
    #[inline]
    pub(crate) fn end_pending(&self) {
        self.pending.fetch_sub(1, Ordering::SeqCst);
    }

    /// Records in the lock statistics that the calling CPU wrote its share.
    pub(crate) fn note_line<H: Threads>(&self) {
        stat::line::<H>(Line::Table, self);
    }

    #[inline]
    pub(crate) fn pending(&self) -> u64 {
        self.pending.load(Ordering::SeqCst)
    }

    /// Adds `tables` to the number of tables. `tables` is negative for tables that were freed.
    #[inline]
    pub(crate) fn count_tables<H: Threads>(&self, tables: i64) {
        self.tables.fetch_add(tables, Ordering::Relaxed);
        self.note_line::<H>();
    }

    /// Records that the CPU is about to load the root. Returns whether the translations that it kept may be used.
    pub(crate) fn begin_loaded(&self) -> bool {
        self.cached.swap(LOADED, Ordering::SeqCst) == KEPT
    }

    /// Records that the CPU has loaded another root, and keeps the translations that it has cached of this table.
    pub(crate) fn end_loaded(&self) {
        self.cached.store(KEPT, Ordering::SeqCst);
    }

    /// Marks the translations that the CPU kept as stale, because a right or a translation was removed from the table.
    /// Returns whether the CPU has the root loaded, and so must receive an invalidation at once.
    ///
    /// Both results come from one atomic word. A CPU that loads or unloads the root at the same time therefore either
    /// receives the invalidation or drops its kept translations at the next load.
    pub(crate) fn make_stale(&self) -> bool {
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        match self
            .cached
            .compare_exchange(KEPT, NOTHING, order.0, order.1)
        {
            Ok(_) => false,
            Err(seen) => seen == LOADED,
        }
    }

    pub(crate) fn tables(&self) -> i64 {
        self.tables.load(Ordering::Relaxed)
    }
}
