//! userfaultfd: fault handling in user space (Linux 7.2 `mm/userfaultfd.c` and `fs/userfaultfd.c`).
//!
//! A [`Watcher`] is the context of one userfaultfd descriptor. The flags of a registered area determine which faults
//! its context handles. For such a fault, [`AddressSpace::fault`](crate::AddressSpace::fault) fails with
//! [`FaultError::Watched`](crate::FaultError::Watched). The personality then reports the fault to the reader of the
//! descriptor, blocks the faulting thread, and retries.
//!
//! Write protection is stored in the page's entry ([`Bits::UFFD_WP`](memwright_table::Bits::UFFD_WP)), or, for
//! unpopulated memory, in a marker in the page table of the level that fits the protected range. A page that is mapped
//! in place of a marker inherits the protection of the marker. Unprotecting a part of the range of a marker splits the
//! marker.
//!
//! Read-write protection is implemented in `arm.rs`.
//!
//! | Context | A store to a write-protected page |
//! |---|---|
//! | asynchronous, private page, `track=dirty-bit` | sets the hardware dirty bit of the entry, which stays writable |
//! | asynchronous (`UFFD_FEATURE_WP_ASYNC`), otherwise | faults once, which removes the protection |
//! | synchronous | blocks until the handler removes the protection |

pub(crate) mod arm;
pub(crate) mod fill;
#[cfg_attr(not(feature = "hugetlb"), path = "fill_hugetlb_off.rs")]
pub(crate) mod fill_hugetlb;
pub(crate) mod protect;
pub(crate) mod register;
pub(crate) mod relocate;
pub(crate) mod unregister;

pub use crate::types::error::{FillError, MoveError, WatchError};
pub use crate::types::uffd::{
    Fill, Relocation, Watch, WatchEvent, WatchEvents, WatchModes, Watched, WatchedFault, Watcher,
};

use memwright_table::{Machine, Page, PageRange, PageSize, VirtAddr};

use crate::fault::attempt::Fault;
use crate::mm::areas::Areas;
use crate::mm::check;
use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::mm::theme::Uffd;
use crate::types::access::Access;
use crate::vma::area::AreaFlags;

/// Returns the area at `page`. Gives a private area an anon_vma, because it needs one before its first private page is
/// created (Linux 7.2 `mm/userfaultfd.c`, `uffd_lock_vma`).
fn ready_area<'a, M: Machine>(
    core: &'a Core<M>,
    areas: &'a Areas<M>,
    page: Page,
) -> Option<&'a Area<M>> {
    let area = areas.map.find(page)?;
    if !area.is_shared() {
        let (cpu, access) = (core.cpu(), Access::WRITE);
        Fault {
            core,
            cpu,
            areas,
            area,
            page,
            access,
        }
        .note_private();
    }
    Some(area)
}

/// Returns the size of the pages with which a handler must fill the area.
fn unit_of<M: Machine>(area: &Area<M>) -> PageSize {
    if area.flags().contains(AreaFlags::HUGETLB) {
        PageSize::Size2M
    } else {
        PageSize::Size4K
    }
}

/// Returns the pages of the `length` bytes from `address` on, which must be a positive number of whole pages in user
/// memory (Linux 7.2 `validate_range`).
fn pages<M: Machine>(
    core: &Core<M>,
    address: VirtAddr,
    length: u64,
) -> Result<PageRange, WatchError> {
    let range = check::pages(address, length).map_err(|_| WatchError::BadRange)?;
    let whole = length % memwright_table::PAGE_SIZE as u64 == 0;
    if range.is_empty() || !whole || !core.bounds().covers(range) {
        return Err(WatchError::BadRange);
    }
    Ok(range)
}

/// Returns whether the area maps memory rather than a file. Only an area that maps memory can be registered in every
/// mode. Secret memory counts as a file (`memfd_secret`).
fn is_memory<M: Machine>(area: &Area<M>) -> bool {
    let memory = area.object().is_none_or(|object| object.is_memory());
    memory && !area.flags().contains(AreaFlags::SECRET)
}

/// Returns whether the area can be registered for faults of `modes` (Linux 7.2 `vma_can_userfault`).
fn can_watch<M: Machine>(area: &Area<M>, modes: WatchModes, asynchronous: bool) -> bool {
    if area
        .flags()
        .intersects(AreaFlags::DROPPABLE | AreaFlags::PHYSICAL)
    {
        return false;
    }
    let shows_memory = area.object().is_some() && is_memory(area);
    if modes.contains(WatchModes::MINOR) && !shows_memory {
        return false;
    }
    (asynchronous && modes == WatchModes::WRITE_PROTECT) || is_memory(area)
}

/// Returns the flags of an area that is registered with `watcher` for `modes`.
fn flags_of(watcher: &Watcher, modes: WatchModes, shared: bool, by_dirty: bool) -> AreaFlags {
    let mut flags = AreaFlags::empty();
    flags.set(AreaFlags::UFFD_MISSING, modes.contains(WatchModes::MISSING));
    flags.set(AreaFlags::UFFD_MINOR, modes.contains(WatchModes::MINOR));
    if modes.contains(WatchModes::WRITE_PROTECT) {
        flags |= AreaFlags::UFFD_WP;
        flags.set(AreaFlags::UFFD_ASYNC, watcher.asynchronous);
        let by_dirty = watcher.asynchronous && by_dirty && !shared;
        flags.set(AreaFlags::UFFD_BY_DIRTY, by_dirty);
    }
    flags.set(
        AreaFlags::UFFD_RWP,
        modes.contains(WatchModes::READ_WRITE_PROTECT),
    );
    flags
}

impl<M: Machine> Uffd<'_, M> {
    /// Returns the userfaultfd context that handles the faults at `page`, if the area is registered.
    pub fn watched(&self, page: Page) -> Option<Watched> {
        let core = &*self.space.core;
        let areas = core.areas.read(core.cpu());
        let area = areas.map.find(page)?;
        Some(Watched {
            watch: area.backing().watcher()?.clone(),
            range: area.range(),
            unit: unit_of(area),
        })
    }

    /// Returns the size of the pages with which a handler must fill `range`. Returns `None` if no single area covers
    /// `range`. Also gives an anon_vma to the area at the start of `range` if it is private, even if it is not
    /// registered.
    pub fn fill_unit(&self, range: PageRange) -> Option<PageSize> {
        let core = &*self.space.core;
        let areas = core.areas.read(core.cpu());
        let area = ready_area(core, &areas, range.start)?;
        area.range().covers(range).then(|| unit_of(area))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dirty_bit_tells_of_private_pages_where_nobody_waits() {
        let watcher = |asynchronous| Watcher {
            number: 1,
            asynchronous,
            unpopulated: false,
            counts_accesses: false.into(),
            events: WatchEvents::empty(),
        };
        let wp = WatchModes::WRITE_PROTECT;
        let by_dirty = |asynchronous, shared, policy| {
            let flags = flags_of(&watcher(asynchronous), wp, shared, policy);
            flags.contains(AreaFlags::UFFD_BY_DIRTY)
        };
        assert!(by_dirty(true, false, true));
        assert!(!by_dirty(false, false, true));
        assert!(!by_dirty(true, true, true));
        assert!(!by_dirty(true, false, false));
        let flags = flags_of(&watcher(true), WatchModes::MISSING, false, true);
        assert_eq!(flags, AreaFlags::UFFD_MISSING);
    }
}
