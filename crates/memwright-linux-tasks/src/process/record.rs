//! The record of a process, and access to its parts.

use super::{
    Alarm, CpuAlarms, Image, Membership, PosixTimers, Signals, Tasks, Thread, cpu_timers::CpuTimers,
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use memwright_linux_abi::{Space, signal::Signal};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::{scheduler::Usage, time::NextLook, wait::WaitQueue};
use memwright_linux_vfs::{
    fs::{FileTable, FsContext},
    identity::{Identity, Limits, User},
};
use memwright_table::Shared;

/// The flag of `personality` that makes `execve` use fixed addresses (`ADDR_NO_RANDOMIZE`).
pub const FIXED_ADDRESSES: u32 = 0x004_0000;

/// The parts with which a process is created.
pub struct Parts {
    /// The address space.
    pub space: Arc<Space>,
    /// The data that `execve` recorded; `None` before the first `execve`.
    pub image: Option<Arc<Image>>,
    /// The descriptor table.
    pub files: Arc<FileTable>,
    /// Root, working directory and mask.
    pub fs: Arc<FsContext>,
    /// Resource limits.
    pub limits: Limits,
    /// Name, as in `/proc/PID/comm`.
    pub name: [u8; 16],
}

/// A process: the state that its threads share.
pub struct Process {
    /// The process id; that of its first thread.
    pub id: u32,
    /// The table of all processes and threads, and the scheduler that runs the threads.
    pub tasks: &'static Tasks,
    /// Guest time at which the process started, in nanoseconds since boot.
    pub started: u64,
    /// The signal actions, the pending signals, and the threads with their signal state.
    pub signals: Lock<Signals>,
    /// Credentials and resource limits.
    pub identity: Identity,
    /// The queue on which this process waits for its children. Woken when one of them changes state.
    pub child_event: WaitQueue,
    /// Woken when the process has exited.
    pub ended: WaitQueue,
    /// Woken when a signal was sent that a signalfd can read.
    pub signal_arrived: Arc<WaitQueue>,
    /// Woken when a stopped process continues.
    pub resumed: WaitQueue,
    /// Woken when one of the threads has exited. A thread in `execve` waits here for the other threads.
    pub thread_ended: WaitQueue,
    /// Woken when the address space borrowed by `vfork` is released.
    pub space_returned: WaitQueue,
    /// Resources used by the exited threads of the process.
    pub usage: Usage,
    /// Resources used by the reaped children of the process.
    pub children_usage: Usage,
    /// Deadline of the next check of the CPU time against the limit and the timers.
    pub(super) cpu_deadline: NextLook,
    /// The timers `ITIMER_VIRTUAL` and `ITIMER_PROF`.
    pub(super) cpu_alarms: Lock<CpuAlarms>,
    /// The POSIX timers that measure the CPU time of the process.
    pub(super) cpu_timers: CpuTimers,
    /// Time and interval of `ITIMER_REAL`.
    pub alarm: Lock<Alarm>,
    /// The POSIX timers of the process.
    pub posix_timers: PosixTimers,
    /// The signal that the parent gets when the process exits.
    pub exit_signal: AtomicU8,
    /// Whether the process has called `execve` since it was forked. If so, its parent can no longer move it to another
    /// process group by `setpgid`.
    pub executed: AtomicBool,
    /// The signal that the process gets when its parent exits (`PR_SET_PDEATHSIG`).
    pub parent_death_signal: AtomicU8,
    /// Score adjustment of `/proc/PID/oom_score_adj`, plus 1,000.
    pub kill_score: AtomicU32,
    /// Whether the process adopts orphans among its descendants (`PR_SET_CHILD_SUBREAPER`). Changed under the lock of
    /// the process table.
    pub adopts: AtomicBool,
    /// The execution domain and flags, as `personality` sets them.
    pub personality: AtomicU32,
    /// Dumpable flag, as set by `PR_SET_DUMPABLE`.
    pub dumpable: AtomicU8,
    /// The registrations with `membarrier`.
    pub barriers: AtomicU32,
    pub(super) space: Lock<Option<Arc<Space>>>,
    pub(super) image: Lock<Option<Arc<Image>>>,
    files: Lock<Option<Arc<FileTable>>>,
    fs: Lock<Option<Arc<FsContext>>>,
    name: Lock<[u8; 16]>,
    /// A number that orders processes by creation: each process entered in the process table gets the next larger one.
    pub(super) birth: AtomicU64,
    pub(super) parent: AtomicU32,
    pub(super) group: AtomicU32,
    pub(super) session: AtomicU32,
    borrows_space: AtomicBool,
    /// Whether another process was created with the address space of this one.
    shares_space: AtomicBool,
    /// The cgroup of the process.
    pub membership: Lock<Membership>,
}

impl Process {
    /// Creates the process `id` with the parts in `parts`. Until the process is entered in the process table, it is its
    /// own parent, group and session.
    // Inlined, because a process is several KiB large and would otherwise be copied more often before it is on the
    // heap.
    #[inline(always)]
    pub fn new(
        tasks: &'static Tasks,
        id: u32,
        started: u64,
        parts: Option<Parts>,
        limits: Limits,
        user: Shared<User>,
    ) -> Self {
        let (space, image, files, fs, name) = match parts {
            Some(parts) => (
                Some(parts.space),
                parts.image,
                Some(parts.files),
                Some(parts.fs),
                parts.name,
            ),
            None => (None, None, None, None, *b"init\0\0\0\0\0\0\0\0\0\0\0\0"),
        };
        Self {
            tasks,
            id,
            started,
            signals: Lock::new(Rank::Signals, Signals::default()),
            identity: Identity::new(limits, user),
            child_event: WaitQueue::named("a child"),
            ended: WaitQueue::named("the end of a process"),
            signal_arrived: Arc::new(WaitQueue::named("a signal")),
            resumed: WaitQueue::named("SIGCONT"),
            thread_ended: WaitQueue::named("the end of the other threads"),
            space_returned: WaitQueue::named("a child that borrows the address space"),
            usage: Usage::default(),
            children_usage: Usage::default(),
            cpu_deadline: NextLook::none(),
            cpu_alarms: Lock::new(Rank::Leaf, CpuAlarms::default()),
            cpu_timers: CpuTimers::default(),
            alarm: Lock::new(Rank::Process, Alarm::default()),
            posix_timers: PosixTimers::default(),
            exit_signal: AtomicU8::new(Signal::SIGCHLD.number()),
            executed: AtomicBool::new(false),
            parent_death_signal: AtomicU8::new(0),
            kill_score: AtomicU32::new(1000),
            adopts: AtomicBool::new(false),
            personality: AtomicU32::new(0),
            dumpable: AtomicU8::new(1),
            barriers: AtomicU32::new(0),
            space: Lock::new(Rank::Leaf, space),
            image: Lock::new(Rank::Leaf, image),
            files: Lock::new(Rank::Leaf, files),
            fs: Lock::new(Rank::Leaf, fs),
            name: Lock::new(Rank::Leaf, name),
            birth: AtomicU64::new(0),
            parent: AtomicU32::new(0),
            group: AtomicU32::new(id),
            session: AtomicU32::new(id),
            borrows_space: AtomicBool::new(false),
            shares_space: AtomicBool::new(false),
            membership: Lock::new(Rank::Leaf, Membership::default()),
        }
    }

    /// Accounts a living process and its threads to another user, after a change of the real user id. While this
    /// function holds the lock of the signals, no thread starts or exits.
    pub fn change_user(&self, user: Shared<User>) {
        let signals = self.signals.lock();
        let threads = signals.threads.len() as u64;
        user.threads.add(threads);
        let before = self.identity.replace_user(user);
        before.threads.remove(threads);
    }

    /// Returns the address space; `None` once the process has exited.
    pub fn space(&self) -> Option<Arc<Space>> {
        self.space.lock().clone()
    }

    /// Returns what `execve` recorded about the program; `None` before the first `execve` and after the exit.
    pub fn image(&self) -> Option<Arc<Image>> {
        self.image.lock().clone()
    }

    /// Returns the descriptor table; `None` once the process has exited.
    pub fn files(&self) -> Option<Arc<FileTable>> {
        self.files.lock().clone()
    }

    /// Returns the root, working directory and mask; `None` once the process has exited.
    pub fn fs(&self) -> Option<Arc<FsContext>> {
        self.fs.lock().clone()
    }

    /// Takes the descriptor table out of the process. Returns it, so that the caller can close it.
    pub fn take_files(&self) -> Option<Arc<FileTable>> {
        self.files.lock().take()
    }

    /// Takes the file-system context out of the process.
    pub fn take_fs(&self) -> Option<Arc<FsContext>> {
        self.fs.lock().take()
    }

    /// Takes the address space and the image out of the process.
    pub fn take_space(&self) -> (Option<Arc<Space>>, Option<Arc<Image>>) {
        let image = self.image.lock().take();
        (self.space.lock().take(), image)
    }

    /// Replaces the descriptor table (`unshare`, or `execve` with a shared table). Returns the previous one.
    pub fn replace_files(&self, files: Arc<FileTable>) -> Option<Arc<FileTable>> {
        self.files.lock().replace(files)
    }

    /// Returns the name of the leader, as in `/proc/PID/comm`: up to 15 bytes and a NUL.
    pub fn name(&self) -> [u8; 16] {
        *self.name.lock()
    }

    /// Stores the leader's new name.
    pub(super) fn set_name(&self, name: [u8; 16]) {
        *self.name.lock() = name;
    }

    /// Returns the parent's process id. It changes only under the lock of the process table.
    pub fn parent(&self) -> u32 {
        self.parent.load(Ordering::SeqCst)
    }

    /// Returns the process group. It changes only under the lock of the process table.
    pub fn group(&self) -> u32 {
        self.group.load(Ordering::SeqCst)
    }

    /// Returns the session. It changes only under the lock of the process table.
    pub fn session(&self) -> u32 {
        self.session.load(Ordering::SeqCst)
    }

    /// Returns whether the process was created by `vfork` and still uses its parent's address space.
    pub fn borrows_space(&self) -> bool {
        self.borrows_space.load(Ordering::SeqCst)
    }

    /// Records whether another process was created with the address space of this one.
    pub fn share_space(&self, shared: bool) {
        self.shares_space.store(shared, Ordering::Relaxed);
    }

    /// Marks the process as created by `vfork`.
    pub fn borrow_space(&self) {
        self.borrows_space.store(true, Ordering::SeqCst);
    }

    /// Ends the use of the parent's address space, if `vfork` created the process, and wakes the parent that waits for
    /// it.
    pub fn return_space(&self) {
        if self.borrows_space.swap(false, Ordering::SeqCst) {
            self.space_returned.wake_all();
        }
    }

    /// Returns whether the process has several threads, or another process was created with its address space.
    pub fn shares_space(&self) -> bool {
        self.shares_space.load(Ordering::Relaxed) || self.signals.lock().threads.len() > 1
    }

    /// Returns the oldest thread that is younger than `thread`, which may have left the process. Without `thread`,
    /// returns the oldest thread.
    pub fn thread_after(&self, thread: Option<&Thread>) -> Option<Arc<Thread>> {
        let signals = self.signals.lock();
        signals.threads.younger_than(thread).cloned()
    }

    /// Returns whether the process was killed or has no thread left.
    pub fn is_ending(&self) -> bool {
        let signals = self.signals.lock();
        signals.threads.is_empty() || signals.group_exit.is_some()
    }

    /// Returns the number of threads.
    pub fn thread_count(&self) -> usize {
        self.signals.lock().threads.len()
    }

    /// Calls `act` for each thread, oldest first, under the lock of the signals.
    pub fn each_thread(&self, mut act: impl FnMut(&Arc<Thread>)) {
        for (thread, _) in self.signals.lock().threads.iter() {
            act(thread);
        }
    }
}
