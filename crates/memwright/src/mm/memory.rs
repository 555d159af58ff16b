//! State shared by all address spaces of a machine.

use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::AtomicBool;
use memwright_table::sync::stat::Line;
use memwright_table::sync::{Lock, RANKS, Rank, Threads, stat};
use memwright_table::{
    Change, CpuId, Frame, FrameKind, Frames, GatherCounts, Machine, OutOfMemory,
};

use crate::mm::commit::{Commit, Overcommit};
use crate::mm::merging::Merging;
use crate::mm::spaces::Spaces;
use crate::mm::tracing::Tracing;
use crate::swap::Swap;
use crate::types::faulted_in::{FaultSink, FaultedIn};
use crate::types::huge::HUGE_PAGES;
use crate::types::huge_settings::HugeSettings;
use crate::types::numa_policies::Policies;
use crate::types::numa_policy::{PlacePolicy, PolicyId};
use crate::types::policy::Policy;
use crate::types::stats::{Counters, Row};
use crate::types::trace::{Event, TraceSink};

/// The frames, the zero page, committed memory, policies and counters: one per machine.
pub struct Memory<M: Machine> {
    pub(crate) frames: Arc<Frames<M>>,
    /// A zero-filled frame that is never written. Entries of 4 KiB map it where untouched anonymous memory is read,
    /// with the bit `BORROWED` and without a reference. The memory manager holds one reference.
    pub(crate) zero: Frame,
    pub(crate) commit: Commit,
    pub(crate) policy: Policy,
    huge: HugeSettings,
    merging: Merging<M>,
    pub(crate) swap: Arc<Swap<M>>,
    /// The NUMA policies that areas refer to.
    placements: Policies<M::Threads>,
    /// The list of all address spaces.
    spaces: Spaces<M>,
    /// Whether a swap device was ever added. Adding the first device also gives the frame allocator a reference to the
    /// map of swap slots.
    pub(crate) swapping: AtomicBool,
    pub(crate) counters: Counters,
    tracing: Tracing<M::Threads>,
    fault_sink: Lock<Option<&'static dyn FaultSink>, M::Threads>,
    /// The object of all device memory, a `DeviceMemory` (`device.rs`), once there was a mapping. The type is not named
    /// here, because objects refer to this structure.
    pub(crate) device: Lock<Option<Arc<dyn Any + Send + Sync>>, M::Threads>,
}

impl<M: Machine> Memory<M> {
    /// Creates the memory manager for the frames of a machine.
    ///
    /// # Errors
    /// No frame is free for the zero page, or the counters cannot be allocated.
    pub fn new(frames: Arc<Frames<M>>, policy: Policy) -> Result<Self, OutOfMemory> {
        let zero = frames
            .allocate_zeroed(0, FrameKind::Zero)
            .map_err(|_| OutOfMemory)?
            .into_raw();
        let cpus = frames.machine().cpu_count();
        let counts = Counters::new(cpus)
            .and_then(|counters| Ok((counters, Commit::new(cpus, frames.total())?)));
        let (counters, commit) = match counts {
            Ok(counts) => counts,
            Err(error) => {
                drop(frames.adopt(zero));
                return Err(error);
            }
        };
        Ok(Self {
            zero,
            commit,
            policy,
            huge: HugeSettings::default(),
            merging: Merging::new(),
            #[expect(clippy::disallowed_methods, reason = "once, before anything runs")]
            swap: Arc::new(Swap::new()),
            placements: Policies::new(),
            spaces: Spaces::new(),
            swapping: AtomicBool::new(false),
            counters,
            tracing: Tracing::new(),
            fault_sink: Lock::new(Rank::Leaf, None),
            device: Lock::new(Rank::Leaf, None),
            frames,
        })
    }

    /// Returns the frame allocator of the machine.
    #[inline]
    pub fn frames(&self) -> &Arc<Frames<M>> {
        &self.frames
    }

    /// Returns the frame of the zero page.
    #[inline]
    pub fn zero_frame(&self) -> Frame {
        self.zero
    }

    /// Returns the count of committed memory.
    pub fn commit(&self) -> &Commit {
        &self.commit
    }

    /// Charges `pages` pages of committed memory, on the calling CPU.
    #[inline]
    pub(crate) fn promise(&self, pages: u64) -> Result<(), Overcommit> {
        self.commit.charge(M::Threads::cpu(), pages)
    }

