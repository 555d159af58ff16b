//! The calling thread, as the file system sees it, and operations on behalf of that thread: permission checks, limits,
//! descriptors and signals.

use crate::{
    fs::{FileTable, FsContext, open_file::OpenFile, permission::Subject, vfs::Vfs},
    identity::{Capabilities, Identity, Resource},
    user::UserMemory,
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;
use memwright::Memcg;
use memwright_linux_abi::{
    errno::Errno,
    signal::{Detail, Signal, SignalInfo, code},
};
use memwright_linux_sched::{
    scheduler::Task,
    wait::{CanWait, WaitError, WaitQueue},
};

/// The ids of a calling thread and of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerIds {
    /// The process id.
    pub process: u32,
    /// The thread id.
    pub thread: u32,
}

/// The thread on whose behalf the file system works.
pub trait Caller: CanWait {
    /// Returns the virtual file system of the machine.
    fn vfs(&self) -> &'static Vfs;

    /// Returns the user memory of the thread's process.
    fn memory(&self) -> UserMemory<'static>;

    /// Returns the ids of the thread and of its process.
    fn ids(&self) -> CallerIds;

    /// Returns the credentials and limits of the thread's process.
    fn identity(&self) -> &Identity;

    /// Returns the scheduler's state of the thread.
    fn task(&self) -> &Task;

    /// Returns the descriptor table of the thread's process.
    fn files(&self) -> Arc<FileTable>;

    /// Returns the root directory, the working directory and the umask of the thread's process.
    fn fs(&self) -> Arc<FsContext>;

    /// Sends a signal to the thread.
    fn raise(&self, info: SignalInfo);

    /// Lets other runnable threads run on this CPU.
    fn yield_now(&self);

    /// Returns the wait queue that is woken when the thread's process or the thread gets a signal that a signalfd can
    /// read.
    fn signal_arrivals(&self) -> &Arc<WaitQueue>;

    /// Counts a read or write of `pages` pages in the memcg of the thread's process. Returns that memcg, or `None` if
    /// the process is in no memcg.
    fn count_pages(&self, pages: u64) -> Option<Memcg>;
}

impl dyn Caller + '_ {
    /// Waits until `ready` returns `Some`, like [`CanWait::wait`].
    ///
    /// # Errors
    /// The errors of [`CanWait::wait`], which calls `ready` a last time before it returns an error.
    pub fn wait_until<T>(
        &self,
        queues: &[&WaitQueue],
        deadline: Option<u64>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        let mut value = None;
        let waited = self.wait(queues, deadline, &mut || {
            value = ready();
            value.is_some()
        });
        match value {
            Some(value) => Ok(value),
            None => Err(waited.err().unwrap_or(WaitError::Interrupted)),
        }
    }

    /// Returns whether an unblocked signal is pending for the thread.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.task().signal_pending()
    }

    /// Checks that the free part of the kernel heap is larger than the reserve. Operations that allocate on behalf of a
    /// program call this first.
    ///
    /// # Errors
    /// `ENOMEM` if only the reserve is left.
    pub fn check_heap(&self) -> Result<(), Errno> {
        if self.vfs().instruments.heap_low() {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    /// Returns the subject of permission checks: the thread's file system ids and supplementary groups, and whether it
    /// overrides permissions.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let credentials = self.identity().credentials.lock();
        Subject {
            user: credentials.user.file,
            group: credentials.group.file,
            groups: credentials.groups.clone(),
            // A file-system uid other than 0 disables the capability (`setfsuid`).
            overrides: credentials.user.file == 0 && credentials.has(Capabilities::PERMISSIONS),
        }
    }

    /// Returns the maximum size in bytes to which the calling process is allowed to make a file grow (`RLIMIT_FSIZE`).
    #[must_use]
    pub fn file_size_limit(&self) -> u64 {
        self.identity().soft_limit(Resource::FileSize)
    }

    /// Sends SIGXFSZ to the calling thread, because it tried to make a file larger than `file_size_limit`.
    pub fn file_too_large(&self) {
        self.raise(SignalInfo::kernel(Signal::SIGXFSZ));
    }

    /// Sends SIGPIPE to the calling thread, because it wrote to a pipe or socket without a reader.
    pub fn broken_pipe(&self) {
        let detail = Detail::Sender {
            process: self.ids().process,
            user: self.identity().credentials.lock().user.real,
        };
        let signal = Signal::SIGPIPE;
        let info = SignalInfo {
            signal,
            code: code::SI_USER,
            errno: 0,
            detail,
        };
        self.raise(info);
    }

    /// Returns the limit on descriptors (`RLIMIT_NOFILE`): one more than the largest descriptor that the caller is
    /// allowed to open.
    #[must_use]
    pub fn descriptor_limit(&self) -> usize {
        self.identity().soft_limit(Resource::Files) as usize
    }

    /// Installs an open file at the caller's lowest free descriptor. `O_CLOEXEC` in `flags` marks it close-on-exec.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn add_descriptor(&self, open: Arc<OpenFile>, flags: u32) -> Result<u64, Errno> {
        let close_on_exec = flags & raw::O_CLOEXEC != 0;
        let limit = self.descriptor_limit();
        self.files()
            .add(0, limit, open, close_on_exec)
            .map(|descriptor| descriptor as u64)
    }

    /// Checks that the caller can open another descriptor. Used by calls in which Linux reserves a descriptor before it
    /// makes other checks.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn check_free_descriptor(&self) -> Result<(), Errno> {
        self.files().check_free(self.descriptor_limit())
    }

    /// Returns whether the calling process has at least one of `capabilities`.
    #[must_use]
    pub fn has_any(&self, capabilities: Capabilities) -> bool {
        let credentials = self.identity().credentials.lock();
        let effective = credentials.capabilities.effective;
        effective.intersects(capabilities)
    }

    /// Checks that the calling process is allowed to open one more file (`alloc_empty_file` in `fs/file_table.c` of
    /// Linux 7.3).
    ///
    /// # Errors
    /// `ENFILE` if the system-wide limit is reached and the process is unprivileged.
    pub fn check_open_files(&self) -> Result<(), Errno> {
        let most = self.vfs().file_limits.open_files.load(Ordering::Relaxed);
        if self.vfs().open_files.total() < most || self.has_any(Capabilities::ADMINISTER) {
            Ok(())
        } else {
            Err(Errno::ENFILE)
        }
    }
}
