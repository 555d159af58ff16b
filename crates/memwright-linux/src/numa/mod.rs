//! NUMA memory policies of threads.

mod balance;

pub(crate) use balance::Balancing;

use crate::{Memory, context::Context, errno::Errno, kernel::Kernel};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use memwright::{PlaceMode, PlacePolicy, PolicyId};
use memwright_table::{Chooser, CpuId, NodeChoice, NodeSet};

/// The memory policy of a thread, which applies where the area has no policy.
#[derive(Debug, Default)]
pub struct ThreadPlacement {
    id: AtomicU16,
    /// Number of pages that were interleaved so far.
    turn: AtomicU64,
}

impl ThreadPlacement {
    /// Returns the policy, if there is one.
    pub(crate) fn policy(&self, memory: &Memory) -> Option<PlacePolicy> {
        memory.placement(PolicyId::from_bits(self.id.load(Ordering::Relaxed)))
    }

    /// Returns the number of pages that were interleaved so far.
    pub(crate) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Copies the policy of the parent thread `maker`.
    pub(crate) fn inherit(&self, maker: &Self) {
        self.id
            .store(maker.id.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Chooses the nodes for the pages of the running threads.
struct Placements(&'static Kernel);

impl Chooser for Placements {
    fn choose(&self, cpu: CpuId) -> Option<NodeChoice> {
        let kernel = self.0;
        let thread = kernel.scheduler.current()?;
        let placement = &thread.placement;
        let policy = placement.policy(&kernel.memory)?;
        let turn = match policy.mode {
            PlaceMode::Interleave | PlaceMode::WeightedInterleave => {
                placement.turn.fetch_add(1, Ordering::Relaxed)
            }
            PlaceMode::Preferred
            | PlaceMode::Bind
            | PlaceMode::Local
            | PlaceMode::PreferredMany => 0,
        };
        let topology = kernel.memory.frames().topology();
        Some(policy.choice(topology.node_of(cpu), turn, topology.all(), |_| 1))
    }
}

/// Sets the policy of the calling thread.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn set_policy(context: &Context<'_>, policy: Option<PlacePolicy>) -> Result<(), Errno> {
    let memory = &context.kernel.memory;
    let id = match policy {
        Some(policy) => memory.number_placement(policy).map_err(|_| Errno::ENOMEM)?,
        None => PolicyId::NONE,
    };
    let placement = &context.thread.placement;
    placement.id.store(id.bits(), Ordering::Relaxed);
    placement.turn.store(0, Ordering::Relaxed);
    if policy.is_some() {
        memory
            .frames()
            .set_chooser(Arc::new(Placements(context.kernel)));
    }
    Ok(())
}

/// Returns the node for the next page after `turn` interleaved pages; `None` if the policy does not interleave.
pub(crate) fn advance(policy: &PlacePolicy, turn: u64, all: NodeSet) -> Option<u8> {
    match policy.mode {
        PlaceMode::Interleave | PlaceMode::WeightedInterleave => {
            Some(policy.choice(0, turn, all, |_| 1).near)
        }
        PlaceMode::Preferred | PlaceMode::Bind | PlaceMode::Local | PlaceMode::PreferredMany => {
            None
        }
    }
}
