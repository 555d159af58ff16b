//! Changing the entries of pages to map another frame with the same contents (Linux 7.2 `mm/ksm.c`,
//! `write_protect_page` and `replace_page`, and `mm/migrate.c`, `try_to_map_unused_to_zeropage`).

use memwright_table::{
    Bits, Cursor, Entry, Frame, FrameKind, Gather, Machine, Page, PageRange, PageSize, Present,
};

use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::types::stats::Row;
use crate::vma::writable::writable;

/// The frame that the entry of a page is changed to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A KSM frame, to which the caller holds a reference.
    Merged(Frame),
    /// The zero page, marked as merged.
    Zero,
    /// The zero page, like untouched memory: the entry does not record that it was merged.
    Untouched,
}

/// The maximum number of pages that are write-protected and compared together: a `u64` has one bit for each.
const TOGETHER: u64 = u64::BITS as u64;

/// Returns the bits of an entry after it was changed to map `target`, which has the same contents. `bits` are the bits
/// before the change. Tracking bits are kept, because nothing was written (rules: fold-before-clearing,
/// never-under-report).
pub(crate) const fn merged_bits(bits: Bits, target: Target) -> Bits {
    let kept = bits.difference(Bits::WRITE.union(Bits::EXCLUSIVE).union(Bits::IDLE));
    match target {
        Target::Merged(_) => kept.union(Bits::MERGED),
        Target::Zero => kept.union(Bits::MERGED).union(Bits::BORROWED),
        Target::Untouched => kept.union(Bits::BORROWED),
    }
}

impl<M: Machine> Core<M> {
    /// Returns whether a page may be merged: it is anonymous, and cannot be written except through its entry (rule:
    /// exclusive-before-pin). Called under the lock of its entry.
    pub(crate) fn may_merge(&self, entry: Present, page: Page) -> bool {
        let frames = self.memory.frames();
        let frame = entry.frame_of(page);
        // The holder of an extra reference may access the frame without the entry: do not merge.
        let lent = entry.bits.contains(Bits::EXCLUSIVE)
            && match entry.size {
                PageSize::Size4K => frames.references(frame) != 1,
                PageSize::Size2M | PageSize::Size1G => !frames.is_sole_whole(entry.frame),
            };
        let pinned = frames.pins(frame) != 0;
        !entry.bits.intersects(Bits::BORROWED | Bits::MERGED)
            && frames.kind(frame) == FrameKind::Anonymous
            && !lent
            && !pinned
    }

    /// Returns whether `frame` has the contents of `target`.
    pub(crate) fn has_contents_of(&self, target: Target, frame: Frame) -> bool {
        let frames = self.memory.frames();
        match target {
            Target::Merged(merged) => frames.are_equal(frame, merged),
            Target::Zero | Target::Untouched => frames.repeated_word(frame) == Some(0),
        }
    }

    /// Makes the entries of 4 KiB pages map `target`. Selects the entries with `may`, write-protects them, and changes
    /// those whose pages then have the contents of `target`. `pages` has at most [`TOGETHER`] pages, all of one page
    /// table. Returns the number of entries changed.
    pub(crate) fn show_equal(
        &self,
        area: &Area<M>,
        cursor: &mut Cursor<'_, M>,
        pages: PageRange,
        target: Target,
        may: &dyn Fn(Present, Page) -> bool,
        gather: &mut Gather<'_, M>,
    ) -> u64 {
        debug_assert!(pages.len() <= TOGETHER);
        let mut protected: u64 = 0;
        for (number, page) in pages.iter().enumerate() {
            cursor.seek(page);
            let small = |entry: &Present| entry.size == PageSize::Size4K && may(*entry, page);
            if cursor.peek().present().is_some_and(|entry| small(&entry)) {
                // After the flush no CPU can write the frame. Other entries that map it are not exclusive, and
                // therefore not writable.
                cursor.edit(Bits::empty(), Bits::WRITE, gather);
                protected |= 1 << number;
            }
        }
        gather.flush();
        let mut shown = 0;
        for (number, page) in pages.iter().enumerate() {
            if protected >> number & 1 == 0 {
                continue;
            }
            cursor.seek(page);
            let Some(old) = cursor.peek().present() else {
                continue;
            };
            if self.has_contents_of(target, old.frame) {
                self.show(cursor, old.bits, target, gather);
                shown += 1;
            } else if writable(area.view(), old.bits).is_writable() {
                cursor.grant(Bits::WRITE);
            }
        }
        shown
    }

