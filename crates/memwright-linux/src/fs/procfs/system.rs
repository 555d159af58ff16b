//! Files about the system.

use super::{
    counts, fixed, hugetlb,
    stub::stubs,
    text::{Text, kibibyte_row},
};
use crate::{
    context::Context,
    fs::{descriptors::DESCRIPTORS_MAX, file_system::FileSystemKind},
    process::{Capabilities, ID_END},
    random::Random,
    syscall::{file::perf_event::UPROBE, identity::GROUPS_MAX, system::NAMES},
};
use core::fmt::{self, Write};
use memwright_table::{FOLIO_FRAMES, FrameKind, PAGE_SIZE};

stubs! {
    AVAILABLE: "/proc/meminfo" "MemAvailable" Copy("MemFree"),
        "No page cache and no slab can be given up for memory.";
    BUFFERS: "/proc/meminfo" "Buffers" Number(0), "No file system is on a block device.";
    CACHED: "/proc/meminfo" "Cached" Copy("Shmem"), "Every file is on tmpfs or is made by the kernel.";
    UNEVICTABLE: "/proc/meminfo" "Unevictable" Copy("Mlocked"),
        "Only pages of locked areas are counted as unevictable.";
    DIRTY: "/proc/meminfo" "Dirty" Number(0), "No file system is on a block device.";
    WRITEBACK: "/proc/meminfo" "Writeback" Number(0),
        "No file system is on a block device, and pages that are being written to swap are not counted.";
    RECLAIMABLE: "/proc/meminfo" "KReclaimable" Number(0), "No slab has a shrinker.";
    SLAB_RECLAIMABLE: "/proc/meminfo" "SReclaimable" Number(0), "No slab has a shrinker.";
    SLAB_UNRECLAIMABLE: "/proc/meminfo" "SUnreclaim" Copy("Slab"), "No slab has a shrinker.";
    LARGEST_ID: "/proc/sys/kernel/pid_max" "" Number(ID_END as u64), "Process ids end here; on Linux the limit can be set.";
    MOST_DESCRIPTORS: "/proc/sys/fs/nr_open" "" Number(DESCRIPTORS_MAX as u64), "The limit holds; on Linux it can be set.";
    MOST_GROUPS: "/proc/sys/kernel/ngroups_max" "" Number(GROUPS_MAX), "The limit holds, and is a constant of Linux.";
    LAST_CAPABILITY: "/proc/sys/kernel/cap_last_cap" "" Number(Capabilities::LAST as u64), "The number is a constant of Linux.";
    SYSTEM_NAME: "/proc/sys/kernel/ostype" "" Text(NAMES[0]), "The word is a constant of Linux.";
    HOST_NAME: "/proc/sys/kernel/hostname" "" Text(NAMES[1]), "There is no sethostname.";
    RELEASE: "/proc/sys/kernel/osrelease" "" Text(NAMES[2]), "It is the version whose behaviour is matched.";
    BUILD: "/proc/sys/kernel/version" "" Text(NAMES[3]), "The kernel is the same wherever it is built.";
    PROBE_TYPE: "/sys/bus/event_source/devices/uprobe/type" "" Number(UPROBE as u64), "perf_event_open takes this number.";
}

/// `/proc/meminfo` (`fs/proc/meminfo.c` of Linux 7.2), with the rows that are supported.
pub fn meminfo(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    let memory = &context.kernel.memory;
    let frames = memory.frames();
    let objects = frames.used_by(FrameKind::Object);
    // KSM pages are anonymous pages too.
    let anonymous = frames.used_by(FrameKind::Anonymous) + frames.used_by(FrameKind::Merged);
    let slab = frames.used_by(FrameKind::Slab);
    let locked = counts::locked(context)?;
    let (swap, swapped) = memory.swap().totals();
    let folio = u64::from(FOLIO_FRAMES);
    let (shared, mapped) = frames.object_folios();
    let rows = [
        ("MemTotal", frames.total()),
        ("MemFree", frames.free()),
        ("MemAvailable", AVAILABLE.copied(frames.free())),
        ("Buffers", BUFFERS.number()),
        ("Cached", CACHED.copied(objects)),
        ("SwapCached", memory.swap().cached_pages()),
        ("Unevictable", UNEVICTABLE.copied(locked)),
        ("Mlocked", locked),
        ("SwapTotal", swap),
        ("SwapFree", swap - swapped),
        ("Dirty", DIRTY.number()),
        ("Writeback", WRITEBACK.number()),
        ("AnonPages", anonymous),
        ("Mapped", frames.objects_shown()),
        ("Shmem", objects),
        ("KReclaimable", RECLAIMABLE.number()),
        ("Slab", slab),
        ("SReclaimable", SLAB_RECLAIMABLE.number()),
        ("SUnreclaim", SLAB_UNRECLAIMABLE.copied(slab)),
        ("PageTables", frames.used_by(FrameKind::Table)),
        ("AnonHugePages", frames.folios() * folio),
        ("ShmemHugePages", shared * folio),
        ("ShmemPmdMapped", mapped * folio),
        ("CommitLimit", memory.commit().limit()),
        ("Committed_AS", memory.commit().committed()),
    ];
    for (name, pages) in rows {
        write_memory_row(text, name, pages)?;
    }
    hugetlb::memory_rows(memory, text)
}