    /// Unaccounts `pages` pages of committed memory, on the calling CPU.
    #[inline]
    pub(crate) fn take_back(&self, pages: u64) {
        self.commit.release(M::Threads::cpu(), pages);
    }

    /// Returns the policies in force.
    #[inline]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the settings of huge pages.
    #[inline]
    pub fn huge(&self) -> &HugeSettings {
        &self.huge
    }

    /// Returns the state of KSM.
    #[inline]
    pub fn merging(&self) -> &Merging<M> {
        &self.merging
    }

    /// Returns the NUMA policies that areas refer to.
    pub(crate) fn placements(&self) -> &Policies<M::Threads> {
        &self.placements
    }

    /// Returns the list of all address spaces.
    pub(crate) fn spaces(&self) -> &Spaces<M> {
        &self.spaces
    }

    /// Returns the number by which areas refer to the NUMA policy `policy`. Adds the policy if it is new.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no heap memory for one more policy, or if the feature `numa` is off.
    pub fn number_placement(&self, policy: PlacePolicy) -> Result<PolicyId, OutOfMemory> {
        self.placements.number(policy)
    }

    /// Returns the NUMA policy with the number `id`, or `None` if there is none.
    pub fn placement(&self, id: PolicyId) -> Option<PlacePolicy> {
        self.placements.get(id)
    }

    /// Returns the swap devices and their slots.
    #[inline]
    pub fn swap(&self) -> &Arc<Swap<M>> {
        &self.swap
    }

    /// Returns an upper bound of the number of pages that were ever mapped, over all address spaces. Between two calls,
    /// the number of mapped pages rises by at most the difference of the two bounds.
    pub fn ever_mapped(&self) -> u64 {
        let huge = self.counters.sum(Row::FaultHuge) + self.counters.sum(Row::HugeCollapses);
        let entries = self.counters.sum(Row::EntriesFilled) + self.counters.sum(Row::EntriesMoved);
        entries + huge * (HUGE_PAGES - 1)
    }

    /// Returns whether there may be lazily freed pages (`MADV_FREE`) that are not reclaimed yet.
    pub fn may_lose_pages(&self) -> bool {
        self.counters.sum(Row::LazyFreed) > self.counters.sum(Row::LazyDropped)
    }

    /// Sends events to `sink` from now on; `None` stops tracing. Without the feature `trace`, does nothing.
    pub fn set_trace(&self, sink: Option<&'static dyn TraceSink>) {
        self.tracing.set_sink(sink);
    }

    /// Starts or stops taking [lock statistics](memwright_table::sync::stat). Starting clears the records of locks and
    /// lines. The statistics are per machine: memory managers on one machine share them. Without the feature `trace`,
    /// does nothing.
    pub fn set_lock_statistics(&self, on: bool) {
        self.tracing.set_statistics(on);
    }

