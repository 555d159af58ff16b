//! `/sys/devices/system/cpu`: a directory for each CPU. The directories of NUMA nodes use the same types.

use crate::procfs::{
    node::view::{shows, shows_of},
    node::{
        Child, FixedDirectory, PROCESSOR_NUMBERS, ProcNode, ProcessorDirectory,
        ProcessorEntry::{Directory, Text as File},
        Text,
        stub::stubs,
    },
};
use core::fmt::{self, Write};
use memwright_linux_base::short::Short;
use memwright_linux_vfs::fs::dirents::DirectoryEntry;
use memwright_table::CpuSet;

stubs! {
    ONLINE: "/sys/devices/system/cpu/cpu*/online" "" Number(1), "No CPU can be taken offline.";
    PACKAGE: "/sys/devices/system/cpu/cpu*/topology/physical_package_id" "" Number(0),
        "All CPUs are cores of one package.";
    SIBLINGS: "/sys/devices/system/cpu/cpu*/topology/{core_siblings,package_cpus}{,_list}" ""
        Copy("/sys/devices/system/cpu/online"), "All CPUs are cores of one package.";
    THREADS: "/sys/devices/system/cpu/cpu*/topology/{core_cpus,thread_siblings}{,_list}" ""
        Copy("/sys/devices/system/cpu/cpu*/topology/core_id"), "Each core runs one thread.";
    OFFLINE: "/sys/devices/system/cpu/offline" "" Text(""), "No CPU can be taken offline.";
    POSSIBLE: "/sys/devices/system/cpu/possible" "" Copy("/sys/devices/system/cpu/online"), "No CPU can be added.";
    PRESENT: "/sys/devices/system/cpu/present" "" Copy("/sys/devices/system/cpu/online"), "No CPU can be added.";
    HIGHEST: "/sys/devices/system/cpu/kernel_max" "" Number(CpuSet::from_bits(u64::MAX).bits().count_ones() as u64 - 1), "A CPU mask has 64 bits.";
}

/// `cpuN`. CPUs cannot be taken offline.
pub static PROCESSOR: ProcessorDirectory = ProcessorDirectory {
    place: 0,
    entries: &[
        ("online", File(|_, _, text| online(text))),
        ("topology", Directory(&TOPOLOGY)),
    ],
};

/// `cpuN/topology`. All CPUs are in one package, and each core has one hardware thread.
static TOPOLOGY: ProcessorDirectory = ProcessorDirectory {
    place: 1,
    entries: &[
        ("core_cpus", File(shows_of!(own_mask, all_cpus))),
        ("core_cpus_list", File(shows_of!(own_number))),
        ("core_id", File(shows_of!(own_number))),
        (
            "core_siblings",
            File(|view, _, text| all_mask(view.parts.all_cpus(), text)),
        ),
        (
            "core_siblings_list",
            File(|view, _, text| all_list(view.parts.all_cpus(), text)),
        ),
        (
            "package_cpus",
            File(|view, _, text| all_mask(view.parts.all_cpus(), text)),
        ),
        (
            "package_cpus_list",
            File(|view, _, text| all_list(view.parts.all_cpus(), text)),
        ),
        ("physical_package_id", File(|_, _, text| package(text))),
        ("thread_siblings", File(shows_of!(own_mask, all_cpus))),
        ("thread_siblings_list", File(shows_of!(own_number))),
    ],
};

/// Returns the directory `cpuN` of the CPU `number`.
fn processor(number: u32) -> Child {
    Child {
        node: ProcNode::Processor(number, &PROCESSOR),
        number: PROCESSOR_NUMBERS + u64::from(number) * 256,
        permissions: 0o555,
    }
}

/// The entries of `/sys/devices/system/cpu` other than the directories of the CPUs.
static PROCESSORS: FixedDirectory = FixedDirectory {
    first: 0xa00,
    entries: &[
        ("kernel_max", 0o444, ProcNode::SystemText(shows!(highest))),
        ("offline", 0o444, ProcNode::SystemText(shows!(absent))),
        (
            "online",
            0o444,
            ProcNode::SystemText(shows!(present, all_cpus)),
        ),
        (
            "possible",
            0o444,
            ProcNode::SystemText(shows!(present, all_cpus)),
        ),
        (
            "present",
            0o444,
            ProcNode::SystemText(shows!(present, all_cpus)),
        ),
    ],
};

/// Looks up `name` in `/sys/devices/system/cpu`.
#[must_use]
pub fn child(all_cpus: CpuSet, name: &[u8]) -> Option<Child> {
    if let Some(child) = PROCESSORS.child(name) {
        return Some(child);
    }
    let number = crate::procfs::node::decimal(name.strip_prefix(b"cpu")?)?;
    (number < all_cpus.len()).then(|| processor(number))
}