    /// Makes the entry under the cursor, which is already write-protected, map `target`.
    fn show(
        &self,
        cursor: &mut Cursor<'_, M>,
        old: Bits,
        target: Target,
        gather: &mut Gather<'_, M>,
    ) {
        let bits = merged_bits(old, target);
        let frame = match target {
            Target::Merged(merged) => self.memory.frames().share(merged).into_raw(),
            Target::Zero | Target::Untouched => self.memory.zero_frame(),
        };
        cursor.replace(Entry::page(frame, bits), gather);
    }

    /// Makes the entries of zero-filled pages of `range` in the area map the zero page, as if the pages had never been
    /// written. Changes only entries that `may` selects. Their pages must be exclusive to this address space, and
    /// neither pinned nor otherwise referenced.
    pub(crate) fn show_zero(
        &self,
        area: &Area<M>,
        range: PageRange,
        may: &dyn Fn(Present) -> bool,
    ) {
        let cpu = self.cpu();
        let range = area.range().intersect(range);
        if range.is_empty() || area.object().is_some() {
            // Change nothing in an area of an object. The zero page would not count as a private copy of the object's
            // page, so punching a hole in the object would unmap it.
            return;
        }
        self.note_peak(cpu);
        let frames = self.memory.frames();
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(range);
        let may = |entry: Present, page: Page| {
            may(entry)
                && self.may_merge(entry, page)
                && frames.references(entry.frame) == 1
                && self.has_contents_of(Target::Untouched, entry.frame)
        };
        let mut shown = 0;
        let mut next = range.start;
        while next < range.end {
            let after = Page::new((next.number() / TOGETHER + 1) * TOGETHER);
            let pages = PageRange::new(next, after.min(range.end));
            shown += self.show_equal(
                area,
                &mut cursor,
                pages,
                Target::Untouched,
                &may,
                &mut gather,
            );
            next = pages.end;
        }
        drop(cursor);
        let counts = gather.close();
        self.note_gather(cpu, counts);
        self.note_uncounted(cpu, shown);
        self.memory.count_on(cpu, Row::EntriesFilled, shown);
        self.memory.count_on(cpu, Row::HugeSplitZeroes, shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_merged_entry_keeps() {
        let rights = Bits::RIGHTS | Bits::ACCESSED;
        let (x, d, s, u) = (
            Bits::EXCLUSIVE,
            Bits::DIRTY,
            Bits::SOFT_DIRTY,
            Bits::UFFD_WP,
        );
        let read = rights - Bits::WRITE;
        #[rustfmt::skip]
        let rows = [
            ("its own, written",            rights | x | d | s, read | d | s),
            ("its own, protected",          read | x | u,       read | u),
            ("shared since a fork",         read | s,           read | s),
            ("without access (PROT_NONE)",  x | d,              d),
        ];
        for (name, bits, expected) in rows {
            let merged = merged_bits(bits, Target::Merged(Frame::new(1)));
            assert_eq!(merged, expected | Bits::MERGED, "{name}");
            let zero = merged_bits(bits, Target::Zero);
            assert_eq!(zero, merged | Bits::BORROWED, "{name}");
            let untouched = merged_bits(bits, Target::Untouched);
            assert_eq!(untouched, expected | Bits::BORROWED, "{name}");
        }
    }
}
