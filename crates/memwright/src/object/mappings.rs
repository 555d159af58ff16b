//! Which address spaces map an object, so that truncation and cleaning reach them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use memwright_table::sync::{Lock, Rank};
use memwright_table::{Frame, Machine, OutOfMemory, Shared, TryPush};

use super::{Cluster, Object};
use crate::space::{Core, Taken};

/// One address space with areas of the object.
struct Mapper<M: Machine> {
    /// Rises with each entry of the list: the list is sorted by it.
    number: u64,
    space: Shared<Core<M>>,
    areas: u32,
}

/// The address spaces that map an object.
///
/// Truncation visits them without holding a lock over the visit: an address space locks its areas first
/// and this list afterwards, never the other way round.
pub struct Mappings<M: Machine> {
    /// Guards the list only.
    list: Lock<Vec<Mapper<M>>>,
    /// Rises before pages are taken from the object, and before they are cleaned. A fault that asked the
    /// object checks, with the page-table lock held, that it did not rise since; else the answer may be
    /// stale, and the fault starts again.
    generation: AtomicU64,
}

/// What cleaning found.
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
    /// No address space maps the object.
    pub const fn new() -> Self {
        Self {
            list: Lock::new(Rank::ObjectRegistry, Vec::new()),
            generation: AtomicU64::new(0),
        }
    }

    /// Whether any address space maps the object.
    pub fn is_mapped(&self) -> bool {
        !self.list.lock().is_empty()
    }

    /// Whether an area shows the object shared and may be written, now or after a protection change (Linux 7.3
    /// `include/linux/fs.h`, `i_mmap_writable`). Looks at the areas of every address space that maps the object.
    pub fn may_be_written(&self) -> bool {
        let mut found = false;
        self.visit(|space| found = found || space.may_write_object(self));
        found
    }

    /// How many areas show the object.
    pub fn areas(&self) -> u64 {
        self.list
            .lock()
            .iter()
            .map(|mapper| u64::from(mapper.areas))
            .sum()
    }

    /// Takes the pages `first..end` of the object out of every table.
    ///
    /// Call [`stale`](Self::stale) first, once the object no longer hands the frames out. Copies that
    /// private mappings made go too if `copies` says so: truncation takes them, punching a hole does not
    /// (Linux 7.2 `mm/memory.c`, `unmap_mapping_range`).
    pub fn unmap(&self, first: u64, end: u64, copies: bool) {
        let taken = if copies { Taken::All } else { Taken::Objects };
        self.visit(|space| space.zap_object(self, first, end, taken));
    }

    /// The same for pages that are in other frames from now on: whoever uses one finds it there. Zero pages with which
    /// private memory was filled stay.
    pub(crate) fn moved(&self, first: u64, end: u64) {
        self.visit(|space| space.zap_object(self, first, end, Taken::Moving));
    }

    /// The same for pages that are to leave memory and may come back. One stays where its entry is all that tells of a
    /// store since soft-dirty was cleared (design rule 12; Linux forgets the store).
    pub fn withdraw(&self, first: u64, end: u64) {
        self.visit(|space| space.zap_object(self, first, end, Taken::Leaving));
    }

    /// Splits the huge entries that show the pages `first..end`, which are one huge page: nobody loses a page.
    ///
    /// Call [`stale`](Self::stale) first, once the object no longer hands it out as one.
    pub(crate) fn split(&self, first: u64, end: u64) {
        self.visit(|space| space.split_of_object(self, first, end));
    }

    /// Takes those of `pages` out of the cluster that an area locks, and if they must be `unused` those that somebody
    /// used since they were looked at before (Linux 7.2 `mm/rmap.c`, `folio_referenced_one`): the first step of
    /// [`Object::send_out`].
    pub fn keep(&self, pages: &mut Cluster, unused: bool) {
        self.visit(|space| space.keep_of_object(self, pages, unused));
    }

    /// Takes the huge page at `index` away from private mappings without a reservation that have it in `frame`;
    /// returns from how many.
    pub(crate) fn take_back(&self, index: u64, frame: Frame) -> u64 {
        let mut taken = 0;
        self.visit(|space| taken += space.lose_hugetlb(self, index, frame));
        taken
    }

    /// Says that frames handed out and stores heard of before may be stale by now.
    pub fn stale(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Makes the pages `first..end` clean and read-only in every shared mapping, so that the object hears
    /// of the next store. What was dirty is counted.
    pub fn clean(&self, first: u64, end: u64) -> CleanOutcome {
        // A first store that the object heard of before, and that is not granted yet, must be heard of again.
        self.stale();
        let mut outcome = CleanOutcome::default();
        self.visit(|space| {
            let found = space.clean_object(self, first, end);
            outcome.dirty += found.dirty;
            outcome.protected += found.protected;
        });
        outcome
    }

    /// The address spaces that map the object now.
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

    /// Calls `visitor` for each address space that was there when the visit began.
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

/// An area's hold on an object: keeps the object alive and the address space in its list.
pub(crate) struct Attachment<M: Machine> {
    object: Arc<dyn Object<M>>,
    space: Shared<Core<M>>,
}

impl<M: Machine> Attachment<M> {
    /// Enters `space` into the object's list.
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

    /// Whether both show the same open object, so that areas may merge: those of huge pages never do.
    pub(crate) fn same(&self, other: &Self) -> bool {
        core::ptr::addr_eq(Arc::as_ptr(&self.object), Arc::as_ptr(&other.object))
            && self.may_merge()
    }

    #[cold]
    fn may_merge(&self) -> bool {
        self.object.huge().is_none()
    }

    /// The same without the mapping's own reservation.
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
        // The space is in the list, so only a count rises and nothing can fail.
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
