//! Memory as an object: shared anonymous memory, and the files of a tmpfs.

use alloc::sync::Arc;
use core::fmt;

use memwright_table::mistake::{Mistake, planted};
use memwright_table::sync::{Lock, Rank};
use memwright_table::{FOLIO_ORDER, Frame, FrameKind, Machine, OutOfFrames, PAGE_SIZE};

use super::{CollapseError, Mappings, Object, ObjectError, ObjectIdentity, Pages, Put};
use crate::commit::Overcommit;
use crate::huge::{HUGE_PAGES, SharedMode, SharedSetting};
use crate::memory::Memory;
use crate::stats::Row;

struct State<M: Machine> {
    pages: Pages<M>,
    /// In bytes.
    size: u64,
}

/// An object whose pages live in memory alone and begin as zeroes (Linux 7.2 `mm/shmem.c`).
///
/// Sparse: what was never touched costs nothing. Reading a hole with [`read_at`](Self::read_at) makes no
/// page; touching it through a mapping does.
pub struct Shmem<M: Machine> {
    memory: Arc<Memory<M>>,
    /// Guards the pages and the size.
    state: Lock<State<M>>,
    mappings: Mappings<M>,
    identity: ObjectIdentity,
    /// Pages promised for the whole life of the object.
    promised: u64,
    /// Which setting gives it huge pages.
    huge: Option<SharedSetting>,
}

impl<M: Machine> Shmem<M> {
    /// An object of `size` bytes, all zero.
    pub fn new(memory: Arc<Memory<M>>, size: u64, identity: ObjectIdentity) -> Self {
        let pages = Pages::new(memory.frames().clone());
        Self {
            memory,
            state: Lock::new(Rank::Object, State { pages, size }),
            mappings: Mappings::new(),
            identity,
            promised: 0,
            huge: None,
        }
    }

    /// The same, with huge pages where this setting says so. Without it a program may still ask for a collapse.
    #[must_use]
    pub fn with_huge_pages(mut self, setting: SharedSetting) -> Self {
        self.huge = Some(setting);
        self
    }

    /// The same, with all of it promised at once: shared anonymous memory
    /// (Linux 7.2 `shmem_acct_size`).
    ///
    /// # Errors
    /// The size exceeds all memory.
    pub fn promised(
        memory: Arc<Memory<M>>,
        size: u64,
        identity: ObjectIdentity,
    ) -> Result<Self, Overcommit> {
        let pages = pages_of(size);
        memory.promise(pages)?;
        let mut object = Self::new(memory, size, identity);
        object.promised = pages;
        Ok(object)
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.state.lock().size
    }

    /// How many pages are in memory.
    pub fn resident(&self) -> u64 {
        self.state.lock().pages.len()
    }

    /// Changes the size. What is cut off disappears from every mapping, private copies included; what a
    /// later growth shows again is zero.
    pub fn set_size(&self, size: u64) {
        let shrunk = {
            let mut state = self.state.lock();
            let shrunk = size < state.size;
            state.size = size;
            if shrunk {
                state.pages.remove_range(pages_of(size), u64::MAX);
                self.clear_part(&state, size, size.next_multiple_of(PAGE_SIZE as u64));
                self.mappings.stale();
            }
            shrunk
        };
        if shrunk {
            self.mappings.unmap(pages_of(size), u64::MAX, true);
        }
    }

    /// Raises the size to `size` if it is smaller.
    pub fn grow_to(&self, size: u64) {
        let mut state = self.state.lock();
        state.size = state.size.max(size);
    }

