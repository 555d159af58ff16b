//! What the dispatch of system calls and traps acts on: the running thread, its registers and the kernel.

use crate::{
    arch::x86_64::regs::UserState, current::Current, errno::Errno, kernel::Kernel, process::Thread,
    thread_registers::ThreadRegisters,
};
use alloc::sync::Arc;
use core::{cell::Cell, ops::Deref};

/// The six argument registers.
pub type Arguments = [u64; 6];

/// The result of a system call: the value of RAX, or an error.
pub type CallResult = Result<u64, Errno>;

/// The function that implements a system call.
pub type Handler = fn(&Context<'_>, &Arguments) -> CallResult;

/// Size of the tables that are indexed by call number.
pub(crate) const INDEXED: usize = 512;

/// The handler of each number below [`INDEXED`], so that dispatch is a single load.
pub(crate) type Handlers = [Handler; INDEXED];

/// The handlers of a thread's system calls.
pub struct CallTables {
    /// Those of a thread that does not stop at calls.
    pub(crate) usual: &'static Handlers,
    /// Those of a thread whose tracer lets it stop at calls.
    pub(crate) stopping: &'static Handlers,
}

/// The running thread and the kernel. Only dispatch uses it: a system call gets the [`Current`] thread and the parts of
/// the kernel that it needs.
pub struct Context<'a> {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The thread.
    pub current: Current<'a>,
    /// Its user registers.
    pub registers: ThreadRegisters<'a>,
    /// The handlers of its system calls.
    pub(crate) handlers: Cell<&'static Handlers>,
    /// The two tables of handlers.
    pub(crate) tables: &'static CallTables,
}

impl<'a> Context<'a> {
    /// Creates the context of a thread that is about to enter user mode with this state.
    ///
    /// # Panics
    /// If the process has exited.
    pub fn new(
        kernel: &'static Kernel,
        thread: &'a Arc<Thread>,
        state: UserState,
        tables: &'static CallTables,
    ) -> Self {
        Self {
            kernel,
            current: Current::new(kernel.base(), thread),
            registers: ThreadRegisters::new(kernel.host, thread, state),
            handlers: Cell::new(tables.usual),
            tables,
        }
    }

    /// Chooses the table of handlers after the tracer may have changed whether the thread stops at its calls.
    pub(crate) fn choose_handlers(&self) {
        self.handlers.set(if self.registers.stops_at_calls() {
            self.tables.stopping
        } else {
            self.tables.usual
        });
    }
}

impl<'a> Deref for Context<'a> {
    type Target = Current<'a>;

    fn deref(&self) -> &Current<'a> {
        &self.current
    }
}
