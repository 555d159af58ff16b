//! Consistency checks of an address space, for the end of a run and for tests.

use memwright_table::{
    Architecture, Bits, Entry, FrameKind, Machine, Page, PageSize, Present, VirtAddr,
};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::space::{AddressSpace, Area};
use crate::types::error_text::error_text;
use crate::types::rights::Rights;
use crate::vma::area::AreaFlags;
use crate::vma::writable::writable;

/// The inconsistency that an audit found, with its address or counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditError {
    /// Areas overlap, or are out of order, empty or out of bounds.
    AreaOrder(VirtAddr),
    /// The totals of mapped and locked pages do not match the areas.
    Totals,
    /// An entry is outside every area.
    EntryOutside(VirtAddr),
    /// An entry grants more rights than its area, or has another protection key.
    ExcessRights(VirtAddr),
    /// An entry is writable although `writable` denies it.
    NotWritable(VirtAddr),
    /// An entry is marked exclusive, but its page is not anonymous or has other references.
    NotExclusive(VirtAddr),
    /// An entry has the bit `BORROWED` but maps no zero page, or maps a zero page without the bit.
    NotZero(VirtAddr),
    /// An entry maps a frame of the wrong kind for its area: a page of an object in an area without one, anonymous
    /// memory in a shared area, a hugetlb page outside hugetlb areas, or another page in a hugetlb area.
    WrongKind(VirtAddr),
    /// An entry in an area of device memory does not map the frame at its offset, holds a reference or is exclusive, or
    /// an entry of another area has a cache mode.
    NotDevice(VirtAddr),
    /// A page of an area of device memory is not mapped.
    Device {
        /// The number of pages of such areas.
        mapped: u64,
        /// The number of pages that their entries map.
        found: u64,
    },
    /// The count of resident pages is wrong.
    Resident {
        /// The counter that mapping and unmapping update.
        counted: u64,
        /// The number of resident pages in the page table.
        found: u64,
    },
    /// The count of resident pages of objects is wrong.
    ResidentObjects {
        /// The counter that mapping and unmapping update.
        counted: u64,
        /// The number of resident pages of objects in the page table.
        found: u64,
    },
    /// The count of swap entries is wrong.
    Swapped {
        /// The counter that swap-out and swap-in update.
        counted: u64,
        /// The number of swap entries in the page table.
        found: u64,
    },
    /// The count of page-table frames is wrong.
    Tables {
        /// The counter that allocating and freeing page tables update.
        counted: u64,
        /// The number that a walk of the page tables finds.
        found: u64,
    },
}

error_text!(AuditError {
    Self::AreaOrder(at) => "the area at {at} is out of order, empty or out of bounds, or overlaps another";
    Self::Totals => "the totals of mapped and locked pages do not match the areas";
    Self::EntryOutside(at) => "the entry at {at} is outside every area";
    Self::ExcessRights(at) => "the entry at {at} has other rights or another protection key than its area";
    Self::NotWritable(at) => "the entry at {at} is writable, which its area and its page do not permit";
    Self::NotExclusive(at) => "the entry at {at} is exclusive, but its page has other references or is not anonymous";
    Self::NotZero(at) => "the entry at {at} and its frame disagree about the zero page";
    Self::WrongKind(at) => "the entry at {at} maps a frame of the wrong kind for its area";
    Self::NotDevice(at) => "the entry at {at} does not map its part of a device, or has a cache mode without one";
    Self::Device { mapped, found } => "areas of device memory have {mapped} pages, of which {found} are mapped";
    Self::Resident { counted, found } => "{counted} resident pages were counted, {found} are mapped";
    Self::ResidentObjects { counted, found } => "{counted} resident pages of objects were counted, {found} are mapped";
    Self::Swapped { counted, found } => "{counted} swap entries were counted, there are {found}";
    Self::Tables { counted, found } => "{counted} page tables were counted, there are {found}";
});

impl<M: Machine> AddressSpace<M> {
    /// Compares the page table with the areas, and the counters with both. The caller must ensure that no other CPU
    /// runs in this address space during the audit.
    ///
    /// # Locks
    /// Takes the lock of the areas for writing.
    ///
    /// # Errors
    /// The first inconsistency found.
    pub fn audit(&self) -> Result<(), AuditError> {
        let core = &*self.core;
        // The audit changes nothing. It takes the lock for writing to exclude concurrent changes of entries.
        let areas = core.areas.write();
        audit_areas(core, &areas)?;
        audit_entries(core, &areas)?;
        let (counted, found) = (core.table.table_frames(), core.table.count_tables());
        if counted != found {
            return Err(AuditError::Tables { counted, found });
        }
        Ok(())
    }
}

