//! Decoded page-table entries, independent of their encoding.
//!
//! Only the folder `arch` contains encodings. The loops of `table` over many entries use encoded words through the
//! functions of `arch`; all other code uses the types of this module.

mod change;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

pub(crate) use change::change_bits;
pub use change::{Change, change};

use bitflags::bitflags;

use crate::addr::{Frame, Page, PageSize};

const KEY_SHIFT: u32 = 59;
const CACHE_SHIFT: u32 = 3;

bitflags! {
    /// The rights and state of a page, in a present, swap or migration entry.
    ///
    /// The values are the bits of the encoding in words, which is the same for every architecture, so that decoding is
    /// a mask. Only that encoding depends on the values.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Bits: u64 {
        /// Readable. Without this bit, a [`Present`] entry keeps its frame but every access faults (`PROT_NONE`, NUMA
        /// hinting).
        const READ = 1 << 0;
        /// Writable.
        const WRITE = 1 << 1;
        /// Executable.
        const EXECUTE = 1 << 63;
        /// The accessed bit, which hardware sets. Set it in a new entry whose page is about to be accessed.
        const ACCESSED = 1 << 5;
        /// The dirty bit, which hardware sets.
        const DIRTY = 1 << 6;
        /// Exclusive: no other entry maps the anonymous page (rule: exclusive-in-the-entry).
        const EXCLUSIVE = 1 << 9;
        /// Written since soft-dirty was last cleared.
        const SOFT_DIRTY = 1 << 10;
        /// Write-protected through userfaultfd (uffd-wp). In an area that is registered for read-write protection, it
        /// means read-write-protected, and the entry has no rights.
        const UFFD_WP = 1 << 11;
        /// A NUMA hint entry. It lacks `READ` only because it is a hint.
        const HINT = 1 << 52;
        /// A special entry, which holds no reference to its frame: the shared zero page, or device memory.
        const BORROWED = 1 << 53;
        /// The frame is a KSM frame.
        const MERGED = 1 << 54;
        /// The software dirty bit: `DIRTY` was set and has been cleared (rule: fold-before-clearing).
        const FOLDED_DIRTY = 1 << 55;
        /// The software accessed bit: `ACCESSED` was set and has been cleared (rule: fold-before-clearing).
        const FOLDED_ACCESSED = 1 << 56;
        /// Write-protected through userfaultfd by dirty tracking. The entry keeps its right to write. `DIRTY` was
        /// cleared when this bit was set, so `DIRTY` reports a later store (rule: fold-before-clearing). Not combined
        /// with `UFFD_WP`.
        const WATCHED = 1 << 57;
        /// Read-write-protected through userfaultfd by access tracking. The entry keeps its rights. `ACCESSED` was
        /// cleared when this bit was set, so `ACCESSED` reports a later access. Code that clears a set `ACCESSED` also
        /// clears this bit (rule: fold-before-clearing).
        const IDLE = 1 << 58;
        /// The protection key. Each CPU can deny accesses to the pages with a key even if the other rights allow them.
        const KEY = 0xf << KEY_SHIFT;
        /// How the processor caches the page ([`CacheMode`]). Empty for memory that the allocator manages. Only an
        /// entry of device memory, which is also `BORROWED`, has one of these bits (rule: device-memory-is-borrowed).
        const CACHE = 0b11 << CACHE_SHIFT;
    }

    /// The properties that a marker gives to memory that is not mapped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Marks: u8 {
        /// Write-protected through userfaultfd. A page that is mapped here later inherits the protection.
        const UFFD_WP = 1 << 0;
        /// A guard region: every access faults (`MADV_GUARD_INSTALL`).
        const GUARD = 1 << 1;
        /// The page was lost: every access raises `SIGBUS` (`UFFDIO_POISON`).
        const POISON = 1 << 2;
    }
}

impl Bits {
    /// The rights: read, write and execute.
    pub const RIGHTS: Bits = Bits::READ.union(Bits::WRITE).union(Bits::EXECUTE);
    /// The bits that a protection change replaces: the rights, the protection key, and the NUMA hint. An entry whose
    /// rights were replaced is no longer a hint.
    pub const PROTECTION: Bits = Bits::RIGHTS.union(Bits::KEY).union(Bits::HINT);
    /// The bits that a swapped or migrating entry can carry.
    pub const CARRIED: Bits = Bits::EXCLUSIVE
        .union(Bits::SOFT_DIRTY)
        .union(Bits::UFFD_WP)
        .union(Bits::MERGED)
        .union(Bits::FOLDED_DIRTY)
        .union(Bits::FOLDED_ACCESSED)
        .union(Bits::WATCHED)
        .union(Bits::IDLE);
}

