//! Changing protection (Linux 7.2 `mm/mprotect.c`, `do_mprotect_pkey`).
//!
//! One pass over the areas, one gather over all their entries, one flush at the end. Write permission is
//! granted at once wherever the rule grants it, so that the next store does not fault.

use memwright_table::{Bits, Edit, Gather, Machine, Page, PageRange, Present, VirtAddr};

use super::areas::is_accountable;
use super::check::{self, RangeError};
use super::core::access_bits;
use super::{AddressSpace, Area, Areas, Core};
use crate::error::ProtectError;
use crate::policy::WriteUpgrade;
use crate::stats::Row;
use crate::trace::Event;
use crate::vma::{AreaFlags, Position, Rights};
use crate::writable::{View, upgrade};

impl<M: Machine> AddressSpace<M> {
    /// Changes the rights of `length` bytes, rounded up to pages. No bytes: nothing happens.
    ///
    /// # Errors
    /// As [`ProtectError`] says. Areas below the one that failed have changed, as on Linux.
    pub fn protect(
        &self,
        address: VirtAddr,
        length: u64,
        rights: Rights,
    ) -> Result<(), ProtectError> {
        let core = &*self.core;
        let range = check::pages(address, length).map_err(|error| match error {
            RangeError::Misaligned => ProtectError::Misaligned,
            RangeError::Wraps => ProtectError::OutOfRange,
        })?;
        if range.is_empty() {
            return Ok(());
        }
        let mut areas = core.areas.write();
        let Some(first) = areas.map.at_or_after(range.start) else {
            return Err(ProtectError::Hole(address));
        };
        let area = areas.map.get(first);
        if area.start() > range.start {
            return Err(ProtectError::Hole(address));
        }
        if area.rights == rights && range.end <= area.end() {
            return Ok(());
        }
        let cpu = core.cpu();
        let mut gather = core.table.gather();
        let mut change = Change {
            rights,
            entries: 0,
            avoided: 0,
        };
        let result = change.areas(core, &mut areas, range, &mut gather);
        let counts = gather.finish();
        core.note_areas(cpu, &mut areas);
        let populate = change.rights.contains(Rights::WRITE) && areas.locked > 0;
        drop(areas);
        core.note_gather(cpu, &counts);
        if change.avoided > 0 {
            core.memory
                .count_on(cpu, Row::WriteFaultsAvoided, change.avoided);
        }
        core.memory.trace(|| Event::Protect {
            range,
            rights,
            entries: change.entries,
        });
        if populate {
            // Locked private pages that became writable are copied now, not by a fault.
            let _ = core.populate_locked(range);
        }
        result
    }
}

/// One protection change under way.
struct Change {
    rights: Rights,
    entries: u64,
    avoided: u64,
}

impl Change {
    /// Changes area after area, until one refuses or the range ends.
    fn areas<M: Machine>(
        &mut self,
        core: &Core<M>,
        areas: &mut Areas<M>,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), ProtectError> {
        let mut start = range.start;
        while start < range.end {
            let position = areas
                .map
                .at_or_after(start)
                .filter(|position| areas.map.get(*position).start() <= start)
                .ok_or(ProtectError::Hole(start.address()))?;
            let end = areas.map.get(position).end().min(range.end);
            self.area(core, areas, position, PageRange::new(start, end), gather)?;
            start = end;
        }
        Ok(())
    }

    /// Changes the part `range` of one area.
    fn area<M: Machine>(
        &mut self,
        core: &Core<M>,
        areas: &mut Areas<M>,
        position: Position,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), ProtectError> {
        let area = areas.map.get(position);
        let old = area.rights;
        if !area.max_rights.contains(self.rights) {
            return Err(ProtectError::Denied(range.start.address()));
        }
        if old == self.rights {
            return Ok(());
        }
        self.update_area(core, areas, position, range)?;
        let position = areas
            .map
            .at_or_after(range.start)
            .expect("the area was just changed");
        let area = areas.map.get(position);
        self.entries(core, area, range, gather);
        areas.map.merge_edges(range);
        Ok(())
    }

