//! What happened to an entry, and what the CPUs must do about it.

use super::{Bits, Entry, Present};

/// What a change did to what the hardware may have cached (design rule 1).
///
/// | Change | This CPU | Other CPUs | Frame reuse |
/// |---|---|---|---|
/// | `Same`, `Filled` | nothing | nothing | |
/// | `Grew` | invalidate, if a page at a time | nothing | |
/// | `Shrank`, `LostCachedBit` | invalidate | invalidate | |
/// | `Moved`, `Resized`, `Freed` | invalidate | invalidate | after both |
/// | `TableFreed` | invalidate all, upper levels too | the same | after both |
// In order of what each needs, so that one comparison tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// Nothing that hardware can see, or nothing it can have cached.
    Same,
    /// Where hardware saw nothing there is a page. x86-64 caches nothing that is not present
    /// (Intel SDM volume 3A, "Caching Translation Information").
    Filled,
    /// The same frame and size, and every right the same or more. A CPU with the old rights
    /// faults, finds them in the table and retries.
    Grew,
    /// A right was lost, perhaps while another was won.
    Shrank,
    /// Another frame.
    Moved,
    /// Another size.
    Resized,
    /// The translation is gone.
    Freed,
    /// Accessed or dirty was cleared: a CPU that cached it set would not set it again.
    LostCachedBit,
    /// A table is gone: walks in progress may be inside it (rule 3).
    TableFreed,
}

impl Change {
    /// How many variants there are.
    pub const COUNT: usize = 9;

    /// Every variant, in the order of [`Change::index`].
    pub const ALL: [Change; Change::COUNT] = [
        Change::Same,
        Change::Filled,
        Change::Grew,
        Change::Shrank,
        Change::Moved,
        Change::Resized,
        Change::Freed,
        Change::LostCachedBit,
        Change::TableFreed,
    ];

    /// Its place in [`Change::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether other CPUs must forget before the operation returns.
    #[inline]
    pub const fn needs_remote(self) -> bool {
        match self {
            Change::Same | Change::Grew | Change::Filled => false,
            Change::Shrank
            | Change::Moved
            | Change::Resized
            | Change::Freed
            | Change::LostCachedBit
            | Change::TableFreed => true,
        }
    }

    /// Whether this CPU must, or for `Grew` should, forget before the operation returns.
    #[inline]
    pub const fn needs_local(self) -> bool {
        match self {
            Change::Same | Change::Filled => false,
            Change::Grew
            | Change::Shrank
            | Change::Moved
            | Change::Resized
            | Change::Freed
            | Change::LostCachedBit
            | Change::TableFreed => true,
        }
    }

    /// Whether the old frame may be reused only after every CPU forgot.
    #[inline]
    pub const fn holds_frame(self) -> bool {
        match self {
            Change::Same
            | Change::Grew
            | Change::Filled
            | Change::Shrank
            | Change::LostCachedBit => false,
            Change::Moved | Change::Resized | Change::Freed | Change::TableFreed => true,
        }
    }

    /// The name used in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Change::Same => "same",
            Change::Grew => "grew",
            Change::Shrank => "shrank",
            Change::Moved => "moved",
            Change::Resized => "resized",
            Change::Freed => "freed",
            Change::LostCachedBit => "lost_cached_bit",
            Change::TableFreed => "table_freed",
            Change::Filled => "filled",
        }
    }
}

/// What the exchange of `old` for `new` in one slot means to hardware.
pub const fn change(old: Entry, new: Entry) -> Change {
    match (visible(old), visible(new)) {
        (None, None) => Change::Same,
        (None, Some(new)) => match old {
            Entry::Present(old) if same_place(old, new) => Change::Grew,
            Entry::Present(_)
            | Entry::Empty
            | Entry::Marker(_)
            | Entry::Swapped(_)
            | Entry::Migrating(_) => Change::Filled,
        },
        (Some(old), None) => match new {
            Entry::Present(new) if same_place(old, new) => Change::Shrank,
            Entry::Present(_)
            | Entry::Empty
            | Entry::Marker(_)
            | Entry::Swapped(_)
            | Entry::Migrating(_) => Change::Freed,
        },
        (Some(old), Some(new)) => change_visible(old, new),
    }
}

/// The page, if hardware would use the entry.
const fn visible(entry: Entry) -> Option<Present> {
    match entry {
        Entry::Present(page) if page.bits.contains(Bits::READ) => Some(page),
        Entry::Present(_)
        | Entry::Empty
        | Entry::Marker(_)
        | Entry::Swapped(_)
        | Entry::Migrating(_) => None,
    }
}

const fn same_place(old: Present, new: Present) -> bool {
    old.frame.number() == new.frame.number() && old.size as u8 == new.size as u8
}

const fn change_visible(old: Present, new: Present) -> Change {
    if old.size as u8 != new.size as u8 {
        return Change::Resized;
    }
    if old.frame.number() != new.frame.number() {
        return Change::Moved;
    }
    change_bits(old.bits, new.bits)
}

/// The same for two pages that hardware sees, or saw, and that differ in nothing but their bits.
/// The old one had `READ`.
#[inline(always)]
pub(crate) const fn change_bits(old: Bits, new: Bits) -> Change {
    let (lost, gained) = (old.difference(new), new.difference(old));
    // Of two protection keys neither permits more than the other: that is for each CPU to say.
    if lost.intersects(Bits::PROTECTION) {
        Change::Shrank
    } else if lost.intersects(Bits::ACCESSED.union(Bits::DIRTY)) {
        Change::LostCachedBit
    } else if gained.intersects(Bits::KEY) {
        Change::Shrank
    } else if gained.intersects(Bits::RIGHTS) {
        Change::Grew
    } else {
        Change::Same
    }
}
