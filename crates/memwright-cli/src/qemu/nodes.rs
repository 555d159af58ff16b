//! The nodes of a guest, and how QEMU is told of them.

use crate::args::MOST_CPUS;
use crate::size::{MemorySize, parse_memory_size};

/// The most nodes of a guest.
const MOST: usize = 8;

/// The nodes of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nodes {
    count: u8,
    /// What each has, if they do not share evenly.
    each: Option<[Node; MOST]>,
}

/// What a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    /// MiB of memory.
    memory: u64,
    cpus: u8,
}

/// One option of QEMU's.
pub struct NodeOption {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
}

impl Nodes {
    /// So many, which share evenly. Of one QEMU is told nothing.
    pub const fn even(count: u8) -> Self {
        Self { count, each: None }
    }

    fn each(&self) -> Option<&[Node]> {
        let each = self.each.as_ref()?;
        Some(&each[..usize::from(self.count)])
    }

    /// The memory of all of them, if they say.
    pub fn memory(&self) -> Option<MemorySize> {
        let each = self.each()?;
        let sum = each.iter().map(|node| node.memory).sum();
        Some(MemorySize::from_mebibytes(sum))
    }

    /// The CPUs of all of them, if they say.
    pub fn cpus(&self) -> Option<u8> {
        Some(self.each()?.iter().map(|node| node.cpus).sum())
    }

    /// What QEMU is told, for a guest of so much memory and so many CPUs.
    pub fn options(&self, memory: MemorySize, cpus: u8) -> Vec<NodeOption> {
        let mut options = Vec::new();
        if self.count == 1 {
            return options;
        }
        let count = u64::from(self.count);
        let (mut used, mut first) = (0, 0);
        for number in 0..self.count {
            let node = match self.each() {
                Some(each) => each[usize::from(number)],
                None => {
                    let end = u16::from(cpus) * (u16::from(number) + 1) / u16::from(self.count);
                    // Whole pages of 2 MiB; the last has what is left.
                    let part = (memory.mebibytes() / count) & !1;
                    let is_last = number + 1 == self.count;
                    Node {
                        memory: if is_last {
                            memory.mebibytes() - used
                        } else {
                            part
                        },
                        cpus: end as u8 - first,
                    }
                }
            };
            used += node.memory;
            let size = node.memory;
            options.push(NodeOption {
                name: "-object",
                value: format!("memory-backend-ram,id=node{number},size={size}M"),
            });
            let own = match node.cpus {
                0 => String::new(),
                1 => format!(",cpus={first}"),
                more => format!(",cpus={first}-{}", first + more - 1),
            };
            first += node.cpus;
            options.push(NodeOption {
                name: "-numa",
                value: format!("node,nodeid={number}{own},memdev=node{number}"),
            });
        }
        options
    }
}

/// Accepts a number of nodes, or the memory and the CPUs of each.
///
/// # Errors
/// What is wrong with the text, in words.
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
    // The first node has the CPU that boots.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(nodes: &str, memory: &str, cpus: u8) -> Vec<String> {
        let nodes = parse_nodes(nodes).unwrap();
        let memory = nodes.memory().unwrap_or(parse_memory_size(memory).unwrap());
        let options = nodes.options(memory, nodes.cpus().unwrap_or(cpus));
        let options = options.into_iter();
        options
            .map(|option| format!("{} {}", option.name, option.value))
            .collect()
    }

    #[test]
    fn nodes_share_evenly_or_as_they_say() {
        assert_eq!(told("1", "1G", 4), Vec::<String>::new());
        assert_eq!(
            told("2", "513M", 3),
            [
                "-object memory-backend-ram,id=node0,size=256M",
                "-numa node,nodeid=0,cpus=0,memdev=node0",
                "-object memory-backend-ram,id=node1,size=257M",
                "-numa node,nodeid=1,cpus=1-2,memdev=node1",
            ]
        );
        assert_eq!(
            told("256M:3,64M:0,32M:1", "1G", 1),
            [
                "-object memory-backend-ram,id=node0,size=256M",
                "-numa node,nodeid=0,cpus=0-2,memdev=node0",
                "-object memory-backend-ram,id=node1,size=64M",
                "-numa node,nodeid=1,memdev=node1",
                "-object memory-backend-ram,id=node2,size=32M",
                "-numa node,nodeid=2,cpus=3,memdev=node2",
            ]
        );
    }
}