    /// Reads from `offset`; returns how many bytes there were before the end.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let state = self.state.lock();
        let available = state.size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        for (index, within, part) in parts(offset, available) {
            let target = &mut bytes[part];
            match state.pages.get(index) {
                Some(frame) => self.memory.frames().read(frame, within, target),
                None => target.fill(0),
            }
        }
        available
    }

    /// Writes at `offset`, growing the object; returns how many bytes were written.
    ///
    /// # Errors
    /// No frame is free and nothing was written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, OutOfFrames> {
        let mut state = self.state.lock();
        let mut written = 0;
        for (index, within, part) in parts(offset, bytes.len()) {
            let whole = part.len() == PAGE_SIZE;
            let frame = match self.page(&mut state, index, !whole) {
                Ok(frame) => frame,
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            };
            written = part.end;
            self.memory.frames().write(frame, within, &bytes[part]);
        }
        state.size = state.size.max(offset + written as u64);
        Ok(written)
    }

    /// The frame of page `index` with one more reference, made if `create` says so.
    ///
    /// # Errors
    /// [`ObjectError::BeyondEnd`] or [`ObjectError::OutOfMemory`].
    pub fn frame_for(&self, index: u64, create: bool) -> Result<Option<Frame>, ObjectError> {
        let mut state = self.state.lock();
        if index >= pages_of(state.size) {
            return Err(ObjectError::BeyondEnd);
        }
        let frame = match state.pages.get(index) {
            Some(frame) => frame,
            None if create => self.page(&mut state, index, true)?,
            None => return Ok(None),
        };
        Ok(Some(self.memory.frames().share(frame).into_raw()))
    }

    /// Makes the bytes `start..end` zero and frees the pages that lie inside; the size stays.
    pub fn punch(&self, start: u64, end: u64) {
        let page = PAGE_SIZE as u64;
        let (first, last) = (start.div_ceil(page), end / page);
        {
            let mut state = self.state.lock();
            if first > last {
                self.clear_part(&state, start, end);
                return;
            }
            self.clear_part(&state, start, first * page);
            self.clear_part(&state, last * page, end);
            if first == last {
                return;
            }
            state.pages.remove_range(first, last);
            self.mappings.stale();
        }
        self.mappings.unmap(first, last, false);
    }

    /// Makes every page of the bytes `start..end` resident, without changing the size.
    ///
    /// # Errors
    /// No frame is free; the pages made so far go again.
    pub fn allocate(&self, start: u64, end: u64) -> Result<(), OutOfFrames> {
        let mut state = self.state.lock();
        let mut made: Option<(u64, u64)> = None;
        for index in start / PAGE_SIZE as u64..pages_of(end) {
            if state.pages.get(index).is_some() {
                continue;
            }
            if let Err(error) = self.page(&mut state, index, true) {
                // Only what lies beyond the size is surely unseen by others.
                if let Some((first, last)) = made {
                    let unseen = first.max(pages_of(state.size));
                    state.pages.remove_range(unseen, last + 1);
                }
                return Err(error);
            }
            made = Some((made.map_or(index, |(first, _)| first), index));
        }
        Ok(())
    }

    /// The first byte at or after `offset` that is in memory (`hole` false) or in a hole (`hole` true);
    /// `None` if there is no data before the end. The end is a hole.
    pub fn seek(&self, offset: u64, hole: bool) -> Option<u64> {
        let state = self.state.lock();
        if offset >= state.size {
            return None;
        }
        let mut index = offset / PAGE_SIZE as u64;
        if hole {
            while state.pages.get(index).is_some() {
                index += 1;
            }
            return Some(offset.max(index * PAGE_SIZE as u64).min(state.size));
        }
        let (index, _) = state.pages.next(index)?;
        let found = offset.max(index * PAGE_SIZE as u64);
        (found < state.size).then_some(found)
    }

    /// The frame of page `index`, made if there is none; zeroed only if `zeroed` says so.
    fn page(&self, state: &mut State<M>, index: u64, zeroed: bool) -> Result<Frame, OutOfFrames> {
        if let Some(frame) = state.pages.get(index) {
            return Ok(frame);
        }
        let frames = self.memory.frames();
        let frame = if zeroed {
            let frame = frames.allocate_zeroed(0, FrameKind::Object)?;
            self.memory.count(Row::FramesZeroed, 1);
            frame
        } else {
            frames.allocate(0, FrameKind::Object)?
        };
        state.pages.insert(index, frame.frame())?;
        Ok(frame.into_raw())
    }

    /// Makes the pages from `first` on one huge page of zeroes, if none of them is there. Only as far as the object
    /// reaches: what lies beyond its end would be there for nobody.
    fn make_folio(&self, state: &mut State<M>, first: u64) -> Option<Frame> {
        let end = first + HUGE_PAGES;
        let next = state.pages.next(first);
        if end > pages_of(state.size) || next.is_some_and(|(index, _)| index < end) {
            return None;
        }
        let frames = self.memory.frames();
        let Ok(folio) = frames.allocate_zeroed(FOLIO_ORDER, FrameKind::Object) else {
            self.memory.count(Row::HugeFallbacks, 1);
            return None;
        };
        state.pages.insert_folio(first, folio.frame()).ok()?;
        self.memory.count(Row::FramesZeroed, HUGE_PAGES);
        Some(folio.into_raw())
    }

    /// How many of the 512 pages from `first` on are missing, all of which the object has room for.
    fn missing(&self, state: &State<M>, first: u64) -> Result<u64, CollapseError> {
        let pages = first..first + HUGE_PAGES;
        if pages.end > pages_of(state.size) {
            return Err(CollapseError::NotEligible);
        }
        Ok(pages
            .filter(|index| state.pages.get(*index).is_none())
            .count() as u64)
    }

    /// Puts a huge page with the same contents in the place of the pages from `first` on, which nobody shows.
    fn gather_folio(&self, first: u64, most_missing: u64) -> Result<(), CollapseError> {
        let mut state = self.state.lock();
        let end = first + HUGE_PAGES;
        let frames = self.memory.frames();
        let there = |index| state.pages.get(index);
        let missing = self.missing(&state, first)?;
        if missing > most_missing {
            return Err(CollapseError::NotEligible);
        }
        let alone = |frame| frames.references(frame) == 1;
        let in_use = !(first..end).filter_map(there).all(alone);
        if in_use && !planted(Mistake::CollapseInUse) {
            // Somebody reads or writes one of them at this moment, or a device does.
            return Err(CollapseError::Busy);
        }
        let Ok(folio) = frames.allocate(FOLIO_ORDER, FrameKind::Object) else {
            self.memory.count(Row::HugeFallbacks, 1);
            return Err(CollapseError::NoFrames);
        };
        for (index, part) in (first..end).zip(folio.frame().number()..) {
            match state.pages.get(index) {
                Some(page) => frames.copy(page, Frame::new(part)),
                None => frames.clear(Frame::new(part)),
            }
        }
        let head = folio.frame();
        state
            .pages
            .insert_folio(first, head)
            .map_err(|_| CollapseError::NoFrames)?;
        let _ = folio.into_raw();
        self.mappings.stale();
        drop(state);
        self.memory.count(Row::FramesCopied, HUGE_PAGES - missing);
        self.memory.count(Row::FramesZeroed, missing);
        self.memory.count(Row::HugeCollapses, 1);
        Ok(())
    }

    /// Zeroes the bytes `start..end`, which lie in one page, if it is in memory.
    fn clear_part(&self, state: &State<M>, start: u64, end: u64) {
        if start >= end {
            return;
        }
        const ZEROES: [u8; 256] = [0; 256];
        if let Some(frame) = state.pages.get(start / PAGE_SIZE as u64) {
            let mut within = (start % PAGE_SIZE as u64) as usize;
            let mut left = (end - start) as usize;
            while left > 0 {
                let step = left.min(ZEROES.len());
                self.memory.frames().write(frame, within, &ZEROES[..step]);
                within += step;
                left -= step;
            }
        }
    }
}

