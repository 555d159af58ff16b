//! The NUMA steps: NUMA policies, page migration and NUMA hints.

use memwright::{BindError, Moved, Moving, PlaceMode, PlacePolicy, Unmoved};
use memwright_table::{CpuId, NodeChoice, NodeSet, Page};

use super::kinds::disagree;
use super::{Difference, Lockstep, address, bytes};
use crate::script::Range;

impl Lockstep {
    /// Returns the policy that a number selects: preferred on one node, interleaved over all nodes, or none.
    fn policy(&self, number: u8) -> Option<PlacePolicy> {
        let nodes = self.host.machine().options().nodes;
        let (mode, nodes) = match usize::from(number) % (nodes + 2) {
            node if node < nodes => (PlaceMode::Preferred, NodeSet::single(node as u8)),
            node if node == nodes => (PlaceMode::Interleave, self.host.frames().topology().all()),
            _ => return None,
        };
        Some(PlacePolicy {
            mode,
            nodes,
            named: None,
            flags: 0,
            home: None,
        })
    }

    pub(super) fn bind(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        node: u8,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let policy = self.policy(node);
        let bound = self.processes[&process].on(cpu, |space| {
            space
                .numa()
                .bind(address(from), bytes(pages), policy, false)
        });
        let is_hole = |page| self.model.is_free(process, page, 1);
        let hole = (from..from + pages).any(is_hole);
        match bound {
            Ok(()) if policy.is_none() || !hole => self.succeeded("bind"),
            Err(BindError::Hole(_)) if hole => {}
            Err(BindError::OutOfMemory) => return Err(Difference::Exhausted),
            other => return disagree(format!("bind: {other:?}, with a hole: {hole}")),
        }
        Ok(())
    }

    pub(super) fn migrate(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        node: u8,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let nodes = self.host.machine().options().nodes as u8;
        // Numbers below `nodes` select a node for `Moving::Own`. The others select a node for `Moving::All`.
        let moving = if node < nodes {
            Moving::Own
        } else {
            Moving::All
        };
        let node = node % nodes;
        let choice = NodeChoice::only(node);
        for page in (from..from + pages).map(Page::new) {
            let space = self.processes[&process].space().clone();
            let moved = self.processes[&process]
                .on(cpu, |space| space.numa().migrate(page, choice, moving));
            match moved {
                Ok(Moved::To(at) | Moved::Stays(at)) if space.numa().node_of(page) == Ok(at) => {}
                Ok(other) => return disagree(format!("migrate: {other:?} is not where it is")),
                Err(Unmoved::NoArea) if !self.model.is_free(process, page.number(), 1) => {
                    return disagree(format!("migrate: no area at {page:?}"));
                }
                Err(_) => {}
            }
            if matches!(moved, Ok(Moved::To(_))) {
                self.succeeded("migrate");
            }
        }
        Ok(())
    }

    pub(super) fn hint(&mut self, process: usize, cpu: CpuId) {
        let mut budget = u64::MAX / 2;
        self.processes[&process].on(cpu, |space| {
            space.numa().scan_for_hints(Page::new(0), &mut budget)
        });
        self.succeeded("hint");
    }
}
