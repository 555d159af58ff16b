//! The contents of regular files, which are stored in page frames.

use crate::fs::{
    seals::Seals,
    tmpfs::Tmpfs,
    turn::{Turn, TurnGuard},
};
use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use memwright::SharedSetting;
use memwright::object::{
    HUGE_BYTES, HugeFile, HugeSubpool, Object, ObjectError, ObjectIdentity, Shmem,
};
use memwright_linux_abi::{M, Memory, errno::Errno};
use memwright_linux_sched::wait::CanWait;
use memwright_table::{Frame, FrameKind, FrameRef, PAGE_SIZE};

/// How the data is stored.
pub(in crate::fs) enum Contents {
    /// In pages of 4 KiB.
    Small(Shmem<M>),
    /// In huge pages of the hugetlb pool. The data can be written through mappings only.
    Huge(Box<HugeFile<M>>),
}

/// The contents of a regular file, and the counts that exclude writers, executions and seals.
pub struct Regular {
    pub(in crate::fs) pages: Contents,
    pub(in crate::fs) seals: AtomicU32,
    /// Number of opens for writing. While programs execute the file, the number of these programs, negated.
    pub(in crate::fs) writers: AtomicI64,
    /// Number of shared writable mappings that are being created, or -1 while a write seal is being added.
    pub(in crate::fs) mapping: AtomicI64,
    /// Serialises writes and size changes.
    pub(in crate::fs) turn: Turn,
    /// Whether `memfd_secret` created the file. Its data can be accessed through mappings only.
    pub(in crate::fs) secret: bool,
    /// Whether the file is exempt from the limit of [`Self::check_room`]. Files outside mounted file systems are
    /// exempt, and so are files in a tmpfs with its own size limit.
    pub(in crate::fs) apart: bool,
    /// Whether the contents are still in the lower tree of the file system (see
    /// [`Lower`](crate::fs::lower_tree::Lower)).
    lower: AtomicBool,
}

