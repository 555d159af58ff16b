//! Physical frames: the buddy allocator, per-CPU caches, and per-frame metadata.
//!
//! Each node has a buddy allocator behind a lock of rank `Frames`. Each CPU has a cache of single frames behind a lock
//! of rank `FrameCache`; another CPU acquires that lock only when memory runs out, or to read or set up counters and
//! policies. Free frames are linked through their metadata, so that allocating and freeing frames after [`Frames::new`]
//! needs no other memory. Allocation is deterministic: the same requests always yield the same frames.
//!
//! No code in this crate forms a Rust reference to the contents of a frame, because user programs and hardware may
//! write them at any time. Contents are copied, or accessed as atomics.

mod buddy;
mod cache;
mod data;
mod folio;
mod kind;
mod mapped;
mod meta;
mod node;
mod order;
mod pages;
mod poison;
mod pool;
mod reference;
mod setup;
mod slots;
mod subpool;

pub use kind::FrameKind;
pub use node::{Chooser, MAX_NODES, NodeChoice, NodeCounts, NodeSet, Topology};
pub use order::{FOLIO_FRAMES, FOLIO_ORDER, MAX_ORDER};
pub use pages::FolioPages;
pub use pool::{NoHugePage, PoolCounts};
pub use reference::FrameRef;
pub use setup::{Region, SetupError};
pub use slots::Slots;
pub use subpool::{SubpoolCounts, SubpoolId};

pub(crate) use meta::{END, Meta, UNLINKED};
pub(crate) use reference::add_references;

extern crate alloc as rust_alloc;

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use rust_alloc::vec::Vec;

use crate::addr::{CpuId, Frame, FrameRange};
use crate::machine::Machine;
use crate::sync::{Lock, LockGuard, Wait};
use buddy::Buddy;
pub(crate) use buddy::Metas;
use cache::{BATCH, Cache};
use meta::{Left, State};
use pool::Pool;

/// No frame is free, or only the reserve is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfFrames;

impl fmt::Display for OutOfFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of frames")
    }
}

impl core::error::Error for OutOfFrames {}

/// What one CPU uses, on separate cache lines.
#[repr(align(64))]
struct CpuCache {
    /// Its free frames.
    free: Lock<Cache>,
    /// Frames of objects that became mapped on this CPU, less those that became unmapped; see `mapped.rs`.
    mapped_objects: AtomicI64,
}

/// Why a cache could not be refilled.
#[derive(Clone, Copy, Debug)]
enum Refused {
    /// No frame is free, or only the reserve is left.
    Empty,
    /// Another CPU's cache was locked, and may hold free frames.
    Busy,
}

/// The result of draining the caches of other CPUs.
struct Drained {
    /// Frames moved to their nodes.
    moved: u64,
    /// Whether a cache was in use and was skipped.
    busy: bool,
}

/// Frame usage. Peaks are exact with one CPU and upper bounds otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Allocated frames.
    pub used: u64,
    /// The highest number of allocated frames at a time.
    pub used_peak: u64,
    /// Page-table frames.
    pub tables: u64,
    /// The highest number of page-table frames at a time.
    pub tables_peak: u64,
}

/// All frames of a machine.
pub struct Frames<M: Machine> {
    machine: M,
    /// `machine.memory_base()`, read once.
    base: NonNull<u8>,
    /// The metadata of frame `lowest` and all that follow, stored in `Reserved` frames.
    meta: NonNull<Meta>,
    lowest: u32,
    count: u32,
    /// One cache per CPU that exists.
    caches: Vec<CpuCache>,
    /// One buddy allocator per node.
    nodes: Vec<Lock<Buddy>>,
    /// The NUMA topology.
    topology: Topology,
    /// One tally per node.
    tallies: Vec<node::NodeTally>,
    /// The NUMA policy for data allocations, once set.
    choosing: node::Choosing,
    /// Frames that can be allocated, free or not.
    total: u64,
    /// Allocations left before the injected failure; `u64::MAX` for none.
    fail_after: AtomicU64,
    /// Frames reserved for the kinds that may use the reserve.
    low_water: AtomicU64,
    /// The number of anonymous folios of 2 MiB.
    folios: AtomicU64,
    /// The number of folios of objects.
    object_folios: AtomicU64,
    /// The manager of swap slots, once set.
    slots: slots::Keeper<M>,
    /// The pool of huge pages.
    pool: Lock<Pool>,
}

