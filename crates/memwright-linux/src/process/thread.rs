//! One thread.

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
    /// What a thread has to look at before it returns to user mode.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct Work: u32 {
        /// A signal, a stop or the end.
        const SIGNAL = 1;
        /// The thread is being killed: waits end that ordinary signals do not end.
        const FATAL = 2;
        /// The thread called `exit`: it alone ends.
        const EXIT = 4;
        /// The CPUs that the thread may run on have changed.
        const MIGRATE = 8;
        /// The user registers were replaced: every one is loaded anew.
        const REGISTERS = 16;
        /// The thread is in a group whose limits it looks at, each time.
        const CGROUP = 32;
    }
}

/// What a new thread does first.
pub enum Start {
    /// Enters user mode.
    User(UserState),
    /// Executes the program of the manifest.
    Program,
}

/// How `restart_syscall` goes on with an interrupted call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RestartBlock {
    /// A relative sleep until this time.
    Sleep {
        /// Time of the host's clock.
        deadline: u64,
        /// Where the remaining time is stored, or null.
        remaining: u64,
    },
    /// A poll until this time.
    Poll {
        /// Address of the descriptors.
        descriptors: u64,
        /// How many.
        count: u64,
        /// Time of the host's clock.
        deadline: Option<u64>,
    },
    /// A wait for a word with a deadline.
    Futex(WaitRequest),
}

/// A thread.
pub struct Thread {
    /// Changes once at most, when the thread executes a program and takes its leader's place.
    id: AtomicU32,
    /// The process it belongs to.
    pub process: Arc<Process>,
    /// Its kernel stack.
    pub context: ContextId,
    /// What it has used.
    pub usage: Usage,
    /// Where to store zero and wake when the thread ends (`CLONE_CHILD_CLEARTID`).
    pub clear_child_tid: AtomicU64,
    /// Its `struct robust_list_head` in user memory, or null.
    pub robust_list: AtomicU64,
    /// The bucket where it waits for a word of user memory.
    pub(crate) futex: FutexPlace,
    /// Extended state while the thread does not run.
    pub fpu: Lock<FpuArea>,
    /// The last fault, as signal frames report it.
    pub last_fault: Lock<LastFault>,
    /// The interrupted call that `restart_syscall` continues.
    pub restart: Lock<Option<RestartBlock>>,
    /// The instruction that it executes away from its place.
    pub(crate) stepping: Lock<Option<Stepping>>,
    /// Address of the page where it does so, or null.
    pub(crate) copy_page: AtomicU64,
    /// The name, as in `/proc/PID/task/TID/comm`.
    name: Lock<[u8; 16]>,
    /// What the thread gave to `exit`; [`Work::EXIT`] says that it did.
    exit_code: AtomicI32,
    /// It is ending, and waits for no watcher of memory any more: set by itself.
    pub(crate) ends: AtomicBool,
    start: Lock<Option<Start>>,
    /// Whether it runs or waits. The scheduler's protocol says who may change it.
    pub(crate) run: RunWord,
    /// Its stack is in use by a CPU: set by the CPU that is about to run it, cleared by what runs
    /// there next.
    on_cpu: AtomicBool,
    /// It gave way in the midst of an operation, and goes on on its CPU.
    pub(crate) paused: AtomicBool,
    /// The CPU that it runs on or ran on last, or in whose queue it stands; changed by who puts it
    /// into a run queue or takes it from another CPU's.
    cpu: AtomicU32,
    /// CPUs that it may run on, as bits; those that do not exist included.
    affinity: AtomicU64,
    /// Where its pages come from.
    pub(crate) placement: ThreadPlacement,
    work: AtomicU32,
    /// It stands still because its process is stopped. Written under the lock of the process's
    /// signals.
    stopped: AtomicBool,
    /// What it waits for, for reports.
    sleep: Lock<Sleep>,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleep {
    /// In words.
    pub(crate) what: &'static str,
    /// What ends the wait early.
    pub(crate) interest: Interest,
    /// Since when, by the host's clock.
    pub(crate) since: u64,
    /// Until when at most.
    pub(crate) deadline: Option<u64>,
}

impl Thread {
    /// A thread of `process` that has not run yet.
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

    /// The thread id.
    pub fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    /// Gives the thread the id of its process. The caller enters it in the table of threads.
    pub(crate) fn become_leader(&self) {
        self.id.store(self.process.id, Ordering::Relaxed);
    }

    /// It is the thread whose id is the process's.
    pub fn is_leader(&self) -> bool {
        self.id() == self.process.id
    }

