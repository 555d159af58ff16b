//! An open file: what a descriptor stands for, shared by its duplicates.

use super::{
    attributes::Attributes,
    dentry::Dentry,
    dirents::DirectoryEntry,
    epoll::Watches,
    inode::{Body, Inode},
    locks::{Held, Holder},
    regular::describe_object,
    seek::{Whence, moved},
    socket::Remains,
    transfer::{Sink, Source},
    turn::Turn,
    used::Used,
};
use crate::{M, Memory, context::Context, errno::Errno, kernel::Kernel, wait::Queues};
use alloc::{boxed::Box, sync::Arc};
use core::{
    any::Any,
    fmt,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};
use linux_raw_sys::general as raw;
use memwright::object::{
    CollapseError, CollapseLimits, HugeView, Leaving, Left, Mappings, Object, ObjectError,
    ObjectIdentity, Put,
};
use memwright::{FolioOrders, PolicyId};
use memwright_table::{Frame, OutOfMemory, PageSize};

flags! {
    /// What could be done with a file without waiting: the bits of `poll`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Readiness: u32 {
        /// Reading returns at once.
        const READ = raw::POLLIN | raw::POLLRDNORM;
        /// Writing returns at once.
        const WRITE = raw::POLLOUT | raw::POLLWRNORM;
        /// There is priority data, or an event that is no data.
        const PRIORITY = raw::POLLPRI;
        /// Nobody will read what is written.
        const ERROR = raw::POLLERR;
        /// The other side is gone.
        const HANGUP = raw::POLLHUP;
        /// The other side will write no more.
        const READ_HANGUP = raw::POLLRDHUP;
    }
}

impl Readiness {
    /// Whether who wants these bits listens to the queue of readers. Errors and hang-ups, which
    /// everybody wants, wake that queue too.
    #[must_use]
    pub const fn concerns_reading(self) -> bool {
        !self.concerns_writing() || self.intersects(Self::READ.union(Self::READ_HANGUP))
    }

    /// Whether who wants these bits listens to the queue of writers.
    #[must_use]
    pub const fn concerns_writing(self) -> bool {
        self.intersects(Self::WRITE)
    }
}

/// What a file does with positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// It has one: `lseek`, `pread64` and `pwrite64` work.
    Kept,
    /// It has none, but `lseek` succeeds and does nothing (`noop_llseek` of Linux 7.2).
    Ignored,
    /// It has none.
    Refused,
}

/// What `splice` and `sendfile` can do with a file (`splice_read` and `splice_write` of Linux's `struct file_operations`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splices {
    /// Nothing.
    Neither,
    /// Read it.
    Reads,
    /// Write it.
    Writes,
    /// Read it and write it.
    Both,
}

impl Splices {
    /// It can be read.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Reads | Self::Both)
    }

    /// It can be written.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Writes | Self::Both)
    }
}

/// How a file is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// It is always ready, and `epoll` refuses it.
    Always,
    /// Its queues are woken when its readiness changes.
    Queues,
    /// Its readiness is found out by looking: the machine stands still meanwhile.
    Look,
}

/// What `mmap` of a file shows.
pub enum Mapping {
    /// Fresh zeroes: `/dev/zero`.
    Zeroes,
    /// The pages of an object.
    Object(Arc<dyn Object<M>>),
}

/// What lets the kind of a file be asked for; every type has it. The oldest compiler that this crate builds with does
/// not turn a `dyn File` into a `dyn Any` by itself.
pub trait AsAny: Any {
    /// The same value, its type to be found out.
    fn as_any(&self) -> &dyn Any;
}

