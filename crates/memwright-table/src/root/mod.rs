//! The root of the page tables of an address space: the CPUs that have it loaded, and the invalidations that are
//! pending.
//!
//! A [`Gather`](crate::Gather) needs no more of a table than this. What walks and changes the entries is in `table/`.

mod share;

pub(crate) use share::CpuShare;

extern crate alloc as rust_alloc;

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use rust_alloc::sync::Arc;
use rust_alloc::vec::Vec;

use crate::addr::{CpuId, CpuSet, Frame};
use crate::frame::Frames;
use crate::machine::Machine;
use crate::sync::stat::{self, Line};

/// The page tables of one address space.
pub struct Table<M: Machine> {
    pub(crate) frames: Arc<Frames<M>>,
    pub(crate) root: Frame,
    /// The shares of the existing CPUs from 1 on.
    pub(crate) others: Vec<CpuShare>,
    pub(crate) state: State,
}

/// The fields that many CPUs write, but no fault writes. They are on other cache lines than the fields that every fault
/// reads.
#[repr(align(64))]
pub(crate) struct State {
    /// The number of slots above the last level that hold a huge page or a marker. While it is 0, no edge of a range
    /// can cut one.
    pub(crate) large: AtomicU64,
    /// CPUs that may be using the root: set before it is loaded, cleared after another one is.
    pub(crate) loaded: AtomicU64,
    /// The share of CPU 0.
    pub(crate) first: CpuShare,
}

impl<M: Machine> Table<M> {
    /// The frames from which the tables are allocated.
    #[inline]
    pub fn frames(&self) -> &Arc<Frames<M>> {
        &self.frames
    }

    /// The frame of the root table.
    #[inline]
    pub fn root(&self) -> Frame {
        self.root
    }

    /// The number of frames that the tables take now, including the root and deposited tables.
    pub fn table_frames(&self) -> u64 {
        let sum: i64 = self.shares().map(CpuShare::tables).sum();
        sum.max(0) as u64
    }

    /// Records that `cpu` may use the table from now on. Call it before the root is loaded by [`Machine::load_root`].
    #[inline]
    pub fn note_loaded(&self, cpu: CpuId) {
        if self.frames.machine().keeps_translations() {
            self.share_of(cpu).begin_loaded();
        }
        self.enter(cpu);
    }

    #[inline]
    fn enter(&self, cpu: CpuId) {
        let bit = CpuSet::single(cpu).bits();
        if self.state.loaded.load(Ordering::Relaxed) & bit == 0 {
            self.state.loaded.fetch_or(bit, Ordering::SeqCst);
            stat::line(Line::Table, &self.state.loaded);
        }
    }

    /// Records that `cpu` no longer uses the table. Call it after another root is loaded. If the machine keeps
    /// translations, they may be used again at the next [`load`](Self::load), unless a [`Gather`](crate::Gather)
    /// invalidates something of the table before then.
    #[inline]
    pub fn note_unloaded(&self, cpu: CpuId) {
        if self.frames.machine().keeps_translations() {
            self.share_of(cpu).end_loaded();
        }
        self.state
            .loaded
            .fetch_and(!CpuSet::single(cpu).bits(), Ordering::SeqCst);
        stat::line(Line::Table, &self.state.loaded);
    }

    /// The CPUs that may be using the table.
    #[inline]
    pub fn loaded(&self) -> CpuSet {
        CpuSet::from_bits(self.state.loaded.load(Ordering::SeqCst))
    }

    /// Makes the table current on this CPU. The caller records that the previous table was unloaded.
    pub fn load(&self) {
        let machine = self.frames.machine();
        let cpu = machine.cpu();
        let kept = machine.keeps_translations() && self.share_of(cpu).begin_loaded();
        self.enter(cpu);
        if kept {
            machine.load_kept_root(self.root);
        } else {
            machine.load_root(self.root);
        }
    }

    /// Returns the CPUs that must receive an invalidation because a right or a translation was removed from the table.
    /// The other CPUs find that their kept translations are stale when they load the table again.
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
    #[inline]
    pub(crate) fn share(&self) -> &CpuShare {
        if self.others.is_empty() {
            return &self.state.first;
        }
        self.share_of(self.frames.machine().cpu())
    }

    #[inline]
    fn share_of(&self, cpu: CpuId) -> &CpuShare {
        match cpu.index() {
            0 => &self.state.first,
            cpu => &self.others[cpu - 1],
        }
    }

    fn shares(&self) -> impl Iterator<Item = &CpuShare> {
        core::iter::once(&self.state.first).chain(&self.others)
    }

    /// Records that a gather has an invalidation pending. Call it before the lock that protects the entry is released.
    /// Returns the share on which the caller must call `end_pending`.
    #[inline(always)]
    pub(crate) fn begin_pending(&self) -> &CpuShare {
        let share = self.share();
        share.begin_pending();
        share
    }

    /// The number of gathers that have an invalidation pending.
    #[inline]
    pub(crate) fn pending(&self) -> u64 {
        self.shares().map(CpuShare::pending).sum()
    }

    /// Whether any slot above the last level holds a huge page or a marker.
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
