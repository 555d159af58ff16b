//! A caller of the file system, as seen by files that are made of the kernel's state.

use crate::{
    Space,
    errno::Errno,
    fs::caller::Caller,
    kernel::Kernel,
    process::{Process, Thread},
    user::UserMemory,
};
use alloc::sync::Arc;

/// The thread that accesses a file, and the kernel whose state the file shows or changes.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The thread.
    pub caller: &'a dyn Caller,
    /// The memory of the thread's program.
    pub user: UserMemory<'static>,
}

impl<'a> View<'a> {
    /// Creates the view of this caller.
    pub fn new(kernel: &'static Kernel, caller: &'a dyn Caller) -> Self {
        let user = caller.memory();
        Self {
            kernel,
            caller,
            user,
        }
    }

    /// Returns the calling thread.
    ///
    /// # Panics
    /// If the caller is not a living thread of the kernel.
    pub fn thread(&self) -> Arc<Thread> {
        let thread = self.kernel.tasks.thread(self.caller.ids().thread);
        thread.expect("the caller is a living thread")
    }

    /// Returns the caller's process.
    ///
    /// # Panics
    /// If the caller is not a living thread of the kernel.
    pub fn process(&self) -> Arc<Process> {
        self.thread().process.clone()
    }

    /// Returns the caller's address space.
    ///
    /// # Panics
    /// If the caller's process has exited.
    pub fn space(&self) -> Arc<Space> {
        self.process().space().expect("a living process")
    }

    /// Checks that the kernel heap is above its reserve.
    ///
    /// # Errors
    /// `ENOMEM` if the heap is in its reserve.
    pub fn check_heap(&self) -> Result<(), Errno> {
        self.caller.check_heap()
    }
}
