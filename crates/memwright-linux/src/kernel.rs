//! The kernel object: the complete state of one machine.

use crate::{current::Base, exec::Programs};
use alloc::{boxed::Box, string::String, sync::Arc};
use core::sync::atomic::AtomicU64;
use memwright_linux_abi::{
    Memory,
    channel::{CONTROL_INTERRUPT, Channel, Outcome},
    host::Host,
    protection_keys::ProtectionKeys,
    signal::{Signal, SignalInfo},
};
use memwright_linux_base::sync::{Lock, Rank, pause_point};
use memwright_linux_memory::{
    cgroup::Cgroups, faults::Faults, futex::Futexes, huge_scan::HugeScan, ipc::Segments,
    memory::Spaces, merge_scan::MergeScan, numa::Balancing, oom::OomKiller, reclaim::Reclaim,
    swap::Swaps, userfault::Userfaults,
};
use memwright_linux_sched::scheduler::{IdleWork, Scheduler};
use memwright_linux_tasks::{
    call_counts::CallCounts,
    probes::Probes,
    process::{
        ExitStatus, Life, Member, PROGRAM, REAPER, Tasks, Thread, kill_process, send_to_process,
    },
    uname::Names,
};
use memwright_linux_vfs::{
    fs::{
        Mounts, file_limits::FileLimits, inet::Network, locks::waits::LockWaits, netlink::Ports,
        open_kind::OpenCounts, socket::Registry, vfs::Vfs,
    },
    identity::Users,
    manifest::Manifest,
    random::Random,
};

/// The outcome of the run, which `finish` reports.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) text: String,
    /// Number of processes that were still alive when the program exited, and were then killed.
    pub(crate) killed: u64,
}

/// One machine with its processes and files.
pub struct Kernel {
    /// The machine.
    pub host: &'static dyn Host,
    /// Physical memory and the memory manager's counters.
    pub memory: Arc<Memory>,
    /// The parameters of the run.
    pub manifest: Manifest,
    /// The virtual file system.
    pub vfs: &'static Vfs,
    /// The Unix sockets, and the open files in flight in their messages.
    pub sockets: Registry,
    /// The internet sockets.
    pub network: Network,
    /// The ports of netlink sockets.
    pub netlink: Ports,
    /// Processes and threads.
    pub tasks: &'static Tasks,
    /// Per-user counts of limited resources.
    pub users: Users,
    /// The scheduler of all threads.
    pub scheduler: &'static Scheduler<Thread>,
    /// Threads waiting on futexes.
    pub(crate) futexes: &'static Futexes,
    /// The userfaultfd contexts.
    pub(crate) userfaults: &'static Userfaults,
    /// System V shared memory.
    pub(crate) segments: Segments,
    /// System V semaphore sets.
    pub(crate) semaphores: memwright_linux_memory::semaphores::Sets,
    /// Khugepaged: collapses base pages into huge pages in the background.
    pub(crate) huge_scan: Arc<HugeScan>,
    /// Ksmd: merges pages with equal contents in the background.
    pub(crate) merge_scan: Arc<MergeScan>,
    /// NUMA balancing: migrates pages to the nodes of the CPUs that access them.
    pub(crate) balancing: Arc<Balancing>,
    /// The cgroups with memory limits.
    pub(crate) cgroups: Cgroups,
    /// Direct and background reclaim.
    pub(crate) reclaim: Arc<Reclaim>,
    /// The swap devices.
    pub swaps: Swaps,
    /// The uprobes, which count the hits of their breakpoints.
    pub probes: &'static Probes,
    /// Creates address spaces, and computes their limits.
    pub spaces: &'static Spaces,
    /// Resolves page faults.
    pub(crate) faults: Faults,
    /// The implementation of `execve`.
    pub(crate) programs: Programs,
    /// The host name and the domain name.
    pub names: Names,
    /// The counts of the system calls that the report lists.
    pub calls: CallCounts,
    /// The OOM killer.
    pub(crate) oom: Arc<OomKiller>,
    /// The interface to the protection-key rights of the running thread.
    pub(crate) protection_keys: ProtectionKeys,
    /// Instructions executed until the program started, including those that filled the file-system tree.
    pub(crate) boot_instructions: AtomicU64,
    pub(crate) ended: Lock<Option<Ended>>,
}

/// Creates the virtual file system of a machine.
fn create_vfs(
    host: &'static dyn Host,
    memory: Arc<Memory>,
    manifest: &Manifest,
    reclaim: Arc<Reclaim>,
) -> &'static Vfs {
    Box::leak(Box::new(Vfs {
        reclaim,
        clock: host,
        channels: host,
        instruments: host,
        epoch: manifest.epoch,
        terminal_size: (manifest.rows, manifest.columns),
        mounts: Mounts::new(&memory, manifest, host, host),
        open_files: OpenCounts::default(),
        file_limits: FileLimits::new(memory.frames().total()),
        lock_waits: LockWaits::default(),
        userfaultfds: Lock::new(Rank::Leaf, None),
        random: Lock::new(Rank::Leaf, Random::new(manifest.seed)),
        memory,
    }))
}

impl IdleWork for Kernel {
    fn serve(&self) {
        self.serve_control();
    }

