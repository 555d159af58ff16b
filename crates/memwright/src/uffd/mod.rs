//! userfaultfd: a program that is told of faults in memory and resolves them itself
//! (Linux 7.2 `mm/userfaultfd.c` and `fs/userfaultfd.c`).
//!
//! A [`Watcher`] stands for one descriptor. Areas that are registered with it say in their flags of which faults it
//! is told: [`AddressSpace::fault`](crate::AddressSpace::fault) then refuses with
//! [`FaultError::Watched`](crate::FaultError::Watched), and the personality tells whoever reads the descriptor, makes
//! the thread wait, and retries.
//!
//! Protection stands in the entry ([`Bits::UFFD_WP`](memwright_table::Bits::UFFD_WP)), or, of memory that is not there
//! yet, in a marker, at whatever level covers the range. What is mapped under a marker inherits the protection, page by
//! page; an unprotected part splits it.
//!
//! | What watches | A store to a protected page |
//! |---|---|
//! | nobody waits, the page is private, `track=dirty-bit` | finds it writable; the processor's dirty bit tells |
//! | nobody waits, otherwise (`UFFD_FEATURE_WP_ASYNC`) | faults once, and the protection is gone |
//! | somebody waits | is refused until the watcher takes the protection away |

mod event;
mod fill;
mod fill_hugetlb;
mod protect;
mod register;
mod relocate;
mod unregister;

use bitflags::bitflags;
use memwright_table::{Machine, Page, PageRange, PageSize, Shared, VirtAddr};

pub use crate::error::{FillError, MoveError, WatchError};
pub(crate) use event::Notices;
pub use event::{WatchEvent, WatchEvents};
pub use fill::Fill;
pub use relocate::Relocation;

use crate::fault::{Access, Fault};
use crate::space::{Area, Areas, Core, check};
use crate::vma::AreaFlags;

/// A descriptor as areas know it.
#[derive(Debug)]
pub struct Watcher {
    /// The personality finds the descriptor by it.
    pub number: u64,
    /// Nobody waits for stores to protected pages (`UFFD_FEATURE_WP_ASYNC`).
    pub asynchronous: bool,
    /// Memory that is not there yet can be protected (`UFFD_FEATURE_WP_UNPOPULATED`).
    pub unpopulated: bool,
    /// Of which events it is told. Only who is told where memory moves goes on watching it there.
    pub events: WatchEvents,
}

/// A reference of a watcher.
pub type Watch = Shared<Watcher>;

bitflags! {
    /// Of which faults a watcher is told.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WatchModes: u8 {
        /// At pages that are missing.
        const MISSING = 1;
        /// Stores to protected pages.
        const WRITE_PROTECT = 1 << 1;
        /// At pages that the object has, and no entry shows.
        const MINOR = 1 << 2;
    }
}

/// The fault of which a watcher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedFault {
    /// The page is missing.
    Missing,
    /// The object has the page, and no entry shows it.
    Minor,
    /// A store to a protected page.
    WriteProtected,
}

/// Who is told of faults at an address, and of which.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The watcher.
    pub watch: Watch,
    /// Its part of the area.
    pub range: PageRange,
    /// What the area's pages are filled by.
    pub unit: PageSize,
}

/// The area at `page`, ready for a first private page (Linux 7.2 `mm/userfaultfd.c`, `uffd_lock_vma`).
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

/// What the pages of an area are filled by.
fn unit_of<M: Machine>(area: &Area<M>) -> PageSize {
    if area.flags().contains(AreaFlags::HUGETLB) {
        PageSize::Size2M
    } else {
        PageSize::Size4K
    }
}

/// The pages of `length` bytes, more than none, that lie in user memory (Linux 7.2 `validate_range`).
fn pages<M: Machine>(
    core: &Core<M>,
    address: VirtAddr,
    length: u64,
) -> Result<PageRange, WatchError> {
    let range = check::pages(address, length).map_err(|_| WatchError::Invalid)?;
    let whole = length % memwright_table::PAGE_SIZE as u64 == 0;
    if range.is_empty() || !whole || !core.bounds().covers(range) {
        return Err(WatchError::Invalid);
    }
    Ok(range)
}

/// Whether the area shows memory rather than a file: such memory can be watched in every way, but for secret memory,
/// whose file counts as any other (`memfd_secret`).
fn is_memory<M: Machine>(area: &Area<M>) -> bool {
    let memory = area.object().is_none_or(|object| object.is_memory());
    memory && !area.flags().contains(AreaFlags::SECRET)
}

/// Whether faults of these modes can be watched in the area (Linux 7.2 `vma_can_userfault`).
fn can_watch<M: Machine>(area: &Area<M>, modes: WatchModes, asynchronous: bool) -> bool {
    if area.flags().contains(AreaFlags::DROPPABLE) {
        return false;
    }
    let shows_memory = area.object().is_some() && is_memory(area);
    if modes.contains(WatchModes::MINOR) && !shows_memory {
        return false;
    }
    (asynchronous && modes == WatchModes::WRITE_PROTECT) || is_memory(area)
}

/// The flags of an area of which the watcher is told so much.
fn flags_of(watcher: &Watcher, modes: WatchModes, shared: bool, by_dirty: bool) -> AreaFlags {
    let mut flags = AreaFlags::empty();
    flags.set(AreaFlags::UFFD_MISSING, modes.contains(WatchModes::MISSING));
    flags.set(AreaFlags::UFFD_MINOR, modes.contains(WatchModes::MINOR));
    if modes.contains(WatchModes::WRITE_PROTECT) {
        flags |= AreaFlags::UFFD_WP;
        flags.set(AreaFlags::UFFD_ASYNC, watcher.asynchronous);
        let by_dirty = watcher.asynchronous && by_dirty && !shared;
        flags.set(AreaFlags::UFFD_BY_DIRTY, by_dirty);
        let unpopulated = watcher.unpopulated || watcher.asynchronous;
        flags.set(AreaFlags::UFFD_UNPOPULATED, unpopulated);
    }
    flags
}

impl<M: Machine> crate::AddressSpace<M> {
    /// Who is told of faults at `page`.
    pub fn watched(&self, page: Page) -> Option<Watched> {
        let core = &*self.core;
        let areas = core.areas.read(core.cpu());
        let area = areas.map.find(page)?;
        Some(Watched {
            watch: area.backing().watcher()?.clone(),
            range: area.range(),
            unit: unit_of(area),
        })
    }

    /// What pages of `range` are filled by; `None` unless one area has them all. The area at its start is ready to be
    /// filled afterwards, whether anybody watches it or not.
    pub fn fill_unit(&self, range: PageRange) -> Option<PageSize> {
        let core = &*self.core;
        let areas = core.areas.read(core.cpu());
        let area = ready_area(core, &areas, range.start)?;
        area.range().covers(range).then(|| unit_of(area))
    }

    /// Whether any page of `length` bytes is a huge one of the pool.
    pub fn has_hugetlb(&self, address: VirtAddr, length: u64) -> bool {
        let Some(range) = PageRange::from_addresses(address, length) else {
            return false;
        };
        let areas = self.core.areas.read(self.core.cpu());
        let mut shown = areas.map.overlapping(range);
        shown.any(|area| area.flags().contains(AreaFlags::HUGETLB))
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
