//! The NUMA nodes of a guest.

use crate::model::machine::MOST_CPUS;
use crate::model::size::{MemorySize, parse_memory_size};
use std::fmt;

/// The maximum number of nodes.
const MOST: usize = 8;

/// The NUMA nodes of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nodes {
    count: u8,
    /// The memory and CPUs of each node; `None` if the nodes divide the guest's memory and CPUs evenly.
    each: Option<[Node; MOST]>,
}

/// The memory and CPUs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// MiB of memory.
    pub memory: u64,
    /// The number of CPUs.
    pub cpus: u8,
}

impl fmt::Display for Nodes {
    /// Formats the nodes in the syntax of `--numa`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(each) = self.each() else {
            return write!(formatter, "{}", self.count);
        };
        for (number, node) in each.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(formatter, "{comma}{}M:{}", node.memory, node.cpus)?;
        }
        Ok(())
    }
}

impl Nodes {
    /// Returns `count` nodes that divide the guest's memory and CPUs evenly.
    pub const fn even(count: u8) -> Self {
        Self { count, each: None }
    }

    /// Returns whether the guest has a single node.
    pub fn is_single(&self) -> bool {
        self.count == 1
    }

    fn each(&self) -> Option<&[Node]> {
        let each = self.each.as_ref()?;
        Some(&each[..usize::from(self.count)])
    }

    /// Returns the sum of the nodes' memory, or `None` if the option gives only the number of nodes.
    pub fn memory(&self) -> Option<MemorySize> {
        let each = self.each()?;
        let sum = each.iter().map(|node| node.memory).sum();
        Some(MemorySize::from_mebibytes(sum))
    }

    /// Returns the sum of the nodes' CPUs, or `None` if the option gives only the number of nodes.
    pub fn cpus(&self) -> Option<u8> {
        Some(self.each()?.iter().map(|node| node.cpus).sum())
    }

    /// Returns the memory and CPUs of each node in a guest with `memory` and `cpus` in total.
    pub fn shares(&self, memory: MemorySize, cpus: u8) -> Vec<Node> {
        if let Some(each) = self.each() {
            return each.to_vec();
        }
        let count = u64::from(self.count);
        // Each node gets complete 2 MiB pages; the last node also gets the remainder.
        let part = (memory.mebibytes() / count) & !1;
        let first =
            |number: u8| (u16::from(cpus) * u16::from(number) / u16::from(self.count)) as u8;
        let share = |number: u8| Node {
            memory: if number + 1 == self.count {
                memory.mebibytes() - part * (count - 1)
            } else {
                part
            },
            cpus: first(number + 1) - first(number),
        };
        (0..self.count).map(share).collect()
    }

    /// Returns the memory of each node in bytes, in a guest with `memory` in total.
    pub fn sizes(&self, memory: MemorySize) -> Vec<u64> {
        let shares = self.shares(memory, 1).into_iter();
        shares.map(|node| node.memory << 20).collect()
    }
}

/// Parses a number of nodes, or the memory and the CPUs of each node.
///
/// # Errors
/// The reason why the text is invalid.
pub fn parse_nodes(text: &str) -> Result<Nodes, String> {
    if let Ok(count) = text.parse::<u8>() {
        return if (1..=MOST as u8).contains(&count) {
            Ok(Nodes::even(count))
        } else {
            Err(format!("expected a number from 1 to {MOST}"))
        };
    }
    let mut each = [Node { memory: 0, cpus: 0 }; MOST];
    let mut count = 0;
    for part in text.split(',') {
        let Some((size, cpus)) = part.split_once(':') else {
            return Err(format!(
                "expected a number from 1 to {MOST}, or SIZE:CPUS for each node"
            ));
        };
        let node = each
            .get_mut(count)
            .ok_or(format!("expected at most {MOST} nodes"))?;
        *node = Node {
            memory: parse_memory_size(size)?.mebibytes(),
            cpus: cpus
                .parse()
                .map_err(|_| "expected a number of CPUs".to_owned())?,
        };
        count += 1;
    }
    let cpus: u32 = each.iter().map(|node| u32::from(node.cpus)).sum();
    // The first node contains the boot CPU.
    if each[0].cpus == 0 || cpus > u32::from(MOST_CPUS) {
        return Err(format!(
            "expected CPUs on the first node, and {MOST_CPUS} at most"
        ));
    }
    Ok(Nodes {
        count: count as u8,
        each: Some(each),
    })
}
