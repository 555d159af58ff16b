//! The kernel object: everything the personality knows about one machine.

use crate::{
    Memory,
    account::{CallCounts, refuse},
    cgroup::Cgroups,
    channel::{CONTROL_INTERRUPT, Channel, Outcome},
    cpio::CpioArchive,
    errno::Errno,
    events::Events,
    fs::{Mounts, file_limits::FileLimits, lock_waits::LockWaits, userfault::Userfaults},
    futex::Futexes,
    host::Host,
    huge_scan::HugeScan,
    ipc::Segments,
    manifest::Manifest,
    merge_scan::MergeScan,
    numa::Balancing,
    probes::Probes,
    process::{
        ExitStatus, Life, Limits, Member, PROGRAM, Parts, Process, REAPER, Sleep, Start, Tasks,
        Thread, Users,
    },
    random::Random,
    reclaim::Reclaim,
    scheduler::Scheduler,
    signal::{Signal, SignalInfo, Stop, ThreadSignals, kill_process, send_to_process},
    swap::Swaps,
    sync::{Lock, PausePoints, Rank, pause_point},
    wait::{Interest, WaitError, WaitQueue},
};
use alloc::{boxed::Box, string::String, sync::Arc};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use memwright_table::TryPush;

/// Queues that a thread enters or leaves between two scheduling points.
const QUEUES: u32 = 256;

/// How the run ended, once it has.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) text: String,
    /// Processes that still lived.
    pub(crate) killed: u64,
}

/// One machine with its processes and files.
pub struct Kernel {
    /// The machine.
    pub host: &'static dyn Host,
    /// Physical memory and the memory manager's account.
    pub memory: Arc<Memory>,
    /// What the run was asked to do.
    pub manifest: Manifest,
    /// The tree of files.
    pub mounts: Mounts,
    /// Processes and threads.
    pub tasks: Tasks,
    /// What users have of what is limited for each.
    pub users: Users,
    /// Limits of `/proc/sys/fs`.
    pub file_limits: FileLimits,
    /// Who runs and who may run.
    pub scheduler: Scheduler,
    /// Threads that wait for words of user memory.
    pub(crate) futexes: Futexes,
    /// Who resolves faults itself.
    pub(crate) userfaults: Userfaults,
    /// Shared memory with keys.
    pub(crate) segments: Segments,
    /// Threads that wait for record locks.
    pub(crate) lock_waits: LockWaits,
    /// Sets of semaphores.
    pub(crate) semaphores: crate::semaphores::Sets,
    /// Makes huge pages of small ones in the background.
    pub(crate) huge_scan: Arc<HugeScan>,
    /// Lets equal pages share frames in the background.
    pub(crate) merge_scan: Arc<MergeScan>,
    /// Lets pages follow those who use them.
    pub(crate) balancing: Arc<Balancing>,
    /// Groups of processes with limits.
    pub(crate) cgroups: Cgroups,
    /// Sends pages out when memory is short.
    pub(crate) reclaim: Arc<Reclaim>,
    /// Disks that pages can go out to.
    pub swaps: Swaps,
    /// Breakpoints that count.
    pub probes: Probes,
    /// The source of every random number.
    pub random: Lock<Random>,
    /// The source of address layouts; a fixed layout without one.
    pub layout_random: Option<Lock<Random>>,
    /// Calls that the account lists.
    pub calls: CallCounts,
    /// Processes made since boot.
    pub processes_made: AtomicU64,
    /// Processes killed for want of memory.
    pub memory_kills: AtomicU64,
    /// Most areas of an address space (`vm.max_map_count`).
    pub most_areas: AtomicUsize,
    /// Instructions that booting and filling the tree took.
    pub(crate) boot_instructions: AtomicU64,
    pub(crate) ended: Lock<Option<Ended>>,
}

