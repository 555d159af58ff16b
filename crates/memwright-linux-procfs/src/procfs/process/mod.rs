//! Files about a process or one of its threads.

mod clear;
mod limits;
pub(super) mod maps;
pub(super) mod mem;
mod merge;
mod mounts;
mod numa;
pub(super) mod pagemap;
mod pages;
mod query;
mod scan;
mod smaps;
mod stat;
mod status;
mod strings;

use crate::procfs::{
    node::view::shows_of,
    node::{Child, Needs, PlaceLink, ProcNode, ProcessWriter, ReadText, list_entries, text::Text},
    system::net,
};
use alloc::sync::Arc;
use core::fmt::{self, Write};
use memwright_linux_abi::errno::Errno;
use memwright_linux_tasks::process::Tasks;
use memwright_linux_vfs::fs::{OpenFile, caller::Caller, dentry::Dentry, dirents::DirectoryEntry};

pub(super) use mounts::STUBS as MOUNTS_STUBS;
pub(super) use smaps::STUBS as SMAPS_STUBS;
pub(super) use stat::STUBS as STAT_STUBS;
pub(super) use status::STUBS as STATUS_STUBS;

const fn text(read: ReadText) -> ProcessWriter {
    ProcessWriter {
        read: Some(read),
        store: None,
        control: None,
        needs: Needs::Nothing,
    }
}

/// Returns a read-only text file that can be opened only if the process has the resource `needs`.
const fn text_with(needs: Needs, read: ReadText) -> ProcessWriter {
    ProcessWriter {
        needs,
        ..text(read)
    }
}

static CGROUP: ProcessWriter = text(shows_of!(strings::cgroup));
static AUXILIARY: ProcessWriter = text_with(Needs::Memory, shows_of!(strings::auxiliary));
static COMMAND_LINE: ProcessWriter = text(shows_of!(strings::command_line));
static ENVIRONMENT: ProcessWriter = text_with(Needs::Memory, shows_of!(strings::environment));
static LIMITS: ProcessWriter = text(shows_of!(limits::limits));
static CLEAR: ProcessWriter = ProcessWriter {
    read: None,
    store: Some(|_, subject, bytes| clear::clear(subject, bytes)),
    control: None,
    needs: Needs::Nothing,
};
static MAPS: ProcessWriter = ProcessWriter {
    control: Some(|view, subject, command, argument| {
        query::control(view.caller.memory(), subject, command, argument)
    }),
    ..text(shows_of!(maps::maps))
};
static MERGED: ProcessWriter = text(shows_of!(merge::merging));
static MERGE_STATISTICS: ProcessWriter = text(shows_of!(merge::statistics));
static NUMA: ProcessWriter = text(shows_of!(numa::numa_maps));
static ROLLUP: ProcessWriter = text_with(Needs::Memory, shows_of!(smaps::rollup));
static SMAPS: ProcessWriter = text(shows_of!(smaps::smaps, registers));
static MOUNTS: ProcessWriter = text_with(Needs::Mounts, |view, _, text| {
    mounts::mounts(view.parts.vfs(), view.parts.memory(), text)
});
static MOUNT_INFO: ProcessWriter = text_with(Needs::Mounts, |view, _, text| {
    mounts::mount_info(view.parts.vfs(), view.parts.memory(), text)
});
static STAT: ProcessWriter = text(shows_of!(stat::stat, tasks));
static STATM: ProcessWriter = text(shows_of!(stat::statm));
static STATUS: ProcessWriter = text(|view, subject, text| {
    let parts = view.parts;
    status::status(parts.tasks(), subject, text)?;
    status::placement(parts.memory(), parts.scheduler(), subject, text)
});
static NAME: ProcessWriter = ProcessWriter {
    store: Some(|view, subject, bytes| {
        strings::set_name(view.caller.ids().process, subject, bytes)
    }),
    ..text(shows_of!(strings::name))
};
static KILL_SCORE: ProcessWriter = ProcessWriter {
    store: Some(|_, subject, bytes| limits::set_kill_score(subject, bytes)),
    ..text(shows_of!(limits::kill_score))
};

/// The type of an entry in a process's directory.
enum Entry {
    Text(&'static ProcessWriter),
    Place(PlaceLink),
    Descriptors,
    DescriptorInfos,
    Tasks,
    Net,
    Memory,
    Pagemap,
}

/// The directory of a process or thread.
pub struct ProcessDirectory {
    entries: &'static [(&'static str, u32, Entry)],
}

