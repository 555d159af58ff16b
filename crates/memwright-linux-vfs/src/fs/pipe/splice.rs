//! Moves data between a pipe and another file or pipe inside the kernel (Linux 7.3 `fs/splice.c`).
//!
//! Data is copied through a buffer. The copying thread holds a sleeping mutex of the pipe, as it holds the pipe's mutex
//! on Linux.

use crate::fs::{
    body::pipe::{Pipe, Step},
    caller::Caller,
    pipe::PipeEnd,
};
use alloc::vec::Vec;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::pause_point;
use memwright_table::{PAGE_SIZE, TryPush};

/// Maximum number of bytes that one call of `get` or `put` transfers. For a socket, each call transfers one message.
const TOGETHER: usize = 16 * PAGE_SIZE;

/// Allocates a zeroed buffer of `length` bytes on the kernel heap.
fn buffer(length: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = Vec::new();
    buffer.try_fill(length, 0).map_err(|_| Errno::ENOMEM)?;
    Ok(buffer)
}

impl Pipe {
    /// Copies unread bytes into `buffer` without consuming them, starting after the first `skip` unread bytes. Stops at
    /// the end of a page. Returns the number of bytes copied.
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

    /// Like [`Self::peek`], but continues across pages until `buffer` is full or the pipe is empty.
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

    /// Consumes `count` unread bytes, or all if there are fewer. The bytes can be in several pages.
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

    /// Returns [`Step::Moved`] if there are unread bytes, [`Step::Wait`] if a reader must wait, and [`Step::Closed`] if
    /// there are none and no writer.
    fn filled(&self) -> Step {
        self.next_read(1).0
    }

    /// Returns [`Step::Moved`] with the number of bytes that fit, [`Step::Wait`] if a writer must wait, and
    /// [`Step::Closed`] if there is no reader.
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
    /// Waits until there are unread bytes. Returns `false` if there are none and no writer is left.
    ///
    /// # Errors
    /// `EAGAIN` unless `waits`, `ERESTARTSYS`.
    pub fn await_bytes(&self, caller: &dyn Caller, waits: bool) -> Result<bool, Errno> {
        let look = || match self.pipe.filled() {
            Step::Wait => None,
            Step::Closed => Some(false),
            Step::Moved(_) => Some(true),
        };
        match look() {
            Some(there) => Ok(there),
            None if !waits => Err(Errno::EAGAIN),
            None => caller
                .wait_until(&[&self.pipe.readable], None, look)
                .map_err(|error| error.restart()),
        }
    }

    /// Waits until the pipe has room. Returns the number of bytes that fit.
    ///
    /// # Errors
    /// `EPIPE` without a reader, `EAGAIN` unless `waits`, `ERESTARTSYS`.
    pub fn await_room(&self, caller: &dyn Caller, waits: bool) -> Result<usize, Errno> {
        let look = || match self.pipe.free() {
            Step::Wait => None,
            Step::Closed => Some(0),
            Step::Moved(room) => Some(room),
        };
        let room = match look() {
            Some(room) => room,
            None if !waits => return Err(Errno::EAGAIN),
            None => caller
                .wait_until(&[&self.pipe.writable], None, look)
                .map_err(|error| error.restart())?,
        };
        if room == 0 {
            caller.broken_pipe();
            return Err(Errno::EPIPE);
        }
        Ok(room)
    }

    /// Fills the pipe with up to `length` bytes that `get` returns. Stops when the pipe is full or `get` returns fewer
    /// bytes than requested. Returns the number of bytes stored.
    ///
    /// `get` is called with the number of bytes stored so far and a buffer to fill. Without `messages`, it is called
    /// for one page of the pipe at a time, and the page is allocated before the call. With `messages`, it is called
    /// only once, with a buffer for a complete message.
    ///
    /// # Errors
    /// The errors of [`Self::await_room`], `ENOMEM`, and the errors of `get` unless it has returned bytes before.
    pub fn fill_from(
        &self,
        caller: &dyn Caller,
        length: usize,
        (waits, messages): (bool, bool),
        mut get: impl FnMut(usize, &mut [u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let together = if messages { TOGETHER } else { PAGE_SIZE };
        let mut buffer = buffer(length.min(together))?;
        let (turn, room) = loop {
            self.await_room(caller, waits)?;
            let turn = self.pipe.writing.take(caller)?;
            // If another thread has filled the pipe before this thread acquired the mutex, wait again.
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
            self.pipe.readable.wake_all();
            return Ok(done);
        }
        result.map(|()| 0)
    }

    /// Fills the rest of the page at the write position with bytes that `get` returns. Returns the number of bytes that
    /// `get` returned, and the number of bytes that was requested from `get`.
    fn fill_page(
        &self,
        buffer: &mut [u8],
        get: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> (Result<usize, Errno>, usize) {
        let begun = self.pipe.begin_write(self.vfs(), buffer.len());
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

    /// Passes up to `length` unread bytes of the pipe to `put`. Stops when `put` takes no byte or the pipe is empty.
    /// Returns the number of bytes taken.
    ///
    /// `put` is called with the number of bytes taken so far and the next bytes. It returns how many of these bytes it
    /// takes. The others stay in the pipe.
    ///
    /// # Errors
    /// The errors of [`Self::await_bytes`], `ENOMEM`, and the errors of `put` unless it has taken bytes before.
    pub fn drain_to(
        &self,
        caller: &dyn Caller,
        length: usize,
        waits: bool,
        mut put: impl FnMut(usize, &[u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut buffer = buffer(length.min(TOGETHER))?;
        let turn = loop {
            if !self.await_bytes(caller, waits)? {
                return Ok(0);
            }
            let turn = self.pipe.reading.take(caller)?;
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
            self.pipe.writable.wake_all();
            return Ok(done);
        }
        result.map(|()| 0)
    }

    /// Copies up to `length` bytes of this pipe into `to`: as many as are available and fit. If `moves` is set, the
    /// copied bytes are removed from this pipe (`splice`), otherwise they stay (`tee`). Returns the number of bytes
    /// copied.
    ///
    /// # Errors
    /// The errors of [`Self::await_bytes`] for this pipe, and of [`Self::await_room`] for the pipe `to`; `ENOMEM`.
    pub fn hand_on(
        &self,
        caller: &dyn Caller,
        to: &Self,
        length: usize,
        (waits, moves): (bool, bool),
    ) -> Result<usize, Errno> {
        let mut buffer = buffer(length.min(PAGE_SIZE))?;
        loop {
            if !self.await_bytes(caller, waits)? {
                return Ok(0);
            }
            to.await_room(caller, waits)?;
            let reading = self.pipe.reading.take(caller)?;
            let writing = to.pipe.writing.take(caller)?;
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
                to.pipe.readable.wake_all();
                if moves {
                    self.pipe.writable.wake_all();
                }
                return Ok(done);
            }
            result?;
        }
    }

    /// Appends `bytes`, for which the pipe has room. Returns the number of bytes stored, which is less than the length
    /// of `bytes` if memory runs out. The caller holds the mutex `writing` of the pipe.
    ///
    /// # Errors
    /// `ENOMEM` if no byte could be stored.
    fn store(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let (frame, span) = match self.pipe.begin_write(self.vfs(), bytes.len() - done) {
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
