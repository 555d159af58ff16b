//! The list of address spaces that map an object (Linux 7.2 `struct address_space`, `i_mmap`). What truncation and
//! cleaning do with it is in `range/mappings.rs`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_table::sync::{Lock, Rank};
use memwright_table::{Machine, OutOfMemory, Shared, TryPush};

use crate::mm::core::Core;
use crate::mm::object::Object;

/// An address space with areas that map the object.
struct Mapper<M: Machine> {
    /// The number of the address space. The list is sorted by it.
    number: u64,
    space: Shared<Core<M>>,
    areas: u32,
}

/// Returns the position of the address space with this number in a list, or the position at which to insert it.
fn find<M: Machine>(list: &[Mapper<M>], number: u64) -> Result<usize, usize> {
    list.binary_search_by_key(&number, |mapper| mapper.number)
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

    /// Returns the number of areas that map the object.
    pub fn areas(&self) -> u64 {
        self.list
            .lock()
            .iter()
            .map(|mapper| u64::from(mapper.areas))
            .sum()
    }

    /// Marks earlier lookups and notifications of first stores as possibly stale.
    pub fn stale(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
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

    /// Calls `visitor` for each address space of the list. A child that a process forks during the visit is included,
    /// because its number is higher than its parent's.
    pub(crate) fn visit(&self, mut visitor: impl FnMut(&Core<M>)) {
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
        let number = space.space_number();
        let mut list = self.list.lock();
        match find(&list, number) {
            Ok(index) => list[index].areas += 1,
            Err(index) => {
                let mapper = Mapper {
                    number,
                    space: space.clone(),
                    areas: 1,
                };
                list.try_insert(index, mapper)?;
            }
        }
        Ok(())
    }

    fn detach(&self, space: &Shared<Core<M>>) {
        let mut list = self.list.lock();
        let Ok(index) = find(&list, space.space_number()) else {
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
        if !object.is_memory() || object.huge().is_some() {
            space.note_special_areas();
        }
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