impl Bits {
    /// Returns `IDLE` if both `IDLE` and `ACCESSED` are set, otherwise no bit. An operation that clears `ACCESSED` must
    /// also clear the returned bit (rule: fold-before-clearing).
    #[inline]
    pub const fn past_idle(self) -> Self {
        self.difference(self.without_past_idle())
    }

    /// Returns the bits without `IDLE` if `ACCESSED` is set, otherwise all bits. For operations that clear `ACCESSED`
    /// (rule: fold-before-clearing).
    #[inline]
    pub const fn without_past_idle(self) -> Self {
        if self.contains(Self::ACCESSED) {
            self.difference(Self::IDLE)
        } else {
            self
        }
    }

    /// The bits that encode the protection key `key`. Only the lowest 4 bits of `key` are used.
    #[inline]
    pub const fn of_key(key: u8) -> Self {
        Self::from_bits_truncate(((key & 0xf) as u64) << KEY_SHIFT)
    }

    /// The protection key.
    #[inline]
    pub const fn key(self) -> u8 {
        ((self.bits() & Self::KEY.bits()) >> KEY_SHIFT) as u8
    }
}

/// How the processor caches device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheMode {
    /// Like ordinary memory. The device must keep the caches coherent.
    WriteBack,
    /// Loads are not cached. The processor may delay stores and combine them, as suits a frame buffer. The mode needs a
    /// machine that [has it](crate::Machine::has_write_combining).
    WriteCombining,
    /// Each load and store reaches the device, in the order of the program, as the registers of a device require.
    Uncached,
}

impl CacheMode {
    /// Every variant.
    pub const ALL: [CacheMode; 3] = [
        CacheMode::WriteBack,
        CacheMode::WriteCombining,
        CacheMode::Uncached,
    ];
}

impl Bits {
    /// The bits that encode the cache mode `mode`.
    pub const fn of_cache(mode: CacheMode) -> Self {
        let value = match mode {
            CacheMode::WriteBack => 0b00,
            CacheMode::WriteCombining => 0b01,
            CacheMode::Uncached => 0b11,
        };
        Self::from_bits_truncate(value << CACHE_SHIFT)
    }

    /// The cache mode. `None` if the bits encode another memory type, which no entry of this crate has.
    pub fn cache(self) -> Option<CacheMode> {
        let bits = self.intersection(Self::CACHE);
        CacheMode::ALL
            .into_iter()
            .find(|mode| Self::of_cache(*mode) == bits)
    }
}

/// A page that an entry maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// The frame. For a huge page, its first frame.
    pub frame: Frame,
    /// The size of the page.
    pub size: PageSize,
    /// The rights and the state of the page.
    pub bits: Bits,
}

impl Present {
    /// Returns the frame of `page`, which must be one of the pages that the entry maps.
    #[inline]
    pub const fn frame_of(&self, page: Page) -> Frame {
        let inside = page.number() & (self.size.pages() - 1);
        Frame::new(self.frame.number() + inside as u32)
    }
}

/// A page in swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swapped {
    /// The slot, below 2^40 (see [`Swapped::SLOTS`]).
    pub slot: u64,
    /// The state that survives swapping: a subset of [`Bits::CARRIED`].
    pub bits: Bits,
}

impl Swapped {
    /// The limit of slot numbers: every slot number is below it.
    pub const SLOTS: u64 = 1 << 40;
}

/// A page whose frame is being replaced. The entry holds a reference to the old frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrating {
    /// The old frame.
    pub frame: Frame,
    /// The size of the page.
    pub size: PageSize,
    /// The state that survives migration: a subset of [`Bits::CARRIED`], plus `WRITE` if the page was writable.
    pub bits: Bits,
}

/// A marker: nothing is mapped here, but marks apply. A marker above the lowest level applies to the whole range of its
/// entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The marks. Never empty.
    pub marks: Marks,
}

/// A page-table entry, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing is mapped.
    Empty,
    /// Nothing is mapped, but marks apply to the pages.
    Marker(Marker),
    /// The page is in swap.
    Swapped(Swapped),
    /// The page's frame is being replaced.
    Migrating(Migrating),
    /// A page is mapped, possibly without rights.
    Present(Present),
}

// The operations on entries rely on a layout without padding beyond one word for the kind.
const _: () = assert!(size_of::<Entry>() == 24 && size_of::<Present>() == 16);

impl Entry {
    /// An entry that maps a 4 KiB page.
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

    /// Returns the frame to which the entry holds a reference, if any.
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
