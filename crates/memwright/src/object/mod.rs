//! What areas show other than anonymous memory: files, shared memory, anything with pages.

mod cluster;
mod huge_file;
mod mappings;
mod pages;
mod placed;
mod room;
mod runs;
mod shmem;
mod store;

use core::fmt;

use alloc::sync::Arc;

use memwright_table::{Frame, Machine, OutOfMemory, PageSize};

pub use crate::error::ObjectError;
use crate::huge::FolioOrders;
use crate::memory::Memory;
use crate::numa::PolicyId;

pub(crate) use cluster::CLUSTER;
pub use cluster::Cluster;
pub(crate) use huge_file::HugeState;
pub use huge_file::{HUGE_BYTES, HugeFile, HugeView, PrivateHuge};
pub(crate) use mappings::Attachment;
pub use mappings::{CleanOutcome, Mappings};
pub use pages::{Pages, Stored};
pub use room::Room;
pub use shmem::Shmem;
pub(crate) use store::Store;

pub use crate::swap::{Leaving, Left};

/// What /proc/PID/maps shows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ObjectIdentity {
    /// The number of the file system, 0 if it has none.
    pub device: u64,
    /// The number within it.
    pub inode: u64,
}

/// What became of a frame that an object was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is a page of the object.
    Stored,
    /// The object has another at that index.
    Exists,
}

/// How many of an object's pages may be elsewhere that are made a huge one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollapseLimits {
    /// Most that the object does not have.
    pub missing: u64,
    /// Most in swap.
    pub swapped: u64,
}

/// Why an object's pages were not made a huge one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollapseError {
    /// The object has none, ends before, has more pages missing or in swap than may be, or one that cannot be read.
    NotEligible,
    /// Somebody uses one of the pages at this moment: another time perhaps.
    Busy,
    /// No 2 MiB of frames are free.
    NoFrames,
}

/// Something with pages that areas can show.
///
/// An area holds the object as `Arc<dyn Object<M>>`; two neighbouring areas merge only if they hold the
/// same `Arc` (as Linux wants the same open file). Several objects may share one [`Mappings`], which is
/// what decides whose pages they are.
///
/// The methods are called with the address space locked for reading at most, and never with a page-table
/// lock held. They must not touch user memory and must not wait: who has to wait returns
/// [`ObjectError::WouldBlock`], and the access is retried once the caller has waited.
pub trait Object<M: Machine>: Send + Sync {
    /// The frame of page `index`, which is read or made if it is not in memory. Carries one reference,
    /// as by `FrameRef::into_raw`.
    ///
    /// `write` says that a store through a shared mapping is about to happen.
    ///
    /// # Errors
    /// As [`ObjectError`] says; [`ObjectError::InSwap`] rather than that a device is waited for.
    fn frame(&self, memory: &Memory<M>, index: u64, write: bool) -> Result<Frame, ObjectError>;

    /// Whether there is a page `index`, in memory or in swap.
    fn holds(&self, memory: &Memory<M>, index: u64) -> bool {
        let cached = self.cached(memory, index);
        cached.map(|frame| memory.frames().adopt(frame)).is_some()
    }

    /// The frame of page `index` if there is one, which is brought back if it is in swap. Carries one reference.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] or [`ObjectError::Io`].
    fn find(&self, memory: &Memory<M>, index: u64) -> Result<Option<Frame>, ObjectError> {
        Ok(self.cached(memory, index))
    }

    /// How many pages from `first` on are in swap.
    fn swapped(&self, first: u64, pages: u64) -> u64 {
        let _ = (first, pages);
        0
    }

    /// Brings page `index` back if it is in swap, and with it up to `most` pages in all that follow it, where that is
    /// cheap. For how many a device was read.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] or [`ObjectError::Io`].
    fn bring_in(&self, memory: &Memory<M>, index: u64, most: u64) -> Result<u64, ObjectError> {
        let _ = (memory, index, most);
        Ok(0)
    }

    /// For which of the `pages` pages from `first` on somebody asked since they came: a bit for each, at most 64.
    fn asked_for(&self, first: u64, pages: u64) -> u64 {
        let _ = (first, pages);
        0
    }

    /// Sends those of the pages out that may leave. Nobody shows them afterwards, though he comes back to them. Called
    /// without a lock of any address space.
    ///
    /// A file system first takes those out that are to stay ([`Mappings::keep`]), writes back what is dirty
    /// ([`Mappings::clean`] before the copy, so that later stores are heard of), then calls [`Mappings::stale`] and
    /// [`Mappings::withdraw`], and gives up those of which it has the only reference, unless they were stored to meanwhile.
    fn send_out(&self, memory: &Memory<M>, leaving: &Leaving) -> Left {
        let _ = (memory, leaving);
        Left::default()
    }

    /// The frame of page `index` if it is in memory. Carries one reference.
    fn cached(&self, memory: &Memory<M>, index: u64) -> Option<Frame>;

    /// As [`cached`](Self::cached) for the pages from `first` on, one for each place of `frames`.
    fn cached_run(&self, memory: &Memory<M>, first: u64, frames: &mut [Option<Frame>]) {
        for (index, frame) in (first..).zip(frames) {
            *frame = self.cached(memory, index);
        }
    }

    /// Whether there is, or could be, a page `index` (no access to it is a bus error).
    fn contains(&self, index: u64) -> bool;

