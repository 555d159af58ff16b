//! The node types of `/proc` and `/sys`, their inode numbers, and the functions that read and write their files.

mod group;
mod line;
mod names;
mod processor;
pub mod stub;
mod subject;
pub(super) mod text;
pub(in crate::procfs) mod view;

pub use group::{GroupFile, GroupMark, GroupReader, GroupWriter, Presence};
pub use line::Line;
pub use names::{decimal, list_entries};
pub use processor::{PROCESSOR_NUMBERS, ProcessorDirectory, ProcessorEntry, ProcessorWriter};
pub use subject::{Needs, ProcessWriter, ReadText, Subject, open_file, space};
pub use text::Text;

use crate::procfs::node::view::{Parts, View};
use core::fmt;
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::{
    changes::Changes,
    fs::{kind::Kind, open_file::OpenFile},
};

/// Writes the text of a system file.
pub type SystemWriter = fn(&View<'_>, &mut Text) -> fmt::Result;

/// Returns the change counter of a file's text.
pub type ChangesOf = for<'a> fn(&'a dyn Parts) -> &'a Changes;

/// The contents of the words of `/proc/kpagecount` or `/proc/kpageflags`, which have one word for each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameWord {
    /// The number of page-table entries that map the frame.
    Count,
    /// The flags of the frame.
    Flags,
}

/// A writable system file.
pub struct SystemControl {
    /// Writes the text of the file.
    pub read: SystemWriter,
    /// Handles a write to the file.
    pub store: fn(&View<'_>, &[u8]) -> Result<(), Errno>,
}

/// The links in `/proc/PID` that lead directly to an inode, except the links of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceLink {
    /// `exe`: the executable.
    Executable,
    /// `cwd`: the working directory.
    Directory,
    /// `root`: the root directory.
    Root,
}

