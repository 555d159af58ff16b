//! `/sys/devices/system/node`: a directory for each NUMA node.

use crate::procfs::{
    node::view::{shows, shows_of},
    node::{
        Child, FixedDirectory, PROCESSOR_NUMBERS, ProcNode, ProcessorDirectory,
        ProcessorEntry::Text as File, Text, stub::stubs,
    },
    system::processors::{write_list, write_mask},
};
use core::fmt::{self, Write};
use memwright_linux_abi::Memory;
use memwright_linux_base::short::Short;
use memwright_linux_vfs::fs::dirents::DirectoryEntry;
use memwright_table::{CpuSet, NodeSet, PAGE_SIZE, Topology};

stubs! {
    POSSIBLE: "/sys/devices/system/node/possible" "" Copy("/sys/devices/system/node/online"),
        "No node can be added.";
    NORMAL: "/sys/devices/system/node/has_normal_memory" "" Copy("/sys/devices/system/node/has_memory"),
        "Memory has one zone.";
}

/// The `place` of a node's directory, which determines the inode numbers of its entries. The places 0 and 1 are those
/// of the directories `cpuN` and `cpuN/topology` of the CPU with the same number.
const PLACE: u64 = 2;

/// `nodeN`.
static NODE: ProcessorDirectory = ProcessorDirectory {
    place: PLACE,
    entries: &[
        ("cpulist", File(shows_of!(processor_list, memory, all_cpus))),
        ("cpumap", File(shows_of!(processor_mask, memory, all_cpus))),
        ("distance", File(shows_of!(distance, memory))),
        ("meminfo", File(shows_of!(memory, memory))),
        ("numastat", File(shows_of!(counts, memory))),
    ],
};

fn topology(memory: &Memory) -> &Topology {
    memory.frames().topology()
}

/// Returns the directory `nodeN` of the node `number`.
fn node(number: u32) -> Child {
    Child {
        node: ProcNode::Processor(number, &NODE),
        number: PROCESSOR_NUMBERS + (u64::from(number) * 4 + PLACE) * 64,
        permissions: 0o555,
    }
}

/// The entries of `/sys/devices/system/node` other than the directories of the nodes.
static NODES: FixedDirectory = FixedDirectory {
    first: 0xb00,
    entries: &[
        (
            "has_cpu",
            0o444,
            ProcNode::SystemText(shows!(with_processors, memory, all_cpus)),
        ),
        (
            "has_memory",
            0o444,
            ProcNode::SystemText(shows!(with_memory, memory)),
        ),
        (
            "has_normal_memory",
            0o444,
            ProcNode::SystemText(shows!(with_memory, memory)),
        ),
        ("online", 0o444, ProcNode::SystemText(shows!(all, memory))),
        ("possible", 0o444, ProcNode::SystemText(shows!(all, memory))),
    ],
};

/// Looks up `name` in `/sys/devices/system/node`.
#[must_use]
pub fn child(memory: &Memory, name: &[u8]) -> Option<Child> {
    if let Some(child) = NODES.child(name) {
        return Some(child);
    }
    let number = crate::procfs::node::decimal(name.strip_prefix(b"node")?)?;
    ((number as usize) < topology(memory).nodes()).then(|| node(number))
}

/// Calls `emit` with each entry of `/sys/devices/system/node`, starting at `position`, until an entry does not fit.
pub fn list(memory: &Memory, position: &mut u64, emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool) {
    let first = 2 + NODES.entries.len() as u64;
    if *position < first && !NODES.list(position, emit) {
        return;
    }
    while *position - first < topology(memory).nodes() as u64 {
        let number = (*position - first) as u32;
        let child = node(number);
        let taken = emit(DirectoryEntry {
            inode: child.number,
            next: *position + 1,
            kind: child.node.kind(),
            name: Short::of(format_args!("node{number}")).as_bytes(),
        });
        if !taken {
            return;
        }
        *position += 1;
    }
}

fn list_line(text: &mut Text, set: u64) -> fmt::Result {
    write_list(text, set)?;
    text.write_char('\n')
}

