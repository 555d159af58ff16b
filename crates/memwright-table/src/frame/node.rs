//! Nodes: which memory is near which CPU, and from which of them an allocation is served.
//!
//! A CPU's cache holds frames of its own node: an allocation that says nothing else is served from there, and only
//! when that node has nothing left by the next one in the order of distance (Linux 7.2 `mm/page_alloc.c`,
//! `build_zonelists`). With one node nothing here is reached. What an allocation is told otherwise, for one fault
//! ([`Frames::choose_next`]) or for all ([`Frames::set_chooser`]), is told by letting the CPU's cache run empty: the
//! way past an empty cache leads here.

use core::fmt;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rust_alloc::boxed::Box;
use rust_alloc::sync::Arc;

use super::cache::Cache;
use super::meta::Meta;
use super::{FOLIO_ORDER, FrameKind, FrameRef, Frames, OutOfFrames, Refused, rust_alloc};
use crate::addr::{CpuId, Frame, MAX_CPUS};
use crate::machine::Machine;

/// The most nodes of a machine.
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

    /// How many members there are.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether `node` is a member.
    #[must_use]
    pub const fn contains(self, node: u8) -> bool {
        node < 64 && self.0 & (1 << node) != 0
    }

    /// Members of both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Members that `other` has not.
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

/// Which nodes there are, whose CPUs are whose, and how far they are from one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    nodes: u8,
    of_cpu: [u8; MAX_CPUS],
    distance: [[u8; MAX_NODES]; MAX_NODES],
}

impl Topology {
    /// The distance of a node to itself.
    pub const LOCAL: u8 = 10;
    /// That to another, if nobody says otherwise.
    pub const REMOTE: u8 = 20;

    /// `nodes` nodes, all equally far from one another, with every CPU on the first.
    ///
    /// # Panics
    /// If they are none, or more than [`MAX_NODES`].
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

    /// How many nodes there are.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.nodes as usize
    }

    /// All of them.
    #[must_use]
    pub const fn all(&self) -> NodeSet {
        NodeSet::first(self.nodes as usize)
    }

    /// Puts `cpu` on `node`.
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

    /// Says how far `to` is from `from`.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn set_distance(&mut self, from: u8, to: u8, distance: u8) {
        assert!(from < self.nodes && to < self.nodes, "no such node");
        self.distance[from as usize][to as usize] = distance;
    }

    /// How far `to` is from `from`: 10 is a node itself.
    #[must_use]
    pub const fn distance(&self, from: u8, to: u8) -> u8 {
        self.distance[from as usize][to as usize]
    }

    /// The members of `among` in the order of their distance from `from`; of those equally far the lowest first.
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

/// From which nodes an allocation is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeChoice {
    /// Nodes near to this one come first.
    pub near: u8,
    /// Those that are tried first.
    pub first: NodeSet,
    /// Those that are tried after them. Without any the allocation fails.
    pub then: NodeSet,
    /// The pages of an area are dealt out in turn.
    pub interleaved: bool,
}

/// Who says from which nodes an allocation of data is served that nobody else said something of.
pub trait Chooser: Send + Sync {
    /// From which nodes an allocation on `cpu`, the calling one, is served; `None` for its own, then the nearest.
    /// Called under the locks of tables and of the CPU's cache.
    fn choose(&self, cpu: CpuId) -> Option<NodeChoice>;
}

/// The chooser of a machine, once there is one.
pub(super) struct Choosing(AtomicPtr<Arc<dyn Chooser>>);

impl Choosing {
    pub(super) const fn nobody() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    fn get(&self) -> Option<&dyn Chooser> {
        let chooser = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or that of a box which `set` stored once and only `drop` frees.
        unsafe { chooser.as_ref() }.map(|chooser| &**chooser)
    }

    /// Whether it was the first.
    fn set(&self, chooser: Arc<dyn Chooser>) -> bool {
        let new = Box::into_raw(Box::new(chooser));
        let (null, order) = (core::ptr::null_mut(), Ordering::AcqRel);
        let stored = self.0.compare_exchange(null, new, order, Ordering::Acquire);
        if stored.is_err() {
            // SAFETY: the box was made above, and nobody else has its pointer.
            drop(unsafe { Box::from_raw(new) });
        }
        stored.is_ok()
    }
}

impl Drop for Choosing {
    fn drop(&mut self) {
        let chooser = *self.0.get_mut();
        if !chooser.is_null() {
            // SAFETY: `set` made the box, and nobody borrows from the chooser any more.
            drop(unsafe { Box::from_raw(chooser) });
        }
    }
}

/// What was allocated on a node, in frames (Linux 7.2 Documentation/admin-guide/numastat.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Wanted here, and served from here.
    pub hit: u64,
    /// Served from here though wanted elsewhere.
    pub miss: u64,
    /// Wanted here, and served from elsewhere.
    pub foreign: u64,
    /// Dealt out in turn to this node, and served from here.
    pub interleaved: u64,
    /// Served from here for a CPU of this node.
    pub local: u64,
    /// Served from here for a CPU of another.
    pub other: u64,
}

