//! The `munmap` system call.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::memory::changes::telling,
};
use memwright_linux_memory::{memory::unmap_errno, userfault::Userfaults};
use memwright_linux_vfs::direct_reclaim::Retry;
use memwright_table::VirtAddr;

/// Implements `munmap`.
pub fn munmap(current: &Current<'_>, userfaults: &Userfaults, arguments: &Arguments) -> CallResult {
    let [address, length, ..] = *arguments;
    let address = VirtAddr::new(address);
    telling(current, userfaults, |space, witness| {
        let unmap = || space.unmap_telling(address, length, witness);
        current.reclaim().retry(unmap)
    })
    .map_err(unmap_errno)?;
    Ok(0)
}
