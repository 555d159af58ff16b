//! The NUMA topology of a machine, and the choice of nodes for an allocation.

use core::fmt;

use crate::addr::{CpuId, MAX_CPUS};

/// The maximum number of nodes of a machine.
pub const MAX_NODES: usize = 8;

/// A set of nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u64);

impl NodeSet {
    /// No node.
    pub const EMPTY: Self = Self(0);

    /// The set of the nodes whose bits are set in `bits`. Bit `n` stands for node `n`.
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

    /// Whether the set has no member.
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

    /// The nodes that are members of both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The members of this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Iterates over the members in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..64).filter(move |node| self.contains(*node))
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The number of nodes, the node of each CPU, and the distances between nodes.
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

    /// Creates a topology with `nodes` nodes at equal distances, and every CPU on the first node.
    ///
    /// # Panics
    /// If `nodes` is 0 or more than [`MAX_NODES`].
    #[must_use]
    pub const fn new(nodes: usize) -> Self {
        assert!(
            nodes > 0 && nodes <= MAX_NODES,
            "a topology has from 1 to 8 nodes"
        );
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
        assert!(
            node < self.nodes,
            "no node {node} in a topology of {} nodes",
            self.nodes
        );
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
        assert!(
            from < self.nodes && to < self.nodes,
            "no node {} in a topology of {} nodes",
            from.max(to),
            self.nodes
        );
        self.distance[from as usize][to as usize] = distance;
    }

    /// The distance from `from` to `to`; [`Self::LOCAL`] if both are the same node.
    #[must_use]
    pub const fn distance(&self, from: u8, to: u8) -> u8 {
        self.distance[from as usize][to as usize]
    }

    /// Iterates over the members of `among` by ascending distance from `from`. Nodes at the same distance are in the
    /// order of their numbers.
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

/// The nodes that may serve an allocation, and the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeChoice {
    /// The node from which distances are measured. In each set, nearer nodes are tried first.
    pub near: u8,
    /// The nodes to try first.
    pub first: NodeSet,
    /// The nodes to try if no node of `first` has free memory. If no node of `then` has free memory, the allocation
    /// fails.
    pub then: NodeSet,
    /// Whether the policy interleaves pages over nodes. Used only for the statistics.
    pub interleaved: bool,
}

impl NodeChoice {
    /// Returns the choice that permits only frames of `node`.
    #[inline]
    #[must_use]
    pub const fn only(node: u8) -> Self {
        Self {
            near: node,
            first: NodeSet::single(node),
            then: NodeSet::EMPTY,
            interleaved: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Topology;
    use crate::CpuId;

    #[test]
    #[should_panic(expected = "no node 2 in a topology of 2 nodes")]
    fn a_cpu_is_assigned_to_a_node_of_the_topology() {
        Topology::new(2).set_cpu(CpuId::new(0), 2);
    }

    #[test]
    #[should_panic(expected = "no node 3 in a topology of 2 nodes")]
    fn a_distance_is_one_between_nodes_of_the_topology() {
        Topology::new(2).set_distance(1, 3, 20);
    }
}