    fn is_over(&self) -> bool {
        self.has_ended()
    }
}

impl Kernel {
    /// Creates the state of a machine on which no thread runs yet, with the swap devices of the manifest.
    ///
    /// # Errors
    /// The errors of [`Swaps::start`].
    pub(crate) fn create(
        host: &'static dyn Host,
        memory: Arc<Memory>,
        manifest: Manifest,
        swaps: Swaps,
    ) -> &'static Self {
        let scheduler: &'static Scheduler<Thread> = Box::leak(Box::new(Scheduler::new(host)));
        let tasks: &'static Tasks = Box::leak(Box::new(Tasks::new(scheduler)));
        let reclaim = Reclaim::new(memory.clone(), tasks);
        let oom = OomKiller::new(memory.clone(), tasks, host);
        let vfs = create_vfs(host, memory.clone(), &manifest, reclaim.clone());
        let random = manifest
            .layout_seed
            .map(|seed| Lock::new(Rank::Leaf, Random::new(seed)));
        let spaces = Spaces::new(memory.clone(), reclaim.clone(), random);
        let spaces: &'static Spaces = Box::leak(Box::new(spaces));
        let futexes = Futexes::new(host, host, oom.clone());
        let futexes: &'static Futexes = Box::leak(Box::new(futexes));
        let probes: &'static Probes = Box::leak(Box::new(Probes::default()));
        let merge_scan = MergeScan::new(memory.clone(), scheduler);
        let programs = Programs {
            spaces,
            oom: oom.clone(),
            futexes,
            probes,
            merge_scan: merge_scan.clone(),
            cpus: host,
        };
        let userfaults = Box::leak(Box::new(Userfaults::new(vfs, host, oom.clone())));
        let faults = Faults {
            memory: memory.clone(),
            userfaults,
            scheduler,
            reclaim: reclaim.clone(),
            oom: oom.clone(),
        };
        let kernel: &'static Self = Box::leak(Box::new(Self {
            host,
            probes,
            programs,
            faults,
            spaces,
            manifest,
            vfs,
            sockets: Registry::new(),
            network: Network::new(),
            netlink: Ports::new(),
            tasks,
            users: Users::default(),
            scheduler,
            futexes,
            userfaults,
            segments: Segments::default(),
            semaphores: memwright_linux_memory::semaphores::Sets::default(),
            huge_scan: HugeScan::new(memory.clone(), tasks),
            merge_scan,
            balancing: Balancing::new(memory.clone(), tasks),
            cgroups: Cgroups::new(reclaim.clone(), oom.clone()),
            reclaim,
            swaps,
            calls: CallCounts::default(),
            oom,
            names: Names::default(),
            protection_keys: ProtectionKeys::new(host),
            boot_instructions: AtomicU64::new(0),
            memory,
            ended: Lock::new(Rank::Leaf, None),
        }));
        kernel.memory.set_fault_sink(kernel);
        kernel
    }

    /// Returns the parts that every running thread needs.
    pub(crate) fn base(&'static self) -> Base {
        Base {
            host: self.host,
            vfs: self.vfs,
            scheduler: self.scheduler,
            cgroups: &self.cgroups,
            oom: &self.oom,
            reclaim: &self.reclaim,
        }
    }

    /// Handles the control bytes that the command has sent. For `CONTROL_INTERRUPT`, sends SIGINT to the program.
    pub(crate) fn serve_control(&self) {
        while let Some(byte) = self.host.control() {
            let program = self.tasks.process(PROGRAM);
            if let (CONTROL_INTERRUPT, Some(program)) = (byte, program) {
                send_to_process(&program, SignalInfo::kernel(Signal::SIGINT));
            }
        }
    }

    /// Records the outcome after the program has exited, and kills all remaining processes except the reaper. The run
    /// ends when these processes have exited.
    pub(crate) fn program_ended(&self, status: ExitStatus) {
        let outcome = match status {
            ExitStatus::Exited(code) => Outcome::Exited(code & 0xff),
            ExitStatus::Killed(signal) => Outcome::Killed(signal.number().into()),
        };
        let lives = |member: &Member| {
            member.process.id != REAPER && !matches!(member.life, Life::Zombie(_))
        };
        {
            let mut tasks = self.tasks.lock();
            tasks.closed = true;
            let alive = tasks.members.values().filter(|member| lives(member));
            let killed = alive.count() as u64;
            self.ended.lock().get_or_insert(Ended {
                outcome,
                text: String::new(),
                killed,
            });
        }
        for process in self.tasks.filter(lives) {
            kill_process(&process);
            pause_point();
        }
    }

    /// Records that the program could not be started.
    pub(crate) fn not_started(&self, error: memwright_linux_abi::errno::Errno, text: &str) {
        let outcome = Outcome::NotStarted(error.number().into());
        *self.ended.lock() = Some(Ended {
            outcome,
            text: text.into(),
            killed: 0,
        });
    }

    /// Returns whether the run has an outcome.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.lock().is_some()
    }

    /// Writes `text` to the log as one line.
    pub fn log(&self, text: &str) {
        let mut line = String::from(text);
        #[expect(clippy::disallowed_methods, reason = "a line of the kernel's own")]
        line.push('\n');
        self.host.output(Channel::Log, line.as_bytes());
    }
}