impl<T: Any> AsAny for T {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What the end of a run counts open files as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum OpenKind {
    /// Named files of all kinds, those of `/proc`, devices.
    Named,
    /// Ends of pipes.
    Pipe,
    /// Sockets.
    Socket,
    /// `epoll_create1`.
    Epoll,
    /// `eventfd`.
    Event,
    /// `timerfd_create`.
    Timer,
    /// `signalfd`.
    Signal,
    /// `pidfd_open`.
    Process,
    /// `userfaultfd`.
    Userfault,
    /// `io_uring_setup`.
    Ring,
    /// `perf_event_open`.
    Performance,
}

impl OpenKind {
    /// All of them, in order, with what the audit calls them.
    pub const ALL: [(Self, &'static str); 11] = [
        (Self::Named, "files"),
        (Self::Pipe, "pipe ends"),
        (Self::Socket, "sockets"),
        (Self::Epoll, "epolls"),
        (Self::Event, "eventfds"),
        (Self::Timer, "timerfds"),
        (Self::Signal, "signalfds"),
        (Self::Process, "pidfds"),
        (Self::Userfault, "userfaultfds"),
        (Self::Ring, "io_urings"),
        (Self::Performance, "perf events"),
    ];
}

/// How many open files of each kind there are.
#[derive(Default)]
pub struct OpenCounts([AtomicU64; OpenKind::ALL.len()]);

impl OpenCounts {
    fn add(&self, kind: OpenKind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, kind: OpenKind) {
        self.0[kind as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// How many there are of all kinds.
    pub fn total(&self) -> u64 {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        counts.sum()
    }

    /// Kinds of which there are some, with how many.
    pub fn left(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        let named = OpenKind::ALL.iter().map(|(_, name)| *name);
        named.zip(counts).filter(|(_, count)| *count > 0)
    }
}

/// The operations of an open file. What a kind of file does not do keeps the answer given here.
pub trait File: Send + Sync + AsAny {
    /// Reads at `position` and moves it. Files without a position ignore it.
    ///
    /// # Errors
    /// `EINVAL` unless the file can be read.
    fn read(
        &self,
        context: &Context<'_>,
        open: &OpenFile,
        position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let _ = (context, open, position, sink);
        Err(Errno::EINVAL)
    }

    /// Writes at `position` and moves it. Files without a position ignore it.
    ///
    /// # Errors
    /// `EINVAL` unless the file can be written.
    fn write(
        &self,
        context: &Context<'_>,
        open: &OpenFile,
        position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let _ = (context, open, position, source);
        Err(Errno::EINVAL)
    }

    /// What becomes of positions.
    fn positions(&self) -> Positions {
        Positions::Kept
    }

    /// Where `lseek` would lead from `position`.
    ///
    /// # Errors
    /// `EINVAL`, `EOVERFLOW`, `ENXIO`.
    fn seek(
        &self,
        context: &Context<'_>,
        open: &OpenFile,
        position: u64,
        offset: i64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        let _ = (context, open);
        match whence {
            Whence::Start => moved(0, offset),
            Whence::Position => moved(position, offset),
            Whence::End | Whence::Data | Whence::Hole => Err(Errno::EINVAL),
        }
    }

    /// Hands out directory entries from `position` on until `emit` says that one did not fit.
    ///
    /// # Errors
    /// `ENOTDIR` unless it is a directory.
    fn entries(
        &self,
        context: &Context<'_>,
        open: &OpenFile,
        position: &mut u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let _ = (context, open, position, emit);
        Err(Errno::ENOTDIR)
    }

    /// What could be done now.
    fn readiness(&self, context: &Context<'_>, open: &OpenFile) -> Readiness {
        let _ = (context, open);
        Readiness::READ | Readiness::WRITE
    }

    /// How `poll` and its like wait for it.
    fn polling(&self) -> Polling {
        Polling::Always
    }

    /// The queues that are woken when what is `wanted` of [`Self::readiness`] changes.
    fn queues<'a>(&'a self, context: &'a Context<'_>, wanted: Readiness, queues: &mut Queues<'a>) {
        let _ = (context, wanted, queues);
    }

    /// Whether `splice` can read it, and whether it can write it; pipes apart.
    fn splices(&self) -> Splices {
        Splices::Neither
    }

    /// `ioctl`, apart from what concerns every descriptor.
    ///
    /// # Errors
    /// `ENOTTY` for an unknown command.
    fn control(
        &self,
        context: &Context<'_>,
        open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        let _ = (context, open, command, argument);
        Err(Errno::ENOTTY)
    }

    /// Writes the lines that `/proc/PID/fdinfo/N` shows of this kind of file.
    ///
    /// # Errors
    /// Those of `out`.
    fn describe(&self, context: &Context<'_>, out: &mut dyn fmt::Write) -> fmt::Result {
        let _ = (context, out);
        Ok(())
    }

    /// What the end of a run counts it as.
    fn counted_as(&self) -> OpenKind {
        OpenKind::Named
    }

    /// About how many bytes of kernel memory it holds.
    fn kernel_bytes(&self) -> u64 {
        /// An open file with its node and its name.
        const PLAIN: u64 = 512;
        PLAIN
    }

    /// Hands the open files that it holds over to `remains`, just before it is dropped. A kind of file that holds open
    /// files, or what holds some in turn, must do this: were they dropped with it, a program could nest files as deep as it
    /// likes and overflow the kernel's stack by closing the outermost.
    fn leave(&mut self, remains: &mut Remains) {
        let _ = remains;
    }

    /// What `mmap` shows.
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

/// An open file.
pub struct OpenFile {
    /// The name it was opened by.
    pub entry: Used,
    /// What it does.
    pub file: Box<dyn File>,
    flags: AtomicU32,
    position: AtomicU64,
    /// One thread at a time moves the position.
    turn: Turn,
    identity: u64,
    kernel: Option<&'static Kernel>,
    /// Locks of its own.
    pub locked: Held,
    /// The epolls that watch it.
    pub(super) watches: Watches,
}

/// Each open file has a number that no other ever has: it owns `flock` locks by it.
static NEXT_IDENTITY: AtomicU64 = AtomicU64::new(1);

impl OpenFile {
    /// An open file with these `O_` flags.
    #[must_use]
    pub fn new(
        kernel: Option<&'static Kernel>,
        entry: Arc<Dentry>,
        flags: u32,
        file: Box<dyn File>,
    ) -> Self {
        if let Some(kernel) = kernel {
            kernel.mounts.open.add(file.counted_as());
        }
        Self {
            entry: Used::new(entry),
            file,
            flags: AtomicU32::new(flags),
            position: AtomicU64::new(0),
            turn: Turn::new(),
            identity: NEXT_IDENTITY.fetch_add(1, Ordering::Relaxed),
            kernel,
            locked: Held::new(),
            watches: Watches::new(),
        }
    }

    /// A number that no other open file ever has.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// The node behind it.
    #[must_use]
    pub fn inode(&self) -> &Arc<Inode> {
        &self.entry.inode
    }

    /// The operations, if they are of this kind.
    #[must_use]
    pub fn as_kind<T: File>(&self) -> Option<&T> {
        (*self.file).as_any().downcast_ref()
    }

    /// The `O_` flags.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets the flags that can change after the opening.
    pub fn set_flags(&self, flags: u32) {
        let kept = self.flags() & !CHANGEABLE_FLAGS;
        self.flags
            .store(kept | flags & CHANGEABLE_FLAGS, Ordering::Relaxed);
    }

    /// Whether waiting is refused.
    #[must_use]
    pub fn is_nonblocking(&self) -> bool {
        self.flags() & raw::O_NONBLOCK != 0
    }

    /// Whether it was opened by `O_PATH`: it names a place and does nothing.
    #[must_use]
    pub fn is_path(&self) -> bool {
        self.flags() & raw::O_PATH != 0
    }

    /// Whether it was opened for reading.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let flags = self.flags();
        flags & raw::O_PATH == 0 && flags & raw::O_ACCMODE != raw::O_WRONLY
    }

    /// Whether it was opened for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        let flags = self.flags();
        flags & raw::O_PATH == 0 && matches!(flags & raw::O_ACCMODE, raw::O_WRONLY | raw::O_RDWR)
    }

