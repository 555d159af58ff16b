//! Open file descriptions: what a descriptor refers to, shared by its duplicates.

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

/// What `mmap` of a file maps.
pub enum Mapping {
    /// Zero-filled anonymous memory: `/dev/zero`.
    Zeroes,
    /// The pages of an object.
    Object(Arc<dyn Object<M>>),
}

/// Gives access to the concrete type of a file; implemented for every type. The oldest supported compiler cannot upcast
/// `dyn File` to `dyn Any`.
pub trait AsAny: Any {
    /// Returns the value as `Any`, for downcasts.
    fn as_any(&self) -> &dyn Any;
}

impl<T: Any> AsAny for T {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The operations of an open file. A file does not support an operation whose default implementation it keeps.
pub trait File: Send + Sync + AsAny {
    /// Reads at `position` and advances `position`. Files without a position ignore it. Returns the number of bytes
    /// read.
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

    /// Writes at `position` and advances `position`. Files without a position ignore it. Returns the number of bytes
    /// written.
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

    /// Returns how it treats positions.
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

    /// Passes the directory entries from `position` on to `emit`, and advances `position`. Stops when `emit` returns
    /// `false` because an entry did not fit.
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

    /// Returns how `poll` and similar calls can wait for the file.
    fn polling(&self) -> Polling {
        Polling::Always
    }

    /// Adds the queues that are woken when the `wanted` bits of [`Self::readiness`] change.
    fn queues<'a>(&'a self, caller: &'a dyn Caller, wanted: Readiness, queues: &mut Queues<'a>) {
        let _ = (caller, wanted, queues);
    }

    /// Returns whether `splice` can read or write the file. Pipes are handled separately.
    fn splices(&self) -> Splices {
        Splices::Neither
    }

    /// Handles an `ioctl` command that is not one of those that every descriptor supports.
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
    /// Those of `out`.
    fn describe(&self, caller: &dyn Caller, out: &mut dyn fmt::Write) -> fmt::Result {
        let _ = (caller, out);
        Ok(())
    }

    /// Returns the class in which the open file is counted.
    fn counted_as(&self) -> OpenKind {
        OpenKind::Named
    }

    /// Returns an estimate of the kernel memory that the file holds, in bytes.
    fn kernel_bytes(&self) -> u64 {
        /// An open file with its inode and directory entry.
        const PLAIN: u64 = 512;
        PLAIN
    }

    /// Returns what `mmap` maps.
    ///
    /// # Errors
    /// `ENODEV` unless the file can be mapped.
    fn mapping(&self, open: &Arc<OpenFile>) -> Result<Mapping, Errno> {
        let _ = open;
        Err(Errno::ENODEV)
    }
}

/// Flags that `fcntl(F_SETFL)` changes.
pub const CHANGEABLE_FLAGS: u32 =
    raw::O_APPEND | raw::O_NONBLOCK | raw::O_DIRECT | raw::O_NOATIME | raw::FASYNC;

/// An open file description.
pub struct OpenFile {
    /// The directory entry through which it was opened.
    pub entry: Used<Dentry>,
    /// Its operations.
    pub file: Box<dyn File>,
    flags: AtomicU32,
    position: AtomicU64,
    /// Serialises threads that use or move the position.
    turn: Turn,
    identity: u64,
    vfs: Option<&'static Vfs>,
    /// The number of locks that the open file owns.
    pub locked: Held,
    /// The epolls that watch it.
    pub(in crate::fs) watches: Watches<Self>,
    /// Its owner.
    pub owner: OwnerSlot,
}

/// The next identity. Identities are never reused: an open file owns `flock` locks by its identity.
static NEXT_IDENTITY: AtomicU64 = AtomicU64::new(1);

impl OpenFile {
    /// Creates an open file for the inode of `entry`, with these `O_` flags. If `vfs` is given, the open file is
    /// counted there.
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

    /// Sets the flags in [`CHANGEABLE_FLAGS`] as in `flags`, and keeps the others.
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

    /// Returns whether it was opened with `O_PATH`: it refers to a location and supports no I/O.
    #[must_use]
    pub fn is_path(&self) -> bool {
        self.flags() & raw::O_PATH != 0
    }

    /// Returns whether it was opened for reading.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let flags = self.flags();
        flags & raw::O_PATH == 0 && flags & raw::O_ACCMODE != raw::O_WRONLY
    }

    /// Returns whether it was opened for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        let flags = self.flags();
        flags & raw::O_PATH == 0 && matches!(flags & raw::O_ACCMODE, raw::O_WRONLY | raw::O_RDWR)
    }

    /// Returns the lock owner that stands for this open file, for `flock` and open file description locks.
    #[must_use]
    pub fn holder(&self) -> Holder {
        Holder::OpenFile(self.identity)
    }

    /// Returns the position.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Returns what `fstat` reports.
    #[must_use]
    pub fn attributes(&self, caller: &dyn Caller) -> Attributes {
        self.inode().attributes(Some(caller))
    }

    /// Returns whether the file has a position, so that `pread64` and `pwrite64` work.
    #[must_use]
    pub fn has_position(&self) -> bool {
        self.file.positions() == Positions::Kept
    }

    /// Calls `act` with the position and stores the position that `act` leaves. A sleeping mutex serialises this with
    /// other threads. For a file without a position, calls `act` with zero and stores nothing.
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
    /// `EBADF` unless opened for reading, and those of the file.
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
    /// `EBADF` unless opened for writing, and those of the file.
    pub fn write(&self, caller: &dyn Caller, source: &mut Source<'_>) -> Result<usize, Errno> {
        if !self.is_writable() {
            return Err(Errno::EBADF);
        }
        self.with_position(caller, |position| {
            self.file.write(caller, self, position, source)
        })
    }

    /// Reads at `position`, without using the file's own position.
    ///
    /// # Errors
    /// `EBADF` unless opened for reading, `ESPIPE` if the file has no position, and those of the file.
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

    /// Writes at `position`, without using the file's own position.
    ///
    /// # Errors
    /// `EBADF` unless opened for writing, `ESPIPE` if the file has no position, and those of the file.
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
    /// `ERESTARTSYS` if a signal arrives while this thread waits for another thread that uses the position.
    pub fn set_position(&self, caller: &dyn Caller, to: u64) -> Result<(), Errno> {
        self.with_position(caller, |position| {
            *position = to;
            Ok(())
        })
    }

    /// Moves the position and returns the new position.
    ///
    /// # Errors
    /// `EBADF` for `O_PATH`, `ESPIPE` if the file refuses `lseek`, `ERESTARTSYS`, and those of the file.
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

    /// Passes directory entries from the position on to `emit`.
    ///
    /// # Errors
    /// `EBADF` unless opened for reading, `ENOTDIR` unless it is a directory, and those of the file.
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

    /// Returns what `mmap` maps.
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
