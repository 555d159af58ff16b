//! NUMA policies: from which nodes pages are allocated (Linux 7.2 `mm/mempolicy.c`).

use memwright_table::{NodeChoice, NodeSet};

/// The mode of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaceMode {
    /// The given node first, then the nearest others (`MPOL_PREFERRED`).
    Preferred,
    /// Only the given nodes (`MPOL_BIND`).
    Bind,
    /// The given nodes in turn (`MPOL_INTERLEAVE`).
    Interleave,
    /// The node of the allocating CPU, then the nearest others (`MPOL_LOCAL`).
    Local,
    /// The given nodes, nearest first, then the nearest others (`MPOL_PREFERRED_MANY`).
    PreferredMany,
    /// The given nodes in turn, each in proportion to its weight (`MPOL_WEIGHTED_INTERLEAVE`).
    WeightedInterleave,
}

/// A NUMA policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlacePolicy {
    /// The way in which the policy selects among the nodes.
    pub mode: PlaceMode,
    /// The nodes; empty for [`PlaceMode::Local`].
    pub nodes: NodeSet,
    /// The nodes as the program specified them, if `get_mempolicy` must report them in that form.
    pub named: Option<NodeSet>,
    /// The mode flags that the program specified. They are only reported.
    pub flags: u16,
    /// The home node, used in place of the node of the allocating CPU (`set_mempolicy_home_node`).
    pub home: Option<u8>,
}

/// The number of a policy in the list of all policies, by which areas refer to it; 0 for no policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PolicyId(u16);

impl PolicyId {
    /// No policy of the area or object. The policy of the thread applies.
    pub const NONE: Self = Self(0);

    /// Returns the number.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the ID with this number.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns whether the number is that of `NONE`.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl PlacePolicy {
    /// Returns the nodes from which to allocate the page with number `turn` among the pages that share the policy.
    /// `near` is the node of the allocating CPU, `all` are the nodes of the machine, and `weight` returns the
    /// interleave weight of a node.
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

    /// Returns whether `node` is one of the policy's nodes. Always false for [`PlaceMode::Local`], which has no nodes.
    #[must_use]
    pub fn allows(&self, node: u8) -> bool {
        self.nodes.contains(node)
    }
}

/// Returns a choice that prefers the node whose turn it is, and falls back to all nodes.
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
}
