//! The root of the page tables of an address space, with the CPUs that have it loaded and the number of pending
//! invalidations.
//!
//! A [`Gather`](crate::Gather) uses only this part of a table. The code that walks and changes the entries is in
//! `table/`.

mod loaded;
mod share;

pub use loaded::{HasTable, Loaded};
pub(crate) use share::CpuShare;

extern crate alloc as rust_alloc;

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use rust_alloc::sync::Arc;
use rust_alloc::vec::Vec;

use crate::addr::{CpuId, CpuSet, Frame};
use crate::arch::Architecture;
use crate::frame::Frames;
use crate::machine::{Machine, check_registers};
use crate::sync::Threads;
use crate::sync::stat::{self, Line};

/// The page tables of one address space.
pub struct Table<M: Machine> {
    pub(crate) frames: Arc<Frames<M>>,
    pub(crate) root: Frame,
    /// The per-CPU shares of CPU 1 and all later CPUs.
    pub(crate) others: Vec<CpuShare>,
    pub(crate) state: State,
}

/// The fields that many CPUs write, but that no page fault writes. They are on other cache lines than the fields that
/// every page fault reads.
#[repr(align(64))]
pub(crate) struct State {
    /// The number of slots in upper-level tables that hold a huge page or a marker. While it is 0, no range can begin
    /// or end inside such an entry.
    pub(crate) large: AtomicU64,
    /// The number of shared last-level tables that upper-level tables point to (`table/shared.rs`).
    pub(crate) shared: AtomicU64,
    /// The CPUs that may be using the root, as a bit mask. A CPU's bit is set before the CPU loads the root, and
    /// cleared after the CPU has loaded another root.
    pub(crate) loaded: AtomicU64,
    /// The per-CPU share of CPU 0.
    pub(crate) first: CpuShare,
}

impl<M: Machine> Table<M> {
    /// The allocator of the frames of the tables.
    #[inline]
    pub fn frames(&self) -> &Arc<Frames<M>> {
        &self.frames
    }

    /// The frame of the root table.
    #[inline]
    pub fn root(&self) -> Frame {
        self.root
    }

    /// The number of frames that the tables use now, including the root and deposited tables.
    pub fn table_frames(&self) -> u64 {
        let sum: i64 = self.shares().map(CpuShare::tables).sum();
        sum.max(0) as u64 * u64::from(M::Arch::TABLE_FRAMES)
    }

    /// Records that `cpu` may use the table from now on.
    #[cfg(test)]
    #[inline]
    pub(crate) fn note_loaded(&self, cpu: CpuId) {
        if self.frames.machine().keeps_translations() {
            self.share_of(cpu).begin_loaded();
        }
        self.enter(cpu);
    }

    #[inline]
    fn enter(&self, cpu: CpuId) {
        if cfg!(debug_assertions) {
            self.frames.check_cpu(cpu);
        }
        let bit = CpuSet::single(cpu).bits();
        if self.state.loaded.load(Ordering::Relaxed) & bit == 0 {
            self.state.loaded.fetch_or(bit, Ordering::SeqCst);
            stat::line::<M::Threads>(Line::Table, &self.state.loaded);
        }
    }

    /// Records that `cpu`, which has loaded another root, no longer uses the table. If the machine keeps translations,
    /// the next [`load`](Self::load) may use the kept translations of the table, unless a [`Gather`](crate::Gather) has
    /// invalidated a translation of the table by then.
    ///
    /// # Panics
    /// In debug builds, if the CPU has not loaded the table.
    #[inline]
    pub(crate) fn note_unloaded(&self, cpu: CpuId) {
        if cfg!(debug_assertions) {
            self.check_loaded(cpu);
        }
        if self.frames.machine().keeps_translations() {
            self.share_of(cpu).end_loaded();
        }
        self.state
            .loaded
            .fetch_and(!CpuSet::single(cpu).bits(), Ordering::SeqCst);
        stat::line::<M::Threads>(Line::Table, &self.state.loaded);
    }

    /// Panics if the CPU has not loaded the table.
    pub(crate) fn check_loaded(&self, cpu: CpuId) {
        let number = cpu.index();
        let is_loaded = self.loaded().contains(cpu);
        assert!(is_loaded, "CPU {number} has not loaded the table");
    }

    /// The CPUs that may be using the table.
    #[inline]
    pub fn loaded(&self) -> CpuSet {
        CpuSet::from_bits(self.state.loaded.load(Ordering::SeqCst))
    }

    /// Loads the table on this CPU. [`Loaded`] then calls [`note_unloaded`](Self::note_unloaded) for the table that was
    /// loaded before.
    pub(crate) fn load(&self) {
        let machine = self.frames.machine();
        let cpu = M::Threads::cpu();
        if cfg!(debug_assertions) {
            if let Err(wrong) = check_registers(machine) {
                panic!("CPU {}: {wrong}", cpu.index());
            }
        }
        let kept = machine.keeps_translations() && self.share_of(cpu).begin_loaded();
        self.enter(cpu);
        if kept {
            machine.load_kept_root(self.root);
        } else {
            machine.load_root(self.root);
        }
    }

    /// Marks the kept translations of the table as stale, because a right or a translation was removed from it. Returns
    /// the CPUs that must receive an invalidation; the other CPUs drop their kept translations when they load the table
    /// again.
    #[inline]
    pub(crate) fn make_stale(&self) -> CpuSet {
        if self.frames.machine().keeps_translations() {
            self.make_kept_stale()
        } else {
            self.loaded()
        }
    }

    #[cold]
    fn make_kept_stale(&self) -> CpuSet {
        let bits = self.shares().zip(0..).map(|(share, cpu)| {
            let loaded = share.make_stale();
            u64::from(loaded) << cpu
        });
        CpuSet::from_bits(bits.sum())
    }

    /// The calling CPU's share of the counts.
    #[inline(always)]
    pub(crate) fn share(&self) -> &CpuShare {
        let several = (!self.others.is_empty()).then(|| self.share_of(M::Threads::cpu()));
        several.unwrap_or(&self.state.first)
    }

    #[inline(always)]
    fn share_of(&self, cpu: CpuId) -> &CpuShare {
        let other = cpu.index().checked_sub(1);
        other.map_or(&self.state.first, |other| &self.others[other])
    }

    fn shares(&self) -> impl Iterator<Item = &CpuShare> {
        core::iter::once(&self.state.first).chain(&self.others)
    }

    /// Records that a gather has an invalidation pending. Call this before releasing the lock that protects the entry.
    /// Returns the share on which the caller must call `end_pending`.
    #[inline(always)]
    pub(crate) fn begin_pending(&self) -> &CpuShare {
        let share = self.share();
        share.begin_pending();
        share
    }

    /// The number of gathers that have a TLB invalidation pending (`tlb_flush_pending` of Linux).
    #[inline]
    pub(crate) fn pending(&self) -> u64 {
        self.shares().map(CpuShare::pending).sum()
    }

    /// Whether any last-level table is shared with another address space, or was shared when this table last used it.
    #[inline]
    pub fn has_shared(&self) -> bool {
        self.state.shared.load(Ordering::Relaxed) != 0
    }

    /// Whether any slot of an upper-level table holds a huge page or a marker.
    #[inline]
    pub fn has_large(&self) -> bool {
        self.state.large.load(Ordering::Relaxed) != 0
    }
}

impl<M: Machine> fmt::Debug for Table<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("root", &self.root)
            .field("table_frames", &self.table_frames())
            .field("loaded", &self.loaded())
            .finish_non_exhaustive()
    }
}
