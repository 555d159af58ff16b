//! A caller of the file system, as seen by files that are made of the kernel's state.

use crate::{
    Space,
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
}

impl<'a> View<'a> {
    /// Creates the view of this caller.
    pub fn new(kernel: &'static Kernel, caller: &'a dyn Caller) -> Self {
        Self { kernel, caller }
    }

    /// Returns the memory of the thread's program.
    pub fn user(&self) -> UserMemory<'static> {
        UserMemory::new(self.kernel.host)
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
}
