//! The scheduler: one run queue per CPU, round-robin, and the timers of waits and alarms.
//!
//! The kernel is not preemptible: a thread leaves the CPU when it waits, when it exits, or when it returns to user mode
//! after its time slice while other threads are runnable. The context on which a CPU booted is its idle loop.
//!
//! # The protocol
//! A thread's state is one word ([`RunState`]). Each change is one atomic operation, and only these changes exist:
//!
//! ```text
//! Running -> Waiting    the thread, before it enters wait queues and checks whether it has to wait
//! Waiting -> Running    the thread, if it need not wait; or a waker, and the thread keeps running
//! Waiting -> Blocked    the thread, on its way off the CPU; fails if a waker came first
//! Blocked -> Ready      one waker, which then puts the thread into a run queue
//! Running -> Ready      the thread, when it yields or has to move to another CPU
//! Ready   -> Running    the CPU that took it out of a run queue
//! Running -> Ended      the thread
//! ```
//!
//! *No wakeup is lost.* The thread announces the wait (`Waiting`) before it enters a queue and before it checks its
//! condition. A waker that finds the thread in the queue sees the announcement, because the thread and the waker both
//! acquire the queue's lock. If the event came before the thread entered the queue, the thread's check sees the event,
//! because of the same lock. Work flags have no lock. A waker sets a flag and then reads the state; the thread sets the
//! state and then reads its flags. These accesses are sequentially consistent, so at least one of the two sees the
//! other's store.
//!
//! *No thread runs on two CPUs.* A thread is in at most one run queue, since a thread enters a run queue only after a
//! change to `Ready`, which only one CPU can make. A thread is `on_cpu` from the moment a CPU picks it until the next
//! context on that CPU has left the thread's stack. While it is `on_cpu`, it can be put only into the run queue of that
//! CPU, and no other CPU may take it from there. So a CPU that picks a thread never waits for another CPU to leave the
//! thread's stack, and two CPUs cannot wait for one another. `on_cpu` is cleared with release order after everything
//! that the old context wrote, and read with acquire order.
//!
//! *No CPU idles while a thread is runnable.* A CPU that has nothing to run enters the set of idle CPUs, then checks
//! its own queue and those of the other CPUs, then halts. A CPU that puts a thread into a queue reads the set
//! afterwards. It *kicks* (interrupts) the queue's CPU if that CPU is in the set, or else an idle CPU that is allowed
//! to steal the thread. So at least one of the two CPUs sees what the other wrote, as with the work flags above. A kick
//! is never lost ([`Host::kick`]). If several CPUs find an idle CPU in the set, only one of them takes it out.
//!
//! *Pauses.* In the middle of a long operation a thread yields while it holds the lock of an address space
//! (`pause.rs`). The thread then continues on the same CPU, because the operation uses data of that CPU.
//!
//! *Locks.* A CPU never holds `ready` and `timers` together. The other fields of a CPU are written by that CPU alone;
//! they have locks so that reports can read them. Each of these locks costs one atomic exchange.
//!
//! With one CPU there are no kicks, steals or ticks.
//!
//! [`Host::kick`]: memwright_linux_abi::host::Cpus::kick

mod load;
mod nice;
mod pause;
mod place;
mod report;
mod state;
mod task;
pub mod timers;
mod usage;
mod wait;
mod work;

pub use load::LoadAverage;
pub use nice::Nice;
pub use state::RunState;
pub use state::{RunWord, Woken};
pub use task::Sleep;
pub use task::{Schedulable, Task};
pub use timers::EXPIRING;
pub use timers::{Expiry, TimerKey, Timers};
pub use usage::{Usage, UsageSnapshot};
pub use work::Work;

