//! NUMA nodes: which memory is near which CPU, and which node serves an allocation.
//!
//! A CPU's cache holds frames of its own node. An allocation without a policy is served from that node, and from the
//! next nearest one when that node is exhausted (Linux 7.2 `mm/page_alloc.c`, `build_zonelists`). On a machine with one
//! node, allocations never reach this code. A choice for one allocation ([`Frames::choose_next`]) or a policy for all
//! of them ([`Frames::set_chooser`]) works by keeping the CPU's cache empty, because an allocation that finds the cache
//! empty calls this module.

use core::fmt;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rust_alloc::boxed::Box;
use rust_alloc::sync::Arc;

use super::cache::Cache;
use super::meta::Meta;
use super::{FOLIO_ORDER, FrameKind, FrameRef, Frames, OutOfFrames, Refused, rust_alloc};
use crate::addr::{CpuId, Frame, MAX_CPUS};
use crate::machine::Machine;

/// The largest number of nodes of a machine.
pub const MAX_NODES: usize = 8;

/// A set of nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u64);

impl NodeSet {
    /// No node.
    pub const EMPTY: Self = Self(0);

    /// The set whose member `n` is bit `n` of `bits`.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The set as a bit mask.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Nodes 0 to `count` - 1.
    #[must_use]
    pub const fn first(count: usize) -> Self {
        if count == 0 {
            Self(0)
        } else {
            Self(u64::MAX >> (64 - count))
        }
    }

    /// The set with `node` as its only member.
    #[must_use]
    pub const fn single(node: u8) -> Self {
        Self(1 << node)
    }

    /// Whether there is no member.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of members.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether `node` is a member.
    #[must_use]
    pub const fn contains(self, node: u8) -> bool {
        node < 64 && self.0 & (1 << node) != 0
    }

    /// The members of both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The members that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Each member, lowest first.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..64).filter(move |node| self.contains(*node))
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Which nodes exist, which node each CPU is on, and the distances between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    nodes: u8,
    of_cpu: [u8; MAX_CPUS],
    distance: [[u8; MAX_NODES]; MAX_NODES],
}

impl Topology {
    /// The distance of a node to itself.
    pub const LOCAL: u8 = 10;
    /// The default distance between two different nodes.
    pub const REMOTE: u8 = 20;

    /// Creates a topology of `nodes` equally distant nodes, with every CPU on the first.
    ///
    /// # Panics
    /// If `nodes` is 0 or more than [`MAX_NODES`].
    #[must_use]
    pub const fn new(nodes: usize) -> Self {
        assert!(nodes > 0 && nodes <= MAX_NODES, "no so many nodes");
        let mut distance = [[Self::REMOTE; MAX_NODES]; MAX_NODES];
        let mut node = 0;
        while node < MAX_NODES {
            distance[node][node] = Self::LOCAL;
            node += 1;
        }
        Self {
            nodes: nodes as u8,
            of_cpu: [0; MAX_CPUS],
            distance,
        }
    }

    /// The number of nodes.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.nodes as usize
    }

    /// The set of all nodes.
    #[must_use]
    pub const fn all(&self) -> NodeSet {
        NodeSet::first(self.nodes as usize)
    }

    /// Assigns `cpu` to `node`.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn set_cpu(&mut self, cpu: CpuId, node: u8) {
        assert!(node < self.nodes, "no such node");
        self.of_cpu[cpu.index()] = node;
    }

    /// The node of `cpu`.
    #[must_use]
    pub const fn node_of(&self, cpu: CpuId) -> u8 {
        self.of_cpu[cpu.index()]
    }

    /// Sets the distance from `from` to `to`.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn set_distance(&mut self, from: u8, to: u8, distance: u8) {
        assert!(from < self.nodes && to < self.nodes, "no such node");
        self.distance[from as usize][to as usize] = distance;
    }

    /// The distance from `from` to `to`: 10 to the node itself.
    #[must_use]
    pub const fn distance(&self, from: u8, to: u8) -> u8 {
        self.distance[from as usize][to as usize]
    }

    /// Returns the members of `among` in the order of their distance from `from`, equally distant ones by number.
    pub fn nearest(&self, from: u8, among: NodeSet) -> impl Iterator<Item = u8> {
        let mut left = among.intersection(self.all());
        let row = self.distance[from as usize];
        core::iter::from_fn(move || {
            let next = left.iter().min_by_key(|node| row[*node as usize])?;
            left = left.without(NodeSet::single(next));
            Some(next)
        })
    }
}

