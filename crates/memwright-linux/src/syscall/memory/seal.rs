//! The `mseal` system call.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
};
use memwright_linux_abi::errno::Errno;
use memwright_linux_memory::memory::seal_errno;
use memwright_linux_vfs::direct_reclaim::Retry;
use memwright_table::VirtAddr;

/// Implements `mseal`.
pub fn mseal(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, flags, ..] = *arguments;
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let address = VirtAddr::new(address);
    let seal = || current.with_space(|space| space.seal(address, length));
    current.reclaim().retry(seal).map_err(seal_errno)?;
    Ok(0)
}
