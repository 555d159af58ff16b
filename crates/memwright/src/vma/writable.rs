//! The rule that decides whether a page-table entry may be writable now.
//!
//! Write permission is derived each time a page is mapped or its protection changes; it is never remembered. Code that
//! maps a page or changes its protection applies this rule, and grants write permission at once if the rule and the
//! policy allow it. Otherwise the next store would take a fault only to be granted the permission. The conditions that
//! apply to every page are checked first, then those of private pages or those of shared pages (structured like Linux
//! 7.2 `mm/mprotect.c`, `maybe_change_pte_writable` and the two functions below it).
//!
//! The function [`writable`] is pure: its inputs are the properties of the area, in [`View`], and the bits of the
//! entry.

use memwright_table::Bits;

use crate::types::policy::WriteUpgrade;
use crate::types::rights::Rights;
use crate::vma::area::{Area, Backed};

/// The bits of a new anonymous page that is mapped because of a store.
pub(crate) const NEW: Bits = Bits::ACCESSED
    .union(Bits::DIRTY)
    .union(Bits::SOFT_DIRTY)
    .union(Bits::EXCLUSIVE);

/// The properties of an area on which the rule depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The rights of the area.
    pub rights: Rights,
    /// Whether stores through the area reach the object.
    pub shared: bool,
    /// Whether the object must be notified of the first store to a clean page.
    pub notify: bool,
    /// Whether stores are recorded by soft-dirty bits and not by the hardware dirty bit.
    pub soft_dirty: bool,
}

impl<B: Backed> Area<B> {
    /// Returns the properties of the area that decide whether its pages are writable.
    #[inline]
    pub(crate) fn view(&self) -> View {
        let shared = self.is_shared();
        View {
            rights: self.rights,
            shared,
            notify: shared && self.backing.notifies_first_write(),
            soft_dirty: self.watches_stores(),
        }
    }

    /// Returns, for all entries of the area, the bits that follow from the rights, and the rule for the write bit.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn access_and_grant(&self) -> (Bits, Grant) {
        let view = self.view();
        (access_bits(view.rights), Grant::new(view, WriteUpgrade::On))
    }

    /// Returns the bits of an entry of the area for a page with the bits `state`. They include the write bit if the
    /// rule allows it.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn entry_bits(&self, state: Bits) -> Bits {
        let bits = access_bits(self.rights) | state;
        if writable(self.view(), bits).is_writable() {
            bits | Bits::WRITE
        } else {
            bits
        }
    }
}

/// Returns the entry bits of the protection key. This is a separate function because few areas have a key.
#[cold]
#[inline(never)]
fn key_bits(rights: Rights) -> Bits {
    Bits::of_key(rights.key())
}

/// Returns the entry bits that follow from the rights alone, including the protection key. The write bit is excluded,
/// because it is decided for each page.
#[cfg_attr(feature = "inline", inline(always))]
pub(crate) fn access_bits(rights: Rights) -> Bits {
    let read = if rights.is_none() {
        Bits::empty()
    } else {
        Bits::READ
    };
    let execute = if rights.contains(Rights::EXECUTE) {
        Bits::EXECUTE
    } else {
        Bits::empty()
    };
    if rights.key() == 0 {
        read | execute
    } else {
        read | execute | key_bits(rights)
    }
}

/// The result of the rule. If the entry may not be writable, the result gives the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The entry may be writable.
    Writable,
    /// The area does not permit writes.
    NoRight,
    /// The entry is not readable (`PROT_NONE`): every access must fault.
    NotAccessible,
    /// Soft-dirty tracking must detect the next store, and the page is not soft-dirty.
    Tracked,
    /// The entry is write-protected by userfaultfd (uffd-wp).
    UserfaultProtected,
    /// The page may have other users, or it belongs to an object: a store must copy the page.
    NotExclusive,
    /// The object must be notified of the first store.
    MustNotify,
    /// The policy requires a dirty entry, and the entry is clean.
    PolicyWantsDirty,
    /// The policy never grants write permission without a fault.
    PolicyOff,
}

impl Verdict {
    /// Returns whether the entry may be writable.
    #[inline]
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::Writable)
    }
}

