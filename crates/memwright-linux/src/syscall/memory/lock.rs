//! The `mlock` family of system calls.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::memory::{plan::PAGE, populate::make_resident},
};
use linux_raw_sys::general as raw;
use memwright::{LockError, LockFuture};
use memwright_linux_abi::errno::Errno;
use memwright_linux_memory::{memory::lock_errno, userfault::Userfaults};
use memwright_linux_vfs::direct_reclaim::Retry;
use memwright_table::VirtAddr;

/// Implements `mlock`.
pub fn mlock(current: &Current<'_>, userfaults: &Userfaults, arguments: &Arguments) -> CallResult {
    lock(current, userfaults, arguments[0], arguments[1], false)
}

/// Implements `mlock2`.
pub fn mlock2(current: &Current<'_>, userfaults: &Userfaults, arguments: &Arguments) -> CallResult {
    let [address, length, flags, ..] = *arguments;
    if flags & !u64::from(raw::MLOCK_ONFAULT) != 0 {
        return Err(Errno::EINVAL);
    }
    lock(current, userfaults, address, length, flags != 0)
}

fn lock_failed(current: &Current<'_>, error: LockError) -> Errno {
    lock_errno(error, current.with_space(|space| space.limits().locked))
}

fn lock(
    current: &Current<'_>,
    userfaults: &Userfaults,
    address: u64,
    length: u64,
    on_fault: bool,
) -> CallResult {
    let address = VirtAddr::new(address);
    let space = current.space();
    let lock = || space.residency().begin_lock(address, length, on_fault);
    let begun = current.reclaim().retry(lock);
    let mut rest = begun.map_err(|error| lock_failed(current, error))?;
    let locked = userfaults.awaiting(current.thread, &space, || {
        let populate = || (space.residency().populate_locked(&mut rest), rest.next());
        match current.reclaim().retry_onward(populate) {
            Err(LockError::Watched(awaited)) => Err(awaited),
            locked => Ok(locked),
        }
    });
    // Return `ENOMEM` if a page cannot be faulted in, whatever the cause (`__mlock_posix_error_return`).
    let locked = locked.map_err(|_| Errno::ENOMEM)?;
    locked.map_err(|error| lock_failed(current, error))?;
    Ok(0)
}

/// Implements `munlock`.
pub fn munlock(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let address = VirtAddr::new(arguments[0]);
    let unlock = || current.with_space(|space| space.residency().unlock(address, arguments[1]));
    let unlocked = current.reclaim().retry(unlock);
    unlocked.map_err(|error| lock_failed(current, error))?;
    Ok(0)
}

/// Implements `mlockall`.
pub fn mlockall(
    current: &Current<'_>,
    userfaults: &Userfaults,
    arguments: &Arguments,
) -> CallResult {
    let flags = arguments[0] as u32;
    let known = raw::MCL_CURRENT | raw::MCL_FUTURE | raw::MCL_ONFAULT;
    if flags & !known != 0 || flags & (raw::MCL_CURRENT | raw::MCL_FUTURE) == 0 {
        return Err(Errno::EINVAL);
    }
    let on_fault = flags & raw::MCL_ONFAULT != 0;
    let future = match (flags & raw::MCL_FUTURE != 0, on_fault) {
        (false, _) => LockFuture::No,
        (true, false) => LockFuture::Populated,
        (true, true) => LockFuture::OnFault,
    };
    let present = flags & raw::MCL_CURRENT != 0;
    let lock = || current.with_space(|space| space.residency().lock_all(present, future, on_fault));
    let locked = current.reclaim().retry(lock);
    let to_populate = locked.map_err(|error| lock_failed(current, error))?;
    make_resident(current, userfaults, to_populate);
    Ok(0)
}

/// Implements `munlockall`.
pub fn munlockall(current: &Current<'_>, _arguments: &Arguments) -> CallResult {
    let unlock = || current.with_space(|space| space.residency().unlock_all());
    let unlocked = current.reclaim().retry(unlock);
    unlocked.map_err(|error| lock_failed(current, error))?;
    Ok(0)
}

/// Checks whether the caller is allowed to lock `length` more bytes (`can_do_mlock` and `mlock_future_ok` of Linux
/// 7.3).
///
/// # Errors
/// `EPERM` if the limit is 0, `EAGAIN` if the limit would be exceeded.
pub(super) fn check_lock(current: &Current<'_>, length: u64) -> Result<(), Errno> {
    let (limits, locked) =
        current.with_space(|space| (space.limits(), space.usage().totals().locked));
    if limits.may_lock_any {
        return Ok(());
    }
    if limits.locked == 0 {
        return Err(Errno::EPERM);
    }
    if locked + length.div_ceil(PAGE) > limits.locked / PAGE {
        return Err(Errno::EAGAIN);
    }
    Ok(())
}