use alloc::{collections::VecDeque, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use memwright_linux_abi::{
    Space,
    errno::Errno,
    host::{self, ContextId, Host},
};
use memwright_linux_base::{
    ordered::Ordered,
    sync::{self, Grows, Lock, Rank},
};
use memwright_table::{CpuId, CpuSet, Loaded, OutOfMemory};
use place::{Candidate, may_steal, place, slice_is_over};
use timers::TimerAction;

/// Time slice in nanoseconds: how long a thread of nice 0 runs while other threads are runnable.
pub const TIME_SLICE: u64 = 4_000_000;

/// Nanoseconds between ticks of a busy CPU, with several CPUs.
const TICK: u64 = 1_000_000;

/// Half of the minimum capacity of a run queue, in threads.
const LEAST_ROOM: usize = 32;

/// What the old context passes to the next context at a context switch.
struct Left<T> {
    /// The thread whose stack was left; `None` for the idle loop's stack.
    thread: Option<Arc<T>>,
    /// Whether the thread must move to another CPU.
    migrates: bool,
    /// The address space that was left.
    space: Option<Arc<Space>>,
}

impl<T> Default for Left<T> {
    fn default() -> Self {
        Self {
            thread: None,
            migrates: false,
            space: None,
        }
    }
}

/// The scheduling state of one CPU.
struct Cpu<T> {
    /// Runnable threads; the first one runs next.
    ready: Lock<VecDeque<Arc<T>>>,
    /// Length of `ready`; written under its lock.
    waiting: AtomicUsize,
    /// Number of threads in `ready` that wait for locks. Written by this CPU.
    lock_waiters: AtomicUsize,
    /// Capacity of `ready`.
    room: AtomicUsize,
    /// Timers that expire on this CPU.
    timers: Lock<Ordered<TimerKey, TimerAction<T>>>,
    /// Timers of waiting threads, all of them [`TimerAction::Wake`]: they can expire even while other locks are held.
    wakes: Lock<Ordered<TimerKey, TimerAction<T>>>,
    /// The running thread; `None` while idle. Written by this CPU.
    current: Lock<Option<Arc<T>>>,
    /// The address space whose page table is loaded. With a single CPU, the last one stays loaded while the CPU idles.
    loaded: Lock<Option<Loaded<Arc<Space>>>>,
    /// The state for the next context. This CPU writes it before a context switch, and the next context takes it after
    /// the switch.
    left: Lock<Left<T>>,
    /// End of the running thread's time slice, in nanoseconds by the host's clock.
    slice_end: AtomicU64,
    /// Time of this CPU's next tick, in nanoseconds by the host's clock.
    tick: AtomicU64,
    /// The deadline set on the host, in nanoseconds by its clock; `u64::MAX` for none.
    armed: AtomicU64,
    /// Number of context switches, including those to the idle loop. Written by this CPU.
    switches: AtomicU64,
    /// Instruction counts of user mode and kernel at the last switch.
    counted: [AtomicU64; 2],
}

impl<T: Schedulable> Cpu<T> {
    fn new() -> Self {
        Self {
            ready: Lock::new(Rank::Scheduler, VecDeque::new()),
            waiting: AtomicUsize::new(0),
            lock_waiters: AtomicUsize::new(0),
            room: AtomicUsize::new(0),
            timers: Lock::new(Rank::Scheduler, Ordered::new()),
            wakes: Lock::new(Rank::Scheduler, Ordered::new()),
            current: Lock::new(Rank::Leaf, None),
            loaded: Lock::new(Rank::Leaf, None),
            left: Lock::new(Rank::Leaf, Left::default()),
            slice_end: AtomicU64::new(0),
            tick: AtomicU64::new(u64::MAX),
            armed: AtomicU64::new(u64::MAX),
            switches: AtomicU64::new(0),
            counted: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// Makes room for `threads` threads in `ready` in advance, so that a wakeup never allocates: the heap cannot grow
    /// under the queue's lock.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn make_room(&self, threads: usize) -> Result<(), OutOfMemory> {
        if threads <= self.room.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut larger = VecDeque::with_room(2 * threads.max(LEAST_ROOM))?;
        let mut ready = self.ready.lock();
        ready.take_room(&mut larger);
        self.room.store(ready.capacity(), Ordering::Relaxed);
        drop(ready);
        drop(larger);
        Ok(())
    }

    /// Adds a thread at the end of the queue. Returns whether it is the only one.
    fn push(&self, thread: Arc<T>) -> bool {
        let mut ready = self.ready.lock();
        #[expect(
            clippy::disallowed_methods,
            reason = "there is room for each living thread"
        )]
        ready.push_back(thread);
        self.waiting.store(ready.len(), Ordering::SeqCst);
        ready.len() == 1
    }

    fn pop(&self) -> Option<Arc<T>> {
        let mut ready = self.ready.lock();
        let thread = ready.pop_front();
        self.waiting.store(ready.len(), Ordering::SeqCst);
        thread
    }

    fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Takes the first thread that is allowed to run on CPU `thief`, if there is one.
    fn steal(&self, thief: CpuId) -> Option<Arc<T>> {
        if !self.has_waiting() {
            return None;
        }
        let mut ready = self.ready.lock();
        let position = ready
            .iter()
            .position(|thread| may_steal(candidate(thread), thief))?;
        let thread = ready.remove(position);
        self.waiting.store(ready.len(), Ordering::SeqCst);
        thread
    }
}

