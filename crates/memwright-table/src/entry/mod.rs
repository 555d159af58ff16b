//! What one page-table entry means, without a single bit of its encoding.
//!
//! The encoding is in `x86_64.rs`, and nowhere else: what needs a bit asks for its meaning here.

mod change;
#[cfg(test)]
mod tests;
pub(crate) mod x86_64;

pub use change::{Change, change};

use bitflags::bitflags;

use crate::addr::{Frame, Page, PageSize};

bitflags! {
    /// Rights and state of a page that an entry maps or stands for.
    ///
    /// The values are those of the architecture's encoding, so that decoding is a mask; only
    /// the names mean anything outside `entry`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Bits: u64 {
        /// Accessible at all. Without it a [`Present`] entry keeps its frame but every access
        /// faults (`PROT_NONE`, NUMA hinting).
        const READ = x86_64::READ;
        /// Writable.
        const WRITE = x86_64::WRITE;
        /// Executable.
        const EXECUTE = x86_64::NO_EXECUTE;
        /// Accessed, as the hardware records it. Set it in a new entry that is used at once.
        const ACCESSED = x86_64::ACCESSED;
        /// Written, as the hardware records it.
        const DIRTY = x86_64::DIRTY;
        /// Only this entry reaches the anonymous page (design rule 5).
        const EXCLUSIVE = x86_64::EXCLUSIVE;
        /// Written since soft-dirty was last cleared.
        const SOFT_DIRTY = x86_64::SOFT_DIRTY;
        /// Write-protected through userfaultfd.
        const UFFD_WP = x86_64::UFFD_WP;
        /// A NUMA hinting entry: without `READ` for that reason alone.
        const HINT = x86_64::HINT;
        /// The entry holds no reference of its frame: the shared zero frame.
        const BORROWED = x86_64::BORROWED;
        /// The frame is a merged one.
        const MERGED = x86_64::MERGED;
        /// Was dirty before somebody cleared `DIRTY` (rule 9).
        const FOLDED_DIRTY = x86_64::FOLDED_DIRTY;
        /// Was accessed before somebody cleared `ACCESSED` (rule 9).
        const FOLDED_ACCESSED = x86_64::FOLDED_ACCESSED;
        /// Write-protected through userfaultfd, and as writable as it was: `DIRTY`, which was clear then, tells of a
        /// store (rule 9). Without `UFFD_WP`.
        const WATCHED = x86_64::WATCHED;
        /// The protection key: a number, by which each CPU may refuse what the other rights allow.
        const KEY = x86_64::KEY;
    }

    /// What a marker says of memory that is not mapped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Marks: u8 {
        /// Write-protected through userfaultfd: what is mapped here inherits it.
        const UFFD_WP = 1 << 0;
        /// A guard region: every access is refused (`MADV_GUARD_INSTALL`).
        const GUARD = 1 << 1;
        /// The page was lost: every access is a bus error (`UFFDIO_POISON`).
        const POISON = 1 << 2;
    }
}

impl Bits {
    /// The rights: read, write and execute.
    pub const RIGHTS: Bits = Bits::READ.union(Bits::WRITE).union(Bits::EXECUTE);
    /// What a protection change decides on: the rights and the protection key. An entry that was without rights to
    /// tell who uses the page tells no more.
    pub const PROTECTION: Bits = Bits::RIGHTS.union(Bits::KEY).union(Bits::HINT);
    /// What a swapped or migrating entry can carry.
    pub const CARRIED: Bits = Bits::EXCLUSIVE
        .union(Bits::SOFT_DIRTY)
        .union(Bits::UFFD_WP)
        .union(Bits::MERGED)
        .union(Bits::FOLDED_DIRTY)
        .union(Bits::FOLDED_ACCESSED)
        .union(Bits::WATCHED);
}

impl Bits {
    /// Those of the protection key `key`, of which the lowest 4 bits count.
    #[inline]
    pub const fn of_key(key: u8) -> Self {
        Self::from_bits_truncate(((key & 0xf) as u64) << x86_64::KEY_SHIFT)
    }

    /// The protection key.
    #[inline]
    pub const fn key(self) -> u8 {
        ((self.bits() & x86_64::KEY) >> x86_64::KEY_SHIFT) as u8
    }
}

/// A page that an entry maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// The frame, the first of several if the page is huge.
    pub frame: Frame,
    /// How much the entry maps.
    pub size: PageSize,
    /// Rights and state.
    pub bits: Bits,
}

impl Present {
    /// The frame that shows `page`, one of those that the entry maps.
    #[inline]
    pub const fn frame_of(&self, page: Page) -> Frame {
        let inside = page.number() & (self.size.pages() - 1);
        Frame::new(self.frame.number() + inside as u32)
    }
}

/// A page in swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swapped {
    /// Where: below 2^40 (see [`Swapped::SLOTS`]).
    pub slot: u64,
    /// State that survives swap: within [`Bits::CARRIED`].
    pub bits: Bits,
}

impl Swapped {
    /// Slots are numbered below this.
    pub const SLOTS: u64 = 1 << 40;
}

/// A page whose frame is being replaced. The entry holds a reference of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrating {
    /// The old frame.
    pub frame: Frame,
    /// How much the entry maps.
    pub size: PageSize,
    /// State that survives migration: within [`Bits::CARRIED`], and `WRITE` if it was writable.
    pub bits: Bits,
}

/// A marker: nothing is mapped here, and there is something to say about it. It may stand in a
/// directory too, for all that lies below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// What it says. Never empty.
    pub marks: Marks,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing is mapped.
    Empty,
    /// Nothing is mapped; see the marks.
    Marker(Marker),
    /// The page is in swap.
    Swapped(Swapped),
    /// The page's frame is being replaced.
    Migrating(Migrating),
    /// A page is mapped, perhaps without any right.
    Present(Present),
}

impl Entry {
    /// A 4 KiB page.
    #[inline]
    pub const fn page(frame: Frame, bits: Bits) -> Self {
        Entry::Present(Present {
            frame,
            size: PageSize::Size4K,
            bits,
        })
    }

    /// A marker, or `Empty` if there are no marks.
    #[inline]
    pub const fn marker(marks: Marks) -> Self {
        if marks.is_empty() {
            Entry::Empty
        } else {
            Entry::Marker(Marker { marks })
        }
    }

    /// The page, if one is mapped.
    #[inline]
    pub const fn present(self) -> Option<Present> {
        match self {
            Entry::Present(present) => Some(present),
            Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => None,
        }
    }

    /// Whether a reference of a frame belongs to the entry, and of which.
    #[inline]
    pub const fn counted_frame(self) -> Option<Frame> {
        match self {
            Entry::Present(Present {
                frame,
                bits,
                size: _,
            }) => {
                if bits.contains(Bits::BORROWED) {
                    None
                } else {
                    Some(frame)
                }
            }
            Entry::Migrating(Migrating { frame, .. }) => Some(frame),
            Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) => None,
        }
    }
}