    /// Makes `frame` page `index`, unless there is one. Where it becomes so, the object takes one reference.
    ///
    /// # Errors
    /// The object takes no frames ([`ObjectError::Io`]), ends before the page, or has no memory for it.
    fn put(&self, memory: &Memory<M>, index: u64, frame: Frame) -> Result<Put, ObjectError> {
        let _ = (memory, index, frame);
        Err(ObjectError::Io)
    }

    /// Whether the object must hear of the first store to a page that is clean.
    fn notify_first_write(&self) -> bool {
        false
    }

    /// A store to the clean page `index` is about to happen through a shared mapping.
    ///
    /// # Errors
    /// The store is refused.
    fn first_write(&self, index: u64) -> Result<(), ObjectError> {
        let _ = index;
        Ok(())
    }

    /// Its place in the file system.
    fn identity(&self) -> ObjectIdentity;

    /// Writes its path, as /proc/PID/maps shows it.
    ///
    /// # Errors
    /// Only those of `out`.
    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result;

    /// The address spaces that map the object.
    fn mappings(&self) -> &Mappings<M>;

    /// Writes the pages from `first` on back to where they live.
    ///
    /// # Errors
    /// The store failed.
    fn sync(&self, memory: &Memory<M>, first: u64, pages: u64) -> Result<(), ObjectError> {
        let _ = (memory, first, pages);
        Ok(())
    }

    /// Frees the pages from `first` on (`MADV_REMOVE`); false if the object cannot.
    ///
    /// # Errors
    /// The store failed.
    fn remove(&self, memory: &Memory<M>, first: u64, pages: u64) -> Result<bool, ObjectError> {
        let _ = (memory, first, pages);
        Ok(false)
    }

    /// Whether this is memory rather than a file: resident pages count as `RssShmem`.
    fn is_memory(&self) -> bool {
        false
    }

    /// The huge page that is the 512 pages from `first` on, a multiple of 512, which is made if the settings say so and
    /// none of them is there; `asked` says that the area asked for huge pages. Carries one reference of the whole.
    fn folio(&self, memory: &Memory<M>, first: u64, asked: bool) -> Option<Frame> {
        let _ = (memory, first, asked);
        None
    }

    /// If the 512 pages from `first` on, a multiple of 512, are a huge page, the object has each by itself from now on, and
    /// hands none of them out as a part of the whole. Who shows the whole still does.
    fn part(&self, first: u64) {
        let _ = first;
    }

    /// Fills the hole around page `index`, if that is in one, with zeroes, by the largest folio of the orders `fitting`
    /// that the hole has room for and the settings allow; `asked` says that the area asked for huge pages. Its frames are
    /// pages like any other from then on. Its order; `None` if there is none, and the page is to come alone.
    fn fill_folio(
        &self,
        memory: &Memory<M>,
        index: u64,
        fitting: FolioOrders,
        asked: bool,
    ) -> Option<u8> {
        let _ = (memory, index, fitting, asked);
        None
    }

    /// The order of the largest folio that the settings give it in some area.
    fn largest_folio(&self, memory: &Memory<M>) -> Option<u8> {
        let _ = memory;
        None
    }

    /// Whether the settings give it huge pages, shown by an area that asked for them or did not.
    fn may_be_huge(&self, memory: &Memory<M>, asked: bool) -> bool {
        let _ = (memory, asked);
        false
    }

    /// Puts one huge page in the place of the 512 pages from `first` on, a multiple of 512, of which at most so many
    /// are missing and in swap. Nobody shows them afterwards. Called without a lock of any address space.
    ///
    /// # Errors
    /// As [`CollapseError`] says; contents are as they were.
    fn collapse(&self, first: u64, limits: CollapseLimits) -> Result<(), CollapseError> {
        let _ = (first, limits);
        Err(CollapseError::NotEligible)
    }

    /// Lets new pages, of those from `first` on, come from where the policy says, whoever maps them, or from where he wants
    /// them again. Whether the object has such policies: else those of areas hold.
    ///
    /// # Errors
    /// No heap; nothing has changed.
    fn place(&self, first: u64, pages: u64, policy: PolicyId) -> Result<bool, OutOfMemory> {
        let _ = (first, pages, policy);
        Ok(false)
    }

    /// The policy of page `index`, if the object has such policies.
    fn placement(&self, index: u64) -> Option<PolicyId> {
        let _ = index;
        None
    }

    /// Puts another frame in the place of that of page `index`, or another huge page in the place of the one that begins
    /// there. `exchange` is called with the frame, once nobody else can ask the object for it, and returns the other one
    /// with a reference that becomes the object's; the object gives that of the old one up. Nothing changes if it
    /// returns none, or the object has no page of this size there. Called with the areas of those locked who show it.
    fn exchange(
        &self,
        memory: &Memory<M>,
        index: u64,
        size: PageSize,
        exchange: &mut dyn FnMut(Frame) -> Option<Frame>,
    ) {
        let _ = (memory, index, size, exchange);
    }

    /// The file of huge pages that it shows, if it does: its areas are cut at huge pages only.
    fn huge(&self) -> Option<HugeView<'_, M>> {
        None
    }

    /// What is shown in its place where its reservation of huge pages does not go: by a forked child.
    fn unreserved(&self) -> Option<&Arc<dyn Object<M>>> {
        None
    }
}
