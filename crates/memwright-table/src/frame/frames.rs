//! All frames of a machine: the state of the allocator, and its usage counts.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::rust_alloc::vec::Vec;

use super::buddy::{Buddy, Metas};
use super::cache::Cache;
use super::chooser::Choosing;
use super::kind::FrameKind;
use super::meta::Meta;
use super::node_tally::NodeTally;
use super::pool_state::Pool;
use super::slots::Keeper;
use super::topology::Topology;
use super::unshared::{Unshared, UnsharedCounts};
use crate::addr::{CpuId, Frame};
use crate::machine::Machine;
use crate::sync::{Lock, LockGuard, Threads};

/// The part of the allocator's state that one CPU uses. Each CPU's part is on separate cache lines.
#[repr(align(64))]
pub(super) struct CpuCache<H> {
    /// The CPU's free frames.
    pub(super) free: Lock<Cache, H>,
    /// The number of frames of objects that became mapped on this CPU, minus the number that became unmapped on this
    /// CPU; see `mapped.rs`.
    pub(super) mapped_objects: AtomicI64,
}

/// The numbers of allocated frames and page-table frames. The peaks are exact with one CPU, and upper bounds with
/// several CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of allocated frames.
    pub used: u64,
    /// The highest number of allocated frames at a time.
    pub used_peak: u64,
    /// The number of page-table frames.
    pub tables: u64,
    /// The highest number of page-table frames at a time.
    pub tables_peak: u64,
}

/// All frames of a machine.
pub struct Frames<M: Machine> {
    pub(super) machine: M,
    /// `machine.memory_base()`, read once.
    pub(super) base: NonNull<u8>,
    /// The metadata of all frames from `lowest` on. It is stored in `Reserved` frames.
    pub(super) metas: NonNull<[Meta]>,
    pub(super) lowest: u32,
    /// One cache per CPU.
    pub(super) caches: Vec<CpuCache<M::Threads>>,
    /// One buddy allocator per node.
    pub(super) nodes: Vec<Lock<Buddy, M::Threads>>,
    /// The NUMA topology.
    pub(super) topology: Topology,
    /// The allocation statistics of each node.
    pub(super) tallies: Vec<NodeTally>,
    /// The NUMA policy for data allocations, if one was set.
    pub(super) choosing: Choosing,
    /// The number of frames that can be allocated, free or not.
    pub(super) total: u64,
    /// The number of allocations before the injected failure; `u64::MAX` if none is injected.
    pub(super) fail_after: AtomicU64,
    /// The size of the reserve, in frames.
    pub(super) low_water: AtomicU64,
    /// The number of free frames that are earmarked for page tables (`earmark.rs`).
    pub(super) earmarked: AtomicU64,
    /// The number of anonymous folios of 2 MiB.
    pub(super) folios: AtomicU64,
    /// The number of folios of objects.
    pub(super) object_folios: AtomicU64,
    /// The counts of shared tables that address spaces have stopped sharing.
    pub(super) unshared: Unshared,
    /// The manager of swap slots, if one was set.
    pub(super) slots: Keeper<M>,
    /// The pool of huge pages.
    pub(super) pool: Lock<Pool, M::Threads>,
}

// SAFETY: the pointers refer to memory of the machine, which is `Send + Sync` and outlives `self`. Metadata consists of
// atomics, and contents are accessed by raw copies and atomics only.
unsafe impl<M: Machine> Send for Frames<M> {}
// SAFETY: as above.
unsafe impl<M: Machine> Sync for Frames<M> {}

impl<M: Machine> Frames<M> {
    /// The machine.
    #[inline]
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The NUMA topology.
    #[inline]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The node of `frame`.
    ///
    /// # Panics
    /// If the frame is beyond all regions.
    #[inline]
    pub fn node_of(&self, frame: Frame) -> u8 {
        self.meta(frame).state().node()
    }

    /// The number of frames that can be allocated, free or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The number of free frames that are not earmarked for page tables.
    pub fn free(&self) -> u64 {
        (self.total - self.used()).saturating_sub(self.earmarked.load(Ordering::Relaxed))
    }

    /// The number of allocated frames.
    pub fn used(&self) -> u64 {
        self.sum(|cache| cache.used.now)
    }

    /// The highest number of frames that were allocated at a time: exact with one CPU, otherwise an upper bound,
    /// because each CPU records the peak of its own share.
    pub fn peak_used(&self) -> u64 {
        self.sum(|cache| cache.used.peak).min(self.total)
    }

