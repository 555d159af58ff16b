//! Protection keys (Linux 7.2 `mm/mprotect.c`, `arch/x86/kernel/fpu/xstate.c`, `arch/x86/mm/pkeys.c`).

use crate::{
    context::{Arguments, CallResult, Context},
    direct_reclaim::Retry,
    errno::Errno,
    host::Host,
    memory::protect_errno,
    protection_keys::has_keys,
    syscall::memory::{plan::PAGE, protect::range_end, rights},
};
use linux_raw_sys::general as raw;
use memwright::Rights;
use memwright_table::VirtAddr;

/// `PKEY_DISABLE_ACCESS` of `asm-generic/mman-common.h`.
const DISABLE_ACCESS: u32 = 1;
/// `PKEY_DISABLE_WRITE` of `asm-generic/mman-common.h`.
const DISABLE_WRITE: u32 = 2;
/// Sets the accesses that a key denies to this thread.
fn refuse(host: &dyn Host, key: u8, what: u32) {
    let shift = 2 * u32::from(key);
    let others = host.key_rights() & !(3 << shift);
    host.set_key_rights(others | what << shift);
}

/// Returns the key for execute-only memory, and denies this thread reads of memory with that key. Returns `None` if the
/// processor has no keys or none is free; execute-only memory is then readable, as on Linux.
pub(crate) fn execute_only(context: &Context<'_>) -> Option<u8> {
    let host = context.kernel.host;
    if !has_keys(host) {
        return None;
    }
    let key = context.with_space(|space| space.execute_only_key())?;
    if host.key_rights() >> (2 * key) & DISABLE_ACCESS == 0 {
        refuse(host, key, DISABLE_ACCESS);
    }
    Some(key)
}

/// Implements `pkey_mprotect`.
pub fn pkey_mprotect(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, protection, key, ..] = *arguments;
    if key as i32 == -1 {
        return super::protect::mprotect(context, arguments);
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
    // If the processor has no keys, not even key 0 is valid.
    let key = u8::try_from(key as i32).map_err(|_| Errno::EINVAL)?;
    if !has_keys(context.kernel.host) {
        return Err(Errno::EINVAL);
    }
    let address = VirtAddr::new(address);
    let protect = || context.with_space(|space| space.protect_by_key(address, length, rights, key));
    let protected = context.kernel.reclaim.retry(protect);
    protected.map_err(protect_errno)?;
    Ok(0)
}

/// Implements `pkey_alloc`.
pub fn pkey_alloc(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [flags, refused, ..] = *arguments;
    if flags != 0 || refused & !u64::from(DISABLE_ACCESS | DISABLE_WRITE) != 0 {
        return Err(Errno::EINVAL);
    }
    let host = context.kernel.host;
    if !has_keys(host) {
        return Err(Errno::ENOSPC);
    }
    let key = context
        .with_space(|space| space.allocate_key())
        .ok_or(Errno::ENOSPC)?;
    refuse(host, key, refused as u32);
    Ok(u64::from(key))
}

/// Implements `pkey_free`.
pub fn pkey_free(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let key = u8::try_from(arguments[0] as i32).map_err(|_| Errno::EINVAL)?;
    if has_keys(context.kernel.host) && context.with_space(|space| space.free_key(key)) {
        Ok(0)
    } else {
        Err(Errno::EINVAL)
    }
}
