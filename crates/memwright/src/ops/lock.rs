//! Locking pages into memory (Linux 7.2 `mm/mlock.c`).

use memwright_table::{Architecture, Machine, PAGE_SIZE, PageRange, VirtAddr};

use crate::mm::areas::LockFuture;
use crate::mm::theme::Residency;
use crate::ops::populate::ToPopulate;
use crate::range::flags::{FlagsError, Holes};
use crate::types::error::{Limit, LockError};
use crate::vma::area::AreaFlags;

const LOCK_FLAGS: AreaFlags = AreaFlags::LOCKED.union(AreaFlags::LOCK_ON_FAULT);

/// The flags of areas that ignore `mlock`.
const UNLOCKABLE: AreaFlags = AreaFlags::DROPPABLE
    .union(AreaFlags::SECRET)
    .union(AreaFlags::HUGETLB)
    .union(AreaFlags::PHYSICAL);

impl From<FlagsError> for LockError {
    fn from(error: FlagsError) -> Self {
        match error {
            FlagsError::Hole(address) => Self::Hole(address),
            FlagsError::OverLimit(limit) => Self::OverLimit(limit),
            FlagsError::Misaligned => Self::OutOfRange,
            FlagsError::OutOfMemory => Self::OutOfMemory,
        }
    }
}

/// Returns the pages that overlap the `length` bytes from `address` on.
fn touched(address: VirtAddr, length: u64) -> Result<PageRange, LockError> {
    // Rounding up to pages can wrap around, to 0 or to a small length (Linux 7.3 `mm/mlock.c`, `do_mlock`).
    let beyond = address.offset() as u64 + PAGE_SIZE as u64 - 1;
    let length = length.wrapping_add(beyond) / PAGE_SIZE as u64 * PAGE_SIZE as u64;
    let start = address.page();
    let pages = length / PAGE_SIZE as u64;
    if start.number() + pages > u64::MAX / PAGE_SIZE as u64 {
        return Err(LockError::OutOfRange);
    }
    Ok(PageRange::new(start, start.add(pages)))
}

