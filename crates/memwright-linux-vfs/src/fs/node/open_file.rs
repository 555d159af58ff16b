//! Open file descriptions, here called open files: the objects to which descriptors refer. Duplicates of a descriptor
//! share one.

use crate::fs::{
    Readiness,
    abilities::{Polling, Positions, Splices},
    attributes::Attributes,
    caller::Caller,
    dentry::Dentry,
    dirents::DirectoryEntry,
    epoll::Watches,
    file_owner::OwnerSlot,
    inode::Inode,
    locks::{Held, Holder},
    open_kind::OpenKind,
    seek::{Whence, moved},
    transfer::{Sink, Source},
    turn::Turn,
    used::Used,
    vfs::Vfs,
};
use alloc::{boxed::Box, sync::Arc};
use core::{
    any::Any,
    fmt,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};
use linux_raw_sys::general as raw;
use memwright::object::Object;
use memwright_linux_abi::{M, errno::Errno};
use memwright_linux_sched::wait::Queues;

/// What a mapping of a file maps.
pub enum Mapping {
    /// Zero-filled anonymous memory: `/dev/zero`.
    Zeroes,
    /// The pages of an object.
    Object(Arc<dyn Object<M>>),
}

/// Gives access to the concrete type of a file. It is implemented for every type that has no borrowed contents.
pub trait AsAny: Any {
    /// Returns the value as `Any`, for downcasts.
    fn as_any(&self) -> &dyn Any;
}

impl<T: Any> AsAny for T {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The operations of an open file. The default implementation of an operation is for files that do not support it.
pub trait File: Send + Sync + AsAny {
    /// Reads at `position`, which it advances by the number of bytes. Files without a position ignore `position`.
    /// Returns the number of bytes read.
    ///
    /// # Errors
    /// `EINVAL` unless the file can be read.
    fn read(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let _ = (caller, open, position, sink);
        Err(Errno::EINVAL)
    }

    /// Writes at `position`, which it advances by the number of bytes. Files without a position ignore `position`.
    /// Returns the number of bytes written.
    ///
    /// # Errors
    /// `EINVAL` unless the file can be written.
    fn write(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let _ = (caller, open, position, source);
        Err(Errno::EINVAL)
    }

    /// Returns whether the file has a position, and whether `lseek` fails.
    fn positions(&self) -> Positions {
        Positions::Kept
    }

    /// Returns the position to which an `lseek` from `position` moves.
    ///
    /// # Errors
    /// `EINVAL`, `EOVERFLOW`, `ENXIO`.
    fn seek(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        position: u64,
        offset: i64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        let _ = (caller, open);
        match whence {
            Whence::Start => moved(0, offset),
            Whence::Position => moved(position, offset),
            Whence::End | Whence::Data | Whence::Hole => Err(Errno::EINVAL),
        }
    }

    /// Calls `emit` with each directory entry, starting at `position`, until `emit` returns `false` because the entry
    /// did not fit. Advances `position` past the entries that fit.
    ///
    /// # Errors
    /// `ENOTDIR` unless it is a directory.
    fn entries(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        position: &mut u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let _ = (caller, open, position, emit);
        Err(Errno::ENOTDIR)
    }

    /// Returns the current readiness.
    fn readiness(&self, caller: &dyn Caller, open: &OpenFile) -> Readiness {
        let _ = (caller, open);
        Readiness::READ | Readiness::WRITE
    }

    /// Returns how `poll`, `select` and epolls can detect changes of the readiness.
    fn polling(&self) -> Polling {
        Polling::Always
    }

    /// Adds to `queues` the wait queues that are woken when one of the `wanted` bits of [`Self::readiness`] changes.
    fn queues<'a>(&'a self, caller: &'a dyn Caller, wanted: Readiness, queues: &mut Queues<'a>) {
        let _ = (caller, wanted, queues);
    }

    /// Returns whether `splice` can read or write the file. Pipe ends need not support this, because `splice` handles
    /// them itself.
    fn splices(&self) -> Splices {
        Splices::Neither
    }

    /// Executes an `ioctl` command. Commands that every descriptor supports are handled elsewhere.
    ///
    /// # Errors
    /// `ENOTTY` for an unknown command.
    fn control(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        let _ = (caller, open, command, argument);
        Err(Errno::ENOTTY)
    }

    /// Writes the lines of `/proc/PID/fdinfo/N` that are specific to this kind of file.
    ///
    /// # Errors
    /// The errors of `out`.
    fn describe(&self, caller: &dyn Caller, out: &mut dyn fmt::Write) -> fmt::Result {
        let _ = (caller, out);
        Ok(())
    }

    /// Returns the class in which the open file is counted (see [`OpenKind`]).
    fn counted_as(&self) -> OpenKind {
        OpenKind::Named
    }