/// The directory of a process.
pub static PROCESS: ProcessDirectory = ProcessDirectory {
    entries: &[
        ("task", 0o555, Entry::Tasks),
        ("fd", 0o500, Entry::Descriptors),
        ("fdinfo", 0o555, Entry::DescriptorInfos),
        ("environ", 0o400, Entry::Text(&ENVIRONMENT)),
        ("auxv", 0o400, Entry::Text(&AUXILIARY)),
        ("cgroup", 0o444, Entry::Text(&CGROUP)),
        ("status", 0o444, Entry::Text(&STATUS)),
        ("limits", 0o444, Entry::Text(&LIMITS)),
        ("comm", 0o644, Entry::Text(&NAME)),
        ("cmdline", 0o444, Entry::Text(&COMMAND_LINE)),
        ("stat", 0o444, Entry::Text(&STAT)),
        ("statm", 0o444, Entry::Text(&STATM)),
        ("maps", 0o444, Entry::Text(&MAPS)),
        ("mem", 0o600, Entry::Memory),
        ("clear_refs", 0o200, Entry::Text(&CLEAR)),
        ("numa_maps", 0o444, Entry::Text(&NUMA)),
        ("pagemap", 0o400, Entry::Pagemap),
        ("smaps", 0o444, Entry::Text(&SMAPS)),
        ("smaps_rollup", 0o444, Entry::Text(&ROLLUP)),
        ("cwd", 0o777, Entry::Place(PlaceLink::Directory)),
        ("root", 0o777, Entry::Place(PlaceLink::Root)),
        ("exe", 0o777, Entry::Place(PlaceLink::Executable)),
        ("mounts", 0o444, Entry::Text(&MOUNTS)),
        ("mountinfo", 0o444, Entry::Text(&MOUNT_INFO)),
        ("oom_score_adj", 0o644, Entry::Text(&KILL_SCORE)),
        ("ksm_merging_pages", 0o400, Entry::Text(&MERGED)),
        ("ksm_stat", 0o400, Entry::Text(&MERGE_STATISTICS)),
        ("net", 0o555, Entry::Net),
    ],
};

/// The directory of a thread. It has the entries of a process's directory except `task`.
pub static TASK: ProcessDirectory = ProcessDirectory {
    entries: match PROCESS_ENTRIES.split_first() {
        Some((_, rest)) => rest,
        None => &[],
    },
};

const PROCESS_ENTRIES: &[(&str, u32, Entry)] = PROCESS.entries;

impl ProcessDirectory {
    fn child_at(&self, id: u32, thread: Option<u32>, index: usize) -> Option<Child> {
        let (_, permissions, entry) = self.entries.get(index)?;
        let node = match entry {
            Entry::Text(writer) => ProcNode::ProcessText(id, thread, writer),
            Entry::Place(place) => ProcNode::Place(id, *place),
            Entry::Descriptors => ProcNode::Descriptors(id),
            Entry::DescriptorInfos => ProcNode::DescriptorInfos(id),
            Entry::Tasks => ProcNode::Tasks(id),
            Entry::Net => ProcNode::Fixed(&net::NET),
            Entry::Memory => ProcNode::Memory(id),
            Entry::Pagemap => ProcNode::Pagemap(id),
        };
        Some(Child::file(id, thread, index, *permissions, node))
    }

    /// Looks up the entry `name` of the directory of the process `id`, or of its thread `thread`.
    #[must_use]
    pub fn child_of(&self, id: u32, thread: Option<u32>, name: &[u8]) -> Option<Child> {
        let index = self
            .entries
            .iter()
            .position(|entry| entry.0.as_bytes() == name)?;
        self.child_at(id, thread, index)
    }

    /// Calls `emit` with each entry, beginning at `position`, until an entry does not fit. The first entry has position
    /// 2, after `.` and `..`.
    pub fn list(
        &self,
        id: u32,
        thread: Option<u32>,
        position: &mut u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) {
        list_entries(position, emit, |index| {
            let child = self.child_at(id, thread, index)?;
            Some((child.number, child.node.kind(), self.entries[index].0))
        });
    }
}

/// Returns the directory entry to which the link `place` of the process `id` leads.
///
/// # Errors
/// `ENOENT` if the process has exited or has no executable yet.
pub fn place(tasks: &Tasks, id: u32, place: PlaceLink) -> Result<Arc<Dentry>, Errno> {
    let process = tasks.process(id).ok_or(Errno::ENOENT)?;
    let found = match place {
        PlaceLink::Executable => process
            .image()
            .map(|image| image.executable.entry().clone()),
        PlaceLink::Directory => process.fs().map(|fs| fs.directory()),
        PlaceLink::Root => process.fs().map(|fs| fs.root()),
    };
    found.ok_or(Errno::ENOENT)
}

/// Returns the number of open descriptors of the process `id`; 0 once it has exited.
#[must_use]
pub fn open_count(tasks: &Tasks, id: u32) -> u64 {
    let process = tasks.process(id);
    let Some(files) = process.and_then(|process| process.files()) else {
        return 0;
    };
    let (mut from, mut count) = (0, 0);
    while let Some((number, _)) = files.next_open(from) {
        from = number as usize + 1;
        count += 1;
    }
    count
}

/// Writes the text of `/proc/PID/fdinfo/N` for the open file `open`.
///
/// # Errors
/// The errors of `text`.
pub fn write_descriptor_info(caller: &dyn Caller, open: &OpenFile, text: &mut Text) -> fmt::Result {
    let inode = open.inode();
    writeln!(text, "pos:\t{}", open.position())?;
    writeln!(text, "flags:\t0{:o}", open.flags())?;
    writeln!(text, "mnt_id:\t{}", inode.file_system.mount)?;
    writeln!(text, "ino:\t{}", inode.number)?;
    open.file.describe(caller, text)
}
