//! The running thread, as seen by system calls.

use crate::{
    Space,
    arch::x86_64::{
        debug::DebugRegisters,
        regs::{UserRegs, UserState},
    },
    errno::Errno,
    fs::{
        FileTable, FsContext,
        caller::{Caller, CallerIds},
        vfs::Vfs,
    },
    identity::Identity,
    kernel::Kernel,
    process::{Process, Thread, send_to_thread},
    scheduler::{Task, Work},
    signal::SignalInfo,
    user::UserMemory,
    wait::{CanWait, Interest, WaitError, WaitQueue},
};
use alloc::sync::Arc;
use core::cell::{Cell, RefCell, RefMut};
use memwright::Memcg;

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

/// The running thread: the first argument of every system call and file operation.
pub struct Context<'a> {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The thread.
    pub thread: &'a Arc<Thread>,
    /// The handlers of its system calls.
    pub(crate) handlers: Cell<&'static Handlers>,
    /// The two tables of handlers.
    pub(crate) tables: &'static CallTables,
    /// The debug registers.
    pub(crate) debug: Cell<DebugRegisters>,
    /// The data at its breakpoints before a single step.
    pub(crate) watched: Cell<[u64; 4]>,
    /// The memory of its program.
    pub user: UserMemory<'static>,
    state: RefCell<UserState>,
    space: RefCell<Arc<Space>>,
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
        let space = RefCell::new(thread.process.space().expect("a living process"));
        Self {
            kernel,
            thread,
            handlers: Cell::new(tables.usual),
            tables,
            debug: Cell::new(DebugRegisters::default()),
            watched: Cell::new([0; 4]),
            user: UserMemory::new(kernel.host),
            state: RefCell::new(state),
            space,
        }
    }

    /// Returns the process of the thread.
    pub fn process(&self) -> &'a Arc<Process> {
        &self.thread.process
    }

    /// Returns the address space.
    pub fn space(&self) -> Arc<Space> {
        self.space.borrow().clone()
    }

    /// Calls `f` with the address space, without taking another reference.
    pub fn with_space<R>(&self, f: impl FnOnce(&Arc<Space>) -> R) -> R {
        f(&self.space.borrow())
    }

    /// Replaces the address space in which the thread runs (`execve`). The process has a reference of its own, which
    /// this does not change.
    pub fn set_space(&self, space: Arc<Space>) {
        *self.space.borrow_mut() = space;
    }

    /// Returns the descriptor table.
    ///
    /// # Panics
    /// If the process has exited.
    pub fn files(&self) -> Arc<FileTable> {
        self.thread.process.files().expect("a living process")
    }

    /// Returns the root, the working directory and the file-creation mask.
    ///
    /// # Panics
    /// If the process has exited.
    pub fn fs(&self) -> Arc<FsContext> {
        self.thread.process.fs().expect("a living process")
    }

    /// Borrows the user registers mutably.
    pub fn state(&self) -> RefMut<'_, UserState> {
        self.state.borrow_mut()
    }

    /// Copies the FS and GS bases from the processor to the user registers: user code can change the bases without
    /// entering the kernel.
    pub fn store_bases(&self) {
        self.kernel.host.store_bases(&mut self.state());
    }

    /// Replaces the user registers, including the bases.
    pub fn replace_state(&self, state: UserState) {
        self.kernel.host.load_bases(&state);
        *self.state() = state;
        self.thread.set_work(Work::REGISTERS, true);
    }

    /// Replaces the general registers. A system call must use this method to change registers other than RAX: otherwise
    /// the processor still has the old values when the call returns.
    pub fn replace_registers(&self, regs: UserRegs) {
        self.state().regs = regs;
        self.thread.set_work(Work::REGISTERS, true);
    }

    /// Sets whether the thread stops at its system calls.
    pub(crate) fn stop_at_calls(&self, stops: bool) {
        self.handlers.set(if stops {
            self.tables.stopping
        } else {
            self.tables.usual
        });
    }

    /// Returns the address of the user registers, through which the host loads and stores them while user mode runs.
    pub fn state_pointer(&self) -> *mut UserState {
        self.state.as_ptr()
    }

    /// Checks that the kernel heap is above its reserve. Operations that allocate call this first.
    ///
    /// # Errors
    /// `ENOMEM` if the heap is in its reserve.
    pub fn check_heap(&self) -> Result<(), Errno> {
        if self.kernel.host.heap_low() {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    /// Returns whether an unblocked signal is pending for the thread.
    pub fn interrupted(&self) -> bool {
        self.thread.signal_pending()
    }

    /// Waits until `ready` returns `Some`. `ready` is called first, and again after each wakeup of one of the queues.
    /// `deadline` is a time of `Host::now`.
    ///
    /// # Locks
    /// The caller holds no lock.
    ///
    /// # Errors
    /// [`WaitError::Interrupted`] if a signal is pending, [`WaitError::TimedOut`] after the deadline. `ready` is called
    /// once more before either.
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
            .oom
            .wait(self.thread, queues, deadline, Interest::Signals, ready)
    }

    /// Returns the thread as the file system sees it.
    pub fn caller(&self) -> &dyn Caller {
        self
    }
}

impl CanWait for Context<'_> {
    fn wait(
        &self,
        queues: &[&WaitQueue],
        deadline: Option<u64>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<(), WaitError> {
        self.wait_until(queues, deadline, || ready().then_some(()))
    }
}

impl Caller for Context<'_> {
    fn vfs(&self) -> &'static Vfs {
        self.kernel.vfs
    }

    fn memory(&self) -> UserMemory<'static> {
        self.user
    }

    fn ids(&self) -> CallerIds {
        CallerIds {
            process: self.process().id,
            thread: self.thread.id(),
        }
    }

    fn identity(&self) -> &Identity {
        &self.thread.process.identity
    }

    fn task(&self) -> &Task {
        self.thread
    }

    fn files(&self) -> Arc<FileTable> {
        Self::files(self)
    }

    fn fs(&self) -> Arc<FsContext> {
        Self::fs(self)
    }

    fn raise(&self, info: SignalInfo) {
        send_to_thread(self.thread, info);
    }

    fn yield_now(&self) {
        self.kernel.scheduler.yield_now(self.thread);
    }

    fn signal_arrivals(&self) -> &Arc<WaitQueue> {
        &self.thread.process.signal_arrived
    }

    fn count_pages(&self, pages: u64) -> Option<Memcg> {
        let group = self.process().charged_group()?;
        self.kernel.cgroups.note_called(pages);
        Some(group.memcg())
    }
}