    /// The owner of its `flock` lock.
    #[must_use]
    pub fn holder(&self) -> Holder {
        Holder::OpenFile(self.identity)
    }

    /// The position.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// What `fstat` reports.
    #[must_use]
    pub fn attributes(&self, context: &Context<'_>) -> Attributes {
        self.inode().attributes(Some(context))
    }

    /// Whether the file has a position: `pread64` and `pwrite64` work.
    #[must_use]
    pub fn has_position(&self) -> bool {
        self.file.positions() == Positions::Kept
    }

    /// Calls `act` with the position and stores what it becomes.
    fn with_position<T>(
        &self,
        context: &Context<'_>,
        act: impl FnOnce(&mut u64) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if !self.has_position() {
            return act(&mut 0);
        }
        let turn = self.turn.take(context)?;
        let mut position = self.position();
        let result = act(&mut position);
        self.position.store(position, Ordering::Relaxed);
        drop(turn);
        result
    }

    /// Reads at the position.
    ///
    /// # Errors
    /// `EBADF` unless opened for reading, and those of the file.
    pub fn read(&self, context: &Context<'_>, sink: &mut Sink<'_>) -> Result<usize, Errno> {
        if !self.is_readable() {
            return Err(Errno::EBADF);
        }
        self.with_position(context, |position| {
            self.file.read(context, self, position, sink)
        })
    }

