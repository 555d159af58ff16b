//! Allocation on NUMA nodes.
//!
//! A CPU's cache holds frames of its own node. An allocation without a policy is served from that node, or from the
//! next nearest one when that node is exhausted (Linux 7.2 `mm/page_alloc.c`, `build_zonelists`). On a machine with one
//! node, only allocations for which the caller names the nodes use this module. A choice for one allocation
//! ([`Frames::choose_next`]) or a policy for all of them ([`Frames::set_chooser`]) keeps the CPU's cache empty: an
//! allocation that finds the cache empty calls this module, which applies the choice or policy.

use core::sync::atomic::{AtomicU64, Ordering};

use super::rust_alloc::sync::Arc;

use super::cache::{BATCH, Cache};
use super::meta::Meta;
use super::refill::Refused;
use super::{Chooser, FrameKind, Frames, NodeChoice, NodeCounts, NodeSet, SetupError, Topology};
use crate::addr::{CpuId, Frame};
use crate::machine::Machine;

impl<M: Machine> Frames<M> {
    /// Sets the topology. Call this before the first allocation.
    ///
    /// # Errors
    /// [`SetupError::NodeCount`] if the topology and the regions have different numbers of nodes.
    pub fn set_topology(&mut self, topology: Topology) -> Result<(), SetupError> {
        if topology.nodes() != self.nodes.len() {
            return Err(SetupError::NodeCount {
                regions: self.nodes.len(),
                topology: topology.nodes(),
            });
        }
        self.topology = topology;
        for (index, cache) in self.caches.iter().enumerate() {
            let home = topology.node_of(CpuId::new(index as u16));
            cache.free.lock().set_home(home);
        }
        Ok(())
    }

    /// Returns the number of frames of `node` that can be allocated, free or not, and the number of its free frames.
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

    /// Sets the policy that selects nodes for data allocations from now on. Only the first call has an effect, and on a
    /// machine with one node, even the first call has no effect.
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

    /// Returns the nodes for an allocation of `kind` on `cpu`, whose cache is `cache`. A data allocation uses up the
    /// choice that `choose_next` made. Other kinds ignore the choice and the policy.
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

    /// Removes a block of `order` from the nodes that the choice or policy names, draining the CPU caches if necessary.
    /// Called on machines with several nodes.
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

    /// Removes a block from the free lists of the nodes that `choice` names, draining all CPUs' caches if necessary.
    pub(super) fn take_by(&self, order: u8, kind: FrameKind, choice: NodeChoice) -> Option<Frame> {
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

    /// The number of free frames on the nodes that an allocation of `kind` may use. The reserve is included only if
    /// `kind` may use it.
    fn spare(&self, kind: FrameKind) -> u64 {
        let low_water = if kind.may_use_reserve() {
            0
        } else {
            self.low_water.load(Ordering::Relaxed)
        };
        self.free_on_nodes().saturating_sub(low_water)
    }

    /// The number of free frames on all nodes, excluding those in CPU caches.
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

    /// Frees a single frame of a node other than the first. Returns it to the calling CPU's cache if the cache keeps
    /// frames of that node, otherwise to the node.
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

    /// Moves the frame that was pushed last from the cache to its node, unless the cache keeps frames of that node.
    /// Called on machines with several nodes, when the cache has reached its limit, which may be 0.
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

    /// Moves up to `wanted` frames of `node` into the cache. Returns whether at least one was moved.
    fn take_batch(&self, cache: &mut Cache, node: u8, wanted: u32) -> bool {
        let metas = self.metas();
        let mut blocks = [(Frame::new(0), 0); BATCH as usize];
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
