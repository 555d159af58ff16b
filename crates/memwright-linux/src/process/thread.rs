//! Threads.

use super::{Process, Usage};
use crate::{
    arch::x86_64::{
        regs::{FpuArea, UserState},
        signal_frame::LastFault,
    },
    futex::{FutexPlace, WaitRequest},
    host::ContextId,
    numa::ThreadPlacement,
    probes::Stepping,
    ptrace::stands_still,
    scheduler::{RunState, RunWord},
    sync::{Lock, Rank},
    wait::Interest,
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use memwright_table::{CpuId, CpuSet};

flags! {
    /// Flags for work that a thread handles before it returns to user mode.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct Work: u32 {
        /// A signal, a stop or an exit is pending.
        const SIGNAL = 1;
        /// The thread is being killed. This also ends waits that other signals do not interrupt.
        const FATAL = 2;
        /// The thread called `exit`: it exits alone.
        const EXIT = 4;
        /// The set of CPUs that the thread may run on has changed.
        const MIGRATE = 8;
        /// The user registers were replaced, so all of them must be reloaded.
        const REGISTERS = 16;
        /// The thread is in a cgroup and checks the cgroup's limit on every return to user mode.
        const CGROUP = 32;
    }
}

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
    /// A relative sleep until this time.
    Sleep {
        /// Deadline by the host's clock.
        deadline: u64,
        /// Address for the remaining time, or null.
        remaining: u64,
    },
    /// A poll until this time.
    Poll {
        /// Address of the descriptors.
        descriptors: u64,
        /// Number of descriptors.
        count: u64,
        /// Deadline by the host's clock.
        deadline: Option<u64>,
    },
    /// A futex wait with a deadline.
    Futex(WaitRequest),
}

/// A thread.
pub struct Thread {
    /// Its id. It changes at most once: when the thread calls `execve` and takes its leader's place.
    id: AtomicU32,
    /// The process it belongs to.
    pub process: Arc<Process>,
    /// Its kernel stack.
    pub context: ContextId,
    /// Resources it has used.
    pub usage: Usage,
    /// Address of the word to clear and wake when the thread exits (`CLONE_CHILD_CLEARTID`).
    pub clear_child_tid: AtomicU64,
    /// Its `struct robust_list_head` in user memory, or null.
    pub robust_list: AtomicU64,
    /// The futex bucket in which it waits.
    pub(crate) futex: FutexPlace,
    /// Extended state while the thread does not run.
    pub fpu: Lock<FpuArea>,
    /// The last fault, as reported in signal frames.
    pub last_fault: Lock<LastFault>,
    /// The interrupted call that `restart_syscall` continues.
    pub restart: Lock<Option<RestartBlock>>,
    /// The probed instruction that the thread executes out of line.
    pub(crate) stepping: Lock<Option<Stepping>>,
    /// Address of the page with the copy of the probed instruction, or null.
    pub(crate) copy_page: AtomicU64,
    /// The name, as in `/proc/PID/task/TID/comm`.
    name: Lock<[u8; 16]>,
    /// The argument of `exit`; valid if [`Work::EXIT`] is set.
    exit_code: AtomicI32,
    /// It is exiting and no longer waits for userfaultfd contexts. Only the thread itself sets this.
    pub(crate) ends: AtomicBool,
    start: Lock<Option<Start>>,
    /// Whether the thread runs or waits. The scheduler's protocol defines which threads and CPUs are allowed to change
    /// it.
    pub(crate) run: RunWord,
    /// A CPU uses the thread's stack. Set by the CPU that is about to run the thread, cleared by the next context on
    /// that CPU.
    on_cpu: AtomicBool,
    /// It yielded in the middle of an operation, and continues on the same CPU.
    pub(crate) paused: AtomicBool,
    /// The CPU on which the thread runs, last ran, or is queued. Changed by the CPU that puts the thread into a run
    /// queue or takes it from another CPU's queue.
    cpu: AtomicU32,
    /// CPUs on which the thread is allowed to run, as bits. They can include CPUs that do not exist.
    affinity: AtomicU64,
    /// Its memory policy.
    pub(crate) placement: ThreadPlacement,
    work: AtomicU32,
    /// The thread does not run because its process is stopped. Written under the lock of the process's signals.
    stopped: AtomicBool,
    /// What the thread waits for. Used in reports.
    sleep: Lock<Sleep>,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleep {
    /// A description in words.
    pub(crate) what: &'static str,
    /// The events that end the wait early.
    pub(crate) interest: Interest,
    /// Start of the wait by the host's clock.
    pub(crate) since: u64,
    /// Deadline of the wait.
    pub(crate) deadline: Option<u64>,
}

impl Thread {
    /// Creates a thread of `process`. It does not run yet.
    pub fn new(id: u32, process: Arc<Process>, context: ContextId, start: Start) -> Self {
        Self {
            id: AtomicU32::new(id),
            name: Lock::new(Rank::Leaf, process.name()),
            process,
            context,
            usage: Usage::default(),
            clear_child_tid: AtomicU64::new(0),
            robust_list: AtomicU64::new(0),
            futex: FutexPlace::default(),
            fpu: Lock::new(Rank::Leaf, FpuArea::INITIAL),
            last_fault: Lock::new(Rank::Leaf, LastFault::default()),
            restart: Lock::new(Rank::Leaf, None),
            stepping: Lock::new(Rank::Leaf, None),
            copy_page: AtomicU64::new(0),
            exit_code: AtomicI32::new(0),
            ends: AtomicBool::new(false),
            start: Lock::new(Rank::Leaf, Some(start)),
            run: RunWord::new(),
            on_cpu: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            cpu: AtomicU32::new(0),
            affinity: AtomicU64::new(u64::MAX),
            placement: ThreadPlacement::default(),
            work: AtomicU32::new(0),
            stopped: AtomicBool::new(false),
            sleep: Lock::new(
                Rank::Leaf,
                Sleep {
                    what: "start",
                    interest: Interest::Fatal,
                    since: 0,
                    deadline: None,
                },
            ),
        }
    }