    /// The number of allocated frames of `kind`.
    pub fn used_by(&self, kind: FrameKind) -> u64 {
        self.sum(|cache| cache.by_kind[kind.index()].now)
    }

    /// The highest number of frames of `kind` that were allocated at a time: exact with one CPU, otherwise an upper
    /// bound.
    pub fn peak_by(&self, kind: FrameKind) -> u64 {
        self.sum(|cache| cache.by_kind[kind.index()].peak)
    }

    /// Returns the numbers of allocated frames and of page-table frames, current and peak.
    pub fn usage(&self) -> Usage {
        self.usage_by(|cache| Some(cache.lock()))
            .unwrap_or_default()
    }

    /// Like `usage`, but does not wait: returns `None` if a CPU has locked its cache. For failure reports.
    pub fn try_usage(&self) -> Option<Usage> {
        self.usage_by(Lock::try_lock)
    }

    fn usage_by<'a>(
        &'a self,
        lock: impl Fn(&'a Lock<Cache, M::Threads>) -> Option<LockGuard<'a, Cache, M::Threads>>,
    ) -> Option<Usage> {
        let mut sums = [0; 4];
        for cpu in &self.caches {
            let cache = lock(&cpu.free)?;
            let tables = &cache.by_kind[FrameKind::Table.index()];
            let shares = [cache.used.now, cache.used.peak, tables.now, tables.peak];
            for (sum, share) in sums.iter_mut().zip(shares) {
                *sum += share;
            }
        }
        let frames = |sum: i64| (sum.max(0) as u64).min(self.total);
        let [used, used_peak, tables, tables_peak] = sums.map(frames);
        Some(Usage {
            used,
            used_peak,
            tables,
            tables_peak,
        })
    }

    /// The number of anonymous folios: blocks of 2 MiB that are referenced as a whole.
    pub fn folios(&self) -> u64 {
        self.folios.load(Ordering::Relaxed)
    }

    /// The number of successful allocations.
    pub fn allocations(&self) -> u64 {
        self.sum(|cache| cache.allocations as i64)
    }

    /// Reserves `frames` frames for the kinds that may use the reserve ([`FrameKind::may_use_reserve`]). An allocation
    /// of any kind can use a frame in the CPU's cache, so caches are kept empty while only the reserve is left.
    pub fn low_water(&self, frames: u64) {
        self.low_water.store(frames, Ordering::Relaxed);
    }

    /// The number of reserved frames.
    pub fn reserve(&self) -> u64 {
        self.low_water.load(Ordering::Relaxed)
    }

    /// Returns the counts of shared page tables that address spaces have stopped sharing.
    pub fn unshared_counts(&self) -> UnsharedCounts {
        self.unshared.counts()
    }

    pub(crate) fn unshared(&self) -> &Unshared {
        &self.unshared
    }

    fn sum(&self, of: impl Fn(&Cache) -> i64) -> u64 {
        let sum: i64 = self.caches.iter().map(|cpu| of(&cpu.free.lock())).sum();
        sum.max(0) as u64
    }

    /// The calling CPU's cache of free frames.
    #[inline]
    pub(super) fn cache(&self) -> &Lock<Cache, M::Threads> {
        &self.cpu_cache().free
    }

    #[inline]
    pub(super) fn cpu_cache(&self) -> &CpuCache<M::Threads> {
        &self.caches[self.this_cpu().index()]
    }

    #[inline]
    pub(super) fn this_cpu(&self) -> CpuId {
        if cfg!(debug_assertions) {
            self.check_cpu(M::Threads::cpu());
        }
        let asked = (self.caches.len() > 1).then(M::Threads::cpu);
        asked.unwrap_or(CpuId::new(0))
    }

    /// Checks the number of a CPU.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    pub fn check_cpu(&self, cpu: CpuId) {
        let (cpu, cpus) = (cpu.index(), self.caches.len());
        assert!(cpu < cpus, "CPU {cpu} of a machine with {cpus} CPUs");
    }

    #[inline]
    pub(crate) fn metas(&self) -> Metas<'_> {
        // SAFETY: `new` wrote the metadata, in frames that are never allocated, and only shared references to it exist.
        let all = unsafe { self.metas.as_ref() };
        Metas::new(self.lowest, all)
    }

    /// The metadata of `frame`.
    ///
    /// # Panics
    /// If the frame is beyond all regions.
    #[inline]
    pub(crate) fn meta(&self, frame: Frame) -> &Meta {
        self.metas().get(frame.number())
    }
}

impl<M: Machine> fmt::Debug for Frames<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames")
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}
