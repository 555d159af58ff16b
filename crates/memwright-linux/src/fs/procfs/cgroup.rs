//! `/sys/fs/cgroup`: the root cgroup, a directory for each cgroup, and their files (Linux 7.2
//! Documentation/admin-guide/cgroup-v2.rst).

use super::{
    Text,
    node::{Child, FixedDirectory, ProcNode, SystemControl},
    stub::stubs,
    text::number,
};
use crate::{
    batch::Batch,
    cgroup::{self, Cgroup, UNLIMITED},
    context::Context,
    errno::Errno,
    fs::{dirents::DirectoryEntry, file_system::FileSystemKind},
    kernel::Kernel,
    process::Process,
};
use alloc::sync::Arc;
use core::{
    fmt::{self, Write},
    sync::atomic::Ordering,
};
use memwright_table::PAGE_SIZE;

stubs! {
    CONTROLLERS: "/sys/fs/cgroup/cgroup.controllers" "" Text("memory"), "Memory has the only controller.";
    TYPE: "/sys/fs/cgroup/*/cgroup.type" "" Text("domain"), "There are no threaded groups.";
    FROZEN: "/sys/fs/cgroup/*/cgroup.events" "frozen" Number(0), "There is no freezer.";
    LOW: "/sys/fs/cgroup/*/memory.events" "low" Number(0), "There is no memory.low.";
    HIGH: "/sys/fs/cgroup/*/memory.events" "high" Number(0), "There is no memory.high.";
    GROUP_KILLS: "/sys/fs/cgroup/*/memory.events" "oom_group_kill" Number(0), "There is no memory.oom.group.";
    SWAP_HIGH: "/sys/fs/cgroup/*/memory.swap.events" "high" Number(0), "There is no memory.swap.high.";
    FILE: "/sys/fs/cgroup/*/memory.stat" "file" Copy("shmem"), "Every file is on tmpfs or is made by the kernel.";
}

