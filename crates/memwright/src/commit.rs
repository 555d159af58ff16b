//! Committed memory: what programs may come to use, counted when it is promised.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicI64, Ordering};

use memwright_table::sync::stat::{self, Line};
use memwright_table::{CpuId, OutOfMemory, TryPush};

/// The promise is larger than all memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overcommit;

/// The count of promised pages, with Linux's overcommit mode 0: one request for more than all memory is
/// refused, anything else is granted (Linux 7.2 `mm/util.c`, `__vm_enough_memory`).
///
/// Each CPU counts what it promises and takes back by itself, so that processes on different CPUs write no
/// common line (design rule 14): only the sum over all CPUs means something.
#[derive(Debug)]
pub struct Commit {
    cpus: Vec<Share>,
    total: u64,
}

/// What one CPU promised less what it took back: negative where it took back what another promised.
#[derive(Debug)]
#[repr(align(64))]
struct Share(AtomicI64);

impl Commit {
    /// Counts the promises of `cpus` CPUs against `total` pages.
    ///
    /// # Errors
    /// There is no heap for the counts.
    pub fn new(cpus: usize, total: u64) -> Result<Self, OutOfMemory> {
        let mut shares = Vec::new();
        shares.try_make_room(cpus)?;
        for _ in 0..cpus {
            shares.try_push(Share(AtomicI64::new(0)))?;
        }
        Ok(Self {
            cpus: shares,
            total,
        })
    }

    /// Promises `pages` more, on CPU `cpu`, which calls.
    ///
    /// # Errors
    /// This request alone exceeds all memory; nothing is promised.
    pub fn charge(&self, cpu: CpuId, pages: u64) -> Result<(), Overcommit> {
        if pages > self.total {
            return Err(Overcommit);
        }
        self.count(cpu, pages as i64);
        Ok(())
    }

    /// Takes back the promise of `pages`, on CPU `cpu`, which calls.
    pub fn release(&self, cpu: CpuId, pages: u64) {
        self.count(cpu, -(pages as i64));
    }

    /// Only its own CPU writes a count, so a load and a store do.
    fn count(&self, cpu: CpuId, pages: i64) {
        let Share(count) = &self.cpus[cpu.index()];
        count.store(count.load(Ordering::Relaxed) + pages, Ordering::Relaxed);
    }

    /// Says to the lock statistics that `cpu`, the calling one, wrote its count.
    pub(crate) fn note_line(&self, cpu: CpuId) {
        stat::line(Line::Commit, &self.cpus[cpu.index()]);
    }

    /// How many pages are promised (`Committed_AS` in /proc/meminfo).
    pub fn committed(&self) -> u64 {
        let sum: i64 = self
            .cpus
            .iter()
            .map(|Share(count)| count.load(Ordering::Relaxed))
            .sum();
        sum.max(0) as u64
    }
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
