//! Threads.

use super::{
    FutexPlace, Process, Registration, Stepping, ThreadPlacement, WaitRequest,
    roster::{Seat, Seated},
};
use alloc::sync::Arc;
use core::{
    fmt::{self, Write},
    ops::Deref,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering},
};
use memwright_linux_abi::{
    Space,
    arch::x86_64::{regs::UserState, signal_frame::LastFault},
    host::ContextId,
};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::{
    scheduler::{Schedulable, Task, Work},
    wait::Waiter,
};

/// The first action of a new thread.
pub enum Start {
    /// Enters user mode.
    User(UserState),
    /// Executes the program of the manifest.
    Program,
}

/// How `restart_syscall` continues an interrupted call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RestartBlock {
    /// A relative sleep. It is continued until the deadline, so time that has passed is not slept again.
    Sleep {
        /// Deadline in nanoseconds by the host's clock.
        deadline: u64,
        /// Address for the remaining time, or null.
        remaining: u64,
    },
    /// A `poll` with its deadline.
    Poll {
        /// Address of the descriptors.
        descriptors: u64,
        /// Number of descriptors.
        count: u64,
        /// Deadline in nanoseconds by the host's clock; `None` for no deadline.
        deadline: Option<u64>,
    },
    /// A futex wait with a deadline.
    Futex(WaitRequest),
}

/// The default slack of timers in nanoseconds.
pub const TIMER_SLACK: u64 = 50_000;

/// Stands for no CPU in [`Task::set_restartable`]: the `struct rseq` of the thread must be written before its next
/// return to user mode, whichever CPU it runs on.
const NO_CPU: u32 = u32::MAX - 1;

/// A thread.
pub struct Thread {
    /// The state that the scheduler uses.
    task: Task,
    /// The thread id. It changes at most once: when the thread calls `execve` and takes the place of its leader.
    id: AtomicU32,
    /// The process to which the thread belongs.
    pub process: Arc<Process>,
    /// The slot of the thread in the roster of its process.
    seat: Seat,
    /// Address of the word to clear and wake when the thread exits (`CLONE_CHILD_CLEARTID`).
    pub clear_child_tid: AtomicU64,
    /// The `struct robust_list_head` in user memory, or null.
    pub robust_list: AtomicU64,
    /// The registration of restartable sequences. Only the thread itself changes it.
    pub registration: Lock<Registration>,
    /// The slack of the thread's timers in nanoseconds. It has no effect: timers expire without slack.
    pub timer_slack: AtomicU64,
    /// The futex bucket in which the thread waits.
    pub futex: FutexPlace,
    /// The last fault, as reported in signal frames.
    pub last_fault: Lock<LastFault>,
    /// The interrupted call that `restart_syscall` continues.
    pub restart: Lock<Option<RestartBlock>>,
    /// The state of the thread while it executes a probed instruction out of line.
    pub stepping: Lock<Option<Stepping>>,
    /// Address of the page for the copy of the probed instruction, or null.
    pub copy_page: AtomicU64,
    /// The name, as in `/proc/PID/task/TID/comm`.
    name: Lock<[u8; 16]>,
    /// The argument of `exit`; valid if [`Work::EXIT`] is set.
    exit_code: AtomicI32,
    /// Whether the thread is exiting and no longer waits for userfaultfd contexts. Only the thread itself sets this.
    pub ends: AtomicBool,
    start: Lock<Option<Start>>,
    /// The NUMA policy of the thread.
    pub placement: ThreadPlacement,
    /// Whether the thread traces other threads, or has traced some.
    pub traces: AtomicBool,
    /// Whether the thread is traced. Written under the lock of the process's signals.
    pub traced: AtomicBool,
    /// Whether the thread does not run because its process is stopped. Written under the lock of the process's signals.
    stopped: AtomicBool,
}

impl Seated for Thread {
    fn seat(&self) -> &Seat {
        &self.seat
    }
}

