//! The `mremap` system call.

use crate::{
    context::{Arguments, CallResult, Context},
    direct_reclaim::Retry,
    errno::Errno,
    memory::remap_errno,
    syscall::memory::{changes::telling, populate::make_resident},
};
use linux_raw_sys::general as raw;
use memwright::RemapRequest;
use memwright_table::VirtAddr;

/// Implements `mremap`.
pub fn mremap(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [old, old_length, new_length, flags, new, _] = *arguments;
    context.check_heap()?;
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
    let moved = telling(context, |space, witness| {
        let remap = || space.remap_telling(request, witness);
        context.kernel.reclaim.retry(remap)
    });
    let moved = moved.map_err(remap_errno)?;
    make_resident(context, moved.to_populate);
    Ok(moved.start.as_u64())
}
