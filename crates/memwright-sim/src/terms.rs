//! What a step asks of memory, in the words that a [script](crate::script) prints and the [model](crate::model) takes.

/// What a mapping permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Loads. On x86-64 any other right includes it.
    pub read: bool,
    /// Stores.
    pub write: bool,
    /// Instruction fetches.
    pub execute: bool,
}

impl Rights {
    /// Nothing.
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

    /// Whether loads succeed.
    #[must_use]
    pub fn any(self) -> bool {
        self.read || self.write || self.execute
    }
}

/// What an access does to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Loads.
    Read,
    /// Stores.
    Write,
    /// Fetches an instruction.
    Fetch,
}

/// Advice that changes contents or what a fork does, and such that no program sees followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_DONTNEED`
    Drop,
    /// `MADV_FREE`: the contents stay, or go when memory is short.
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

/// A request to move or resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remap {
    /// The first page of the old range.
    pub from: u64,
    /// Its length.
    pub pages: u64,
    /// The length of the new range.
    pub new_pages: u64,
    /// Where it must go (`MREMAP_FIXED`).
    pub to: Option<u64>,
    /// Whether the old range stays mapped, empty (`MREMAP_DONTUNMAP`).
    pub keep: bool,
}

/// Who watches a page through userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Names the descriptor.
    pub number: usize,
    /// A store is noted, and goes on (`UFFD_FEATURE_WP_ASYNC`); otherwise it is refused.
    pub asynchronous: bool,
    /// It says what a page contains that nobody touched.
    pub fills: bool,
}
