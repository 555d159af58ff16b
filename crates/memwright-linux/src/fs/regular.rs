//! Regular files: bytes in frames.

use super::{
    attributes::Moment,
    dentry::Dentry,
    inode::{Body, Inode},
    open_file::{File, Mapping, OpenFile},
    seek::{SIZE_MAX, Whence, moved, readable, storable},
    tmpfs::Tmpfs,
    transfer::{Sink, Source, with_buffer},
    turn::{Turn, TurnGuard},
};
use crate::{M, Memory, context::Context, errno::Errno, kernel::Kernel};
use alloc::{boxed::Box, sync::Arc};
use core::{
    fmt,
    sync::atomic::{AtomicI64, AtomicU32, Ordering},
};
use linux_raw_sys::general as raw;
use memwright::SharedSetting;
use memwright::object::{HUGE_BYTES, HugeFile, Object, ObjectError, ObjectIdentity, Shmem};
use memwright_table::{Frame, FrameKind, PAGE_SIZE};

flags! {
    /// What a file of `memfd_create` no longer allows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Seals: u32 {
        /// More seals.
        const SEAL = raw::F_SEAL_SEAL;
        /// A smaller size.
        const SHRINK = raw::F_SEAL_SHRINK;
        /// A larger size.
        const GROW = raw::F_SEAL_GROW;
        /// Writing.
        const WRITE = raw::F_SEAL_WRITE;
        /// Writing, but for mappings that exist.
        const FUTURE_WRITE = raw::F_SEAL_FUTURE_WRITE;
        /// A change of the execute bits.
        const EXEC = raw::F_SEAL_EXEC;
    }
}

/// Where the bytes are.
enum Contents {
    /// In pages of 4 KiB.
    Small(Shmem<M>),
    /// In huge pages of the pool: only mappings write them.
    Huge(Box<HugeFile<M>>),
}

/// The contents of a regular file.
pub struct Regular {
    pages: Contents,
    seals: AtomicU32,
    /// Openings for writing, or minus the number of programs that run from the file.
    writers: AtomicI64,
    /// Shared mappings that may be written and are being made, or -1 while a seal against writing is added.
    mapping: AtomicI64,
    /// Writes and changes of size go one at a time.
    turn: Turn,
    /// Made by `memfd_secret`: only mappings reach the bytes.
    secret: bool,
    /// Of no mounted file system, or of one with a size of its own: no part of the half of memory that all others may take.
    apart: bool,
}

