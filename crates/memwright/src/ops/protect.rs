//! Changing protection (Linux 7.2 `mm/mprotect.c`, `do_mprotect_pkey`).
//!
//! A change makes one pass over the areas, collects all their entries in one gather, and flushes once at the end. Write
//! permission is granted eagerly wherever [`writable`](crate::writable) permits it, so that the next store does not
//! fault.

use memwright_table::sync::PausePoints;
use memwright_table::{Bits, Edit, Edited, Gather, Machine, Page, PageRange, VirtAddr};

use crate::mm::areas::{Areas, cuts_hugetlb};
use crate::mm::check::{self, RangeError};
use crate::mm::core::Core;
use crate::mm::space::{AREAS, AddressSpace, Area};
use crate::mm::theme::ProtectionKeys;
use crate::types::error::{CutError, ProtectError};
use crate::types::policy::WriteUpgrade;
use crate::types::rights::Rights;
use crate::types::stats::Row;
use crate::types::trace::Event;
use crate::vma::area::AreaFlags;
use crate::vma::idle::reprotect;
use crate::vma::map::Position;
use crate::vma::writable::{Grant, View, access_bits};

impl<M: Machine> AddressSpace<M> {
    /// Changes the rights of `length` bytes from `address` on, rounded up to pages. The protection keys of the areas do
    /// not change. Does nothing if `length` is 0.
    ///
    /// # Errors
    /// See [`ProtectError`]. On error the areas below the failing area have changed, as on Linux.
    pub fn protect(
        &self,
        address: VirtAddr,
        length: u64,
        rights: Rights,
    ) -> Result<(), ProtectError> {
        self.protect_to(address, length, rights, None)
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

    #[cfg_attr(feature = "inline", inline(always))]
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
        // Read these values before the lookup of the area, so that the values loaded from the area stay in registers.
        let (cpu, flush) = (core.cpu(), core.memory.policy().flush());
        let Some((first, area)) = areas.map.locate(range.start) else {
            return Err(ProtectError::Hole(address));
        };
        let sealed = area.flags().contains(AreaFlags::SEALED);
        // `rights` does not include a new key. If there is one, the method `area` compares the rights including the
        // key.
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
        core.conclude(cpu, &mut gather, ((), areas), |counts| Event::Protect {
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

impl<M: Machine> ProtectionKeys<'_, M> {
    /// Changes the rights of memory like [`AddressSpace::protect`], and also tags the areas with the protection key `key`.
    ///
    /// # Errors
    /// See [`AddressSpace::protect`], and [`ProtectError::Key`] if the program has not allocated the key.
    pub fn protect(
        &self,
        address: VirtAddr,
        length: u64,
        rights: Rights,
        key: u8,
    ) -> Result<(), ProtectError> {
        if !self
            .space
            .core
            .areas
            .read(self.space.core.cpu())
            .keys
            .is_allocated(key)
        {
            return Err(ProtectError::Key);
        }
        self.space.protect_with(address, length, rights, key)
    }

    /// Makes memory execute-only, with the key that [`execute_only`](Self::execute_only) returned.
    ///
    /// # Errors
    /// See [`AddressSpace::protect`].
    pub fn protect_execute_only(
        &self,
        address: VirtAddr,
        length: u64,
        key: u8,
    ) -> Result<(), ProtectError> {
        self.space
            .protect_with(address, length, Rights::EXECUTE, key)
    }
}

/// The flags of areas that are changed out of line, by `unusual_area`.
const UNUSUAL: AreaFlags = AreaFlags::SEALED
    .union(AreaFlags::HUGETLB)
    .union(AreaFlags::UFFD_RWP);

/// A protection change in progress.
struct Change {
    /// The new rights, without a key.
    rights: Rights,
    /// The new protection key, or `None` if the areas keep their keys.
    key: Option<u8>,
    avoided: u64,
    /// Whether a locked area became writable, so that its pages must be copied.
    locked: bool,
}

impl Change {
    /// Changes the areas of `range` in ascending order, beginning with the area at `first`, until a change fails or
    /// `range` ends.
    #[cfg_attr(feature = "inline", inline(always))]
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

    /// Changes the areas after the area at `position`, like [`areas`](Self::areas).
    #[inline(never)]
    fn more_areas<M: Machine>(
        &mut self,
        core: &Core<M>,
        areas: &mut Areas<M>,
        mut position: Position,
        mut rest: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), ProtectError> {
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        while !rest.is_empty() {
            points.round();
            if self.locked {
                core.found_gained(areas, position);
            }
            // If the area has merged with the area above it, `position` already refers to the area of the next part.
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

    /// Changes a part of the area at `position`: from the start of `rest` up to the end of the area or of `rest`,
    /// whichever is lower. Returns the position of the changed area and the end of the part.
    #[cfg_attr(feature = "inline", inline(always))]
    fn area<M: Machine>(
        &mut self,
        core: &Core<M>,
        areas: &mut Areas<M>,
        position: Position,
        rest: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<(Position, Page), ProtectError> {
        let area = areas.map.get(position);
        if area.flags().intersects(UNUSUAL) {
            return self.unusual_area(core, areas, position, rest, gather);
        }
        self.area_as::<false, M>(core, areas, position, rest, gather)
    }

    /// Does the work of [`area`](Self::area) for an area with one of the flags [`UNUSUAL`].
    #[cold]
    #[inline(never)]
    fn unusual_area<M: Machine>(
        &mut self,
        core: &Core<M>,
        areas: &mut Areas<M>,
        position: Position,
        rest: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<(Position, Page), ProtectError> {
        self.area_as::<true, M>(core, areas, position, rest, gather)
    }

    #[cfg_attr(feature = "inline", inline(always))]
    fn area_as<const RARE: bool, M: Machine>(
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
        if RARE {
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
        if RARE && area.watches_accesses() {
            reprotect_unarmed(core, area, range, gather);
        } else {
            self.entries(core, area, range, gather);
        }
        Ok((areas.map.merge_around(position), range.end))
    }

    /// If `range` becomes writable, checks the data limit and accounts the memory. Returns the new flags of `range`.
    #[cfg_attr(feature = "inline", inline(always))]
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
        // The data limit is the only limit that can be exceeded, because the mapped size does not change (Linux 7.2
        // `mprotect_fixup`).
        let accounts = areas
            .check_gain(self.rights, flags, range.len())
            .map_err(ProtectError::OverLimit)?;
        if !accounts {
            return Ok(flags);
        }
        core.memory
            .promise(range.len())
            .map_err(|_| ProtectError::Overcommit)?;
        Ok(flags | AreaFlags::ACCOUNTED)
    }

    /// Changes the entries of `range`, a part of `area`, to the new rights, which `area` already has.
    #[cfg_attr(feature = "inline", inline(always))]
    fn entries<M: Machine>(
        &mut self,
        core: &Core<M>,
        area: &Area<M>,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) {
        // Split a huge page that straddles an edge of `range`, so that each entry that is edited below is completely
        // inside `range`.
        if core.table.has_large() {
            let mut cursor = core.table.cursor(range).pausing();
            core.split_cut(&mut cursor, gather, Row::HugeSplitsProtect);
        }
        let end = range.end;
        // Each kind of change has a loop of its own. The first and the last branch are for the common kinds.
        let edited = if !area.rights.contains(Rights::WRITE) {
            let edit = edit_to(access_bits(area.rights), false);
            let mut cursor = core.table.cursor(range).pausing();
            cursor.edit_alike(end, move |_| edit, gather)
        } else if !core.memory.policy().upgrades_all() {
            edit_by_policy(core, area.view(), range, gather)
        } else if area.is_shared() {
            edit_shared(core, area, range, gather)
        } else {
            let (access, grant) = area.access_and_grant();
            let rule = move |bits| edit_to(access, grant.allows(bits));
            let mut cursor = core.table.cursor(range).pausing();
            // If all other processes have dropped a page, its entry becomes exclusive again.
            cursor.edit_regaining(end, rule, gather)
        };
        // This cannot wrap around: no address space has that many pages.
        self.avoided = self.avoided.wrapping_add(edited.made_writable);
    }
}

/// Changes the entries of `range`, a part of an area that is registered for userfaultfd's read-write protection. An
/// armed entry has no rights, and gets none here either, so that an access to its page still faults (Linux 7.3
/// `mm/mprotect.c`, `change_present_ptes`).
fn reprotect_unarmed<M: Machine>(
    core: &Core<M>,
    area: &Area<M>,
    range: PageRange,
    gather: &mut Gather<'_, M>,
) {
    let rule = PolicyRule::new(area.view(), core.memory.policy().write_upgrade());
    let edit = |bits| reprotect(bits, rule.edit(bits));
    core.edit_armed(area, range, edit, gather);
}

/// Changes the entries of `range`, a part of a shared area whose new rights permit stores.
#[inline(never)]
fn edit_shared<M: Machine>(
    core: &Core<M>,
    area: &Area<M>,
    range: PageRange,
    gather: &mut Gather<'_, M>,
) -> Edited {
    let (access, grant) = area.access_and_grant();
    let rule = move |bits| edit_to(access, grant.allows(bits));
    let mut cursor = core.table.cursor(range).pausing();
    cursor.edit_alike(range.end, rule, gather)
}

/// Changes the entries of `range` under a policy that withholds write permission from some pages.
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

/// Returns an error if the rights of `range`, a part of an area with these flags, must not be set. `stays` states
/// whether the new rights equal the old ones.
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

/// The edit that a protection change applies to the entries of one area under a write-upgrade policy.
#[derive(Clone, Copy)]
struct PolicyRule {
    access: Bits,
    /// The rule by which entries that are not writable become writable.
    grant: Grant,
    /// The rule by which entries that are already writable stay writable. The policy does not restrict it.
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

/// Returns the edit that sets the rights in `access` and, if `write` is set, the write bit. Accessed, dirty and other
/// state bits do not change (rule: edit-entries).
#[inline]
fn edit_to(access: Bits, write: bool) -> Edit {
    let write = if write { Bits::WRITE } else { Bits::empty() };
    Edit::new(access | write, Bits::PROTECTION)
}

/// Unaccounts `pages` pages of `area` if it is accounted and maps no object (Linux 7.2 `mm/mprotect.c`,
/// `mprotect_fixup`). The area has never had a private page and can no longer be written.
#[cold]
#[inline(never)]
fn uncharge<M: Machine>(core: &Core<M>, area: &mut Area<M>, pages: u64) {
    if area.flags().contains(AreaFlags::ACCOUNTED) && area.object().is_none() {
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
            assert_eq!(edit, Edit::new(set, Bits::PROTECTION), "{name}");
        }
    }
}
