//! Committed memory: the pages that programs are entitled to use, charged when they are mapped.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use memwright_table::sync::Threads;
use memwright_table::sync::stat;
use memwright_table::sync::stat::Line;
use memwright_table::{CpuId, OutOfMemory, TryPush};

use crate::types::settled::settle;

/// The charge exceeds what the overcommit mode allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overcommit;

/// Which charges are granted (`vm.overcommit_memory`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OvercommitMode {
    /// Every charge is granted, except a single charge larger than memory and swap together.
    Guess = 0,
    /// Every charge is granted.
    Always = 1,
    /// A charge is granted only while the sum of all charges is within the commit limit.
    Never = 2,
}

/// The count of committed pages (Linux 7.2 `mm/util.c`, `__vm_enough_memory`).
///
/// Each CPU counts, on a cache line of its own, what it charges and unaccounts, so that processes on different CPUs
/// write no common line (rule: no-shared-fault-lock). Only the sum over all CPUs is meaningful.
#[derive(Debug)]
pub struct Commit {
    cpus: Vec<Share>,
    memory: u64,
    /// The number of pages of swap on open devices.
    swap: AtomicU64,
    mode: AtomicU8,
    /// The percentage of memory that may be committed in addition to swap in mode `Never`, used while `most` is 0.
    ratio: AtomicU32,
    /// The number of pages that may be committed in addition to swap in mode `Never`; 0 if `ratio` applies.
    most: AtomicU64,
    /// The largest charge that is granted without a further check, so that a charge usually costs one comparison.
    unasked: AtomicU64,
}

/// The number of pages that one CPU charged minus the number that it unaccounted. Negative if the CPU unaccounted
/// charges that other CPUs made.
#[derive(Debug)]
#[repr(align(64))]
struct Share(AtomicI64);

impl Commit {
    /// Creates the count for `cpus` CPUs and a memory of `total` pages.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the counters cannot be allocated.
    pub fn new(cpus: usize, total: u64) -> Result<Self, OutOfMemory> {
        let mut shares = Vec::new();
        shares.try_make_room(cpus)?;
        for _ in 0..cpus {
            shares.try_push(Share(AtomicI64::new(0)))?;
        }
        Ok(Self {
            cpus: shares,
            memory: total,
            swap: AtomicU64::new(0),
            mode: AtomicU8::new(OvercommitMode::Guess as u8),
            ratio: AtomicU32::new(50),
            most: AtomicU64::new(0),
            unasked: AtomicU64::new(total),
        })
    }

    /// Charges `pages` more, on `cpu`, which must be the calling CPU.
    ///
    /// # Errors
    /// The mode does not allow the charge; nothing is charged.
    pub fn charge(&self, cpu: CpuId, pages: u64) -> Result<(), Overcommit> {
        if pages > self.unasked.load(Ordering::Relaxed) {
            self.ask(pages)?;
        }
        self.count(cpu, pages as i64);
        Ok(())
    }

    /// Checks whether the overcommit mode allows a charge that is larger than `unasked`.
    #[cold]
    fn ask(&self, pages: u64) -> Result<(), Overcommit> {
        let granted = match self.mode() {
            OvercommitMode::Guess => pages <= self.total(),
            OvercommitMode::Always => true,
            OvercommitMode::Never => self.committed().saturating_add(pages) <= self.limit(),
        };
        if granted { Ok(()) } else { Err(Overcommit) }
    }

    /// Returns the number of pages of memory and swap.
    fn total(&self) -> u64 {
        self.memory + self.swap.load(Ordering::Relaxed)
    }

    /// Updates the number of pages of swap after a change of the swap devices (Linux 7.2 `total_swap_pages`). `pages`
    /// returns the present number, and is called again if another CPU changes the devices meanwhile.
    pub(crate) fn follow_swap(&self, pages: impl Fn() -> u64) {
        settle(pages, |pages| self.swap.store(*pages, Ordering::Relaxed));
        self.settle_unasked();
    }

    /// Returns the overcommit mode.
    pub fn mode(&self) -> OvercommitMode {
        match self.mode.load(Ordering::Relaxed) {
            1 => OvercommitMode::Always,
            2 => OvercommitMode::Never,
            _ => OvercommitMode::Guess,
        }
    }

    /// Sets the overcommit mode for future charges. Existing charges remain.
    pub fn set_mode(&self, mode: OvercommitMode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
        self.settle_unasked();
    }

    /// Updates `unasked` after a change of the mode or of the amount of swap.
    fn settle_unasked(&self) {
        let unasked = || match self.mode() {
            OvercommitMode::Guess => self.total(),
            OvercommitMode::Always => u64::MAX,
            OvercommitMode::Never => 0,
        };
        settle(unasked, |pages| {
            self.unasked.store(*pages, Ordering::Relaxed);
        });
    }

    /// Returns the percentage of memory that may be committed in mode `Never` (`vm.overcommit_ratio`), or 0 if a number
    /// of pages is set instead.
    pub fn ratio(&self) -> u32 {
        self.ratio.load(Ordering::Relaxed)
    }

