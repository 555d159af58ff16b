//! The context in which system calls and traps are handled: the running thread, its registers and the kernel.

use crate::{current::Current, exec::Programs, kernel::Kernel, thread_registers::ThreadRegisters};
use alloc::sync::Arc;
use core::cell::Cell;
use memwright_linux_abi::{
    Memory,
    arch::x86_64::regs::UserState,
    errno::Errno,
    host::{Cpus, Host},
    protection_keys::ProtectionKeys,
};
use memwright_linux_memory::{
    cgroup::Cgroups, futex::Futexes, huge_scan::HugeScan, ipc::Segments, memory::Spaces,
    merge_scan::MergeScan, oom::OomKiller, semaphores::Sets, swap::Swaps, userfault::Userfaults,
};
use memwright_linux_sched::scheduler::Scheduler;
use memwright_linux_tasks::{
    call_counts::CallCounts,
    probes::Probes,
    process::{Tasks, Thread},
    uname::Names,
};
use memwright_linux_vfs::{
    fs::{inet::Network, netlink::Ports, socket::Registry},
    identity::Users,
};

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

/// The two tables from which the handlers of a thread's system calls are selected.
pub struct CallTables {
    /// The handlers for a thread that does not stop at system calls.
    pub(crate) usual: &'static Handlers,
    /// The handlers for a thread that its tracer has resumed so that it stops at system calls.
    pub(crate) stopping: &'static Handlers,
}

/// The running thread and the kernel. Only dispatch uses it: a system call gets the [`Current`] thread and the parts of
/// the kernel that it needs.
pub struct Context<'a> {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The thread.
    pub current: Current<'a>,
    /// The user registers of the thread.
    pub registers: ThreadRegisters<'a>,
    /// The handlers that dispatch uses for the thread: one of the two tables in `tables`.
    pub(crate) handlers: Cell<&'static Handlers>,
    /// The two tables of handlers.
    pub(crate) tables: &'static CallTables,
}

impl Kernel {
    /// Returns the context of a thread that is about to enter user mode with this state.
    ///
    /// # Panics
    /// If the process has exited.
    pub fn context<'a>(
        &'static self,
        thread: &'a Arc<Thread>,
        state: UserState,
        tables: &'static CallTables,
    ) -> Context<'a> {
        Context {
            kernel: self,
            current: Current::new(self.base(), thread),
            registers: ThreadRegisters::new(self.host, thread, state),
            handlers: Cell::new(tables.usual),
            tables,
        }
    }
}

impl<'a> Context<'a> {
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

    /// Returns the Unix sockets.
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

    /// Returns the uprobes, which count the hits of their breakpoints.
    pub(crate) fn probes(&self) -> &'static Probes {
        self.kernel.probes
    }

    /// Returns the counts of system calls.
    pub(crate) fn calls(&self) -> &'static CallCounts {
        &self.kernel.calls
    }

    /// Returns the machine's CPUs and address translation.
    pub(crate) fn machine(&self) -> &'static dyn Host {
        self.kernel.host
    }

    /// Returns System V shared memory.
    pub(crate) fn segments(&self) -> &'static Segments {
        &self.kernel.segments
    }

    /// Returns the System V semaphore sets.
    pub(crate) fn semaphores(&self) -> &'static Sets {
        &self.kernel.semaphores
    }

    /// Returns the threads that wait on futexes.
    pub(crate) fn futexes(&self) -> &'static Futexes {
        self.kernel.futexes
    }

    /// Returns the host name and the domain name.
    pub(crate) fn names(&self) -> &'static Names {
        &self.kernel.names
    }

    /// Returns the swap devices.
    pub(crate) fn swaps(&self) -> &'static Swaps {
        &self.kernel.swaps
    }

    /// Returns khugepaged.
    pub(crate) fn huge_scan(&self) -> &'static HugeScan {
        &self.kernel.huge_scan
    }

    /// Returns ksmd.
    pub(crate) fn merge_scan(&self) -> &'static MergeScan {
        &self.kernel.merge_scan
    }

    /// Returns the per-user counts of limited resources.
    pub(crate) fn users(&self) -> &'static Users {
        &self.kernel.users
    }

    /// Returns the factory of address spaces.
    pub(crate) fn spaces(&self) -> &'static Spaces {
        self.kernel.spaces
    }

    /// Returns the interface to the protection-key rights of the running thread.
    pub(crate) fn protection_keys(&self) -> &'static ProtectionKeys {
        &self.kernel.protection_keys
    }

    /// Returns the implementation of `execve`.
    pub(crate) fn programs(&self) -> &'static Programs {
        &self.kernel.programs
    }

    /// Returns the CPUs and their interrupts.
    pub(crate) fn cpus(&self) -> &'static dyn Cpus {
        self.kernel.host
    }

    /// Returns the user registers of the thread.
    pub(crate) fn registers(&self) -> &ThreadRegisters<'a> {
        &self.registers
    }

    /// Selects the table of handlers. Called after the tracer may have changed whether the thread stops at its system
    /// calls.
    pub(crate) fn choose_handlers(&self) {
        self.handlers.set(if self.registers.stops_at_calls() {
            self.tables.stopping
        } else {
            self.tables.usual
        });
    }
}
