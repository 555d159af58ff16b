//! The readiness that `poll` and `epoll` report for text files.
//!
//! ```text
//! files of a process            always ready; epoll refuses them
//! its mounts, /proc/swaps       readable; each change is reported once (fs/proc_namespace.c, `mounts_poll`;
//!                               mm/swapfile.c, `swaps_poll`)
//! the rest of /proc, debugfs    always ready (fs/proc/inode.c, `proc_reg_poll`)
//! attributes of /sys, cgroups   always ready; changed until they are read, and again when their text changes
//!                               (fs/kernfs/file.c, `kernfs_generic_poll`)
//! ```

use crate::procfs::{
    node::view::{Parts, View},
    node::{ChangesOf, Needs, ProcNode, ProcessWriter},
    system::balance,
};
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_linux_sched::wait::Queues;
use memwright_linux_vfs::fs::{
    abilities::Splices, file_system::FileSystemKind, open_file::OpenFile, readiness::Readiness,
};

/// The way in which the readiness of a file is reported.
#[derive(Clone, Copy)]
enum Polled {
    /// The file is always ready, and `epoll` refuses it.
    Refused,
    /// The file is always ready.
    Plain,
    /// The file is readable. Each change of its text is reported once to each open file.
    Events(ChangesOf),
    /// The file is always ready. A change is reported until the text is read.
    Attribute,
}

/// The value of [`Seen`] for an attribute that has not been read yet.
const UNREAD: u64 = u64::MAX;

/// The state of an open file, which is a value of the text's change counter. It is the value at the last change that
/// `poll` reported. For an attribute, it is the value at the last read of the text.
pub struct Seen(AtomicU64);

impl Seen {
    /// Creates the state for a newly opened file.
    pub fn new(node: &ProcNode, parts: &dyn Parts) -> Self {
        let count = node.events().map(|changes| changes(parts).count());
        Self(AtomicU64::new(count.unwrap_or(UNREAD)))
    }

    /// Records that the text of an attribute was read. `mark` is the value that the change counter had before the text
    /// was generated.
    pub fn read(&self, node: &ProcNode, mark: u64) {
        if node.events().is_none() {
            self.0.store(mark, Ordering::Relaxed);
        }
    }

    /// Returns the readiness of the open file.
    pub fn readiness(&self, node: &ProcNode, view: &View<'_>, open: &OpenFile) -> Readiness {
        let changed = |changed| {
            let mut told = Readiness::empty();
            told.set(Readiness::ERROR | Readiness::PRIORITY, changed);
            told
        };
        let ready = Readiness::READ | Readiness::WRITE;
        match node.polled(Some(open)) {
            Polled::Refused | Polled::Plain => ready,
            Polled::Events(changes) => {
                let now = changes(view.parts).count();
                Readiness::READ | changed(self.0.swap(now, Ordering::Relaxed) != now)
            }
            Polled::Attribute => {
                let seen = self.0.load(Ordering::Relaxed);
                ready | changed(seen == UNREAD || node.mark(view) != Some(seen))
            }
        }
    }
}

impl ProcNode {
    /// Returns the way in which the readiness of the file is reported. Without `open`, the result does not distinguish
    /// between files of `/proc` and attributes of `/sys`.
    fn polled(&self, open: Option<&OpenFile>) -> Polled {
        if let Some(changes) = self.events() {
            return Polled::Events(changes);
        }
        if self.is_of_process() {
            return Polled::Refused;
        }
        let Some(open) = open else {
            return Polled::Plain;
        };
        let inode = open.inode();
        let debug = balance::DEBUG_NUMBERS.contains(&inode.number);
        match inode.file_system.kind {
            FileSystemKind::Sysfs if !debug => Polled::Attribute,
            FileSystemKind::Cgroup => Polled::Attribute,
            FileSystemKind::Sysfs
            | FileSystemKind::Proc
            | FileSystemKind::Tmpfs
            | FileSystemKind::Devtmpfs
            | FileSystemKind::Pipe
            | FileSystemKind::Socket
            | FileSystemKind::Memory
            | FileSystemKind::Hugetlb
            | FileSystemKind::Anonymous => Polled::Plain,
        }
    }

    /// Returns whether `epoll` accepts the file.
    pub(super) fn can_be_watched(&self) -> bool {
        !matches!(self.polled(None), Polled::Refused)
    }

    /// Returns whether `splice` can read from and write to the file.
    pub(super) fn splices(&self) -> Splices {
        match self.polled(None) {
            Polled::Refused => Splices::Neither,
            // `/proc/swaps` has no `read_iter` operation on Linux.
            Polled::Events(_) if !self.is_of_process() => Splices::Neither,
            Polled::Events(_) => Splices::Reads,
            Polled::Plain | Polled::Attribute => Splices::Both,
        }
    }

    /// If pollers of the file are notified of changes, adds the wait queue that is woken when the text may have
    /// changed.
    pub(super) fn add_queues(&self, parts: &'static dyn Parts, queues: &mut Queues<'_>) {
        if let Some(changes) = self.events() {
            queues.add(&changes(parts).queue);
        } else if let Self::CgroupText(_, file) = self
            && file.mark.is_some()
        {
            queues.add(&parts.cgroups().changes().queue);
        }
    }

    /// Returns the change counter of a file whose changes are reported once; `None` for other files.
    fn events(&self) -> Option<ChangesOf> {
        match self {
            Self::SystemEvents(_, changes) => Some(*changes),
            Self::ProcessText(_, _, ProcessWriter { needs, .. }) => match needs {
                Needs::Mounts => Some(|parts| &parts.vfs().mounts.changes),
                Needs::Nothing | Needs::Memory => None,
            },
            _ => None,
        }
    }

    /// Returns the change counter of an attribute; 0 if changes of the attribute are not reported, and `None` if its
    /// cgroup was removed.
    pub(super) fn mark(&self, view: &View<'_>) -> Option<u64> {
        match self {
            Self::CgroupText(id, file) => {
                let group = view.parts.cgroups().get(*id)?;
                let mark = file.mark.map(|mark| mark(view.parts.memory(), &group));
                Some(mark.unwrap_or(0))
            }
            _ => Some(0),
        }
    }

    /// Returns whether the file is about a process.
    const fn is_of_process(&self) -> bool {
        matches!(self, Self::ProcessText(..) | Self::DescriptorInfo(..))
    }
}
