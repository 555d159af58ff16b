//! What a machine provides for the threads that wait: the CPU on which a thread runs, and how it spins, halts and
//! yields.

use super::Step;
use crate::addr::CpuId;

/// Which threads ran when a thread yielded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveWay {
    /// No other thread is runnable on the CPU, or the machine has no threads.
    ToNobody,
    /// Only threads ran that are waiting for locks. None of them can continue before a thread on another CPU runs.
    ToWaiters,
    /// A thread that can make progress ran.
    ToOthers,
}

/// The functions of a machine that apply to the calling thread and its CPU. A machine names its implementation as
/// [`Machine::Threads`](crate::Machine::Threads).
///
/// The functions have no receiver: locks and waits are generic over a type that implements this trait and contain no
/// reference to the machine. Only [`cpu`](Threads::cpu) and [`relax`](Threads::relax) are required. The defaults of the
/// other functions fit a machine that has no threads of its own, that is, one whose CPUs each run a single thread of
/// execution.
///
/// During a call into this crate, no other thread runs on the calling CPU, and the calling thread stays on that CPU:
/// preemption is off. [`give_way`](Threads::give_way) is the only function in which other threads run. On a host, no two
/// threads act as one CPU at a time. Interrupts may be enabled, if their handlers call nothing of this crate.
pub trait Threads: Sized + 'static {
    /// Whether [`halt`](Threads::halt) halts the CPU. If it does, debug builds panic when the limits of the halts
    /// during one wait for a lock add up to five minutes, because the lock is then assumed never to be released. If
    /// `halt` returned at once, a wait would reach that sum within milliseconds.
    const HALTS: bool = false;

    /// Returns the number of the calling CPU, which is less than [`Machine::cpu_count`](crate::Machine::cpu_count).
    fn cpu() -> CpuId;

    /// Performs one step of a spin wait: pauses, and serves invalidations that other CPUs request from this one.
    fn relax();

    /// Halts the calling CPU until [`wake`](Threads::wake) is called for it or, if `limit` is `Some`, for at most
    /// `limit` nanoseconds. Serves invalidations as [`relax`](Threads::relax) does, and may return early.
    ///
    /// By default, performs one step of a spin wait.
    #[inline]
    fn halt(limit: Option<u32>) {
        let _ = limit;
        Self::relax();
    }

    /// Ends the halt of a CPU. If that CPU is not halted, its next halt may end at once.
    ///
    /// By default, does nothing, as fits the default of [`halt`](Threads::halt), which always returns early.
    #[inline]
    fn wake(cpu: CpuId) {
        let _ = cpu;
    }

    /// Yields to the runnable threads of the calling CPU. The calling thread holds only locks that
    /// [sleep](super::Rank::sleeps), and continues on the same CPU. `waits` states whether the thread is waiting for
    /// such a lock.
    #[inline]
    fn give_way(waits: bool) -> GaveWay {
        let _ = waits;
        GaveWay::ToNobody
    }

    /// Returns whether the calling thread should yield now. The call itself is a scheduling point.
    #[inline]
    fn pause_due() -> bool {
        false
    }

    /// Called after a wait in which the calling CPU halted. Handles the interrupts that arrived during the halt and do
    /// not concern the wait.
    #[inline]
    fn resume() {}

    /// Called at each step of a thread, if the feature `interleave` is enabled.
    #[inline]
    fn step(step: Step) {
        let _ = step;
    }

    /// Returns the functions of this type as values.
    #[doc(hidden)]
    #[inline(always)]
    fn functions() -> &'static Functions {
        const { &Functions::of::<Self>() }
    }
}

/// The functions of a type that implements [`Threads`], as values. The code of waits calls them through this type, so
/// that an image contains that code once, and not once for each crate that uses a lock.
#[derive(Debug)]
pub struct Functions {
    pub(super) cpu: fn() -> CpuId,
    pub(super) relax: fn(),
    pub(super) halt: fn(limit: Option<u32>),
    pub(super) wake: fn(cpu: CpuId),
    pub(super) give_way: fn(waits: bool) -> GaveWay,
    pub(super) resume: fn(),
    step: fn(step: Step),
    /// [`Threads::HALTS`].
    pub(super) halts: bool,
}

impl Functions {
    /// The functions of `H`.
    pub(crate) const fn of<H: Threads>() -> Self {
        Self {
            cpu: H::cpu,
            relax: H::relax,
            halt: H::halt,
            wake: H::wake,
            give_way: H::give_way,
            resume: H::resume,
            step: H::step,
            halts: H::HALTS,
        }
    }

    /// Like [`step`](super::step()).
    #[inline(always)]
    pub(super) fn step(&self, step: Step) {
        if cfg!(feature = "interleave") {
            (self.step)(step);
        }
    }

    /// Performs one step of a wait for another thread.
    pub(super) fn relax(&self) {
        self.step(Step::Wait);
        (self.relax)();
    }

    /// Returns the index of the calling CPU.
    pub(super) fn cpu_index(&self) -> usize {
        (self.cpu)().index()
    }
}

/// The threads of a machine with one CPU that runs a single thread of execution. A wait spins with a hint to the
/// processor.
#[derive(Clone, Copy, Debug)]
pub struct OneCpu;

impl Threads for OneCpu {
    #[inline]
    fn cpu() -> CpuId {
        CpuId::new(0)
    }

    #[inline]
    fn relax() {
        core::hint::spin_loop();
    }
}