/// Returns whether an entry with these bits, in an area with these properties, may be writable. If it may not, the
/// result gives the reason.
///
/// `bits` are the bits that the entry will have. The `WRITE` bit in `bits` is ignored.
#[cfg_attr(feature = "inline", inline(always))]
pub fn writable(view: View, bits: Bits) -> Verdict {
    if !view.rights.contains(Rights::WRITE) {
        return Verdict::NoRight;
    }
    if !bits.contains(Bits::READ) {
        return Verdict::NotAccessible;
    }
    if view.soft_dirty && !bits.contains(Bits::SOFT_DIRTY) {
        return Verdict::Tracked;
    }
    if bits.contains(Bits::UFFD_WP) {
        return Verdict::UserfaultProtected;
    }
    if view.shared {
        shared(view, bits)
    } else {
        private(bits)
    }
}

/// Applies the rule to a private page. It may be writable only if it is exclusive. The shared zero page and pages of an
/// object are never exclusive. The page may be clean (rule: clean-writable-is-private).
#[inline]
fn private(bits: Bits) -> Verdict {
    if bits.contains(Bits::EXCLUSIVE) && !bits.intersects(Bits::BORROWED.union(Bits::MERGED)) {
        Verdict::Writable
    } else {
        Verdict::NotExclusive
    }
}

/// Applies the rule to a shared page. The page may be writable unless the object must be notified of the first store.
/// If the page is dirty, the object has been notified already.
#[inline]
fn shared(view: View, bits: Bits) -> Verdict {
    if view.notify && !bits.contains(Bits::DIRTY) {
        Verdict::MustNotify
    } else {
        Verdict::Writable
    }
}

/// Applies the rule and then `policy`, which can withhold write permission from private pages. Used by changes that
/// need not grant the permission, because a later write fault can grant it.
///
/// A write fault calls [`writable`] itself, since it must grant the permission.
#[inline]
pub fn upgrade(view: View, bits: Bits, policy: WriteUpgrade) -> Verdict {
    let verdict = writable(view, bits);
    if !verdict.is_writable() || view.shared {
        return verdict;
    }
    match policy {
        WriteUpgrade::On => Verdict::Writable,
        WriteUpgrade::Dirty if bits.contains(Bits::DIRTY) => Verdict::Writable,
        WriteUpgrade::Dirty => Verdict::PolicyWantsDirty,
        WriteUpgrade::Off => Verdict::PolicyOff,
    }
}

/// The results of [`upgrade`] for one area and one policy. They are precomputed so that a loop makes one comparison per
/// entry.
///
/// The bits of the entry must contain `READ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    mask: Bits,
    wanted: Bits,
}

impl Grant {
    /// Grants nothing.
    const NEVER: Self = Self {
        mask: Bits::empty(),
        wanted: Bits::WRITE,
    };

    /// Precomputes the results of [`upgrade`] for an area with the properties `view`.
    #[inline]
    pub fn new(view: View, policy: WriteUpgrade) -> Self {
        let withheld = policy == WriteUpgrade::Off && !view.shared;
        if !view.rights.contains(Rights::WRITE) || withheld {
            return Self::NEVER;
        }
        let mut mask = Bits::UFFD_WP;
        let mut wanted = Bits::empty();
        if view.soft_dirty {
            wanted |= Bits::SOFT_DIRTY;
        }
        if view.shared {
            if view.notify {
                wanted |= Bits::DIRTY;
            }
        } else {
            wanted |= Bits::EXCLUSIVE;
            mask |= Bits::BORROWED | Bits::MERGED;
            if policy == WriteUpgrade::Dirty {
                wanted |= Bits::DIRTY;
            }
        }
        Self {
            mask: mask | wanted,
            wanted,
        }
    }