impl<M: Machine> Drop for Shmem<M> {
    fn drop(&mut self) {
        self.memory.take_back(self.promised);
    }
}

impl<M: Machine> Object<M> for Shmem<M> {
    fn frame(&self, _memory: &Memory<M>, index: u64, _write: bool) -> Result<Frame, ObjectError> {
        let frame = self.frame_for(index, true)?;
        Ok(frame.expect("created above"))
    }

    fn cached(&self, _memory: &Memory<M>, index: u64) -> Option<Frame> {
        self.frame_for(index, false).ok().flatten()
    }

    fn cached_run(&self, memory: &Memory<M>, first: u64, frames: &mut [Option<Frame>]) {
        let state = self.state.lock();
        let end = pages_of(state.size);
        for (index, frame) in (first..).zip(frames) {
            *frame = match state.pages.get(index) {
                Some(found) if index < end => Some(memory.frames().share(found).into_raw()),
                Some(_) | None => None,
            };
        }
    }

    fn contains(&self, index: u64) -> bool {
        index < pages_of(self.state.lock().size)
    }

    fn folio(&self, memory: &Memory<M>, first: u64, asked: bool) -> Option<Frame> {
        let mut state = self.state.lock();
        let make = || self.may_be_huge(memory, asked);
        let head = match state.pages.folio(first) {
            Some(head) => head,
            None if make() => self.make_folio(&mut state, first)?,
            None => return None,
        };
        Some(memory.frames().share(head).into_raw())
    }

    fn may_be_huge(&self, memory: &Memory<M>, asked: bool) -> bool {
        let allows = |setting| memory.huge().allows_shared(setting, asked);
        self.huge.is_some_and(allows)
    }

    fn collapse(&self, first: u64, most_missing: u64) -> Result<(), CollapseError> {
        if self.memory.huge().shared_mode() == SharedMode::Deny {
            return Err(CollapseError::NotEligible);
        }
        {
            let state = self.state.lock();
            if state.pages.folio(first).is_some() {
                return Ok(());
            }
            if self.missing(&state, first)? > most_missing {
                return Err(CollapseError::NotEligible);
            }
        }
        // Who finds a page from now on finds it again before it is gathered, or is found out.
        self.mappings.stale();
        self.mappings.unmap(first, first + HUGE_PAGES, false);
        self.gather_folio(first, most_missing)
    }

    fn put(&self, _memory: &Memory<M>, index: u64, frame: Frame) -> Result<Put, ObjectError> {
        let mut state = self.state.lock();
        if index >= pages_of(state.size) {
            return Err(ObjectError::BeyondEnd);
        }
        if state.pages.get(index).is_some() {
            return Ok(Put::Exists);
        }
        state.pages.insert(index, frame)?;
        Ok(Put::Stored)
    }

    fn identity(&self) -> ObjectIdentity {
        self.identity
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("/dev/zero (deleted)")
    }

    fn mappings(&self) -> &Mappings<M> {
        &self.mappings
    }

    fn remove(&self, _memory: &Memory<M>, first: u64, pages: u64) -> Result<bool, ObjectError> {
        self.punch(first * PAGE_SIZE as u64, (first + pages) * PAGE_SIZE as u64);
        Ok(true)
    }

    fn is_memory(&self) -> bool {
        true
    }
}

/// How many pages `bytes` bytes touch.
fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_SIZE as u64)
}

/// Cuts `length` bytes at `offset` into pieces of one page: index, offset in the page, range of the bytes.
fn parts(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize, core::ops::Range<usize>)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE_SIZE as u64) as usize;
        let step = (PAGE_SIZE - within).min(length - done);
        let part = done..done + step;
        done += step;
        Some((at / PAGE_SIZE as u64, within, part))
    })
}
