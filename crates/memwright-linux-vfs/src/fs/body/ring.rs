//! The read and write positions of a pipe, whose pages form a ring. This module computes positions, and does not access
//! the pages.

use core::ops::Range;
use memwright_table::PAGE_SIZE;

/// The maximum number of bytes of a write that is atomic.
pub const PIPE_BUF: usize = 4096;

/// Capacity of a new pipe in pages (Linux's `PIPE_DEF_BUFFERS`).
pub const DEFAULT_PAGES: usize = 16;

/// The default limit in pages on the capacity that an unprivileged process is allowed to request (Linux's
/// `pipe_max_size`).
pub const MAX_PAGES: usize = 256;

/// A run of bytes within one page of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The page slot, below the ring's page count.
    pub slot: usize,
    /// First byte in that page.
    pub offset: usize,
    /// Length in bytes. It is never zero, and the run never crosses the end of the page.
    pub length: usize,
}

/// A ring with a read and a write position, in bytes. The difference between the positions is the number of bytes in
/// the pipe. The positions grow until the ring is empty, and then restart at zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    read: u64,
    written: u64,
    pages: usize,
    /// Whether writers must not use the page that is read next until a reader has consumed all of its bytes.
    front_kept: bool,
}

impl Ring {
    /// Creates an empty ring of `pages` pages.
    #[must_use]
    pub const fn new(pages: usize) -> Self {
        Self {
            read: 0,
            written: 0,
            pages,
            front_kept: false,
        }
    }

    /// Sets whether writers must not use the page that is read next until a reader has consumed all of its bytes.
    pub fn keep_front(&mut self, kept: bool) {
        self.front_kept = kept;
    }

