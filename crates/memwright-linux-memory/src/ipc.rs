//! System V shared memory (Linux 7.2 `ipc/shm.c`).
//!
//! A segment is an object that areas map. The registry holds a reference to the segment until the segment is removed.
//! After that, only areas hold references, and the segment is freed when the last of these areas is unmapped.

use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};
use memwright::object::{
    Asker, CachedRun, CollapseError, CollapseLimits, HugeFile, HugeView, Leaving, Left, Mappings,
    Object, ObjectError, ObjectIdentity, Put, Shmem,
};
use memwright::{FolioOrders, PolicyId};
use memwright_linux_abi::{M, Memory, errno::Errno};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_vfs::fs::permission::{Owner, Permission, Subject, permitted_object};
use memwright_table::TryPush;
use memwright_table::{Frame, OutOfMemory, PageSize};

/// The device number of the file system in which Linux keeps segments.
const DEVICE: u64 = 11;
/// The maximum number of segments (`kernel.shmmni`).
pub const MOST_SEGMENTS: u64 = 4096;
/// The default of `kernel.shmmax` in bytes and of `kernel.shmall` in pages, which is practically unlimited (`SHMMAX`).
const NO_LIMIT: u64 = u64::MAX - (1 << 24);

/// The permissions and timestamps of a segment, which can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Owner.
    pub owner: Owner,
    /// Permissions: nine bits, as for a file.
    pub mode: u32,
    /// The times of the last attach, detach and change, in seconds since 1970.
    pub times: [i64; 3],
    /// The process ID of the last process that attached or detached the segment.
    pub last: u32,
    /// The user to which the locked pages are accounted (`SHM_LOCK`); `None` if the pages are not locked.
    pub locker: Option<u32>,
}

/// The pages of a segment.
pub enum Contents {
    /// Pages of 4 KiB.
    Small(Shmem<M>),
    /// Huge pages of the hugetlb pool.
    Huge(Arc<HugeFile<M>>),
}

/// A shared memory segment.
pub struct Segment {
    /// The ID of the segment.
    pub id: u32,
    /// The key of the segment; 0 for a private segment.
    pub key: u32,
    /// The size in bytes, as requested.
    pub size: u64,
    /// The creator of the segment, and the creator's process ID.
    pub maker: (Owner, u32),
    /// The attributes that can change.
    pub standing: Lock<Standing>,
    contents: Contents,
}

/// The attributes with which a segment is created.
pub struct Wanted {
    /// The key; 0 for a private segment.
    pub key: u32,
    /// The size in bytes.
    pub size: u64,
    /// Permissions.
    pub mode: u32,
    /// The creator, and the creator's process ID.
    pub maker: (Owner, u32),
    /// The current time in seconds since 1970.
    pub now: i64,
}

/// Sums over all segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of segments.
    pub segments: u32,
    /// The total size in pages.
    pub pages: u64,
    /// The number of pages in memory.
    pub resident: u64,
    /// The number of pages in swap.
    pub swapped: u64,
}

struct Entry {
    id: u32,
    /// `None` once the segment is removed.
    held: Option<Arc<Segment>>,
    known: Weak<Segment>,
}

/// The registry of all segments.
pub struct Segments {
    all: Lock<Vec<Entry>>,
    next: AtomicU64,
    /// The maximum size of a segment in bytes (`kernel.shmmax`).
    pub most_bytes: AtomicU64,
    /// The maximum number of pages of all segments together (`kernel.shmall`).
    pub most_pages: AtomicU64,
}

impl Default for Segments {
    fn default() -> Self {
        Self {
            all: Lock::new(Rank::File, Vec::new()),
            next: AtomicU64::new(0),
            most_bytes: AtomicU64::new(NO_LIMIT),
            most_pages: AtomicU64::new(NO_LIMIT),
        }
    }
}

impl Segments {
    /// Adds a segment that was created with `wanted` and `contents`. Returns the segment's ID.
    ///
    /// # Errors
    /// `EEXIST` if another thread has created a segment with the key since the caller checked; `ENOSPC` if there are
    /// too many segments or their total size is too large; `ENOMEM`.
    pub fn add(&self, wanted: &Wanted, contents: Contents) -> Result<u32, Errno> {
        let mut all = self.all.lock();
        all.retain(|entry| entry.held.is_some() || entry.known.strong_count() > 0);
        let mut held = all.iter().filter_map(|entry| entry.held.as_ref());
        if wanted.key != 0 && held.any(|segment| segment.key == wanted.key) {
            return Err(Errno::EEXIST);
        }
        self.check_room_in(&all, wanted.size)?;
        all.try_make_room(1)?;
        let id = (self.next.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff) as u32;
        let segment = Arc::new(Segment {
            id,
            key: wanted.key,
            size: wanted.size,
            maker: wanted.maker,
            standing: Lock::new(
                Rank::Leaf,
                Standing {
                    owner: wanted.maker.0,
                    mode: wanted.mode & 0o777,
                    times: [0, 0, wanted.now],
                    last: 0,
                    locker: None,
                },
            ),
            contents,
        });
        all.try_push(Entry {
            id,
            known: Arc::downgrade(&segment),
            held: Some(segment),
        })?;
        Ok(id)
    }

