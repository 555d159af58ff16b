//! `/sys/devices/system/node`: a directory for each NUMA node.

use crate::{
    fs::dirents::DirectoryEntry,
    procfs::{
        node::{
            Child, FixedDirectory, PROCESSOR_NUMBERS, ProcNode, ProcessorDirectory,
            ProcessorEntry::Text as File, Text, stub::stubs,
        },
        system::processors::{write_list, write_mask},
    },
    short::Short,
    view::View,
};
use core::fmt::{self, Write};
use memwright_table::{NodeSet, PAGE_SIZE, Topology};

stubs! {
    POSSIBLE: "/sys/devices/system/node/possible" "" Copy("/sys/devices/system/node/online"),
        "No node can be added.";
    NORMAL: "/sys/devices/system/node/has_normal_memory" "" Copy("/sys/devices/system/node/has_memory"),
        "Memory has one zone.";
}

/// The index of a node's directory among the directories with its number, which determines its inode numbers. Lower
/// indices belong to the directories of the CPU with the same number.
const PLACE: u64 = 2;

/// `nodeN`.
static NODE: ProcessorDirectory = ProcessorDirectory {
    place: PLACE,
    entries: &[
        ("cpulist", File(processor_list)),
        ("cpumap", File(processor_mask)),
        ("distance", File(distance)),
        ("meminfo", File(memory)),
        ("numastat", File(counts)),
    ],
};

fn topology<'a>(view: &'a View<'_>) -> &'a Topology {
    view.kernel.memory.frames().topology()
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
        ("has_cpu", 0o444, ProcNode::SystemText(with_processors)),
        ("has_memory", 0o444, ProcNode::SystemText(with_memory)),
        (
            "has_normal_memory",
            0o444,
            ProcNode::SystemText(with_memory),
        ),
        ("online", 0o444, ProcNode::SystemText(all)),
        ("possible", 0o444, ProcNode::SystemText(all)),
    ],
};

/// Looks up `name` in `/sys/devices/system/node`.
#[must_use]
pub fn child(view: &View<'_>, name: &[u8]) -> Option<Child> {
    if let Some(child) = NODES.child(name) {
        return Some(child);
    }
    let number = crate::procfs::node::decimal(name.strip_prefix(b"node")?)?;
    ((number as usize) < topology(view).nodes()).then(|| node(number))
}

/// Passes the entries of `/sys/devices/system/node` from `position` on to `emit`.
pub fn list(view: &View<'_>, position: &mut u64, emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool) {
    let first = 2 + NODES.entries.len() as u64;
    if *position < first && !NODES.list(position, emit) {
        return;
    }
    while *position - first < topology(view).nodes() as u64 {
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
fn processors_of(view: &View<'_>, number: u32) -> u64 {
    let topology = topology(view);
    let every = view.kernel.scheduler.all_cpus();
    let own = every
        .iter()
        .filter(|cpu| u32::from(topology.node_of(*cpu)) == number);
    own.fold(0, |set, cpu| set | 1 << cpu.index())
}

/// Writes the list of all nodes.
pub fn all(view: &View<'_>, text: &mut Text) -> fmt::Result {
    list_line(text, topology(view).all().bits())
}

fn list_where(view: &View<'_>, text: &mut Text, holds: impl Fn(u8) -> bool) -> fmt::Result {
    let nodes = topology(view).all().iter().filter(|node| holds(*node));
    list_line(text, nodes.fold(0, |set: u64, node| set | 1 << node))
}

/// Writes the list of the nodes with CPUs.
pub fn with_processors(view: &View<'_>, text: &mut Text) -> fmt::Result {
    list_where(view, text, |node| processors_of(view, node.into()) != 0)
}

/// Writes the list of the nodes with memory.
pub fn with_memory(view: &View<'_>, text: &mut Text) -> fmt::Result {
    let frames = view.kernel.memory.frames();
    list_where(view, text, |node| frames.node_usage(node).0 > 0)
}

fn processor_list(view: &View<'_>, number: u32, text: &mut Text) -> fmt::Result {
    list_line(text, processors_of(view, number))
}

fn processor_mask(view: &View<'_>, number: u32, text: &mut Text) -> fmt::Result {
    let count = view.kernel.host.cpu_count();
    write_mask(text, processors_of(view, number), count)?;
    text.write_char('\n')
}

/// Writes `nodeN/distance`: the distances to all nodes.
fn distance(view: &View<'_>, number: u32, text: &mut Text) -> fmt::Result {
    let topology = topology(view);
    for to in topology.all().iter() {
        if to > 0 {
            text.write_char(' ')?;
        }
        write!(text, "{}", topology.distance(number as u8, to))?;
    }
    text.write_char('\n')
}

/// Writes `nodeN/meminfo`.
fn memory(view: &View<'_>, number: u32, text: &mut Text) -> fmt::Result {
    let (total, free) = view.kernel.memory.frames().node_usage(number as u8);
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
fn counts(view: &View<'_>, number: u32, text: &mut Text) -> fmt::Result {
    let counts = view.kernel.memory.frames().node_counts(number as u8);
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
/// Those of `text`.
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
