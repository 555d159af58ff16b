//! Pipes: the pages with the unread bytes, and the number of readers and writers.

use crate::fs::{
    body::{
        ring::{DEFAULT_PAGES, PIPE_BUF, Ring, Span},
        room::{Page, Room},
    },
    readiness::Readiness,
    turn::Turn,
};
use alloc::{sync::Arc, vec::Vec};
use memwright_linux_abi::{M, Memory};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::wait::WaitQueue;
use memwright_table::{Frame, FrameKind, FrameRef, OutOfFrames, PAGE_SIZE};

/// The state of a pipe.
pub(in crate::fs) struct State {
    pub(in crate::fs) ring: Ring,
    /// The charge for the capacity of the pipe; `None` while neither side is open.
    pub(in crate::fs) room: Option<Room>,
    /// The page in each slot of the ring; `None` for a slot without data. The list is empty while neither side is open.
    pub(in crate::fs) pages: Vec<Option<Page>>,
    /// Whether a writer is copying into the page at the write position.
    pub(in crate::fs) writing: bool,
    pub(in crate::fs) readers: u32,
    pub(in crate::fs) writers: u32,
    /// Number of times that each side was opened. A thread that waits for an open of the other side of a named pipe
    /// compares these numbers, because the other side can be closed again before the thread runs.
    pub(in crate::fs) reader_openings: u64,
    pub(in crate::fs) writer_openings: u64,
}

impl State {
    /// Sets whether writers can use the page that is read next. They cannot use a page of user memory, because they
    /// must not store bytes before the unread bytes of such a page.
    pub(in crate::fs) fn note_front(&mut self) {
        let front = self.ring.slot(self.ring.used_pages().start);
        let lent = self.pages[front].is_some_and(|page| page.lent);
        self.ring.keep_front(lent);
    }
}

/// A pipe. The frame of a slot is allocated only while the slot contains data. The frames are allocated as object
/// pages, so that pipes cannot use the frames that are reserved for the kernel.
pub struct Pipe {
    pub(in crate::fs) memory: Arc<Memory>,
    pub(in crate::fs) state: Lock<State>,
    /// Serialises the copies of readers (`reading`) and those of writers (`writing`).
    pub(in crate::fs) reading: Turn,
    pub(in crate::fs) writing: Turn,
    /// Woken when bytes arrive or the last writer closes its end.
    pub(in crate::fs) readable: WaitQueue,
    /// Woken when the pipe has room or the last reader closes its end.
    pub(in crate::fs) writable: WaitQueue,
}

/// The result of one attempt to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fs) enum Step {
    /// This number of bytes can be moved.
    Moved(usize),
    /// No byte can be moved now: the thread must wait.
    Wait,
    /// The other side has no open end.
    Closed,
}

impl Pipe {
    /// Creates a pipe with neither side open.
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

    /// Opens one side of the pipe, or both. If neither side was open, `brought` becomes the charge of the pipe and
    /// provides its slots. Otherwise `brought` is dropped, which uncharges the user.
    pub(in crate::fs) fn open(&self, brought: Option<Room>, reads: bool, writes: bool) {
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

    pub(in crate::fs) fn close(&self, reads: bool, writes: bool) {
        let mut left = None;
        {
            let mut state = self.state.lock();
            state.readers -= u32::from(reads);
            state.writers -= u32::from(writes);
            if state.readers == 0 && state.writers == 0 {
                // Both sides are closed, so the unread data is discarded.
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

    /// Returns the total size in bytes of the pages with data.
    pub(in crate::fs) fn buffered_bytes(&self) -> u64 {
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

    /// Returns the page and the location of the next bytes to read: at most `limit` bytes, all in one page. The bytes
    /// stay in the pipe until [`Self::consume`].
    pub(in crate::fs) fn next_read(&self, limit: usize) -> (Step, Option<(Frame, Span)>) {
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

    /// Consumes `count` unread bytes, which are all in one page. Frees the page if it contains no more data.
    pub(in crate::fs) fn consume(&self, count: usize) {
        let mut state = self.state.lock();
        let writing = state.writing;
        if let Some(slot) = state.ring.consume(count, writing)
            && let Some(page) = state.pages[slot].take()
        {
            drop(self.memory.frames().adopt(page.frame));
        }
        state.note_front();
    }

    /// Returns how many bytes of a write of `length` bytes can be stored now ([`Step::Moved`]). Returns [`Step::Wait`]
    /// if the writer must wait, and [`Step::Closed`] if there is no reader.
    pub(in crate::fs) fn room(&self, length: usize) -> Step {
        let state = self.state.lock();
        if state.readers == 0 {
            return Step::Closed;
        }
        state.ring.admit(length).map_or(Step::Wait, Step::Moved)
    }

    /// Returns the location for the next bytes to write, at most `limit` and within one page. The page cannot be freed
    /// before [`Self::finish_write`]. The caller holds the mutex `writing`. Returns `None` if the pipe is full.
    pub(in crate::fs) fn try_begin_write(
        &self,
        limit: usize,
    ) -> Result<Option<(Frame, Span)>, OutOfFrames> {
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

    /// Appends a page of user memory to the pipe without copying it, and takes ownership of the reference `frame`. If
    /// the write position is not at the start of an empty slot, appends nothing and returns `frame`. The caller holds
    /// the mutex `writing`.
    pub(in crate::fs) fn lend<'a>(&self, frame: FrameRef<'a, M>) -> Option<FrameRef<'a, M>> {
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

    /// Records that `count` bytes were stored in the slot that [`Self::try_begin_write`] returned. Frees the page if no
    /// byte was stored and the pipe is empty.
    pub(in crate::fs) fn finish_write(&self, slot: usize, count: usize) {
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

    pub(in crate::fs) fn readiness(&self, reads: bool, writes: bool) -> Readiness {
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
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for page in state.pages.iter_mut().filter_map(Option::take) {
            drop(self.memory.frames().adopt(page.frame));
        }
    }
}
