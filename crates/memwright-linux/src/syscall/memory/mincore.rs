//! The `mincore` system call.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::memory::plan::PAGE,
};
use alloc::vec::Vec;
use memwright_linux_abi::errno::Errno;
use memwright_linux_memory::memory::advise_errno;
use memwright_table::VirtAddr;

/// Implements `mincore`.
pub fn mincore(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, vector, ..] = *arguments;
    if address % PAGE != 0 {
        return Err(Errno::EINVAL);
    }
    memwright_linux_vfs::user::check_range(address, length as usize).map_err(|_| Errno::ENOMEM)?;
    let mut next = address;
    let end = address + length.next_multiple_of(PAGE);
    let mut out = vector;
    // Write one page of the vector at a time, without the lock of the address space: a write to user memory can fault.
    while next < end {
        let step = (end - next).min(PAGE * PAGE);
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact((step / PAGE) as usize)
            .map_err(|_| Errno::EAGAIN)?;
        let found = current.with_space(|space| {
            space
                .residency()
                .resident(VirtAddr::new(next), step, &mut |_, resident| {
                    #[expect(clippy::disallowed_methods, reason = "there is room for each page")]
                    bytes.push(u8::from(resident));
                })
        });
        // Write the results for the pages before a hole, then fail because of the hole.
        current.user.write_bytes(out, &bytes)?;
        found.map_err(advise_errno)?;
        out += bytes.len() as u64;
        next += step;
    }
    Ok(0)
}
