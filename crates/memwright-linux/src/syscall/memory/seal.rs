//! The `mseal` system call.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    direct_reclaim::Retry,
    errno::Errno,
    memory::seal_errno,
};
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