impl Regular {
    /// Creates an empty file.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(memory: &Arc<Memory>, seals: Seals) -> Result<Self, Errno> {
        Ok(Self::with(Contents::Small(no_pages(memory)?), seals))
    }

    /// Creates an empty file whose pages are never swapped out. It represents a file on a disk: Linux would drop its
    /// clean pages and read them again instead of swapping them out.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn staying(memory: &Arc<Memory>) -> Result<Self, Errno> {
        let pages = no_pages(memory)?.staying();
        Ok(Self::with(Contents::Small(pages), Seals::SEAL))
    }

    /// Creates an empty file in no mounted file system. Its use of huge pages follows the settings for shared memory.
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

    /// Creates an empty file in a tmpfs that a program mounted.
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

    /// Prepares a write of the bytes `start..end`: if `start` is in a hole, allocates a folio at `start` if possible.
    /// Returns the offset from which the caller must prepare the rest of the write.
    pub(in crate::fs) fn prepare(&self, start: u64, end: u64) -> u64 {
        match &self.pages {
            Contents::Small(pages) => pages.prepare_write(start, end),
            Contents::Huge(_) => end,
        }
    }

    /// Creates an empty file of `memfd_secret`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn secret(memory: &Arc<Memory>) -> Result<Self, Errno> {
        Ok(Self {
            secret: true,
            ..Self::staying(memory)?
        })
    }

    /// Creates an empty file of huge pages, which count against `subpool`.
    #[must_use]
    pub fn huge(memory: &Arc<Memory>, seals: Seals, subpool: Option<Arc<HugeSubpool<M>>>) -> Self {
        let pages = HugeFile::new(memory.clone(), 0, ObjectIdentity::default(), "");
        let pages = pages.in_subpool(subpool);
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
            lower: AtomicBool::new(false),
        }
    }

    /// Creates a file of `size` bytes whose contents are in the lower tree of the file system. As with
    /// [`staying`](Self::staying), its pages are never swapped out.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn in_lower(memory: &Arc<Memory>, size: u64) -> Result<Self, Errno> {
        let file = Self::staying(memory)?;
        file.grow_to(size);
        file.lower.store(size > 0, Ordering::Relaxed);
        Ok(file)
    }

    /// Returns whether the contents are still in the lower tree. They must be copied up before the file is used.
    #[must_use]
    pub fn is_lower(&self) -> bool {
        self.lower.load(Ordering::Acquire)
    }

    /// Records that the contents were copied up. The caller holds the mutex of writes and size changes.
    pub(in crate::fs) fn leave_lower(&self) {
        self.lower.store(false, Ordering::Release);
    }

    /// Returns whether the data is accessible through mappings only.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.secret
    }

    /// Returns the pages as an object that areas can map.
    #[must_use]
    pub fn pages(&self) -> &dyn Object<M> {
        match &self.pages {
            Contents::Small(pages) => pages,
            Contents::Huge(pages) => &**pages,
        }
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.pages {
            Contents::Small(pages) => pages.size(),
            Contents::Huge(pages) => pages.size(),
        }
    }

    /// Returns the memory and swap used, in units of 512 bytes.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match &self.pages {
            Contents::Small(pages) => {
                (pages.resident() + pages.pages_in_swap()) * (PAGE_SIZE as u64 / 512)
            }
            Contents::Huge(pages) => pages.resident() * (HUGE_BYTES / 512),
        }
    }

    /// Returns the number of resident 4 KiB pages.
    pub(in crate::fs) fn resident(&self) -> u64 {
        match &self.pages {
            Contents::Small(pages) => pages.resident(),
            Contents::Huge(pages) => pages.resident() * (HUGE_BYTES / PAGE_SIZE as u64),
        }
    }

    /// Returns the frame of page `index`, with one reference. If the page does not exist, allocates it if `create` is
    /// set, and returns `None` otherwise.
    pub(in crate::fs) fn frame_for(
        &self,
        index: u64,
        create: bool,
    ) -> Result<Option<Frame>, ObjectError> {
        match &self.pages {
            Contents::Small(pages) => pages.frame_for(index, create),
            Contents::Huge(pages) => pages.frame_at(index),
        }
    }

    /// Allocates a frame for a write of the complete page `index`. Returns `None` if the page exists, or if the file is
    /// hugetlb.
    pub(in crate::fs) fn frame_to_write(
        &self,
        index: u64,
    ) -> Result<Option<FrameRef<'_, M>>, ObjectError> {
        match &self.pages {
            Contents::Small(pages) => pages.frame_to_write(index),
            Contents::Huge(_) => Ok(None),
        }
    }

    /// Adds `frame`, which [`Self::frame_to_write`] returned, as page `index`. Returns `frame` if another thread has
    /// created the page since then.
    pub(in crate::fs) fn add_page<'a>(
        &self,
        index: u64,
        frame: FrameRef<'a, M>,
    ) -> Result<Option<FrameRef<'a, M>>, ObjectError> {
        match &self.pages {
            Contents::Small(pages) => pages.add_page(index, frame),
            Contents::Huge(_) => Ok(Some(frame)),
        }
    }

    /// Raises the size to `size` if it is smaller.
    pub fn grow_to(&self, size: u64) {
        match &self.pages {
            Contents::Small(pages) => pages.grow_to(size),
            Contents::Huge(pages) => pages.grow_to(size),
        }
    }

    /// Returns the offset of the first data byte at or after `offset`, or, if `hole` is set, the offset of the first
    /// byte there that is in a hole. Returns `None` if there is no such byte. A hugetlb file has no holes before its
    /// end.
    pub(in crate::fs) fn find(&self, offset: u64, hole: bool) -> Option<u64> {
        match &self.pages {
            Contents::Small(pages) => pages.seek(offset, hole),
            Contents::Huge(pages) => {
                let size = pages.size();
                (offset < size).then_some(if hole { size } else { offset })
            }
        }
    }

    /// Returns how many of the pages `first..end` are resident, and how many are swapped out.
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
            // A concurrent truncation can move the hole before the data.
            next = hole.clamp(from + 1, end);
            stored += next - from;
            swapped += self.pages().swapped(from, next - from);
        }
        (stored.saturating_sub(swapped), swapped)
    }

    /// Counts an open for writing, so that the file cannot be executed.
    ///
    /// # Errors
    /// `ETXTBSY` while the file is being executed.
    pub fn begin_writing(&self) -> Result<(), Errno> {
        self.writers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count >= 0).then_some(count + 1)
            })
            .map(|_| ())
            .map_err(|_| Errno::ETXTBSY)
    }

    /// Reverses [`Self::begin_writing`].
    pub fn end_writing(&self) {
        self.writers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a program that executes the file, so that the file cannot be opened for writing.
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

    /// Reverses [`Self::begin_executing`].
    pub fn end_executing(&self) {
        self.writers.fetch_add(1, Ordering::Relaxed);
    }

    /// Acquires the mutex of writes and size changes. No other thread writes or changes the size until the guard is
    /// dropped.
    ///
    /// # Errors
    /// `ERESTARTSYS` if a signal arrives while the thread waits.
    pub fn take_turn<W: CanWait + ?Sized>(&self, waiter: &W) -> Result<TurnGuard<'_>, Errno> {
        self.turn.take(waiter)
    }

    /// Checks that the page at `offset` exists or can be allocated. Together, the files of all mounted file systems
    /// without a size limit of their own use at most half of memory, which is the default size of a tmpfs.
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

    /// Checks that those pages of the bytes `start..end` that do not exist can be allocated within the limit of
    /// [`Self::check_room`].
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(in crate::fs) fn check_rooms(
        &self,
        memory: &Memory,
        start: u64,
        end: u64,
    ) -> Result<(), Errno> {
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
}

/// Creates an object without pages. It has the default identity.
fn no_pages(memory: &Arc<Memory>) -> Result<Shmem<M>, Errno> {
    let pages = Shmem::new(memory.clone(), 0, ObjectIdentity::default());
    pages.map_err(|_| Errno::ENOMEM)
}

/// Returns the error number for a failed access to a page that may have to be swapped in. Lack of memory is `ENOMEM`,
/// unlike in [`object_errno`].
pub(in crate::fs) const fn read_errno(error: ObjectError) -> Errno {
    match error {
        ObjectError::OutOfMemory => Errno::ENOMEM,
        ObjectError::BeyondEnd
        | ObjectError::NoRoom
        | ObjectError::Io
        | ObjectError::WouldBlock
        | ObjectError::InSwap => object_errno(error),
    }
}

/// Returns the error number for a failed access to the pages of a file.
#[must_use]
pub const fn object_errno(error: ObjectError) -> Errno {
    match error {
        ObjectError::BeyondEnd => Errno::ENXIO,
        ObjectError::OutOfMemory | ObjectError::NoRoom => Errno::ENOSPC,
        ObjectError::Io => Errno::EIO,
        ObjectError::WouldBlock | ObjectError::InSwap => Errno::EAGAIN,
    }
}
