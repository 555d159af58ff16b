//! Files about a process or one of its threads.

mod clear;
mod limits;
mod maps;
mod merge;
mod mounts;
mod numa;
mod pages;
mod query;
mod smaps;
mod stat;
mod status;
mod strings;

use super::{
    list::list_entries,
    node::{Child, PlaceLink, ProcNode},
    text::Text,
};
use crate::{
    Space,
    errno::Errno,
    fs::{OpenFile, dentry::Dentry, dirents::DirectoryEntry},
    process::{Life, Process, REAPER, Thread},
    view::View,
};
use alloc::sync::Arc;
use core::fmt::{self, Write};

pub(super) use mounts::STUBS as MOUNTS_STUBS;
pub(super) use smaps::STUBS as SMAPS_STUBS;
pub(super) use stat::STUBS as STAT_STUBS;
pub(super) use status::STUBS as STATUS_STUBS;

/// The process or thread that a file is about.
pub struct Subject {
    /// The process.
    pub process: Arc<Process>,
    /// The requested thread, or the thread group leader if none was requested. `None` once that thread has exited.
    pub thread: Option<Arc<Thread>>,
    /// Id of the requested thread, or of the process if none was requested.
    pub id: u32,
}

impl Subject {
    /// Looks up the process `id`, and its thread `thread` if one is given.
    ///
    /// # Errors
    /// `ESRCH` if the process or the given thread does not exist any more.
    pub fn find(view: &View<'_>, id: u32, thread: Option<u32>) -> Result<Self, Errno> {
        let tasks = &view.kernel.tasks;
        let process = tasks.process(id).ok_or(Errno::ESRCH)?;
        let number = thread.unwrap_or(id);
        let found = tasks.thread(number);
        if thread.is_some() && found.is_none() {
            return Err(Errno::ESRCH);
        }
        Ok(Self {
            process,
            thread: found,
            id: number,
        })
    }

    /// Returns the name of the thread, or the name of the process once the thread has exited.
    #[must_use]
    pub fn name(&self) -> [u8; 16] {
        let thread = self.thread.as_ref();
        thread.map_or_else(|| self.process.name(), |thread| thread.name())
    }

    /// Returns the address space of the process. Returns `None` if the process has exited, or if an earlier piece of
    /// `text` described another address space.
    #[must_use]
    pub fn space_of(&self, text: &mut Text) -> Option<Arc<Space>> {
        self.process.space().filter(|space| text.stays_with(space))
    }

    /// Returns the letter and the word that `/proc` prints for the state.
    #[must_use]
    pub fn state(&self, view: &View<'_>) -> (char, &'static str) {
        let life = view.kernel.tasks.life(self.process.id);
        let letter = match (life, &self.thread) {
            (Some(Life::Zombie(_)), _) => 'Z',
            (_, Some(thread)) => thread.state_letter(),
            // The built-in reaper has no thread. It is reported as sleeping until a child exits.
            (_, None) if self.process.id == REAPER => 'S',
            // The thread group leader has exited, but other threads have not.
            (_, None) => 'Z',
        };
        let word = match letter {
            'R' => "running",
            'D' => "disk sleep",
            'T' => "stopped",
            't' => "tracing stop",
            'Z' => "zombie",
            'X' => "dead",
            _ => "sleeping",
        };
        (letter, word)
    }
}

/// A file about a process.
pub struct ProcessWriter {
    /// Writes the text.
    pub read: Option<ReadText>,
    /// Handles a write to the file, if it is writable.
    pub store: Option<StoreText>,
    /// Handles an `ioctl` of the file, if it has commands.
    pub control: Option<ControlText>,
    /// The resource that the process must have for the file to be opened.
    pub needs: Needs,
}

/// A resource that a process must have for a file about it to be opened. A zombie has none of these resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// An address space (Linux 7.3 `fs/proc/base.c`, `proc_mem_open`).
    Memory,
    /// A mount namespace (`fs/proc_namespace.c`, `mounts_open_common`).
    Mounts,
}

impl Needs {
    /// Checks that the process `id` has the resource.
    ///
    /// # Errors
    /// `ESRCH` if an address space is needed and missing, `EINVAL` if a mount namespace is.
    pub fn check(self, view: &View<'_>, id: u32) -> Result<(), Errno> {
        match self {
            Self::Nothing => Ok(()),
            Self::Memory => space(view, id).map(drop),
            Self::Mounts => {
                let process = view.kernel.tasks.process(id);
                let has = process.is_some_and(|process| process.fs().is_some());
                has.then_some(()).ok_or(Errno::EINVAL)
            }
        }
    }
}