    /// Returns whether an entry with these bits may be writable.
    #[inline]
    pub fn allows(self, bits: Bits) -> bool {
        bits & self.mask == self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: View = View {
        rights: Rights::all(),
        shared: false,
        notify: false,
        soft_dirty: false,
    };
    const SHARED: View = View {
        shared: true,
        ..PRIVATE
    };
    const NOTIFY: View = View {
        notify: true,
        ..SHARED
    };
    const READ_ONLY: View = View {
        rights: Rights::READ,
        ..PRIVATE
    };
    const TRACKED: View = View {
        soft_dirty: true,
        ..PRIVATE
    };

    const R: Bits = Bits::READ;
    const X: Bits = Bits::EXCLUSIVE;
    const D: Bits = Bits::DIRTY;
    const S: Bits = Bits::SOFT_DIRTY;
    const U: Bits = Bits::UFFD_WP;
    const ZERO: Bits = Bits::BORROWED;
    const MERGED: Bits = Bits::MERGED;
    const NONE: Bits = Bits::empty();

    #[test]
    fn the_rule_as_a_table() {
        use Verdict::*;
        #[rustfmt::skip]
        let rows: &[(&str, View, &[Bits], Verdict)] = &[
            ("exclusive anonymous",                  PRIVATE,   &[R, X],       Writable),
            ("exclusive anonymous, dirty",           PRIVATE,   &[R, X, D],    Writable),
            ("shared after fork",                    PRIVATE,   &[R],          NotExclusive),
            ("shared after fork, dirty",             PRIVATE,   &[R, D],       NotExclusive),
            ("the zero frame",                       PRIVATE,   &[R, ZERO],    NotExclusive),
            ("the zero frame never is exclusive",    PRIVATE,   &[R, X, ZERO], NotExclusive),
            ("a merged page is shared by contents",  PRIVATE,   &[R, X, MERGED], NotExclusive),
            ("no right",                             READ_ONLY, &[R, X, D],    NoRight),
            ("without access (PROT_NONE)",           PRIVATE,   &[X, D],       NotAccessible),
            ("soft-dirty tracked, clean",            TRACKED,   &[R, X, D],    Tracked),
            ("soft-dirty tracked, reported already", TRACKED,   &[R, X, S],    Writable),
            ("userfaultfd protects",                 PRIVATE,   &[R, X, D, U], UserfaultProtected),
            ("shared memory",                        SHARED,    &[R],          Writable),
            ("shared memory needs no exclusivity",   SHARED,    &[R, D],       Writable),
            ("shared, userfaultfd protects",         SHARED,    &[R, D, U],    UserfaultProtected),
            ("object must hear, clean",              NOTIFY,    &[R],          MustNotify),
            ("object has heard",                     NOTIFY,    &[R, D],       Writable),
            ("nothing at all",                       NOTIFY,    &[NONE],       NotAccessible),
        ];
        for (name, view, bits, verdict) in rows {
            let bits = bits.iter().fold(NONE, |all, bit| all | *bit);
            assert_eq!(writable(*view, bits), *verdict, "{name}");
        }
    }

    #[test]
    fn a_policy_withholds_only_what_the_rule_grants() {
        for bits in (0..64).map(combination) {
            for view in [PRIVATE, SHARED, NOTIFY, READ_ONLY, TRACKED] {
                let verdict = writable(view, bits);
                assert_eq!(upgrade(view, bits, WriteUpgrade::On), verdict);
                let dirty = upgrade(view, bits, WriteUpgrade::Dirty);
                let off = upgrade(view, bits, WriteUpgrade::Off);
                if view.shared {
                    assert_eq!((dirty, off), (verdict, verdict));
                } else if verdict.is_writable() {
                    assert_eq!(dirty.is_writable(), bits.contains(D));
                    assert_eq!(off, Verdict::PolicyOff);
                } else {
                    assert_eq!((dirty, off), (verdict, verdict));
                }
            }
        }
    }

    #[test]
    fn what_is_not_accessible_or_not_granted_is_never_writable() {
        for bits in (0..64).map(combination) {
            assert!(!writable(READ_ONLY, bits).is_writable());
            if !bits.contains(R) {
                assert!(!writable(SHARED, bits).is_writable());
            }
        }
    }

    #[test]
    fn the_comparison_says_what_the_rule_says() {
        let policies = [WriteUpgrade::Off, WriteUpgrade::Dirty, WriteUpgrade::On];
        for view in [PRIVATE, SHARED, NOTIFY, READ_ONLY, TRACKED] {
            for policy in policies {
                let grant = Grant::new(view, policy);
                for bits in (0..64).map(|number| combination(number) | R) {
                    for bits in [bits, bits | MERGED] {
                        let verdict = upgrade(view, bits, policy);
                        // A KSM page is never shared memory.
                        if !(view.shared && bits.intersects(MERGED | ZERO)) {
                            assert_eq!(
                                grant.allows(bits),
                                verdict.is_writable(),
                                "{view:?} {bits:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    fn combination(number: u32) -> Bits {
        [R, X, D, S, U, ZERO]
            .iter()
            .enumerate()
            .filter(|(index, _)| number & (1 << index) != 0)
            .fold(NONE, |all, (_, bit)| all | *bit)
    }
}