impl<M: Machine> Residency<'_, M> {
    /// Locks the pages that overlap the `length` bytes from `address` on. Unless `on_fault` is set, also faults them
    /// in.
    ///
    /// As on Linux, a length that overflows when it is rounded up to pages is taken modulo 2^64: at an address that is
    /// a multiple of the page size, `u64::MAX` becomes 0, and nothing is locked.
    ///
    /// # Errors
    /// See [`LockError`]. For [`LockError::Hole`], the areas below the hole are locked.
    pub fn lock(&self, address: VirtAddr, length: u64, on_fault: bool) -> Result<(), LockError> {
        let mut rest = self.begin_lock(address, length, on_fault)?;
        self.populate_locked(&mut rest)
    }

    /// Locks the pages that overlap the `length` bytes from `address` on. Returns the range to
    /// [populate](Self::populate_locked), which is empty if `on_fault` is set.
    ///
    /// # Errors
    /// See [`LockError`]. For [`LockError::Hole`], the areas below the hole are locked.
    pub fn begin_lock(
        &self,
        address: VirtAddr,
        length: u64,
        on_fault: bool,
    ) -> Result<ToPopulate, LockError> {
        let core = &*self.space.core;
        let mut areas = core.areas.write();
        if areas.limits.locked == 0 && !areas.limits.may_lock_any {
            return Err(LockError::OverLimit(Limit::Locked));
        }
        let range = touched(address, length)?;
        let already: u64 = areas
            .map
            .overlapping(range)
            .filter(|area| area.flags().contains(AreaFlags::LOCKED))
            .map(|area| area.range().intersect(range).len())
            .sum();
        areas
            .check_locked(range.len() - already)
            .map_err(LockError::OverLimit)?;
        let wanted = lock_flags(on_fault);
        core.change_flags(&mut areas, range, Holes::Stop, |flags| {
            locked(flags, wanted)
        })?;
        if on_fault {
            return Ok(ToPopulate::nothing_at(range.start));
        }
        Ok(ToPopulate::new(range))
    }

    /// Unlocks the pages that overlap the `length` bytes from `address` on.
    ///
    /// # Errors
    /// See [`LockError`]. For [`LockError::Hole`], the areas below the hole are unlocked.
    pub fn unlock(&self, address: VirtAddr, length: u64) -> Result<(), LockError> {
        let core = &*self.space.core;
        let range = touched(address, length)?;
        let mut areas = core.areas.write();
        core.change_flags(&mut areas, range, Holes::Stop, unlocked)?;
        Ok(())
    }

    /// Locks the current mappings if `current` is set. `future` states whether, and how, later mappings are locked
    /// (`mlockall`). Returns the range to populate.
    ///
    /// # Errors
    /// See [`LockError`]. On error there is nothing to populate.
    pub fn lock_all(
        &self,
        current: bool,
        future: LockFuture,
        on_fault: bool,
    ) -> Result<ToPopulate, LockError> {
        let core = &*self.space.core;
        let all = M::Arch::USER;
        let mut areas = core.areas.write();
        let limits = areas.limits;
        if !limits.may_lock_any {
            let too_much = current && areas.mapped > limits.locked / PAGE_SIZE as u64;
            if limits.locked == 0 || too_much {
                return Err(LockError::OverLimit(Limit::Locked));
            }
        }
        areas.lock_future = future;
        if !current {
            return Ok(ToPopulate::nothing_at(all.start));
        }
        let wanted = lock_flags(on_fault);
        match core.change_flags(&mut areas, all, Holes::Pass, |flags| locked(flags, wanted)) {
            Ok(()) | Err(FlagsError::Hole(_)) => {}
            Err(
                error @ (FlagsError::OverLimit(_)
                | FlagsError::Misaligned
                | FlagsError::OutOfMemory),
            ) => {
                return Err(error.into());
            }
        }
        // Return the complete range even if `on_fault` is set, because population skips the areas that are now locked
        // on fault. It still populates areas that cannot be locked, as on Linux.
        Ok(ToPopulate::new(all))
    }

    /// Unlocks all current mappings, and stops locking future mappings (`munlockall`).
    ///
    /// # Errors
    /// [`LockError::OutOfMemory`] cannot happen in practice: unlocking complete areas only merges them.
    pub fn unlock_all(&self) -> Result<(), LockError> {
        let core = &*self.space.core;
        let all = M::Arch::USER;
        let mut areas = core.areas.write();
        areas.lock_future = LockFuture::No;
        match core.change_flags(&mut areas, all, Holes::Pass, unlocked) {
            Ok(()) | Err(FlagsError::Hole(_)) => Ok(()),
            Err(
                error @ (FlagsError::OverLimit(_)
                | FlagsError::Misaligned
                | FlagsError::OutOfMemory),
            ) => Err(error.into()),
        }
    }
}

/// Returns `flags` without the lock flags. For secret memory, which stays locked, returns `flags` unchanged.
fn unlocked(flags: AreaFlags) -> AreaFlags {
    if flags.contains(AreaFlags::SECRET) {
        return flags;
    }
    flags - LOCK_FLAGS
}

/// Returns `flags` with the lock flags `wanted`. As on Linux (`mlock_fixup`), areas that ignore `mlock` keep their
/// flags without an error: droppable memory is never locked, and secret memory, hugetlb pages and device memory are
/// always resident.
fn locked(flags: AreaFlags, wanted: AreaFlags) -> AreaFlags {
    if flags.intersects(UNLOCKABLE) {
        return flags;
    }
    (flags - LOCK_FLAGS) | wanted
}

fn lock_flags(on_fault: bool) -> AreaFlags {
    if on_fault {
        LOCK_FLAGS
    } else {
        AreaFlags::LOCKED
    }
}
