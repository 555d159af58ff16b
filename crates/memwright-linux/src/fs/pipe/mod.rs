//! Pipes, with a name or without.

mod end;
pub mod ring;

pub use end::{PIPE_FLAGS, PipeEnd};

use crate::{
    Memory,
    errno::Errno,
    fs::open_file::Readiness,
    kernel::Kernel,
    sync::{Lock, Rank},
    wait::WaitQueue,
};
use alloc::{sync::Arc, vec, vec::Vec};
use memwright_table::{Frame, FrameKind, PAGE_SIZE};
use ring::{DEFAULT_PAGES, PIPE_BUF, Ring};

use super::turn::Turn;

struct State {
    ring: Ring,
    /// The page of each slot, while it holds bytes.
    pages: Vec<Option<Frame>>,
    readers: u32,
    writers: u32,
    /// How often each side was ever opened: who opens a named pipe waits for a change.
    reader_openings: u64,
    writer_openings: u64,
}

/// A pipe. Its bytes live in frames that exist while they hold something.
pub struct Pipe {
    memory: Arc<Memory>,
    state: Lock<State>,
    /// One reader copies at a time, and one writer.
    reading: Turn,
    writing: Turn,
    /// Woken when there is something to read, or the last writer went.
    readable: WaitQueue,
    /// Woken when there is room, or the last reader went.
    writable: WaitQueue,
}

/// What one look at a pipe gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// So many bytes moved.
    Moved(usize),
    /// Nothing now: wait.
    Wait,
    /// The other side is gone.
    Closed,
}

impl Pipe {
    /// A pipe that nobody has open.
    #[must_use]
    pub fn new(memory: &Arc<Memory>) -> Self {
        let state = State {
            ring: Ring::new(DEFAULT_PAGES),
            pages: vec![None; DEFAULT_PAGES],
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

    fn open(&self, kernel: &Kernel, reads: bool, writes: bool) {
        {
            let mut state = self.state.lock();
            state.readers += u32::from(reads);
            state.writers += u32::from(writes);
            state.reader_openings += u64::from(reads);
            state.writer_openings += u64::from(writes);
        }
        if reads {
            self.writable.wake_all(kernel);
        }
        if writes {
            self.readable.wake_all(kernel);
        }
    }

    fn close(&self, kernel: &Kernel, reads: bool, writes: bool) {
        {
            let mut state = self.state.lock();
            state.readers -= u32::from(reads);
            state.writers -= u32::from(writes);
            if state.readers == 0 && state.writers == 0 {
                // What nobody read is gone.
                state.ring = Ring::new(state.pages.len());
                self.release_pages(&mut state);
            }
        }
        if reads {
            self.writable.wake_all(kernel);
        }
        if writes {
            self.readable.wake_all(kernel);
        }
    }

    fn release_pages(&self, state: &mut State) {
        for page in &mut state.pages {
            if let Some(frame) = page.take() {
                drop(self.memory.frames().adopt(frame));
            }
        }
    }

    /// Copies the next bytes into `buffer` without consuming them.
    fn peek(&self, buffer: &mut [u8]) -> Step {
        let state = self.state.lock();
        let Some(span) = state.ring.read_span(buffer.len()) else {
            return if state.writers == 0 {
                Step::Closed
            } else {
                Step::Wait
            };
        };
        if let Some(frame) = state.pages[span.slot] {
            self.memory
                .frames()
                .read(frame, span.offset, &mut buffer[..span.length]);
        }
        Step::Moved(span.length)
    }

    /// Consumes bytes that were peeked at.
    fn consume(&self, count: usize) {
        let mut state = self.state.lock();
        if let Some(slot) = state.ring.consume(count) {
            if let Some(frame) = state.pages[slot].take() {
                drop(self.memory.frames().adopt(frame));
            }
        }
    }

    /// How much of a write of `length` bytes can be stored now.
    fn room(&self, length: usize) -> Step {
        let state = self.state.lock();
        if state.readers == 0 {
            return Step::Closed;
        }
        state.ring.admit(length).map_or(Step::Wait, Step::Moved)
    }

    /// Stores bytes that were admitted; returns how many, fewer when no frame is free.
    ///
    /// # Errors
    /// `ENOMEM` if not one could be stored.
    fn append(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut state = self.state.lock();
        let mut done = 0;
        while let Some(span) = state.ring.write_span(bytes.len() - done) {
            let frame = match state.pages[span.slot] {
                Some(frame) => frame,
                None => match self.memory.frames().allocate(0, FrameKind::Slab) {
                    Ok(frame) => *state.pages[span.slot].insert(frame.into_raw()),
                    Err(_) if done > 0 => break,
                    Err(_) => return Err(Errno::ENOMEM),
                },
            };
            let part = &bytes[done..done + span.length];
            self.memory.frames().write(frame, span.offset, part);
            state.ring.produce(span.length);
            done += span.length;
        }
        Ok(done)
    }

    fn readiness(&self, reads: bool, writes: bool) -> Readiness {
        let state = self.state.lock();
        let mut ready = Readiness::empty();
        if reads {
            ready.set(Readiness::READ, state.ring.readable() > 0);
            // A named pipe that no writer ever opened is not hung up.
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

    /// Bytes waiting to be read.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state.lock().ring.readable()
    }

    /// Bytes it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.state.lock().ring.capacity()
    }

    /// Changes how much it can hold, to the next power of two of pages; returns the new capacity.
    ///
    /// # Errors
    /// `EBUSY` if what it holds would not fit, `EPERM` beyond the largest size, `EINVAL` for zero.
    pub fn set_capacity(&self, kernel: &Kernel, bytes: usize) -> Result<usize, Errno> {
        if bytes == 0 {
            return Err(Errno::EINVAL);
        }
        let pages = bytes
            .div_ceil(PAGE_SIZE)
            .checked_next_power_of_two()
            .ok_or(Errno::EINVAL)?;
        if pages > ring::MAX_PAGES {
            return Err(Errno::EPERM);
        }
        {
            let mut state = self.state.lock();
            let ring = state.ring.resized(pages).ok_or(Errno::EBUSY)?;
            let mut slots = vec![None; pages];
            for page in state.ring.used_pages() {
                let slot = state.ring.slot(page);
                slots[ring.slot(page)] = state.pages[slot].take();
            }
            state.ring = ring;
            state.pages = slots;
        }
        self.writable.wake_all(kernel);
        Ok(pages * PAGE_SIZE)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for frame in state.pages.iter_mut().filter_map(Option::take) {
            drop(self.memory.frames().adopt(frame));
        }
    }
}
