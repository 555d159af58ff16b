//! The `userfaultfd` system call.

use super::real;
use crate::{
    context::Context,
    errno::Errno,
    fs::userfault::{OpenedAs, Userfault, UserfaultFile},
    syscall::{
        Arguments, CallResult,
        table::{Kind, SystemCall},
    },
};
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;

/// The table entries of this group.
pub const CALLS: &[SystemCall] = &[real(
    raw::__NR_userfaultfd,
    "userfaultfd",
    &[Kind::Hex],
    userfaultfd,
)];

/// Creates a userfaultfd with these flags. Returns its descriptor (`new_userfaultfd`).
///
/// # Errors
/// `EINVAL` for unknown flags, and the errors of creating a descriptor.
pub fn make(context: &Context<'_>, flags: u32) -> CallResult {
    if flags & !(raw::UFFD_USER_MODE_ONLY | raw::O_CLOEXEC | raw::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    context.check_heap()?;
    context.check_free_descriptor()?;
    context.check_open_files()?;
    let opened_as = OpenedAs {
        user_only: flags & raw::UFFD_USER_MODE_ONLY != 0,
        status: flags & (raw::O_CLOEXEC | raw::O_NONBLOCK),
    };
    let open = UserfaultFile::open(context, opened_as)?;
    context.add_descriptor(open, flags & raw::O_CLOEXEC)
}

fn userfaultfd(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    // The same check as in `userfaultfd_syscall_allowed` of Linux.
    let flags = arguments[0] as u32;
    let anybody = context.kernel.userfaults.anybody.load(Ordering::Relaxed);
    let harmless = flags & raw::UFFD_USER_MODE_ONLY != 0;
    if !harmless && !anybody && !Userfault::is_privileged(context) {
        return Err(Errno::EPERM);
    }
    make(context, flags)
}
