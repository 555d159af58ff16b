//! Entries and bits that the tests of entries and of their encodings use.

use super::{Bits, CacheMode, Entry, Marks, Migrating, Present, Swapped};
use crate::addr::{Frame, PageSize};

pub(crate) const R: Bits = Bits::READ;
pub(crate) const W: Bits = Bits::WRITE;
pub(crate) const X: Bits = Bits::EXECUTE;
pub(crate) const A: Bits = Bits::ACCESSED;
pub(crate) const D: Bits = Bits::DIRTY;
pub(crate) const WC: Bits = Bits::of_cache(CacheMode::WriteCombining);
pub(crate) const UC: Bits = Bits::of_cache(CacheMode::Uncached);

pub(crate) fn page(frame: u32, bits: Bits) -> Entry {
    Entry::page(Frame::new(frame), bits)
}

pub(crate) fn huge(frame: u32, bits: Bits) -> Entry {
    Entry::Present(Present {
        frame: Frame::new(frame),
        size: PageSize::Size2M,
        bits,
    })
}

pub(crate) fn migrating(frame: u32) -> Entry {
    Entry::Migrating(Migrating {
        frame: Frame::new(frame),
        size: PageSize::Size4K,
        bits: W,
    })
}

pub(crate) const SWAPPED: Entry = Entry::Swapped(Swapped {
    slot: 7,
    bits: Bits::EXCLUSIVE,
});
pub(crate) const MARKER: Entry = Entry::marker(Marks::GUARD);
