//! The `userfaultfd` system call.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, real},
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{Space, errno::Errno};
use memwright_linux_memory::userfault::{OpenedAs, Userfault, UserfaultFile, Userfaults};
use memwright_linux_tasks::process::Tasks;
use memwright_linux_vfs::fs::{caller::Caller, vfs::UserfaultMaker};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[real(
    raw::__NR_userfaultfd,
    "userfaultfd",
    &[Kind::Hex],
    handler!(userfaultfd, userfaults),
)];

/// Creates a userfaultfd with these flags. Returns the descriptor (`new_userfaultfd`).
///
/// # Errors
/// `EINVAL` for unknown flags, and the errors of creating a descriptor.
fn make(
    userfaults: &'static Userfaults,
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
    let open = UserfaultFile::open(userfaults, space, opened_as)?;
    caller.add_descriptor(open, flags & raw::O_CLOEXEC)
}

/// Creates userfaultfds for `ioctl` on `/dev/userfaultfd`.
pub(crate) struct UserfaultDevice {
    /// The userfaultfd contexts.
    pub(crate) userfaults: &'static Userfaults,
    /// The process table.
    pub(crate) tasks: &'static Tasks,
}

impl UserfaultMaker for UserfaultDevice {
    fn make(&self, caller: &dyn Caller, flags: u32) -> CallResult {
        let thread = self.tasks.thread(caller.ids().thread);
        let space = thread.and_then(|thread| thread.process.space());
        let space = space.expect("the caller is a living thread");
        make(self.userfaults, caller, &space, flags)
    }
}

fn userfaultfd(
    current: &Current<'_>,
    userfaults: &'static Userfaults,
    arguments: &Arguments,
) -> CallResult {
    // Check whether the caller is allowed to create a userfaultfd, like `userfaultfd_syscall_allowed` of Linux.
    let flags = arguments[0] as u32;
    let anybody = userfaults.anybody.load(Ordering::Relaxed);
    let harmless = flags & raw::UFFD_USER_MODE_ONLY != 0;
    if !harmless && !anybody && !Userfault::is_privileged(current) {
        return Err(Errno::EPERM);
    }
    make(userfaults, current, &current.space(), flags)
}
