//! Protection keys (Linux 7.2 `mm/mprotect.c`, `arch/x86/kernel/fpu/xstate.c`, `arch/x86/mm/pkeys.c`).

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::memory::{plan::PAGE, protect::range_end, rights},
};
use linux_raw_sys::general as raw;
use memwright::Rights;
use memwright_linux_abi::{errno::Errno, protection_keys::ProtectionKeys};
use memwright_linux_memory::memory::protect_errno;
use memwright_linux_vfs::direct_reclaim::Retry;
use memwright_table::VirtAddr;

/// `PKEY_DISABLE_ACCESS` of `asm-generic/mman-common.h`.
const DISABLE_ACCESS: u32 = 1;
/// `PKEY_DISABLE_WRITE` of `asm-generic/mman-common.h`.
const DISABLE_WRITE: u32 = 2;

/// Returns the protection key for execute-only memory, and denies the calling thread reads of memory with that key.
/// Returns `None` if the processor has no keys or no key is free; like on Linux, execute-only memory is readable in
/// this case.
pub(crate) fn execute_only(current: &Current<'_>, protection_keys: &ProtectionKeys) -> Option<u8> {
    if !protection_keys.exist() {
        return None;
    }
    let key = current.with_space(|space| space.protection_keys().execute_only())?;
    if protection_keys.denied(key) & DISABLE_ACCESS == 0 {
        protection_keys.deny(key, DISABLE_ACCESS);
    }
    Some(key)
}

/// Implements `pkey_mprotect`.
pub fn pkey_mprotect(
    current: &Current<'_>,
    protection_keys: &ProtectionKeys,
    arguments: &Arguments,
) -> CallResult {
    let [address, length, protection, key, ..] = *arguments;
    if key as i32 == -1 {
        return super::protect::mprotect(current, protection_keys, arguments);
    }
    let grows = u64::from(raw::PROT_GROWSDOWN | raw::PROT_GROWSUP);
    if protection & grows != 0 || address % PAGE != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    range_end(address, length)?;
    let rights: Rights = rights(protection)?;
    // On a processor without protection keys, not even key 0 is valid.
    let key = u8::try_from(key as i32).map_err(|_| Errno::EINVAL)?;
    if !protection_keys.exist() {
        return Err(Errno::EINVAL);
    }
    let address = VirtAddr::new(address);
    let protect = || {
        current.with_space(|space| {
            space
                .protection_keys()
                .protect(address, length, rights, key)
        })
    };
    let protected = current.reclaim().retry(protect);
    protected.map_err(protect_errno)?;
    Ok(0)
}

/// Implements `pkey_alloc`.
pub fn pkey_alloc(
    current: &Current<'_>,
    protection_keys: &ProtectionKeys,
    arguments: &Arguments,
) -> CallResult {
    let [flags, refused, ..] = *arguments;
    if flags != 0 || refused & !u64::from(DISABLE_ACCESS | DISABLE_WRITE) != 0 {
        return Err(Errno::EINVAL);
    }
    if !protection_keys.exist() {
        return Err(Errno::ENOSPC);
    }
    let key = current
        .with_space(|space| space.protection_keys().allocate())
        .ok_or(Errno::ENOSPC)?;
    protection_keys.deny(key, refused as u32);
    Ok(u64::from(key))
}

/// Implements `pkey_free`.
pub fn pkey_free(
    current: &Current<'_>,
    protection_keys: &ProtectionKeys,
    arguments: &Arguments,
) -> CallResult {
    let key = u8::try_from(arguments[0] as i32).map_err(|_| Errno::EINVAL)?;
    if protection_keys.exist() && current.with_space(|space| space.protection_keys().free(key)) {
        Ok(0)
    } else {
        Err(Errno::EINVAL)
    }
}
