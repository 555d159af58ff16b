//! Pipes, both named and anonymous.

mod end;
mod room;
mod splice;

pub use crate::fs::body::ring;
pub use end::{Lender, PIPE_FLAGS, PipeEnd};
pub use room::Room;

use crate::{
    M, Memory,
    direct_reclaim::Retry,
    errno::Errno,
    fs::{caller::Caller, readiness::Readiness, turn::Turn, vfs::Vfs},
    identity::Capabilities,
    sync::{Lock, Rank},
    wait::WaitQueue,
};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;
use memwright_table::{Frame, FrameKind, FrameRef, OutOfFrames, PAGE_SIZE};
use ring::{DEFAULT_PAGES, PIPE_BUF, Ring, Span};

/// The page of a slot that contains data.
#[derive(Clone, Copy)]
struct Page {
    frame: Frame,
    /// Whether the page belongs to user memory (`vmsplice`). Such a page is full, and the pipe must not write to it.
    lent: bool,
}

struct State {
    ring: Ring,
    /// The charge for the slots, while the pipe is open.
    room: Option<Room>,
    /// The page of each slot, if the slot contains data. There are no slots while the pipe is not open.
    pages: Vec<Option<Page>>,
    /// Whether a writer is copying into the page after the written bytes.
    writing: bool,
    readers: u32,
    writers: u32,
    /// How often each side was opened. A thread that opens a named pipe waits until the number of openings of the other
    /// side changes.
    reader_openings: u64,
    writer_openings: u64,
}

impl State {
    /// Updates the ring's rule for the page that is read next: if that page belongs to user memory, the free part
    /// before its unread bytes must not be written.
    fn note_front(&mut self) {
        let front = self.ring.slot(self.ring.used_pages().start);
        let lent = self.pages[front].is_some_and(|page| page.lent);
        self.ring.keep_front(lent);
    }
}

/// A pipe. Each of its frames is allocated only while it contains data. The frames are allocated as object pages, so
/// that pipes cannot use the frames that are reserved for the kernel.
pub struct Pipe {
    memory: Arc<Memory>,
    state: Lock<State>,
    /// `reading` serialises the copies of readers, and `writing` those of writers.
    reading: Turn,
    writing: Turn,
    /// Woken when there is something to read or the last writer closes its end.
    readable: WaitQueue,
    /// Woken when there is room or the last reader closes its end.
    writable: WaitQueue,
}

/// The result of one attempt to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// This number of bytes can be moved.
    Moved(usize),
    /// No byte can be moved now: the thread must wait.
    Wait,
    /// The other side is closed.
    Closed,
}

impl Pipe {
    /// Creates a pipe of which no side is open.
    #[must_use]
    pub fn new(memory: &Arc<Memory>) -> Self {
        let state = State {
            ring: Ring::new(DEFAULT_PAGES),
            room: None,
            pages: Vec::new(),
            writing: false,
            readers: 0,
            writers: 0,
            reader_openings: 0,
            writer_openings: 0,
        };
        Self {
            memory: memory.clone(),
            state: Lock::new(Rank::File, state),
            reading: Turn::new(),
            writing: Turn::new(),
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
        }
    }

    /// Opens one side of the pipe, or both. If the pipe was not open, `brought` becomes its charge and provides its
    /// slots, otherwise `brought` is dropped.
    fn open(&self, brought: Option<Room>, reads: bool, writes: bool) {
        let mut brought = brought;
        {
            let mut state = self.state.lock();
            if state.room.is_none()
                && let Some(mut room) = brought.take()
            {
                state.pages = room.take_slots();
                state.ring = Ring::new(state.pages.len());
                state.room = Some(room);
            }
            state.readers += u32::from(reads);
            state.writers += u32::from(writes);
            state.reader_openings += u64::from(reads);
            state.writer_openings += u64::from(writes);
        }
        if reads {
            self.writable.wake_all();
        }
        if writes {
            self.readable.wake_all();
        }
    }