/// The same, being counted. What the caches serve by themselves is added when somebody asks.
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
    /// Which nodes there are.
    #[inline]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Says whose CPUs are whose, and how far nodes are from one another; before the first allocation.
    ///
    /// # Panics
    /// If there are more or fewer nodes than the regions have.
    pub fn set_topology(&mut self, topology: Topology) {
        assert!(
            topology.nodes() == self.nodes.len(),
            "the memory is on other nodes"
        );
        self.topology = topology;
        for (index, cache) in self.caches.iter().enumerate() {
            let home = topology.node_of(CpuId::new(index as u16));
            cache.0.lock().set_home(home);
        }
    }

    /// The node of `frame`.
    #[inline]
    pub fn node_of(&self, frame: Frame) -> u8 {
        self.meta(frame).state().node()
    }

    /// The frames of `node` that can be allocated, and those that are free.
    pub fn node_usage(&self, node: u8) -> (u64, u64) {
        if self.nodes.len() == 1 {
            return (self.total, self.free());
        }
        let total = self.tallies[node as usize].total.load(Ordering::Relaxed);
        let free = self.nodes[node as usize].lock().free();
        let cached = |cpu: usize| {
            let at_home = self.topology.node_of(CpuId::new(cpu as u16)) == node;
            let cache = self.caches[cpu].0.lock();
            if at_home { u64::from(cache.count()) } else { 0 }
        };
        let cached: u64 = (0..self.caches.len()).map(cached).sum();
        (total, (free + cached).min(total))
    }

    /// What was allocated on `node`.
    pub fn node_counts(&self, node: u8) -> NodeCounts {
        let tally = &self.tallies[node as usize];
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let at_home = |cpu: usize| self.topology.node_of(CpuId::new(cpu as u16)) == node;
        let homes = (0..self.caches.len()).filter(|cpu| at_home(*cpu));
        let cached: u64 = homes
            .map(|cpu| self.caches[cpu].0.lock().served_at_home())
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

    /// Lets the next allocation of data on the calling CPU be served as `choice` says, whatever the chooser says. Who
    /// asks so allocates next on this CPU, or asks for nothing by [`choose_nothing`](Self::choose_nothing).
    pub fn choose_next(&self, choice: NodeChoice) {
        if self.nodes.len() > 1 {
            self.cache().lock().choose_next(choice);
        }
    }

    /// Takes what `choose_next` said back.
    pub fn choose_nothing(&self) {
        if self.nodes.len() > 1 {
            self.cache().lock().chosen();
        }
    }

    /// Lets `chooser` say from now on from which nodes data is allocated. The first that is named stays; nothing
    /// happens where there is one node.
    pub fn set_chooser(&self, chooser: Arc<dyn Chooser>) {
        if self.nodes.len() == 1 || !self.choosing.set(chooser) {
            return;
        }
        for cache in &self.caches {
            let mut cache = cache.0.lock();
            cache.bring_back();
            let count = cache.count();
            self.drain(&mut cache, count);
            cache.ask_always();
        }
    }

    /// Allocates 2^`order` frames from the nodes that `choice` names.
    ///
    /// # Errors
    /// [`OutOfFrames`] if none of them has any, or only the reserve.
    ///
    /// # Panics
    /// As [`allocate`](Self::allocate).
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

    /// What is to be said of an allocation of `kind` on `cpu`, whose cache this is.
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

    /// One frame for a CPU whose cache is empty, where there are several nodes: of its own node more with it, unless
    /// somebody chooses.
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

    /// A block, where there are several nodes.
    pub(super) fn take_block_near(&self, order: u8, kind: FrameKind) -> Option<Frame> {
        let cpu = self.this_cpu();
        let mut cache = self.cache().lock();
        let choice = self.choice_of(&mut cache, cpu, kind);
        drop(cache);
        let frame = self.take_by(order, kind, choice)?;
        self.cache().lock().count_elsewhere();
        Some(frame)
    }

    /// The same of what is free as such. If there is none, what was chosen for it holds for the next allocation.
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

    /// A block of the nodes that `choice` names, of what other CPUs' caches keep too.
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

    /// Free frames of all nodes beyond the reserve that `kind` may not use.
    fn spare(&self, kind: FrameKind) -> u64 {
        let low_water = if kind.may_use_reserve() {
            0
        } else {
            self.low_water.load(Ordering::Relaxed)
        };
        self.free_on_nodes().saturating_sub(low_water)
    }

    /// Free frames that are in no CPU's cache.
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

    /// Gives a free frame, of a CPU's own node or of another, to where it belongs. The way of all that is not of the
    /// first node, and of what a CPU of another node frees.
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

    /// A cache has more than it should, where there are several nodes: or the frame that came last is none of its
    /// CPU's node, or somebody chooses there.
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

    /// Moves up to `wanted` frames of `node` into the cache. Whether there were any.
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
