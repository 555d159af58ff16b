//! The thread on whose behalf the file system works, and what it does for such a thread: permissions, limits,
//! descriptors and path resolution.

use crate::{
    errno::Errno,
    fs::{
        FileTable, FsContext,
        dentry::Dentry,
        open_file::OpenFile,
        permission::{Permission, Subject},
        tree::Change,
        vfs::Vfs,
        walk::{LastLink, Walked, Walker},
    },
    identity::{Capabilities, Identity, Resource},
    scheduler::Task,
    signal::{Detail, Signal, SignalInfo, code},
    user::UserMemory,
    wait::{WaitError, WaitQueue},
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright::Memcg;

/// The ids of a calling thread and of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerIds {
    /// The process id.
    pub process: u32,
    /// The thread id.
    pub thread: u32,
}

/// The thread that calls the file system.
pub trait Caller {
    /// Returns the file system that the thread calls.
    fn vfs(&self) -> &'static Vfs;

    /// Returns the memory of the thread's program.
    fn memory(&self) -> UserMemory<'static>;

    /// Returns the ids of the thread and of its process.
    fn ids(&self) -> CallerIds;

    /// Returns the credentials and limits of the thread's process.
    fn identity(&self) -> &Identity;

    /// Returns the scheduler's part of the thread.
    fn task(&self) -> &Task;

    /// Returns the descriptor table.
    fn files(&self) -> Arc<FileTable>;

    /// Returns the root, the working directory and the file-creation mask.
    fn fs(&self) -> Arc<FsContext>;

    /// Sends a signal to the thread.
    fn raise(&self, info: SignalInfo);

    /// Waits until `ready` returns true. `ready` is called first, and again after each wakeup of one of the queues.
    ///
    /// # Locks
    /// The caller holds no lock.
    ///
    /// # Errors
    /// [`WaitError::Interrupted`] if a signal is pending, [`WaitError::TimedOut`] after the deadline.
    fn wait(
        &self,
        queues: &[&WaitQueue],
        deadline: Option<u64>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<(), WaitError>;

    /// Lets other runnable threads run.
    fn yield_now(&self);

    /// Returns the queue that is woken when a signal arrives that a signalfd can read.
    fn signal_arrivals(&self) -> &Arc<WaitQueue>;

    /// Counts a read or write of this number of pages in the thread's memcg. Returns the memcg, if there is one.
    fn count_pages(&self, pages: u64) -> Option<Memcg>;
}

impl dyn Caller + '_ {
    /// Waits until `ready` returns `Some`, like [`Caller::wait`].
    ///
    /// # Errors
    /// Those of [`Caller::wait`]. `ready` is called once more before either.
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

    /// Checks that the kernel heap is above its reserve. Operations that allocate call this first.
    ///
    /// # Errors
    /// `ENOMEM` if the heap is in its reserve.
    pub fn check_heap(&self) -> Result<(), Errno> {
        if self.vfs().instruments.heap_low() {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    /// Returns the ids and the override capability that permission checks use.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let credentials = self.identity().credentials.lock();
        Subject {
            user: credentials.user.file,
            group: credentials.group.file,
            // A file-system uid other than 0 drops the capability (`setfsuid`).
            overrides: credentials.user.file == 0 && credentials.has(Capabilities::PERMISSIONS),
        }
    }

    /// Returns the size in bytes to which the calling process is allowed to make files grow (`RLIMIT_FSIZE`).
    #[must_use]
    pub fn file_size_limit(&self) -> u64 {
        self.identity().soft_limit(Resource::FileSize)
    }

    /// Sends SIGXFSZ to the calling thread, which tried to make a file larger than `file_size_limit`.
    pub fn file_too_large(&self) {
        self.raise(SignalInfo::kernel(Signal::SIGXFSZ));
    }

    /// Sends SIGPIPE to the calling thread, which writes to a pipe or socket without a reader.
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

    /// Checks that the caller has a free descriptor, for calls in which Linux reserves one before other checks.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn check_free_descriptor(&self) -> Result<(), Errno> {
        self.files().check_free(self.descriptor_limit())
    }

