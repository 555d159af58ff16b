//! Tests of the decision table of changes.

use proptest::prelude::*;

use super::samples::{A, D, MARKER, R, SWAPPED, UC, W, WC, X, huge, migrating, page};
use super::{Bits, Change, Entry, change};

#[test]
fn what_each_change_is() {
    let none = Bits::empty();
    let table = [
        // Not present, before and after.
        (Entry::Empty, Entry::Empty, Change::Same),
        (Entry::Empty, MARKER, Change::Same),
        (MARKER, SWAPPED, Change::Same),
        (page(1, none), page(1, W), Change::Same),
        (page(1, none), Entry::Empty, Change::Same),
        (page(1, none), page(2, none), Change::Same),
        // Not present before, present after.
        (Entry::Empty, page(1, R), Change::Filled),
        (MARKER, page(1, R), Change::Filled),
        (SWAPPED, page(1, R | W), Change::Filled),
        (migrating(1), page(2, R), Change::Filled),
        (migrating(1), page(1, R), Change::Filled),
        (page(1, none), page(2, R), Change::Filled),
        // The same page, with each right kept or gained.
        (page(1, none), page(1, R), Change::Grew),
        (page(1, R), page(1, R | W), Change::Grew),
        (page(1, R | W), page(1, R | W | X), Change::Grew),
        (page(1, R | A), page(1, R | A | W | D), Change::Grew),
        (page(1, R | W), page(1, R | W | A | D), Change::Same),
        (page(1, R), page(1, R | Bits::UFFD_WP), Change::Same),
        (page(1, R | Bits::EXCLUSIVE), page(1, R), Change::Same),
        (huge(512, R), huge(512, R | W), Change::Grew),
        // A right is lost, even if another is gained.
        (page(1, R | W), page(1, R), Change::Shrank),
        (page(1, R | X), page(1, R | W), Change::Shrank),
        (page(1, R | W), page(1, R | X), Change::Shrank),
        (page(1, R), page(1, none), Change::Shrank),
        (page(1, R | W | D), page(1, W | D), Change::Shrank),
        (page(1, R | W | D), page(1, R), Change::Shrank),
        // The protection key changes, even if a right is gained.
        (page(1, R | Bits::of_key(3)), page(1, R), Change::Shrank),
        (page(1, R), page(1, R | W | Bits::of_key(3)), Change::Shrank),
        (
            page(1, R | Bits::of_key(1)),
            page(1, R | Bits::of_key(3)),
            Change::Shrank,
        ),
        (
            page(1, R | Bits::of_key(3)),
            page(1, R | W | Bits::of_key(3)),
            Change::Grew,
        ),
        (page(1, Bits::of_key(3)), page(1, R), Change::Grew),
        // The cache mode changes, even if a right is gained.
        (page(1, R | UC), page(1, R), Change::Shrank),
        (page(1, R), page(1, R | W | UC), Change::Shrank),
        (page(1, R | UC), page(1, R | W | WC), Change::Shrank),
        (page(1, R | WC), page(1, R | UC), Change::Shrank),
        (page(1, R | UC), page(1, R | W | UC), Change::Grew),
        // A bit that hardware caches is cleared.
        (page(1, R | W | D), page(1, R | W), Change::LostCachedBit),
        (page(1, R | A), page(1, R), Change::LostCachedBit),
        (page(1, R | A), page(1, R | W), Change::LostCachedBit),
        // Another frame, or another size.
        (page(1, R), page(2, R | W), Change::Moved),
        (page(1, R | W), huge(1, R | W), Change::Resized),
        (huge(512, R), page(512, R), Change::Resized),
        (huge(512, R), page(9, R | W), Change::Resized),
        // The page is unmapped.
        (page(1, R), Entry::Empty, Change::Freed),
        (page(1, R), MARKER, Change::Freed),
        (page(1, R), SWAPPED, Change::Freed),
        (page(1, R), migrating(1), Change::Freed),
        (page(1, R), page(2, none), Change::Freed),
        (huge(512, R), Entry::Empty, Change::Freed),
    ];
    for (old, new, expected) in table {
        assert_eq!(change(old, new), expected, "{old:?} to {new:?}");
    }
}

#[test]
fn what_each_change_needs() {
    // For each change: whether it needs a local invalidation, whether it needs a remote one, and whether the frame may
    // be freed only after both.
    let needs = Change::ALL.map(|c| (c.needs_local(), c.needs_remote(), c.holds_frame()));
    let expected = [
        (Change::Same, (false, false, false)),
        (Change::Filled, (false, false, false)),
        (Change::Grew, (true, false, false)),
        (Change::Shrank, (true, true, false)),
        (Change::Moved, (true, true, true)),
        (Change::Resized, (true, true, true)),
        (Change::Freed, (true, true, true)),
        (Change::LostCachedBit, (true, true, false)),
        (Change::TableFreed, (true, true, true)),
    ];
    for (index, (change, expected)) in expected.into_iter().enumerate() {
        assert_eq!(change.index(), index);
        assert_eq!(needs[index], expected, "{change:?}");
    }
}

fn bits() -> impl Strategy<Value = Bits> {
    any::<u64>().prop_map(Bits::from_bits_truncate)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_grew_has_every_right_it_had(old in bits(), new in bits()) {
        let what = change(page(1, old), page(1, new));
        let (lost, hardware) = ((old & Bits::PROTECTION).difference(new), old.contains(R));
        if what == Change::Grew && hardware {
            prop_assert!(lost.is_empty() && old.key() == new.key() && old.cache() == new.cache());
            prop_assert!((old & (A | D)).difference(new).is_empty());
        }
        let other = hardware && (old.key() != new.key() || old.cache() != new.cache());
        prop_assert!(what.needs_remote() || !other);
        prop_assert_eq!(what == Change::Shrank, hardware && !lost.is_empty() || what == Change::Shrank && other);
    }
}