    /// Returns the thread id.
    pub fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    /// Changes the thread's id to that of its process. The caller updates the table of threads.
    pub(crate) fn become_leader(&self) {
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
    pub(crate) fn try_name(&self) -> Option<[u8; 16]> {
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

    /// Makes the thread exit with this code when it next returns to user mode. The other threads of its process
    /// continue.
    pub(crate) fn end_alone(&self, code: i32) {
        self.exit_code.store(code, Ordering::Relaxed);
        self.set_work(Work::EXIT, true);
    }

    /// Returns the argument of `exit`, if the thread called it.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        let ends = self.work().contains(Work::EXIT);
        ends.then(|| self.exit_code.load(Ordering::Relaxed))
    }

    /// Returns the first action of the thread and clears it.
    pub fn take_start(&self) -> Option<Start> {
        self.start.lock().take()
    }

    /// Returns whether the thread runs or waits.
    pub fn run_state(&self) -> RunState {
        self.run.get()
    }

    /// Returns the state letter of `/proc/PID/stat`: `R` running or runnable, `S` in an interruptible wait, `D` in an
    /// uninterruptible wait, `T` stopped, `t` in a ptrace stop, `X` exited. `Z` is a state of processes, not of
    /// threads.
    pub fn state_letter(&self) -> char {
        // Do not derive this from the wait: a tracer that was notified of the stop can read the state before the thread
        // has begun to wait.
        if stands_still(self) {
            return 't';
        }
        if self.is_stopped() {
            return 'T';
        }
        match self.run_state() {
            RunState::Running | RunState::Waiting | RunState::Ready => 'R',
            RunState::Blocked => match self.sleep.lock().interest {
                Interest::Signals => 'S',
                Interest::Fatal => 'D',
                Interest::Continuation => 'T',
                // Resumed, but not woken yet.
                Interest::Tracer => 'R',
            },
            RunState::Ended => 'X',
        }
    }

    /// Returns whether the thread does not run because its process is stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Sets whether the thread is stopped.
    ///
    /// # Locks
    /// The caller holds the lock of the process's signals.
    pub(crate) fn set_stopped(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }

    /// Returns the CPU on which the thread runs, last ran, or is queued.
    pub fn cpu(&self) -> CpuId {
        CpuId::new(self.cpu.load(Ordering::Relaxed) as u16)
    }

    pub(crate) fn set_cpu(&self, cpu: CpuId) {
        self.cpu.store(cpu.index() as u32, Ordering::Relaxed);
    }

    /// Returns whether a CPU uses the thread's stack.
    pub(crate) fn is_on_cpu(&self) -> bool {
        self.on_cpu.load(Ordering::Acquire)
    }

    pub(crate) fn set_on_cpu(&self) {
        self.on_cpu.store(true, Ordering::Relaxed);
    }

    /// Releases the thread's stack: from now on, any CPU can run the thread.
    pub(crate) fn leave_cpu(&self) {
        self.on_cpu.store(false, Ordering::Release);
    }

    /// Returns the CPUs on which the thread is allowed to run. They can include CPUs that do not exist.
    pub fn affinity(&self) -> CpuSet {
        CpuSet::from_bits(self.affinity.load(Ordering::SeqCst))
    }

    /// Replaces the set of CPUs on which the thread is allowed to run. At least one of them exists.
    pub(crate) fn set_affinity(&self, cpus: CpuSet) {
        self.affinity.store(cpus.bits(), Ordering::SeqCst);
    }

    /// Copies the CPU set, the memory policy and the CPU of the parent thread `maker`.
    pub(crate) fn inherit_affinity(&self, maker: &Self) {
        self.set_affinity(maker.affinity());
        self.placement.inherit(&maker.placement);
        self.set_cpu(maker.cpu());
    }

    /// Records what the thread is about to wait for.
    pub(crate) fn note_sleep(&self, sleep: Sleep) {
        *self.sleep.lock() = sleep;
    }

    /// Returns what the thread waits for; `None` while that is being changed.
    pub(crate) fn try_sleep(&self) -> Option<Sleep> {
        self.sleep.try_lock().map(|sleep| *sleep)
    }

    /// Returns the pending work.
    pub fn work(&self) -> Work {
        Work::from_bits_truncate(self.work.load(Ordering::SeqCst))
    }

    /// Sets or clears work flags.
    pub fn set_work(&self, work: Work, wanted: bool) {
        if wanted {
            self.work.fetch_or(work.bits(), Ordering::SeqCst);
        } else {
            self.work.fetch_and(!work.bits(), Ordering::SeqCst);
        }
    }

    /// Returns whether an unblocked signal is pending.
    pub fn signal_pending(&self) -> bool {
        self.work().intersects(Work::SIGNAL.union(Work::FATAL))
    }

    /// Returns whether the thread is being killed.
    pub fn fatal_pending(&self) -> bool {
        self.work().contains(Work::FATAL)
    }
}
