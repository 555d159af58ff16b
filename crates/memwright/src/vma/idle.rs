//! userfaultfd read-write protection (RWP): the ways in which pages are armed, and the pages of an area that count as
//! accessed.
//!
//! | An armed entry | An access |
//! |---|---|
//! | `UFFD_WP`, without rights | faults |
//! | `IDLE`, as accessible as before, `ACCESSED` clear | the processor sets `ACCESSED` |

use memwright_table::{Bits, Edit};

use crate::vma::area::{Area, AreaFlags, Backed};
use crate::vma::writable::{Grant, NEW, access_bits};

/// The bits that mark a page as read-write-protected.
const ARMED: Bits = Bits::UFFD_WP.union(Bits::IDLE);

/// The edits that arm and disarm the entries of an area with read-write protection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arming {
    /// The bits that follow from the rights of the area.
    access: Bits,
    grant: Grant,
}

impl<B: Backed> Area<B> {
    /// Returns whether a userfaultfd read-write-protects pages of the area.
    #[inline]
    pub(crate) fn watches_accesses(&self) -> bool {
        self.flags().contains(AreaFlags::UFFD_RWP)
    }

    /// Returns the bits of a private page that replaces a page with the bits `bits` in a forked copy of the area. If
    /// `watched` is set, the new page inherits the userfaultfd protection of the old one.
    pub(crate) fn copied_bits(&self, bits: Bits, watched: bool) -> Bits {
        if !watched {
            return self.entry_bits(NEW);
        }
        if !self.watches_accesses() {
            return self.entry_bits(NEW | bits & Bits::UFFD_WP);
        }
        let armed = bits.without_past_idle() & ARMED;
        if armed.contains(Bits::UFFD_WP) {
            NEW | Bits::UFFD_WP
        } else if armed.contains(Bits::IDLE) {
            self.entry_bits((NEW - Bits::ACCESSED) | Bits::IDLE)
        } else {
            self.entry_bits(NEW)
        }
    }
}

impl Arming {
    /// Returns the edits for an area. `grant` decides which entries may be writable.
    pub(crate) fn of<B: Backed>(area: &Area<B>, grant: Grant) -> Self {
        let access = access_bits(area.rights());
        Self { access, grant }
    }

    /// Returns the edit that arms an entry with these bits. Because of it, the next access faults or, if `by_accessed`
    /// is set, sets the accessed bit. Accesses before the edit no longer count for userfaultfd. The other readers of
    /// the accessed bit still see them (rule: fold-before-clearing).
    pub(crate) fn arm(self, by_accessed: bool, bits: Bits) -> Edit {
        if !by_accessed {
            return Edit {
                set: Bits::UFFD_WP,
                clear: Bits::RIGHTS | Bits::HINT | Bits::IDLE,
            };
        }
        let accessible = self.disarm(bits);
        let folded = if bits.contains(Bits::ACCESSED) {
            Bits::FOLDED_ACCESSED
        } else {
            Bits::empty()
        };
        Edit {
            set: accessible.set | Bits::IDLE | folded,
            clear: (accessible.clear | Bits::ACCESSED) - Bits::IDLE,
        }
    }

    /// Returns the edit that disarms an entry with these bits: the entry gets the rights of the area, and write
    /// permission if `grant` allows it.
    pub(crate) fn disarm(self, bits: Bits) -> Edit {
        if !bits.contains(Bits::UFFD_WP) {
            return Edit {
                set: Bits::empty(),
                clear: Bits::IDLE,
            };
        }
        let new = (bits - (ARMED | Bits::PROTECTION)) | self.access;
        let granted = new.contains(Bits::READ) && self.grant.allows(new);
        Edit {
            set: self.access | if granted { Bits::WRITE } else { Bits::empty() },
            clear: ARMED | Bits::PROTECTION,
        }
    }

    /// Returns the edit of an entry with these bits after which the next access to an armed page faults and is no
    /// longer recorded by the accessed bit. The edit changes only an entry that is armed by its accessed bit: it
    /// disarms the entry if the page was already accessed, otherwise it arms the entry without rights.
    pub(crate) fn make_fault(self, bits: Bits) -> Edit {
        if !bits.contains(Bits::IDLE) {
            Edit::NONE
        } else if bits.contains(Bits::ACCESSED) {
            self.disarm(bits)
        } else {
            self.arm(false, bits)
        }
    }
}

/// Returns the edit that records an access by the kernel to a page with these bits. It disarms an entry that is armed
/// by its accessed bit. It does not set the accessed bit, because only a CPU that uses the entry may do so.
pub(crate) fn mark_accessed(bits: Bits) -> Edit {
    Edit {
        set: Bits::empty(),
        clear: bits & Bits::IDLE,
    }
}

/// Returns the edit that disarms an entry with these bits if the page was accessed since it was armed.
pub(crate) fn forget_past_idle(bits: Bits) -> Edit {
    Edit {
        set: Bits::empty(),
        clear: bits.past_idle(),
    }
}