impl Thread {
    /// Creates a thread of `process`. It does not run yet.
    // Inlined, because a thread would otherwise be copied more often before it is on the heap.
    #[inline(always)]
    pub fn new(id: u32, process: Arc<Process>, context: ContextId, start: Start) -> Self {
        Self {
            id: AtomicU32::new(id),
            name: Lock::new(Rank::Leaf, process.name()),
            process,
            seat: Seat::default(),
            task: Task::new(context),
            clear_child_tid: AtomicU64::new(0),
            robust_list: AtomicU64::new(0),
            registration: Lock::new(Rank::Leaf, Registration::default()),
            timer_slack: AtomicU64::new(TIMER_SLACK),
            futex: FutexPlace::default(),
            last_fault: Lock::new(Rank::Leaf, LastFault::default()),
            restart: Lock::new(Rank::Leaf, None),
            stepping: Lock::new(Rank::Leaf, None),
            copy_page: AtomicU64::new(0),
            exit_code: AtomicI32::new(0),
            ends: AtomicBool::new(false),
            start: Lock::new(Rank::Leaf, Some(start)),
            placement: ThreadPlacement::default(),
            traces: AtomicBool::new(false),
            traced: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Returns the thread id.
    pub fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    /// Changes the thread's id to that of its process. The caller updates the table of threads.
    pub fn become_leader(&self) {
        self.id.store(self.process.id, Ordering::Relaxed);
    }

    /// Returns whether the thread's id equals that of its process.
    pub fn is_leader(&self) -> bool {
        self.id() == self.process.id
    }

    /// Returns the name, as in `/proc/PID/task/TID/comm`: up to 15 bytes and a NUL.
    pub fn name(&self) -> [u8; 16] {
        *self.name.lock()
    }

    /// Returns the name; `None` while it is being changed.
    pub fn try_name(&self) -> Option<[u8; 16]> {
        self.name.try_lock().map(|name| *name)
    }

    /// Sets the name, truncated to 15 bytes. If the thread is the leader, the process gets the same name.
    pub fn set_name(&self, name: &[u8]) {
        let mut stored = [0; 16];
        let length = name.len().min(15);
        stored[..length].copy_from_slice(&name[..length]);
        *self.name.lock() = stored;
        if self.is_leader() {
            self.process.set_name(stored);
        }
    }

    /// Makes the thread exit with the code `code` when it next returns to user mode. The other threads of its process
    /// continue.
    pub fn end_alone(&self, code: i32) {
        self.exit_code.store(code, Ordering::Relaxed);
        self.set_work(Work::EXIT, true);
    }

    /// Returns the argument of `exit`, if the thread called it.
    pub fn exit_code(&self) -> Option<i32> {
        let ends = self.work().contains(Work::EXIT);
        ends.then(|| self.exit_code.load(Ordering::Relaxed))
    }

    /// Returns the first action of the thread; `None` after the first call.
    pub fn take_start(&self) -> Option<Start> {
        self.start.lock().take()
    }

    /// Returns whether the thread does not run because its process is stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Sets whether the thread is stopped.
    ///
    /// # Locks
    /// The caller holds the lock of the process's signals.
    pub fn set_stopped(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }

    /// Copies the CPU set, the CPU, the nice value and the NUMA policy of the parent thread.
    pub fn inherit_placement(&self, parent: &Self) {
        self.inherit_scheduling(parent);
        self.placement.inherit(&parent.placement);
    }

    /// Copies the registration of restartable sequences of the parent thread, for a child with a separate address
    /// space.
    pub fn inherit_registration(&self, parent: &Self) {
        let registration = *parent.registration.lock();
        *self.registration.lock() = registration;
        self.set_restartable((registration.address != 0).then_some(NO_CPU));
    }

    /// Makes the thread handle its work flags: wakes it if it waits, or interrupts the CPU on which it runs.
    pub fn notify(self: &Arc<Self>) {
        self.process.tasks.scheduler.notify(self);
    }
}

impl Deref for Thread {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.task
    }
}

impl Waiter for Thread {
    fn wake(self: Arc<Self>) {
        let scheduler = self.process.tasks.scheduler;
        scheduler.wake(self);
    }
}

impl Schedulable for Thread {
    fn space(&self) -> Option<Arc<Space>> {
        self.process.space()
    }

    fn identify(&self, out: &mut dyn Write) -> fmt::Result {
        write!(out, "thread {} of process {}", self.id(), self.process.id)
    }
}