fn audit_areas<M: Machine>(core: &Core<M>, areas: &Areas<M>) -> Result<(), AuditError> {
    let bounds = core.bounds();
    let mut previous: Option<&Area<M>> = None;
    let (mut mapped, mut locked) = (0, 0);
    for area in areas.map.iter() {
        let at = area.start().address();
        let floor = previous.map_or(Page::new(0), Area::end);
        if area.pages() == 0 || area.start() < floor || area.end() > bounds.end {
            return Err(AuditError::AreaOrder(at));
        }
        mapped += area.pages();
        if area.flags().contains(AreaFlags::LOCKED) {
            locked += area.pages();
        }
        previous = Some(area);
    }
    if (mapped, locked) != (areas.mapped, areas.locked) {
        return Err(AuditError::Totals);
    }
    Ok(())
}

fn audit_entries<M: Machine>(core: &Core<M>, areas: &Areas<M>) -> Result<(), AuditError> {
    let (mut found, mut objects, mut swapped, mut device) = (0, 0, 0, 0);
    let mut cursor = core.table.look(M::Arch::USER);
    while let Some(extent) = cursor.next_filled() {
        let page = extent.range.start;
        match extent.entry {
            Entry::Empty | Entry::Marker(_) => {}
            Entry::Swapped(_) | Entry::Migrating(_) => {
                if areas.map.find(page).is_none() {
                    return Err(AuditError::EntryOutside(page.address()));
                }
                swapped += u64::from(matches!(extent.entry, Entry::Swapped(_)));
            }
            Entry::Present(present) => {
                let area = areas.map.find(page);
                let area = area.ok_or(AuditError::EntryOutside(page.address()))?;
                if extent.range.end > area.end() {
                    return Err(AuditError::EntryOutside(area.end().address()));
                }
                audit_page(core, area, page, present)?;
                if area.flags().contains(AreaFlags::PHYSICAL) {
                    device += extent.range.len();
                }
                let pooled = area.flags().contains(AreaFlags::HUGETLB);
                if !present.bits.contains(Bits::BORROWED) && !pooled {
                    found += extent.range.len();
                    if !core.is_private(present.frame) {
                        objects += extent.range.len();
                    }
                }
            }
        }
        if !cursor.advance() {
            break;
        }
    }
    let of_devices = areas
        .map
        .iter()
        .filter(|area| area.flags().contains(AreaFlags::PHYSICAL));
    let mapped = of_devices.map(Area::pages).sum();
    if device != mapped {
        return Err(AuditError::Device {
            mapped,
            found: device,
        });
    }
    let counted = core.resident();
    if counted != found {
        return Err(AuditError::Resident { counted, found });
    }
    let counted = core.resident_objects();
    if counted != objects {
        return Err(AuditError::ResidentObjects {
            counted,
            found: objects,
        });
    }
    let counted = core.swapped();
    if counted != swapped {
        return Err(AuditError::Swapped {
            counted,
            found: swapped,
        });
    }
    Ok(())
}

fn audit_page<M: Machine>(
    core: &Core<M>,
    area: &Area<M>,
    page: Page,
    present: Present,
) -> Result<(), AuditError> {
    let at = page.address();
    let bits = present.bits;
    let rights = area.rights();
    let excess = bits.contains(Bits::READ) && rights.is_none()
        || bits.key() != rights.key()
        || bits.contains(Bits::WRITE) && !rights.contains(Rights::WRITE)
        || bits.contains(Bits::EXECUTE) && !rights.contains(Rights::EXECUTE);
    if excess {
        return Err(AuditError::ExcessRights(at));
    }
    if bits.contains(Bits::WRITE) && !writable(area.view(), bits).is_writable() {
        return Err(AuditError::NotWritable(at));
    }
    let frames = core.memory.frames();
    if area.flags().contains(AreaFlags::PHYSICAL) {
        let own = u64::from(present.frame_of(page).number()) == area.offset_of(page);
        let bare = bits.contains(Bits::BORROWED) && !bits.contains(Bits::EXCLUSIVE);
        return if own && bare && bits.cache().is_some() && !frames.manages(present.frame) {
            Ok(())
        } else {
            Err(AuditError::NotDevice(at))
        };
    }
    if bits.intersects(Bits::CACHE) {
        return Err(AuditError::NotDevice(at));
    }
    let zero = frames.kind(present.frame) == FrameKind::Zero;
    if bits.contains(Bits::BORROWED) != zero {
        return Err(AuditError::NotZero(at));
    }
    let anonymous = core.is_anonymous(present.frame);
    let sole = match present.size {
        PageSize::Size4K => frames.references(present.frame) == 1,
        PageSize::Size2M | PageSize::Size1G => frames.is_sole_whole(present.frame),
    };
    if bits.contains(Bits::EXCLUSIVE) && !(anonymous && sole) {
        return Err(AuditError::NotExclusive(at));
    }
    let whole = area.flags().contains(AreaFlags::HUGETLB) == frames.kind(present.frame).is_pool();
    let private = core.is_private(present.frame);
    let foreign = !whole || area.object().is_none() && !private && !zero;
    if foreign || (area.is_shared() && private) {
        return Err(AuditError::WrongKind(at));
    }
    Ok(())
}