    /// Returns an estimate in bytes of the kernel memory that the open file uses.
    fn kernel_bytes(&self) -> u64 {
        /// Estimated size in bytes of an open file with its inode and directory entry.
        const PLAIN: u64 = 512;
        PLAIN
    }

    /// Returns what a mapping of the file maps.
    ///
    /// # Errors
    /// `ENODEV` unless the file can be mapped.
    fn mapping(&self, open: &Arc<OpenFile>) -> Result<Mapping, Errno> {
        let _ = open;
        Err(Errno::ENODEV)
    }
}

/// The flags that `fcntl(F_SETFL)` can change.
pub const CHANGEABLE_FLAGS: u32 =
    raw::O_APPEND | raw::O_NONBLOCK | raw::O_DIRECT | raw::O_NOATIME | raw::FASYNC;

/// An open file description.
pub struct OpenFile {
    /// The directory entry through which the file was opened.
    pub entry: Used<Dentry>,
    /// The operations of the file.
    pub file: Box<dyn File>,
    flags: AtomicU32,
    position: AtomicU64,
    /// Serialises the threads that use or change the position.
    turn: Turn,
    identity: u64,
    vfs: Option<&'static Vfs>,
    /// The number of ranges that the open file has locked.
    pub locked: Held,
    /// The entries of epolls that watch the open file.
    pub(in crate::fs) watches: Watches<Self>,
    /// The owner, which gets signals about input and output.
    pub owner: OwnerSlot,
}

/// The next identity. Identities are not reused, because the identity of an open file is the holder of its advisory
/// locks.
static NEXT_IDENTITY: AtomicU64 = AtomicU64::new(1);

impl OpenFile {
    /// Creates an open file for the inode of `entry`, with the `O_` flags `flags`. If `vfs` is given, the open file is
    /// counted in [`Vfs::open_files`].
    #[must_use]
    pub fn new(
        vfs: Option<&'static Vfs>,
        entry: Arc<Dentry>,
        flags: u32,
        file: Box<dyn File>,
    ) -> Self {
        if let Some(vfs) = vfs {
            vfs.open_files.add(file.counted_as());
        }
        Self {
            entry: Used::new(entry),
            file,
            flags: AtomicU32::new(flags),
            position: AtomicU64::new(0),
            turn: Turn::new(),
            identity: NEXT_IDENTITY.fetch_add(1, Ordering::Relaxed),
            vfs,
            locked: Held::new(),
            watches: Watches::new(),
            owner: OwnerSlot::default(),
        }
    }

    /// Returns a number that is unique among all open files, including closed ones.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Returns the inode.
    #[must_use]
    pub fn inode(&self) -> &Arc<Inode> {
        &self.entry.inode
    }

    /// Returns the operations if they are of type `T`.
    #[must_use]
    pub fn as_kind<T: File>(&self) -> Option<&T> {
        (*self.file).as_any().downcast_ref()
    }

    /// Returns the `O_` flags.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets the flags in [`CHANGEABLE_FLAGS`] to those in `flags`. The other flags are unchanged.
    pub fn set_flags(&self, flags: u32) {
        let kept = self.flags() & !CHANGEABLE_FLAGS;
        self.flags
            .store(kept | flags & CHANGEABLE_FLAGS, Ordering::Relaxed);
    }

    /// Returns whether operations must not block (`O_NONBLOCK`).
    #[must_use]
    pub fn is_nonblocking(&self) -> bool {
        self.flags() & raw::O_NONBLOCK != 0
    }

    /// Returns whether the file was opened with `O_PATH`. Such a file only names an entry of the tree, and supports no
    /// I/O.
    #[must_use]
    pub fn is_path(&self) -> bool {
        self.flags() & raw::O_PATH != 0
    }