    /// Returns the ids and the time with which the caller changes directory entries.
    #[must_use]
    pub fn change(&self) -> Change {
        Change {
            subject: self.subject(),
            now: self.vfs().now(),
        }
    }

    /// Returns the directory entry at which the resolution of `path` starts: the root, the working directory or the
    /// file of the descriptor `directory`.
    ///
    /// # Errors
    /// `EBADF` if the path is relative and the descriptor is not open.
    pub fn path_start(&self, directory: i32, path: &[u8]) -> Result<Arc<Dentry>, Errno> {
        if path.first() == Some(&b'/') {
            Ok(self.fs().root())
        } else if directory == raw::AT_FDCWD {
            Ok(self.fs().directory())
        } else {
            Ok(self.files().get(directory)?.entry.clone())
        }
    }

    /// Checks that the caller may make `entry` its working directory or root.
    ///
    /// # Errors
    /// `ENOTDIR` if it is no directory, `EACCES` if the caller may not search it.
    pub fn check_enterable(&self, entry: &Dentry) -> Result<(), Errno> {
        if !entry.inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        entry.inode.check(self.subject(), Permission::EXECUTE)
    }

    /// Makes the directory at `path`, relative to the root, the working directory. An empty path changes nothing.
    ///
    /// # Errors
    /// Those of [`Walker::walk`] and `check_enterable`.
    pub fn enter(&self, path: &[u8]) -> Result<(), Errno> {
        if path.is_empty() {
            return Ok(());
        }
        let fs = self.fs();
        let root = fs.root();
        let walker = Walker {
            caller: Some(self),
            subject: self.subject(),
            root: &root,
        };
        let entry = walker.resolve(&root, path, LastLink::Follow)?;
        self.check_enterable(&entry)?;
        fs.set_directory(entry);
        Ok(())
    }

    /// Resolves the path at `address`, relative to the descriptor `directory`, up to its last component.
    ///
    /// # Errors
    /// `EFAULT`, `ENAMETOOLONG`, `EBADF`, and those of [`Walker::walk`].
    pub fn walk_at(
        &self,
        directory: i32,
        address: u64,
        last_link: LastLink,
    ) -> Result<Walked, Errno> {
        let path = self.memory().read_path(address)?;
        self.walk_path(directory, &path, last_link)
    }

    /// Resolves a path in kernel memory, relative to the descriptor `directory`, up to its last component.
    ///
    /// # Errors
    /// `EBADF`, and those of [`Walker::walk`].
    pub fn walk_path(
        &self,
        directory: i32,
        path: &[u8],
        last_link: LastLink,
    ) -> Result<Walked, Errno> {
        let start = self.path_start(directory, path)?;
        let root = self.fs().root();
        let walker = Walker {
            caller: Some(self),
            subject: self.subject(),
            root: &root,
        };
        walker.walk(&start, path, last_link)
    }

    /// Resolves the path at `address` by the `AT_` flags of a call. With `AT_EMPTY_PATH`, an empty path (or, since
    /// Linux 6.11, a null pointer) refers to the descriptor itself.
    ///
    /// # Errors
    /// Those of `walk_at`, and `ENOENT`.
    pub fn resolve_at(
        &self,
        directory: i32,
        address: u64,
        flags: u32,
    ) -> Result<Arc<Dentry>, Errno> {
        let nofollow = flags & raw::AT_SYMLINK_NOFOLLOW != 0;
        let last_link = if nofollow {
            LastLink::Keep
        } else {
            LastLink::Follow
        };
        if flags & raw::AT_EMPTY_PATH != 0 {
            let path = if address == 0 {
                Default::default()
            } else {
                self.memory().read_path(address)?
            };
            if path.is_empty() {
                return self.path_start(directory, b"");
            }
        }
        self.walk_at(directory, address, last_link)?.existing()
    }
}
