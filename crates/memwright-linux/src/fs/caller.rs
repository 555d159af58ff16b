//! The services of [`Context`] for file operations: the caller's credentials, limits and descriptors, and path
//! resolution.

use super::{
    dentry::Dentry,
    open_file::OpenFile,
    permission::Subject,
    tree::Change,
    walk::{LastLink, Walked, Walker},
};
use crate::{
    context::Context,
    errno::Errno,
    identity::{Capabilities, Resource},
    process::send_to_thread,
    signal::{Detail, Signal, SignalInfo, SignalSet, code},
    syscall::signal::{restore_mask, with_mask_until_return},
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;

impl Context<'_> {
    /// Returns the ids and the override capability that permission checks use.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let credentials = self.process().credentials.lock();
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
        self.process().limits.lock().get(Resource::FileSize).current
    }

    /// Sends SIGXFSZ to the calling thread, which tried to make a file larger than [`Self::file_size_limit`].
    pub fn file_too_large(&self) {
        send_to_thread(self.thread, SignalInfo::kernel(Signal::SIGXFSZ));
    }

    /// Sends SIGPIPE to the calling thread, which writes to a pipe or socket without a reader.
    pub fn broken_pipe(&self) {
        let detail = Detail::Sender {
            process: self.process().id,
            user: self.process().credentials.lock().user.real,
        };
        let signal = Signal::SIGPIPE;
        let info = SignalInfo {
            signal,
            code: code::SI_USER,
            errno: 0,
            detail,
        };
        send_to_thread(self.thread, info);
    }

    /// Returns the limit on descriptors (`RLIMIT_NOFILE`): one more than the largest descriptor that the caller is
    /// allowed to open.
    #[must_use]
    pub fn descriptor_limit(&self) -> usize {
        self.process().limits.lock().get(Resource::Files).current as usize
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
            now: self.kernel.vfs.now(),
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
        let path = self.user.read_path(address)?;
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
            context: Some(self),
            subject: self.subject(),
            root: &root,
        };
        walker.walk(&start, path, last_link)
    }

    /// Resolves the path at `address` by the `AT_` flags of a call. With `AT_EMPTY_PATH`, an empty path (or, since
    /// Linux 6.11, a null pointer) refers to the descriptor itself.
    ///
    /// # Errors
    /// Those of [`Self::walk_at`], and `ENOENT`.
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
                self.user.read_path(address)?
            };
            if path.is_empty() {
                return self.path_start(directory, b"");
            }
        }
        self.walk_at(directory, address, last_link)?.existing()
    }

    /// Calls `act` with the signal mask at the user address `address` in effect, or with the present mask if `address`
    /// is null.
    ///
    /// # Errors
    /// `EFAULT` if the mask cannot be read, `EINVAL` if `size` is not eight, and those of `act`.
    pub fn with_signal_mask(
        &self,
        address: u64,
        size: u64,
        act: impl FnOnce() -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        if address == 0 {
            return act();
        }
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        let mask: u64 = self.user.read_value(address)?;
        with_mask_until_return(self, SignalSet(mask));
        let result = act();
        // If a signal interrupted `act`, its handler runs under the temporary mask, and the previous mask is restored
        // when the handler returns.
        if !matches!(
            result,
            Err(Errno::EINTR | Errno::ERESTARTNOHAND | Errno::ERESTARTSYS)
        ) {
            restore_mask(self);
        }
        result
    }
}
