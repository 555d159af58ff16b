//! The running thread, as system calls see it.

use crate::{
    Space,
    arch::x86_64::regs::{UserRegs, UserState},
    errno::Errno,
    fs::{FileTable, FsContext},
    kernel::Kernel,
    process::{Process, Thread, Work},
    syscall::table::{self, Handlers},
    wait::{Interest, WaitError, WaitQueue},
};
use alloc::sync::Arc;
use core::cell::{RefCell, RefMut};

/// The running thread: first argument of every system call and file operation.
pub struct Context<'a> {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The thread.
    pub thread: &'a Arc<Thread>,
    /// What serves its system calls.
    pub(crate) handlers: &'static Handlers,
    state: RefCell<UserState>,
    space: RefCell<Arc<Space>>,
}

impl<'a> Context<'a> {
    /// The context of a thread that is about to enter user mode with this state.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn new(kernel: &'static Kernel, thread: &'a Arc<Thread>, state: UserState) -> Self {
        let space = RefCell::new(thread.process.space().expect("a living process"));
        Self {
            kernel,
            thread,
            handlers: table::handlers(kernel.manifest.system_calls),
            state: RefCell::new(state),
            space,
        }
    }

    /// The process of the thread.
    pub fn process(&self) -> &'a Arc<Process> {
        &self.thread.process
    }

    /// The address space.
    pub fn space(&self) -> Arc<Space> {
        self.space.borrow().clone()
    }

    /// Calls `f` with the address space, without counting a reference.
    pub fn with_space<R>(&self, f: impl FnOnce(&Arc<Space>) -> R) -> R {
        f(&self.space.borrow())
    }

    /// Replaces the address space that the thread runs in (exec); the process keeps its own
    /// reference.
    pub fn set_space(&self, space: Arc<Space>) {
        *self.space.borrow_mut() = space;
    }

    /// The descriptor table.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn files(&self) -> Arc<FileTable> {
        self.thread.process.files().expect("a living process")
    }

    /// Root, working directory and file-creation mask.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn fs(&self) -> Arc<FsContext> {
        self.thread.process.fs().expect("a living process")
    }

    /// The user registers.
    pub fn state(&self) -> RefMut<'_, UserState> {
        self.state.borrow_mut()
    }

    /// Stores the FS and GS base in the user registers, where a program may have changed them itself.
    pub fn store_bases(&self) {
        self.kernel.host.store_bases(&mut self.state());
    }

    /// Replaces the user registers, bases included.
    pub fn replace_state(&self, state: UserState) {
        self.kernel.host.load_bases(&state);
        *self.state() = state;
        self.thread.set_work(Work::REGISTERS, true);
    }

    /// Replaces the general registers. A system call may change no other than RAX but by this: the rest
    /// are still in the processor when it returns.
    pub fn replace_registers(&self, regs: UserRegs) {
        self.state().regs = regs;
        self.thread.set_work(Work::REGISTERS, true);
    }

    /// Where the user registers are, for the host to load and store them while user mode runs.
    pub fn state_pointer(&self) -> *mut UserState {
        self.state.as_ptr()
    }

    /// `ENOMEM` when the kernel heap is in its reserve: called first by what allocates.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn check_heap(&self) -> Result<(), Errno> {
        if self.kernel.host.heap_low() {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    /// A signal waits that the thread does not block.
    pub fn interrupted(&self) -> bool {
        self.thread.signal_pending()
    }

    /// Waits until `ready` returns something. It is asked first, and again after every wake of one
    /// of the queues. `deadline` is a time of [`Host::now`](crate::host::Host::now). No lock may
    /// be held.
    ///
    /// # Errors
    /// [`WaitError::Interrupted`] when a signal arrived, [`WaitError::TimedOut`] after the deadline;
    /// `ready` is asked once more before either.
    pub fn wait_until<T>(
        &self,
        queues: &[&WaitQueue],
        deadline: Option<u64>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        if let Some(value) = ready() {
            return Ok(value);
        }
        self.kernel
            .wait(self.thread, queues, deadline, Interest::Signals, ready)
    }
}
