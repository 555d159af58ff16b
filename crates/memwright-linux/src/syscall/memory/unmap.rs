//! The `munmap` system call.

use super::telling;
use crate::{
    context::Context,
    direct_reclaim::Retry,
    memory::unmap_errno,
    syscall::{Arguments, CallResult},
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