/// Returns the edit for an entry with these bits. If the entry has no rights, the edit gives it the rights `access`,
/// without write permission.
pub(crate) fn open_copy(access: Bits, bits: Bits) -> Edit {
    if bits.intersects(Bits::READ | Bits::HINT) {
        Edit::NONE
    } else {
        Edit {
            set: access,
            clear: Bits::empty(),
        }
    }
}

/// Returns `edit`, which sets the rights of an area's entry. But if an entry with these bits is armed without rights,
/// returns `Edit::NONE`, so that the entry stays armed.
pub(crate) fn reprotect(bits: Bits, edit: Edit) -> Edit {
    if bits.contains(Bits::UFFD_WP) {
        Edit::NONE
    } else {
        edit
    }
}

/// Returns the edit with which reclaim ages a page with these bits, or `None` if the page was not used since it was
/// last aged. Arming a page clears its accessed bit. The software accessed bit then records the accesses before the
/// arming.
#[inline]
pub(crate) fn aging(bits: Bits) -> Option<Edit> {
    const TOLD: Bits = Bits::IDLE.union(Bits::FOLDED_ACCESSED);
    if bits.contains(Bits::ACCESSED) {
        Some(Edit {
            set: Bits::FOLDED_ACCESSED,
            clear: Bits::ACCESSED | Bits::IDLE,
        })
    } else if bits.contains(TOLD) {
        Some(Edit {
            set: Bits::empty(),
            clear: Bits::FOLDED_ACCESSED,
        })
    } else {
        None
    }
}

/// Returns whether a page with these bits was accessed since it was armed, or was never armed.
pub(crate) fn accessed(bits: Bits) -> bool {
    !bits.without_past_idle().intersects(ARMED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::policy::WriteUpgrade;
    use crate::types::rights::Rights;
    use crate::vma::writable::View;

    const A: Bits = Bits::ACCESSED;
    const R: Bits = Bits::READ;
    const W: Bits = Bits::WRITE;
    const OWN: Bits = Bits::EXCLUSIVE;

    fn arming() -> Arming {
        let view = View {
            rights: Rights::READ | Rights::WRITE,
            shared: false,
            notify: false,
            soft_dirty: false,
        };
        Arming {
            access: access_bits(view.rights),
            grant: Grant::new(view, WriteUpgrade::On),
        }
    }

    fn edited(bits: Bits, edit: Edit) -> Bits {
        (bits - edit.clear) | edit.set
    }

    #[test]
    fn an_armed_page_is_unaccessed_until_an_access() {
        for by_accessed in [false, true] {
            for bits in [
                R | W | OWN,
                R | W | OWN | A,
                R | OWN,
                R | A,
                OWN | Bits::HINT | A,
            ] {
                let armed = edited(bits, arming().arm(by_accessed, bits));
                assert!(!accessed(armed), "{bits:?}");
                assert!(accessed(edited(armed, arming().disarm(armed))));
                assert_eq!(accessed(armed | A), by_accessed, "{bits:?}");
                if by_accessed {
                    // Arming by the accessed bit changes no rights, so no access faults because of it.
                    assert_eq!(armed & Bits::RIGHTS, bits & Bits::RIGHTS);
                    assert_eq!(armed.contains(Bits::FOLDED_ACCESSED), bits.contains(A));
                } else {
                    assert!(!armed.intersects(Bits::RIGHTS | Bits::HINT));
                    assert_eq!(armed & A, bits & A, "reclaim reads the bit");
                }
            }
        }
    }

    #[test]
    fn a_disarmed_page_is_writable_at_once_where_the_rule_allows_it() {
        let armed = edited(R | W | OWN, arming().arm(false, R | W | OWN));
        assert_eq!(edited(armed, arming().disarm(armed)), R | W | OWN);
        let shared = edited(R, arming().arm(false, R));
        assert_eq!(edited(shared, arming().disarm(shared)), R);
        let idle = R | W | OWN | Bits::IDLE;
        assert_eq!(edited(idle, arming().disarm(idle)), R | W | OWN);
    }

    #[test]
    fn a_page_that_faulted_is_armed_by_its_accessed_bit_again() {
        let bits = R | W | OWN;
        let faults = edited(bits, arming().arm(false, bits));
        let idle = edited(faults, arming().arm(true, faults));
        assert_eq!(idle, bits | Bits::IDLE);
    }

    #[test]
    fn a_page_that_was_used_before_it_was_armed_is_aged_once() {
        let used = R | A;
        let armed = edited(used, arming().arm(true, used));
        let aged = edited(armed, aging(armed).unwrap());
        assert_eq!(aged, R | Bits::IDLE);
        assert_eq!(aging(aged), None);
        let again = aged | A;
        let aged = edited(again, aging(again).unwrap());
        assert!(accessed(aged));
        assert_eq!(aging(aged), None);
        assert_eq!(aging(R), None);
    }

    #[test]
    fn what_was_not_accessed_faults_in_synchronous_mode() {
        let bits = R | W | OWN;
        assert_eq!(arming().make_fault(bits), Edit::NONE);
        let idle = bits | Bits::IDLE;
        let faults = edited(idle, arming().make_fault(idle));
        assert_eq!(faults, OWN | Bits::UFFD_WP);
        let used = idle | A;
        assert_eq!(edited(used, arming().make_fault(used)), bits | A);
    }
}
