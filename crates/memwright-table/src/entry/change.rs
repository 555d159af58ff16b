//! The classes of entry changes, and the invalidations that each class needs.

use super::{Bits, Entry, Present};

/// The class of an entry change, by its effect on translations that CPUs may have cached (rule: flush-what-shrank).
///
/// | Change | This CPU | Other CPUs | Frame reuse |
/// |---|---|---|---|
/// | `Same`, `Filled` | nothing | nothing | |
/// | `Grew` | invalidate, if page by page | nothing | |
/// | `Shrank`, `LostCachedBit` | invalidate | invalidate | |
/// | `Moved`, `Resized`, `Freed` | invalidate | invalidate | after both |
/// | `TableFreed` | invalidate all, including upper levels | invalidate all, including upper levels | after both |
// The variants are in ascending order of the invalidations that they need, so that `needs_local` and `needs_remote` are
// one comparison each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// The MMU reads the same translation before and after the change, or reads none before and none after.
    Same,
    /// A page is mapped where the entry was not present. x86-64 does not cache entries that are not present (Intel SDM
    /// volume 3A, "Caching Translation Information").
    Filled,
    /// The frame and size stay, and each right is kept or gained. A CPU that has cached the old rights faults, reads
    /// the new rights from the table and retries.
    Grew,
    /// A right was lost, even if another was gained.
    Shrank,
    /// Another frame is mapped.
    Moved,
    /// A page of another size is mapped.
    Resized,
    /// The translation was removed.
    Freed,
    /// The accessed or dirty bit was cleared. A CPU that has cached the bit as set would not set it again.
    LostCachedBit,
    /// A table was freed: page walks in progress may be using it (rule: flush-freed-tables).
    TableFreed,
}

impl Change {
    /// The number of variants.
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

    /// The index of the variant in [`Change::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether other CPUs must invalidate the translation before the operation returns.
    #[inline]
    pub const fn needs_remote(self) -> bool {
        self as u8 >= Change::Shrank as u8
    }

    /// Whether this CPU must invalidate the translation before the operation returns. Also true for `Grew`, although
    /// that invalidation is optional: it only avoids spurious faults.
    #[inline]
    pub const fn needs_local(self) -> bool {
        self as u8 >= Change::Grew as u8
    }

    /// Whether the old frame may be reused only after every CPU has invalidated the translation.
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

/// Classifies the replacement of `old` by `new` in one slot. The class decides what must be flushed.
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

/// Returns the page of the entry if the MMU would use the entry, otherwise `None`.
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

/// Classifies a change in which the frame and size of a page stay the same. The old bits contain `READ`.
#[cfg_attr(feature = "inline", inline(always))]
pub(crate) const fn change_bits(old: Bits, new: Bits) -> Change {
    let (lost, gained) = (old.difference(new), new.difference(old));
    // A changed protection key counts as a lost right. Each CPU sets the rights of each key (PKRU), so the new key may
    // have fewer rights than the old one. A changed cache mode counts as a lost right too, because no CPU may use the
    // old mode.
    if lost.intersects(Bits::PROTECTION.union(Bits::CACHE)) {
        Change::Shrank
    } else if lost.intersects(Bits::ACCESSED.union(Bits::DIRTY)) {
        Change::LostCachedBit
    } else if gained.intersects(Bits::KEY.union(Bits::CACHE)) {
        Change::Shrank
    } else if gained.intersects(Bits::RIGHTS) {
        Change::Grew
    } else {
        Change::Same
    }
}