/// Which nodes are allowed to serve an allocation, and in what order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeChoice {
    /// Nodes are tried in the order of their distance from this one.
    pub near: u8,
    /// The nodes to try first.
    pub first: NodeSet,
    /// The nodes to try if none of `first` has memory. If none of these has memory either, the allocation fails.
    pub then: NodeSet,
    /// Whether the policy interleaves pages over nodes, for the statistics.
    pub interleaved: bool,
}

/// The NUMA policy for data allocations for which [`Frames::choose_next`] made no choice.
pub trait Chooser: Send + Sync {
    /// Returns the nodes that serve an allocation on `cpu`, the calling CPU, or `None` for the CPU's own node first and
    /// then the nearest ones.
    ///
    /// # Locks
    /// Called under the locks of page tables and of the CPU's cache.
    fn choose(&self, cpu: CpuId) -> Option<NodeChoice>;
}

/// The policy of a machine, once set.
pub(super) struct Choosing(AtomicPtr<Arc<dyn Chooser>>);

impl Choosing {
    pub(super) const fn nobody() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    fn get(&self) -> Option<&dyn Chooser> {
        let chooser = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or points to a box that `set` stored once and only `drop` frees.
        unsafe { chooser.as_ref() }.map(|chooser| &**chooser)
    }

    /// Sets the policy. Returns whether none was set before.
    fn set(&self, chooser: Arc<dyn Chooser>) -> bool {
        let new = Box::into_raw(Box::new(chooser));
        let (null, order) = (core::ptr::null_mut(), Ordering::AcqRel);
        let stored = self.0.compare_exchange(null, new, order, Ordering::Acquire);
        if stored.is_err() {
            // SAFETY: the box was created above, and its pointer was not shared.
            drop(unsafe { Box::from_raw(new) });
        }
        stored.is_ok()
    }
}

impl Drop for Choosing {
    fn drop(&mut self) {
        let chooser = *self.0.get_mut();
        if !chooser.is_null() {
            // SAFETY: `set` created the box, and no borrow of the policy exists any more.
            drop(unsafe { Box::from_raw(chooser) });
        }
    }
}

/// Allocation statistics of a node, in frames (Linux 7.2 Documentation/admin-guide/numastat.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Intended for this node and served from it.
    pub hit: u64,
    /// Intended for another node but served from this one.
    pub miss: u64,
    /// Intended for this node but served from another.
    pub foreign: u64,
    /// Interleaved to this node and served from it.
    pub interleaved: u64,
    /// Served from this node for one of its own CPUs.
    pub local: u64,
    /// Served from this node for a CPU of another node.
    pub other: u64,
}

/// The counters from which `NodeCounts` is computed. Allocations served from CPU caches are added when the counts are
/// read.
#[derive(Default)]
pub(super) struct NodeTally {
    pub(super) total: AtomicU64,
    hit: AtomicU64,
    miss: AtomicU64,
    foreign: AtomicU64,
    interleaved: AtomicU64,
    local: AtomicU64,
    other: AtomicU64,
}

