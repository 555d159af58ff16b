//! Committed memory: what programs may come to use, counted when it is promised.

use core::sync::atomic::{AtomicI64, Ordering};

/// The promise is larger than all memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overcommit;

/// The count of promised pages, with Linux's overcommit mode 0: one request for more than all memory is
/// refused, anything else is granted (Linux 7.2 `mm/util.c`, `__vm_enough_memory`).
#[derive(Debug)]
pub struct Commit {
    pages: AtomicI64,
    total: u64,
}

impl Commit {
    /// Counts promises against `total` pages.
    pub const fn new(total: u64) -> Self {
        Self {
            pages: AtomicI64::new(0),
            total,
        }
    }

    /// Promises `pages` more.
    ///
    /// # Errors
    /// This request alone exceeds all memory; nothing is promised.
    pub fn charge(&self, pages: u64) -> Result<(), Overcommit> {
        if pages > self.total {
            return Err(Overcommit);
        }
        self.charge_always(pages);
        Ok(())
    }

    /// Promises `pages` more, where refusal is impossible: a stack that grows.
    pub fn charge_always(&self, pages: u64) {
        self.pages.fetch_add(pages as i64, Ordering::Relaxed);
    }

    /// Takes back the promise of `pages`.
    pub fn release(&self, pages: u64) {
        self.pages.fetch_sub(pages as i64, Ordering::Relaxed);
    }

    /// How many pages are promised (`Committed_AS` in /proc/meminfo).
    pub fn committed(&self) -> u64 {
        self.pages.load(Ordering::Relaxed).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_obvious_is_refused() {
        let commit = Commit::new(100);
        assert_eq!(commit.charge(101), Err(Overcommit));
        assert_eq!(commit.committed(), 0);
        for _ in 0..5 {
            commit.charge(100).unwrap();
        }
        assert_eq!(commit.committed(), 500);
        commit.release(500);
        commit.charge_always(1000);
        assert_eq!(commit.committed(), 1000);
    }
}
