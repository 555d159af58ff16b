//! Numbers of memcgs.

use core::fmt;

/// The maximum number of memcgs that can exist at a time (Linux 7.3 `include/linux/memcontrol.h`, `MEM_CGROUP_ID_MAX`).
pub const MAX_MEMCGS: usize = u16::MAX as usize;

/// The number of a memcg, to which swap slots are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memcg(u16);

impl Memcg {
    /// No memcg. Swap slots of an address space without a memcg are charged to no memcg, and have no limit.
    pub const NOBODY: Self = Self(0);

    /// Returns the memcg with `number`, which must be below [`MAX_MEMCGS`].
    ///
    /// # Panics
    /// If `number` is [`MAX_MEMCGS`] or more.
    #[must_use]
    pub const fn new(number: usize) -> Self {
        assert!(number < MAX_MEMCGS, "there are fewer memcgs");
        Self(number as u16 + 1)
    }

    /// Returns the memcg for which [`raw`](Self::raw) returned `raw`.
    #[must_use]
    pub const fn from_raw(raw: u16) -> Self {
        Self(raw)
    }

    /// Returns the value that [`from_raw`](Self::from_raw) accepts: the number of the memcg plus 1, or 0 if there is no
    /// memcg.
    #[must_use]
    pub const fn raw(self) -> u16 {
        self.0
    }
}

/// The reason why a memcg cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMemcg {
    /// All [`MAX_MEMCGS`] numbers are used by memcgs that are open, or that are closed and still charged.
    TooMany,
    /// The charge records cannot be allocated.
    OutOfMemory,
}

impl fmt::Display for NoMemcg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "there are too many memcgs",
            Self::OutOfMemory => "out of memory",
        })
    }
}