    fn close(&self, reads: bool, writes: bool) {
        let mut left = None;
        {
            let mut state = self.state.lock();
            state.readers -= u32::from(reads);
            state.writers -= u32::from(writes);
            if state.readers == 0 && state.writers == 0 {
                // Unread data is discarded.
                self.release_pages(&mut state);
                state.ring = Ring::new(DEFAULT_PAGES);
                left = Some((state.room.take(), core::mem::take(&mut state.pages)));
            }
        }
        drop(left);
        if reads {
            self.writable.wake_all();
        }
        if writes {
            self.readable.wake_all();
        }
    }

    /// Returns the size in bytes of the pages with data.
    fn buffered_bytes(&self) -> u64 {
        let pages = self.state.lock().ring.used_pages();
        (pages.end - pages.start) * PAGE_SIZE as u64
    }

    fn release_pages(&self, state: &mut State) {
        for page in &mut state.pages {
            if let Some(page) = page.take() {
                drop(self.memory.frames().adopt(page.frame));
            }
        }
    }

    /// Returns the location of the next bytes to read, at most `limit` and within one page. The bytes stay in the pipe
    /// until they are consumed.
    fn next_read(&self, limit: usize) -> (Step, Option<(Frame, Span)>) {
        let state = self.state.lock();
        let Some(span) = state.ring.read_span(limit) else {
            let step = if state.writers == 0 {
                Step::Closed
            } else {
                Step::Wait
            };
            return (step, None);
        };
        let place = state.pages[span.slot].map(|page| (page.frame, span));
        (Step::Moved(span.length), place)
    }

    /// Consumes `count` bytes, which are within one page, and frees the page if it is used up.
    fn consume(&self, count: usize) {
        let mut state = self.state.lock();
        let writing = state.writing;
        if let Some(slot) = state.ring.consume(count, writing)
            && let Some(page) = state.pages[slot].take()
        {
            drop(self.memory.frames().adopt(page.frame));
        }
        state.note_front();
    }

    /// Returns how many bytes of a write of `length` bytes can be stored now, or whether the writer must wait or there
    /// is no reader.
    fn room(&self, length: usize) -> Step {
        let state = self.state.lock();
        if state.readers == 0 {
            return Step::Closed;
        }
        state.ring.admit(length).map_or(Step::Wait, Step::Moved)
    }

    /// Returns the location for the next bytes to write, at most `limit` and within one page. The page stays in its
    /// slot until [`Self::finish_write`]. The caller holds the mutex `writing`.
    ///
    /// # Errors
    /// `ENOMEM` if no frame is free, `EAGAIN` if the pipe is full.
    fn begin_write(&self, vfs: &Vfs, limit: usize) -> Result<(Frame, Span), Errno> {
        let begun = vfs.reclaim.retry(|| self.try_begin_write(limit));
        begun.map_err(|_| Errno::ENOMEM)?.ok_or(Errno::EAGAIN)
    }

    /// Like [`Self::begin_write`], but without direct reclaim. Returns `None` if the pipe is full.
    fn try_begin_write(&self, limit: usize) -> Result<Option<(Frame, Span)>, OutOfFrames> {
        let mut state = self.state.lock();
        let Some(span) = state.ring.write_span(limit) else {
            return Ok(None);
        };
        let page = match state.pages[span.slot] {
            Some(page) => page,
            None => {
                let frames = self.memory.frames();
                let frame = frames.allocate(0, FrameKind::Object)?;
                *state.pages[span.slot].insert(Page {
                    frame: frame.into_raw(),
                    lent: false,
                })
            }
        };
        debug_assert!(!page.lent, "a lent page is full");
        state.writing = true;
        Ok(Some((page.frame, span)))
    }

