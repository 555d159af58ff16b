//! The `munmap` system call.

use crate::{
    context::{Arguments, CallResult, Context},
    direct_reclaim::Retry,
    memory::unmap_errno,
    syscall::memory::changes::telling,
};
use memwright_table::VirtAddr;

/// Implements `munmap`.
pub fn munmap(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, ..] = *arguments;
    let address = VirtAddr::new(address);
    telling(context, |space, witness| {
        let unmap = || space.unmap_telling(address, length, witness);
        context.kernel.reclaim.retry(unmap)
    })
    .map_err(unmap_errno)?;
    Ok(0)
}