    /// Returns whether events are traced or lock statistics are taken.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.tracing.is_watched()
    }

    /// If a trace sink is set, calls `event` and sends the event that `event` returns, if any, to the sink.
    #[inline]
    pub(crate) fn trace<E: Into<Option<Event>>>(&self, event: impl FnOnce() -> E) {
        self.tracing.trace(|| self.note_lines(), event);
    }

    /// Reports to the lock statistics which cache lines of counters the calling CPU wrote.
    #[cold]
    fn note_lines(&self) {
        let cpu = M::Threads::cpu();
        self.counters.note_lines::<M::Threads>(cpu);
        self.commit.note_line::<M::Threads>(cpu);
    }

    /// Sets the sink that receives the counts of pages faulted in without a trap from now on.
    pub fn set_fault_sink(&self, sink: &'static dyn FaultSink) {
        *self.fault_sink.lock() = Some(sink);
    }

    /// Reports pages faulted in without a trap to the fault sink, which counts them for the calling thread.
    #[cold]
    pub(crate) fn tell_faulted_in(&self, pages: FaultedIn) {
        let sink = *self.fault_sink.lock();
        if let Some(sink) = sink {
            sink.faulted_in(pages);
        }
    }

    /// Adds `count` events to `row`, on the calling CPU.
    pub fn count(&self, row: Row, count: u64) {
        self.counters.add(M::Threads::cpu(), row, count);
    }

    #[inline]
    pub(crate) fn count_on(&self, cpu: CpuId, row: Row, count: u64) {
        self.counters.add(cpu, row, count);
    }

    /// Counts `ahead` pages that swap readahead has read, of which `used` were accessed.
    pub(crate) fn count_ahead(&self, cpu: CpuId, ahead: u64, used: u64) {
        self.count_on(cpu, Row::SwapAroundHit, used);
        self.count_on(cpu, Row::SwapAroundWasted, ahead - used);
    }

    /// Counts the changes and flushes of an operation. Sends the event of its flush, and then the event that `event`
    /// returns, if any, to the trace sink.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn count_operation<E: Into<Option<Event>>>(
        &self,
        cpu: CpuId,
        counts: &GatherCounts,
        event: impl FnOnce(&GatherCounts) -> E,
    ) {
        self.count_gather(cpu, counts);
        self.trace_flush(counts);
        self.trace(|| event(counts));
    }

    /// Sends the event of a gather's flush, if there was one, to the trace sink.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn trace_flush(&self, counts: &GatherCounts) {
        if self.is_watched() && counts.local + counts.remote > 0 {
            self.trace(|| flush_event(counts));
        }
    }

    /// Counts the changes and flushes of a gather.
    #[inline]
    pub(crate) fn count_gather(&self, cpu: CpuId, counts: &GatherCounts) {
        self.counters.add_all(
            cpu,
            [
                (Row::EntriesGrew, counts.of(Change::Grew)),
                (Row::EntriesShrank, counts.of(Change::Shrank)),
                (Row::FlushLocal, u64::from(counts.local)),
                (Row::FlushLocalPages, counts.local_pages),
                (Row::FlushElidedGrew, u64::from(counts.elided_grew)),
                (
                    Row::FlushElidedNotAccessed,
                    u64::from(counts.elided_not_accessed),
                ),
            ],
        );
        let freed = counts.of(Change::Freed) | counts.of(Change::Moved);
        let other = counts.of(Change::Resized) | counts.of(Change::LostCachedBit);
        let flushes = counts.local_full | counts.remote | counts.elided_not_loaded | counts.early;
        if freed | other | counts.of(Change::Filled) | u64::from(flushes) != 0 {
            self.count_rest(cpu, counts);
        }
    }

    /// Counts those changes and flushes of a gather that few gathers have.
    #[cold]
    #[inline(never)]
    fn count_rest(&self, cpu: CpuId, counts: &GatherCounts) {
        let moved = counts.of(Change::Moved) + counts.of(Change::Resized);
        self.counters.add_all(
            cpu,
            [
                (Row::EntriesMoved, moved),
                (Row::EntriesFreed, counts.of(Change::Freed)),
                (Row::EntriesLostCachedBit, counts.of(Change::LostCachedBit)),
                (Row::EntriesFilled, counts.of(Change::Filled)),
                (Row::FlushLocalFull, u64::from(counts.local_full)),
                (Row::FlushRemote, u64::from(counts.remote)),
                (Row::FlushCpusInterrupted, u64::from(counts.interrupted)),
                (
                    Row::FlushElidedNotLoaded,
                    u64::from(counts.elided_not_loaded),
                ),
                (Row::FlushEarly, u64::from(counts.early)),
            ],
        );
    }
}

/// Returns the trace event of a flush. The reason in the event is the last change in [`Change::ALL`] that requires a
/// flush.
#[cold]
fn flush_event(counts: &GatherCounts) -> Event {
    let mut reason = Change::Same;
    let mut entries = 0;
    for change in Change::ALL {
        let count = counts.of(change);
        entries += count;
        if count > 0 && change.needs_local() {
            reason = change;
        }
    }
    Event::Flush {
        reason: reason.name(),
        entries,
        cpus: counts.interrupted,
    }
}

/// Returns the sums of the lock statistics: first of all locks, then of all counted cache lines except those of locks.
pub(crate) fn lock_statistics() -> (stat::Counts, stat::Counts) {
    let mut locks = stat::Counts::default();
    for rank in RANKS {
        locks.add(&stat::locks(rank));
    }
    let mut lines = stat::Counts::default();
    for line in Line::ALL.into_iter().filter(|line| *line != Line::Lock) {
        lines.add(&stat::lines(line));
    }
    (locks, lines)
}