    /// Checks that the limits permit one more segment of `size` bytes.
    ///
    /// # Errors
    /// `ENOSPC` if there are too many segments or their total size is too large.
    pub fn check_room(&self, size: u64) -> Result<(), Errno> {
        let mut all = self.all.lock();
        all.retain(|entry| entry.held.is_some() || entry.known.strong_count() > 0);
        self.check_room_in(&all, size)
    }

    fn check_room_in(&self, all: &[Entry], size: u64) -> Result<(), Errno> {
        let pages = |size: u64| size.div_ceil(4096);
        let used: u64 = all
            .iter()
            .filter_map(|entry| entry.known.upgrade())
            .map(|segment| pages(segment.size))
            .sum();
        let most = self.most_pages.load(Ordering::Relaxed);
        if all.len() as u64 >= MOST_SEGMENTS || used.saturating_add(pages(size)) > most {
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    /// Returns the segment with the key `key`; `None` if there is none or if it was removed.
    pub fn with_key(&self, key: u32) -> Option<Arc<Segment>> {
        let all = self.all.lock();
        let mut held = all.iter().filter_map(|entry| entry.held.as_ref());
        held.find(|segment| segment.key == key).cloned()
    }

    /// Returns the segment with the ID `id`; `None` if there is none or if it was removed.
    pub fn find(&self, id: u32) -> Option<Arc<Segment>> {
        let all = self.all.lock();
        let entry = all.iter().find(|entry| entry.id == id)?;
        entry.held.clone()
    }

    /// Returns the highest ID of a segment that was not removed; 0 if there is none.
    pub fn largest_id(&self) -> u32 {
        let all = self.all.lock();
        let held = all.iter().filter(|entry| entry.held.is_some());
        held.map(|entry| entry.id).max().unwrap_or(0)
    }

    /// Returns the segment whose object has the identity `identity`, even if the segment was removed. Areas that map a
    /// segment refer to this object.
    pub fn shown(&self, identity: ObjectIdentity) -> Option<Arc<Segment>> {
        if identity.device != DEVICE {
            return None;
        }
        let all = self.all.lock();
        let entry = all
            .iter()
            .find(|entry| u64::from(entry.id) == identity.inode)?;
        entry.known.upgrade()
    }

    /// Returns the number of locked pages of segments that are accounted to `user`.
    #[must_use]
    pub fn locked_by(&self, user: u32) -> u64 {
        let all = self.all.lock();
        let segments = all.iter().filter_map(|entry| entry.known.upgrade());
        let locked = segments.filter(|segment| segment.standing.lock().locker == Some(user));
        locked.map(|segment| segment.size.div_ceil(4096)).sum()
    }

    /// Removes the segment with the ID `id` from the registry. The segment is freed when no area maps it any more.
    pub fn remove(&self, id: u32) {
        let held = {
            let mut all = self.all.lock();
            let entry = all.iter_mut().find(|entry| entry.id == id);
            entry.and_then(|entry| entry.held.take())
        };
        drop(held);
    }

    /// Removes all segments.
    pub fn clear(&self) {
        let all = core::mem::take(&mut *self.all.lock());
        drop(all);
    }

    /// Returns the sums over all segments that were not removed.
    pub fn totals(&self) -> Totals {
        let all = self.all.lock();
        let mut totals = Totals::default();
        for segment in all.iter().filter_map(|entry| entry.held.as_ref()) {
            totals.segments += 1;
            totals.pages += segment.size.div_ceil(4096);
            match &segment.contents {
                Contents::Small(pages) => {
                    totals.resident += pages.resident();
                    totals.swapped += pages.pages_in_swap();
                }
                Contents::Huge(pages) => totals.resident += pages.resident() * 512,
            }
        }
        totals
    }
}

impl Segment {
    /// Returns whether `subject` has the permissions `wanted` for the segment (`ipcperms`).
    #[must_use]
    pub fn permits(&self, subject: &Subject, wanted: Permission) -> bool {
        let standing = *self.standing.lock();
        let owners = (self.maker.0, standing.owner);
        permitted_object(subject, standing.mode, owners, wanted)
    }

    /// Returns whether `subject` is allowed to change or remove the segment.
    #[must_use]
    pub fn is_owned_by(&self, subject: &Subject) -> bool {
        let owners = [self.standing.lock().owner.user, self.maker.0.user];
        subject.overrides || owners.contains(&subject.user)
    }

    /// Returns the number of areas that map the segment.
    #[must_use]
    pub fn attached(&self) -> u64 {
        self.mappings().areas()
    }

    /// Locks the pages in memory and accounts them to `user`. If `user` is `None`, unlocks them. Huge pages are never
    /// reclaimed, so locking them has no effect and is not accounted.
    pub fn lock_pages(&self, user: Option<u32>) {
        if let Contents::Small(pages) = &self.contents {
            pages.lock_pages(user.is_some());
            self.standing.lock().locker = user;
        }
    }

    /// Returns whether the segment consists of huge pages.
    #[must_use]
    pub fn is_huge(&self) -> bool {
        matches!(self.contents, Contents::Huge(_))
    }

    fn pages(&self) -> &dyn Object<M> {
        match &self.contents {
            Contents::Small(pages) => pages,
            Contents::Huge(pages) => &**pages,
        }
    }
}

impl Object<M> for Segment {
    fn frame(&self, memory: &Memory, index: u64, write: bool) -> Result<Frame, ObjectError> {
        self.pages().frame(memory, index, write)
    }

    fn cached(&self, memory: &Memory, index: u64) -> Option<Frame> {
        self.pages().cached(memory, index)
    }

    fn holds(&self, memory: &Memory, index: u64) -> bool {
        self.pages().holds(memory, index)
    }

    fn find(&self, memory: &Memory, index: u64) -> Result<Option<Frame>, ObjectError> {
        self.pages().find(memory, index)
    }

    fn swapped(&self, first: u64, pages: u64) -> u64 {
        self.pages().swapped(first, pages)
    }

    fn bring_in(&self, memory: &Memory, index: u64, most: u64) -> Result<u64, ObjectError> {
        self.pages().bring_in(memory, index, most)
    }

    fn begin_bring_in(
        &self,
        memory: &Memory,
        index: u64,
        most: u64,
        asker: Asker,
    ) -> Result<u64, ObjectError> {
        self.pages().begin_bring_in(memory, index, most, asker)
    }

    fn asked_for(&self, first: u64, pages: u64) -> u64 {
        self.pages().asked_for(first, pages)
    }

    fn send_out(&self, memory: &Memory, leaving: &Leaving) -> Left {
        self.pages().send_out(memory, leaving)
    }

    fn cached_run(&self, memory: &Memory, first: u64, wanted: u64, frames: &mut [Frame]) -> u64 {
        self.pages().cached_run(memory, first, wanted, frames)
    }

    fn frame_and_run(
        &self,
        memory: &Memory,
        index: u64,
        run: &mut CachedRun,
    ) -> Result<Frame, ObjectError> {
        self.pages().frame_and_run(memory, index, run)
    }

    fn contains(&self, index: u64) -> bool {
        self.pages().contains(index)
    }

    fn put(
        &self,
        memory: &Memory,
        index: u64,
        frame: Frame,
        map: &mut dyn FnMut() -> bool,
    ) -> Result<Put, ObjectError> {
        self.pages().put(memory, index, frame, map)
    }

    fn identity(&self) -> ObjectIdentity {
        ObjectIdentity {
            device: DEVICE,
            inode: u64::from(self.id),
        }
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(out, "/SYSV{:08x} (deleted)", self.key)
    }

    fn mappings(&self) -> &Mappings<M> {
        self.pages().mappings()
    }

    fn remove(&self, memory: &Memory, first: u64, pages: u64) -> Result<bool, ObjectError> {
        self.pages().remove(memory, first, pages)
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn folio(&self, memory: &Memory, first: u64, asked: bool) -> Option<Frame> {
        self.pages().folio(memory, first, asked)
    }

    fn part(&self, first: u64) {
        self.pages().part(first);
    }

    fn fill_folio(
        &self,
        memory: &Memory,
        index: u64,
        fitting: FolioOrders,
        asked: bool,
    ) -> Option<u8> {
        self.pages().fill_folio(memory, index, fitting, asked)
    }

    fn largest_folio(&self, memory: &Memory) -> Option<u8> {
        self.pages().largest_folio(memory)
    }

    fn may_be_huge(&self, memory: &Memory, asked: bool) -> bool {
        self.pages().may_be_huge(memory, asked)
    }

    fn collapse(&self, first: u64, limits: CollapseLimits) -> Result<(), CollapseError> {
        self.pages().collapse(first, limits)
    }

    fn place(&self, first: u64, pages: u64, policy: PolicyId) -> Result<bool, OutOfMemory> {
        self.pages().place(first, pages, policy)
    }

    fn placement(&self, index: u64) -> Option<PolicyId> {
        self.pages().placement(index)
    }

    fn exchange(
        &self,
        memory: &Memory,
        index: u64,
        size: PageSize,
        exchange: &mut dyn FnMut(Frame) -> Option<Frame>,
    ) {
        self.pages().exchange(memory, index, size, exchange);
    }

    fn huge(&self) -> Option<HugeView<'_, M>> {
        self.pages().huge()
    }
}
