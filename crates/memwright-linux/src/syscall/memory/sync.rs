//! The `msync` system call.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::memory::plan::PAGE,
};
use linux_raw_sys::general as raw;
use memwright::SyncFlags;
use memwright_linux_abi::errno::Errno;
use memwright_linux_memory::memory::sync_errno;
use memwright_table::VirtAddr;

/// Implements `msync`.
pub fn msync(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, flags, ..] = *arguments;
    let flags = flags as u32;
    let known = raw::MS_ASYNC | raw::MS_INVALIDATE | raw::MS_SYNC;
    let both = raw::MS_ASYNC | raw::MS_SYNC;
    if flags & !known != 0 || flags & both == both {
        return Err(Errno::EINVAL);
    }
    let mut wanted = SyncFlags::empty();
    wanted.set(SyncFlags::WAIT, flags & raw::MS_SYNC != 0);
    wanted.set(SyncFlags::INVALIDATE, flags & raw::MS_INVALIDATE != 0);
    let address = VirtAddr::new(address);
    // Like on Linux, a length that wraps to 0 when it is rounded up counts as 0.
    let length = length.wrapping_add(PAGE - 1) & !(PAGE - 1);
    current
        .with_space(|space| space.sync(address, length, wanted))
        .map_err(sync_errno)?;
    Ok(0)
}
