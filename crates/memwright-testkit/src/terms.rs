//! Types that [scripts](crate::script) and the [model](crate::model) share: rights, advice, and kinds of access.

/// The access rights of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Loads are permitted. On x86-64, any other right implies this one.
    pub read: bool,
    /// Stores are permitted.
    pub write: bool,
    /// Instruction fetches are permitted.
    pub execute: bool,
}

impl Rights {
    /// No access.
    pub const NONE: Self = Self {
        read: false,
        write: false,
        execute: false,
    };
    /// Reading.
    pub const READ: Self = Self {
        read: true,
        write: false,
        execute: false,
    };
    /// Reading and writing.
    pub const READ_WRITE: Self = Self {
        read: true,
        write: true,
        execute: false,
    };
    /// Reading and fetching.
    pub const READ_EXECUTE: Self = Self {
        read: true,
        write: false,
        execute: true,
    };

    /// Returns whether loads succeed.
    #[must_use]
    pub fn any(self) -> bool {
        self.read || self.write || self.execute
    }
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Fetch,
}

/// Advice for `madvise`. Some of it has no effect that a program can observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_DONTNEED`
    Drop,
    /// `MADV_FREE`: the contents can be discarded when memory is short.
    Free,
    /// `MADV_POPULATE_READ`
    PopulateRead,
    /// `MADV_POPULATE_WRITE`
    PopulateWrite,
    /// `MADV_DONTFORK`
    OmitOnFork,
    /// `MADV_DOFORK`
    InheritOnFork,
    /// `MADV_WIPEONFORK`
    WipeOnFork,
    /// `MADV_KEEPONFORK`
    KeepOnFork,
    /// `MADV_GUARD_INSTALL`
    InstallGuard,
    /// `MADV_GUARD_REMOVE`
    RemoveGuard,
    /// `MADV_HUGEPAGE`
    WantHuge,
    /// `MADV_NOHUGEPAGE`
    RefuseHuge,
    /// `MADV_COLD`
    Cold,
    /// `MADV_PAGEOUT`
    PageOut,
    /// `MADV_MERGEABLE`
    Mergeable,
    /// `MADV_UNMERGEABLE`
    Unmergeable,
}

impl Advice {
    /// Every advice.
    pub const ALL: [Self; 16] = [
        Self::Drop,
        Self::Free,
        Self::PopulateRead,
        Self::PopulateWrite,
        Self::OmitOnFork,
        Self::InheritOnFork,
        Self::WipeOnFork,
        Self::KeepOnFork,
        Self::InstallGuard,
        Self::RemoveGuard,
        Self::WantHuge,
        Self::RefuseHuge,
        Self::Cold,
        Self::PageOut,
        Self::Mergeable,
        Self::Unmergeable,
    ];
}

/// A request to move or resize a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remap {
    /// The first page of the old range.
    pub from: u64,
    /// The length of the old range in pages.
    pub pages: u64,
    /// The length of the new range in pages.
    pub new_pages: u64,
    /// The first page of the new range (`MREMAP_FIXED`), or `None` for any range.
    pub to: Option<u64>,
    /// Whether the old range stays mapped, without pages (`MREMAP_DONTUNMAP`).
    pub keep: bool,
}

/// The userfaultfd that a page is registered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The number of the userfaultfd.
    pub number: usize,
    /// Whether a store to a protected page is recorded and continues (`UFFD_FEATURE_WP_ASYNC`). Otherwise it is
    /// refused.
    pub asynchronous: bool,
    /// Whether the handler fills pages that were never accessed (`UFFDIO_REGISTER_MODE_MISSING`).
    pub fills: bool,
    /// Whether the page is registered for read-write protection instead of write protection
    /// (`UFFDIO_REGISTER_MODE_RWP`).
    pub accesses: bool,
}