/// Writes the text of a cgroup's file.
type GroupReader = fn(&Context<'_>, &Cgroup, &mut Text) -> fmt::Result;
/// Handles a write to a cgroup's file.
type GroupWriter = fn(&Context<'_>, &Arc<Cgroup>, &[u8]) -> Result<(), Errno>;

/// Returns a number that changes whenever the text of a cgroup's file does.
type GroupMark = fn(&Kernel, &Cgroup) -> u64;

/// A file in each cgroup's directory.
pub struct GroupFile {
    name: &'static str,
    permissions: u32,
    /// Writes its text.
    pub(super) read: GroupReader,
    /// Handles a write to it.
    pub(super) store: Option<GroupWriter>,
    /// The change counter of its text, if pollers are notified of changes.
    pub(super) mark: Option<GroupMark>,
}

/// The files of the root directory.
static ROOT: FixedDirectory = FixedDirectory {
    first: 0x10,
    entries: &[
        (
            "cgroup.controllers",
            0o444,
            ProcNode::SystemText(controllers),
        ),
        (
            "cgroup.procs",
            0o644,
            ProcNode::SystemControl(&ROOT_PROCESSES),
        ),
        (
            "cgroup.subtree_control",
            0o644,
            ProcNode::SystemControl(&SUBTREE),
        ),
    ],
};

const fn shown(name: &'static str, read: GroupReader) -> GroupFile {
    GroupFile {
        name,
        permissions: 0o444,
        read,
        store: None,
        mark: None,
    }
}

const fn told(name: &'static str, read: GroupReader, mark: GroupMark) -> GroupFile {
    GroupFile {
        mark: Some(mark),
        ..shown(name, read)
    }
}

/// The files of every cgroup, followed by those that exist only while the memory controller is enabled.
static FILES: [GroupFile; 12] = [
    shown("cgroup.controllers", group_controllers),
    told("cgroup.events", state, populated),
    GroupFile {
        name: "cgroup.procs",
        permissions: 0o644,
        read: processes,
        store: Some(|context, group, bytes| enter(context, bytes, Some(group.clone()))),
        mark: None,
    },
    shown("cgroup.type", |_, _, text| writeln!(text, "{TYPE}")),
    shown("memory.current", |context, group, text| {
        writeln!(text, "{}", bytes_of(group.measure(context.kernel)))
    }),
    told("memory.events", events, happened),
    GroupFile {
        name: "memory.max",
        permissions: 0o644,
        read: |_, group, text| write_limit(text, group.most()),
        store: Some(set_most),
        mark: None,
    },
    shown("memory.peak", |context, group, text| {
        group.measure(context.kernel);
        writeln!(text, "{}", bytes_of(group.peak()))
    }),
    shown("memory.stat", statistics),
    shown("memory.swap.current", |context, group, text| {
        let slots = context.kernel.memory.swap().paid_by(group.payer);
        writeln!(text, "{}", bytes_of(slots))
    }),
    told("memory.swap.events", swap_events, swap_failed),
    GroupFile {
        name: "memory.swap.max",
        permissions: 0o644,
        read: |_, group, text| write_limit(text, group.most_slots()),
        store: Some(|context, group, bytes| {
            group.set_most_slots(context.kernel, limit(bytes)?);
            Ok(())
        }),
        mark: None,
    },
];

/// The number of files that exist without the memory controller.
const PLAIN_FILES: usize = 4;
/// Inode numbers reserved for each cgroup.
const NUMBERS: u64 = 64;

fn files(context: &Context<'_>) -> &'static [GroupFile] {
    let count = if context.kernel.cgroups.limit_memory() {
        FILES.len()
    } else {
        PLAIN_FILES
    };
    &FILES[..count]
}

fn directory(id: u32) -> Child {
    Child {
        node: ProcNode::Cgroup(id),
        number: u64::from(id) * NUMBERS,
        permissions: 0o755,
    }
}

fn file(id: u32, index: usize) -> Child {
    let file = &FILES[index];
    Child {
        node: ProcNode::CgroupText(id, file),
        number: u64::from(id) * NUMBERS + 1 + index as u64,
        permissions: file.permissions,
    }
}

/// Looks up a name in the root directory.
pub(super) fn root_child(context: &Context<'_>, name: &[u8]) -> Option<Child> {
    let group = || context.kernel.cgroups.named(name);
    ROOT.child(name)
        .or_else(|| group().map(|group| directory(group.id)))
}

/// Looks up a name in a cgroup's directory.
pub(super) fn child(context: &Context<'_>, id: u32, name: &[u8]) -> Option<Child> {
    context.kernel.cgroups.get(id)?;
    let mut files = files(context).iter();
    let index = files.position(|file| file.name.as_bytes() == name)?;
    Some(file(id, index))
}

/// The directory position of the first cgroup in the root.
const GROUPS: u64 = 256;

/// Passes the entries of the root from `position` on to `emit`.
pub(super) fn list_root(
    context: &Context<'_>,
    position: &mut u64,
    emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
) {
    if *position < GROUPS {
        if !ROOT.list(position, emit) {
            return;
        }
        *position = GROUPS;
    }
    while let Some(group) = context.kernel.cgroups.after((*position - GROUPS) as u32) {
        let child = directory(group.id);
        let next = GROUPS + u64::from(group.id);
        let taken = emit(DirectoryEntry {
            inode: child.number,
            next,
            kind: child.node.kind(),
            name: &group.name,
        });
        if !taken {
            return;
        }
        *position = next;
    }
}

/// Passes the entries of a cgroup from `position` on to `emit`.
///
/// # Errors
/// `ENODEV` if it was removed.
pub(super) fn list(
    context: &Context<'_>,
    id: u32,
    position: &mut u64,
    emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
) -> Result<(), Errno> {
    find(context, id)?;
    let files = files(context);
    super::list::list_entries(position, emit, |index| {
        let name = files.get(index)?.name;
        let child = file(id, index);
        Some((child.number, child.node.kind(), name))
    });
    Ok(())
}

/// Returns the cgroup with this id.
///
/// # Errors
/// `ENODEV` if it was removed.
pub(super) fn find(context: &Context<'_>, id: u32) -> Result<Arc<Cgroup>, Errno> {
    context.kernel.cgroups.get(id).ok_or(Errno::ENODEV)
}

impl ProcNode {
    /// Returns whether it is a cgroup or the root of all cgroups.
    #[must_use]
    pub const fn is_cgroup(&self) -> bool {
        matches!(self, Self::Cgroups | Self::Cgroup(_))
    }

    /// Creates the directory `name` in this one.
    ///
    /// # Errors
    /// `EPERM` where directories cannot be created, `EAGAIN` in a cgroup, which cannot have children; those of
    /// `Cgroups::make`.
    pub fn make_directory(&self, context: &Context<'_>, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Cgroups => context.kernel.cgroups.make(context.kernel, name),
            Self::Cgroup(_) => Err(Errno::EAGAIN),
            _ => Err(Errno::EPERM),
        }
    }

    /// Removes this directory.
    ///
    /// # Errors
    /// `EPERM` if it cannot be removed; those of `Cgroups::remove`.
    pub fn remove_directory(&self, context: &Context<'_>) -> Result<(), Errno> {
        match self {
            Self::Cgroup(id) => context.kernel.cgroups.remove(context.kernel, *id),
            _ => Err(Errno::EPERM),
        }
    }

    /// Returns the type of the file system that is mounted on this directory of `/sys`.
    pub(super) fn covered_by(&self) -> Option<FileSystemKind> {
        matches!(self, Self::Cgroups).then_some(FileSystemKind::Cgroup)
    }
}

const fn bytes_of(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_SIZE as u64)
}

fn write_limit(text: &mut Text, pages: u64) -> fmt::Result {
    match pages {
        UNLIMITED => text.write_str("max\n"),
        pages => writeln!(text, "{}", bytes_of(pages)),
    }
}

/// Parses a limit: `max`, or bytes with an optional unit, rounded down to pages (`page_counter_memparse`).
fn limit(bytes: &[u8]) -> Result<u64, Errno> {
    let text = core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
    let text = text.trim();
    if text == "max" {
        return Ok(UNLIMITED);
    }
    let (digits, shift) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 10),
        Some((end, 'm' | 'M')) => (&text[..end], 20),
        Some((end, 'g' | 'G')) => (&text[..end], 30),
        Some((end, 't' | 'T')) => (&text[..end], 40),
        _ => (text, 0),
    };
    let count: u64 = digits.parse().map_err(|_| Errno::EINVAL)?;
    let most = UNLIMITED / PAGE_SIZE as u64;
    let pages = u128::from(count) << shift >> PAGE_SIZE.trailing_zeros();
    Ok(u64::try_from(pages).unwrap_or(most).min(most))
}