    /// Returns the capacity in bytes.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.pages * PAGE_SIZE
    }

    /// Returns the number of bytes waiting to be read.
    #[must_use]
    pub const fn readable(&self) -> usize {
        (self.written - self.read) as usize
    }

    /// Returns the number of bytes that fit.
    #[must_use]
    pub const fn writable(&self) -> usize {
        let kept = if self.front_kept {
            (self.read % PAGE_SIZE as u64) as usize
        } else {
            0
        };
        self.capacity() - self.readable() - kept
    }

    fn span(&self, position: u64, length: usize) -> Option<Span> {
        let offset = (position % PAGE_SIZE as u64) as usize;
        let slot = ((position / PAGE_SIZE as u64) % self.pages as u64) as usize;
        let length = length.min(PAGE_SIZE - offset);
        (length > 0).then_some(Span {
            slot,
            offset,
            length,
        })
    }

    /// Returns the location of the next bytes to read: at most `limit` bytes, all in one page. Returns `None` if the
    /// ring is empty.
    #[must_use]
    pub fn read_span(&self, limit: usize) -> Option<Span> {
        self.span(self.read, self.readable().min(limit))
    }

    /// Returns the location of the bytes to read after the next `skip` bytes: at most `limit` bytes, all in one page.
    #[must_use]
    pub fn span_behind(&self, skip: usize, limit: usize) -> Option<Span> {
        let left = self.readable().saturating_sub(skip);
        self.span(self.read + skip as u64, left.min(limit))
    }

    /// Returns the location for the next bytes to write: at most `limit` bytes, all in one page. Returns `None` if the
    /// ring is full.
    #[must_use]
    pub fn write_span(&self, limit: usize) -> Option<Span> {
        self.span(self.written, self.writable().min(limit))
    }

    /// Records that `length` bytes were read. Returns the slot of the page if the page contains no more data and can be
    /// freed.
    ///
    /// An empty ring restarts at the beginning of its first page. A pipe whose reader keeps up with the writer
    /// therefore uses one page instead of all pages in turn. The ring does not restart while a writer is copying into
    /// the page at the write position (`writing`).
    pub fn consume(&mut self, length: usize, writing: bool) -> Option<usize> {
        debug_assert!(length <= self.readable());
        let span = self.span(self.read, self.readable())?;
        debug_assert!(length <= span.length);
        let page = self.read / PAGE_SIZE as u64;
        self.read += length as u64;
        if self.read == self.written && !writing {
            self.read = 0;
            self.written = 0;
            return Some(span.slot);
        }
        // A writer that wrapped around may have stored bytes before the unread bytes of this page, or may be storing
        // them now.
        let next_use = (page + self.pages as u64) * PAGE_SIZE as u64;
        let used_to = self.written + u64::from(writing);
        (self.read.is_multiple_of(PAGE_SIZE as u64) && used_to <= next_use).then_some(span.slot)
    }

    /// Returns the numbers of the pages with data. The numbers grow with the positions and are not slots.
    #[must_use]
    pub fn used_pages(&self) -> Range<u64> {
        self.read / PAGE_SIZE as u64..self.written.div_ceil(PAGE_SIZE as u64)
    }

    /// Returns the slot of the page with the number `page`.
    #[must_use]
    pub const fn slot(&self, page: u64) -> usize {
        (page % self.pages as u64) as usize
    }

    /// Returns a ring of `pages` pages with the same positions. Returns `None` if the data does not fit, or if the ring
    /// is nearly full and the first and the last unread byte are in the same page.
    #[must_use]
    pub fn resized(&self, pages: usize) -> Option<Self> {
        let used = self.used_pages();
        let fits = used.end - used.start <= pages.min(self.pages) as u64;
        fits.then_some(Self { pages, ..*self })
    }

    /// Records that `length` bytes were written.
    pub fn produce(&mut self, length: usize) {
        debug_assert!(length <= self.writable());
        self.written += length as u64;
    }

    /// Returns how many bytes of a write of `length` bytes can be stored now, or `None` if the writer must wait.
    ///
    /// A write of at most [`PIPE_BUF`] bytes is stored completely or not at all.
    #[must_use]
    pub fn admit(&self, length: usize) -> Option<usize> {
        let room = self.writable();
        if length <= PIPE_BUF {
            (room >= length).then_some(length)
        } else {
            (room > 0).then_some(room.min(length))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec;
    use alloc::vec::Vec;

    /// A small pseudo-random generator with a fixed seed.
    struct Sequence(u64);

    impl Sequence {
        fn next(&mut self, below: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) as usize) % below
        }
    }

    #[test]
    fn the_ring_is_a_queue_of_bytes() {
        for pages in [1, 2, 3, 16] {
            let mut numbers = Sequence(pages as u64);
            let mut ring = Ring::new(pages);
            let mut store: Vec<Option<Vec<u8>>> = vec![None; pages];
            let mut model = VecDeque::new();
            let mut next = 0u8;
            for _ in 0..4000 {
                let mut wanted = numbers.next(3 * PAGE_SIZE) + 1;
                if numbers.next(2) == 0 {
                    while let Some(span) = ring.write_span(wanted) {
                        let page = store[span.slot].get_or_insert_with(|| vec![0; PAGE_SIZE]);
                        for byte in &mut page[span.offset..span.offset + span.length] {
                            next = next.wrapping_add(7);
                            *byte = next;
                            model.push_back(next);
                        }
                        ring.produce(span.length);
                        wanted -= span.length;
                    }
                } else {
                    while let Some(span) = ring.read_span(wanted) {
                        let page = store[span.slot].as_ref().expect("a readable page exists");
                        for &byte in &page[span.offset..span.offset + span.length] {
                            assert_eq!(model.pop_front(), Some(byte));
                        }
                        if let Some(slot) = ring.consume(span.length, false) {
                            store[slot] = None;
                        }
                        wanted -= span.length;
                    }
                }
                assert_eq!(ring.readable(), model.len());
                assert_eq!(ring.readable() + ring.writable(), ring.capacity());
                if model.is_empty() {
                    assert!(
                        store.iter().all(Option::is_none),
                        "no page outlives its bytes"
                    );
                }
            }
        }
    }

    #[test]
    fn a_page_that_is_being_written_stays() {
        let mut ring = Ring::new(2);
        ring.produce(10);
        let place = ring.write_span(100);
        assert_eq!(ring.consume(10, true), None);
        assert_eq!(ring.write_span(100), place);
        ring.produce(100);
        assert_eq!(ring.consume(100, false), Some(0));
        ring.produce(PAGE_SIZE);
        assert_eq!(ring.consume(PAGE_SIZE, true), Some(0));
        assert_eq!(ring.write_span(1).map(|span| span.slot), Some(1));
    }

    #[test]
    fn a_page_that_a_writer_comes_around_to_stays() {
        for pages in [1, 2, 16] {
            let mut ring = Ring::new(pages);
            ring.produce(pages * PAGE_SIZE);
            assert_eq!(ring.consume(100, false), None);
            let place = ring.write_span(PAGE_SIZE);
            assert_eq!(
                place.map(|span| (span.slot, span.offset, span.length)),
                Some((0, 0, 100))
            );
            // The rest of the page is read while a writer copies into the front of the page.
            assert_eq!(ring.consume(PAGE_SIZE - 100, true), None);
            ring.produce(100);
            assert_eq!(ring.readable(), (pages - 1) * PAGE_SIZE + 100);
        }
    }

    #[test]
    fn a_page_that_is_kept_is_not_written_in_front() {
        let mut ring = Ring::new(2);
        ring.produce(2 * PAGE_SIZE);
        ring.keep_front(true);
        assert_eq!(ring.consume(100, false), None);
        assert_eq!((ring.writable(), ring.write_span(1)), (0, None));
        assert_eq!(ring.consume(PAGE_SIZE - 100, false), Some(0));
        ring.keep_front(false);
        assert_eq!(ring.writable(), PAGE_SIZE);
    }

    #[test]
    fn a_new_size_keeps_the_bytes() {
        let mut ring = Ring::new(4);
        ring.produce(3 * PAGE_SIZE);
        ring.consume(PAGE_SIZE, false);
        assert_eq!(ring.used_pages(), 1..3);
        assert_eq!(ring.resized(1), None);
        let larger = ring.resized(8).unwrap();
        assert_eq!(larger.readable(), ring.readable());
        assert_eq!(larger.writable(), 6 * PAGE_SIZE);
        assert_eq!((ring.slot(5), larger.slot(5)), (1, 5));
        ring.consume(10, false);
        ring.produce(2 * PAGE_SIZE + 10);
        assert_eq!(ring.resized(8), None);
    }

    #[test]
    fn short_writes_are_whole() {
        let mut ring = Ring::new(DEFAULT_PAGES);
        assert_eq!(ring.admit(100_000), Some(65536));
        ring.produce(65536 - 100);
        assert_eq!(ring.admit(100), Some(100));
        assert_eq!(ring.admit(101), None);
        assert_eq!(ring.admit(PIPE_BUF), None);
        assert_eq!(ring.admit(PIPE_BUF + 1), Some(100));
        ring.produce(100);
        assert_eq!(ring.admit(PIPE_BUF + 1), None);
        assert_eq!(ring.admit(1), None);
    }
}