/// A node of `/proc` or `/sys`. The numbers in the variants identify processes, threads, descriptors, CPUs, NUMA nodes
/// and cgroups.
#[derive(Clone, Copy)]
pub enum ProcNode {
    /// The root of `/proc`: fixed entries and processes.
    Root,
    /// A directory with fixed entries.
    Fixed(&'static FixedDirectory),
    /// `/sys/devices/system/cpu`.
    Processors,
    /// `/sys/devices/system/node`.
    Nodes,
    /// A directory of the CPU or NUMA node with the contained number.
    Processor(u32, &'static ProcessorDirectory),
    /// A file about the CPU or NUMA node with the contained number.
    ProcessorText(u32, ProcessorWriter),
    /// `/proc/PID`.
    Process(u32),
    /// `/proc/PID/task`.
    Tasks(u32),
    /// `/proc/PID/task/TID`.
    Task(u32, u32),
    /// `/proc/PID/fd`.
    Descriptors(u32),
    /// `/proc/PID/fdinfo`.
    DescriptorInfos(u32),
    /// `/proc/self`.
    SelfLink,
    /// `/proc/thread-self`.
    ThreadSelfLink,
    /// A symbolic link to a path.
    PathLink(&'static str),
    /// `/proc/PID/{exe,cwd,root}`.
    Place(u32, PlaceLink),
    /// `/proc/PID/fd/N`.
    Descriptor(u32, i32),
    /// `/proc/PID/fdinfo/N`.
    DescriptorInfo(u32, i32),
    /// A read-only file about the system.
    SystemText(SystemWriter),
    /// A file about the system whose pollers are notified of changes.
    SystemEvents(SystemWriter, ChangesOf),
    /// A writable file about the system.
    SystemControl(&'static SystemControl),
    /// A file about a process or one of its threads.
    ProcessText(u32, Option<u32>, &'static ProcessWriter),
    /// `/proc/PID/mem`.
    Memory(u32),
    /// `/proc/PID/pagemap`.
    Pagemap(u32),
    /// `/proc/kpagecount` and `/proc/kpageflags`.
    Frames(FrameWord),
    /// `/sys/fs/cgroup`.
    Cgroups,
    /// The directory of a cgroup.
    Cgroup(u32),
    /// A file of a cgroup.
    CgroupText(u32, &'static GroupFile),
}

/// A directory with fixed entries.
pub struct FixedDirectory {
    /// The inode number of the first entry.
    pub first: u64,
    /// The name, permissions and node of each entry.
    pub entries: &'static [(&'static str, u32, ProcNode)],
}

/// The result of a lookup.
pub struct Child {
    /// The node of the found entry.
    pub node: ProcNode,
    /// The inode number of the found entry.
    pub number: u64,
    /// The permission bits of the found entry.
    pub permissions: u32,
}

/// The inode number of the first fixed entry of `/proc`.
pub const ROOT_NUMBERS: u64 = 0x100;
/// The number of inode numbers that are reserved for each process. Fixed entries, CPUs and nodes have inode numbers
/// below this value.
const PROCESS_NUMBERS: u64 = 1 << 32;
/// The first inode number of each kind of file of a process, relative to the first inode number of the process. The
/// numbers 0 to 255 are for `/proc/PID` and its files. The numbers of descriptors and threads follow.
const FILES: u64 = 0;
const DESCRIPTORS: u64 = 1 << 8;
const DESCRIPTOR_INFOS: u64 = 1 << 28;
const TASKS: u64 = 1 << 29;
const TASK_FILES: u64 = 1 << 30;

/// Returns the inode number at the offset `place` within the numbers of the process `id`.
fn number(id: u32, place: u64) -> u64 {
    PROCESS_NUMBERS * (u64::from(id) + 1) + place
}

impl FixedDirectory {
    /// Looks up the entry `name`. Returns `None` if there is no such entry.
    #[must_use]
    pub fn child(&self, name: &[u8]) -> Option<Child> {
        let index = self
            .entries
            .iter()
            .position(|entry| entry.0.as_bytes() == name)?;
        let (_, permissions, node) = self.entries[index];
        Some(Child {
            node,
            number: self.first + index as u64,
            permissions,
        })
    }
}

impl Child {
    /// Returns `/proc/PID`.
    #[must_use]
    pub fn process(id: u32) -> Self {
        Self {
            node: ProcNode::Process(id),
            number: number(id, FILES),
            permissions: 0o555,
        }
    }

    /// Returns a file of the process `id`, or of its thread `thread`. `index` is the index of the file in the
    /// directory's list of entries.
    #[must_use]
    pub fn file(
        id: u32,
        thread: Option<u32>,
        index: usize,
        permissions: u32,
        node: ProcNode,
    ) -> Self {
        let place = match thread {
            None => FILES + 1 + index as u64,
            Some(thread) => TASK_FILES + u64::from(thread) * 256 + 1 + index as u64,
        };
        Self {
            node,
            number: number(id, place),
            permissions,
        }
    }

    /// Returns `/proc/PID/task/TID`.
    #[must_use]
    pub fn task(id: u32, thread: u32) -> Self {
        let number = number(id, TASKS + u64::from(thread));
        Self {
            node: ProcNode::Task(id, thread),
            number,
            permissions: 0o555,
        }
    }

    /// Returns `/proc/PID/fd/N`. Its permission bits depend on the access mode with which the file was opened.
    #[must_use]
    pub fn descriptor(id: u32, descriptor: i32, open: &OpenFile) -> Self {
        let permissions =
            (u32::from(open.is_readable()) * 0o500) | (u32::from(open.is_writable()) * 0o300);
        Self {
            node: ProcNode::Descriptor(id, descriptor),
            number: number(id, DESCRIPTORS + descriptor as u64),
            permissions,
        }
    }

    /// Returns `/proc/PID/fdinfo/N`.
    #[must_use]
    pub fn descriptor_info(id: u32, descriptor: i32) -> Self {
        Self {
            node: ProcNode::DescriptorInfo(id, descriptor),
            number: number(id, DESCRIPTOR_INFOS + descriptor as u64),
            permissions: 0o444,
        }
    }
}

impl ProcNode {
    /// Returns the file type.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Root
            | Self::Fixed(_)
            | Self::Processors
            | Self::Nodes
            | Self::Processor(..)
            | Self::Process(_)
            | Self::Tasks(_)
            | Self::Task(..)
            | Self::Descriptors(_)
            | Self::DescriptorInfos(_)
            | Self::Cgroups
            | Self::Cgroup(_) => Kind::Directory,
            Self::SelfLink
            | Self::ThreadSelfLink
            | Self::PathLink(_)
            | Self::Place(..)
            | Self::Descriptor(..) => Kind::Symlink,
            Self::DescriptorInfo(..)
            | Self::SystemText(_)
            | Self::SystemEvents(..)
            | Self::ProcessorText(..)
            | Self::SystemControl(_)
            | Self::ProcessText(..)
            | Self::Memory(_)
            | Self::Pagemap(_)
            | Self::Frames(_)
            | Self::CgroupText(..) => Kind::Regular,
        }
    }
}