impl<M: Machine> Frames<M> {
    /// The NUMA topology.
    #[inline]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Sets the topology. Call it before the first allocation.
    ///
    /// # Panics
    /// If the topology and the regions have different numbers of nodes.
    pub fn set_topology(&mut self, topology: Topology) {
        assert!(
            topology.nodes() == self.nodes.len(),
            "the memory is on other nodes"
        );
        self.topology = topology;
        for (index, cache) in self.caches.iter().enumerate() {
            let home = topology.node_of(CpuId::new(index as u16));
            cache.free.lock().set_home(home);
        }
    }

    /// The node of `frame`.
    #[inline]
    pub fn node_of(&self, frame: Frame) -> u8 {
        self.meta(frame).state().node()
    }

    /// Returns how many frames of `node` can be allocated, free or not, and how many are free.
    pub fn node_usage(&self, node: u8) -> (u64, u64) {
        if self.nodes.len() == 1 {
            return (self.total, self.free());
        }
        let total = self.tallies[node as usize].total.load(Ordering::Relaxed);
        let free = self.nodes[node as usize].lock().free();
        let cached = |cpu: usize| {
            let at_home = self.topology.node_of(CpuId::new(cpu as u16)) == node;
            let cache = self.caches[cpu].free.lock();
            if at_home { u64::from(cache.count()) } else { 0 }
        };
        let cached: u64 = (0..self.caches.len()).map(cached).sum();
        (total, (free + cached).min(total))
    }

    /// Returns the allocation statistics of `node`.
    pub fn node_counts(&self, node: u8) -> NodeCounts {
        let tally = &self.tallies[node as usize];
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let at_home = |cpu: usize| self.topology.node_of(CpuId::new(cpu as u16)) == node;
        let homes = (0..self.caches.len()).filter(|cpu| at_home(*cpu));
        let cached: u64 = homes
            .map(|cpu| self.caches[cpu].free.lock().served_at_home())
            .sum();
        NodeCounts {
            hit: load(&tally.hit) + cached,
            miss: load(&tally.miss),
            foreign: load(&tally.foreign),
            interleaved: load(&tally.interleaved),
            local: load(&tally.local) + cached,
            other: load(&tally.other),
        }
    }

    /// Applies `choice` to the next data allocation on the calling CPU, overriding the policy. The caller must then
    /// allocate on this CPU, or cancel the choice with [`choose_nothing`](Self::choose_nothing).
    pub fn choose_next(&self, choice: NodeChoice) {
        if self.nodes.len() > 1 {
            self.cache().lock().choose_next(choice);
        }
    }

    /// Cancels the choice set by `choose_next`.
    pub fn choose_nothing(&self) {
        if self.nodes.len() > 1 {
            self.cache().lock().chosen();
        }
    }

    /// Sets the policy that selects nodes for data allocations from now on. Only the first call has an effect. On a
    /// machine with one node, no call has.
    pub fn set_chooser(&self, chooser: Arc<dyn Chooser>) {
        if self.nodes.len() == 1 || !self.choosing.set(chooser) {
            return;
        }
        for cache in &self.caches {
            let mut cache = cache.free.lock();
            cache.bring_back();
            let count = cache.count();
            self.drain(&mut cache, count);
            cache.ask_always();
        }
    }

