//! From which nodes pages come (Linux 7.2 `mm/mempolicy.c`).

use alloc::vec::Vec;

use memwright_table::sync::{Lock, Rank};
use memwright_table::{NodeChoice, NodeSet, OutOfMemory, TryPush};

/// How a policy uses its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaceMode {
    /// The one node first, then whichever is near (`MPOL_PREFERRED`).
    Preferred,
    /// None but these (`MPOL_BIND`).
    Bind,
    /// Each in turn (`MPOL_INTERLEAVE`).
    Interleave,
    /// The node of the CPU that asks, then the nearest (`MPOL_LOCAL`).
    Local,
    /// These, nearest first, then whichever is near (`MPOL_PREFERRED_MANY`).
    PreferredMany,
    /// Each in turn, as often as its weight says (`MPOL_WEIGHTED_INTERLEAVE`).
    WeightedInterleave,
}

/// From which nodes pages come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlacePolicy {
    /// How the nodes are used.
    pub mode: PlaceMode,
    /// The nodes; none of a policy that is [`PlaceMode::Local`].
    pub nodes: NodeSet,
    /// The nodes as the program named them, if it wants them to be shown so.
    pub named: Option<NodeSet>,
    /// The flags that the program gave with the mode, for who asks for them.
    pub flags: u16,
    /// Near to which node, if not to the CPU's that asks (`set_mempolicy_home_node`).
    pub home: Option<u8>,
}

/// The number of a policy, as areas name it; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PolicyId(u16);

impl PolicyId {
    /// No policy: the thread's holds.
    pub const NONE: Self = Self(0);

    /// The number.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The one with this number.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Whether it names none.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl PlacePolicy {
    /// Where the page with the number `turn`, of those that share a policy, comes from, for a CPU of the node `near`,
    /// on a machine with the nodes `all` of which `weight` tells how often each has its turn.
    #[must_use]
    pub fn choice(
        &self,
        near: u8,
        turn: u64,
        all: NodeSet,
        weight: impl Fn(u8) -> u64,
    ) -> NodeChoice {
        let anywhere = NodeChoice {
            near: self.home.unwrap_or(near),
            first: self.nodes,
            then: all,
            interleaved: false,
        };
        match self.mode {
            PlaceMode::Local => NodeChoice {
                near,
                first: all,
                then: NodeSet::EMPTY,
                interleaved: false,
            },
            PlaceMode::Preferred => NodeChoice {
                near: self.nodes.iter().next().unwrap_or(near),
                ..anywhere
            },
            PlaceMode::PreferredMany => anywhere,
            PlaceMode::Bind => NodeChoice {
                then: NodeSet::EMPTY,
                ..anywhere
            },
            PlaceMode::Interleave => in_turn(self.nodes, turn, near, all, |_| 1),
            PlaceMode::WeightedInterleave => in_turn(self.nodes, turn, near, all, weight),
        }
    }

    /// Whether a page on `node` is where the policy wants it. Where the CPU decides, none is.
    #[must_use]
    pub fn allows(&self, node: u8) -> bool {
        self.nodes.contains(node)
    }
}

/// The node whose turn it is, then any.
fn in_turn(
    nodes: NodeSet,
    turn: u64,
    near: u8,
    all: NodeSet,
    weight: impl Fn(u8) -> u64,
) -> NodeChoice {
    let round: u64 = nodes.iter().map(&weight).sum();
    let mut left = turn.checked_rem(round).unwrap_or(0);
    let mut chosen = near;
    for node in nodes.iter() {
        chosen = node;
        if left < weight(node) {
            break;
        }
        left -= weight(node);
    }
    NodeChoice {
        near: chosen,
        first: NodeSet::single(chosen),
        then: all,
        interleaved: true,
    }
}

/// Every policy that areas name. Each is kept once, for ever: programs use few.
pub(crate) struct Policies(Lock<Vec<PlacePolicy>>);

impl Policies {
    pub(crate) const fn new() -> Self {
        Self(Lock::new(Rank::Leaf, Vec::new()))
    }

    /// The number of `policy`.
    pub(crate) fn number(&self, policy: PlacePolicy) -> Result<PolicyId, OutOfMemory> {
        let mut known = self.0.lock();
        if let Some(place) = known.iter().position(|one| *one == policy) {
            return Ok(PolicyId(place as u16 + 1));
        }
        if known.len() == usize::from(u16::MAX) {
            return Err(OutOfMemory);
        }
        known.try_push(policy)?;
        Ok(PolicyId(known.len() as u16))
    }

    /// The policy with this number.
    pub(crate) fn get(&self, id: PolicyId) -> Option<PlacePolicy> {
        let place = usize::from(id.0).checked_sub(1)?;
        self.0.lock().get(place).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_chooses_nodes() {
        let set = NodeSet::from_bits;
        let all = set(0b111);
        let policy = |mode, nodes| PlacePolicy {
            mode,
            nodes: set(nodes),
            named: None,
            flags: 0,
            home: None,
        };
        let weight = |node: u8| u64::from(node) + 1;
        use PlaceMode::{Bind, Interleave, Local, Preferred, PreferredMany, WeightedInterleave};
        #[rustfmt::skip]
        let rows = [
            (policy(Local, 0),                  0, (1, 0b111, 0)),
            (policy(Preferred, 0b100),          0, (2, 0b100, 0b111)),
            (policy(PreferredMany, 0b101),      0, (1, 0b101, 0b111)),
            (policy(Bind, 0b101),               0, (1, 0b101, 0)),
            (policy(Interleave, 0b101),         0, (0, 0b001, 0b111)),
            (policy(Interleave, 0b101),         1, (2, 0b100, 0b111)),
            (policy(Interleave, 0b101),         2, (0, 0b001, 0b111)),
            (policy(WeightedInterleave, 0b11),  0, (0, 0b001, 0b111)),
            (policy(WeightedInterleave, 0b11),  1, (1, 0b010, 0b111)),
            (policy(WeightedInterleave, 0b11),  2, (1, 0b010, 0b111)),
            (policy(WeightedInterleave, 0b11),  3, (0, 0b001, 0b111)),
        ];
        for (policy, turn, (near, first, then)) in rows {
            let choice = policy.choice(1, turn, all, weight);
            let expected = (near, set(first), set(then));
            assert_eq!(
                (choice.near, choice.first, choice.then),
                expected,
                "{policy:?}, turn {turn}"
            );
        }
        let home = PlacePolicy {
            home: Some(0),
            ..policy(Bind, 0b110)
        };
        assert_eq!(home.choice(2, 0, all, weight).near, 0);
    }

    #[test]
    fn equal_policies_have_one_number() {
        let policies = Policies::new();
        let local = PlacePolicy {
            mode: PlaceMode::Local,
            nodes: NodeSet::EMPTY,
            named: None,
            flags: 0,
            home: None,
        };
        let bound = PlacePolicy {
            mode: PlaceMode::Bind,
            nodes: NodeSet::single(1),
            ..local
        };
        let first = policies.number(local).unwrap();
        assert_ne!(policies.number(bound).unwrap(), first);
        assert_eq!(policies.number(local).unwrap(), first);
        assert_eq!(policies.get(first), Some(local));
        assert_eq!(policies.get(PolicyId::NONE), None);
    }
}