impl Regular {
    /// An empty file.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(memory: &Arc<Memory>, seals: Seals) -> Result<Self, Errno> {
        Ok(Self::with(Contents::Small(no_pages(memory)?), seals))
    }

    /// An empty file whose pages never leave memory: one that stands for a file of a disk, from which it could be read
    /// again.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn staying(memory: &Arc<Memory>) -> Result<Self, Errno> {
        let pages = no_pages(memory)?.staying();
        Ok(Self::with(Contents::Small(pages), Seals::SEAL))
    }

    /// An empty file of no mounted file system: it has huge pages where shared memory has them.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn nameless(memory: &Arc<Memory>, seals: Seals) -> Result<Self, Errno> {
        let pages = no_pages(memory)?.with_huge_pages(SharedSetting::File);
        Ok(Self {
            apart: true,
            ..Self::with(Contents::Small(pages), seals)
        })
    }

    /// An empty file of a tmpfs that a program mounted.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn of_mount(memory: &Arc<Memory>, tmpfs: &Tmpfs) -> Result<Self, Errno> {
        let room = tmpfs.room.clone();
        let pages = Shmem::in_room(memory.clone(), 0, ObjectIdentity::default(), room);
        let pages = Contents::Small(pages.map_err(|_| Errno::ENOMEM)?);
        Ok(Self {
            apart: true,
            ..Self::with(pages, Seals::SEAL)
        })
    }

    /// A write of the bytes `start..end` begins: pages that it fills may come together. Returns from where on to ask again.
    fn prepare(&self, start: u64, end: u64) -> u64 {
        match &self.pages {
            Contents::Small(pages) => pages.prepare_write(start, end),
            Contents::Huge(_) => end,
        }
    }

    /// An empty file of `memfd_secret`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn secret(memory: &Arc<Memory>) -> Result<Self, Errno> {
        Ok(Self {
            secret: true,
            ..Self::staying(memory)?
        })
    }

    /// An empty file of huge pages.
    #[must_use]
    pub fn huge(memory: &Arc<Memory>, seals: Seals) -> Self {
        let pages = HugeFile::new(memory.clone(), 0, ObjectIdentity::default(), "");
        Self::with(Contents::Huge(Box::new(pages)), seals)
    }

    fn with(pages: Contents, seals: Seals) -> Self {
        Self {
            pages,
            seals: AtomicU32::new(seals.bits()),
            writers: AtomicI64::new(0),
            mapping: AtomicI64::new(0),
            turn: Turn::new(),
            secret: false,
            apart: false,
        }
    }

    /// Whether only mappings reach the bytes.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.secret
    }

    /// The pages.
    #[must_use]
    pub fn pages(&self) -> &dyn Object<M> {
        match &self.pages {
            Contents::Small(pages) => pages,
            Contents::Huge(pages) => &**pages,
        }
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.pages {
            Contents::Small(pages) => pages.size(),
            Contents::Huge(pages) => pages.size(),
        }
    }

    /// Memory and swap used, in units of 512 bytes.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match &self.pages {
            Contents::Small(pages) => {
                (pages.resident() + pages.pages_in_swap()) * (PAGE_SIZE as u64 / 512)
            }
            Contents::Huge(pages) => pages.resident() * (HUGE_BYTES / 512),
        }
    }

    /// Pages of 4 KiB in memory.
    fn resident(&self) -> u64 {
        match &self.pages {
            Contents::Small(pages) => pages.resident(),
            Contents::Huge(pages) => pages.resident() * (HUGE_BYTES / PAGE_SIZE as u64),
        }
    }

    /// The frame of page `index`, with one reference; made if there is none and `create` asks for it.
    fn frame_for(&self, index: u64, create: bool) -> Result<Option<Frame>, ObjectError> {
        match &self.pages {
            Contents::Small(pages) => pages.frame_for(index, create),
            Contents::Huge(pages) => pages.frame_at(index),
        }
    }

    /// Makes the bytes `start..end` resident; the caller has the turn.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(crate) fn allocate(&self, kernel: &Kernel, start: u64, end: u64) -> Result<(), Errno> {
        match &self.pages {
            Contents::Small(pages) => {
                self.check_rooms(&kernel.memory, start, end)?;
                let made = kernel.with_relief(|| pages.allocate(start, end));
                made.map_err(|_| Errno::ENOSPC)
            }
            Contents::Huge(pages) => pages.allocate(start, end).map_err(object_errno),
        }
    }

    /// Somebody is about to read or store that many bytes: the group of the first who stores pays for the file, and
    /// pages come to be in memory by it.
    fn charge(&self, context: &Context<'_>, bytes: usize, stores: bool) {
        let group = context.process().cgroup();
        if let (Contents::Small(pages), Some(group)) = (&self.pages, group) {
            if stores {
                pages.charge_to(group.payer);
            }
            group.note_called(bytes.div_ceil(PAGE_SIZE) as u64 + 1);
        }
    }

    /// Raises the size to `size` if it is smaller.
    pub fn grow_to(&self, size: u64) {
        match &self.pages {
            Contents::Small(pages) => pages.grow_to(size),
            Contents::Huge(pages) => pages.grow_to(size),
        }
    }

    /// Makes the bytes `start..end` zero and gives up the pages that lie inside.
    ///
    /// # Errors
    /// `ENOMEM` or `EIO` if a page of which a part becomes zero is in swap and stays there.
    pub(crate) fn punch(&self, kernel: &Kernel, start: u64, end: u64) -> Result<(), Errno> {
        match &self.pages {
            Contents::Small(pages) => {
                let punched = kernel.with_relief(|| pages.punch(start, end));
                punched.map_err(read_errno)?;
            }
            Contents::Huge(pages) => pages.punch(start, end),
        }
        Ok(())
    }

    /// The first byte from `offset` on that is in memory, or in a hole. A file of huge pages says nothing of its holes.
    fn find(&self, offset: u64, hole: bool) -> Option<u64> {
        match &self.pages {
            Contents::Small(pages) => pages.seek(offset, hole),
            Contents::Huge(pages) => {
                let size = pages.size();
                (offset < size).then_some(if hole { size } else { offset })
            }
        }
    }

    /// How many of the pages `first..end` are in memory, and how many in swap.
    #[must_use]
    pub fn cached(&self, first: u64, end: u64) -> (u64, u64) {
        const PAGE: u64 = PAGE_SIZE as u64;
        let end = end.min(self.size().div_ceil(PAGE));
        let (mut stored, mut swapped, mut next) = (0_u64, 0, first);
        while next < end {
            let Some(data) = self.find(next * PAGE, false) else {
                break;
            };
            let from = data / PAGE;
            if from >= end {
                break;
            }
            let hole = self
                .find(data, true)
                .map_or(end, |hole| hole.div_ceil(PAGE));
            // What was cut off meanwhile leaves nothing between the two.
            next = hole.clamp(from + 1, end);
            stored += next - from;
            swapped += self.pages().swapped(from, next - from);
        }
        (stored.saturating_sub(swapped), swapped)
    }

    /// The seals.
    #[must_use]
    pub fn seals(&self) -> Seals {
        Seals::from_bits_retain(self.seals.load(Ordering::Relaxed))
    }

    /// Adds seals; the caller has the turn. `runs` says that the file may be executed: one that no longer gains or loses
    /// that right is written no more (Linux 7.3 `mm/memfd.c`, `memfd_add_seals`).
    ///
    /// # Errors
    /// `EPERM` once sealed against it; `EBUSY` for a seal against writing while a shared mapping may be written, even if
    /// it is read-only now, or a page is pinned.
    pub fn add_seals(&self, memory: &Memory, more: Seals, runs: bool) -> Result<(), Errno> {
        let now = self.seals();
        if now.contains(Seals::SEAL) {
            return Err(Errno::EPERM);
        }
        let more = implied_seals(more, runs);
        if !more.contains(Seals::WRITE) || now.contains(Seals::WRITE) {
            self.seals.fetch_or(more.bits(), Ordering::SeqCst);
            return Ok(());
        }
        let begun = (self.mapping).compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst);
        begun.map_err(|_| Errno::EBUSY)?;
        let busy = self.pages().mappings().may_be_written() || self.has_pinned_page(memory);
        if !busy {
            self.seals.fetch_or(more.bits(), Ordering::SeqCst);
        }
        self.mapping.store(0, Ordering::SeqCst);
        if busy { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// Whether a page may be written by what has pinned it, though no mapping shows it.
    fn has_pinned_page(&self, memory: &Memory) -> bool {
        const PAGE: u64 = PAGE_SIZE as u64;
        const TOGETHER: usize = 64;
        let frames = memory.frames();
        let (mut offset, size) = (0, self.size());
        while let Some(data) = self.find(offset, false).filter(|&data| data < size) {
            let first = data / PAGE;
            let mut run = [None; TOGETHER];
            self.pages().cached_run(memory, first, &mut run);
            let held = run.map(|frame| frame.map(|frame| frames.adopt(frame)));
            let mut there = held.iter().flatten();
            if there.any(|frame| frames.pins(frame.frame()) > 0) {
                return true;
            }
            offset = (first + TOGETHER as u64) * PAGE;
        }
        false
    }

    /// Counts a shared mapping that may be written and is about to be made: no seal against writing is added meanwhile.
    ///
    /// # Errors
    /// `EPERM` while such a seal is being added.
    fn begin_mapping(&self) -> Result<(), Errno> {
        self.mapping
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
                (count >= 0).then_some(count + 1)
            })
            .map(|_| ())
            .map_err(|_| Errno::EPERM)
    }

    /// Counts an opening for writing.
    ///
    /// # Errors
    /// `ETXTBSY` while a program runs from the file.
    pub fn begin_writing(&self) -> Result<(), Errno> {
        self.writers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count >= 0).then_some(count + 1)
            })
            .map(|_| ())
            .map_err(|_| Errno::ETXTBSY)
    }

    /// The reverse of [`Self::begin_writing`].
    pub fn end_writing(&self) {
        self.writers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a program that runs from the file.
    ///
    /// # Errors
    /// `ETXTBSY` while the file is open for writing.
    pub fn begin_executing(&self) -> Result<(), Errno> {
        self.writers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count <= 0).then_some(count - 1)
            })
            .map(|_| ())
            .map_err(|_| Errno::ETXTBSY)
    }

    /// The reverse of [`Self::begin_executing`].
    pub fn end_executing(&self) {
        self.writers.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until no one else writes or changes the size.
    ///
    /// # Errors
    /// `ERESTARTSYS` when a signal came first.
    pub fn take_turn(&self, context: &Context<'_>) -> Result<TurnGuard<'_>, Errno> {
        self.turn.take(context)
    }

    /// Sets the size; the caller has the turn.
    ///
    /// # Errors
    /// `EPERM` if a seal forbids it, `EFBIG` beyond the largest size, `EINVAL` for a part of a huge page, `ENOMEM` or
    /// `EIO` if the page that is cut is in swap and stays there.
    pub(crate) fn set_size(&self, kernel: &Kernel, size: u64) -> Result<(), Errno> {
        let now = self.size();
        let forbidden = if size < now {
            Seals::SHRINK
        } else if size > now {
            Seals::GROW
        } else {
            Seals::empty()
        };
        if self.seals().intersects(forbidden) {
            return Err(Errno::EPERM);
        }
        if size > SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        match &self.pages {
            Contents::Small(pages) => {
                let set = kernel.with_relief(|| pages.set_size(size));
                set.map_err(read_errno)?;
            }
            Contents::Huge(_) if size % HUGE_BYTES != 0 => return Err(Errno::EINVAL),
            Contents::Huge(pages) => pages.set_size(size),
        }
        Ok(())
    }

    /// Checks that the page at `offset` is there or may be made: files of mounted file systems take half of memory at
    /// most, as a tmpfs of default size does, but for those with a size of their own.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn check_room(&self, memory: &Memory, offset: u64) -> Result<(), Errno> {
        let frames = memory.frames();
        let used = frames.used_by(FrameKind::Object);
        if self.apart || used < frames.total() / 2 || self.find(offset, false) == Some(offset) {
            return Ok(());
        }
        Err(Errno::ENOSPC)
    }

    /// Checks that the pages of the bytes `start..end` may be made, as [`Self::check_room`]; what
    /// the file has already may lie among them.
    ///
    /// # Errors
    /// `ENOSPC`.
    fn check_rooms(&self, memory: &Memory, start: u64, end: u64) -> Result<(), Errno> {
        let frames = memory.frames();
        let page = PAGE_SIZE as u64;
        let others = frames
            .used_by(FrameKind::Object)
            .saturating_sub(self.resident());
        let wanted = end.div_ceil(page) - start / page;
        if !self.apart && others + wanted > frames.total() / 2 {
            Err(Errno::ENOSPC)
        } else {
            Ok(())
        }
    }

    /// Reads kernel-side, without position and times: for loading programs and filling files.
    ///
    /// # Errors
    /// `ENOMEM` or `EIO` if a page is in swap and stays there.
    pub(crate) fn read_at(
        &self,
        kernel: &Kernel,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, Errno> {
        match &self.pages {
            Contents::Small(pages) => {
                let read = kernel.with_relief(|| pages.read_at(offset, bytes));
                read.map_err(read_errno)
            }
            Contents::Huge(_) => Ok(0),
        }
    }

    /// Writes kernel-side, without position and times.
    ///
    /// # Errors
    /// `ENOSPC` when no frame is free; `EIO` if a page is in swap and cannot be read; `EINVAL` for huge pages.
    pub(crate) fn write_at(
        &self,
        kernel: &Kernel,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        match &self.pages {
            Contents::Small(pages) => {
                let written = kernel.with_relief(|| pages.write_at(offset, bytes));
                written.map_err(object_errno)
            }
            Contents::Huge(_) => Err(Errno::EINVAL),
        }
    }
}

/// The seals that come with `more`.
fn implied_seals(more: Seals, runs: bool) -> Seals {
    if more.contains(Seals::EXEC) && runs {
        more | Seals::SHRINK | Seals::GROW | Seals::WRITE | Seals::FUTURE_WRITE
    } else {
        more
    }
}

/// While it is held no seal against writing is added to the file: a shared mapping that may be written is being made.
pub struct WritableMapping(Arc<OpenFile>);

impl WritableMapping {
    /// Begins to map `open`, if it is a regular file.
    ///
    /// # Errors
    /// `EPERM` while a seal against writing is being added.
    pub fn begin(open: &Arc<OpenFile>) -> Result<Option<Self>, Errno> {
        let Some(regular) = open.inode().regular() else {
            return Ok(None);
        };
        regular.begin_mapping()?;
        Ok(Some(Self(open.clone())))
    }
}

impl Drop for WritableMapping {
    fn drop(&mut self) {
        if let Some(regular) = self.0.inode().regular() {
            regular.mapping.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The operations of an open regular file.
pub struct RegularFile {
    inode: Arc<Inode>,
    writes: bool,
}

impl RegularFile {
    /// Operations on `inode`, which is a regular file.
    ///
    /// # Errors
    /// `ETXTBSY` when opened for writing while a program runs from it.
    pub fn new(inode: &Arc<Inode>, writes: bool) -> Result<Self, Errno> {
        let file = Self {
            inode: inode.clone(),
            writes: false,
        };
        if writes {
            file.regular()?.begin_writing()?;
        }
        Ok(Self {
            writes,
            inode: inode.clone(),
        })
    }

    /// The contents.
    ///
    /// # Errors
    /// `EINVAL` if the node is no regular file.
    pub fn regular(&self) -> Result<&Regular, Errno> {
        match &self.inode.body {
            Body::Regular(regular) => Ok(regular),
            Body::Directory(_)
            | Body::Symlink(_)
            | Body::Character(_)
            | Body::Block(_)
            | Body::Fifo(_)
            | Body::Socket
            | Body::Console(_)
            | Body::Anonymous
            | Body::Proc(_) => Err(Errno::EINVAL),
        }
    }
}

impl Drop for RegularFile {
    fn drop(&mut self) {
        if self.writes {
            if let Ok(regular) = self.regular() {
                regular.end_writing();
            }
        }
    }
}

impl RegularFile {
    /// Stores up to `wanted` bytes; says how many were stored and what stopped it.
    fn store(
        &self,
        context: &Context<'_>,
        position: &mut u64,
        source: &mut Source<'_>,
        wanted: usize,
    ) -> Result<(usize, Result<(), Errno>), Errno> {
        let regular = self.regular()?;
        let kernel = context.kernel;
        let memory = &kernel.memory;
        regular.charge(context, wanted, true);
        let mut done = 0;
        let mut prepared = *position;
        while done < wanted {
            if *position >= prepared {
                prepared = regular.prepare(*position, *position + (wanted - done) as u64);
            }
            let within = (*position % PAGE_SIZE as u64) as usize;
            let step = (PAGE_SIZE - within).min(wanted - done);
            let stored = regular.check_room(memory, *position).and_then(|()| {
                // What lies within the size goes straight to its page; a file grows only by bytes
                // that have arrived.
                if *position + step as u64 > regular.size() {
                    return with_buffer(step, |buffer| {
                        let count = source.take(buffer)?;
                        regular.write_at(kernel, *position, &buffer[..count])
                    });
                }
                let index = *position / PAGE_SIZE as u64;
                let frame = kernel.with_relief(|| regular.frame_for(index, true));
                let frame = frame.map_err(object_errno)?;
                let frame = memory.frames().adopt(frame.ok_or(Errno::ENOSPC)?);
                source.take_frame(memory, frame.frame(), within, step)
            });
            match stored {
                Ok(0) => break,
                Ok(count) => {
                    *position += count as u64;
                    done += count;
                }
                Err(error) => return Ok((done, Err(error))),
            }
        }
        Ok((done, Ok(())))
    }
}

impl File for RegularFile {
    fn read(
        &self,
        context: &Context<'_>,
        _open: &OpenFile,
        position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let pages = self.regular()?;
        let memory = &context.kernel.memory;
        let wanted = readable(*position, sink.left(), pages.size());
        pages.charge(context, wanted, false);
        let mut done = 0;
        while done < wanted {
            let within = (*position % PAGE_SIZE as u64) as usize;
            let step = (PAGE_SIZE - within).min(wanted - done);
            let index = *position / PAGE_SIZE as u64;
            let found = context.kernel.with_relief(|| pages.frame_for(index, false));
            let put = match found {
                Ok(Some(frame)) => {
                    // The reference keeps the page while it is copied, even if the file shrinks.
                    let frame = memory.frames().adopt(frame);
                    sink.put_frame(memory, frame.frame(), within, step)
                }
                Ok(None) => sink.put_zeroes(step),
                // The file shrank meanwhile.
                Err(ObjectError::BeyondEnd) => break,
                Err(error) => Err(read_errno(error)),
            };
            let put = match put {
                Ok(put) => put,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            *position += put as u64;
            done += put;
            if put < step {
                break;
            }
        }
        if done > 0 {
            self.inode.touch_accessed(Moment::now(context.kernel));
        }
        Ok(done)
    }

    fn write(
        &self,
        context: &Context<'_>,
        open: &OpenFile,
        position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let regular = self.regular()?;
        if let Contents::Huge(_) = regular.pages {
            return Err(Errno::EINVAL);
        }
        let turn = regular.take_turn(context)?;
        let size = regular.size();
        // A place that cannot be counted is none (Linux 7.2 `fs/read_write.c`, `rw_verify_area`).
        if position.saturating_add(source.left() as u64) > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        if open.flags() & raw::O_APPEND != 0 {
            *position = size;
        }
        let seals = regular.seals();
        if seals.intersects(Seals::WRITE | Seals::FUTURE_WRITE) {
            return Err(Errno::EPERM);
        }
        let limit = if seals.contains(Seals::GROW) {
            size
        } else {
            context.file_size_limit()
        };
        let wanted = match storable(*position, source.left(), limit) {
            Err(Errno::EFBIG) if seals.contains(Seals::GROW) => return Err(Errno::EPERM),
            Err(error) => {
                // Beyond what any file can be, there is no signal (Linux 7.2 `fs/read_write.c`,
                // `generic_write_check_limits`).
                if *position >= context.file_size_limit() {
                    context.file_too_large();
                }
                return Err(error);
            }
            Ok(wanted) => wanted,
        };
        if wanted > 0 {
            self.inode.drop_set_ids(context);
        }
        let (done, result) = self.store(context, position, source, wanted)?;
        drop(turn);
        if done > 0 {
            self.inode.touch_modified(Moment::now(context.kernel));
            return Ok(done);
        }
        result.map(|()| 0)
    }

    fn seek(
        &self,
        _context: &Context<'_>,
        _open: &OpenFile,
        position: u64,
        offset: i64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        let pages = self.regular()?;
        match whence {
            Whence::Start => moved(0, offset),
            Whence::Position => moved(position, offset),
            Whence::End => moved(pages.size(), offset),
            Whence::Data | Whence::Hole => {
                let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                pages
                    .find(offset, whence == Whence::Hole)
                    .ok_or(Errno::ENXIO)
            }
        }
    }

    fn mapping(&self, open: &Arc<OpenFile>) -> Result<Mapping, Errno> {
        Ok(Mapping::Object(open.clone()))
    }
}

/// Writes the path of a mapped file as `/proc/PID/maps` shows it: newlines escaped.
///
/// # Errors
/// Only those of `out`.
pub fn describe_object(entry: &Arc<Dentry>, out: &mut dyn fmt::Write) -> fmt::Result {
    let path = entry.shown_path(&entry.top());
    let path = path.map_err(|_| fmt::Error)?;
    for piece in path.split_inclusive(|&byte| byte == b'\n') {
        let (text, newline) = match piece.split_last() {
            Some((b'\n', text)) => (text, true),
            Some(_) | None => (piece, false),
        };
        for chunk in text.utf8_chunks() {
            out.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                out.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        if newline {
            out.write_str("\\012")?;
        }
    }
    Ok(())
}

/// No pages, of no identity.
fn no_pages(memory: &Arc<Memory>) -> Result<Shmem<M>, Errno> {
    let pages = Shmem::new(memory.clone(), 0, ObjectIdentity::default());
    pages.map_err(|_| Errno::ENOMEM)
}

/// The error of whoever needs what a page that is there contains.
const fn read_errno(error: ObjectError) -> Errno {
    match error {
        ObjectError::OutOfMemory => Errno::ENOMEM,
        ObjectError::BeyondEnd
        | ObjectError::NoRoom
        | ObjectError::Io
        | ObjectError::WouldBlock
        | ObjectError::InSwap => object_errno(error),
    }
}

/// The error that a failed access to a file's pages means.
#[must_use]
pub const fn object_errno(error: ObjectError) -> Errno {
    match error {
        ObjectError::BeyondEnd => Errno::ENXIO,
        ObjectError::OutOfMemory | ObjectError::NoRoom => Errno::ENOSPC,
        ObjectError::Io => Errno::EIO,
        ObjectError::WouldBlock | ObjectError::InSwap => Errno::EAGAIN,
    }
}
