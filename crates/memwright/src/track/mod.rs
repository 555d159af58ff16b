//! Tracking of written pages: soft-dirty bits, and userfaultfd's asynchronous write protection.
//!
//! # How stores are detected
//! A page whose stores are tracked is *armed*. The page and [`Policy::track`](crate::Policy::track) determine how its
//! next store is detected:
//!
//! | Page | Armed as | A store |
//! |---|---|---|
//! | private, `track=dirty-bit` | clean, with unchanged write permission | the processor sets the dirty bit |
//! | private, `track=fault` | not writable | faults once |
//! | shared | not writable | faults once |
//!
//! The processor caches the dirty bit in the TLB. While it has cached the bit as set, it does not set the bit again in
//! an entry in which the bit was cleared. Clearing the bit is therefore the loss of a cached bit
//! ([`Change::LostCachedBit`](memwright_table::Change), rule: flush-what-shrank). Before the arming operation returns,
//! it flushes the translations that may have the bit cached.
//!
//! # One dirty bit, several readers
//!
//! A reader that clears the dirty bit preserves its information for the other readers (rule: fold-before-clearing).
//! [`Bits::FOLDED_DIRTY`] records that the frame differs from any copy of it. [`Bits::SOFT_DIRTY`] records that the
//! page was written since soft-dirty was cleared. If [`Bits::WATCHED`] is cleared, this records that the page was
//! written since it was write-protected.
//!
//! [`Bits::FOLDED_DIRTY`]: memwright_table::Bits::FOLDED_DIRTY
//! [`Bits::SOFT_DIRTY`]: memwright_table::Bits::SOFT_DIRTY
//! [`Bits::WATCHED`]: memwright_table::Bits::WATCHED

mod look;
pub(crate) mod scan;
pub(crate) mod soft_dirty;

pub use crate::types::scan::{Categories, Scan, Share, Take};
