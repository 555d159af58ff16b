//! The out-of-memory killer.

use alloc::{format, string::String, sync::Arc};
use core::sync::atomic::{AtomicU64, Ordering};
use memwright::Row;
use memwright_linux_abi::{
    Memory,
    host::{Channel, Channels},
};
use memwright_linux_base::sync;
use memwright_linux_sched::wait::{Interest, WaitError, WaitQueue};
use memwright_linux_tasks::process::{Cgroup, Event, Process, REAPER, Tasks, Thread, kill_process};
use memwright_linux_vfs::changes::Changes;
use memwright_table::{OutOfMemory, PAGE_SIZE};

/// The result of a run of the OOM killer for a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// A process was killed.
    Killed,
    /// A process is being killed already. Its memory is freed when its threads exit.
    Awaited,
    /// No process may be killed.
    Nobody,
}

/// The OOM killer.
pub struct OomKiller {
    /// Physical memory.
    pub memory: Arc<Memory>,
    /// Processes and threads.
    pub tasks: &'static Tasks,
    channels: &'static dyn Channels,
    kills: AtomicU64,
    /// The changes that readers of the cgroups' event files wait for: a cgroup became populated or empty, or an event
    /// was counted.
    pub group_changes: Changes,
}

impl OomKiller {
    /// Creates an OOM killer that has not killed any process. It reports to the log and the standard error of
    /// `channels`.
    pub fn new(
        memory: Arc<Memory>,
        tasks: &'static Tasks,
        channels: &'static dyn Channels,
    ) -> Arc<Self> {
        Arc::new(Self {
            memory,
            tasks,
            channels,
            kills: AtomicU64::new(0),
            group_changes: Changes::default(),
        })
    }