fn set_most(context: &Context<'_>, group: &Arc<Cgroup>, bytes: &[u8]) -> Result<(), Errno> {
    group.set_most(limit(bytes)?);
    cgroup::hold(context.kernel, context.thread, group);
    Ok(())
}

fn controllers(_context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{CONTROLLERS}")
}

fn group_controllers(context: &Context<'_>, _group: &Cgroup, text: &mut Text) -> fmt::Result {
    let limited = context.kernel.cgroups.limit_memory();
    text.write_str(if limited { "memory\n" } else { "\n" })
}

static SUBTREE: SystemControl = SystemControl {
    read: |context, text| {
        let limited = context.kernel.cgroups.limit_memory();
        text.write_str(if limited { "memory\n" } else { "\n" })
    },
    store: |context, bytes| {
        let on = switched(bytes)?;
        if let Some(on) = on {
            context.kernel.cgroups.set_limit_memory(context.kernel, on);
        }
        Ok(())
    },
};

/// Parses a write to `cgroup.subtree_control`: whether it enables or disables the memory controller, the only one;
/// `None` if it does neither.
fn switched(bytes: &[u8]) -> Result<Option<bool>, Errno> {
    let text = core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
    let mut on = None;
    for word in text.split_ascii_whitespace() {
        on = match word {
            "+memory" => Some(true),
            "-memory" => Some(false),
            _ => return Err(Errno::EINVAL),
        };
    }
    Ok(on)
}

static ROOT_PROCESSES: SystemControl = SystemControl {
    read: |context, text| write_ids(context, text, |process| process.cgroup().is_none()),
    store: |context, bytes| enter(context, bytes, None),
};

fn processes(context: &Context<'_>, group: &Cgroup, text: &mut Text) -> fmt::Result {
    write_ids(context, text, |process| group.has(process))
}

/// Process ids that are collected in one batch.
const TOGETHER: usize = 256;

/// Writes the ids of living processes that satisfy `wanted`. The cursor is the id after the last one written.
fn write_ids(
    context: &Context<'_>,
    text: &mut Text,
    wanted: impl Fn(&Process) -> bool,
) -> fmt::Result {
    let note = |from, batch: &mut Batch<u32>| {
        cgroup::note_living(context.kernel, from, batch, &wanted);
    };
    text.records(TOGETHER, note, |text, &id| {
        writeln!(text, "{id}")?;
        Ok(u64::from(id) + 1)
    })
}

