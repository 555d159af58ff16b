//! The state that the checks of nested epolls store in each epoll and file.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of links in a chain of nested epolls (`EP_MAX_NESTS`).
pub const LONGEST: usize = 4;

/// The number of the last pass that visited an epoll or a file. Each step of a check uses a new pass, so that old marks
/// need not be cleared.
///
/// # Locks
/// Written under the lock that serialises changes of the graph of epolls.
#[derive(Debug, Default)]
pub(in crate::fs) struct Mark(AtomicU64);

impl Mark {
    pub(in crate::fs) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Sets the mark to `pass`. Returns `false` if it already was `pass`.
    pub(in crate::fs) fn visit(&self, pass: u64) -> bool {
        self.0.swap(pass, Ordering::Relaxed) != pass
    }

    /// Returns whether the mark is `pass`.
    pub(in crate::fs) fn is(&self, pass: u64) -> bool {
        self.0.load(Ordering::Relaxed) == pass
    }
}

/// The number of paths of each length that lead from an epoll up to an epoll that no other epoll watches. The counts
/// are valid only during the check that stored them.
///
/// # Locks
/// Written under the lock that serialises changes of the graph of epolls.
#[derive(Debug, Default)]
pub(in crate::fs) struct PathCounts([AtomicU32; LONGEST + 1]);

impl PathCounts {
    /// Returns the number of paths of this length.
    pub(in crate::fs) fn get(&self, length: usize) -> u32 {
        self.0[length].load(Ordering::Relaxed)
    }

    /// Sets the number of paths of this length.
    pub(in crate::fs) fn set(&self, length: usize, count: u32) {
        self.0[length].store(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Mark;

    #[test]
    fn a_mark_is_new_once_per_pass() {
        let mark = Mark::new();
        assert!(mark.visit(1) && !mark.visit(1) && mark.is(1));
        assert!(mark.visit(2) && !mark.is(1));
    }
}
