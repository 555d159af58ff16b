//! QEMU's options for the NUMA nodes of a guest and for the memory backend of each node.

use crate::model::nodes::Nodes;
use crate::model::size::MemorySize;

/// An option of QEMU's command line.
pub struct NodeOption {
    /// The name of the option.
    pub name: &'static str,
    /// The value of the option.
    pub value: String,
}

/// The backing of a guest's memory on the host.
#[derive(Debug, Clone, Copy)]
pub enum Backing<'a> {
    /// Memory that QEMU allocates.
    Own,
    /// One file per node. Each element is the path at which QEMU opens the file.
    Files(&'a [String]),
}

impl<'a> Backing<'a> {
    /// Returns [`Self::Files`] with these files, or [`Self::Own`] if `files` is `None`.
    pub fn of(files: Option<&'a [String]>) -> Self {
        files.map_or(Self::Own, Self::Files)
    }

    /// Returns the value of `-object` for the memory of node `number`: an object with the ID `name` and `size` MiB.
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

/// Returns QEMU's options for a guest with this memory and these CPUs.
pub fn options(
    nodes: Nodes,
    memory: MemorySize,
    cpus: u8,
    backing: &Backing<'_>,
) -> Vec<NodeOption> {
    let mut options = Vec::new();
    let mut option = |name, value| options.push(NodeOption { name, value });
    if nodes.is_single() {
        // By default, QEMU allocates the memory itself, so that `Backing::Own` needs no option.
        if let Backing::Files(_) = backing {
            option("-object", backing.object("ram", memory.mebibytes(), 0));
            option("-machine", "memory-backend=ram".to_owned());
        }
        return options;
    }
    let mut first = 0;
    for (number, node) in nodes.shares(memory, cpus).into_iter().enumerate() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::nodes::parse_nodes;
    use crate::model::size::parse_memory_size;

    fn told(nodes: &str, memory: &str, cpus: u8) -> Vec<String> {
        told_of(&Backing::Own, nodes, memory, cpus)
    }

    fn told_of(backing: &Backing<'_>, nodes: &str, memory: &str, cpus: u8) -> Vec<String> {
        let nodes = parse_nodes(nodes).unwrap();
        let memory = nodes.memory().unwrap_or(parse_memory_size(memory).unwrap());
        let options = options(nodes, memory, nodes.cpus().unwrap_or(cpus), backing);
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