// SAFETY: the pointers refer to memory of the machine, which is `Send + Sync` and outlives `self`. Metadata consists of
// atomics, and contents are accessed by raw copies and atomics only.
unsafe impl<M: Machine> Send for Frames<M> {}
// SAFETY: as above.
unsafe impl<M: Machine> Sync for Frames<M> {}

/// The result of [`Frames::audit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameAudit {
    /// Free frames.
    pub free: u64,
    /// Frames of each kind, in the order of [`FrameKind::ALL`].
    pub by_kind: [u64; FrameKind::COUNT],
    /// The total number of references to allocated blocks.
    pub references: u64,
}

impl FrameAudit {
    /// Frames of `kind`.
    pub fn of(&self, kind: FrameKind) -> u64 {
        self.by_kind[kind.index()]
    }
}

impl<M: Machine> Frames<M> {
    /// The machine.
    #[inline]
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The number of frames that can be allocated, free or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The number of free frames.
    pub fn free(&self) -> u64 {
        self.total - self.used()
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

    /// The highest number of frames of `kind` that were allocated at a time, as exact as `peak_used`.
    pub fn peak_by(&self, kind: FrameKind) -> u64 {
        self.sum(|cache| cache.by_kind[kind.index()].peak)
    }

    /// Returns the allocated frames and page-table frames, current and peak.
    pub fn usage(&self) -> Usage {
        self.usage_by(|cache| Some(cache.lock()))
            .unwrap_or_default()
    }

    /// Like `usage`, but returns `None` instead of waiting if a CPU is using its cache. For reports of failures.
    pub fn try_usage(&self) -> Option<Usage> {
        self.usage_by(Lock::try_lock)
    }

    fn usage_by<'a>(
        &'a self,
        lock: impl Fn(&'a Lock<Cache>) -> Option<LockGuard<'a, Cache>>,
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

    /// Injects a failure: the allocation after the next `count` allocations fails, once. `None` cancels it.
    pub fn fail_after(&self, count: Option<u64>) {
        self.fail_after
            .store(count.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Reserves `frames` frames for the kinds that may use the reserve ([`FrameKind::may_use_reserve`]). A CPU can
    /// still allocate the frames in its cache, which is empty once the reserve is in use.
    pub fn low_water(&self, frames: u64) {
        self.low_water.store(frames, Ordering::Relaxed);
    }

    /// The number of reserved frames.
    pub fn reserve(&self) -> u64 {
        self.low_water.load(Ordering::Relaxed)
    }

    /// Allocates 2^`order` frames, aligned to their size, with one reference. Their contents are undefined; debug
    /// builds check that they are unchanged since they were freed. Data frames of [`FOLIO_ORDER`] form a folio, and the
    /// reference is to the whole folio.
    ///
    /// # Errors
    /// [`OutOfFrames`] if there is no such block, or if only the reserve is left and `kind` may
    /// not use it.
    ///
    /// # Panics
    /// If `order` is above [`MAX_ORDER`]; if `kind` is `Hole`, `Free`, `Reserved` or `Table`; in
    /// debug builds, if a free frame was written to.
    #[inline]
    pub fn allocate(&self, order: u8, kind: FrameKind) -> Result<FrameRef<'_, M>, OutOfFrames> {
        assert!(
            kind.is_data() || kind == FrameKind::Kernel,
            "frames of this kind are not for you"
        );
        let frame = self.allocate_raw(order, kind)?;
        let whole = order == FOLIO_ORDER && kind.is_data();
        Ok(FrameRef::from_raw(self, frame, whole))
    }

    /// Like `allocate`, and fills the frames with zeroes.
    ///
    /// # Errors
    /// As for `allocate`.
    ///
    /// # Panics
    /// As for `allocate`.
    #[inline]
    pub fn allocate_zeroed(
        &self,
        order: u8,
        kind: FrameKind,
    ) -> Result<FrameRef<'_, M>, OutOfFrames> {
        let block = self.allocate(order, kind)?;
        if order == 0 {
            self.machine.clear_frame(block.frame());
        } else {
            self.machine.clear_frames(FrameRange {
                start: block.frame(),
                count: 1 << order,
            });
        }
        Ok(block)
    }

    /// Allocates a zeroed frame for a page table.
    pub(crate) fn allocate_table(&self) -> Result<Frame, OutOfFrames> {
        let frame = self.allocate_raw(0, FrameKind::Table)?;
        self.machine.clear_frame(frame);
        Ok(frame)
    }

    /// Allocates a frame for a page table without clearing it. The caller writes every entry before the table is used.
    pub(crate) fn allocate_bare_table(&self) -> Result<Frame, OutOfFrames> {
        self.allocate_raw(0, FrameKind::Table)
    }

    #[inline]
    fn allocate_raw(&self, order: u8, kind: FrameKind) -> Result<Frame, OutOfFrames> {
        if self.is_to_fail() {
            return Err(OutOfFrames);
        }
        let frame = if order == 0 {
            let mut cache = self.cache().lock();
            match cache.allocate(self.metas(), kind) {
                Some(frame) => frame,
                None => match self.refill(&mut cache, kind) {
                    Ok(frame) => frame,
                    Err(Refused::Empty) => return Err(OutOfFrames),
                    Err(Refused::Busy) => {
                        drop(cache);
                        return self.allocate_later(kind);
                    }
                },
            }
        } else {
            let frame = self.take_block(order, kind).ok_or(OutOfFrames)?;
            self.cache().lock().count_allocated(kind, 1 << order);
            frame
        };
        self.prepare(frame, order, kind);
        Ok(frame)
    }

    /// Allocates one frame after waiting for other CPUs to release their caches, which can hold all free frames.
    #[cold]
    fn allocate_later(&self, kind: FrameKind) -> Result<Frame, OutOfFrames> {
        let mut wait = Wait::new();
        loop {
            wait.turn();
            let mut cache = self.cache().lock();
            let frame = match cache.allocate(self.metas(), kind) {
                Some(frame) => Ok(frame),
                None => self.refill(&mut cache, kind),
            };
            match frame {
                Ok(frame) => {
                    self.prepare(frame, 0, kind);
                    return Ok(frame);
                }
                Err(Refused::Empty) => return Err(OutOfFrames),
                Err(Refused::Busy) => {}
            }
        }
    }

    /// Initializes the metadata of a block that has left the free lists.
    #[inline]
    fn prepare(&self, frame: Frame, order: u8, kind: FrameKind) {
        let meta = self.meta(frame);
        debug_assert_eq!(
            meta.kind(),
            FrameKind::Free,
            "allocated a frame that is not free"
        );
        if cfg!(debug_assertions) {
            for number in 0..1 << order {
                self.check_poison(Frame::new(frame.number() + number));
            }
        }
        meta.set_state(meta.state().become_block(kind, order));
        meta.set_link(UNLINKED);
        meta.owner.store(0, Ordering::Relaxed);
        meta.index.store(0, Ordering::Relaxed);
        if order > 0 {
            if order == FOLIO_ORDER && kind.is_data() {
                self.prepare_folio(meta, kind);
            } else {
                self.prepare_tails(frame, order, kind);
            }
        }
        meta.references.store(1, Ordering::Release);
    }

    /// Makes each frame of a new block except the first point to the first.
    #[cold]
    fn prepare_tails(&self, frame: Frame, order: u8, kind: FrameKind) {
        for number in 1..1u32 << order {
            let tail = self.meta(Frame::new(frame.number() + number));
            tail.set_state(tail.state().become_block(kind, 0).with(State::TAIL));
            tail.set_link(frame.number());
        }
    }

    /// Frees a block that has no references.
    pub(crate) fn free_block(&self, frame: Frame) {
        let meta = self.meta(frame);
        if meta.state().has(State::COPIED) {
            self.leave_slot(frame, meta);
        }
        let mut cache = self.cache().lock();
        cache.count_freed(meta.kind(), 1 << meta.state().order());
        self.free_uncounted(&mut cache, frame, meta);
    }

    #[inline]
    fn free_uncounted(&self, cache: &mut Cache, frame: Frame, meta: &Meta) {
        debug_assert_eq!(meta.pins.load(Ordering::Relaxed), 0, "freed a pinned frame");
        let state = meta.state();
        debug_assert!(!state.has(State::COPIED), "freed a frame that has a slot");
        if !state.is_single_of_first() {
            self.free_other(cache, frame, meta);
            return;
        }
        meta.set_state(state.become_block(FrameKind::Free, 0));
        if cfg!(debug_assertions) {
            self.poison(frame);
        }
        cache.push(frame, meta);
        if cache.is_full() {
            self.relieve(cache);
        }
    }

    /// Drains a cache that is full, or that must pass each freed frame on to its node.
    #[cold]
    fn relieve(&self, cache: &mut Cache) {
        if cache.is_short() {
            let short = self.free_on_nodes() < self.reserve();
            cache.set_short(short);
            if short && self.nodes.len() == 1 {
                let count = cache.count();
                self.drain(cache, count);
                return;
            }
            if !cache.is_full() {
                return;
            }
        }
        if self.nodes.len() == 1 {
            self.drain(cache, BATCH);
        } else {
            self.overflow_near(cache);
        }
    }

    #[cold]
    fn free_other(&self, cache: &mut Cache, frame: Frame, meta: &Meta) {
        let state = meta.state();
        if state.order() > 0 {
            self.free_large(frame, state);
        } else {
            self.free_to_node(cache, frame, meta);
        }
    }

    fn free_large(&self, frame: Frame, state: State) {
        for number in 0..1u32 << state.order() {
            let each = Frame::new(frame.number() + number);
            let part = self.meta(each);
            part.set_state(part.state().become_block(FrameKind::Free, 0));
            if cfg!(debug_assertions) {
                self.poison(each);
            }
        }
        let node = &self.nodes[state.node() as usize];
        node.lock().put(self.metas(), frame, state.order());
    }

    /// Drops one reference to each frame in a gather's list that starts at `head`.
    pub(crate) fn release_list(&self, head: u32) {
        let metas = self.metas();
        let mut cache = self.cache().lock();
        // Consecutive frames of one kind are counted together.
        let (mut kind, mut freed) = (FrameKind::Anonymous, 0);
        let mut unmapped = 0;
        let mut copied = END;
        let mut number = head;
        while number != END {
            let frame = Frame::new(number);
            let meta = metas.get(number);
            number = meta.link();
            // Unlink before dropping the reference: the holder of another reference may then link the frame again.
            meta.set_link(UNLINKED);
            match meta.drop_reference() {
                Left::None => {}
                Left::Object => {
                    unmapped += 1;
                    continue;
                }
                Left::Others => continue,
            }
            let state = meta.state();
            debug_assert!(!state.has(State::TAIL), "a gather links first frames only");
            if !state.is_plain(kind) {
                if state.has(State::COPIED) {
                    // Free this frame later: the manager of its swap slot acquires locks that come before the cache's
                    // lock in the lock order.
                    meta.set_link(copied);
                    copied = frame.number();
                    continue;
                }
                cache.count_freed(kind, freed);
                (kind, freed) = (state.kind(), 0);
            }
            freed += 1 << state.order();
            self.free_uncounted(&mut cache, frame, meta);
        }
        cache.count_freed(kind, freed);
        drop(cache);
        if unmapped > 0 {
            self.count_mapped_objects(-unmapped);
        }
        if copied != END {
            self.free_copied(copied);
        }
    }

    /// Frees the frames of a list that have copies in swap slots.
    #[cold]
    fn free_copied(&self, head: u32) {
        let mut number = head;
        while number != END {
            let frame = Frame::new(number);
            number = self.meta(frame).link();
            self.free_block(frame);
        }
    }

    /// Refills an empty cache, allocates one frame from it, and counts the allocation.
    #[cold]
    fn refill(&self, cache: &mut Cache, kind: FrameKind) -> Result<Frame, Refused> {
        let frame = self.take_refilling(cache, kind)?;
        cache.count_allocated(kind, 1);
        Ok(frame)
    }

    /// Refills an empty cache and takes one frame from it.
    fn take_refilling(&self, cache: &mut Cache, kind: FrameKind) -> Result<Frame, Refused> {
        let [node] = &self.nodes[..] else {
            return self.refill_near(cache, kind);
        };
        let metas = self.metas();
        let mut free = node.lock().free();
        let mut refused = Refused::Empty;
        if free <= self.reserve() {
            // Before the allocation is refused, the frames in other CPUs' caches are moved to the node.
            let drained = self.drain_others();
            cache.set_short(true);
            free += drained.moved;
            if drained.busy {
                refused = Refused::Busy;
            }
        }
        let wanted = self.batch(kind, free);
        let mut blocks = [(Frame::new(0), 0); BATCH as usize];
        let (mut count, mut taken) = (0, 0);
        if wanted > 0 {
            // If the node has no frame after all, another CPU has just taken those that were counted.
            refused = Refused::Busy;
        }
        let mut node = node.lock();
        while taken < wanted {
            let Some(block) = node.take_some(metas, wanted - taken) else {
                break;
            };
            blocks[count] = block;
            count += 1;
            taken += block.1;
        }
        drop(node);
        // The frame that is pushed last is popped first. Push in reverse order, so that frames are allocated in the
        // order in which the node returned them.
        for &(first, frames) in blocks[..count].iter().rev() {
            for number in (first.number()..first.number() + frames).rev() {
                cache.push(Frame::new(number), metas.get(number));
            }
        }
        cache.pop(metas).ok_or(refused)
    }

    /// The number of frames that an allocation of `kind` moves into its CPU's cache when the nodes have `free` frames.
    /// From the reserve it moves only one frame, because an allocation of any kind can take frames from a cache.
    fn batch(&self, kind: FrameKind, free: u64) -> u32 {
        let beyond = free.saturating_sub(self.reserve());
        let wanted = if beyond == 0 && kind.may_use_reserve() {
            free.min(1)
        } else {
            beyond.min(u64::from(BATCH))
        };
        wanted as u32
    }

    /// Moves the frames in other CPUs' caches to the nodes, and makes these CPUs return freed frames to the nodes as
    /// long as only the reserve is left. A cache that is in use is skipped: its CPU is allocating or freeing at that
    /// moment.
    fn drain_others(&self) -> Drained {
        let mut drained = Drained {
            moved: 0,
            busy: false,
        };
        for CpuCache { free: other, .. } in &self.caches {
            if let Some(mut other) = other.try_lock() {
                other.bring_back();
                let count = other.count();
                self.drain(&mut other, count);
                other.set_short(true);
                drained.moved += u64::from(count);
            } else {
                drained.busy |= !core::ptr::eq(other, self.cache());
            }
        }
        drained
    }

    /// Moves up to `frames` frames from a cache to their nodes. Frames allocated together are usually freed together,
    /// so adjacent frames are returned as the largest blocks that they form.
    fn drain(&self, cache: &mut Cache, frames: u32) {
        let metas = self.metas();
        let (mut start, mut end, mut node) = (0, 0, 0);
        for _ in 0..frames {
            let Some(frame) = cache.pop(metas) else {
                break;
            };
            let number = frame.number();
            let its_node = metas.get(number).state().node();
            if number == end && its_node == node {
                end += 1;
            } else if number + 1 == start && its_node == node {
                start = number;
            } else {
                self.put_run(node, start, end);
                (start, end, node) = (number, number + 1, its_node);
            }
        }
        self.put_run(node, start, end);
    }

    /// Returns the free frames from `start` to before `end` to their node.
    fn put_run(&self, node: u8, start: u32, end: u32) {
        if start < end {
            let mut buddy = self.nodes[node as usize].lock();
            buddy.put_run(self.metas(), start, end);
        }
    }

    #[cold]
    fn take_block(&self, order: u8, kind: FrameKind) -> Option<Frame> {
        assert!(order <= MAX_ORDER, "no block is that large");
        if self.nodes.len() > 1 {
            return self.take_block_near(order, kind);
        }
        for attempt in 0..2 {
            let low_water = if kind.may_use_reserve() {
                0
            } else {
                self.low_water.load(Ordering::Relaxed)
            };
            let free = self.free_on_nodes();
            if free >= low_water + (1 << order) {
                for node in &self.nodes {
                    if let Some(frame) = node.lock().take(self.metas(), order) {
                        return Some(frame);
                    }
                }
            }
            if attempt == 0 {
                self.drain_others();
            }
        }
        None
    }

    /// Returns whether failure injection makes this allocation fail.
    #[inline]
    fn is_to_fail(&self) -> bool {
        self.fail_after.load(Ordering::Relaxed) != u64::MAX && self.count_down()
    }

    #[cold]
    fn count_down(&self) -> bool {
        self.choose_nothing();
        self.fail_after
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
                u64::MAX => None,
                0 => Some(u64::MAX),
                left => Some(left - 1),
            })
            .is_ok_and(|left| left == 0)
    }

