//! The kinds of advice (Linux 7.2 `include/uapi/asm-generic/mman-common.h`).

/// The advice that a program gives about its memory (`madvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The contents are not needed: discard the pages at once (`MADV_DONTNEED`).
    DontNeed,
    /// Like `DontNeed`, for locked memory too (`MADV_DONTNEED_LOCKED`).
    DontNeedLocked,
    /// The contents are not needed: discard the pages under memory pressure (`MADV_FREE`).
    Free,
    /// Punch a hole in the object (`MADV_REMOVE`).
    Remove,
    /// Do not map the range in a child process (`MADV_DONTFORK`).
    DontFork,
    /// Map the range in a child process (`MADV_DOFORK`).
    DoFork,
    /// Give a child process zeroed memory (`MADV_WIPEONFORK`).
    WipeOnFork,
    /// Give a child process the contents (`MADV_KEEPONFORK`).
    KeepOnFork,
    /// Exclude the range from core dumps (`MADV_DONTDUMP`).
    DontDump,
    /// Include the range in core dumps (`MADV_DODUMP`).
    DoDump,
    /// Fault in the pages for reading (`MADV_POPULATE_READ`).
    PopulateRead,
    /// Fault in the pages for writing (`MADV_POPULATE_WRITE`).
    PopulateWrite,
    /// Make every access fault (`MADV_GUARD_INSTALL`).
    GuardInstall,
    /// Remove guards (`MADV_GUARD_REMOVE`).
    GuardRemove,
    /// Reclaim these pages before others (`MADV_COLD`).
    Cold,
    /// Reclaim the pages now (`MADV_PAGEOUT`): swap them out, write them back, or discard them if they are droppable.
    /// Pages that cannot leave memory stay: see [`Advised::Done`](crate::Advised::Done).
    PageOut,
    /// Use huge pages (`MADV_HUGEPAGE`).
    Huge,
    /// Do not use huge pages (`MADV_NOHUGEPAGE`).
    NotHuge,
    /// Collapse the current pages into huge pages (`MADV_COLLAPSE`).
    Collapse,
    /// Allow merging pages with equal contents (`MADV_MERGEABLE`).
    Mergeable,
    /// Do not merge pages, and unmerge those that are merged (`MADV_UNMERGEABLE`).
    Unmergeable,
    /// Expect no particular access pattern (`MADV_NORMAL`).
    Normal,
    /// Expect random access (`MADV_RANDOM`).
    Random,
    /// Expect sequential access (`MADV_SEQUENTIAL`).
    Sequential,
    /// Expect access soon (`MADV_WILLNEED`).
    Hint,
}

impl Advice {
    /// Returns whether the advice discards contents: at once, under memory pressure or in a child (Linux 7.2
    /// `is_discard`). Such advice can be refused for a sealed area.
    pub(crate) fn discards(self) -> bool {
        match self {
            Self::DontNeed
            | Self::DontNeedLocked
            | Self::Free
            | Self::Remove
            | Self::DontFork
            | Self::WipeOnFork
            | Self::GuardInstall => true,
            Self::DoFork
            | Self::KeepOnFork
            | Self::DontDump
            | Self::DoDump
            | Self::PopulateRead
            | Self::PopulateWrite
            | Self::GuardRemove
            | Self::Cold
            | Self::PageOut
            | Self::Huge
            | Self::NotHuge
            | Self::Collapse
            | Self::Mergeable
            | Self::Unmergeable
            | Self::Normal
            | Self::Random
            | Self::Sequential
            | Self::Hint => false,
        }
    }
}
