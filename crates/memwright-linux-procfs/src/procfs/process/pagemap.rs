//! `/proc/PID/pagemap`: one word for each page of an address space.

use crate::procfs::process::scan::{PAGEMAP_SCAN, scan};
use alloc::sync::{Arc, Weak};
use memwright::{Area, AreaFlags, Sight};
use memwright_linux_abi::{M, Memory, Space, errno::Errno};
use memwright_linux_vfs::{
    fs::{
        caller::Caller,
        open_file::{File, OpenFile},
        transfer::Sink,
    },
    identity::Capabilities,
};
use memwright_table::{
    Bits, Entry, Extent, Frame, FrameKind, Marks, Page, PageRange, PageSize, VirtAddr,
};

/// The size of a word in bytes.
const WORD: usize = 8;
/// The number of words that are computed at a time. The `u64` of a mask has one bit for each of them.
const CHUNK: usize = u64::BITS as usize;

/// The flag bits of a word (`fs/proc/task_mmu.c` of Linux 7.3). The lower bits of the word contain the frame number.
mod bit {
    /// The page was written after its soft-dirty bit was cleared.
    pub const SOFT_DIRTY: u64 = 1 << 55;
    /// Only this page-table entry maps the page.
    pub const EXCLUSIVE: u64 = 1 << 56;
    /// The page is write-protected by userfaultfd (uffd-wp).
    pub const WRITE_PROTECTED: u64 = 1 << 57;
    /// The page-table entry is a guard marker.
    pub const GUARD: u64 = 1 << 58;
    /// The page belongs to a file or to shared memory.
    pub const FILE: u64 = 1 << 61;
    /// The page is in swap.
    pub const SWAP: u64 = 1 << 62;
    /// The page is in memory.
    pub const PRESENT: u64 = 1 << 63;
}

/// An open `/proc/PID/pagemap`.
pub struct PagemapFile {
    /// A weak reference, because an open file does not keep the address space alive. Once the address space is
    /// destroyed, reads return no data.
    space: Weak<Space>,
    /// Whether the process that opened the file may read frame numbers.
    shows_frames: bool,
}

impl PagemapFile {
    /// Creates the open file for the pages of `space`. The file contains frame numbers if the credentials of the
    /// calling process permit it.
    #[must_use]
    pub fn new(caller: &dyn Caller, space: &Arc<Space>) -> Self {
        let credentials = caller.identity().credentials.lock();
        Self {
            space: Arc::downgrade(space),
            shows_frames: credentials.has(Capabilities::ADMINISTER),
        }
    }
}

/// Returns the soft-dirty flag for a page of `area` whose page-table entry has the bits `bits`.
fn soft_dirty(area: &Area<M>, bits: Bits) -> u64 {
    u64::from(area.is_soft_dirty(bits)) * bit::SOFT_DIRTY
}

/// Returns a mask with one bit for each of the first [`CHUNK`] pages of `range`. The bit is set if the object of the
/// area has swapped out the page. The caller uses the bit only for a page whose page-table entry is a marker, because
/// swap is not reported for an empty entry.
fn in_swap_of_object(area: &Area<M>, range: PageRange) -> u64 {
    let part = area.range().intersect(range);
    let first = area.offset_of(part.start);
    let object = area.object();
    let Some(object) = object.filter(|object| object.swapped(first, part.len()) > 0) else {
        return 0;
    };
    let mut found = 0;
    for page in part.iter() {
        let bit = page.number() - range.start.number();
        found |= object.swapped(area.offset_of(page), 1) << bit;
    }
    found
}

/// The entry bits that each show that userfaultfd write-protects the page.
const PROTECTED: Bits = Bits::UFFD_WP.union(Bits::IDLE);

/// Returns the flags of a present page whose page-table entry has the bits `bits` (`pte_to_pagemap_entry`). A page with
/// the bit `EXCLUSIVE` counts as mapped only by this entry, even if its frame has other references.
fn of_bits(area: &Area<M>, bits: Bits) -> u64 {
    let unwritten = bits.contains(Bits::WATCHED) && !bits.contains(Bits::DIRTY);
    let protected = unwritten || bits.without_past_idle().intersects(PROTECTED);
    bit::PRESENT
        | soft_dirty(area, bits)
        | (u64::from(protected) * bit::WRITE_PROTECTED)
        | (u64::from(bits.contains(Bits::EXCLUSIVE)) * bit::EXCLUSIVE)
}

/// Returns the word for a page-table entry that maps no frame.
fn of_absent(area: &Area<M>, entry: Entry, shows_frames: bool) -> u64 {
    let (bits, word) = match entry {
        Entry::Empty | Entry::Present(_) => return 0,
        Entry::Marker(marker) => {
            let guard = u64::from(marker.marks.contains(Marks::GUARD)) * bit::GUARD;
            let protected = marker.marks.contains(Marks::UFFD_WP);
            // On Linux, a marker has the format of a swap entry and is reported as a swap entry, except in hugetlb
            // areas (`pagemap_hugetlb_range`).
            let pooled = area.flags().contains(AreaFlags::HUGETLB);
            let out = u64::from(!pooled) * bit::SWAP;
            let word = out | guard | (u64::from(protected) * bit::WRITE_PROTECTED);
            (Bits::empty(), word)
        }
        Entry::Swapped(page) => {
            let protected = page.bits.intersects(PROTECTED | Bits::WATCHED);
            // The slot number already has the layout of the word: the swap device, and the slot on that device.
            let slot = if shows_frames { page.slot } else { 0 };
            let word = bit::SWAP | slot | (u64::from(protected) * bit::WRITE_PROTECTED);
            (page.bits, word)
        }
        Entry::Migrating(page) => (page.bits, bit::SWAP),
    };
    word | soft_dirty(area, bits)
}

