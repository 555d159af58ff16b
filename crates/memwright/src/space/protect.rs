//! Changing protection (Linux 7.2 `mm/mprotect.c`, `do_mprotect_pkey`).
//!
//! One pass over the areas, one gather over all their entries, one flush at the end. Write permission is
//! granted at once wherever the rule grants it, so that the next store does not fault.

use memwright_table::sync::PausePoints;
use memwright_table::{Bits, Edit, Edited, Gather, Machine, Page, PageRange, VirtAddr};

use super::areas::{CutError, is_accountable};
use super::check::{self, RangeError};
use super::core::access_bits;
use super::{AREAS, AddressSpace, Area, Areas, Core, cuts_hugetlb};
use crate::error::ProtectError;
use crate::policy::WriteUpgrade;
use crate::stats::Row;
use crate::trace::Event;
use crate::vma::{AreaFlags, Position, Rights};
use crate::writable::{Grant, View};

impl<M: Machine> AddressSpace<M> {
    /// Changes the rights of `length` bytes, rounded up to pages; protection keys stay. No bytes: nothing happens.
    ///
    /// # Errors
    /// As [`ProtectError`] says. Areas below the one that failed have changed, as on Linux.
    pub fn protect(
        &self,
        address: VirtAddr,
        length: u64,
        rights: Rights,
    ) -> Result<(), ProtectError> {
        self.protect_to(address, length, rights, None)
    }

    /// The same, and the areas have the protection key `key` then.
    ///
    /// # Errors
    /// As for [`protect`](Self::protect); [`ProtectError::Key`] if the key is not one that the program took.
    pub fn protect_by_key(
        &self,
        address: VirtAddr,
        length: u64,
        rights: Rights,
        key: u8,
    ) -> Result<(), ProtectError> {
        if !self.core.areas.read(self.core.cpu()).keys.is_allocated(key) {
            return Err(ProtectError::Key);
        }
        self.protect_with(address, length, rights, key)
    }

    /// Changes the rights to those of memory that may only be executed, with the key that
    /// [`execute_only_key`](Self::execute_only_key) gave.
    ///
    /// # Errors
    /// As for [`protect`](Self::protect).
    pub fn protect_execute_only(
        &self,
        address: VirtAddr,
        length: u64,
        key: u8,
    ) -> Result<(), ProtectError> {
        self.protect_with(address, length, Rights::EXECUTE, key)
    }

    #[inline(never)]
    fn protect_with(
        &self,
        address: VirtAddr,
        length: u64,
        rights: Rights,
        key: u8,
    ) -> Result<(), ProtectError> {
        self.protect_to(address, length, rights, Some(key))
    }

    #[inline(always)]
    fn protect_to(
        &self,
        address: VirtAddr,
        length: u64,
        rights: Rights,
        key: Option<u8>,
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
        // Read before the area is, so that what is known of it then need not be read again.
        let (cpu, flush) = (core.cpu(), core.memory.policy().flush());
        let Some((first, area)) = areas.map.locate(range.start) else {
            return Err(ProtectError::Hole(address));
        };
        let sealed = area.flags.contains(AreaFlags::SEALED);
        // With a key they differ, and are looked at later.
        if area.rights == rights && key.is_none() && range.end <= area.end() && !sealed {
            return Ok(());
        }
        let mut gather = core.table.gather_by(flush);
        let mut change = Change {
            rights,
            key,
            avoided: 0,
            locked: false,
        };
        let result = change.areas(core, &mut areas, first, range, &mut gather);
        let counts = gather.close();
        core.note_areas(cpu, &mut areas);
        drop(areas);
        core.note_gather(cpu, counts);
        core.memory.trace(|| Event::Protect {
            range,
            rights,
            entries: counts.edited(),
        });
        if change.avoided > 0 {
            core.memory
                .count_on(cpu, Row::WriteFaultsAvoided, change.avoided);
        }
        if change.locked {
            core.populate_gained();
        }
        result
    }
}

/// One protection change under way.
struct Change {
    /// Without a key.
    rights: Rights,
    /// The areas keep theirs where there is none.
    key: Option<u8>,
    avoided: u64,
    /// Locked memory became writable.
    locked: bool,
}

impl Change {
    /// Changes area after area, until one refuses or the range ends.
    #[inline(always)]
    fn areas<M: Machine>(
        &mut self,
        core: &Core<M>,
        areas: &mut Areas<M>,
        first: Position,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), ProtectError> {
        let (position, end) = self.area(core, areas, first, range, gather)?;
        if end == range.end {
            return Ok(());
        }
        self.more_areas(
            core,
            areas,
            position,
            PageRange::new(end, range.end),
            gather,
        )
    }