/// Returns the CPUs of a node as a bit mask.
fn processors_of(memory: &Memory, all_cpus: CpuSet, number: u32) -> u64 {
    let topology = topology(memory);
    let own = all_cpus
        .iter()
        .filter(|cpu| u32::from(topology.node_of(*cpu)) == number);
    own.fold(0, |set, cpu| set | 1 << cpu.index())
}

/// Writes the list of all nodes.
pub fn all(memory: &Memory, text: &mut Text) -> fmt::Result {
    list_line(text, topology(memory).all().bits())
}

fn list_where(memory: &Memory, text: &mut Text, holds: impl Fn(u8) -> bool) -> fmt::Result {
    let nodes = topology(memory).all().iter().filter(|node| holds(*node));
    list_line(text, nodes.fold(0, |set: u64, node| set | 1 << node))
}

/// Writes the list of the nodes with CPUs.
pub fn with_processors(memory: &Memory, all_cpus: CpuSet, text: &mut Text) -> fmt::Result {
    list_where(memory, text, |node| {
        processors_of(memory, all_cpus, node.into()) != 0
    })
}

/// Writes the list of the nodes with memory.
pub fn with_memory(memory: &Memory, text: &mut Text) -> fmt::Result {
    let frames = memory.frames();
    list_where(memory, text, |node| frames.node_usage(node).0 > 0)
}

fn processor_list(memory: &Memory, all_cpus: CpuSet, number: u32, text: &mut Text) -> fmt::Result {
    list_line(text, processors_of(memory, all_cpus, number))
}

fn processor_mask(memory: &Memory, all_cpus: CpuSet, number: u32, text: &mut Text) -> fmt::Result {
    let own = processors_of(memory, all_cpus, number);
    write_mask(text, own, all_cpus.len() as usize)?;
    text.write_char('\n')
}

/// Writes `nodeN/distance`: the distances to all nodes.
fn distance(memory: &Memory, number: u32, text: &mut Text) -> fmt::Result {
    let topology = topology(memory);
    for to in topology.all().iter() {
        if to > 0 {
            text.write_char(' ')?;
        }
        write!(text, "{}", topology.distance(number as u8, to))?;
    }
    text.write_char('\n')
}

/// Writes `nodeN/meminfo`.
fn memory(memory: &Memory, number: u32, text: &mut Text) -> fmt::Result {
    let (total, free) = memory.frames().node_usage(number as u8);
    let rows = [
        ("MemTotal:", total),
        ("MemFree:", free),
        ("MemUsed:", total - free),
    ];
    for (name, pages) in rows {
        let kibibytes = pages * (PAGE_SIZE as u64 / 1024);
        writeln!(text, "Node {number} {name:<15}{kibibytes:8} kB")?;
    }
    Ok(())
}

/// Writes `nodeN/numastat` (Linux 7.2 Documentation/admin-guide/numastat.rst).
fn counts(memory: &Memory, number: u32, text: &mut Text) -> fmt::Result {
    let counts = memory.frames().node_counts(number as u8);
    let rows = [
        ("numa_hit", counts.hit),
        ("numa_miss", counts.miss),
        ("numa_foreign", counts.foreign),
        ("interleave_hit", counts.interleaved),
        ("local_node", counts.local),
        ("other_node", counts.other),
    ];
    for (name, count) in rows {
        writeln!(text, "{name} {count}")?;
    }
    Ok(())
}

/// Writes a set of nodes in the format of `/proc/PID/status`: as a mask of at least `room` bits, and as a list.
///
/// # Errors
/// The errors of `text`.
pub fn write_allowed(text: &mut dyn Write, nodes: NodeSet, room: u64) -> fmt::Result {
    text.write_str("Mems_allowed:\t")?;
    for _ in 2..room.div_ceil(32) {
        text.write_str("00000000,")?;
    }
    let (high, low) = (nodes.bits() >> 32, nodes.bits() as u32);
    write!(text, "{high:08x},{low:08x}\nMems_allowed_list:\t")?;
    write_list(text, nodes.bits())?;
    text.write_char('\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn allowed_nodes_are_a_mask_and_a_list() {
        let mut text = String::new();
        write_allowed(&mut text, NodeSet::first(2), 128).unwrap();
        assert_eq!(
            text,
            "Mems_allowed:\t00000000,00000000,00000000,00000003\nMems_allowed_list:\t0-1\n"
        );
    }
}