    /// Everything that can fail, then the area itself.
    fn update_area<M: Machine>(
        &self,
        core: &Core<M>,
        areas: &mut Areas<M>,
        position: Position,
        range: PageRange,
    ) -> Result<(), ProtectError> {
        let area = areas.map.get(position);
        let (old, flags, whole) = (area.rights, area.flags, area.range());
        let pages = range.len();
        let new_flags = if is_accountable(self.rights, flags) {
            flags | AreaFlags::ACCOUNTED
        } else {
            flags
        };
        if self.rights.contains(Rights::WRITE) && !old.contains(Rights::WRITE) {
            // Only the data limit can be exceeded: the size stays (Linux 7.2 `mprotect_fixup`).
            areas
                .check_growth(self.rights, flags, pages, pages)
                .map_err(ProtectError::OverLimit)?;
        }
        if range != whole {
            let cuts = usize::from(range.start > whole.start) + usize::from(range.end < whole.end);
            areas.check_count(cuts).map_err(ProtectError::OverLimit)?;
            areas.map.reserve(cuts)?;
        }
        if new_flags != flags {
            core.memory
                .commit()
                .charge(pages)
                .map_err(|_| ProtectError::Overcommit)?;
        }
        if range != whole {
            areas.map.split_at(range.start);
            areas.map.split_at(range.end);
        }
        areas.count_out(old, flags, pages);
        areas.count_in(self.rights, new_flags, pages);
        let position = areas
            .map
            .at_or_after(range.start)
            .expect("the area is there");
        let area = areas.map.get_mut(position);
        area.rights = self.rights;
        area.flags = new_flags;
        Ok(())
    }

    /// The entries of the part `range` of one area, whose rights are the new ones.
    fn entries<M: Machine>(
        &mut self,
        core: &Core<M>,
        area: &Area<M>,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) {
        let view = area.view();
        let policy = core.memory.policy().write_upgrade();
        let access = access_bits(self.rights);
        let avoided = &mut self.avoided;
        let mut cursor = core.table.cursor(range);
        self.entries += cursor.edit_run(
            range.end,
            |_: Page, page: Present| {
                let edit = protect_edit(view, access, page.bits, policy);
                *avoided +=
                    u64::from(edit.set.contains(Bits::WRITE) && !page.bits.contains(Bits::WRITE));
                edit
            },
            gather,
        );
    }
}

/// What a protection change makes of one entry: accessed, dirty and the other state stay (design rule 7).
#[inline]
pub(crate) fn protect_edit(view: View, access: Bits, bits: Bits, policy: WriteUpgrade) -> Edit {
    let mut set = access;
    let kept = bits.contains(Bits::WRITE);
    let after = bits | access;
    if access.contains(Bits::READ) {
        // What was writable and still may be is not asked of the policy again.
        let policy = if kept { WriteUpgrade::On } else { policy };
        if upgrade(view, after, policy).is_writable() {
            set |= Bits::WRITE;
        }
    }
    Edit {
        set,
        clear: Bits::RIGHTS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_keeps_state_and_derives_writing() {
        let view = |rights| View {
            rights,
            shared: false,
            notify: false,
            soft_dirty: false,
        };
        let (r, w, x) = (Bits::READ, Bits::WRITE, Bits::EXECUTE);
        let own = Bits::EXCLUSIVE;
        let rw = Rights::READ | Rights::WRITE;
        #[rustfmt::skip]
        let rows = [
            ("to read only",          Rights::READ,    r | w | own, WriteUpgrade::On,  r),
            ("to nothing",            Rights::empty(), r | w | own, WriteUpgrade::On,  Bits::empty()),
            ("back from nothing",     rw,              own,         WriteUpgrade::On,  r | w),
            ("back, but shared",      rw,              r,           WriteUpgrade::On,  r),
            ("back, policy off",      rw,              r | own,     WriteUpgrade::Off, r),
            ("kept, policy off",      rw,              r | w | own, WriteUpgrade::Off, r | w),
            ("executable",            Rights::all(),   r | own,     WriteUpgrade::On,  r | w | x),
            ("write implies reading", Rights::WRITE,   own,         WriteUpgrade::On,  r | w),
        ];
        for (name, rights, bits, policy, set) in rows {
            let edit = protect_edit(view(rights), access_bits(rights), bits, policy);
            assert_eq!(
                edit,
                Edit {
                    set,
                    clear: Bits::RIGHTS
                },
                "{name}"
            );
        }
    }
}
