//! The scheduler's part of a thread, and the interface through which the scheduler uses the rest of it.

use super::{Nice, RunState, RunWord, Usage, Work};
use crate::wait::{Interest, Waiter};
use alloc::sync::Arc;
use core::{
    fmt::{self, Write},
    ops::Deref,
    sync::atomic::{AtomicBool, AtomicI8, AtomicU32, AtomicU64, Ordering},
};
use memwright_linux_abi::{Space, arch::x86_64::regs::FpuArea, host::ContextId};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::{CpuId, CpuSet};

/// The interface through which the scheduler uses a thread: a [`Task`] in an address space. Its [`wake`](Waiter::wake)
/// calls
/// [`Scheduler::wake`](super::Scheduler::wake).
pub trait Schedulable: Waiter + Deref<Target = Task> + 'static {
    /// Returns the address space in which the thread runs; `None` once its process has exited.
    fn space(&self) -> Option<Arc<Space>>;

    /// Writes the ids of the thread and of its process, for a failure report.
    ///
    /// # Errors
    /// The errors of `out`.
    ///
    /// # Locks
    /// Takes no lock.
    fn identify(&self, out: &mut dyn Write) -> fmt::Result;
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub struct Sleep {
    /// The awaited event in words, for reports.
    pub what: &'static str,
    /// The events that end the wait early.
    pub interest: Interest,
    /// Start of the wait, in nanoseconds by the host's clock.
    pub since: u64,
    /// Deadline of the wait, in nanoseconds by the host's clock; `None` if it has none.
    pub deadline: Option<u64>,
}

/// The part of a thread's state that the scheduler uses.
pub struct Task {
    /// The kernel stack.
    pub context: ContextId,
    /// The resources that the thread has used.
    pub usage: Usage,
    /// The extended state (XSAVE area) of the thread while it does not run.
    pub fpu: Lock<FpuArea>,
    /// Whether the thread runs or waits. The scheduler's protocol defines which threads and CPUs are allowed to change
    /// it.
    pub(super) run: RunWord,
    /// Whether a CPU uses the thread's stack. Set by the CPU that is about to run the thread, cleared by the next
    /// context on that CPU.
    on_cpu: AtomicBool,
    /// Whether the thread yielded in the middle of an operation. It then continues on the same CPU.
    pub(super) paused: AtomicBool,
    /// The CPU on which the thread runs, last ran, or is queued. Changed by the CPU that puts the thread into a run
    /// queue or takes it from another CPU's queue.
    cpu: AtomicU32,
    /// CPUs on which the thread is allowed to run, as a bit mask. They can include CPUs that do not exist.
    affinity: AtomicU64,
    /// Whether the CPU time of the thread is measured: the thread then handles [`Work::CPU_TIME`] each time that it is
    /// switched to.
    measured: AtomicBool,
    /// The nice value as a number, and the time slice in nanoseconds that follows from it.
    nice: AtomicI8,
    slice: AtomicU64,
    work: AtomicU32,
    /// One more than the CPU number that the kernel last wrote to the thread's `struct rseq`; 0 if the thread has
    /// registered none. Written by the thread itself.
    restartable: AtomicU32,
    /// What the thread waits for. Used in reports.
    sleep: Lock<Sleep>,
}