    /// Sets the percentage of memory that may be committed in mode `Never`, and clears the number of pages.
    pub fn set_ratio(&self, percent: u32) {
        self.ratio.store(percent, Ordering::Relaxed);
        self.most.store(0, Ordering::Relaxed);
    }

    /// Returns the number of pages that may be committed in addition to swap in mode `Never` (`vm.overcommit_kbytes`),
    /// or 0 if a percentage is set instead.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Sets the number of pages that may be committed in addition to swap in mode `Never`, and clears the percentage.
    /// With 0, the limit is the amount of swap.
    pub fn set_most(&self, pages: u64) {
        self.most.store(pages, Ordering::Relaxed);
        self.ratio.store(0, Ordering::Relaxed);
    }

    /// Returns the number of pages that may be committed in mode `Never` (`CommitLimit` in /proc/meminfo): all of swap,
    /// and in addition a percentage of memory or the number of pages that was set (Linux 7.3 `mm/util.c`,
    /// `vm_commit_limit`).
    pub fn limit(&self) -> u64 {
        let memory = match self.most() {
            0 => self.memory * u64::from(self.ratio()) / 100,
            most => most,
        };
        memory.saturating_add(self.swap.load(Ordering::Relaxed))
    }

    /// Unaccounts `pages`, on `cpu`, which must be the calling CPU.
    pub fn release(&self, cpu: CpuId, pages: u64) {
        self.count(cpu, -(pages as i64));
    }

    /// Adds to the count of `cpu`. Only that CPU writes it, so a load and a store suffice.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    fn count(&self, cpu: CpuId, pages: i64) {
        let share = self.cpus.get(cpu.index());
        let Share(count) = share.unwrap_or_else(|| no_such_cpu(cpu, self.cpus.len()));
        count.store(count.load(Ordering::Relaxed) + pages, Ordering::Relaxed);
    }

    /// Reports to the lock statistics that `cpu`, the calling CPU, wrote the cache line of its count.
    pub(crate) fn note_line<H: Threads>(&self, cpu: CpuId) {
        stat::line::<H>(Line::Commit, &self.cpus[cpu.index()]);
    }

    /// Returns the number of committed pages (`Committed_AS` in /proc/meminfo).
    pub fn committed(&self) -> u64 {
        let sum: i64 = self
            .cpus
            .iter()
            .map(|Share(count)| count.load(Ordering::Relaxed))
            .sum();
        sum.max(0) as u64
    }
}

/// Panics because [`Threads::cpu`] returned a number that the machine does not have. Many operations count committed
/// memory before they use the number elsewhere.
#[cold]
fn no_such_cpu(cpu: CpuId, cpus: usize) -> ! {
    panic!("CPU {} of a machine with {cpus} CPUs", cpu.index())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: CpuId = CpuId::new(0);
    const SECOND: CpuId = CpuId::new(1);

    #[test]
    fn only_the_obvious_is_refused() {
        let commit = Commit::new(1, 100).unwrap();
        assert_eq!(commit.charge(FIRST, 101), Err(Overcommit));
        assert_eq!(commit.committed(), 0);
        for _ in 0..5 {
            commit.charge(FIRST, 100).unwrap();
        }
        assert_eq!(commit.committed(), 500);
    }

    #[test]
    fn modes_decide_how_much_is_promised() {
        let commit = Commit::new(1, 100).unwrap();
        assert_eq!(commit.limit(), 50);
        commit.set_mode(OvercommitMode::Always);
        commit.charge(FIRST, 1000).unwrap();
        commit.set_mode(OvercommitMode::Never);
        assert_eq!(commit.charge(FIRST, 1), Err(Overcommit));
        commit.release(FIRST, 1000);
        commit.charge(FIRST, 50).unwrap();
        assert_eq!(commit.charge(FIRST, 1), Err(Overcommit));
        commit.set_ratio(51);
        commit.charge(FIRST, 1).unwrap();
        commit.set_most(60);
        assert_eq!((commit.limit(), commit.ratio()), (60, 0));
        commit.charge(FIRST, 9).unwrap();
        assert_eq!(commit.charge(FIRST, 1), Err(Overcommit));
        commit.set_ratio(50);
        assert_eq!((commit.limit(), commit.most()), (50, 0));
        commit.set_mode(OvercommitMode::Guess);
        commit.charge(FIRST, 100).unwrap();
        assert_eq!(commit.charge(FIRST, 101), Err(Overcommit));
    }

    #[test]
    fn swap_counts_whichever_way_the_limit_is_set() {
        let commit = Commit::new(1, 100).unwrap();
        commit.follow_swap(|| 30);
        assert_eq!(commit.limit(), 80);
        commit.set_most(60);
        assert_eq!(commit.limit(), 90);
        commit.set_most(0);
        assert_eq!(commit.limit(), 30);
        commit.set_most(u64::MAX);
        assert_eq!(commit.limit(), u64::MAX);
    }

    #[test]
    fn what_one_cpu_promised_another_takes_back() {
        let commit = Commit::new(2, 100).unwrap();
        commit.charge(FIRST, 30).unwrap();
        commit.charge(SECOND, 20).unwrap();
        commit.release(SECOND, 30);
        assert_eq!(commit.committed(), 20);
        commit.release(FIRST, 20);
        assert_eq!(commit.committed(), 0);
    }
}
