//! How `poll` and `epoll` take files of text.
//!
//! ```text
//! files of a process            always ready; epoll refuses them
//! its mounts, /proc/swaps       readable; told once of each change (fs/proc_namespace.c, `mounts_poll`;
//!                               mm/swapfile.c, `swaps_poll`)
//! the rest of /proc, debugfs    always ready (fs/proc/inode.c, `proc_reg_poll`)
//! attributes of /sys, groups    always ready; changed until they are read, and again when what they say is another
//!                               (fs/kernfs/file.c, `kernfs_generic_poll`)
//! ```

use super::{
    ProcNode, balance,
    process::{Needs, ProcessWriter},
};
use crate::{
    changes::Changes,
    context::Context,
    fs::{
        file_system::FileSystemKind,
        open_file::{OpenFile, Readiness, Splices},
    },
    kernel::Kernel,
    wait::Queues,
};
use core::sync::atomic::{AtomicU64, Ordering};

/// What tells of changes of what a file says.
pub type ChangesOf = for<'a> fn(&'a Kernel) -> &'a Changes;

/// How a file is polled.
#[derive(Clone, Copy)]
enum Polled {
    /// It is ready, and `epoll` refuses it.
    Refused,
    /// It is ready.
    Plain,
    /// It can be read, and each change is told once.
    Events(ChangesOf),
    /// It is ready, and changed until it is read.
    Attribute,
}

/// No state that a file was read in.
const UNREAD: u64 = u64::MAX;

/// What an open file has told of, or was read in.
pub struct Seen(AtomicU64);

impl Seen {
    /// What a file that was just opened has seen.
    pub fn new(node: &ProcNode, kernel: &Kernel) -> Self {
        let count = node.events().map(|changes| changes(kernel).count());
        Self(AtomicU64::new(count.unwrap_or(UNREAD)))
    }

    /// Notes that text of an attribute was read that was made after `mark` was taken.
    pub fn read(&self, node: &ProcNode, mark: u64) {
        if node.events().is_none() {
            self.0.store(mark, Ordering::Relaxed);
        }
    }

    /// What can be done with the open file now.
    pub fn readiness(&self, node: &ProcNode, context: &Context<'_>, open: &OpenFile) -> Readiness {
        let changed = |changed| {
            let mut told = Readiness::empty();
            told.set(Readiness::ERROR | Readiness::PRIORITY, changed);
            told
        };
        let ready = Readiness::READ | Readiness::WRITE;
        match node.polled(Some(open)) {
            Polled::Refused | Polled::Plain => ready,
            Polled::Events(changes) => {
                let now = changes(context.kernel).count();
                Readiness::READ | changed(self.0.swap(now, Ordering::Relaxed) != now)
            }
            Polled::Attribute => {
                let seen = self.0.load(Ordering::Relaxed);
                ready | changed(seen == UNREAD || node.mark(context) != Some(seen))
            }
        }
    }
}

impl ProcNode {
    /// How it is polled. What of `/proc` and `/sys` it is opened from tells.
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

    /// Whether `epoll` takes it.
    pub(super) fn can_be_watched(&self) -> bool {
        !matches!(self.polled(None), Polled::Refused)
    }

    /// What `splice` can do with it.
    pub(super) fn splices(&self) -> Splices {
        match self.polled(None) {
            Polled::Refused => Splices::Neither,
            // `/proc/swaps` has a `read` of the old kind.
            Polled::Events(_) if !self.is_of_process() => Splices::Neither,
            Polled::Events(_) => Splices::Reads,
            Polled::Plain | Polled::Attribute => Splices::Both,
        }
    }

    /// Adds the queue that is woken when what it says may have changed.
    pub(super) fn add_queues<'a>(&self, context: &'a Context<'_>, queues: &mut Queues<'a>) {
        let kernel: &'a Kernel = context.kernel;
        if let Some(changes) = self.events() {
            queues.add(&changes(kernel).queue);
        } else if let Self::CgroupText(_, file) = self {
            if file.mark.is_some() {
                queues.add(&kernel.cgroups.changes.queue);
            }
        }
    }

    /// What tells of each change.
    fn events(&self) -> Option<ChangesOf> {
        match self {
            Self::SystemEvents(_, changes) => Some(*changes),
            Self::ProcessText(_, _, ProcessWriter { needs, .. }) => match needs {
                Needs::Mounts => Some(|kernel| &kernel.mounts.changes),
                Needs::Nothing | Needs::Memory => None,
            },
            _ => None,
        }
    }

    /// A number for what an attribute says, if that is told of; none if its group is gone.
    pub(super) fn mark(&self, context: &Context<'_>) -> Option<u64> {
        match self {
            Self::CgroupText(id, file) => {
                let group = context.kernel.cgroups.get(*id)?;
                let mark = file.mark.map(|mark| mark(context.kernel, &group));
                Some(mark.unwrap_or(0))
            }
            _ => Some(0),
        }
    }

    /// Whether it is about a process.
    const fn is_of_process(&self) -> bool {
        matches!(self, Self::ProcessText(..) | Self::DescriptorInfo(..))
    }
}