    /// Returns whether the open file was opened for reading.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let flags = self.flags();
        flags & raw::O_PATH == 0 && flags & raw::O_ACCMODE != raw::O_WRONLY
    }

    /// Returns whether the open file was opened for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        let flags = self.flags();
        flags & raw::O_PATH == 0 && matches!(flags & raw::O_ACCMODE, raw::O_WRONLY | raw::O_RDWR)
    }

    /// Returns the holder of the locks that belong to this open file: `flock` locks and open file description locks.
    #[must_use]
    pub fn holder(&self) -> Holder {
        Holder::OpenFile(self.identity)
    }

    /// Returns the position.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Returns the attributes that `fstat` reports.
    #[must_use]
    pub fn attributes(&self, caller: &dyn Caller) -> Attributes {
        self.inode().attributes(Some(caller))
    }

    /// Returns whether the file has a position. Only for such files do `pread64` and `pwrite64` work.
    #[must_use]
    pub fn has_position(&self) -> bool {
        self.file.positions() == Positions::Kept
    }

    /// Calls `act` with the position, and stores the position that `act` leaves. Holds the sleeping mutex of the
    /// position meanwhile. For a file without a position, calls `act` with 0 and stores nothing.
    fn with_position<T>(
        &self,
        caller: &dyn Caller,
        act: impl FnOnce(&mut u64) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if !self.has_position() {
            return act(&mut 0);
        }
        let turn = self.turn.take(caller)?;
        let mut position = self.position();
        let result = act(&mut position);
        self.position.store(position, Ordering::Relaxed);
        drop(turn);
        result
    }

    /// Reads at the position and advances it.
    ///
    /// # Errors
    /// `EBADF` unless opened for reading, `ERESTARTSYS` as for [`set_position`](Self::set_position), and the errors of
    /// the operation of `file`.
    pub fn read(&self, caller: &dyn Caller, sink: &mut Sink<'_>) -> Result<usize, Errno> {
        if !self.is_readable() {
            return Err(Errno::EBADF);
        }
        self.with_position(caller, |position| {
            self.file.read(caller, self, position, sink)
        })
    }

    /// Writes at the position, or at the end with `O_APPEND`, and advances the position.
    ///
    /// # Errors
    /// `EBADF` unless opened for writing, `ERESTARTSYS` as for [`set_position`](Self::set_position), and the errors of
    /// the operation of `file`.
    pub fn write(&self, caller: &dyn Caller, source: &mut Source<'_>) -> Result<usize, Errno> {
        if !self.is_writable() {
            return Err(Errno::EBADF);
        }
        self.with_position(caller, |position| {
            self.file.write(caller, self, position, source)
        })
    }

    /// Reads at `position`. The file's own position is unchanged.
    ///
    /// # Errors
    /// `EBADF` unless opened for reading, `ESPIPE` if the file has no position, and the errors of the operation of
    /// `file`.
    pub fn read_at(
        &self,
        caller: &dyn Caller,
        mut position: u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        if !self.is_readable() {
            return Err(Errno::EBADF);
        }
        if !self.has_position() {
            return Err(Errno::ESPIPE);
        }
        self.file.read(caller, self, &mut position, sink)
    }

    /// Writes at `position`. The file's own position is unchanged.
    ///
    /// # Errors
    /// `EBADF` unless opened for writing, `ESPIPE` if the file has no position, and the errors of the operation of
    /// `file`.
    pub fn write_at(
        &self,
        caller: &dyn Caller,
        mut position: u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        if !self.is_writable() {
            return Err(Errno::EBADF);
        }
        if !self.has_position() {
            return Err(Errno::ESPIPE);
        }
        self.file.write(caller, self, &mut position, source)
    }

    /// Sets the position.
    ///
    /// # Errors
    /// `ERESTARTSYS` if a signal arrives while the calling thread waits for the mutex of the position.
    pub fn set_position(&self, caller: &dyn Caller, to: u64) -> Result<(), Errno> {
        self.with_position(caller, |position| {
            *position = to;
            Ok(())
        })
    }

    /// Changes the position as `lseek` does. Returns the new position.
    ///
    /// # Errors
    /// `EBADF` for `O_PATH`, `ESPIPE` if the file refuses `lseek`, `ERESTARTSYS`, and the errors of the operation of
    /// `file`.
    pub fn seek(&self, caller: &dyn Caller, offset: i64, whence: Whence) -> Result<u64, Errno> {
        if self.is_path() {
            return Err(Errno::EBADF);
        }
        match self.file.positions() {
            Positions::Kept => {}
            Positions::Ignored => return Ok(0),
            Positions::Refused => return Err(Errno::ESPIPE),
        }
        self.with_position(caller, |position| {
            *position = self.file.seek(caller, self, *position, offset, whence)?;
            Ok(*position)
        })
    }

    /// Calls `emit` with each directory entry, starting at the position, until `emit` returns `false` because the entry
    /// did not fit. Advances the position past the entries that fit.
    ///
    /// # Errors
    /// `EBADF` unless opened for reading, `ENOTDIR` unless it is a directory, `ERESTARTSYS` as for
    /// [`set_position`](Self::set_position), and the errors of the operation of `file`.
    pub fn entries(
        &self,
        caller: &dyn Caller,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        if !self.is_readable() {
            return Err(Errno::EBADF);
        }
        self.with_position(caller, |position| {
            self.file.entries(caller, self, position, emit)
        })
    }

    /// Returns what a mapping of the file maps.
    ///
    /// # Errors
    /// `EBADF` for `O_PATH`, `ENODEV` if the file cannot be mapped.
    pub fn mapping(self: &Arc<Self>) -> Result<Mapping, Errno> {
        if self.is_path() {
            Err(Errno::EBADF)
        } else {
            self.file.mapping(self)
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.watches.forget();
        if let Some(vfs) = self.vfs {
            let locks = &self.inode().locks;
            locks.forget(self.holder(), &self.locked);
            vfs.open_files.remove(self.file.counted_as());
        }
    }
}