/// The words of consecutive pages, which a page-table walk computes.
struct Words<'a> {
    memory: &'a Memory,
    shows_frames: bool,
    range: PageRange,
    words: [u64; CHUNK],
    /// A mask of the pages that their object has swapped out.
    in_swap: u64,
    /// The entry bits of the last present page, and the flags that [`of_bits`] returned for them. The result is kept
    /// because the next page usually has the same bits.
    last: Option<(Bits, u64)>,
}

impl Words<'_> {
    fn part(&mut self, range: PageRange) -> &mut [u64] {
        let part = self.range.intersect(range);
        let at = (part.start.number() - self.range.start.number()) as usize;
        &mut self.words[at..at + part.len() as usize]
    }

    /// Begins an area: fills the words of its pages as if their page-table entries were empty. [`Self::add`] overwrites
    /// the words of the entries that are not empty.
    fn enter(&mut self, area: &Area<M>) {
        self.in_swap |= in_swap_of_object(area, self.range);
        self.last = None;
        let empty = soft_dirty(area, Bits::empty());
        self.part(area.range()).fill(empty);
    }

    /// Computes the words of the pages that the page-table entry `extent` of the area covers.
    fn add(&mut self, area: &Area<M>, extent: Extent) {
        let Entry::Present(page) = extent.entry else {
            return self.add_absent(area, extent);
        };
        let of_bits = match self.last {
            Some((bits, word)) if bits == page.bits => word,
            Some(_) | None => of_bits(area, page.bits),
        };
        self.last = Some((page.bits, of_bits));
        let index = (extent.range.start.number() - self.range.start.number()) as usize;
        if matches!(page.size, PageSize::Size4K) {
            self.words[index] = of_bits | self.of_frame(page.frame, page.bits);
            return;
        }
        for (offset, at) in extent.range.iter().enumerate() {
            let of_frame = self.of_frame(page.frame_of(at), page.bits);
            self.words[index + offset] = of_bits | of_frame;
        }
    }

    /// Returns the part of a page's word that depends on its frame. `bits` are the entry bits of the page.
    #[inline]
    fn of_frame(&self, frame: Frame, bits: Bits) -> u64 {
        let number = u64::from(frame.number()) * u64::from(self.shows_frames);
        if bits.intersects(Bits::EXCLUSIVE | Bits::BORROWED) {
            return number;
        }
        let (kind, sharers) = self.memory.frames().shown(frame);
        let file = matches!(kind, FrameKind::Object | FrameKind::PoolObject);
        number | (u64::from(file) * bit::FILE) | (u64::from(sharers == 1) * bit::EXCLUSIVE)
    }

    fn add_absent(&mut self, area: &Area<M>, extent: Extent) {
        let word = of_absent(area, extent.entry, self.shows_frames);
        let is_marker = matches!(extent.entry, Entry::Marker(_));
        let mut in_swap = self.in_swap >> (extent.range.start.number() - self.range.start.number());
        for each in self.part(extent.range) {
            let out = u64::from(is_marker) & in_swap & 1;
            *each = word | (out * bit::SWAP);
            in_swap >>= 1;
        }
    }
}

impl File for PagemapFile {
    fn control(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        if command == PAGEMAP_SCAN {
            scan(caller.memory(), self.space.upgrade(), argument)
        } else {
            Err(Errno::EINVAL)
        }
    }

    fn read(
        &self,
        _caller: &dyn Caller,
        _open: &OpenFile,
        position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let Some(space) = self.space.upgrade() else {
            return Ok(0);
        };
        if !(*position).is_multiple_of(WORD as u64) || !sink.left().is_multiple_of(WORD) {
            return Err(Errno::EINVAL);
        }
        let mut done = 0;
        while sink.left() > 0 {
            let first = *position / WORD as u64;
            let rest = VirtAddr::USER_END.page().number().saturating_sub(first);
            let count = (sink.left() / WORD).min(CHUNK).min(rest as usize);
            if count == 0 {
                break;
            }
            let range = PageRange::new(Page::new(first), Page::new(first + count as u64));
            let mut words = Words {
                memory: space.memory(),
                shows_frames: self.shows_frames,
                range,
                words: [0; CHUNK],
                in_swap: 0,
                last: None,
            };
            space.own_tables(range);
            space.usage().survey(range, |sight| {
                match sight {
                    Sight::Area(area) => words.enter(area),
                    Sight::Entry(area, extent, _) => words.add(area, extent),
                }
                true
            });
            let mut bytes = [0; CHUNK * WORD];
            for (word, bytes) in words.words.iter().zip(bytes.chunks_exact_mut(WORD)) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            let put = sink.put(&bytes[..count * WORD])?;
            done += put;
            *position += put as u64;
        }
        Ok(done)
    }
}
