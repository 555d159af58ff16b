//! The files of a cgroup.

use crate::procfs::{node::Text, node::view::View};
use alloc::sync::Arc;
use core::fmt::{self};
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_tasks::process::Cgroup;

/// Writes the text of a cgroup's file.
pub type GroupReader = fn(&View<'_>, &Cgroup, &mut Text) -> fmt::Result;
/// Handles a write to a cgroup's file.
pub type GroupWriter = fn(&View<'_>, &Arc<Cgroup>, &[u8]) -> Result<(), Errno>;

/// Returns a number that changes each time that the text of a cgroup's file changes.
pub type GroupMark = fn(&Memory, &Cgroup) -> u64;

/// The cgroups in which a file exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// In all cgroups.
    Always,
    /// In all cgroups except the root.
    BelowRoot,
    /// In the cgroups that have the memory controller, except the root.
    WithMemory,
}

/// A file in the directories of cgroups.
#[derive(Clone, Copy)]
pub struct GroupFile {
    pub(in crate::procfs) name: &'static str,
    /// The cgroups in which the file exists.
    pub(in crate::procfs) presence: Presence,
    /// Writes the text of the file.
    pub(in crate::procfs) read: GroupReader,
    /// Handles a write to the file; `None` for a read-only file.
    pub(in crate::procfs) store: Option<GroupWriter>,
    /// Returns the change counter of the file's text. It is `None` for a file whose pollers are not notified of
    /// changes.
    pub(in crate::procfs) mark: Option<GroupMark>,
}