/// Calls `emit` with each entry of `/sys/devices/system/cpu`, starting at `position`, until an entry does not fit.
pub fn list(
    all_cpus: CpuSet,
    position: &mut u64,
    emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
) {
    let first = 2 + PROCESSORS.entries.len() as u64;
    if *position < first && !PROCESSORS.list(position, emit) {
        return;
    }
    let count = u64::from(all_cpus.len());
    while *position - first < count {
        let number = (*position - first) as u32;
        let child = processor(number);
        let taken = emit(DirectoryEntry {
            inode: child.number,
            next: *position + 1,
            kind: child.node.kind(),
            name: Short::of(format_args!("cpu{number}")).as_bytes(),
        });
        if !taken {
            return;
        }
        *position += 1;
    }
}

/// Writes the set of CPUs `set` as a mask with `count` bits: hexadecimal words of 32 bits, the highest first.
///
/// # Errors
/// The errors of `text`.
pub fn write_mask(text: &mut dyn Write, set: u64, count: usize) -> fmt::Result {
    if count > 32 {
        write!(
            text,
            "{:0width$x},",
            set >> 32,
            width = (count - 32).div_ceil(4)
        )?;
        return write!(text, "{:08x}", set as u32);
    }
    write!(text, "{set:0width$x}", width = count.div_ceil(4))
}

/// Writes the set of CPUs `set` as a list of ranges.
///
/// # Errors
/// The errors of `text`.
pub fn write_list(text: &mut dyn Write, set: u64) -> fmt::Result {
    let mut left = set;
    while left != 0 {
        let first = left.trailing_zeros();
        let length = (left >> first).trailing_ones();
        let last = first + length - 1;
        if left != set {
            text.write_char(',')?;
        }
        if length == 1 {
            write!(text, "{first}")?;
        } else {
            write!(text, "{first}-{last}")?;
        }
        left &= !(u64::MAX >> (64 - length) << first);
    }
    Ok(())
}

fn mask_line(all_cpus: CpuSet, text: &mut Text, set: u64) -> fmt::Result {
    write_mask(text, set, all_cpus.len() as usize)?;
    text.write_char('\n')
}

fn list_line(text: &mut Text, set: u64) -> fmt::Result {
    write_list(text, set)?;
    text.write_char('\n')
}

fn online(text: &mut Text) -> fmt::Result {
    writeln!(text, "{ONLINE}")
}

fn own_number(processor: u32, text: &mut Text) -> fmt::Result {
    writeln!(text, "{processor}")
}

fn own_mask(all_cpus: CpuSet, processor: u32, text: &mut Text) -> fmt::Result {
    mask_line(all_cpus, text, 1 << processor)
}

fn all_mask(all_cpus: CpuSet, text: &mut Text) -> fmt::Result {
    mask_line(all_cpus, text, all_cpus.bits())
}

fn all_list(all_cpus: CpuSet, text: &mut Text) -> fmt::Result {
    list_line(text, all_cpus.bits())
}

fn package(text: &mut Text) -> fmt::Result {
    writeln!(text, "{PACKAGE}")
}

/// Writes `/sys/devices/system/cpu/online`, `possible` and `present`.
pub fn present(all_cpus: CpuSet, text: &mut Text) -> fmt::Result {
    list_line(text, all_cpus.bits())
}

/// Writes `/sys/devices/system/cpu/offline`, which is empty.
pub fn absent(text: &mut Text) -> fmt::Result {
    writeln!(text, "{OFFLINE}")
}

/// Writes `/sys/devices/system/cpu/kernel_max`, the highest number that a CPU can have.
pub fn highest(text: &mut Text) -> fmt::Result {
    writeln!(text, "{HIGHEST}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn sets_are_masks_and_lists() {
        for (set, count, mask, list) in [
            (1, 1, "1", "0"),
            (0xf, 4, "f", "0-3"),
            (0b1011_0100, 8, "b4", "2,4-5,7"),
            (1, 6, "01", "0"),
            (0x1_0000_0001, 33, "1,00000001", "0,32"),
            (u64::MAX, 64, "ffffffff,ffffffff", "0-63"),
            (1 << 63, 64, "80000000,00000000", "63"),
            (0, 4, "0", ""),
        ] {
            let (mut written_mask, mut written_list) = (String::new(), String::new());
            write_mask(&mut written_mask, set, count).unwrap();
            write_list(&mut written_list, set).unwrap();
            assert_eq!((written_mask.as_str(), written_list.as_str()), (mask, list));
        }
    }
}
