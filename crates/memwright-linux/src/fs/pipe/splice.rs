//! Moving bytes between a pipe and another file, or another pipe, inside the kernel (Linux 7.3 `fs/splice.c`).
//!
//! Bytes are copied, a page or what is left of one at a time; the thread that has the turn keeps it meanwhile, as
//! Linux keeps the pipe locked.

use super::{Pipe, PipeEnd, Step};
use crate::{context::Context, errno::Errno, sync::pause_point};
use alloc::vec::Vec;
use memwright_table::{PAGE_SIZE, TryPush};

/// Most bytes of a pipe that are handed on together, so that they can be one message.
const TOGETHER: usize = 16 * PAGE_SIZE;

/// A buffer of kernel memory.
fn buffer(length: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = Vec::new();
    buffer.try_fill(length, 0).map_err(|_| Errno::ENOMEM)?;
    Ok(buffer)
}

impl Pipe {
    /// Copies bytes that wait to be read, behind the first `skip`, into `buffer`; they stay. Returns how many: fewer than
    /// asked for at the end of a page.
    fn peek(&self, skip: usize, buffer: &mut [u8]) -> usize {
        let state = self.state.lock();
        let Some(span) = state.ring.span_behind(skip, buffer.len()) else {
            return 0;
        };
        let Some(page) = state.pages[span.slot] else {
            return 0;
        };
        let frames = self.memory.frames();
        frames.read(page.frame, span.offset, &mut buffer[..span.length]);
        span.length
    }

    /// Copies up to the whole of `buffer` as [`Self::peek`] does.
    fn peek_all(&self, skip: usize, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            match self.peek(skip + done, &mut buffer[done..]) {
                0 => break,
                count => done += count,
            }
        }
        done
    }

    /// Consumes bytes of several pages.
    fn consume_all(&self, count: usize) {
        let mut left = count;
        while left > 0 {
            let (Step::Moved(here), _) = self.next_read(left) else {
                break;
            };
            self.consume(here);
            left -= here;
        }
    }

    /// Whether there is something to read.
    fn filled(&self) -> Step {
        self.next_read(1).0
    }

    /// How many bytes fit.
    fn free(&self) -> Step {
        let state = self.state.lock();
        match state.ring.writable() {
            _ if state.readers == 0 => Step::Closed,
            0 => Step::Wait,
            room => Step::Moved(room),
        }
    }
}

impl PipeEnd {
    /// Waits until there is something to read; false if nobody is left to write it.
    ///
    /// # Errors
    /// `EAGAIN` unless `waits`, `ERESTARTSYS`.
    pub fn await_bytes(&self, context: &Context<'_>, waits: bool) -> Result<bool, Errno> {
        let look = || match self.pipe.filled() {
            Step::Wait => None,
            Step::Closed => Some(false),
            Step::Moved(_) => Some(true),
        };
        match look() {
            Some(there) => Ok(there),
            None if !waits => Err(Errno::EAGAIN),
            None => context
                .wait_until(&[&self.pipe.readable], None, look)
                .map_err(|error| error.restart()),
        }
    }

    /// Waits until something fits; returns how many bytes do.
    ///
    /// # Errors
    /// `EPIPE` without a reader, `EAGAIN` unless `waits`, `ERESTARTSYS`.
    pub fn await_room(&self, context: &Context<'_>, waits: bool) -> Result<usize, Errno> {
        let look = || match self.pipe.free() {
            Step::Wait => None,
            Step::Closed => Some(0),
            Step::Moved(room) => Some(room),
        };
        let room = match look() {
            Some(room) => room,
            None if !waits => return Err(Errno::EAGAIN),
            None => context
                .wait_until(&[&self.pipe.writable], None, look)
                .map_err(|error| error.restart())?,
        };
        if room == 0 {
            context.broken_pipe();
            return Err(Errno::EPIPE);
        }
        Ok(room)
    }

