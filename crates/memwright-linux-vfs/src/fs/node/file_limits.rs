//! The limits in `/proc/sys/fs`, and the checks against them.

use crate::fs::body::ring::{DEFAULT_PAGES, MAX_PAGES};
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_table::PAGE_SIZE;

/// The limits on files, which writes to `/proc/sys/fs` change at run time.
pub struct FileLimits {
    /// Maximum number of open files in the system (`file-max`).
    pub open_files: AtomicU64,
    /// Maximum number of entries in the epolls of one user (`epoll/max_user_watches`).
    pub watches: AtomicU64,
    /// Soft limit on the number of pages of a user's pipes (`pipe-user-pages-soft`); 0 for none. Above it, new pipes of
    /// the user are small.
    pub pipe_pages_soft: AtomicU64,
    /// Hard limit on the number of pages of a user's pipes (`pipe-user-pages-hard`); 0 for none. Above it, the user
    /// cannot create pipes.
    pub pipe_pages_hard: AtomicU64,
    /// Maximum size in bytes of a pipe (`pipe-max-size`).
    pub largest_pipe: AtomicU64,
}

impl FileLimits {
    /// Returns the default limits of Linux 7.3 on a machine with `pages` pages of memory.
    #[must_use]
    pub fn new(pages: u64) -> Self {
        /// Minimum of the limit on open files (`NR_FILE` of `include/linux/fs.h`).
        const LEAST_FILES: u64 = 8192;
        /// Kibibytes of memory per open file (`files_maxfiles_init` in `fs/file_table.c`).
        const KIBIBYTES: u64 = 10;
        /// Size in bytes of an epoll entry in Linux. The entries of a user can use 1/`PART` of memory
        /// (`eventpoll_init`).
        const WATCH: u64 = 192;
        const PART: u64 = 25;
        /// Default limit on the descriptors of a process (`INR_OPEN_CUR`). The soft limit on pages allows `DESCRIPTORS`
        /// pipes of the default size.
        const DESCRIPTORS: u64 = 1024;
        let page = PAGE_SIZE as u64;
        Self {
            open_files: AtomicU64::new((pages * page / 1024 / KIBIBYTES).max(LEAST_FILES)),
            watches: AtomicU64::new(pages / PART * page / WATCH),
            pipe_pages_soft: AtomicU64::new(DEFAULT_PAGES as u64 * DESCRIPTORS),
            pipe_pages_hard: AtomicU64::new(0),
            largest_pipe: AtomicU64::new((MAX_PAGES * PAGE_SIZE) as u64),
        }
    }

    /// Returns whether a user whose pipes have `pages` pages exceeds the soft limit.
    pub(in crate::fs) fn is_soft_over(&self, pages: u64) -> bool {
        is_over(pages, self.pipe_pages_soft.load(Ordering::Relaxed))
    }

    /// Returns whether a user whose pipes have `pages` pages exceeds the hard limit.
    pub(in crate::fs) fn is_hard_over(&self, pages: u64) -> bool {
        is_over(pages, self.pipe_pages_hard.load(Ordering::Relaxed))
    }
}

fn is_over(pages: u64, limit: u64) -> bool {
    limit != 0 && pages > limit
}

#[cfg(test)]
mod tests {
    use super::{FileLimits, Ordering};

    #[test]
    fn limits_of_pipes_are_exceeded_by_more_than_them_and_zero_is_none() {
        let limits = FileLimits::new(131_072);
        assert!(!limits.is_soft_over(16_384) && limits.is_soft_over(16_385));
        assert!(!limits.is_hard_over(u64::MAX));
        limits.pipe_pages_hard.store(7, Ordering::Relaxed);
        assert!(!limits.is_hard_over(7) && limits.is_hard_over(8));
    }

    #[test]
    fn a_small_machine_has_files_enough() {
        let files = |pages| FileLimits::new(pages).open_files.into_inner();
        assert_eq!((files(1000), files(131_072)), (8192, 52_428));
    }
}