impl Task {
    /// Creates the state of a thread that has not run yet and whose kernel stack is `context`.
    #[must_use]
    pub fn new(context: ContextId) -> Self {
        Self {
            context,
            usage: Usage::default(),
            fpu: Lock::new(Rank::Leaf, FpuArea::INITIAL),
            run: RunWord::default(),
            on_cpu: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            cpu: AtomicU32::new(0),
            affinity: AtomicU64::new(u64::MAX),
            measured: AtomicBool::new(false),
            nice: AtomicI8::new(0),
            slice: AtomicU64::new(Nice::default().slice()),
            work: AtomicU32::new(0),
            restartable: AtomicU32::new(0),
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

    /// Returns whether the thread runs or waits.
    pub fn run_state(&self) -> RunState {
        self.run.get()
    }

    /// Returns the CPU on which the thread runs, last ran, or is queued.
    pub fn cpu(&self) -> CpuId {
        CpuId::new(self.cpu.load(Ordering::Relaxed) as u16)
    }

    pub(super) fn set_cpu(&self, cpu: CpuId) {
        self.cpu.store(cpu.index() as u32, Ordering::Relaxed);
    }

    /// Returns whether a CPU uses the thread's stack.
    pub(super) fn is_on_cpu(&self) -> bool {
        self.on_cpu.load(Ordering::Acquire)
    }

    pub(super) fn set_on_cpu(&self) {
        self.on_cpu.store(true, Ordering::Relaxed);
    }

    /// Releases the thread's stack: from now on, any CPU can run the thread.
    pub(super) fn leave_cpu(&self) {
        self.on_cpu.store(false, Ordering::Release);
    }

    /// Returns the CPUs on which the thread is allowed to run. They can include CPUs that do not exist.
    pub fn affinity(&self) -> CpuSet {
        CpuSet::from_bits(self.affinity.load(Ordering::SeqCst))
    }

    /// Replaces the set of CPUs on which the thread is allowed to run. At least one of them exists.
    pub(super) fn set_affinity(&self, cpus: CpuSet) {
        self.affinity.store(cpus.bits(), Ordering::SeqCst);
    }

    /// Returns whether the thread handles [`Work::CPU_TIME`] each time that it is switched to.
    pub fn is_measured(&self) -> bool {
        self.measured.load(Ordering::Relaxed)
    }

    /// Sets whether the thread handles [`Work::CPU_TIME`] each time that it is switched to.
    pub fn set_measured(&self, measured: bool) {
        self.measured.store(measured, Ordering::Relaxed);
    }

    /// Returns the nice value.
    pub fn nice(&self) -> Nice {
        Nice::nearest(self.nice.load(Ordering::Relaxed).into())
    }

    /// Replaces the nice value. The end of the current time slice does not change.
    pub fn set_nice(&self, nice: Nice) {
        self.nice.store(nice.number() as i8, Ordering::Relaxed);
        self.slice.store(nice.slice(), Ordering::Relaxed);
    }

    /// Returns the time slice in nanoseconds.
    pub(super) fn slice(&self) -> u64 {
        self.slice.load(Ordering::Relaxed)
    }

    /// Copies the CPU set, the CPU and the nice value of the parent thread.
    pub fn inherit_scheduling(&self, parent: &Self) {
        self.set_affinity(parent.affinity());
        self.set_cpu(parent.cpu());
        let copy = |to: &AtomicU64, from: &AtomicU64| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&self.slice, &parent.slice);
        self.nice
            .store(parent.nice.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Records what the thread is about to wait for.
    pub(super) fn note_sleep(&self, sleep: Sleep) {
        *self.sleep.lock() = sleep;
    }

    /// Returns what the thread waits for, or last waited for.
    pub fn sleep(&self) -> Sleep {
        *self.sleep.lock()
    }

    /// Returns what the thread waits for; `None` if another CPU holds the lock of this record.
    pub fn try_sleep(&self) -> Option<Sleep> {
        self.sleep.try_lock().map(|sleep| *sleep)
    }

    /// Returns the work flags that are set.
    pub fn work(&self) -> Work {
        Work::from_bits_truncate(self.work.load(Ordering::SeqCst))
    }

    /// Sets the work flags `work` if `wanted` is true, otherwise clears them.
    pub fn set_work(&self, work: Work, wanted: bool) {
        if wanted {
            self.work.fetch_or(work.bits(), Ordering::SeqCst);
        } else {
            self.work.fetch_and(!work.bits(), Ordering::SeqCst);
        }
    }

    /// Records the CPU number that was written to the thread's `struct rseq`; `None` for a thread that has registered
    /// none.
    pub fn set_restartable(&self, cpu: Option<u32>) {
        let number = cpu.map_or(0, |cpu| cpu + 1);
        self.restartable.store(number, Ordering::Relaxed);
    }

    /// Returns whether `cpu` is the CPU number that was last written to the thread's `struct rseq`.
    pub fn is_known_on(&self, cpu: CpuId) -> bool {
        self.restartable.load(Ordering::Relaxed) == cpu.index() as u32 + 1
    }

    /// Returns whether the thread has registered a `struct rseq`.
    pub fn is_restartable(&self) -> bool {
        self.restartable.load(Ordering::Relaxed) != 0
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