    /// Writes at the position, or at the end with `O_APPEND`.
    ///
    /// # Errors
    /// `EBADF` unless opened for writing, and those of the file.
    pub fn write(&self, context: &Context<'_>, source: &mut Source<'_>) -> Result<usize, Errno> {
        if !self.is_writable() {
            return Err(Errno::EBADF);
        }
        self.with_position(context, |position| {
            self.file.write(context, self, position, source)
        })
    }

    /// Reads at `position` and leaves the file's own alone.
    ///
    /// # Errors
    /// `EBADF`, `ESPIPE`, and those of the file.
    pub fn read_at(
        &self,
        context: &Context<'_>,
        mut position: u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        if !self.is_readable() {
            return Err(Errno::EBADF);
        }
        if !self.has_position() {
            return Err(Errno::ESPIPE);
        }
        self.file.read(context, self, &mut position, sink)
    }

    /// Writes at `position` and leaves the file's own alone.
    ///
    /// # Errors
    /// `EBADF`, `ESPIPE`, and those of the file.
    pub fn write_at(
        &self,
        context: &Context<'_>,
        mut position: u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        if !self.is_writable() {
            return Err(Errno::EBADF);
        }
        if !self.has_position() {
            return Err(Errno::ESPIPE);
        }
        self.file.write(context, self, &mut position, source)
    }

    /// Sets the position.
    ///
    /// # Errors
    /// `ERESTARTSYS` while somebody else uses it.
    pub fn set_position(&self, context: &Context<'_>, to: u64) -> Result<(), Errno> {
        self.with_position(context, |position| {
            *position = to;
            Ok(())
        })
    }

    /// Moves the position and returns it.
    ///
    /// # Errors
    /// `ESPIPE`, and those of the file.
    pub fn seek(&self, context: &Context<'_>, offset: i64, whence: Whence) -> Result<u64, Errno> {
        if self.is_path() {
            return Err(Errno::EBADF);
        }
        match self.file.positions() {
            Positions::Kept => {}
            Positions::Ignored => return Ok(0),
            Positions::Refused => return Err(Errno::ESPIPE),
        }
        self.with_position(context, |position| {
            *position = self.file.seek(context, self, *position, offset, whence)?;
            Ok(*position)
        })
    }

    /// Hands out directory entries from the position on.
    ///
    /// # Errors
    /// `EBADF`, `ENOTDIR`, and those of the file.
    pub fn entries(
        &self,
        context: &Context<'_>,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        if !self.is_readable() {
            return Err(Errno::EBADF);
        }
        self.with_position(context, |position| {
            self.file.entries(context, self, position, emit)
        })
    }

    /// What `mmap` shows.
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
        if let Some(kernel) = self.kernel {
            let locks = &self.inode().locks;
            locks.forget(kernel, self.holder(), &self.locked);
            kernel.mounts.open.remove(self.file.counted_as());
        }
    }
}

/// An area of a mapped file holds the open file, as Linux's does: two areas merge only if they
/// come from the same opening, and the file stays open while it is mapped.
impl Object<M> for OpenFile {
    fn frame(&self, memory: &Memory, index: u64, write: bool) -> Result<Frame, ObjectError> {
        self.pages()?.frame(memory, index, write)
    }

    fn cached(&self, memory: &Memory, index: u64) -> Option<Frame> {
        self.pages().ok()?.cached(memory, index)
    }

