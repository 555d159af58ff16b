//! Processes and threads.

mod capabilities;
mod clone;
mod cpu_limit;
mod credentials;
mod exit;
mod fork;
mod group;
mod image;
mod limits;
mod status;
mod tasks;
mod thread;
mod thread_start;
mod usage;
mod users;
mod wait;

pub use capabilities::{Capabilities, CapabilitySets};
pub use clone::{CloneFlags, CloneRequest, clone};
pub use credentials::{Credentials, Ids, UNCHANGED};
pub use exit::{end_group, exit_thread};

pub use group::{set_group, set_session};
pub use image::{Heap, Image, ImageAddresses};
pub use limits::{INFINITY, Limit, Limits, Resource};
pub use status::{Change, ExitStatus, Life};
pub use tasks::{END as ID_END, Member, PROGRAM, REAPER, Tasks};
pub(crate) use thread::Sleep;
pub use thread::{RestartBlock, Start, Thread, Work};
pub use usage::{ResourceUsage, TICKS_PER_SECOND, Usage, UsageSnapshot, ticks};
pub use users::{Tally, User, Users};
pub use wait::{WaitOptions, WaitTarget, Waited, wait_for_child};

use crate::{
    Space,
    cgroup::Membership,
    fs::{FileTable, FsContext},
    signal::{Signal, Signals},
    sync::{Lock, Rank},
    wait::WaitQueue,
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use memwright_table::Shared;

/// The parts a process is made of.
pub struct Parts {
    /// The address space and its program.
    pub space: Arc<Space>,
    /// What exec noted; `None` before the first exec.
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

/// A process: what its threads share.
pub struct Process {
    /// The process id; that of its first thread.
    pub id: u32,
    /// Guest time at its start, in nanoseconds since boot.
    pub started: u64,
    /// Signal actions, pending signals, threads.
    pub signals: Lock<Signals>,
    /// Resource limits.
    pub limits: Lock<Limits>,
    /// User and group ids.
    pub credentials: Lock<Credentials>,
    /// Its parent waits here for its own children: woken when one of them changes.
    pub child_event: WaitQueue,
    /// Woken when the process has ended.
    pub ended: WaitQueue,
    /// Woken when a signal was sent that somebody may read.
    pub signal_arrived: WaitQueue,
    /// Woken when a stopped process continues.
    pub resumed: WaitQueue,
    /// Woken when one of its threads has ended: for the thread that executes a program.
    pub thread_ended: WaitQueue,
    /// Woken when the address space borrowed by `vfork` is given back.
    pub space_returned: WaitQueue,
    /// What its ended threads used.
    pub usage: Usage,
    /// What its reaped children used.
    pub children_usage: Usage,
    /// When the CPU time is compared with its limit next.
    cpu_limit: crate::time::NextLook,
    /// Time and interval of `ITIMER_REAL`.
    pub alarm: Lock<crate::time::Alarm>,
    /// The signal its parent gets at its end.
    pub exit_signal: AtomicU8,
    /// It executed a program since it was forked (`setpgid` then fails).
    pub executed: AtomicBool,
    /// Signal that it gets when its parent ends (`PR_SET_PDEATHSIG`).
    pub parent_death_signal: AtomicU8,
    /// Score adjustment of `/proc/PID/oom_score_adj`, plus 1,000.
    pub kill_score: AtomicU32,
    /// Dumpable, as `PR_SET_DUMPABLE` left it.
    pub dumpable: AtomicU8,
    /// What it registered with `membarrier`.
    pub(crate) barriers: AtomicU32,
    /// The real user, to whom its threads count.
    user: Lock<Shared<User>>,
    space: Lock<Option<Arc<Space>>>,
    image: Lock<Option<Arc<Image>>>,
    files: Lock<Option<Arc<FileTable>>>,
    fs: Lock<Option<Arc<FsContext>>>,
    name: Lock<[u8; 16]>,
    /// Rises with each process that is entered in the table.
    birth: AtomicU64,
    parent: AtomicU32,
    group: AtomicU32,
    session: AtomicU32,
    borrows_space: AtomicBool,
    /// Another process was made with its address space.
    shares_space: AtomicBool,
    pub(crate) membership: Lock<Membership>,
}

impl Process {
    /// A process with these parts, its own parent, group and session until it is entered in the
    /// process table.
    pub fn new(
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
            id,
            started,
            signals: Lock::new(Rank::Signals, Signals::default()),
            limits: Lock::new(Rank::Leaf, limits),
            credentials: Lock::new(Rank::Leaf, Credentials::default()),
            child_event: WaitQueue::named("a child"),
            ended: WaitQueue::named("the end of a process"),
            signal_arrived: WaitQueue::named("a signal"),
            resumed: WaitQueue::named("SIGCONT"),
            thread_ended: WaitQueue::named("the end of the other threads"),
            space_returned: WaitQueue::named("a child that borrows the address space"),
            usage: Usage::default(),
            children_usage: Usage::default(),
            cpu_limit: crate::time::NextLook::none(),
            alarm: Lock::new(Rank::Process, crate::time::Alarm::default()),
            exit_signal: AtomicU8::new(Signal::SIGCHLD.number()),
            executed: AtomicBool::new(false),
            parent_death_signal: AtomicU8::new(0),
            kill_score: AtomicU32::new(1000),
            dumpable: AtomicU8::new(1),
            barriers: AtomicU32::new(0),
            user: Lock::new(Rank::Leaf, user),
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

    /// The real user.
    pub fn user(&self) -> Shared<User> {
        self.user.lock().clone()
    }

    /// Counts a living process and its threads as another user's, whose real id it takes. No thread begins or ends meanwhile.
    pub(crate) fn change_user(&self, user: Shared<User>) {
        let signals = self.signals.lock();
        let threads = signals.threads.len() as u64;
        user.threads.add(threads);
        let before = core::mem::replace(&mut *self.user.lock(), user);
        before.threads.remove(threads);
    }

    /// The address space; `None` once the process has ended.
    pub fn space(&self) -> Option<Arc<Space>> {
        self.space.lock().clone()
    }

    /// What exec noted about the program; `None` before the first exec and after the end.
    pub fn image(&self) -> Option<Arc<Image>> {
        self.image.lock().clone()
    }

    /// The descriptor table; `None` once the process has ended.
    pub fn files(&self) -> Option<Arc<FileTable>> {
        self.files.lock().clone()
    }

    /// Root, working directory and mask; `None` once the process has ended.
    pub fn fs(&self) -> Option<Arc<FsContext>> {
        self.fs.lock().clone()
    }

    /// Takes the descriptor table away, to be closed.
    pub(crate) fn take_files(&self) -> Option<Arc<FileTable>> {
        self.files.lock().take()
    }

    /// Takes the file context away.
    pub(crate) fn take_fs(&self) -> Option<Arc<FsContext>> {
        self.fs.lock().take()
    }

    /// Takes the address space and the image away.
    pub(crate) fn take_space(&self) -> (Option<Arc<Space>>, Option<Arc<Image>>) {
        let image = self.image.lock().take();
        (self.space.lock().take(), image)
    }

    /// Replaces the address space and the image; returns the old ones.
    pub(crate) fn replace_space(
        &self,
        space: Arc<Space>,
        image: Arc<Image>,
    ) -> (Option<Arc<Space>>, Option<Arc<Image>>) {
        space.set_swap_payer(self.swap_payer());
        let old = self.image.lock().replace(image);
        (self.space.lock().replace(space), old)
    }

    /// Replaces the descriptor table (`unshare`, exec of a shared table).
    pub(crate) fn replace_files(&self, files: Arc<FileTable>) -> Option<Arc<FileTable>> {
        self.files.lock().replace(files)
    }

    /// The name of its leader, as in `/proc/PID/comm`: up to 15 bytes and a NUL.
    pub fn name(&self) -> [u8; 16] {
        *self.name.lock()
    }

    /// Follows the leader's name.
    fn set_name(&self, name: [u8; 16]) {
        *self.name.lock() = name;
    }

    /// The parent's process id. Changed under the lock of the process table.
    pub fn parent(&self) -> u32 {
        self.parent.load(Ordering::SeqCst)
    }

    /// The process group. Changed under the lock of the process table.
    pub fn group(&self) -> u32 {
        self.group.load(Ordering::SeqCst)
    }

    /// The session. Changed under the lock of the process table.
    pub fn session(&self) -> u32 {
        self.session.load(Ordering::SeqCst)
    }

    /// It was made by `vfork` and still uses its parent's address space.
    pub fn borrows_space(&self) -> bool {
        self.borrows_space.load(Ordering::SeqCst)
    }

    /// Says whether it was made with another process's address space, or the other way round.
    pub(crate) fn share_space(&self, shared: bool) {
        self.shares_space.store(shared, Ordering::Relaxed);
    }

    /// Marks it as made by `vfork`.
    pub(crate) fn borrow_space(&self) {
        self.borrows_space.store(true, Ordering::SeqCst);
    }

    /// Gives the address space back to the parent that waits in `vfork`.
    pub(crate) fn return_space(&self, kernel: &crate::kernel::Kernel) {
        if self.borrows_space.swap(false, Ordering::SeqCst) {
            self.space_returned.wake_all(kernel);
        }
    }

    /// Another thread or process runs in its address space too.
    pub(crate) fn shares_space(&self) -> bool {
        self.shares_space.load(Ordering::Relaxed) || self.signals.lock().threads.len() > 1
    }

    /// The thread that is the oldest but for `number` others.
    pub fn thread(&self, number: usize) -> Option<Arc<Thread>> {
        let signals = self.signals.lock();
        signals
            .threads
            .get(number)
            .map(|(thread, _)| thread.clone())
    }

    /// It was killed, or has no thread any more.
    pub(crate) fn is_ending(&self) -> bool {
        let signals = self.signals.lock();
        signals.threads.is_empty() || signals.group_exit.is_some()
    }

    /// How many threads it has.
    pub fn thread_count(&self) -> usize {
        self.signals.lock().threads.len()
    }

    /// Calls `act` for each of its threads, oldest first, under the lock of the signals.
    pub(crate) fn each_thread(&self, mut act: impl FnMut(&Arc<Thread>)) {
        for (thread, _) in &self.signals.lock().threads {
            act(thread);
        }
    }

    /// What the process has used, its living threads included, its children not.
    pub fn total_usage(&self, kernel: &crate::kernel::Kernel) -> UsageSnapshot {
        let mut total = self.usage.snapshot();
        self.each_thread(|thread| {
            total = total.plus(&kernel.scheduler.usage_of(kernel, thread));
        });
        if let Some(space) = self.space() {
            total.resident_peak = total
                .resident_peak
                .max(crate::memory::peak_resident_kib(&space));
        }
        total
    }
}
