//! The directories of CPUs and of NUMA nodes.

use crate::procfs::{
    node::view::View,
    node::{Child, ProcNode, Text, list_entries},
};
use ProcessorEntry::{Directory, Text as File};
use core::fmt::{self};
use memwright_linux_vfs::fs::dirents::DirectoryEntry;

/// Writes the text of a file about a CPU or NUMA node, whose number is the second argument.
pub type ProcessorWriter = fn(&View<'_>, u32, &mut Text) -> fmt::Result;

/// An entry in the directory of a CPU or NUMA node.
#[derive(Clone, Copy)]
pub enum ProcessorEntry {
    /// A file whose text the contained function writes.
    Text(ProcessorWriter),
    /// A directory with further entries about the same CPU or NUMA node.
    Directory(&'static ProcessorDirectory),
}

/// A directory of a CPU or NUMA node.
pub struct ProcessorDirectory {
    /// The index of this directory among the directories with the same CPU or node number. It determines the inode
    /// numbers of the entries.
    pub place: u64,
    pub entries: &'static [(&'static str, ProcessorEntry)],
}

/// The first inode number of the directories of CPUs and nodes. Each directory has a range of 64 inode numbers.
pub const PROCESSOR_NUMBERS: u64 = 0x1_0000;

impl ProcessorDirectory {
    fn child_at(&self, processor: u32, index: usize) -> Option<Child> {
        let (_, entry) = self.entries.get(index)?;
        let (node, permissions) = match entry {
            File(writer) => (ProcNode::ProcessorText(processor, *writer), 0o444),
            Directory(directory) => (ProcNode::Processor(processor, directory), 0o555),
        };
        let number =
            PROCESSOR_NUMBERS + (u64::from(processor) * 4 + self.place) * 64 + index as u64 + 1;
        Some(Child {
            node,
            number,
            permissions,
        })
    }

    /// Looks up the entry `name` of this directory of the CPU or NUMA node `processor`.
    #[must_use]
    pub fn child(&self, processor: u32, name: &[u8]) -> Option<Child> {
        let index = self
            .entries
            .iter()
            .position(|entry| entry.0.as_bytes() == name)?;
        self.child_at(processor, index)
    }

    /// Calls `emit` with each entry, beginning at `position`, until an entry does not fit. The first entry has position
    /// 2, after `.` and `..`.
    pub fn list(
        &self,
        processor: u32,
        position: &mut u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) {
        list_entries(position, emit, |index| {
            let child = self.child_at(processor, index)?;
            Some((child.number, child.node.kind(), self.entries[index].0))
        });
    }
}
