//! NUMA policies of threads, and NUMA balancing.

mod balance;

pub use balance::Balancing;

use alloc::sync::Arc;
use memwright::{PlaceMode, PlacePolicy, PolicyId};
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_tasks::process::{Tasks, Thread};
use memwright_table::{Chooser, CpuId, NodeChoice, NodeSet};

/// The maximum number of nodes that the interface supports (`MAX_NUMNODES` of Debian's configuration).
pub const MOST_NODES: u64 = 1024;

/// Chooses the node of each new page by the NUMA policy of the running thread.
struct Placements {
    memory: Arc<Memory>,
    tasks: &'static Tasks,
}

impl Chooser for Placements {
    fn choose(&self, cpu: CpuId) -> Option<NodeChoice> {
        let thread = self.tasks.scheduler.current()?;
        let placement = &thread.placement;
        let policy = placement.policy(&self.memory)?;
        let turn = match policy.mode {
            PlaceMode::Interleave | PlaceMode::WeightedInterleave => placement.take_turn(),
            PlaceMode::Preferred
            | PlaceMode::Bind
            | PlaceMode::Local
            | PlaceMode::PreferredMany => 0,
        };
        let topology = self.memory.frames().topology();
        Some(policy.choice(topology.node_of(cpu), turn, topology.all(), |_| 1))
    }
}

/// Sets the policy of `thread`, which is the calling thread.
///
/// # Errors
/// `ENOMEM`.
pub fn set_policy(
    memory: &Arc<Memory>,
    tasks: &'static Tasks,
    thread: &Thread,
    policy: Option<PlacePolicy>,
) -> Result<(), Errno> {
    let id = match policy {
        Some(policy) => memory.number_placement(policy).map_err(|_| Errno::ENOMEM)?,
        None => PolicyId::NONE,
    };
    thread.placement.set(id);
    if policy.is_some() {
        memory.frames().set_chooser(Arc::new(Placements {
            memory: memory.clone(),
            tasks,
        }));
    }
    Ok(())
}

/// Returns the node for the next page after `turn` pages have been interleaved; `None` if the policy does not
/// interleave pages.
pub fn advance(policy: &PlacePolicy, turn: u64, all: NodeSet) -> Option<u8> {
    match policy.mode {
        PlaceMode::Interleave | PlaceMode::WeightedInterleave => {
            Some(policy.choice(0, turn, all, |_| 1).near)
        }
        PlaceMode::Preferred | PlaceMode::Bind | PlaceMode::Local | PlaceMode::PreferredMany => {
            None
        }
    }
}

/// Returns the name of a mode in `/proc/PID/numa_maps` (`policy_modes`).
pub const fn mode_name(mode: PlaceMode) -> &'static str {
    match mode {
        PlaceMode::Preferred => "prefer",
        PlaceMode::Bind => "bind",
        PlaceMode::Interleave => "interleave",
        PlaceMode::Local => "local",
        PlaceMode::PreferredMany => "prefer (many)",
        PlaceMode::WeightedInterleave => "weighted interleave",
    }
}
