//! The `userfaultfd` system call.

use crate::{
    Space,
    context::{Arguments, CallResult, Context},
    errno::Errno,
    fs::{caller::Caller, vfs::UserfaultMaker},
    kernel::Kernel,
    syscall::call::{Kind, SystemCall, real},
    userfault::{OpenedAs, Userfault, UserfaultFile},
    view::View,
};
use alloc::sync::Arc;
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
fn make(
    kernel: &'static Kernel,
    caller: &dyn Caller,
    space: &Arc<Space>,
    flags: u32,
) -> CallResult {
    if flags & !(raw::UFFD_USER_MODE_ONLY | raw::O_CLOEXEC | raw::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    caller.check_heap()?;
    caller.check_free_descriptor()?;
    caller.check_open_files()?;
    let opened_as = OpenedAs {
        user_only: flags & raw::UFFD_USER_MODE_ONLY != 0,
        status: flags & (raw::O_CLOEXEC | raw::O_NONBLOCK),
    };
    let open = UserfaultFile::open(kernel.userfaults, space, opened_as)?;
    caller.add_descriptor(open, flags & raw::O_CLOEXEC)
}

/// Creates userfaultfds for `/dev/userfaultfd`.
pub(crate) struct UserfaultDevice(pub(crate) &'static Kernel);

impl UserfaultMaker for UserfaultDevice {
    fn make(&self, caller: &dyn Caller, flags: u32) -> CallResult {
        let space = View::new(self.0, caller).space();
        make(self.0, caller, &space, flags)
    }
}

fn userfaultfd(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    // The same check as in `userfaultfd_syscall_allowed` of Linux.
    let flags = arguments[0] as u32;
    let anybody = context.kernel.userfaults.anybody.load(Ordering::Relaxed);
    let harmless = flags & raw::UFFD_USER_MODE_ONLY != 0;
    if !harmless && !anybody && !Userfault::is_privileged(&context.current) {
        return Err(Errno::EPERM);
    }
    make(context.kernel, &context.current, &context.space(), flags)
}
