//! The state of one page of a process.

use alloc::boxed::Box;

use crate::terms::{Rights, Watch};

/// The number of bytes of a page.
pub const PAGE: usize = 4096;

/// The contents of a page. `None` means that all bytes are zero.
pub(super) type Contents = Option<Box<[u8; PAGE]>>;

/// Returns whether the contents have `bytes` at `offset`.
pub(super) fn shows(contents: &Contents, offset: usize, bytes: &[u8]) -> bool {
    match contents {
        Some(contents) => contents[offset..].starts_with(bytes),
        None => bytes.iter().all(|&byte| byte == 0),
    }
}

pub(super) fn store(contents: &mut Contents, offset: usize, value: u8) {
    contents.get_or_insert_with(|| Box::new([0; PAGE]))[offset] = value;
}

/// A file or a piece of shared memory, by number.
pub type ObjectNumber = usize;

/// The source of the pages of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Private anonymous memory.
    Anonymous,
    /// A private mapping of an object's pages, starting at `index`.
    Private {
        /// The object that the area maps.
        object: ObjectNumber,
        /// The index in the object of the first page of the mapping.
        index: u64,
    },
    /// A shared mapping of an object's pages, starting at `index`.
    Shared {
        /// The object that the area maps.
        object: ObjectNumber,
        /// The index in the object of the first page of the mapping.
        index: u64,
    },
}

impl Source {
    /// Returns the object and the index of the object's page that is mapped here, or `None` for anonymous memory. In a
    /// private mapping the process may have its own copy instead of that page.
    pub(super) fn object(self) -> Option<(ObjectNumber, u64)> {
        match self {
            Self::Anonymous => None,
            Self::Private { object, index } | Self::Shared { object, index } => {
                Some((object, index))
            }
        }
    }

    pub(super) fn advanced(self, pages: u64) -> Self {
        match self {
            Self::Anonymous => Self::Anonymous,
            Self::Private { object, index } => Self::Private {
                object,
                index: index + pages,
            },
            Self::Shared { object, index } => Self::Shared {
                object,
                index: index + pages,
            },
        }
    }
}

/// What `fork` does with a page instead of copying it to the child. If both flags are set, `omit` takes precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OnFork {
    /// Nothing is mapped in the child (`MADV_DONTFORK`).
    pub(super) omit: bool,
    /// The page is zero in the child (`MADV_WIPEONFORK`).
    pub(super) wipe: bool,
}

/// Whether a page was written since write tracking was last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stored {
    /// The page was not written, and must not count as written.
    No,
    /// The page was written, and must count as written.
    Yes,
    /// Write tracking was never reset, or the contents were discarded: the page may count as written or not.
    #[default]
    Maybe,
}

impl Stored {
    /// Allows a page that was not written to count as written.
    pub(super) fn blur(&mut self) {
        if *self == Self::No {
            *self = Self::Maybe;
        }
    }

    /// Records that the contents were discarded: the page may count as written or not.
    pub(super) fn lose(&mut self) {
        *self = Self::Maybe;
    }
}

/// Whether userfaultfd has read-write-protected a page that was not accessed since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Armed {
    /// The page was not protected, or was accessed or discarded since. If it is in memory or in swap, it counts as
    /// accessed.
    #[default]
    No,
    /// The page was protected, and must not count as accessed.
    Yes,
    /// The page was protected if it was in memory or in swap at that time.
    IfThere,
}

#[derive(Clone, Debug)]
pub(super) struct Mapped {
    pub(super) rights: Rights,
    pub(super) source: Source,
    /// The private copy, or `None` if the page has none.
    pub(super) own: Option<Contents>,
    /// The contents that the page has if it was discarded after `MADV_FREE`: zeroes, plus the stores since then. `None`
    /// if the page cannot be discarded. A load shows whether the page has these contents or the previous ones.
    pub(super) otherwise: Option<Contents>,
    /// Whether the page may have a private copy that the model does not record yet: userfaultfd refused a store to it,
    /// or memory may have run out while the mapping was populated.
    pub(super) may_have_copied: bool,
    pub(super) on_fork: OnFork,
    /// Whether the page has a guard marker: every access is refused, as if nothing were mapped.
    pub(super) guard: bool,
    /// Whether the mapping and its rights can no longer change (`mseal`).
    pub(super) sealed: bool,
    pub(super) watch: Option<Watch>,
    /// Whether the page was written since userfaultfd write-protected it. A page that must not count as written is
    /// protected.
    pub(super) since_protected: Stored,
    /// Whether the page was written since soft-dirty was cleared.
    pub(super) since_cleared: Stored,
    pub(super) armed: Armed,
}

impl Mapped {
    /// Creates the state of a newly mapped page.
    pub(super) fn new(rights: Rights, source: Source) -> Self {
        Self {
            rights,
            source,
            own: None,
            otherwise: None,
            may_have_copied: false,
            on_fork: OnFork::default(),
            guard: false,
            sealed: false,
            watch: None,
            since_protected: Stored::Maybe,
            since_cleared: Stored::Maybe,
            armed: Armed::No,
        }
    }

    /// Returns whether userfaultfd write protection refuses a store.
    pub(super) fn is_protected(&self) -> bool {
        let refuses = self.watch.is_some_and(|watch| !watch.asynchronous);
        refuses && self.since_protected == Stored::No
    }

    /// Write-protects the page, or ends its protection. Does not affect a page with a guard marker.
    pub(super) fn protect(&mut self, on: bool) {
        self.since_protected = match on && !self.guard {
            true => Stored::No,
            false => Stored::Maybe,
        };
    }

    pub(super) fn stored(&mut self) {
        (self.since_protected, self.since_cleared) = (Stored::Yes, Stored::Yes);
        self.armed = Armed::No;
    }

    /// Returns whether this is a mapping of the object `which` at one of `indices`.
    pub(super) fn shows(&self, which: ObjectNumber, indices: core::ops::Range<u64>) -> bool {
        let shown = self.source.object();
        shown.is_some_and(|(object, index)| object == which && indices.contains(&index))
    }

    /// Discards the contents on request of the process. Write protection survives, except on anonymous memory.
    pub(super) fn dropped(&mut self) {
        (self.own, self.otherwise) = (None, None);
        self.armed = Armed::No;
        self.since_cleared.lose();
        if self.source == Source::Anonymous || self.since_protected == Stored::Yes {
            self.since_protected.lose();
        }
    }

    /// Allows the contents to be discarded until the page is written again (`MADV_FREE`). A page without stored
    /// contents may be a zeroed page of a folio, so it can be discarded too, and then loses its write protection.
    pub(super) fn may_go(&mut self) {
        self.otherwise = Some(None);
        if self.own.is_some() {
            self.since_cleared.lose();
        }
    }

    /// Updates the state of a page that `mremap` has moved: the page is no longer registered with a userfaultfd.
    pub(super) fn moved(&mut self) {
        (self.watch, self.armed) = (None, Armed::No);
        self.since_protected.lose();
        self.since_cleared.lose();
    }
}