    /// Allocates 2^`order` frames from the nodes that `choice` names.
    ///
    /// # Errors
    /// [`OutOfFrames`] if none of these nodes has such a block, or if only the reserve is left and `kind` may not use
    /// it.
    ///
    /// # Panics
    /// If `kind` is neither data nor `Kernel`; in debug builds, if a free frame was written to.
    pub fn allocate_on(
        &self,
        order: u8,
        kind: FrameKind,
        choice: NodeChoice,
    ) -> Result<FrameRef<'_, M>, OutOfFrames> {
        assert!(
            kind.is_data() || kind == FrameKind::Kernel,
            "frames of this kind are not for you"
        );
        if self.is_to_fail() {
            return Err(OutOfFrames);
        }
        let frame = self.take_by(order, kind, choice).ok_or(OutOfFrames)?;
        let mut cache = self.cache().lock();
        cache.count_allocated(kind, 1 << order);
        cache.count_elsewhere();
        drop(cache);
        self.prepare(frame, order, kind);
        let whole = order == FOLIO_ORDER && kind.is_data();
        Ok(FrameRef::from_raw(self, frame, whole))
    }

    /// Returns the nodes for an allocation of `kind` on `cpu`, to which `cache` belongs. A data allocation consumes the
    /// choice that `choose_next` made.
    fn choice_of(&self, cache: &mut Cache, cpu: CpuId, kind: FrameKind) -> NodeChoice {
        let home = self.topology.node_of(cpu);
        let usual = NodeChoice {
            near: home,
            first: self.topology.all(),
            then: NodeSet::EMPTY,
            interleaved: false,
        };
        if !kind.is_data() {
            return usual;
        }
        let chosen = cache.chosen();
        let asked = || self.choosing.get().and_then(|chooser| chooser.choose(cpu));
        chosen.or_else(asked).unwrap_or(usual)
    }

    /// Allocates one frame for a CPU whose cache is empty, on a machine with several nodes. Refills the cache with
    /// frames of the CPU's own node unless a choice or policy is set.
    pub(super) fn refill_near(&self, cache: &mut Cache, kind: FrameKind) -> Result<Frame, Refused> {
        let cpu = self.this_cpu();
        let metas = self.metas();
        if !cache.is_choosing() {
            let home = self.topology.node_of(cpu);
            let free = self.free_on_nodes();
            if free <= self.reserve() {
                cache.set_short(true);
            }
            if self.take_batch(cache, home, self.batch(kind, free)) {
                return cache.pop(metas).ok_or(Refused::Busy);
            }
        }
        let choice = self.choice_of(cache, cpu, kind);
        if let Some(frame) = self.take_in_order(0, kind, choice) {
            cache.count_elsewhere();
            return Ok(frame);
        }
        let drained = self.drain_others();
        match self.take_in_order(0, kind, choice) {
            Some(frame) => {
                cache.count_elsewhere();
                Ok(frame)
            }
            None if drained.busy => Err(Refused::Busy),
            None => Err(Refused::Empty),
        }
    }

    /// Takes a block, on a machine with several nodes.
    pub(super) fn take_block_near(&self, order: u8, kind: FrameKind) -> Option<Frame> {
        let cpu = self.this_cpu();
        let mut cache = self.cache().lock();
        let choice = self.choice_of(&mut cache, cpu, kind);
        drop(cache);
        let frame = self.take_by(order, kind, choice)?;
        self.cache().lock().count_elsewhere();
        Some(frame)
    }

    /// Like `take_block_near`, but does not drain caches. If the nodes have no such block, a choice made for this
    /// allocation stays in effect for the next one.
    pub(super) fn take_free_block_near(&self, order: u8, kind: FrameKind) -> Option<Frame> {
        let cpu = self.this_cpu();
        let mut cache = self.cache().lock();
        let is_choosing = cache.is_choosing();
        let choice = self.choice_of(&mut cache, cpu, kind);
        let taken = self.take_in_order(order, kind, choice);
        match taken {
            Some(_) => cache.count_elsewhere(),
            None if is_choosing => cache.choose_next(choice),
            None => {}
        }
        taken
    }

    /// Takes a block from the nodes that `choice` names, draining all CPUs' caches if necessary.
    fn take_by(&self, order: u8, kind: FrameKind, choice: NodeChoice) -> Option<Frame> {
        if let Some(frame) = self.take_in_order(order, kind, choice) {
            return Some(frame);
        }
        self.drain_others();
        let mut own = self.cache().lock();
        own.bring_back();
        let count = own.count();
        self.drain(&mut own, count);
        drop(own);
        self.take_in_order(order, kind, choice)
    }

    /// The number of free frames on all nodes that an allocation of `kind` is allowed to use.
    fn spare(&self, kind: FrameKind) -> u64 {
        let low_water = if kind.may_use_reserve() {
            0
        } else {
            self.low_water.load(Ordering::Relaxed)
        };
        self.free_on_nodes().saturating_sub(low_water)
    }

    /// The number of free frames on all nodes, without those in CPU caches.
    pub(super) fn free_on_nodes(&self) -> u64 {
        self.nodes.iter().map(|node| node.lock().free()).sum()
    }

    fn take_in_order(&self, order: u8, kind: FrameKind, choice: NodeChoice) -> Option<Frame> {
        if self.spare(kind) < 1 << order {
            return None;
        }
        let groups = [choice.first, choice.then.without(choice.first)];
        let mut wanted = None;
        for group in groups {
            for node in self.topology.nearest(choice.near, group) {
                let wanted = *wanted.get_or_insert(node);
                let taken = self.nodes[node as usize].lock().take(self.metas(), order);
                if let Some(frame) = taken {
                    self.count_on_node(node, wanted, 1 << order, choice.interleaved);
                    return Some(frame);
                }
            }
        }
        None
    }

    fn count_on_node(&self, node: u8, wanted: u8, frames: u64, interleaved: bool) {
        let add = |cell: &AtomicU64| {
            cell.fetch_add(frames, Ordering::Relaxed);
        };
        let tally = &self.tallies[node as usize];
        if node == wanted {
            add(&tally.hit);
            if interleaved {
                add(&tally.interleaved);
            }
        } else {
            add(&tally.miss);
            add(&self.tallies[wanted as usize].foreign);
        }
        if self.topology.node_of(self.this_cpu()) == node {
            add(&tally.local);
        } else {
            add(&tally.other);
        }
    }

    /// Frees a single frame of a node other than the first: to the calling CPU's cache if that keeps frames of the
    /// node, else to the node.
    #[cold]
    pub(super) fn free_to_node(&self, cache: &mut Cache, frame: Frame, meta: &Meta) {
        let state = meta.state();
        meta.set_state(state.become_block(FrameKind::Free, 0));
        if cfg!(debug_assertions) {
            self.poison(frame);
        }
        if cache.keeps(state.node()) {
            cache.push(frame, meta);
        } else {
            self.put_run(state.node(), frame.number(), frame.number() + 1);
        }
    }

    /// Returns the frame that was pushed last to its node, unless the cache keeps frames of that node. Called on
    /// machines with several nodes when the cache is full, or when it checks each frame because its CPU is not on the
    /// first node or a choice or policy is set.
    pub(super) fn overflow_near(&self, cache: &mut Cache) {
        let metas = self.metas();
        let Some(last) = cache.pop(metas) else {
            return;
        };
        let meta = metas.get(last.number());
        let node = meta.state().node();
        if cache.keeps(node) {
            cache.push(last, meta);
        } else {
            self.put_run(node, last.number(), last.number() + 1);
        }
    }

    #[inline]
    fn this_cpu(&self) -> CpuId {
        if self.caches.len() == 1 {
            CpuId::new(0)
        } else {
            self.machine.cpu()
        }
    }

    /// Moves up to `wanted` frames of `node` into the cache. Returns whether any were moved.
    fn take_batch(&self, cache: &mut Cache, node: u8, wanted: u32) -> bool {
        let metas = self.metas();
        let mut blocks = [(Frame::new(0), 0); super::BATCH as usize];
        let (mut count, mut taken) = (0, 0);
        let mut buddy = self.nodes[node as usize].lock();
        while taken < wanted {
            let Some(block) = buddy.take_some(metas, wanted - taken) else {
                break;
            };
            blocks[count] = block;
            count += 1;
            taken += block.1;
        }
        drop(buddy);
        for &(first, frames) in blocks[..count].iter().rev() {
            for number in (first.number()..first.number() + frames).rev() {
                cache.push(Frame::new(number), metas.get(number));
            }
        }
        taken > 0
    }
}
