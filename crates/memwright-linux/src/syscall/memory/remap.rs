//! The `mremap` system call.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::memory::{changes::telling, populate::make_resident},
};
use linux_raw_sys::general as raw;
use memwright::RemapRequest;
use memwright_linux_abi::errno::Errno;
use memwright_linux_memory::{memory::remap_errno, userfault::Userfaults};
use memwright_linux_vfs::direct_reclaim::Retry;
use memwright_table::VirtAddr;

/// Implements `mremap`.
pub fn mremap(current: &Current<'_>, userfaults: &Userfaults, arguments: &Arguments) -> CallResult {
    let [old, old_length, new_length, flags, new, _] = *arguments;
    current.check_heap()?;
    let known = raw::MREMAP_MAYMOVE | raw::MREMAP_FIXED | raw::MREMAP_DONTUNMAP;
    if flags & !u64::from(known) != 0 {
        return Err(Errno::EINVAL);
    }
    let has = |flag: u32| flags as u32 & flag != 0;
    let request = RemapRequest {
        old: VirtAddr::new(old),
        old_length,
        new_length,
        may_move: has(raw::MREMAP_MAYMOVE),
        fixed: has(raw::MREMAP_FIXED).then_some(VirtAddr::new(new)),
        dont_unmap: has(raw::MREMAP_DONTUNMAP),
    };
    let moved = telling(current, userfaults, |space, witness| {
        let remap = || space.remap_telling(request, witness);
        current.reclaim().retry(remap)
    });
    let moved = moved.map_err(remap_errno)?;
    make_resident(current, userfaults, moved.to_populate);
    Ok(moved.start.as_u64())
}