/// Returns the address space of the process `id`.
///
/// # Errors
/// `ESRCH` if the process has no address space any more.
pub fn space(view: &View<'_>, id: u32) -> Result<Arc<Space>, Errno> {
    let process = view.kernel.tasks.process(id);
    process
        .and_then(|process| process.space())
        .ok_or(Errno::ESRCH)
}

/// Writes the text of a file about a process.
pub type ReadText = fn(&View<'_>, &Subject, &mut Text) -> fmt::Result;

/// Handles an `ioctl` on a file about a process.
pub type ControlText = fn(&View<'_>, &Subject, u32, u64) -> Result<u64, Errno>;

/// Handles a write to a file about a process.
pub type StoreText = fn(&View<'_>, &Subject, &[u8]) -> Result<(), Errno>;

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

static CGROUP: ProcessWriter = text(strings::cgroup);
static AUXILIARY: ProcessWriter = text_with(Needs::Memory, strings::auxiliary);
static COMMAND_LINE: ProcessWriter = text(strings::command_line);
static ENVIRONMENT: ProcessWriter = text_with(Needs::Memory, strings::environment);
static LIMITS: ProcessWriter = text(limits::limits);
static CLEAR: ProcessWriter = ProcessWriter {
    read: None,
    store: Some(clear::clear),
    control: None,
    needs: Needs::Nothing,
};
static MAPS: ProcessWriter = ProcessWriter {
    control: Some(query::control),
    ..text(maps::maps)
};
static MERGED: ProcessWriter = text(merge::merging);
static MERGE_STATISTICS: ProcessWriter = text(merge::statistics);
static NUMA: ProcessWriter = text(numa::numa_maps);
static ROLLUP: ProcessWriter = text_with(Needs::Memory, smaps::rollup);
static SMAPS: ProcessWriter = text(smaps::smaps);
static MOUNTS: ProcessWriter = text_with(Needs::Mounts, mounts::mounts);
static MOUNT_INFO: ProcessWriter = text_with(Needs::Mounts, mounts::mount_info);
static STAT: ProcessWriter = text(stat::stat);
static STATM: ProcessWriter = text(stat::statm);
static STATUS: ProcessWriter = text(status::status);
static NAME: ProcessWriter = ProcessWriter {
    store: Some(strings::set_name),
    ..text(strings::name)
};
static KILL_SCORE: ProcessWriter = ProcessWriter {
    store: Some(limits::set_kill_score),
    ..text(limits::kill_score)
};

/// The type of an entry in a process's directory.
enum Entry {
    Text(&'static ProcessWriter),
    Place(PlaceLink),
    Descriptors,
    DescriptorInfos,
    Tasks,
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

    /// Passes the entries from `position` on to `emit`. Their positions start at 2, after `.` and `..`.
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

/// Returns the directory entry to which a link of the process `id` leads.
///
/// # Errors
/// `ENOENT` if the process has exited or has no executable yet.
pub fn place(view: &View<'_>, id: u32, place: PlaceLink) -> Result<Arc<Dentry>, Errno> {
    let process = view.kernel.tasks.process(id).ok_or(Errno::ENOENT)?;
    let found = match place {
        PlaceLink::Executable => process
            .image()
            .map(|image| image.executable.entry().clone()),
        PlaceLink::Directory => process.fs().map(|fs| fs.directory()),
        PlaceLink::Root => process.fs().map(|fs| fs.root()),
    };
    found.ok_or(Errno::ENOENT)
}

/// Returns the open file of the descriptor `number` of the process `id`.
///
/// # Errors
/// `ENOENT`.
pub fn open_file(view: &View<'_>, id: u32, number: i32) -> Result<Arc<OpenFile>, Errno> {
    let process = view.kernel.tasks.process(id).ok_or(Errno::ENOENT)?;
    let files = process.files().ok_or(Errno::ENOENT)?;
    files.get(number).map_err(|_| Errno::ENOENT)
}

/// Returns the number of open descriptors of the process `id`, which is 0 once it has exited.
#[must_use]
pub fn open_count(view: &View<'_>, id: u32) -> u64 {
    let process = view.kernel.tasks.process(id);
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

/// Writes the text of `/proc/PID/fdinfo/N` for an open file.
///
/// # Errors
/// Those of `text`.
pub fn write_descriptor_info(view: &View<'_>, open: &OpenFile, text: &mut Text) -> fmt::Result {
    let inode = open.inode();
    writeln!(text, "pos:\t{}", open.position())?;
    writeln!(text, "flags:\t0{:o}", open.flags())?;
    writeln!(text, "mnt_id:\t{}", inode.file_system.mount)?;
    writeln!(text, "ino:\t{}", inode.number)?;
    open.file.describe(view.caller, text)
}