    /// The name, as in `/proc/PID/task/TID/comm`: up to 15 bytes and a NUL.
    pub fn name(&self) -> [u8; 16] {
        *self.name.lock()
    }

    /// The name, unless it is being changed.
    pub(crate) fn try_name(&self) -> Option<[u8; 16]> {
        self.name.try_lock().map(|name| *name)
    }

    /// Sets the name, cut to 15 bytes. The leader's is also the process's.
    pub fn set_name(&self, name: &[u8]) {
        let mut stored = [0; 16];
        let length = name.len().min(15);
        stored[..length].copy_from_slice(&name[..length]);
        *self.name.lock() = stored;
        if self.is_leader() {
            self.process.set_name(stored);
        }
    }

    /// Lets the thread end with this code on its way back to user mode, its process go on.
    pub(crate) fn end_alone(&self, code: i32) {
        self.exit_code.store(code, Ordering::Relaxed);
        self.set_work(Work::EXIT, true);
    }

    /// What it gave to `exit`, if it did.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        let ends = self.work().contains(Work::EXIT);
        ends.then(|| self.exit_code.load(Ordering::Relaxed))
    }

    /// Takes what the thread does first.
    pub fn take_start(&self) -> Option<Start> {
        self.start.lock().take()
    }

    /// Whether it runs or waits.
    pub fn run_state(&self) -> RunState {
        self.run.get()
    }

    /// The letter of `/proc/PID/stat` for what it is doing: `R` running or ready, `S` waiting, `D`
    /// waiting for what signals do not end, `T` stopped, `t` standing
    /// still for a tracer, `X` ended. Zombies are processes.
    pub fn state_letter(&self) -> char {
        // Not by what it waits for: who was told of the stop may look before the wait has begun.
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
                // Let go on, not yet woken.
                Interest::Tracer => 'R',
            },
            RunState::Ended => 'X',
        }
    }

    /// It stands still because its process is stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// The caller holds the lock of the process's signals.
    pub(crate) fn set_stopped(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }

    /// The CPU that it runs on, or ran on last.
    pub fn cpu(&self) -> CpuId {
        CpuId::new(self.cpu.load(Ordering::Relaxed) as u16)
    }

    pub(crate) fn set_cpu(&self, cpu: CpuId) {
        self.cpu.store(cpu.index() as u32, Ordering::Relaxed);
    }

    /// Its stack is in use.
    pub(crate) fn is_on_cpu(&self) -> bool {
        self.on_cpu.load(Ordering::Acquire)
    }

    pub(crate) fn set_on_cpu(&self) {
        self.on_cpu.store(true, Ordering::Relaxed);
    }

    /// Its stack was left: another CPU may run it from now on.
    pub(crate) fn leave_cpu(&self) {
        self.on_cpu.store(false, Ordering::Release);
    }

    /// The CPUs that it may run on; those that do not exist may be among them.
    pub fn affinity(&self) -> CpuSet {
        CpuSet::from_bits(self.affinity.load(Ordering::SeqCst))
    }

    /// Replaces the set; at least one of it exists.
    pub(crate) fn set_affinity(&self, cpus: CpuSet) {
        self.affinity.store(cpus.bits(), Ordering::SeqCst);
    }

    /// Starts with the CPUs of its maker, where its maker runs.
    pub(crate) fn inherit_affinity(&self, maker: &Self) {
        self.set_affinity(maker.affinity());
        self.placement.inherit(&maker.placement);
        self.set_cpu(maker.cpu());
    }

    /// Notes what it is about to wait for.
    pub(crate) fn note_sleep(&self, sleep: Sleep) {
        *self.sleep.lock() = sleep;
    }

    /// What it waits for, unless that is being changed.
    pub(crate) fn try_sleep(&self) -> Option<Sleep> {
        self.sleep.try_lock().map(|sleep| *sleep)
    }

    /// What waits to be looked at.
    pub fn work(&self) -> Work {
        Work::from_bits_truncate(self.work.load(Ordering::SeqCst))
    }

    /// Sets or clears work.
    pub fn set_work(&self, work: Work, wanted: bool) {
        if wanted {
            self.work.fetch_or(work.bits(), Ordering::SeqCst);
        } else {
            self.work.fetch_and(!work.bits(), Ordering::SeqCst);
        }
    }

    /// A signal waits that the thread does not block.
    pub fn signal_pending(&self) -> bool {
        self.work().intersects(Work::SIGNAL.union(Work::FATAL))
    }

    /// The thread is being killed.
    pub fn fatal_pending(&self) -> bool {
        self.work().contains(Work::FATAL)
    }
}
