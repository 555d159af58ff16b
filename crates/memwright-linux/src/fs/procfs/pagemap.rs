//! `/proc/PID/pagemap`: one word for each page of an address space.

use crate::{
    M, Memory, Space,
    context::Context,
    errno::Errno,
    fs::{
        open_file::{File, OpenFile},
        procfs::scan::{PAGEMAP_SCAN, scan},
        transfer::Sink,
    },
    process::Capabilities,
};
use alloc::sync::Arc;
use memwright::{Area, space::Sight};
use memwright_table::{Bits, Entry, FrameKind, Marks, Page, PageRange};

/// Bytes of a word.
const WORD: usize = 8;
/// Words that are made at a time: one for each bit of another.
const CHUNK: usize = u64::BITS as usize;

/// What the bits of a word mean (`fs/proc/task_mmu.c` of Linux 7.2). Below them stands the frame's number.
mod bit {
    /// Written since soft-dirty was cleared.
    pub const SOFT_DIRTY: u64 = 1 << 55;
    /// Shown by this entry alone.
    pub const EXCLUSIVE: u64 = 1 << 56;
    /// Write-protected for userfaultfd.
    pub const WRITE_PROTECTED: u64 = 1 << 57;
    /// A guard.
    pub const GUARD: u64 = 1 << 58;
    /// Of a file, or of shared memory.
    pub const FILE: u64 = 1 << 61;
    /// In swap.
    pub const SWAP: u64 = 1 << 62;
    /// In memory.
    pub const PRESENT: u64 = 1 << 63;
}

/// An open `/proc/PID/pagemap`.
pub struct PagemapFile {
    /// None once the process had ended: it reads as empty.
    space: Option<Arc<Space>>,
    /// Whoever opened it may know the numbers of frames.
    shows_frames: bool,
}

impl PagemapFile {
    /// The pages of `space`, opened by the caller of `context`.
    #[must_use]
    pub fn new(context: &Context<'_>, space: Option<Arc<Space>>) -> Self {
        let credentials = context.process().credentials.lock();
        Self {
            space,
            shows_frames: credentials.has(Capabilities::ADMINISTER),
        }
    }
}

/// The bit of a page with these bits in an area.
fn soft_dirty(area: &Area<M>, bits: Bits) -> u64 {
    u64::from(area.is_soft_dirty(bits)) * bit::SOFT_DIRTY
}

/// The state of the page that an entry stands for.
fn carried(entry: Entry) -> Bits {
    match entry {
        Entry::Empty | Entry::Marker(_) => Bits::empty(),
        Entry::Swapped(page) => page.bits,
        Entry::Migrating(page) => page.bits,
        Entry::Present(page) => page.bits,
    }
}

/// Which of the first [`CHUNK`] pages of `range` the object of an area there has in swap: a bit for each. Of these those
/// are told that a marker stands for; an entry of nothing says nothing.
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

/// The word for an entry (`pte_to_pagemap_entry`).
fn word(memory: &Memory, entry: Entry, at: Page, shows_frames: bool) -> u64 {
    let page = match entry {
        Entry::Empty => return 0,
        Entry::Marker(marker) => {
            let guard = u64::from(marker.marks.contains(Marks::GUARD)) * bit::GUARD;
            let protected = marker.marks.contains(Marks::UFFD_WP);
            // It has the form of an entry in swap.
            return bit::SWAP | guard | (u64::from(protected) * bit::WRITE_PROTECTED);
        }
        Entry::Swapped(page) => {
            let unwritten = page.bits.intersects(Bits::UFFD_WP | Bits::WATCHED);
            // The device and the slot there, laid out as the slot's number is.
            let slot = if shows_frames { page.slot } else { 0 };
            return bit::SWAP | slot | (u64::from(unwritten) * bit::WRITE_PROTECTED);
        }
        Entry::Migrating(_) => return bit::SWAP,
        Entry::Present(page) => page,
    };
    let frame = page.frame_of(at);
    let mut word = bit::PRESENT;
    if shows_frames {
        word |= u64::from(frame.number());
    }
    let unwritten = page.bits.contains(Bits::WATCHED) && !page.bits.contains(Bits::DIRTY);
    if page.bits.contains(Bits::UFFD_WP) || unwritten {
        word |= bit::WRITE_PROTECTED;
    }
    if page.bits.contains(Bits::BORROWED) {
        return word;
    }
    let frames = memory.frames();
    if matches!(
        frames.kind(frame),
        FrameKind::Object | FrameKind::PoolObject
    ) {
        word |= bit::FILE;
    }
    if frames.sharers(frame) == 1 {
        word |= bit::EXCLUSIVE;
    }
    word
}

impl File for PagemapFile {
    fn control(
        &self,
        context: &Context<'_>,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        match &self.space {
            Some(space) if command == PAGEMAP_SCAN => scan(context, space, argument),
            Some(_) | None => Err(Errno::EINVAL),
        }
    }

    fn read(
        &self,
        _context: &Context<'_>,
        _open: &OpenFile,
        position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let Some(space) = &self.space else {
            return Ok(0);
        };
        if *position % WORD as u64 != 0 || sink.left() % WORD != 0 {
            return Err(Errno::EINVAL);
        }
        let mut done = 0;
        while sink.left() > 0 {
            let first = *position / WORD as u64;
            let rest = Page::USER_END.number().saturating_sub(first);
            let count = (sink.left() / WORD).min(CHUNK).min(rest as usize);
            if count == 0 {
                break;
            }
            let mut bytes = [0; CHUNK * WORD];
            let range = PageRange::new(Page::new(first), Page::new(first + count as u64));
            let mut set = |pages: PageRange, word: u64| {
                for page in pages.iter() {
                    let at = (page.number() - first) as usize * WORD;
                    bytes[at..at + WORD].copy_from_slice(&word.to_le_bytes());
                }
            };
            let mut in_swap = 0;
            space.survey(range, &mut |sight| {
                match sight {
                    Sight::Area(area) => {
                        in_swap |= in_swap_of_object(area, range);
                        let word = soft_dirty(area, Bits::empty());
                        set(area.range().intersect(range), word);
                    }
                    Sight::Entry(area, extent) => {
                        let dirty = soft_dirty(area, carried(extent.entry));
                        let is_marker = matches!(extent.entry, Entry::Marker(_));
                        for page in extent.range.iter() {
                            let mut word =
                                word(space.memory(), extent.entry, page, self.shows_frames);
                            let out = in_swap >> (page.number() - first) & 1;
                            if is_marker && out == 1 {
                                word |= bit::SWAP;
                            }
                            set(PageRange::single(page), word | dirty);
                        }
                    }
                }
                true
            });
            let put = sink.put(&bytes[..count * WORD])?;
            done += put;
            *position += put as u64;
        }
        Ok(done)
    }
}
