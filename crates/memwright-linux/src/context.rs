//! What the dispatch of system calls and traps acts on: the running thread, its registers and the kernel.

use crate::{
    Memory,
    arch::x86_64::regs::UserState,
    call_counts::CallCounts,
    cgroup::Cgroups,
    current::Current,
    errno::Errno,
    fs::{inet::Network, netlink::Ports, socket::Registry},
    kernel::Kernel,
    oom::OomKiller,
    probes::Probes,
    process::{Tasks, Thread},
    scheduler::Scheduler,
    thread_registers::ThreadRegisters,
    userfault::Userfaults,
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

    /// Returns the process table.
    pub(crate) fn tasks(&self) -> &'static Tasks {
        self.kernel.tasks
    }

    /// Returns the scheduler.
    pub(crate) fn scheduler(&self) -> &'static Scheduler<Thread> {
        self.kernel.scheduler
    }

    /// Returns physical memory.
    pub(crate) fn memory(&self) -> &'static Arc<Memory> {
        &self.kernel.memory
    }

    /// Returns the bound sockets.
    pub(crate) fn sockets(&self) -> &'static Registry {
        &self.kernel.sockets
    }

    /// Returns the internet sockets.
    pub(crate) fn network(&self) -> &'static Network {
        &self.kernel.network
    }

    /// Returns the ports of netlink sockets.
    pub(crate) fn netlink(&self) -> &'static Ports {
        &self.kernel.netlink
    }

    /// Returns the userfaultfd contexts.
    pub(crate) fn userfaults(&self) -> &'static Userfaults {
        self.kernel.userfaults
    }

    /// Returns the cgroups.
    pub(crate) fn cgroups(&self) -> &'static Cgroups {
        &self.kernel.cgroups
    }

    /// Returns the OOM killer.
    pub(crate) fn oom(&self) -> &'static OomKiller {
        &self.kernel.oom
    }

    /// Returns the breakpoints that count their hits.
    pub(crate) fn probes(&self) -> &'static Probes {
        self.kernel.probes
    }

    /// Returns the counts of system calls.
    pub(crate) fn calls(&self) -> &'static CallCounts {
        &self.kernel.calls
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
