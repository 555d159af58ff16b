//! The nodes of a guest, and how QEMU is told of them.

use crate::args::MOST_CPUS;
use crate::size::{MemorySize, parse_memory_size};
use std::fmt;

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

/// What keeps a guest's memory.
#[derive(Debug, Clone, Copy)]
pub enum Backing<'a> {
    /// QEMU itself.
    Own,
    /// A file for each node, by the path by which QEMU opens it.
    Files(&'a [String]),
}

impl<'a> Backing<'a> {
    /// These files; QEMU itself where there are none.
    pub fn of(files: Option<&'a [String]>) -> Self {
        files.map_or(Self::Own, Self::Files)
    }

    /// The object that is so many MiB of node `number`.
    fn object(&self, name: &str, size: u64, number: usize) -> String {
        match self {
            Self::Own => format!("memory-backend-ram,id={name},size={size}M"),
            Self::Files(paths) => format!(
                "memory-backend-file,id={name},size={size}M,share=on,mem-path={}",
                paths[number]
            ),
        }
    }
}

impl fmt::Display for Nodes {
    /// As the option has it.
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

    /// What each has, of a guest of so much memory and so many CPUs.
    fn shares(&self, memory: MemorySize, cpus: u8) -> Vec<Node> {
        if let Some(each) = self.each() {
            return each.to_vec();
        }
        let count = u64::from(self.count);
        // Whole pages of 2 MiB; the last has what is left.
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

    /// The bytes of memory of each, of a guest of so much.
    pub fn sizes(&self, memory: MemorySize) -> Vec<u64> {
        let shares = self.shares(memory, 1).into_iter();
        shares.map(|node| node.memory << 20).collect()
    }

    /// What QEMU is told, for a guest of so much memory and so many CPUs.
    pub fn options(&self, memory: MemorySize, cpus: u8, backing: &Backing<'_>) -> Vec<NodeOption> {
        let mut options = Vec::new();
        let mut option = |name, value| options.push(NodeOption { name, value });
        if self.count == 1 {
            // QEMU's own needs no word.
            if let Backing::Files(_) = backing {
                option("-object", backing.object("ram", memory.mebibytes(), 0));
                option("-machine", "memory-backend=ram".to_owned());
            }
            return options;
        }
        let mut first = 0;
        for (number, node) in self.shares(memory, cpus).into_iter().enumerate() {
            let name = format!("node{number}");
            option("-object", backing.object(&name, node.memory, number));
            let own = match node.cpus {
                0 => String::new(),
                1 => format!(",cpus={first}"),
                more => format!(",cpus={first}-{}", first + more - 1),
            };
            first += node.cpus;
            option("-numa", format!("node,nodeid={number}{own},memdev={name}"));
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
        told_of(&Backing::Own, nodes, memory, cpus)
    }

    fn told_of(backing: &Backing<'_>, nodes: &str, memory: &str, cpus: u8) -> Vec<String> {
        let nodes = parse_nodes(nodes).unwrap();
        let memory = nodes.memory().unwrap_or(parse_memory_size(memory).unwrap());
        let options = nodes.options(memory, nodes.cpus().unwrap_or(cpus), backing);
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

    #[test]
    fn memory_is_in_files_where_somebody_reads_it() {
        let paths = ["/a".to_owned(), "/b".to_owned()];
        assert_eq!(
            told_of(&Backing::Files(&paths[..1]), "1", "512M", 1),
            [
                "-object memory-backend-file,id=ram,size=512M,share=on,mem-path=/a",
                "-machine memory-backend=ram",
            ]
        );
        assert_eq!(
            told_of(&Backing::Files(&paths), "2", "512M", 2),
            [
                "-object memory-backend-file,id=node0,size=256M,share=on,mem-path=/a",
                "-numa node,nodeid=0,cpus=0,memdev=node0",
                "-object memory-backend-file,id=node1,size=256M,share=on,mem-path=/b",
                "-numa node,nodeid=1,cpus=1,memdev=node1",
            ]
        );
        let sizes = parse_nodes("2").unwrap();
        let sizes = sizes.sizes(parse_memory_size("513M").unwrap());
        assert_eq!(sizes, [256 << 20, 257 << 20]);
    }
}
