//! Collapse of shared memory: an object's pages become a huge one, which is mapped here
//! (Linux 7.2 `mm/khugepaged.c`, `collapse_file` and `collapse_pte_mapped_thp`).

use alloc::sync::Arc;

use memwright_table::{Bits, Entry, Machine, PageRange, PageSize, Present};

use super::collapse::CollapseFailure;
use super::{Area, Areas, Core, access_bits};
use crate::huge::HugeAsker;
use crate::object::{CollapseError, CollapseLimits, Object};
use crate::vma::AreaFlags;
use crate::writable::upgrade;

impl From<CollapseError> for CollapseFailure {
    fn from(error: CollapseError) -> Self {
        match error {
            CollapseError::NotEligible => Self::NotEligible,
            CollapseError::Busy => Self::Busy,
            CollapseError::NoFrames => Self::NoFrames,
        }
    }
}

/// How often a page that others use at this moment is waited for: whoever found one before the pages were taken out of
/// the tables gives it up, or maps it, soon.
const ATTEMPTS: u32 = 3;

/// Whether the area at the start of `range` shows an object.
pub(super) fn shows_object<M: Machine>(areas: &Areas<M>, range: PageRange) -> bool {
    let area = areas.map.find(range.start);
    area.is_some_and(|area| area.object().is_some())
}

impl<M: Machine> Core<M> {
    /// Whether a scan would collapse `range`: some of it is mapped, and in small pages.
    pub(super) fn is_mapped_small(&self, areas: &Areas<M>, range: PageRange) -> bool {
        let area = areas.map.find(range.start);
        let fits = area.is_some_and(|area| self.area_may_be_huge(area, range, HugeAsker::Setting));
        let mut look = self.table.look(range);
        fits && look.next_filled().is_some_and(|extent| match extent.entry {
            Entry::Present(page) => page.size == PageSize::Size4K,
            Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => false,
        })
    }

    /// Makes the object's pages that `range` shows one huge page, unless they are; of those at most so many may be missing or in swap.
    /// For a program it is mapped as a whole; a scan leaves that to the next fault, and takes out of its way what is
    /// mapped in small pages. Says whether that could be done.
    pub(super) fn collapse_object(
        &self,
        range: PageRange,
        asker: HugeAsker,
        mut limits: CollapseLimits,
    ) -> Result<bool, CollapseFailure> {
        let (object, first) = {
            let areas = self.areas.read(self.cpu());
            let area = areas.map.find(range.start);
            let area = area.filter(|area| self.area_may_be_huge(area, range, asker));
            let area = area.ok_or(CollapseFailure::NotEligible)?;
            let object = area.object().ok_or(CollapseFailure::NotEligible)?;
            // Whoever watches would not be told when what is missing appears.
            if area.flags().intersects(AreaFlags::UFFD) {
                limits.missing = 0;
            }
            (Arc::clone(object), area.offset_of(range.start))
        };
        let mut outcome = object.collapse(first, limits);
        for _ in 1..ATTEMPTS {
            if outcome != Err(CollapseError::Busy) {
                break;
            }
            outcome = object.collapse(first, limits);
        }
        outcome?;
        Ok(match asker {
            HugeAsker::Program => self.map_whole(range, &*object, first),
            HugeAsker::Setting => self.take_table(range, &*object, first),
        })
    }

    /// Takes the lowest table of `range` away, if its entries show the object's own pages and nobody watches them: the
    /// next fault maps the huge page.
    fn take_table(&self, range: PageRange, object: &dyn Object<M>, first: u64) -> bool {
        let areas = self.areas.write();
        let area = areas.map.find(range.start);
        let area = area.filter(|area| self.still_shows(area, range, object, first));
        if area.is_none_or(|area| area.flags().intersects(AreaFlags::MARKED | AreaFlags::UFFD)) {
            return false;
        }
        let mut look = self.table.look(range);
        while let Some(extent) = look.next_filled() {
            let own = match extent.entry {
                // A zero page is here because somebody filled private memory with it.
                Entry::Present(page) => {
                    !self.is_private(page.frame) && !page.bits.contains(Bits::BORROWED)
                }
                Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => false,
            };
            if !own {
                return false;
            }
            if !look.advance() {
                break;
            }
        }
        drop(look);
        self.remove_entries(self.cpu(), range);
        true
    }

    /// Whether the area, found anew, shows what it did.
    fn still_shows(
        &self,
        area: &Area<M>,
        range: PageRange,
        object: &dyn Object<M>,
        first: u64,
    ) -> bool {
        let same = area.object().is_some_and(|shown| {
            core::ptr::addr_eq(Arc::as_ptr(shown), core::ptr::from_ref(object))
        });
        same && self.area_may_be_huge(area, range, HugeAsker::Program)
            && area.offset_of(range.start) == first
    }

    /// Maps the object's huge page in the place of its small ones, if nothing but these is mapped. If the world changed
    /// meanwhile the next fault finds what there is.
    fn map_whole(&self, range: PageRange, object: &dyn Object<M>, first: u64) -> bool {
        let areas = self.areas.write();
        let area = areas.map.find(range.start);
        let Some(area) = area.filter(|area| self.still_shows(area, range, object, first)) else {
            return false;
        };
        let Some(head) = object.folio(&self.memory, first, false) else {
            return false;
        };
        let folio = self.memory.frames().adopt_whole(head);
        // What was written through small pages is not known any more: it counts as written.
        let mut bits = access_bits(area.rights()) | Bits::SOFT_DIRTY;
        let policy = self.memory.policy().write_upgrade();
        let verdict = upgrade(area.view(), bits, policy);
        bits.set(Bits::WRITE, verdict.is_writable());
        let cpu = self.cpu();
        let mut cursor = self.table.cursor(range);
        let mapped = if cursor.size() == PageSize::Size4K {
            drop(cursor);
            let mut gather = self.gather();
            let mapped = self.table.retract(range, folio, bits, &mut gather);
            let counts = gather.close();
            self.note_gather(cpu, counts);
            mapped
        } else {
            let entry = Entry::Present(Present {
                frame: head,
                size: PageSize::Size2M,
                bits,
            });
            let filled = cursor.peek() == Entry::Empty && cursor.fill(entry).is_ok();
            if filled {
                let _ = folio.into_raw();
            }
            filled
        };
        if mapped {
            self.note_filled_huge(cpu);
            self.memory.count_mapped_whole();
        }
        mapped
    }
}