    /// Fills the pipe with up to `length` bytes of `get`, as far as they fit, until it gives fewer than it is asked for;
    /// returns how many. `get` is told how many bytes came before, and is asked for the rest of a page at a time, which
    /// has its place in the pipe by then; or, if it gives `messages`, once for all of one.
    ///
    /// # Errors
    /// Those of [`Self::await_room`], `ENOMEM`, and those of `get` unless it gave some bytes before.
    pub fn fill_from(
        &self,
        context: &Context<'_>,
        length: usize,
        (waits, messages): (bool, bool),
        mut get: impl FnMut(usize, &mut [u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let together = if messages { TOGETHER } else { PAGE_SIZE };
        let mut buffer = buffer(length.min(together))?;
        let (turn, room) = loop {
            self.await_room(context, waits)?;
            let turn = self.pipe.writing.take(context)?;
            // Another may have filled it before this thread had its turn.
            if let Step::Moved(room) = self.pipe.free() {
                break (turn, room);
            }
        };
        let most = length.min(room);
        let mut done = 0;
        let mut result = Ok(());
        while done < most {
            let limit = (most - done).min(together);
            let (got, wanted) = if messages {
                let got = get(done, &mut buffer[..limit]);
                (got.and_then(|count| self.store(&buffer[..count])), 0)
            } else {
                self.fill_page(&mut buffer[..limit], |bytes| get(done, bytes))
            };
            let count = *got.as_ref().unwrap_or(&0);
            done += count;
            result = got.map(|_| ());
            if count == 0 || count < wanted || messages {
                break;
            }
            pause_point();
        }
        drop(turn);
        if done > 0 {
            self.pipe.readable.wake_all(context.kernel);
            return Ok(done);
        }
        result.map(|()| 0)
    }

    /// Fills the rest of a page by `get`; returns how many bytes it gave, and how many it was asked for.
    fn fill_page(
        &self,
        buffer: &mut [u8],
        get: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> (Result<usize, Errno>, usize) {
        let begun = self.pipe.begin_write(self.kernel(), buffer.len());
        let (frame, span) = match begun {
            Ok(begun) => begun,
            Err(error) => return (Err(error), 0),
        };
        let bytes = &mut buffer[..span.length];
        let got = get(bytes);
        let count = *got.as_ref().unwrap_or(&0);
        let frames = self.pipe.memory.frames();
        frames.write(frame, span.offset, &bytes[..count]);
        self.pipe.finish_write(span.slot, count);
        (got, span.length)
    }

    /// Hands up to `length` bytes of the pipe to `put`, until it takes none or the pipe is empty; returns how many it took. `put` is told how many it took before. What it did not take stays in the pipe.
    ///
    /// # Errors
    /// Those of [`Self::await_bytes`], `ENOMEM`, and those of `put` unless it took some bytes before.
    pub fn drain_to(
        &self,
        context: &Context<'_>,
        length: usize,
        waits: bool,
        mut put: impl FnMut(usize, &[u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut buffer = buffer(length.min(TOGETHER))?;
        let turn = loop {
            if !self.await_bytes(context, waits)? {
                return Ok(0);
            }
            let turn = self.pipe.reading.take(context)?;
            if let Step::Moved(_) = self.pipe.filled() {
                break turn;
            }
        };
        let mut done = 0;
        let mut result = Ok(());
        while done < length {
            let limit = (length - done).min(buffer.len());
            let there = self.pipe.peek_all(0, &mut buffer[..limit]);
            if there == 0 {
                break;
            }
            let put = put(done, &buffer[..there]);
            let count = *put.as_ref().unwrap_or(&0);
            self.pipe.consume_all(count);
            done += count;
            result = put.map(|_| ());
            if count == 0 {
                break;
            }
            pause_point();
        }
        drop(turn);
        if done > 0 {
            self.pipe.writable.wake_all(context.kernel);
            return Ok(done);
        }
        result.map(|()| 0)
    }

    /// Copies up to `length` bytes of the pipe into another one, as far as they are there and fit; with `moves` they are
    /// gone from this one. Returns how many.
    ///
    /// # Errors
    /// Those of [`Self::await_bytes`] and, of the other pipe, [`Self::await_room`]; `ENOMEM`.
    pub fn hand_on(
        &self,
        context: &Context<'_>,
        to: &Self,
        length: usize,
        (waits, moves): (bool, bool),
    ) -> Result<usize, Errno> {
        let mut buffer = buffer(length.min(PAGE_SIZE))?;
        loop {
            if !self.await_bytes(context, waits)? {
                return Ok(0);
            }
            to.await_room(context, waits)?;
            let reading = self.pipe.reading.take(context)?;
            let writing = to.pipe.writing.take(context)?;
            let mut done = 0;
            let mut result = Ok(());
            while done < length {
                let Step::Moved(room) = to.pipe.free() else {
                    break;
                };
                let limit = (length - done).min(PAGE_SIZE).min(room);
                let skip = if moves { 0 } else { done };
                let there = self.pipe.peek(skip, &mut buffer[..limit]);
                if there == 0 {
                    break;
                }
                let stored = to.store(&buffer[..there]);
                let count = *stored.as_ref().unwrap_or(&0);
                if moves {
                    self.pipe.consume_all(count);
                }
                done += count;
                result = stored.map(|_| ());
                if count < there {
                    break;
                }
                pause_point();
            }
            drop((reading, writing));
            if done > 0 {
                to.pipe.readable.wake_all(context.kernel);
                if moves {
                    self.pipe.writable.wake_all(context.kernel);
                }
                return Ok(done);
            }
            result?;
        }
    }

    /// Stores bytes that fit; returns how many found memory. The caller has the turn to write.
    ///
    /// # Errors
    /// `ENOMEM` if not even the first did.
    fn store(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let (frame, span) = match self.pipe.begin_write(self.kernel(), bytes.len() - done) {
                Ok(begun) => begun,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            let part = &bytes[done..done + span.length];
            self.pipe.memory.frames().write(frame, span.offset, part);
            self.pipe.finish_write(span.slot, span.length);
            done += span.length;
        }
        Ok(done)
    }
}
