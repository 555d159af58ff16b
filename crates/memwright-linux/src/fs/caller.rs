//! What files need to know of their caller.

use super::{
    attributes::Moment,
    dentry::Dentry,
    open_file::OpenFile,
    permission::Subject,
    tree::Change,
    walk::{LastLink, Walked, Walker},
};
use crate::{
    context::Context,
    errno::Errno,
    kernel::Kernel,
    process::{Capabilities, Resource},
    signal::{Detail, Signal, SignalInfo, SignalSet, code, send_to_thread},
    syscall::signal::{restore_mask, with_mask_until_return},
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;

impl Moment {
    /// The moment that nodes record.
    #[must_use]
    pub fn now(kernel: &Kernel) -> Self {
        Self::from_nanoseconds(kernel.manifest.epoch * crate::abi::SECOND + kernel.host.now())
    }
}

impl Context<'_> {
    /// Whose rights count.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let credentials = self.process().credentials.lock();
        Subject {
            user: credentials.user.file,
            group: credentials.group.file,
            // Another id for files alone gives the capability up (`setfsuid`).
            overrides: credentials.user.file == 0 && credentials.has(Capabilities::PERMISSIONS),
        }
    }

    /// The largest size that a file may grow to (`RLIMIT_FSIZE`).
    #[must_use]
    pub fn file_size_limit(&self) -> u64 {
        self.process().limits.lock().get(Resource::FileSize).current
    }

    /// Tells the caller that a file would grow beyond its limit.
    pub fn file_too_large(&self) {
        send_to_thread(
            self.kernel,
            self.thread,
            SignalInfo::kernel(Signal::SIGXFSZ),
        );
    }

    /// Tells the caller that nobody reads what it writes.
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
        send_to_thread(self.kernel, self.thread, info);
    }

    /// One above the largest descriptor that the caller may have (`RLIMIT_NOFILE`).
    #[must_use]
    pub fn descriptor_limit(&self) -> usize {
        self.process().limits.lock().get(Resource::Files).current as usize
    }

    /// Gives an open file the lowest free descriptor.
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

    /// Whether the caller has a free descriptor, where Linux takes it before it looks at more.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn check_free_descriptor(&self) -> Result<(), Errno> {
        self.files().check_free(self.descriptor_limit())
    }

    /// The caller as one who changes names.
    #[must_use]
    pub fn change(&self) -> Change {
        Change {
            subject: self.subject(),
            now: Moment::now(self.kernel),
        }
    }

    /// Where a path begins that a call gives beside the descriptor `directory`.
    ///
    /// # Errors
    /// `EBADF` for a relative path and a descriptor that is not open.
    pub fn path_start(&self, directory: i32, path: &[u8]) -> Result<Arc<Dentry>, Errno> {
        if path.first() == Some(&b'/') {
            Ok(self.fs().root())
        } else if directory == raw::AT_FDCWD {
            Ok(self.fs().directory())
        } else {
            Ok(self.files().get(directory)?.entry.clone())
        }
    }

    /// Walks the path at `address` up to its last component, beside the descriptor `directory`.
    ///
    /// # Errors
    /// `EFAULT`, `ENAMETOOLONG`, `EBADF`, and those of [`Walker::walk`].
    pub fn walk_at(
        &self,
        directory: i32,
        address: u64,
        last_link: LastLink,
    ) -> Result<Walked, Errno> {
        let path = self.read_path(address)?;
        self.walk_path(directory, &path, last_link)
    }

    /// The same for a path that the kernel has.
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

    /// What the path at `address` names, by the `AT_` flags of a call: with `AT_EMPTY_PATH` an
    /// empty path (or, since Linux 6.11, none) names the descriptor itself.
    ///
    /// # Errors
    /// As [`Self::walk_at`], and `ENOENT`.
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
                self.read_path(address)?
            };
            if path.is_empty() {
                return self.path_start(directory, b"");
            }
        }
        self.walk_at(directory, address, last_link)?.existing()
    }

    /// Calls `act` with the signal mask at `address` in place, unless it is null.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL` for another size than eight, and those of `act`.
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
        let mask: u64 = self.read_value(address)?;
        with_mask_until_return(self, SignalSet(mask));
        let result = act();
        // A handler runs under the mask; the one before comes back behind it.
        if !matches!(
            result,
            Err(Errno::EINTR | Errno::ERESTARTNOHAND | Errno::ERESTARTSYS)
        ) {
            restore_mask(self);
        }
        result
    }
}