fn candidate(thread: &Task) -> Candidate {
    Candidate {
        last: thread.cpu(),
        on_cpu: thread.is_on_cpu(),
        allowed: if thread.paused.load(Ordering::Relaxed) {
            CpuSet::single(thread.cpu())
        } else {
            thread.affinity()
        },
    }
}

/// The reason why a thread cannot be admitted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AdmitError {
    /// There are [as many threads as the machine permits](host::Contexts::most_contexts).
    TooMany,
    /// There is no memory for the stack or the run queues.
    OutOfMemory,
}

impl From<AdmitError> for Errno {
    fn from(error: AdmitError) -> Self {
        match error {
            AdmitError::TooMany => Self::EAGAIN,
            AdmitError::OutOfMemory => Self::ENOMEM,
        }
    }
}

impl From<OutOfMemory> for AdmitError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl From<host::OutOfMemory> for AdmitError {
    fn from(_: host::OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// The work that idle loops do for the rest of the kernel.
pub trait IdleWork: Sync {
    /// Handles events that concern the kernel as a whole, such as control bytes from the `memwright` command.
    ///
    /// # Locks
    /// Called without locks.
    fn serve(&self);

    /// Returns whether the run has an outcome: the program has exited, or could not be started. The idle loops then end
    /// as soon as no thread is left.
    fn is_over(&self) -> bool;
}

/// The scheduler of the threads `T`: the run queues and timers of all CPUs.
pub struct Scheduler<T> {
    host: &'static dyn Host,
    cpus: Vec<Cpu<T>>,
    /// CPUs that search for work or are halted. A CPU adds itself to the set, and removes itself when it has found a
    /// thread. A CPU that kicks a CPU of the set removes that CPU from the set.
    idle: AtomicU64,
    /// Sequence number of the next timer.
    sequence: AtomicU64,
    /// Number of threads that own a kernel stack, except those that have left it for the last time.
    living: AtomicUsize,
    load: load::Load,
    /// Number of CPUs whose idle loops have ended.
    parked: AtomicUsize,
}

impl<T: Schedulable> Scheduler<T> {
    /// Creates empty queues for every CPU of the host.
    pub fn new(host: &'static dyn Host) -> Self {
        #[expect(clippy::disallowed_methods, reason = "before any program runs")]
        let cpus = (0..host.cpu_count()).map(|_| Cpu::new()).collect();
        Self {
            host,
            cpus,
            idle: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            living: AtomicUsize::new(0),
            load: load::Load::new(),
            parked: AtomicUsize::new(0),
        }
    }

    fn cpu(&self) -> &Cpu<T> {
        &self.cpus[sync::cpu().index()]
    }

    fn is_alone(&self) -> bool {
        self.cpus.len() == 1
    }

    /// Returns the set of all CPUs.
    pub fn all_cpus(&self) -> CpuSet {
        CpuSet::from_bits(u64::MAX >> (64 - self.cpus.len()))
    }

    /// Returns the thread that runs on this CPU.
    pub fn current(&self) -> Option<Arc<T>> {
        self.cpu().current.lock().clone()
    }

    /// Creates a kernel stack for the thread `id` and counts the thread as living.
    ///
    /// # Errors
    /// [`AdmitError::TooMany`] (`copy_process` of Linux 7.2, `kernel/fork.c`), [`AdmitError::OutOfMemory`].
    pub fn admit(&self, id: u32) -> Result<ContextId, AdmitError> {
        let living = self.living.fetch_add(1, Ordering::SeqCst) + 1;
        let admitted = self.make_context(id, living);
        if admitted.is_err() {
            self.living.fetch_sub(1, Ordering::SeqCst);
        }
        admitted
    }

    fn make_context(&self, id: u32, living: usize) -> Result<ContextId, AdmitError> {
        if living > self.host.most_contexts() {
            return Err(AdmitError::TooMany);
        }
        self.cpus.iter().try_for_each(|cpu| cpu.make_room(living))?;
        Ok(self.host.create_context(id as usize)?)
    }

    /// Frees the kernel stack of a thread that was admitted but never started.
    pub fn abandon(&self, thread: &Task) {
        self.host.destroy_context(thread.context);
        self.living.fetch_sub(1, Ordering::SeqCst);
    }

    /// Makes a waiting thread runnable. It runs after the threads that are runnable now.
    pub fn wake(&self, thread: Arc<T>) {
        if thread.run.wake() == Woken::Enqueue {
            self.enqueue(thread);
        }
    }

    /// Makes a new thread runnable. It runs after the threads that are runnable now. If the run queue is empty, the
    /// time slice of the creating thread restarts.
    pub fn start(&self, thread: &Arc<T>) {
        let cpu = self.cpu();
        if !cpu.has_waiting() {
            cpu.slice_end
                .store(self.host.now() + thread.slice(), Ordering::Relaxed);
        }
        self.wake(thread.clone());
    }

    /// Makes a thread handle its work flags: wakes it if it waits, and interrupts its CPU if it runs.
    pub fn notify(&self, thread: &Arc<T>) {
        match thread.run.wake() {
            Woken::Enqueue => self.enqueue(thread.clone()),
            Woken::Runs => self.interrupt(thread.cpu()),
            // The thread reads its work flags before it blocks or returns to user mode.
            Woken::Stays | Woken::Nothing => {}
        }
    }

    /// Interrupts another CPU, so that it leaves user mode.
    fn interrupt(&self, cpu: CpuId) {
        if cpu != sync::cpu() {
            self.host.kick(cpu);
        }
    }

    /// Puts a thread that became runnable into a run queue.
    fn enqueue(&self, thread: Arc<T>) {
        if self.is_alone() {
            if self.cpus[0].push(thread) {
                self.arm();
            }
            return;
        }
        let this = sync::cpu();
        let allowed = thread.affinity();
        let idle = CpuSet::from_bits(self.idle.load(Ordering::SeqCst));
        let target = place(candidate(&thread), idle);
        thread.set_cpu(target);
        let first = self.cpus[target.index()].push(thread);
        if target == this {
            if first {
                self.arm();
            }
        } else if self.claim(target) {
            self.host.kick(target);
            return;
        }
        // A CPU that has become idle since may steal the thread.
        self.kick_idle(allowed.without(target));
    }

    /// Takes a CPU out of the set of idle CPUs. Returns whether it was in the set.
    fn claim(&self, cpu: CpuId) -> bool {
        let bit = CpuSet::single(cpu).bits();
        self.idle.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Kicks one idle CPU of `among`, if there is one.
    fn kick_idle(&self, among: CpuSet) {
        let this = sync::cpu();
        let idle = self.idle.load(Ordering::SeqCst) & among.without(this).bits();
        for cpu in CpuSet::from_bits(idle).iter() {
            if self.claim(cpu) {
                self.host.kick(cpu);
                return;
            }
        }
    }

    /// Leaves the CPU until the thread is woken or the deadline passes. The caller has announced the wait; if the
    /// thread was woken since, it stays on the CPU.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no memory for the timer; the thread then stays on the CPU.
    pub fn block(&self, thread: &Arc<T>, deadline: Option<u64>) -> Result<(), OutOfMemory> {
        let timer = match deadline {
            Some(at) => Some(self.set_timer(at, TimerAction::Wake(thread.clone()))?),
            None => None,
        };
        if thread.run.block() {
            thread.usage.voluntary.fetch_add(1, Ordering::Relaxed);
            let next = self.next();
            self.switch_away(thread, next, false);
        }
        if let Some(timer) = timer {
            self.remove_timer(timer);
        }
        Ok(())
    }

    /// Runs the other runnable threads of this CPU before the calling thread continues (`sched_yield`).
    pub fn yield_now(&self, thread: &Arc<T>) {
        let cpu = self.cpu();
        if !cpu.has_waiting() {
            return;
        }
        if let Some(next) = cpu.pop() {
            thread.run.step_aside();
            cpu.push(thread.clone());
            self.switch_away(thread, Some(next), false);
        }
    }

    /// Handles a timer interrupt or a kick: expires the timers that are due, and yields if the time slice is over.
    pub fn tick(&self, thread: &Arc<T>) {
        self.expire();
        let cpu = self.cpu();
        let now = self.host.now();
        if !self.is_alone() {
            self.look_around(now);
        }
        let waiting = cpu.waiting.load(Ordering::SeqCst);
        if slice_is_over(now, cpu.slice_end.load(Ordering::Relaxed), waiting) {
            thread.usage.involuntary.fetch_add(1, Ordering::Relaxed);
            self.yield_now(thread);
        }
        self.arm();
    }

    /// Handles the tick of a busy CPU: accounts CPU time, and kicks an idle CPU if threads are waiting.
    fn look_around(&self, now: u64) {
        let cpu = self.cpu();
        if now >= cpu.tick.load(Ordering::Relaxed) {
            cpu.tick.store(now + TICK, Ordering::Relaxed);
            self.count_instructions();
        }
        if cpu.has_waiting() {
            self.kick_idle(self.all_cpus());
        }
    }

    /// Restricts a thread to the CPUs in `cpus`. A thread on another CPU moves when it next returns to user mode.
    pub fn restrict(&self, thread: &Arc<T>, cpus: CpuSet) {
        thread.set_affinity(cpus);
        // Set the flag even if the thread seems to run on an allowed CPU: it can be in transit to a CPU that was
        // allowed before.
        thread.set_work(Work::MIGRATE, true);
        if thread.run_state() == RunState::Running {
            self.interrupt(thread.cpu());
        }
    }

    /// Moves the running thread to a CPU on which it is allowed to run. Does nothing if this CPU is allowed.
    pub fn migrate(&self, thread: &Arc<T>) {
        thread.set_work(Work::MIGRATE, false);
        if thread.affinity().contains(sync::cpu()) {
            return;
        }
        thread.run.step_aside();
        let next = self.next();
        self.switch_away(thread, next, true);
    }

    /// Returns the thread that this CPU runs next, from this CPU's queue or else from that of another CPU.
    fn next(&self) -> Option<Arc<T>> {
        let this = sync::cpu();
        let own = self.cpus[this.index()].pop();
        if own.is_some() || self.is_alone() {
            return own;
        }
        let count = self.cpus.len();
        let thread = (1..count)
            .map(|distance| (this.index() + distance) % count)
            .find_map(|other| self.cpus[other].steal(this))?;
        thread.set_cpu(this);
        Some(thread)
    }

    fn switch_away(&self, from: &Arc<T>, next: Option<Arc<T>>, migrates: bool) {
        memwright_linux_base::sync::assert_none_held();
        if next.as_ref().is_some_and(|next| Arc::ptr_eq(next, from)) {
            from.run.run();
            return;
        }
        self.count_instructions();
        self.host.save_fpu(&mut from.fpu.lock());
        let to = self.install(next, migrates);
        self.host.switch_context(from.context, to);
        self.finish_switch();
    }

    /// Makes `next` this CPU's running thread, or marks the CPU idle. Returns the context to which the caller switches.
    fn install(&self, next: Option<Arc<T>>, migrates: bool) -> ContextId {
        let cpu = self.cpu();
        let switches = cpu.switches.load(Ordering::Relaxed);
        cpu.switches.store(switches + 1, Ordering::Relaxed);
        if next.is_none() {
            self.note_load(self.host.now());
        }
        let (context, space) = match &next {
            Some(thread) => {
                thread.set_on_cpu();
                thread.run.run();
                if thread.is_restartable() {
                    thread.set_work(Work::RESTARTABLE, true);
                }
                if thread.is_measured() {
                    thread.set_work(Work::CPU_TIME, true);
                }
                let space = thread.space();
                let left = space.and_then(|space| self.exchange_space(&space));
                self.host.restore_fpu(&thread.fpu.lock());
                let now = self.host.now();
                cpu.slice_end.store(now + thread.slice(), Ordering::Relaxed);
                cpu.tick.store(now + TICK, Ordering::Relaxed);
                (thread.context, left)
            }
            // With several CPUs, leave the address space: an idle CPU should neither be interrupted for TLB
            // invalidations nor keep the memory of a process that exits on another CPU.
            None if !self.is_alone() => (self.host.boot_context(), self.leave_space()),
            None => (self.host.boot_context(), None),
        };
        let thread = core::mem::replace(&mut *cpu.current.lock(), next);
        *cpu.left.lock() = Left {
            thread,
            migrates,
            space,
        };
        self.arm();
        context
    }

    /// Completes the last context switch on this CPU. Every context calls this first after a switch to it.
    pub fn finish_switch(&self) {
        let Left {
            thread,
            migrates,
            space,
        } = core::mem::take(&mut *self.cpu().left.lock());
        if let Some(thread) = thread {
            thread.leave_cpu();
            if thread.run.get() == RunState::Ended {
                self.host.destroy_context(thread.context);
                self.living.fetch_sub(1, Ordering::SeqCst);
            } else if migrates {
                self.enqueue(thread);
            }
        }
        drop(space);
    }

    /// Makes an address space current on this CPU.
    pub fn load_space(&self, space: &Arc<Space>) {
        drop(self.exchange_space(space));
    }

    /// Makes an address space current on this CPU. Returns the previous one, if it differs.
    fn exchange_space(&self, space: &Arc<Space>) -> Option<Arc<Space>> {
        let mut loaded = self.cpu().loaded.lock();
        let Some(before) = loaded.take() else {
            *loaded = Some(Loaded::new(space.clone()));
            return None;
        };
        if Arc::ptr_eq(before.get(), space) {
            *loaded = Some(before);
            return None;
        }
        let (next, previous) = before.switch(space.clone());
        *loaded = Some(next);
        Some(previous)
    }

    /// Replaces the loaded address space by the kernel's own page table. Returns the replaced address space, or `None`
    /// if none was loaded.
    fn leave_space(&self) -> Option<Arc<Space>> {
        let root = self.host.kernel_root()?;
        let loaded = self.cpu().loaded.lock().take()?;
        Some(loaded.leave(root))
    }

    /// Unloads the loaded address space, so that it can be destroyed.
    pub fn unload_space(&self) {
        drop(self.leave_space());
    }

    /// Leaves an exited thread's stack for the last time.
    pub fn leave(&self, thread: Arc<T>) -> ! {
        memwright_linux_base::sync::assert_none_held();
        thread.run.end();
        let from = thread.context;
        drop(thread);
        self.count_instructions();
        let next = self.next();
        let to = self.install(next, false);
        self.host.switch_context(from, to);
        unreachable!("an ended thread was continued")
    }

    /// Runs the idle loop of a CPU, on the context on which it booted. Returns when [`IdleWork::is_over`] returns true
    /// and no thread is left. The idle loops of the other CPUs then end as well.
    pub fn idle(&self, work: &dyn IdleWork) {
        let own = CpuSet::single(sync::cpu()).bits();
        loop {
            self.finish_switch();
            work.serve();
            self.idle.fetch_or(own, Ordering::SeqCst);
            self.expire();
            if let Some(next) = self.next() {
                self.note_load(self.host.now());
                self.idle.fetch_and(!own, Ordering::SeqCst);
                let to = self.install(Some(next), false);
                self.host.switch_context(self.host.boot_context(), to);
            } else if self.living.load(Ordering::SeqCst) == 0 && work.is_over() {
                self.park();
                return;
            } else {
                self.arm();
                self.host.idle();
            }
        }
    }

    /// Records that the idle loop of this CPU ends. The first CPU whose idle loop ends kicks the others, so that their
    /// idle loops end as well.
    fn park(&self) {
        self.unload_space();
        if self.parked.fetch_add(1, Ordering::SeqCst) == 0 {
            for cpu in self.all_cpus().without(sync::cpu()).iter() {
                self.host.kick(cpu);
            }
        }
    }

    /// Waits until the idle loop of every CPU has ended.
    pub fn await_all_parked(&self) {
        while self.parked.load(Ordering::SeqCst) < self.cpus.len() {
            sync::relax();
        }
    }

    /// Runs a secondary CPU: its idle loop, and an endless wait after the loop has ended.
    pub fn cpu_start(&self, work: &dyn IdleWork) -> ! {
        self.idle(work);
        loop {
            self.host.idle();
        }
    }

    /// Sets the next deadline of this CPU on the host: the earliest of the first timer, the end of the time slice if
    /// other threads are runnable, and, with several CPUs, the next tick.
    fn arm(&self) {
        let cpu = self.cpu();
        let timer = cpu.first_deadline();
        let busy = !self.is_alone() || cpu.has_waiting();
        let slice = if busy && cpu.current.lock().is_some() {
            self.turn_end(cpu)
        } else {
            u64::MAX
        };
        let deadline = timer.min(slice);
        // A deadline that has passed is set even if it is unchanged, because the host has cleared it when it expired.
        let before = cpu.armed.swap(deadline, Ordering::Relaxed);
        if before != deadline || deadline <= self.host.now() {
            self.host
                .set_deadline((deadline != u64::MAX).then_some(deadline));
        }
    }

    /// Returns the time at which a CPU that runs a thread must be interrupted: its next tick, or the end of the time
    /// slice.
    fn turn_end(&self, cpu: &Cpu<T>) -> u64 {
        let slice_end = cpu.slice_end.load(Ordering::Relaxed);
        if self.is_alone() {
            return slice_end;
        }
        let tick = cpu.tick.load(Ordering::Relaxed);
        if cpu.has_waiting() {
            tick.min(slice_end)
        } else {
            tick
        }
    }

    /// Accounts the instructions since the last switch to the running thread.
    fn count_instructions(&self) {
        let cpu = self.cpu();
        let now = [
            self.host.user_instructions(),
            self.host.kernel_instructions(),
        ];
        let [user, system] = [0, 1].map(|i| {
            // The difference can be negative: a thread can move between CPUs whose counters differ slightly.
            let before = cpu.counted[i].swap(now[i], Ordering::Relaxed);
            now[i].saturating_sub(before)
        });
        if let Some(thread) = cpu.current.lock().as_ref() {
            thread.usage.user.fetch_add(user, Ordering::Relaxed);
            thread.usage.system.fetch_add(system, Ordering::Relaxed);
        }
    }

    /// Returns the resources that a thread has used. If the thread runs on another CPU, its use since that CPU's last
    /// tick is not included.
    pub fn usage_of(&self, thread: &Arc<T>) -> UsageSnapshot {
        self.count_instructions();
        thread.usage.snapshot()
    }
}