/// Moves the process with the written id into `group`; id 0 is the writer itself.
fn enter(context: &Context<'_>, bytes: &[u8], group: Option<Arc<Cgroup>>) -> Result<(), Errno> {
    let id = number(bytes).ok_or(Errno::EINVAL)?;
    let process: Arc<Process> = if id == 0 {
        context.process().clone()
    } else {
        let id = u32::try_from(id).map_err(|_| Errno::ESRCH)?;
        context.kernel.tasks.process(id).ok_or(Errno::ESRCH)?
    };
    cgroup::enter(context.kernel, &process, group)
}

/// Returns 1 if the group has processes, and 0 otherwise.
fn populated(kernel: &Kernel, group: &Cgroup) -> u64 {
    u64::from(group.members(kernel).next().is_some())
}

/// Returns the sum of the counters in `memory.events`.
fn happened(_kernel: &Kernel, group: &Cgroup) -> u64 {
    let events = &group.events;
    let counts = [&events.max, &events.out_of_memory, &events.killed];
    let counts = counts.map(|count| count.load(Ordering::Relaxed));
    counts.iter().sum()
}

/// Returns the sum of the counters in `memory.swap.events`.
fn swap_failed(kernel: &Kernel, group: &Cgroup) -> u64 {
    let swap = kernel.memory.swap();
    2 * swap.refused_to(group.payer) + swap.full_for(group.payer)
}

fn state(context: &Context<'_>, group: &Cgroup, text: &mut Text) -> fmt::Result {
    let populated = populated(context.kernel, group);
    write!(text, "populated {populated}\nfrozen {FROZEN}\n")
}

fn events(_context: &Context<'_>, group: &Cgroup, text: &mut Text) -> fmt::Result {
    let events = &group.events;
    let rows = [
        ("low", LOW.number()),
        ("high", HIGH.number()),
        ("max", events.max.load(Ordering::Relaxed)),
        ("oom", events.out_of_memory.load(Ordering::Relaxed)),
        ("oom_kill", events.killed.load(Ordering::Relaxed)),
        ("oom_group_kill", GROUP_KILLS.number()),
    ];
    for (name, count) in rows {
        writeln!(text, "{name} {count}")?;
    }
    Ok(())
}

fn swap_events(context: &Context<'_>, group: &Cgroup, text: &mut Text) -> fmt::Result {
    let swap = context.kernel.memory.swap();
    let refused = swap.refused_to(group.payer);
    let failed = refused + swap.full_for(group.payer);
    write!(text, "high {SWAP_HIGH}\nmax {refused}\nfail {failed}\n")
}

fn statistics(context: &Context<'_>, group: &Cgroup, text: &mut Text) -> fmt::Result {
    let charge = group.charge(context.kernel);
    let [minor, major] = group.total_faults(context.kernel);
    let rows = [
        ("anon", bytes_of(charge.private)),
        ("file", FILE.copied(bytes_of(charge.shared))),
        ("shmem", bytes_of(charge.shared)),
        ("anon_thp", bytes_of(charge.huge)),
        ("pgfault", minor + major),
        ("pgmajfault", major),
    ];
    for (name, value) in rows {
        writeln!(text, "{name} {value}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_bytes_with_a_unit_or_none() {
        for (text, pages) in [
            (&b"max\n"[..], Ok(UNLIMITED)),
            (b"0", Ok(0)),
            (b"4096\n", Ok(1)),
            (b"8191", Ok(1)),
            (b"16M", Ok(4096)),
            (b"1g\n", Ok(1 << 18)),
            (b"18446744073709551615", Ok(UNLIMITED >> 12)),
            (b"18446744073709551615T", Ok(UNLIMITED >> 12)),
            (b"", Err(Errno::EINVAL)),
            (b"-1", Err(Errno::EINVAL)),
            (b"M", Err(Errno::EINVAL)),
            (b"1 M", Err(Errno::EINVAL)),
        ] {
            assert_eq!(limit(text), pages, "{text:?}");
        }
    }

    #[test]
    fn the_last_word_on_the_controller_holds() {
        for (text, on) in [
            (&b"+memory\n"[..], Ok(Some(true))),
            (b"-memory", Ok(Some(false))),
            (b"+memory -memory", Ok(Some(false))),
            (b"\n", Ok(None)),
            (b"+cpu", Err(Errno::EINVAL)),
            (b"memory", Err(Errno::EINVAL)),
        ] {
            assert_eq!(switched(text), on, "{text:?}");
        }
    }
}
