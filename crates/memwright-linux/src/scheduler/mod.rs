//! Who runs: one run queue per CPU, round-robin, and the deadlines of waits and alarms.
//!
//! The kernel is not preemptible: a thread gives the CPU away when it waits, ends, or returns to
//! user mode after its time slice while others are ready. The context a CPU booted on is its idle
//! loop.
//!
//! # The protocol
//! A thread's state is one word ([`RunState`]); whoever makes a change does it by one atomic
//! operation, and only these changes exist:
//!
//! ```text
//! Running -> Waiting    the thread, before it enters wait queues and looks whether it has to wait
//! Waiting -> Running    the thread, when it need not wait; or a waker, and the thread goes on
//! Waiting -> Blocked    the thread, on its way off the CPU; fails if a waker was there first
//! Blocked -> Ready      one waker, which then puts the thread into a run queue
//! Running -> Ready      the thread, when it yields or has to change the CPU
//! Ready   -> Running    the CPU that took it out of a run queue
//! Running -> Ended      the thread
//! ```
//!
//! *No wake is lost.* The thread announces (`Waiting`) before it enters a queue and before it
//! looks at what it waits for. Who finds it in the queue sees the announcement through the queue's
//! lock; who made the event before it entered the queue is seen by its look, through the same
//! lock. Work flags have no lock: they and the state are sequentially consistent, so that of "set
//! the flag, read the state" and "set the state, read the flag" at least one sees the other.
//!
//! *No thread runs twice.* A thread is in at most one run queue, since only the one change to
//! `Ready` leads there. From the moment it is picked until the next context on that CPU has left
//! its stack, the thread is `on_cpu`. While that is so it may be put only into the run queue of
//! that CPU, and nobody else may take it from there; so whoever picks a thread never waits for
//! another CPU to leave its stack, and two CPUs cannot wait for one another. `on_cpu` is cleared
//! with release order after everything that the old context wrote, and read with acquire order.
//!
//! *No CPU sleeps over a ready thread.* A CPU that has nothing to run enters the set of idle CPUs,
//! then looks into its own queue and the others', then sleeps. Who puts a thread into a queue
//! reads the set afterwards, and kicks the CPU if it is there, or else an idle CPU that may take
//! the thread away. Queue lock and set order the two as above; a kick is never lost ([`Host::kick`]).
//! Of several who find an idle CPU in the set, one takes it out.
//!
//! *Pauses.* In the midst of a long operation a thread gives way with the lock of an address space
//! held (`pause.rs`). It then stays on its CPU: what it works with is that CPU's.
//!
//! *Locks.* `ready` and `timers` are taken one at a time. The other fields of a CPU are written by
//! that CPU alone; the locks around them are there for reports and cost one exchange.
//!
//! With one CPU none of the kicks, steals and ticks happen.
//!
//! [`Host::kick`]: crate::host::Host::kick

mod load;
mod pause;
mod place;
mod report;
mod state;
mod timers;

pub use load::LoadAverage;
pub use state::RunState;
pub(crate) use state::{RunWord, Woken};
pub use timers::{TimerAction, TimerKey};