    /// The same for what follows the area at `position`.
    #[inline(never)]
    fn more_areas<M: Machine>(
        &mut self,
        core: &Core<M>,
        areas: &mut Areas<M>,
        mut position: Position,
        mut rest: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), ProtectError> {
        let mut points = PausePoints::every(AREAS);
        while !rest.is_empty() {
            points.round();
            if self.locked {
                core.found_gained(areas, position);
            }
            // The area may have merged with the one above it.
            if areas.map.get(position).end() == rest.start {
                position = areas
                    .map
                    .next(position)
                    .filter(|next| areas.map.get(*next).start() == rest.start)
                    .ok_or(ProtectError::Hole(rest.start.address()))?;
            }
            (position, rest.start) = self.area(core, areas, position, rest, gather)?;
        }
        Ok(())
    }

    /// Changes the part of the area at `position` that begins where `rest` does and ends with the area or with
    /// `rest`; returns where that part is now, and its end.
    #[inline(always)]
    fn area<M: Machine>(
        &mut self,
        core: &Core<M>,
        areas: &mut Areas<M>,
        position: Position,
        rest: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<(Position, Page), ProtectError> {
        let area = areas.map.get(position);
        let range = PageRange::new(rest.start, area.end().min(rest.end));
        let gain = areas.exec_gain;
        let rights = match self.key {
            Some(key) => self.rights.with_key(key),
            None if area.rights.key() == 0 => self.rights,
            None => areas.keys.kept(area.rights, self.rights),
        };
        if !area.max_rights.contains(self.rights) || gain.forbids(area.rights, self.rights) {
            return Err(ProtectError::Denied(range.start.address()));
        }
        let (old, flags, whole) = (area.rights, area.flags, area.range());
        if flags.intersects(AreaFlags::SEALED | AreaFlags::HUGETLB) {
            check_part(flags, old == rights, range)?;
        }
        if old == rights {
            return Ok((position, range.end));
        }
        let new_flags = self.charge(core, areas, (old, flags), range)?;
        let mut position = position;
        if range != whole {
            position = areas.cut(position, whole, range).map_err(|error| {
                if new_flags != flags {
                    core.memory.take_back(range.len());
                }
                ProtectError::from(error)
            })?;
        }
        areas.reclassify((old, flags), (rights, new_flags), range.len());
        let area = areas.map.get_mut(position);
        area.rights = rights;
        area.flags = new_flags;
        if !self.rights.contains(Rights::WRITE) && !area.has_faulted() {
            uncharge(core, area, range.len());
        }
        self.entries(core, area, range, gather);
        Ok((areas.map.merge_around(position), range.end))
    }

    /// What can fail of a change of `range` with these rights and flags; returns the new flags.
    #[inline(always)]
    fn charge<M: Machine>(
        &mut self,
        core: &Core<M>,
        areas: &mut Areas<M>,
        (old, flags): (Rights, AreaFlags),
        range: PageRange,
    ) -> Result<AreaFlags, ProtectError> {
        if !self.rights.contains(Rights::WRITE) || old.contains(Rights::WRITE) {
            return Ok(flags);
        }
        if flags.contains(AreaFlags::LOCKED) {
            self.locked = true;
            areas.note_gained(range);
        }
        // Only the data limit can be exceeded: the size stays (Linux 7.2 `mprotect_fixup`).
        areas
            .check_data(self.rights, flags, range.len())
            .map_err(ProtectError::OverLimit)?;
        if !is_accountable(self.rights, flags) || flags.contains(AreaFlags::ACCOUNTED) {
            return Ok(flags);
        }
        core.memory
            .promise(range.len())
            .map_err(|_| ProtectError::Overcommit)?;
        Ok(flags | AreaFlags::ACCOUNTED)
    }

    /// The entries of the part `range` of one area, whose rights are the new ones.
    #[inline(always)]
    fn entries<M: Machine>(
        &mut self,
        core: &Core<M>,
        area: &Area<M>,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) {
        // Where the area was cut a huge page is cut too: once for all that follows.
        if core.table.has_large() {
            let mut cursor = core.table.cursor(range).pausing();
            core.split_cut(&mut cursor, gather, Row::HugeSplitsProtect);
        }
        let (view, policy) = (area.view(), core.memory.policy());
        let end = range.end;
        let access = access_bits(view.rights);
        // One loop for each kind of change, of which most are of the first two.
        let edited = if !view.rights.contains(Rights::WRITE) {
            let edit = edit_to(access, false);
            let mut cursor = core.table.cursor(range).pausing();
            cursor.edit_alike(end, move |_| edit, gather)
        } else if !policy.upgrades_all() {
            edit_by_policy(core, view, range, gather)
        } else if view.shared {
            edit_shared(core, view, range, gather)
        } else {
            let grant = Grant::new(view, WriteUpgrade::On);
            let rule = move |bits| edit_to(access, grant.allows(bits));
            let mut cursor = core.table.cursor(range).pausing();
            // A page whose other owners are gone is this one's alone again.
            cursor.edit_regaining(end, rule, gather)
        };
        // No address space has so many pages.
        self.avoided = self.avoided.wrapping_add(edited.made_writable);
    }
}

/// The same where writing is granted in shared memory.
#[inline(never)]
fn edit_shared<M: Machine>(
    core: &Core<M>,
    view: View,
    range: PageRange,
    gather: &mut Gather<'_, M>,
) -> Edited {
    let (access, grant) = (access_bits(view.rights), Grant::new(view, WriteUpgrade::On));
    let rule = move |bits| edit_to(access, grant.allows(bits));
    let mut cursor = core.table.cursor(range).pausing();
    cursor.edit_alike(range.end, rule, gather)
}

/// The same under a policy that withholds the right to write from some pages.
#[cold]
#[inline(never)]
fn edit_by_policy<M: Machine>(
    core: &Core<M>,
    view: View,
    range: PageRange,
    gather: &mut Gather<'_, M>,
) -> Edited {
    let rule = PolicyRule::new(view, core.memory.policy().write_upgrade());
    let mut cursor = core.table.cursor(range).pausing();
    cursor.edit_alike(range.end, move |bits| rule.edit(bits), gather)
}

/// Whether the part `range` of an area with these flags, sealed or of huge pages of the pool, may change, if it does.
#[cold]
fn check_part(flags: AreaFlags, stays: bool, range: PageRange) -> Result<(), ProtectError> {
    if flags.contains(AreaFlags::SEALED) {
        return Err(ProtectError::Sealed(range.start.address()));
    }
    if !stays && cuts_hugetlb(flags, range) {
        return Err(ProtectError::Misaligned);
    }
    Ok(())
}

impl From<CutError> for ProtectError {
    fn from(error: CutError) -> Self {
        match error {
            CutError::OverLimit(limit) => Self::OverLimit(limit),
            CutError::OutOfMemory => Self::OutOfMemory,
        }
    }
}

/// What a protection change makes of the entries of one area under a policy.
#[derive(Clone, Copy)]
struct PolicyRule {
    access: Bits,
    /// For entries that are not writable.
    grant: Grant,
    /// For entries that are writable already: those the policy is not asked about again.
    keep: Grant,
}

impl PolicyRule {
    fn new(view: View, policy: WriteUpgrade) -> Self {
        Self {
            access: access_bits(view.rights),
            grant: Grant::new(view, policy),
            keep: Grant::new(view, WriteUpgrade::On),
        }
    }

    fn edit(self, bits: Bits) -> Edit {
        let kept = bits.contains(Bits::WRITE) && self.keep.allows(bits);
        edit_to(self.access, kept || self.grant.allows(bits))
    }
}

/// The rights that `access` names, and that to write if it is granted. Accessed, dirty and the other state
/// stay (design rule 7).
#[inline]
fn edit_to(access: Bits, write: bool) -> Edit {
    let write = if write { Bits::WRITE } else { Bits::empty() };
    Edit {
        set: access | write,
        clear: Bits::PROTECTION,
    }
}

/// Memory that holds nothing and can no longer be written is promised to nobody (Linux 7.2 `mm/mprotect.c`,
/// `mprotect_fixup`).
#[cold]
#[inline(never)]
fn uncharge<M: Machine>(core: &Core<M>, area: &mut Area<M>, pages: u64) {
    if area.flags.contains(AreaFlags::ACCOUNTED) && area.object().is_none() {
        core.memory.take_back(pages);
        area.flags -= AreaFlags::ACCOUNTED;
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
            let edit = PolicyRule::new(view(rights), policy).edit(bits);
            assert_eq!(
                edit,
                Edit {
                    set,
                    clear: Bits::PROTECTION
                },
                "{name}"
            );
        }
    }
}
