//! The running thread, as the handlers of system calls access it.

use alloc::sync::Arc;
use core::cell::RefCell;
use memwright::Memcg;
use memwright_linux_abi::{Space, errno::Errno, host::Host, signal::SignalInfo};
use memwright_linux_memory::{cgroup::Cgroups, oom::OomKiller, reclaim::Reclaim};
use memwright_linux_sched::{
    scheduler::{Scheduler, Task},
    wait::{CanWait, Interest, WaitError, WaitQueue},
};
use memwright_linux_tasks::process::{Process, Thread, send_to_thread};
use memwright_linux_vfs::{
    fs::{
        FileTable, FsContext,
        caller::{Caller, CallerIds},
        vfs::Vfs,
    },
    identity::Identity,
    user::UserMemory,
};

/// The parts of the kernel that every system call of a running thread may need.
#[derive(Clone, Copy)]
pub struct Base {
    /// The machine.
    pub host: &'static dyn Host,
    /// The virtual file system.
    pub vfs: &'static Vfs,
    /// The scheduler of all threads.
    pub scheduler: &'static Scheduler<Thread>,
    /// The cgroups with memory limits.
    pub(crate) cgroups: &'static Cgroups,
    /// The OOM killer, which can kill a waiting thread.
    pub(crate) oom: &'static OomKiller,
    /// Direct and background reclaim.
    pub(crate) reclaim: &'static Arc<Reclaim>,
}

/// The running thread, with its process, its memory and its files: the first argument of the function that implements a
/// system call.
pub struct Current<'a> {
    /// The thread.
    pub thread: &'a Arc<Thread>,
    /// The user memory of the thread's program.
    pub user: UserMemory<'static>,
    base: Base,
    space: RefCell<Arc<Space>>,
}

impl<'a> Current<'a> {
    /// Creates the view of a thread that is about to run.
    ///
    /// # Panics
    /// If the process has exited.
    pub fn new(base: Base, thread: &'a Arc<Thread>) -> Self {
        let space = RefCell::new(thread.process.space().expect("a living process"));
        Self {
            thread,
            user: UserMemory::new(base.host),
            base,
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

    /// Replaces the address space in which the thread runs (`execve`). The process's own reference to its address space
    /// is not changed.
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

    /// Returns the virtual file system.
    pub fn vfs(&self) -> &'static Vfs {
        self.base.vfs
    }

    /// Returns the time since boot in nanoseconds.
    pub fn now(&self) -> u64 {
        self.base.host.now()
    }

    /// Returns the state of reclaim, with which an operation runs direct reclaim if no frame is free.
    pub fn reclaim(&self) -> &'static Reclaim {
        self.base.reclaim
    }

    /// Checks that the kernel heap has more free memory than its reserve. Operations that allocate call this first.
    ///
    /// # Errors
    /// `ENOMEM` if the heap is in its reserve.
    pub fn check_heap(&self) -> Result<(), Errno> {
        if self.base.host.heap_low() {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    /// Waits until `ready` returns `Some`. `ready` is called first, and again after each wakeup of one of the queues.
    /// `deadline` is a time of [`now`](Self::now).
    ///
    /// # Locks
    /// The caller holds no lock.
    ///
    /// # Errors
    /// [`WaitError::Interrupted`] if a signal is pending, [`WaitError::TimedOut`] after the deadline. `ready` is called
    /// once more before an error is returned.
    pub fn wait_until<T>(
        &self,
        queues: &[&WaitQueue],
        deadline: Option<u64>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        if let Some(value) = ready() {
            return Ok(value);
        }
        let oom = self.base.oom;
        oom.wait(self.thread, queues, deadline, Interest::Signals, ready)
    }

    /// Returns the thread as the caller of file-system operations.
    pub fn caller(&self) -> &dyn Caller {
        self
    }
}

impl CanWait for Current<'_> {
    fn wait(
        &self,
        queues: &[&WaitQueue],
        deadline: Option<u64>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<(), WaitError> {
        self.wait_until(queues, deadline, || ready().then_some(()))
    }
}

impl Caller for Current<'_> {
    fn vfs(&self) -> &'static Vfs {
        self.base.vfs
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
        self.base.scheduler.yield_now(self.thread);
    }

    fn signal_arrivals(&self) -> &Arc<WaitQueue> {
        &self.thread.process.signal_arrived
    }

    fn count_pages(&self, pages: u64) -> Option<Memcg> {
        let group = self.process().charged_group()?;
        self.base.cgroups.note_called(pages);
        Some(group.memcg())
    }
}