    /// Waits until `ready` returns `Some`, like `Scheduler::wait_in`. If there is no memory to queue the wait, runs the
    /// OOM killer and tries again.
    ///
    /// # Errors
    /// [`WaitError::Interrupted`] if an event of `interest` ends the wait, [`WaitError::TimedOut`] after the deadline.
    pub fn wait<T>(
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

    /// Waits like `Self::wait` on all of `queues`, which must not contain the same queue twice.
    ///
    /// # Errors
    /// [`WaitError::Interrupted`] if an event of `interest` ends the wait, [`WaitError::TimedOut`] after the deadline.
    #[inline]
    pub fn wait_in<'a, T>(
        &self,
        thread: &Arc<Thread>,
        queues: &(impl Iterator<Item = &'a WaitQueue> + Clone),
        deadline: Option<u64>,
        interest: Interest,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        loop {
            let scheduler = self.tasks.scheduler;
            match scheduler.wait_in(thread, queues, deadline, interest, &mut ready) {
                Ok(outcome) => return outcome,
                Err(OutOfMemory) => self.wait_for_memory(thread),
            }
        }
    }

    /// Frees memory for a wait that could not be queued. Runs the OOM killer, and lets the exiting threads run.
    #[cold]
    fn wait_for_memory(&self, thread: &Arc<Thread>) {
        self.relieve(thread);
        self.tasks.scheduler.yield_now(thread);
        // Pause briefly, because the thread that frees the memory may run on another CPU.
        sync::relax();
    }

    /// Returns the number of processes that the OOM killer has killed.
    pub fn kills(&self) -> u64 {
        self.kills.load(Ordering::Relaxed)
    }

    /// Kills the largest process, unless a process is being killed already. The caller retries the failed operation
    /// after other threads have run.
    pub fn relieve(&self, thread: &Arc<Thread>) {
        let members = self.tasks.living(|process| process.id != REAPER);
        let total = self.memory.frames().total();
        match choose(members, &thread.process, total) {
            Choice::Awaited => {}
            Choice::Victim(victim) => self.kill(&victim, "out of memory", true),
            // No process may be killed. Kill the process of `thread` nevertheless, because `thread` would wait for
            // memory forever.
            Choice::Nobody => self.kill(&thread.process, "out of memory", true),
        }
    }

    /// Kills the largest process in `group`, which is over its limit, or in the groups below it. Kills none if one of
    /// these processes, except that of `thread`, is being killed already, or if `is_over` returns false. `thread` waits
    /// for the memory; it need not be in the group. `is_over` returns whether the group is still over its limit: a
    /// process of the group may have exited since the group was measured (`mem_cgroup_out_of_memory` checks this as
    /// well).
    pub fn relieve_group(
        &self,
        thread: &Arc<Thread>,
        group: &Arc<Cgroup>,
        is_over: impl FnOnce() -> bool,
    ) -> Relief {
        let members = self.tasks.living_in(group);
        let reason = "a group is out of memory";
        let victim = match choose(members, &thread.process, group.most()) {
            Choice::Awaited => return Relief::Awaited,
            Choice::Victim(victim) => victim,
            Choice::Nobody if thread.process.is_within(group) => thread.process.clone(),
            Choice::Nobody => return Relief::Nobody,
        };
        if !is_over() {
            return Relief::Awaited;
        }
        self.kill(&victim, reason, false);
        Relief::Killed
    }

    /// Kills `victim` and logs the reason. If `tell` is set, also writes the reason to standard error.
    fn kill(&self, victim: &Arc<Process>, reason: &str, tell: bool) {
        let kib = victim
            .space()
            .map_or(0, |space| space.usage().resident_pages() * 4);
        let name = victim.name();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        #[expect(clippy::disallowed_macros, reason = "two hundred bytes at most")]
        let line = format!(
            "memwright: {reason}: killed process {} ({}), resident {kib} KiB\n",
            victim.id,
            String::from_utf8_lossy(name),
        );
        self.channels.output(Channel::Log, line.as_bytes());
        if tell {
            self.channels.output(Channel::Stderr, line.as_bytes());
            self.describe();
        }
        self.kills.fetch_add(1, Ordering::Relaxed);
        if let Some(group) = victim.charged_group() {
            group.count(Event::Killed);
            self.group_changes.note();
        }
        kill_process(victim);
    }

    /// Logs the state of memory and swap.
    fn describe(&self) {
        let frames = self.memory.frames();
        let (slots, used) = self.memory.swap().totals();
        let refused = self.memory.account().count(Row::SwapRefused);
        #[expect(clippy::disallowed_macros, reason = "two hundred bytes at most")]
        let line = format!(
            "memwright: {} frames, {} free, {} for the kernel alone; {used} of {slots} swap slots in use, {refused} pages \
         refused\n",
            frames.total(),
            frames.free(),
            frames.reserve(),
        );
        self.channels.output(Channel::Log, line.as_bytes());
    }
}

/// The approximate kernel memory of an area in bytes, including its entry in the map of areas.
const AREA: u64 = 256;

/// The kernel memory of a thread in bytes, most of which is its stack.
const THREAD: u64 = 36 << 10;

/// The choice of a victim.
enum Choice {
    Victim(Arc<Process>),
    Awaited,
    Nobody,
}

/// Returns the process of `members` with the highest badness: see [`score`]. Returns `Awaited` if any of them except
/// `asks` is being killed already. `total` is the number of pages to which the adjustments refer.
fn choose(members: impl Iterator<Item = Arc<Process>>, asks: &Process, total: u64) -> Choice {
    let mut largest = Largest::default();
    for process in members {
        if process.signals.lock().group_exit.is_some() {
            // The process frees memory when its threads exit. This is so even if it has released its pages already and
            // still has to close its files.
            if process.id != asks.id {
                return Choice::Awaited;
            }
            continue;
        }
        let Some(space) = process.space() else {
            continue;
        };
        let size = Size {
            resident: space.usage().resident_pages(),
            swapped: space.usage().swapped_pages(),
            tables: space.table().table_frames(),
            open_files: process.files().map_or(0, |files| files.kernel_bytes()),
            areas: space.area_count() as u64,
            threads: process.thread_count() as u64,
        };
        let adjustment = i64::from(process.kill_score.load(Ordering::Relaxed)) - 1000;
        largest.add(process, score(&size, adjustment, total));
    }
    largest.found.map_or(Choice::Nobody, Choice::Victim)
}

/// The memory that would be freed if a process were killed.
#[derive(Default)]
struct Size {
    /// The number of resident pages. `swapped` is the number of swapped-out pages, and `tables` is the number of
    /// page-table frames.
    resident: u64,
    swapped: u64,
    tables: u64,
    /// The kernel memory of open files and their locks, in bytes.
    open_files: u64,
    areas: u64,
    threads: u64,
}

impl Size {
    /// Returns the size in pages. Linux counts no kernel memory for files, areas and threads, so it can choose another
    /// process than Memwright does.
    fn pages(&self) -> u64 {
        let held = self.open_files + self.areas * AREA + self.threads * THREAD;
        self.resident + self.swapped + self.tables + held / PAGE_SIZE as u64
    }
}

/// Returns the badness of a process (`oom_badness` of Linux 7.2, `mm/oom_kill.c`): its pages, plus a thousandth of the
/// `total` pages for each point of `adjustment`. Returns 0 if the process must not be killed.
fn score(size: &Size, adjustment: i64, total: u64) -> u64 {
    if adjustment <= -1000 {
        return 0;
    }
    let points = size.pages() as i64 + adjustment * (total / 1000) as i64;
    points.max(1) as u64
}

/// The first of the items with the highest score; `None` if all scores are 0.
struct Largest<T> {
    found: Option<T>,
    score: u64,
}

impl<T> Default for Largest<T> {
    fn default() -> Self {
        Self {
            found: None,
            score: 0,
        }
    }
}

impl<T> Largest<T> {
    fn add(&mut self, candidate: T, score: u64) {
        if score > self.score {
            (self.found, self.score) = (Some(candidate), score);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Largest, Size, score};

    #[test]
    fn the_largest_goes_first() {
        for (scores, expected) in [(&[3, 9, 9, 1][..], Some(1)), (&[0, 0], None), (&[], None)] {
            let mut largest = Largest::default();
            for (number, score) in scores.iter().enumerate() {
                largest.add(number, *score);
            }
            assert_eq!(largest.found, expected);
        }
    }

    #[test]
    fn adjustments_count_in_thousandths_of_memory() {
        let size = Size {
            resident: 100,
            ..Size::default()
        };
        for (adjustment, expected) in [(0, 100), (-1000, 0), (10, 100 + 1310), (-500, 1)] {
            assert_eq!(score(&size, adjustment, 131_072), expected);
        }
    }

    #[test]
    fn what_the_kernel_holds_for_a_process_counts() {
        let nothing = Size::default();
        #[rustfmt::skip]
        let rows = [
            (Size { resident: 7, ..nothing }, 7),
            (Size { swapped: 7, ..Size::default() }, 7),
            (Size { tables: 7, ..Size::default() }, 7),
            (Size { open_files: 7 << 12, ..Size::default() }, 7),
            (Size { areas: 160, ..Size::default() }, 10),
            (Size { threads: 100, ..Size::default() }, 900),
        ];
        for (size, pages) in rows {
            assert_eq!(size.pages(), pages);
        }
    }
}
