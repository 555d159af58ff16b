//! The process that a file of `/proc` describes, and the functions that read and write such a file.

use crate::procfs::{node::Text, node::view::View};
use alloc::sync::Arc;
use core::fmt;
use memwright_linux_abi::{Space, errno::Errno};
use memwright_linux_tasks::process::{Life, Process, REAPER, Tasks, Thread};
use memwright_linux_vfs::fs::OpenFile;

/// The process or thread that a file describes.
pub struct Subject {
    /// The process.
    pub process: Arc<Process>,
    /// The requested thread, or the thread group leader if no thread was requested. `None` once the requested thread or
    /// the leader has exited.
    pub thread: Option<Arc<Thread>>,
    /// The ID of the requested thread, or of the process if no thread was requested.
    pub id: u32,
}

impl Subject {
    /// Looks up the process `id`, and its thread `thread` if one is given.
    ///
    /// # Errors
    /// `ESRCH` if the process or the given thread no longer exists.
    pub fn find(tasks: &Tasks, id: u32, thread: Option<u32>) -> Result<Self, Errno> {
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

    /// Returns the letter and the word by which `/proc` reports the state of the thread.
    #[must_use]
    pub fn state(&self, tasks: &Tasks) -> (char, &'static str) {
        let life = tasks.life(self.process.id);
        let letter = match (life, &self.thread) {
            (Some(Life::Zombie(_)), _) => 'Z',
            (_, Some(thread)) => thread.state_letter(),
            // The built-in reaper has no thread. Report it as sleeping, as if it waited for a child to exit.
            (_, None) if self.process.id == REAPER => 'S',
            // The requested thread has exited, but other threads of the process have not.
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

/// A resource of a process. A file about the resource can be opened only while the process has the resource. A zombie
/// has none of these resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// No resource is needed.
    Nothing,
    /// An address space (Linux 7.3 `fs/proc/base.c`, `proc_mem_open`).
    Memory,
    /// A mount namespace (`fs/proc_namespace.c`, `mounts_open_common`).
    Mounts,
}

impl Needs {
    /// Checks that the process `id` has the resource `self`.
    ///
    /// # Errors
    /// `ESRCH` if an address space is needed and missing, `EINVAL` if a mount namespace is needed and missing.
    pub fn check(self, tasks: &Tasks, id: u32) -> Result<(), Errno> {
        match self {
            Self::Nothing => Ok(()),
            Self::Memory => space(tasks, id).map(drop),
            Self::Mounts => {
                let process = tasks.process(id);
                let has = process.is_some_and(|process| process.fs().is_some());
                has.then_some(()).ok_or(Errno::EINVAL)
            }
        }
    }
}

/// Returns the address space of the process `id`.
///
/// # Errors
/// `ESRCH` if the process has exited.
pub fn space(tasks: &Tasks, id: u32) -> Result<Arc<Space>, Errno> {
    let process = tasks.process(id);
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

/// Returns the open file behind the descriptor `number` of the process `id`.
///
/// # Errors
/// `ENOENT`.
pub fn open_file(tasks: &Tasks, id: u32, number: i32) -> Result<Arc<OpenFile>, Errno> {
    let process = tasks.process(id).ok_or(Errno::ENOENT)?;
    let files = process.files().ok_or(Errno::ENOENT)?;
    files.get(number).map_err(|_| Errno::ENOENT)
}