    /// Appends a page of user memory to the pipe without copying, and takes over the reference `frame`. Returns `frame`
    /// if there is no free slot for a complete page. The caller holds the mutex `writing`.
    fn lend<'a>(&self, frame: FrameRef<'a, M>) -> Option<FrameRef<'a, M>> {
        let mut state = self.state.lock();
        let whole = |span: &Span| span.offset == 0 && span.length == PAGE_SIZE;
        let span = state.ring.write_span(PAGE_SIZE).filter(whole);
        match span {
            Some(span) if state.pages[span.slot].is_none() => {
                state.pages[span.slot] = Some(Page {
                    frame: frame.into_raw(),
                    lent: true,
                });
                state.ring.produce(PAGE_SIZE);
                state.note_front();
                None
            }
            Some(_) | None => Some(frame),
        }
    }

    /// Records that `count` bytes were stored in the span that [`Self::begin_write`] returned. If the pipe is still
    /// empty, frees the page.
    fn finish_write(&self, slot: usize, count: usize) {
        let mut state = self.state.lock();
        state.writing = false;
        state.ring.produce(count);
        if count == 0
            && state.ring.readable() == 0
            && let Some(page) = state.pages[slot].take()
        {
            drop(self.memory.frames().adopt(page.frame));
        }
    }

    fn readiness(&self, reads: bool, writes: bool) -> Readiness {
        let state = self.state.lock();
        let mut ready = Readiness::empty();
        if reads {
            ready.set(Readiness::READ, state.ring.readable() > 0);
            // A named pipe that was never opened for writing does not report a hang-up.
            ready.set(
                Readiness::HANGUP,
                state.writers == 0 && state.writer_openings > 0,
            );
        }
        if writes {
            ready.set(Readiness::WRITE, state.ring.writable() >= PIPE_BUF);
            ready.set(Readiness::ERROR, state.readers == 0);
        }
        ready
    }

    /// Returns the number of bytes waiting to be read.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state.lock().ring.readable()
    }

    /// Returns the capacity in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.state.lock().ring.capacity()
    }

    /// Changes the capacity to at least `bytes`, rounded up to a power of two of pages. Returns the new capacity in
    /// bytes (`pipe_set_size` in `fs/pipe.c` of Linux 7.3).
    ///
    /// # Errors
    /// `EBUSY` if the contents do not fit in the new capacity or a writer is copying into the pipe, `EPERM` if the
    /// capacity exceeds a limit and the caller is unprivileged, `EINVAL` for an invalid size, `ENOMEM`.
    pub fn set_capacity(&self, caller: &dyn Caller, bytes: usize) -> Result<usize, Errno> {
        let size = rounded_size(bytes).ok_or(Errno::EINVAL)?;
        let pages = size / PAGE_SIZE;
        let grows = pages > self.state.lock().ring.capacity() / PAGE_SIZE;
        let largest = &caller.vfs().file_limits.largest_pipe;
        if grows
            && size as u64 > largest.load(Ordering::Relaxed)
            && !caller.has_any(Capabilities::RESOURCES)
        {
            return Err(Errno::EPERM);
        }
        let mut slots = room::slots(pages)?;
        {
            let mut state = self.state.lock();
            if state.writing {
                return Err(Errno::EBUSY);
            }
            let ring = state.ring.resized(pages).ok_or(Errno::EBUSY)?;
            if let Some(room) = &mut state.room {
                room.resize(caller, pages as u64, grows)?;
            }
            for page in state.ring.used_pages() {
                let slot = state.ring.slot(page);
                slots[ring.slot(page)] = state.pages[slot].take();
            }
            state.ring = ring;
            core::mem::swap(&mut state.pages, &mut slots);
            state.note_front();
        }
        drop(slots);
        self.writable.wake_all();
        Ok(size)
    }
}

/// Returns the capacity in bytes of a pipe for which `bytes` bytes are requested: a power of two of pages, or `None` if
/// the request is too large (`round_pipe_size` in `fs/pipe.c` of Linux 7.3).
#[must_use]
pub fn rounded_size(bytes: usize) -> Option<usize> {
    const MOST: usize = 1 << 31;
    let pages = bytes.max(1).div_ceil(PAGE_SIZE);
    (bytes <= MOST).then(|| pages.next_power_of_two() * PAGE_SIZE)
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for page in state.pages.iter_mut().filter_map(Option::take) {
            drop(self.memory.frames().adopt(page.frame));
        }
    }
}
