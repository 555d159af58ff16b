//! System calls that change the protection of memory.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::memory::{keys, known_rights, plan::PAGE, rights},
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright::{AreaFlags, ProtectError, Rights};
use memwright_linux_abi::{Space, errno::Errno, protection_keys::ProtectionKeys};
use memwright_linux_memory::memory::protect_errno;
use memwright_linux_vfs::direct_reclaim::Retry;
use memwright_table::VirtAddr;

/// Implements `mprotect`.
pub fn mprotect(
    current: &Current<'_>,
    protection_keys: &ProtectionKeys,
    arguments: &Arguments,
) -> CallResult {
    let [address, length, protection, ..] = *arguments;
    let plain = u64::from(raw::PROT_READ | raw::PROT_WRITE | raw::PROT_EXEC);
    let is_plain = protection & !plain == 0 && protection != u64::from(raw::PROT_EXEC);
    if !is_plain || address % PAGE != 0 || length == 0 {
        return protect_specially(current, protection_keys, arguments);
    }
    let rights = known_rights(protection);
    let address = VirtAddr::new(address);
    match current.with_space(|space| space.protect(address, length, rights)) {
        Ok(()) => Ok(0),
        Err(error) => protect_failed(current, arguments, error),
    }
}

/// Handles rare arguments of `mprotect`: other bits than read, write and execute, execute-only rights, and invalid
/// ranges. Out of line to keep the common path short.
#[cold]
#[inline(never)]
fn protect_specially(
    current: &Current<'_>,
    protection_keys: &ProtectionKeys,
    arguments: &Arguments,
) -> CallResult {
    let [address, length, protection, ..] = *arguments;
    let grows = u64::from(raw::PROT_GROWSDOWN | raw::PROT_GROWSUP);
    if protection & grows != 0 {
        return protect_growing(current, protection_keys, arguments);
    }
    if address % PAGE != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let Ok(rights) = rights(protection) else {
        return range_end(address, length).and(Err(Errno::EINVAL));
    };
    protect_range(
        current,
        protection_keys,
        VirtAddr::new(address),
        length,
        rights,
    )
}

/// Changes the rights of a range.
fn protect_range(
    current: &Current<'_>,
    protection_keys: &ProtectionKeys,
    address: VirtAddr,
    length: u64,
    rights: Rights,
) -> CallResult {
    if rights == Rights::EXECUTE {
        return protect_execute_only(current, protection_keys, address, length);
    }
    let protect = || current.with_space(|space| space.protect(address, length, rights));
    let protected = current.reclaim().retry(protect);
    protected.map_err(protect_errno)?;
    Ok(0)
}

/// Returns the end address of a range of `length` bytes, rounded up to pages. The errors of this function have
/// precedence over `EINVAL` for invalid rights.
///
/// # Errors
/// `ENOMEM` if the range wraps around or its length rounds up to 0.
pub(super) fn range_end(address: u64, length: u64) -> Result<u64, Errno> {
    let length = length.checked_next_multiple_of(PAGE);
    let end = length.and_then(|length| address.checked_add(length));
    end.filter(|end| *end > address).ok_or(Errno::ENOMEM)
}

/// Implements `PROT_GROWSDOWN`: the change starts at the beginning of the stack area that contains the address.
/// `PROT_GROWSUP` fails, because no area grows upwards (`do_mprotect_pkey` of Linux 7.3).
#[cold]
#[inline(never)]
fn protect_growing(
    current: &Current<'_>,
    protection_keys: &ProtectionKeys,
    arguments: &Arguments,
) -> CallResult {
    let [address, length, protection, ..] = *arguments;
    let (down, up) = (u64::from(raw::PROT_GROWSDOWN), u64::from(raw::PROT_GROWSUP));
    let asked = protection & (down | up);
    if asked == down | up || address % PAGE != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let end = range_end(address, length)?;
    let rights = rights(protection & !asked)?;
    let at = VirtAddr::new(address);
    let look = |space: &Arc<Space>| {
        space.find(at, |area| {
            let start = area.start().address().as_u64();
            (start, area.flags().contains(AreaFlags::GROWSDOWN))
        })
    };
    let (start, is_stack) = current.with_space(look).ok_or(Errno::ENOMEM)?;
    // The address must be in the area. With `PROT_GROWSDOWN`, it can also be below the area, if the area begins before
    // the end of the range.
    let begins_too_late = if asked == down {
        start >= end
    } else {
        start > address
    };
    if begins_too_late {
        return Err(Errno::ENOMEM);
    }
    if asked == up || !is_stack {
        return Err(Errno::EINVAL);
    }
    protect_range(
        current,
        protection_keys,
        VirtAddr::new(start),
        end - start,
        rights,
    )
}

/// Handles a failed protection change: retries it after direct reclaim, or returns the error. Out of line to keep the
/// common path short.
#[cold]
#[inline(never)]
fn protect_failed(current: &Current<'_>, arguments: &Arguments, error: ProtectError) -> CallResult {
    let mut first = Some(error);
    let [address, length, protection, ..] = *arguments;
    let (address, rights) = (VirtAddr::new(address), rights(protection)?);
    // The caller has made the first attempt: begin with its error.
    let protect = || match first.take() {
        Some(error) => Err(error),
        None => current.with_space(|space| space.protect(address, length, rights)),
    };
    let protected = current.reclaim().retry(protect);
    protected.map_err(protect_errno)?;
    Ok(0)
}

/// Makes a range execute-only by a protection key that denies reads.
#[cold]
#[inline(never)]
fn protect_execute_only(
    current: &Current<'_>,
    protection_keys: &ProtectionKeys,
    address: VirtAddr,
    length: u64,
) -> CallResult {
    let key = keys::execute_only(current, protection_keys);
    let protect = || {
        current.with_space(|space| match key {
            Some(key) => space
                .protection_keys()
                .protect_execute_only(address, length, key),
            None => space.protect(address, length, Rights::EXECUTE),
        })
    };
    let result = current.reclaim().retry(protect);
    result.map_err(protect_errno)?;
    Ok(0)
}