/// `/proc/swaps` (`mm/swapfile.c` of Linux 7.2).
pub fn swaps(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    text.write_str("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")?;
    let kibibytes = |pages: u32| u64::from(pages) * (PAGE_SIZE as u64 / 1024);
    for device in context.kernel.memory.swap().devices().unwrap_or_default() {
        let name = context.kernel.swaps.path_of(device.number);
        let (size, used) = (kibibytes(device.slots), kibibytes(device.used));
        let gap = if used < 10_000_000 { "\t" } else { "" };
        let priority = device.priority;
        writeln!(
            text,
            "{name:<40}partition\t{size}\t{gap}{used}\t{gap}{priority}"
        )?;
    }
    Ok(())
}

fn write_memory_row(text: &mut Text, name: &str, pages: u64) -> fmt::Result {
    kibibyte_row(text, name, pages * (PAGE_SIZE as u64 / 1024))
}

/// `/proc/filesystems`. No file system needs a block device.
pub fn filesystems(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    let all = [
        FileSystemKind::Tmpfs,
        FileSystemKind::Proc,
        FileSystemKind::Sysfs,
        FileSystemKind::Cgroup,
        FileSystemKind::Devtmpfs,
        FileSystemKind::Pipe,
        FileSystemKind::Socket,
        FileSystemKind::Anonymous,
    ];
    for kind in all {
        writeln!(text, "nodev\t{}", kind.name())?;
    }
    Ok(())
}

/// `/proc/version`.
pub fn version(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    let [system, _, release, build, ..] = NAMES;
    writeln!(text, "{system} version {release} {build}")
}

/// `/proc/sys/kernel/ostype`.
pub fn system_name(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{SYSTEM_NAME}")
}

/// `/proc/sys/kernel/hostname`.
pub fn host_name(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{HOST_NAME}")
}

/// `/proc/sys/kernel/osrelease`.
pub fn release(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{RELEASE}")
}

/// `/proc/sys/kernel/version`.
pub fn build(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{BUILD}")
}

/// `/proc/sys/kernel/pid_max`.
pub fn largest_id(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{LARGEST_ID}")
}

/// `/proc/sys/fs/nr_open`.
pub fn most_descriptors(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{MOST_DESCRIPTORS}")
}

/// `/proc/sys/kernel/threads-max`: the kernel stacks that there may be. It cannot be set.
pub fn most_threads(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", context.kernel.host.most_contexts())
}

/// `/proc/sys/kernel/ngroups_max`.
pub fn most_groups(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{MOST_GROUPS}")
}

/// `/proc/sys/kernel/cap_last_cap`.
pub fn last_capability(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{LAST_CAPABILITY}")
}

/// Writes a random UUID (version 4).
fn write_uuid(text: &mut Text, random: &mut Random) -> fmt::Result {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.write_char('-')?;
        }
        write!(text, "{byte:02x}")?;
    }
    text.write_char('\n')
}

/// `/proc/sys/kernel/random/boot_id`: constant for the run.
pub fn boot_id(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    // A separate generator, so that reading the file does not change other random numbers.
    let mut random = Random::new(context.kernel.manifest.seed ^ fixed::ROOT.first);
    write_uuid(text, &mut random)
}

/// `/sys/bus/event_source/devices/uprobe/type`.
pub fn probe_type(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{PROBE_TYPE}")
}

/// `/proc/sys/kernel/random/uuid`: a new one for each read.
pub fn uuid(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    let mut bytes = [0; 8];
    context.kernel.random.lock().fill(&mut bytes);
    write_uuid(text, &mut Random::new(u64::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::procfs::text::written;

    #[test]
    fn memory_rows_line_up() {
        let row = written(|text| write_memory_row(text, "MemTotal", 131_072));
        assert_eq!(row, "MemTotal:         524288 kB\n");
        let row = written(|text| write_memory_row(text, "Committed_AS", 1));
        assert_eq!(row, "Committed_AS:          4 kB\n");
    }

    #[test]
    fn identities_have_their_form() {
        let text = written(|text| write_uuid(text, &mut Random::new(1)));
        assert_eq!(text.len(), 37);
        assert_eq!(text.as_bytes()[14], b'4');
        let dashes: alloc::vec::Vec<_> = text.match_indices('-').map(|(at, _)| at).collect();
        assert_eq!(dashes, [8, 13, 18, 23]);
    }
}
