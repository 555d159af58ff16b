//! The list of address spaces that map an object, for truncation and cleaning.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use memwright_table::sync::{Lock, Rank};
use memwright_table::{Frame, Machine, OutOfMemory, Shared, TryPush};

use super::{Cluster, Object};
use crate::space::{Core, Taken};

/// An address space with areas that map the object.
struct Mapper<M: Machine> {
    /// Higher than the number of every entry added before. The list is sorted by this number.
    number: u64,
    space: Shared<Core<M>>,
    areas: u32,
}

/// The address spaces that map an object.
///
/// Truncation visits these address spaces, and does not hold the lock of this list during a visit. Lock order: an
/// address space locks its areas first and this list second.
pub struct Mappings<M: Machine> {
    /// Guards the list only.
    list: Lock<Vec<Mapper<M>>>,
    /// Increased before pages are removed from the object and before they are cleaned. A fault compares the value from
    /// before its lookup in the object with the current one while it holds the page-table lock. If they differ, the
    /// result of the lookup may be stale, and the fault starts again.
    generation: AtomicU64,
}

/// The result of cleaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanOutcome {
    /// Entries that were dirty.
    pub dirty: u64,
    /// Entries that lost their write permission.
    pub protected: u64,
}

impl<M: Machine> Default for Mappings<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> Mappings<M> {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self {
            list: Lock::new(Rank::ObjectRegistry, Vec::new()),
            generation: AtomicU64::new(0),
        }
    }

    /// Returns whether any address space maps the object.
    pub fn is_mapped(&self) -> bool {
        !self.list.lock().is_empty()
    }

    /// Returns whether an area maps the object shared and may be written, now or after a protection change (Linux 7.3
    /// `include/linux/fs.h`, `i_mmap_writable`). Checks the areas of every address space that maps the object.
    pub fn may_be_written(&self) -> bool {
        let mut found = false;
        self.visit(|space| found = found || space.may_write_object(self));
        found
    }

    /// Returns the number of areas that map the object.
    pub fn areas(&self) -> u64 {
        self.list
            .lock()
            .iter()
            .map(|mapper| u64::from(mapper.areas))
            .sum()
    }

    /// Unmaps the pages `first..end` of the object from every address space.
    ///
    /// Call [`stale`](Self::stale) first, after the object has removed the pages. `copies` also unmaps the private
    /// copies: truncation does, punching a hole does not (Linux 7.2 `mm/memory.c`, `unmap_mapping_range`).
    pub fn unmap(&self, first: u64, end: u64, copies: bool) {
        let taken = if copies { Taken::All } else { Taken::Objects };
        self.visit(|space| space.zap_object(self, first, end, taken));
    }

    /// Like [`unmap`](Self::unmap), for pages of the object that move to other frames: the next access maps the new
    /// frame. Zero pages that `UFFDIO_ZEROPAGE` mapped in private memory stay.
    pub(crate) fn moved(&self, first: u64, end: u64) {
        self.visit(|space| space.zap_object(self, first, end, Taken::Moving));
    }

    /// Like [`unmap`](Self::unmap), for pages that are about to be reclaimed. A page stays mapped if its entry is the
    /// only record of a store since soft-dirty was cleared (rule: never-under-report; Linux loses the record).
    pub fn withdraw(&self, first: u64, end: u64) {
        self.visit(|space| space.zap_object(self, first, end, Taken::Leaving));
    }

    /// Splits the huge entries that map the pages `first..end`, which are one huge page. The pages stay mapped.
    ///
    /// Call [`stale`](Self::stale) first, after the object has split its huge page.
    pub(crate) fn split(&self, first: u64, end: u64) {
        self.visit(|space| space.split_of_object(self, first, end));
    }

    /// Removes from the cluster `pages` the pages that a locked area maps, and, if `unused` is set, also the pages
    /// accessed since the last check (Linux 7.2 `mm/rmap.c`, `folio_referenced_one`). This is the first step of
    /// [`Object::send_out`].
    pub fn keep(&self, pages: &mut Cluster, unused: bool) {
        self.visit(|space| space.keep_of_object(self, pages, unused));
    }

    /// Unmaps the huge page at `index` from private mappings without a reservation that map it to `frame`. Returns the
    /// number of entries removed.
    pub(crate) fn take_back(&self, index: u64, frame: Frame) -> u64 {
        let mut taken = 0;
        self.visit(|space| taken += space.lose_hugetlb(self, index, frame));
        taken
    }

    /// Marks earlier lookups and notifications of first stores as possibly stale.
    pub fn stale(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Makes the pages `first..end` clean and read-only in every shared mapping, so that the object is notified of the
    /// next store. Returns the number of entries changed.
    pub fn clean(&self, first: u64, end: u64) -> CleanOutcome {
        // A fault may have notified the object of a first store and not made the entry writable yet. The new generation
        // makes that fault start again and notify the object again.
        self.stale();
        let mut outcome = CleanOutcome::default();
        self.visit(|space| {
            let found = space.clean_object(self, first, end);
            outcome.dirty += found.dirty;
            outcome.protected += found.protected;
        });
        outcome
    }

    /// Returns the address spaces that currently map the object.
    pub(crate) fn spaces(&self) -> Result<Vec<Shared<Core<M>>>, OutOfMemory> {
        let list = self.list.lock();
        let mut spaces = Vec::new();
        spaces.try_make_room(list.len())?;
        spaces.extend(list.iter().map(|mapper| mapper.space.clone()));
        Ok(spaces)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Calls `visitor` for each address space of the list. An address space that is added during the visit is included.
    fn visit(&self, mut visitor: impl FnMut(&Core<M>)) {
        let mut after = None;
        loop {
            let space = {
                let list = self.list.lock();
                let next = match after {
                    None => list.first(),
                    Some(last) => list.get(list.partition_point(|mapper| mapper.number <= last)),
                };
                let Some(mapper) = next else {
                    return;
                };
                after = Some(mapper.number);
                mapper.space.clone()
            };
            visitor(&space);
        }
    }

    fn attach(&self, space: &Shared<Core<M>>) -> Result<(), OutOfMemory> {
        let mut list = self.list.lock();
        if let Some(mapper) = list
            .iter_mut()
            .find(|mapper| Shared::ptr_eq(&mapper.space, space))
        {
            mapper.areas += 1;
            return Ok(());
        }
        let number = list.last().map_or(0, |last| last.number + 1);
        list.try_push(Mapper {
            number,
            space: space.clone(),
            areas: 1,
        })
    }

    fn detach(&self, space: &Shared<Core<M>>) {
        let mut list = self.list.lock();
        let Some(index) = list
            .iter()
            .position(|mapper| Shared::ptr_eq(&mapper.space, space))
        else {
            return;
        };
        list[index].areas -= 1;
        if list[index].areas == 0 {
            let mapper = list.remove(index);
            drop(list);
            drop(mapper);
        }
    }
}

/// The reference of an area to an object: it keeps the object alive and the address space in the object's list.
pub(crate) struct Attachment<M: Machine> {
    object: Arc<dyn Object<M>>,
    space: Shared<Core<M>>,
}

impl<M: Machine> Attachment<M> {
    /// Adds `space` to the object's list.
    pub(crate) fn new(
        object: Arc<dyn Object<M>>,
        space: &Shared<Core<M>>,
    ) -> Result<Self, OutOfMemory> {
        object.mappings().attach(space)?;
        Ok(Self {
            object,
            space: space.clone(),
        })
    }

    pub(crate) fn object(&self) -> &Arc<dyn Object<M>> {
        &self.object
    }

    /// Returns whether both attachments refer to the same open object, so that their areas can merge. Hugetlb areas
    /// never merge.
    pub(crate) fn same(&self, other: &Self) -> bool {
        core::ptr::addr_eq(Arc::as_ptr(&self.object), Arc::as_ptr(&other.object))
            && self.may_merge()
    }

    #[cold]
    fn may_merge(&self) -> bool {
        self.object.huge().is_none()
    }

    /// Returns an attachment to the same object without the mapping's reservation, or `None` if the mapping has no
    /// reservation.
    pub(crate) fn unreserved(&self) -> Option<Self> {
        let object = self.object.unreserved()?.clone();
        let attached = object.mappings().attach(&self.space);
        debug_assert!(attached.is_ok(), "the space is in the list");
        Some(Self {
            object,
            space: self.space.clone(),
        })
    }
}

impl<M: Machine> Clone for Attachment<M> {
    fn clone(&self) -> Self {
        // The address space is already in the list: this only increases a count and cannot fail.
        let attached = self.object.mappings().attach(&self.space);
        debug_assert!(attached.is_ok());
        Self {
            object: self.object.clone(),
            space: self.space.clone(),
        }
    }
}

impl<M: Machine> Drop for Attachment<M> {
    fn drop(&mut self) {
        self.object.mappings().detach(&self.space);
    }
}