use crate::{
    Space,
    errno::Errno,
    host::{ContextId, Host},
    kernel::Kernel,
    ordered::Ordered,
    process::{Thread, UsageSnapshot, Work},
    sync::{Grows, Lock, Rank},
};
use alloc::{collections::VecDeque, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use memwright_table::{CpuId, CpuSet, OutOfMemory};
use place::{Candidate, may_steal, place, slice_is_over};

/// Nanoseconds a thread runs while others are ready.
pub const TIME_SLICE: u64 = 4_000_000;

/// With several CPUs, nanoseconds after which a busy CPU looks around.
const TICK: u64 = 1_000_000;

/// Threads that the first room in a run queue is for, and as many again.
const LEAST_ROOM: usize = 32;

/// What a switch leaves behind, for the context that runs next on the CPU.
#[derive(Default)]
struct Left {
    /// The thread whose stack was left; `None` if it was the idle loop's.
    thread: Option<Arc<Thread>>,
    /// It has to run on another CPU.
    migrates: bool,
    /// The address space that was left.
    space: Option<Arc<Space>>,
}

/// The scheduling state of one CPU.
struct Cpu {
    /// Threads that may run, next first.
    ready: Lock<VecDeque<Arc<Thread>>>,
    /// How many of them there are; written under the lock of `ready`.
    waiting: AtomicUsize,
    /// How many of them wait for locks. Written by this CPU.
    lock_waiters: AtomicUsize,
    /// How many there is room for.
    room: AtomicUsize,
    /// Deadlines that ring here.
    timers: Lock<Ordered<TimerKey, TimerAction>>,
    /// Those of waiting threads, of which each is a [`TimerAction::Wake`]: they ring even where other locks are held.
    wakes: Lock<Ordered<TimerKey, TimerAction>>,
    /// The thread that runs; `None` while idle. Written by this CPU.
    current: Lock<Option<Arc<Thread>>>,
    /// The address space whose table is loaded. A lone CPU keeps the last one while idle.
    loaded: Lock<Option<Arc<Space>>>,
    /// Written before a switch, taken after it, by this CPU.
    left: Lock<Left>,
    /// When the running thread's slice ends.
    slice_end: AtomicU64,
    /// When this CPU looks around next.
    tick: AtomicU64,
    /// The deadline the host was told; `u64::MAX` for none.
    armed: AtomicU64,
    /// Switches from one thread to another, or to nothing. Written by this CPU.
    switches: AtomicU64,
    /// Instruction counts at the last switch: user, kernel.
    counted: [AtomicU64; 2],
}

impl Cpu {
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

    /// Makes room for so many threads in the queue, so that none needs memory when it is woken: the heap may
    /// have to grow, which it cannot under the queue's lock.
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
    fn push(&self, thread: Arc<Thread>) -> bool {
        let mut ready = self.ready.lock();
        #[expect(
            clippy::disallowed_methods,
            reason = "there is room for each living thread"
        )]
        ready.push_back(thread);
        self.waiting.store(ready.len(), Ordering::SeqCst);
        ready.len() == 1
    }

    fn pop(&self) -> Option<Arc<Thread>> {
        let mut ready = self.ready.lock();
        let thread = ready.pop_front();
        self.waiting.store(ready.len(), Ordering::SeqCst);
        thread
    }

    fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Takes the first thread that `thief` may run.
    fn steal(&self, thief: CpuId) -> Option<Arc<Thread>> {
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

fn candidate(thread: &Thread) -> Candidate {
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

/// Run queues and deadlines.
pub struct Scheduler {
    cpus: Vec<Cpu>,
    /// CPUs that look for work or sleep. A CPU enters itself; it leaves when it found a thread, or
    /// is taken out by who kicks it.
    idle: AtomicU64,
    /// Numbers of deadlines.
    sequence: AtomicU64,
    /// Threads that have a stack and have not left their stacks for good.
    living: AtomicUsize,
    load: load::Load,
    /// CPUs whose idle loops have ended.
    parked: AtomicUsize,
}

impl Scheduler {
    /// Empty queues for every CPU of the host.
    pub fn new(host: &dyn Host) -> Self {
        #[expect(clippy::disallowed_methods, reason = "before any program runs")]
        let cpus = (0..host.cpu_count()).map(|_| Cpu::new()).collect();
        Self {
            cpus,
            idle: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            living: AtomicUsize::new(0),
            load: load::Load::new(),
            parked: AtomicUsize::new(0),
        }
    }

    fn cpu(&self, kernel: &Kernel) -> &Cpu {
        &self.cpus[kernel.host.cpu().index()]
    }

    fn is_alone(&self) -> bool {
        self.cpus.len() == 1
    }

    /// The CPUs there are.
    pub fn all_cpus(&self) -> CpuSet {
        CpuSet::from_bits(u64::MAX >> (64 - self.cpus.len()))
    }

    /// The thread that runs on this CPU.
    pub fn current(&self, kernel: &Kernel) -> Option<Arc<Thread>> {
        self.cpu(kernel).current.lock().clone()
    }

    /// Makes a kernel stack for the thread `id`, which counts as one that runs from now on.
    ///
    /// # Errors
    /// `EAGAIN` if there are [as many threads as there may be](crate::host::Host::most_contexts) (`copy_process` of Linux
    /// 7.2, `kernel/fork.c`), `ENOMEM` without memory for the stack or for a place among those that run.
    pub(crate) fn admit(&self, kernel: &Kernel, id: u32) -> Result<ContextId, Errno> {
        let living = self.living.fetch_add(1, Ordering::SeqCst) + 1;
        let admitted = self.make_context(kernel, id, living);
        if admitted.is_err() {
            self.living.fetch_sub(1, Ordering::SeqCst);
        }
        admitted
    }

    fn make_context(&self, kernel: &Kernel, id: u32, living: usize) -> Result<ContextId, Errno> {
        if living > kernel.host.most_contexts() {
            return Err(Errno::EAGAIN);
        }
        self.cpus.iter().try_for_each(|cpu| cpu.make_room(living))?;
        let made = kernel.with_relief(|| kernel.host.create_context(id as usize));
        made.map_err(|_| Errno::ENOMEM)
    }

    /// A thread with a kernel stack will not run after all.
    pub(crate) fn abandon(&self, kernel: &Kernel, thread: &Thread) {
        kernel.host.destroy_context(thread.context);
        self.living.fetch_sub(1, Ordering::SeqCst);
    }

    /// Makes a waiting thread runnable; it runs after those that are ready now.
    pub fn wake(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        if thread.run.wake() == Woken::Enqueue {
            self.enqueue(kernel, thread.clone());
        }
    }

    /// Makes a new thread runnable; it runs after those that are ready now, and does not cut short the
    /// turn of the thread that made it: what that one ran while nobody waited is no part of its slice.
    pub(crate) fn start(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        let cpu = self.cpu(kernel);
        if !cpu.has_waiting() {
            cpu.slice_end
                .store(kernel.host.now() + TIME_SLICE, Ordering::Relaxed);
        }
        self.wake(kernel, thread);
    }

    /// Makes a thread look at its work: it is woken, or interrupted where it runs.
    pub fn notify(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        match thread.run.wake() {
            Woken::Enqueue => self.enqueue(kernel, thread.clone()),
            Woken::Runs => self.interrupt(kernel, thread.cpu()),
            // It looks before it waits, or before it returns to user mode.
            Woken::Stays | Woken::Nothing => {}
        }
    }

    /// Makes another CPU leave user mode.
    fn interrupt(&self, kernel: &Kernel, cpu: CpuId) {
        if cpu != kernel.host.cpu() {
            kernel.host.kick(cpu);
        }
    }

    /// Puts a thread that became ready into a run queue.
    fn enqueue(&self, kernel: &Kernel, thread: Arc<Thread>) {
        if self.is_alone() {
            if self.cpus[0].push(thread) {
                self.arm(kernel);
            }
            return;
        }
        let this = kernel.host.cpu();
        let allowed = thread.affinity();
        let idle = CpuSet::from_bits(self.idle.load(Ordering::SeqCst));
        let target = place(candidate(&thread), idle);
        thread.set_cpu(target);
        let first = self.cpus[target.index()].push(thread);
        if target == this {
            if first {
                self.arm(kernel);
            }
        } else if self.claim(target) {
            kernel.host.kick(target);
            return;
        }
        // A CPU that became idle since takes it away.
        self.kick_idle(kernel, allowed.without(target));
    }

    /// Takes a CPU out of the set of idle ones. Returns whether it was there.
    fn claim(&self, cpu: CpuId) -> bool {
        let bit = CpuSet::single(cpu).bits();
        self.idle.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Wakes one idle CPU of these, if there is one.
    fn kick_idle(&self, kernel: &Kernel, among: CpuSet) {
        let this = kernel.host.cpu();
        let idle = self.idle.load(Ordering::SeqCst) & among.without(this).bits();
        for cpu in CpuSet::from_bits(idle).iter() {
            if self.claim(cpu) {
                kernel.host.kick(cpu);
                return;
            }
        }
    }

    /// Gives the CPU away until the thread is woken or the deadline passes. The caller has
    /// announced it; if somebody woke the thread since, it keeps the CPU.
    ///
    /// # Errors
    /// [`OutOfMemory`]: there is no room for the deadline, and the thread kept the CPU.
    pub(crate) fn block(
        &self,
        kernel: &Kernel,
        thread: &Arc<Thread>,
        deadline: Option<u64>,
    ) -> Result<(), OutOfMemory> {
        let timer = match deadline {
            Some(at) => Some(self.add_timer(kernel, at, TimerAction::Wake(thread.clone()))?),
            None => None,
        };
        if thread.run.block() {
            thread.usage.voluntary.fetch_add(1, Ordering::Relaxed);
            let next = self.next(kernel);
            self.switch_away(kernel, thread, next, false);
        }
        if let Some(timer) = timer {
            self.remove_timer(kernel, timer);
        }
        Ok(())
    }

    /// Lets the other ready threads run first (`sched_yield`).
    pub fn yield_now(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        let cpu = self.cpu(kernel);
        if !cpu.has_waiting() {
            return;
        }
        if let Some(next) = cpu.pop() {
            thread.run.step_aside();
            cpu.push(thread.clone());
            self.switch_away(kernel, thread, Some(next), false);
        }
    }

    /// The deadline passed, or another CPU asked: expires what is due, and gives the CPU away at
    /// the end of a slice.
    pub fn tick(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        self.expire(kernel);
        let cpu = self.cpu(kernel);
        let now = kernel.host.now();
        if !self.is_alone() {
            self.look_around(kernel, now);
        }
        let waiting = cpu.waiting.load(Ordering::SeqCst);
        if slice_is_over(now, cpu.slice_end.load(Ordering::Relaxed), waiting) {
            thread.usage.involuntary.fetch_add(1, Ordering::Relaxed);
            self.yield_now(kernel, thread);
        }
        self.arm(kernel);
    }

    /// What a busy CPU does at each tick: time is charged, and work offered to idle CPUs.
    fn look_around(&self, kernel: &Kernel, now: u64) {
        let cpu = self.cpu(kernel);
        if now >= cpu.tick.load(Ordering::Relaxed) {
            cpu.tick.store(now + TICK, Ordering::Relaxed);
            self.count_instructions(kernel);
        }
        if cpu.has_waiting() {
            self.kick_idle(kernel, self.all_cpus());
        }
    }

    /// Lets a thread run on these CPUs only. One that is elsewhere moves when it next returns to
    /// user mode.
    pub(crate) fn restrict(&self, kernel: &Kernel, thread: &Arc<Thread>, cpus: CpuSet) {
        thread.set_affinity(cpus);
        // Wherever it seems to be: it may be on its way to a CPU that was allowed until now.
        thread.set_work(Work::MIGRATE, true);
        if thread.run_state() == RunState::Running {
            self.interrupt(kernel, thread.cpu());
        }
    }

    /// Moves the running thread to a CPU that it may run on, if this is none.
    pub(crate) fn migrate(&self, kernel: &Kernel, thread: &Arc<Thread>) {
        thread.set_work(Work::MIGRATE, false);
        if thread.affinity().contains(kernel.host.cpu()) {
            return;
        }
        thread.run.step_aside();
        let next = self.next(kernel);
        self.switch_away(kernel, thread, next, true);
    }

    /// The thread that this CPU runs next: of its own queue, else of another's.
    fn next(&self, kernel: &Kernel) -> Option<Arc<Thread>> {
        let this = kernel.host.cpu();
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

    fn switch_away(
        &self,
        kernel: &Kernel,
        from: &Arc<Thread>,
        next: Option<Arc<Thread>>,
        migrates: bool,
    ) {
        crate::sync::assert_none_held();
        if next.as_ref().is_some_and(|next| Arc::ptr_eq(next, from)) {
            from.run.run();
            return;
        }
        self.count_instructions(kernel);
        kernel.host.save_fpu(&mut from.fpu.lock());
        let to = self.install(kernel, next, migrates);
        kernel.host.switch_context(from.context, to);
        self.finish_switch(kernel);
    }

    /// Makes `next` the running thread, or the CPU idle, but for the switch itself.
    fn install(&self, kernel: &Kernel, next: Option<Arc<Thread>>, migrates: bool) -> ContextId {
        let cpu = self.cpu(kernel);
        let switches = cpu.switches.load(Ordering::Relaxed);
        cpu.switches.store(switches + 1, Ordering::Relaxed);
        if next.is_none() {
            self.note_load(kernel.host.now());
        }
        let (context, space) = match &next {
            Some(thread) => {
                thread.set_on_cpu();
                thread.run.run();
                let space = thread.process.space();
                let left = space.and_then(|space| self.exchange_space(kernel, &space));
                kernel.host.restore_fpu(&thread.fpu.lock());
                let now = kernel.host.now();
                cpu.slice_end.store(now + TIME_SLICE, Ordering::Relaxed);
                cpu.tick.store(now + TICK, Ordering::Relaxed);
                (thread.context, left)
            }
            // With others, an idle CPU shall neither be asked to forget translations nor keep
            // the memory of a process that ends elsewhere.
            None if !self.is_alone() => (kernel.host.boot_context(), self.leave_space(kernel)),
            None => (kernel.host.boot_context(), None),
        };
        let thread = core::mem::replace(&mut *cpu.current.lock(), next);
        *cpu.left.lock() = Left {
            thread,
            migrates,
            space,
        };
        self.arm(kernel);
        context
    }

    /// Deals with what the last switch on this CPU left behind. Called first by whatever runs
    /// after a switch.
    pub(crate) fn finish_switch(&self, kernel: &Kernel) {
        let Left {
            thread,
            migrates,
            space,
        } = core::mem::take(&mut *self.cpu(kernel).left.lock());
        if let Some(thread) = thread {
            thread.leave_cpu();
            if thread.run.get() == RunState::Ended {
                kernel.host.destroy_context(thread.context);
                self.living.fetch_sub(1, Ordering::SeqCst);
            } else if migrates {
                self.enqueue(kernel, thread);
            }
        }
        drop(space);
    }

    /// Makes an address space current on this CPU.
    pub fn load_space(&self, kernel: &Kernel, space: &Arc<Space>) {
        drop(self.exchange_space(kernel, space));
    }

    /// Makes an address space current on this CPU; returns the one before, if it is another.
    fn exchange_space(&self, kernel: &Kernel, space: &Arc<Space>) -> Option<Arc<Space>> {
        let previous = {
            let mut loaded = self.cpu(kernel).loaded.lock();
            if loaded
                .as_ref()
                .is_some_and(|loaded| Arc::ptr_eq(loaded, space))
            {
                return None;
            }
            loaded.replace(space.clone())
        };
        space.table().load();
        if let Some(previous) = &previous {
            previous.table().note_unloaded(kernel.host.cpu());
        }
        previous
    }

    /// Leaves the loaded address space for the kernel's own table.
    fn leave_space(&self, kernel: &Kernel) -> Option<Arc<Space>> {
        let root = kernel.host.kernel_root()?;
        let previous = self.cpu(kernel).loaded.lock().take()?;
        kernel.host.load_root(root);
        previous.table().note_unloaded(kernel.host.cpu());
        Some(previous)
    }

    /// Leaves the loaded address space, so that it can be taken down.
    pub fn unload_space(&self, kernel: &Kernel) {
        drop(self.leave_space(kernel));
    }

    /// Leaves an ended thread's stack for good.
    pub fn leave(&self, kernel: &Kernel, thread: Arc<Thread>) -> ! {
        crate::sync::assert_none_held();
        thread.run.end();
        let from = thread.context;
        drop(thread);
        self.count_instructions(kernel);
        let next = self.next(kernel);
        let to = self.install(kernel, next, false);
        kernel.host.switch_context(from, to);
        unreachable!("an ended thread was continued")
    }

    /// The idle loop of a CPU, on the context it booted on; returns when the run is over and every
    /// other idle loop has ended or will.
    pub fn idle(&self, kernel: &'static Kernel) {
        let own = CpuSet::single(kernel.host.cpu()).bits();
        loop {
            self.finish_switch(kernel);
            kernel.serve_control();
            self.idle.fetch_or(own, Ordering::SeqCst);
            self.expire(kernel);
            if let Some(next) = self.next(kernel) {
                self.note_load(kernel.host.now());
                self.idle.fetch_and(!own, Ordering::SeqCst);
                let to = self.install(kernel, Some(next), false);
                kernel.host.switch_context(kernel.host.boot_context(), to);
            } else if self.living.load(Ordering::SeqCst) == 0 && kernel.has_ended() {
                self.park(kernel);
                return;
            } else {
                self.arm(kernel);
                kernel.host.idle();
            }
        }
    }

    /// The run is over for this CPU; the first that finds out tells the others.
    fn park(&self, kernel: &Kernel) {
        self.unload_space(kernel);
        if self.parked.fetch_add(1, Ordering::SeqCst) == 0 {
            for cpu in self.all_cpus().without(kernel.host.cpu()).iter() {
                kernel.host.kick(cpu);
            }
        }
    }

    /// Waits until the idle loop of every CPU has ended.
    pub(crate) fn await_all_parked(&self, kernel: &Kernel) {
        while self.parked.load(Ordering::SeqCst) < self.cpus.len() {
            kernel.host.relax();
        }
    }

    /// The life of a CPU other than the first: its idle loop, and once the run is over, rest.
    pub fn cpu_start(&self, kernel: &'static Kernel) -> ! {
        self.idle(kernel);
        loop {
            kernel.host.idle();
        }
    }

    /// Tells the host the next deadline of this CPU: the first timer, the end of the slice when
    /// others wait, and with several CPUs the next tick.
    fn arm(&self, kernel: &Kernel) {
        let cpu = self.cpu(kernel);
        let timer = cpu.first_deadline();
        let busy = !self.is_alone() || cpu.has_waiting();
        let slice = if busy && cpu.current.lock().is_some() {
            self.turn_end(cpu)
        } else {
            u64::MAX
        };
        let deadline = timer.min(slice);
        // A deadline that has passed is told again: the host forgets it when it rings.
        let told = cpu.armed.swap(deadline, Ordering::Relaxed);
        if told != deadline || deadline <= kernel.host.now() {
            kernel
                .host
                .set_deadline((deadline != u64::MAX).then_some(deadline));
        }
    }

    /// When a busy CPU has to be interrupted.
    fn turn_end(&self, cpu: &Cpu) -> u64 {
        if self.is_alone() {
            cpu.slice_end.load(Ordering::Relaxed)
        } else {
            cpu.tick.load(Ordering::Relaxed)
        }
    }

    /// Charges the running thread with the instructions since the last switch.
    fn count_instructions(&self, kernel: &Kernel) {
        let cpu = self.cpu(kernel);
        let now = [
            kernel.host.user_instructions(),
            kernel.host.kernel_instructions(),
        ];
        let [user, system] = [0, 1].map(|i| {
            // Of several CPUs' clocks one is as good as another, but not to the last step.
            let before = cpu.counted[i].swap(now[i], Ordering::Relaxed);
            now[i].saturating_sub(before)
        });
        if let Some(thread) = cpu.current.lock().as_ref() {
            thread.usage.user.fetch_add(user, Ordering::Relaxed);
            thread.usage.system.fetch_add(system, Ordering::Relaxed);
        }
    }

    /// What a thread has used until now; one that runs on another CPU, until its last tick.
    pub fn usage_of(&self, kernel: &Kernel, thread: &Arc<Thread>) -> UsageSnapshot {
        self.count_instructions(kernel);
        thread.usage.snapshot()
    }
}