    fn holds(&self, memory: &Memory, index: u64) -> bool {
        self.pages().is_ok_and(|pages| pages.holds(memory, index))
    }

    fn find(&self, memory: &Memory, index: u64) -> Result<Option<Frame>, ObjectError> {
        self.pages()?.find(memory, index)
    }

    fn swapped(&self, first: u64, pages: u64) -> u64 {
        self.pages()
            .map_or(0, |object| object.swapped(first, pages))
    }

    fn bring_in(&self, memory: &Memory, index: u64, most: u64) -> Result<u64, ObjectError> {
        self.pages()?.bring_in(memory, index, most)
    }

    fn asked_for(&self, first: u64, pages: u64) -> u64 {
        self.pages()
            .map_or(0, |object| object.asked_for(first, pages))
    }

    fn send_out(&self, memory: &Memory, leaving: &Leaving) -> Left {
        let pages = self.pages();
        pages.map_or(Left::default(), |pages| pages.send_out(memory, leaving))
    }

    fn cached_run(&self, memory: &Memory, first: u64, frames: &mut [Option<Frame>]) {
        match self.pages() {
            Ok(pages) => pages.cached_run(memory, first, frames),
            Err(_) => frames.fill(None),
        }
    }

    fn contains(&self, index: u64) -> bool {
        self.pages().is_ok_and(|pages| pages.contains(index))
    }

    fn put(&self, memory: &Memory, index: u64, frame: Frame) -> Result<Put, ObjectError> {
        self.pages()?.put(memory, index, frame)
    }

    fn identity(&self) -> ObjectIdentity {
        let inode = self.inode();
        ObjectIdentity {
            device: inode.file_system.device.encode(),
            inode: inode.number,
        }
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        describe_object(&self.entry, out)
    }

    fn mappings(&self) -> &Mappings<M> {
        match &self.inode().body {
            Body::Regular(regular) => regular.pages().mappings(),
            _ => unreachable!("only regular files hand themselves out as objects"),
        }
    }

    fn remove(&self, memory: &Memory, first: u64, pages: u64) -> Result<bool, ObjectError> {
        self.pages()?.remove(memory, first, pages)
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn folio(&self, memory: &Memory, first: u64, asked: bool) -> Option<Frame> {
        self.pages().ok()?.folio(memory, first, asked)
    }

    fn part(&self, first: u64) {
        if let Ok(pages) = self.pages() {
            pages.part(first);
        }
    }

    fn fill_folio(
        &self,
        memory: &Memory,
        index: u64,
        fitting: FolioOrders,
        asked: bool,
    ) -> Option<u8> {
        self.pages().ok()?.fill_folio(memory, index, fitting, asked)
    }

    fn largest_folio(&self, memory: &Memory) -> Option<u8> {
        self.pages().ok()?.largest_folio(memory)
    }

    fn may_be_huge(&self, memory: &Memory, asked: bool) -> bool {
        let pages = self.pages();
        pages.is_ok_and(|pages| pages.may_be_huge(memory, asked))
    }

    fn collapse(&self, first: u64, limits: CollapseLimits) -> Result<(), CollapseError> {
        let pages = self.pages().map_err(|_| CollapseError::NotEligible)?;
        pages.collapse(first, limits)
    }

    fn place(&self, first: u64, pages: u64, policy: PolicyId) -> Result<bool, OutOfMemory> {
        self.pages()
            .map_or(Ok(false), |own| own.place(first, pages, policy))
    }

    fn placement(&self, index: u64) -> Option<PolicyId> {
        self.pages().ok()?.placement(index)
    }

    fn exchange(
        &self,
        memory: &Memory,
        index: u64,
        size: PageSize,
        exchange: &mut dyn FnMut(Frame) -> Option<Frame>,
    ) {
        if let Ok(pages) = self.pages() {
            pages.exchange(memory, index, size, exchange);
        }
    }

    fn huge(&self) -> Option<HugeView<'_, M>> {
        self.pages().ok()?.huge()
    }
}

impl OpenFile {
    fn pages(&self) -> Result<&dyn Object<M>, ObjectError> {
        match &self.inode().body {
            Body::Regular(regular) => Ok(regular.pages()),
            _ => Err(ObjectError::Io),
        }
    }
}