impl Kernel {
    /// Runs the program of the manifest and powers the machine off when it has ended.
    ///
    /// # Panics
    /// If there is no disk, or no memory for what is to be known of the swap that was asked for.
    pub fn start(
        host: &'static dyn Host,
        memory: Arc<Memory>,
        manifest: Manifest,
        files: CpioArchive<'static>,
    ) -> ! {
        let swaps = Swaps::start(host, &memory, &manifest.swap);
        let swaps = swaps.unwrap_or_else(|_| refuse(host, "no memory for the swap devices"));
        let before = crate::audit::Baseline::take(host, &memory, &swaps);
        let file_limits = FileLimits::new(memory.frames().total());
        let balancing = Balancing::new(memory.frames().topology().nodes());
        let kernel: &'static Self = Box::leak(Box::new(Self {
            host,
            mounts: Mounts::new(&memory, &manifest),
            probes: Probes::default(),
            random: Lock::new(Rank::Leaf, Random::new(manifest.seed)),
            layout_random: manifest
                .layout_seed
                .map(|seed| Lock::new(Rank::Leaf, Random::new(seed))),
            memory,
            manifest,
            tasks: Tasks::default(),
            users: Users::default(),
            file_limits,
            scheduler: Scheduler::new(host),
            futexes: Futexes::new(),
            userfaults: Userfaults::default(),
            segments: Segments::default(),
            lock_waits: LockWaits::default(),
            semaphores: crate::semaphores::Sets::default(),
            huge_scan: HugeScan::new(),
            merge_scan: MergeScan::new(),
            balancing,
            cgroups: Cgroups::default(),
            reclaim: Reclaim::new(),
            swaps,
            calls: CallCounts::new(),
            processes_made: AtomicU64::new(0),
            memory_kills: AtomicU64::new(0),
            most_areas: AtomicUsize::new(crate::memory::MOST_AREAS),
            boot_instructions: AtomicU64::new(0),
            ended: Lock::new(Rank::Leaf, None),
        }));
        host.set_events(Box::leak(Box::new(Events::new(kernel))));
        kernel.memory.set_fault_sink(kernel);
        if kernel.manifest.trace {
            kernel
                .memory
                .set_trace(Some(Box::leak(Box::new(crate::trace::Trace::new(host)))));
        }
        let filled = kernel.mounts.fill(kernel, files);
        let instructions = host.kernel_instructions();
        kernel
            .boot_instructions
            .store(instructions, Ordering::Relaxed);
        host.forget_stretches();
        if kernel.memory.policy().count_locks() {
            kernel.memory.set_lock_statistics(true);
        }
        match filled.and_then(|()| kernel.make_program()) {
            Ok(()) => {
                host.start_cpus();
                kernel.huge_scan.wake(kernel);
                kernel.balancing.wake(kernel);
                kernel.reclaim.wake(kernel);
                kernel.scheduler.idle(kernel);
                kernel.scheduler.await_all_parked(kernel);
            }
            Err(_) => refuse(host, "no memory for the files and the first process"),
        }
        crate::account::finish(kernel, &before)
    }

    /// Makes the reaper and the program's process.
    fn make_program(&'static self) -> Result<(), Errno> {
        let limits = Limits::initial(self.memory.frames().total() * 4096);
        let root = self.users.get(0).map_err(|_| crate::errno::Errno::ENOMEM)?;
        let reaper = Process::new(REAPER, 0, None, limits.clone(), root.clone());
        let reaper = Arc::new(reaper);
        let space = crate::memory::new_space(self, &limits, crate::process::Capabilities::FULL)?;
        let (files, fs) = self.mounts.first_files(self)?;
        let name = [0; 16];
        let parts = Parts {
            space,
            image: None,
            files,
            fs,
            limits: limits.clone(),
            name,
        };
        let process = {
            let mut tasks = self.tasks.lock();
            let _reaper = tasks.allocate_id();
            tasks.enter(&reaper, 0)?;
            let _program = tasks.allocate_id();
            let now = self.host.now();
            let process = Process::new(PROGRAM, now, Some(parts), limits, root);
            let process = Arc::new(process);
            tasks.enter(&process, REAPER)?;
            tasks.lead_session(&process);
            process
        };
        let thread = Thread::create(self, PROGRAM, &process, Start::Program)?;
        let state = ThreadSignals::default();
        let first = (thread.clone(), state);
        process.signals.lock().threads.try_push(first)?;
        self.tasks.lock().threads.insert(PROGRAM, thread.clone());
        self.processes_made.fetch_add(1, Ordering::Relaxed);
        self.scheduler.wake(self, &thread);
        Ok(())
    }

    /// Waits as [`Context::wait_until`](crate::context::Context::wait_until) says.
    pub(crate) fn wait<T>(
        &self,
        thread: &Arc<Thread>,
        queues: &[&WaitQueue],
        deadline: Option<u64>,
        interest: Interest,
        ready: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        let queues = queues.iter().copied();
        self.wait_in(thread, &queues, deadline, interest, ready)
    }

    /// Waits in each of `queues`, of which none stands there twice.
    #[inline]
    pub(crate) fn wait_in<'a, T>(
        &self,
        thread: &Arc<Thread>,
        queues: &(impl Iterator<Item = &'a WaitQueue> + Clone),
        deadline: Option<u64>,
        interest: Interest,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        crate::sync::assert_none_held();
        loop {
            // Before the queues are entered and anything is looked at: see `scheduler`.
            thread.run.announce();
            let mut points = PausePoints::every(QUEUES);
            let entered = queues.clone().try_for_each(|queue| {
                points.round();
                queue.add(thread)
            });
            let mut without_memory = entered.is_err();
            let interrupted = match interest {
                Interest::Signals => thread.signal_pending(),
                Interest::Fatal | Interest::Continuation | Interest::Tracer => {
                    thread.fatal_pending()
                }
            };
            let outcome = if let Some(value) = ready() {
                Some(Ok(value))
            } else if interrupted {
                Some(Err(WaitError::Interrupted))
            } else if deadline.is_some_and(|deadline| self.host.now() >= deadline) {
                Some(Err(WaitError::TimedOut))
            } else if without_memory {
                None
            } else {
                thread.note_sleep(Sleep {
                    what: queues.clone().next().map_or("a wake", WaitQueue::name),
                    interest,
                    since: self.host.now(),
                    deadline,
                });
                without_memory = self.scheduler.block(self, thread, deadline).is_err();
                None
            };
            thread.run.stay();
            for queue in queues.clone() {
                points.round();
                let taken = !queue.remove(thread);
                // A wake meant for one waiter, which gives up: the next one gets it.
                if taken && matches!(outcome, Some(Err(_))) {
                    queue.wake_one(self);
                }
            }
            if let Some(outcome) = outcome {
                return outcome;
            }
            if without_memory {
                self.wait_for_memory(thread);
            }
        }
    }

    /// Handles a wait that cannot be recorded for lack of memory: the OOM killer runs, and ending threads run first.
    #[cold]
    fn wait_for_memory(&self, thread: &Arc<Thread>) {
        crate::oom::relieve(self, thread);
        self.scheduler.yield_now(self, thread);
        // Who frees what is missing may run on another CPU.
        self.host.relax();
    }

    /// Acts on the control bytes that wait.
    pub(crate) fn serve_control(&self) {
        while let Some(byte) = self.host.control() {
            let program = self.tasks.process(PROGRAM);
            if let (CONTROL_INTERRUPT, Some(program)) = (byte, program) {
                send_to_process(self, &program, SignalInfo::kernel(Signal::SIGINT));
            }
        }
    }

    /// The program ended: what still lives is killed, then the run is over.
    pub(crate) fn program_ended(&self, status: ExitStatus) {
        let outcome = match status {
            ExitStatus::Exited(code) => Outcome::Exited(code & 0xff),
            ExitStatus::Killed(signal) => Outcome::Killed(signal.number().into()),
        };
        let lives = |member: &Member| {
            member.process.id != REAPER && !matches!(member.life, Life::Zombie(_))
        };
        {
            let tasks = self.tasks.lock();
            let alive = tasks.members.values().filter(|member| lives(member));
            let killed = alive.count() as u64;
            // Under the lock of the table: nobody is entered there any more.
            self.ended.lock().get_or_insert(Ended {
                outcome,
                text: String::new(),
                killed,
            });
        }
        for process in self.tasks.filter(lives) {
            kill_process(self, &process);
            pause_point();
        }
    }

    /// The program could not be started.
    pub(crate) fn not_started(&self, error: crate::errno::Errno, text: &str) {
        let outcome = Outcome::NotStarted(error.number().into());
        *self.ended.lock() = Some(Ended {
            outcome,
            text: text.into(),
            killed: 0,
        });
    }

    /// The program has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.lock().is_some()
    }

    /// Nobody outside a group, but in its session, could continue it: no member has a parent in
    /// another group of the session (`will_become_orphaned_pgrp` of Linux 7.2, `kernel/exit.c`).
    pub(crate) fn group_is_orphaned(&self, group: u32) -> bool {
        let tasks = self.tasks.lock();
        !tasks.members_of(group).any(|member| {
            let process = &member.process;
            let parent = tasks.members.get(&process.parent());
            matches!(member.life, Life::Alive(_))
                && parent.is_some_and(|parent| {
                    parent.process.group() != group && parent.process.session() == process.session()
                })
        })
    }

    /// After the end of `process`, whose parent was `parent`: stopped members of the groups that
    /// its end has orphaned get SIGHUP and SIGCONT (`kill_orphaned_pgrp` of Linux 7.2).
    pub(crate) fn release_orphaned_groups(
        &self,
        process: &Process,
        parent: Option<&Arc<Process>>,
        children: &[Arc<Process>],
    ) {
        // It tied its own group to its parent's, and its children's groups to its own.
        let tied = |one: &Process, other: &Process| {
            one.group() != other.group() && one.session() == other.session()
        };
        if parent.is_some_and(|parent| tied(parent, process)) {
            self.release_if_orphaned(process.group());
        }
        for child in children {
            if tied(child, process) {
                self.release_if_orphaned(child.group());
                pause_point();
            }
        }
    }

    fn release_if_orphaned(&self, group: u32) {
        if !self.group_is_orphaned(group) {
            return;
        }
        let members = || self.tasks.group(group);
        let stopped = |member: Arc<Process>| matches!(member.signals.lock().stop, Stop::Stopped(_));
        if !members().any(stopped) {
            return;
        }
        for member in members() {
            for signal in [Signal::SIGHUP, Signal::SIGCONT] {
                send_to_process(self, &member, SignalInfo::kernel(signal));
            }
        }
    }

    /// Writes a line of kernel text to the log.
    pub fn log(&self, text: &str) {
        let mut line = String::from(text);
        #[expect(clippy::disallowed_methods, reason = "a line of the kernel's own")]
        line.push('\n');
        self.host.output(Channel::Log, line.as_bytes());
    }
}