    /// Counts frames and references by walking all metadata.
    pub fn audit(&self) -> FrameAudit {
        let mut audit = FrameAudit {
            free: 0,
            by_kind: [0; FrameKind::COUNT],
            references: 0,
        };
        let metas = self.metas();
        let mut number = metas.lowest;
        while let Some(meta) = metas.find(number) {
            let state = meta.state();
            let mut references = meta.references.load(Ordering::Relaxed);
            let mut frames = 1;
            if state.has(State::FOLIO) {
                references = references - 1 + meta.whole.load(Ordering::Relaxed);
                if !state.has(State::PARTED) {
                    frames = FOLIO_FRAMES;
                }
            } else if state.has(State::PART) {
                references -= 1;
            }
            audit.by_kind[state.kind().index()] += u64::from(frames);
            audit.references += u64::from(references);
            number += frames;
        }
        audit.free = audit.of(FrameKind::Free);
        audit
    }

    fn sum(&self, of: impl Fn(&Cache) -> i64) -> u64 {
        let sum: i64 = self.caches.iter().map(|cpu| of(&cpu.free.lock())).sum();
        sum.max(0) as u64
    }

    /// The calling CPU's cache of free frames.
    #[inline]
    fn cache(&self) -> &Lock<Cache> {
        &self.cpu_cache().free
    }

    #[inline]
    fn cpu_cache(&self) -> &CpuCache {
        let cpu: CpuId = if self.caches.len() == 1 {
            CpuId::new(0)
        } else {
            self.machine.cpu()
        };
        &self.caches[cpu.index()]
    }

    #[inline]
    pub(crate) fn metas(&self) -> Metas<'_> {
        // SAFETY: `new` wrote `count` values there, in frames that are never allocated, and only shared references to
        // them exist.
        let all = unsafe { core::slice::from_raw_parts(self.meta.as_ptr(), self.count as usize) };
        Metas {
            lowest: self.lowest,
            all,
        }
    }

    /// The metadata of `frame`.
    ///
    /// # Panics
    /// If the frame does not belong to this machine.
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
