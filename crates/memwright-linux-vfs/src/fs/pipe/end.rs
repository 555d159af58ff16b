//! The ends of pipes as open files: the read end, the write end, or one for both directions.

use crate::{
    direct_reclaim::Retry,
    fs::{
        abilities::{Polling, Positions},
        body::{
            pipe::{Pipe, Step},
            room::Room,
        },
        caller::Caller,
        open_file::{File, OpenFile},
        open_kind::OpenKind,
        pipe::ring::Span,
        readiness::Readiness,
        transfer::{Sink, Source},
        vfs::Vfs,
    },
};
use alloc::sync::Arc;
use linux_raw_sys::{general as raw, ioctl};
use memwright::{Access, Awaited, FaultError};
use memwright_linux_abi::{M, errno::Errno};
use memwright_linux_sched::wait::{Queues, WaitQueue};
use memwright_table::FrameRef;
use memwright_table::{Frame, PAGE_SIZE, VirtAddr};

/// The address space whose pages `vmsplice` puts into a pipe.
pub trait Lender {
    /// Returns a reference to the frame of the page at `at`. The pipe and the address space then share the frame.
    ///
    /// # Errors
    /// The errors of [`AddressSpace::lend`](memwright::AddressSpace::lend).
    fn lend(&self, at: VirtAddr) -> Result<FrameRef<'_, M>, FaultError>;

    /// Waits until the userfaultfd resolves a fault that [`lend`](Self::lend) encountered.
    ///
    /// # Errors
    /// `EFAULT`, `EINTR`.
    fn wait_for(&self, awaited: Awaited) -> Result<(), Errno>;
}

/// What an open of one side of a pipe requires of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partner {
    /// Nothing. An anonymous pipe can be opened even if its other side has been closed.
    Any,
    /// An open for writing requires a reader, and fails if there is none. An open for reading requires nothing.
    IsThere,
    /// The open waits until the other side is opened.
    Comes,
}

impl Partner {
    /// Returns the requirement that an open has on the other side. `waits` is false for `O_NONBLOCK`.
    #[must_use]
    pub fn expected(is_anonymous: bool, waits: bool) -> Self {
        match (is_anonymous, waits) {
            (true, _) => Self::Any,
            (false, false) => Self::IsThere,
            (false, true) => Self::Comes,
        }
    }
}

/// An open end of a pipe.
pub struct PipeEnd {
    /// The pipe.
    pub pipe: Arc<Pipe>,
    vfs: &'static Vfs,
    reads: bool,
    writes: bool,
}

impl PipeEnd {
    /// Opens the pipe for reading, writing or both, without waiting for the other side. If neither side is open, `room`
    /// becomes the charge of the pipe and provides its slots.
    #[must_use]
    pub fn new(
        vfs: &'static Vfs,
        pipe: &Arc<Pipe>,
        room: Option<Room>,
        (reads, writes): (bool, bool),
    ) -> Self {
        pipe.open(room, reads, writes);
        Self {
            pipe: pipe.clone(),
            vfs,
            reads,
            writes,
        }
    }

    /// Opens a pipe by a path: a named pipe, or an anonymous pipe through `/proc/PID/fd` (`fifo_open` in `fs/pipe.c` of
    /// Linux 7.2).
    ///
    /// # Errors
    /// `ENXIO` if a reader is required and there is none, `ERESTARTSYS` after a signal, `ENFILE` if the user's pipes
    /// have too many pages, `ENOMEM`.
    pub fn open_path(
        caller: &dyn Caller,
        pipe: &Arc<Pipe>,
        (reads, writes): (bool, bool),
        partner: Partner,
    ) -> Result<Self, Errno> {
        let readers = pipe.state.lock().readers;
        if writes && !reads && partner == Partner::IsThere && readers == 0 {
            return Err(Errno::ENXIO);
        }
        let before = {
            let state = pipe.state.lock();
            (state.reader_openings, state.writer_openings)
        };
        let room = Room::new(caller)?;
        let end = Self::new(caller.vfs(), pipe, Some(room), (reads, writes));
        if reads == writes || partner != Partner::Comes {
            return Ok(end);
        }
        let met = || {
            let state = pipe.state.lock();
            let met = if reads {
                state.writers > 0 || state.writer_openings != before.1
            } else {
                state.readers > 0 || state.reader_openings != before.0
            };
            met.then_some(())
        };
        let queue = if reads {
            &pipe.readable
        } else {
            &pipe.writable
        };
        caller
            .wait_until(&[queue], None, met)
            .map_err(|error| error.restart())?;
        Ok(end)
    }

    /// Waits on `queue` until `look` no longer returns [`Step::Wait`].
    ///
    /// # Errors
    /// `EAGAIN` if `open` is non-blocking, `ERESTARTSYS`.
    fn wait(
        caller: &dyn Caller,
        open: &OpenFile,
        queue: &WaitQueue,
        look: impl Fn() -> Step,
    ) -> Result<(), Errno> {
        if open.is_nonblocking() {
            return Err(Errno::EAGAIN);
        }
        let changed = || (look() != Step::Wait).then_some(());
        caller
            .wait_until(&[queue], None, changed)
            .map_err(|error| error.restart())
    }
}

impl Pipe {
    /// Calls [`Self::try_begin_write`] and runs direct reclaim if no frame is free. The caller holds the mutex
    /// `writing`.
    ///
    /// # Errors
    /// `ENOMEM` if no frame is free, `EAGAIN` if the pipe is full.
    pub(super) fn begin_write(&self, vfs: &Vfs, limit: usize) -> Result<(Frame, Span), Errno> {
        let begun = vfs.reclaim.retry(|| self.try_begin_write(limit));
        begun.map_err(|_| Errno::ENOMEM)?.ok_or(Errno::EAGAIN)
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        self.pipe.close(self.reads, self.writes);
        self.pipe.readable.sweep();
        self.pipe.writable.sweep();
    }
}

impl File for PipeEnd {
    fn counted_as(&self) -> OpenKind {
        OpenKind::Pipe
    }

    fn kernel_bytes(&self) -> u64 {
        /// Estimated size in bytes of a pipe with its inode.
        const PLAIN: u64 = 1024;
        // Each end reports half of the memory, so that the memory counts once for a process that has both ends open.
        (PLAIN + self.pipe.buffered_bytes()) / 2
    }

    fn positions(&self) -> Positions {
        Positions::Refused
    }

    fn read(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        _position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        if sink.left() == 0 {
            return Ok(0);
        }
        let mut done = 0;
        loop {
            let turn = self.pipe.reading.take(caller)?;
            match self.pipe.next_read(sink.left()) {
                (Step::Moved(count), Some((frame, span))) => {
                    let memory = &self.pipe.memory;
                    let put = match sink.put_frame(memory, frame, span.offset, count) {
                        Ok(put) => put,
                        Err(_) if done > 0 => 0,
                        Err(error) => return Err(error),
                    };
                    self.pipe.consume(put);
                    drop(turn);
                    done += put;
                    if put < count || sink.left() == 0 {
                        break;
                    }
                }
                (Step::Closed | Step::Wait, _) if done > 0 => break,
                (Step::Wait, _) => {
                    drop(turn);
                    let look = || self.pipe.next_read(1).0;
                    Self::wait(caller, open, &self.pipe.readable, look)?;
                }
                // `next_read` returns a page whenever it returns `Moved`, so `Moved` without a page does not occur.
                (Step::Closed | Step::Moved(_), _) => return Ok(0),
            }
        }
        self.pipe.writable.wake_all();
        Ok(done)
    }

    fn write(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        _position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        if source.left() == 0 {
            return Ok(0);
        }
        let mut done = 0;
        let result = loop {
            let turn = match self.pipe.writing.take(caller) {
                Ok(turn) => turn,
                Err(error) => break Err(error),
            };
            match self.pipe.room(source.left()) {
                Step::Moved(room) => match self.fill(source, room) {
                    Ok(count) => {
                        drop(turn);
                        done += count;
                        self.pipe.readable.wake_all();
                        if count < room || source.left() == 0 {
                            break Ok(());
                        }
                    }
                    Err(error) => break Err(error),
                },
                Step::Closed => {
                    caller.broken_pipe();
                    break Err(Errno::EPIPE);
                }
                Step::Wait => {
                    drop(turn);
                    let left = source.left();
                    let look = || self.pipe.room(left);
                    if let Err(error) = Self::wait(caller, open, &self.pipe.writable, look) {
                        break Err(error);
                    }
                }
            }
        };
        match result {
            Err(error) if done == 0 => Err(error),
            Ok(()) | Err(_) => Ok(done),
        }
    }

    fn readiness(&self, _caller: &dyn Caller, _open: &OpenFile) -> Readiness {
        self.pipe.readiness(self.reads, self.writes)
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn queues<'a>(&'a self, _caller: &'a dyn Caller, wanted: Readiness, queues: &mut Queues<'a>) {
        if self.reads && (wanted.concerns_reading() || !self.writes) {
            queues.add(&self.pipe.readable);
        }
        if self.writes && (wanted.concerns_writing() || !self.reads) {
            queues.add(&self.pipe.writable);
        }
    }

    fn control(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        if command != ioctl::FIONREAD {
            return Err(Errno::ENOTTY);
        }
        caller
            .memory()
            .write_value(argument, &(self.pipe.waiting() as u32))
            .map(|()| 0)
    }
}

impl PipeEnd {
    /// Copies up to `room` bytes from `source` into the pipe, which has room for them. Returns the number of bytes
    /// copied.
    fn fill(&self, source: &mut Source<'_>, room: usize) -> Result<usize, Errno> {
        let mut done = 0;
        while done < room {
            let stored = self
                .pipe
                .begin_write(self.vfs, room - done)
                .and_then(|(frame, span)| {
                    let (offset, length) = (span.offset, span.length);
                    let taken = source.take_frame(&self.pipe.memory, frame, offset, length);
                    self.pipe.finish_write(span.slot, taken.unwrap_or(0));
                    taken.map(|count| (count, length))
                });
            match stored {
                Ok((count, length)) => {
                    done += count;
                    if count < length {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Puts `length` bytes of user memory at `address` into the pipe (`vmsplice`). A complete page is added without a
    /// copy if the write position is at the start of a slot. Other bytes are copied. Without `waits`, stops when the
    /// pipe is full. Returns the number of bytes put into the pipe.
    ///
    /// # Errors
    /// `EFAULT` if the memory is not accessible, `EAGAIN` if the pipe is full, `EPIPE` without a reader, `ERESTARTSYS`.
    pub fn lend(
        &self,
        caller: &dyn Caller,
        lender: &dyn Lender,
        (address, length): (u64, usize),
        waits: bool,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        while done < length {
            let at = VirtAddr::new(address + done as u64);
            let step = (PAGE_SIZE - at.offset()).min(length - done);
            match self.lend_part(caller, lender, at, step, waits && done == 0) {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Puts `length` bytes of user memory at `at` into the pipe. The bytes are within one page.
    fn lend_part(
        &self,
        caller: &dyn Caller,
        lender: &dyn Lender,
        at: VirtAddr,
        length: usize,
        waits: bool,
    ) -> Result<usize, Errno> {
        loop {
            let turn = self.pipe.writing.take(caller)?;
            let room = match self.pipe.room(length) {
                Step::Moved(room) => room,
                Step::Closed => {
                    caller.broken_pipe();
                    return Err(Errno::EPIPE);
                }
                Step::Wait if !waits => return Err(Errno::EAGAIN),
                Step::Wait => {
                    drop(turn);
                    let look = || self.pipe.room(length);
                    let changed = || (look() != Step::Wait).then_some(());
                    caller
                        .wait_until(&[&self.pipe.writable], None, changed)
                        .map_err(|error| error.restart())?;
                    continue;
                }
            };
            let mut frame = match self.vfs.reclaim.retry(|| lender.lend(at)) {
                Ok(frame) => frame,
                Err(FaultError::Watched(fault)) => {
                    drop(turn);
                    let access = Access::READ;
                    lender.wait_for(Awaited { at, access, fault })?;
                    continue;
                }
                Err(_) => return Err(Errno::EFAULT),
            };
            if room == PAGE_SIZE {
                match self.pipe.lend(frame) {
                    None => {
                        self.pipe.readable.wake_all();
                        return Ok(PAGE_SIZE);
                    }
                    Some(refused) => frame = refused,
                }
            }
            let count = self.copy_in(frame.frame(), at.offset(), room)?;
            self.pipe.readable.wake_all();
            return Ok(count);
        }
    }

    /// Copies `length` bytes of a frame into the pipe, which has room for them. Returns the number of bytes copied. The
    /// caller holds the mutex `writing` of the pipe.
    fn copy_in(&self, frame: Frame, offset: usize, length: usize) -> Result<usize, Errno> {
        let frames = self.pipe.memory.frames();
        let mut buffer = [0; 256];
        let mut done = 0;
        while done < length {
            let limit = (length - done).min(buffer.len());
            let (page, span) = self.pipe.begin_write(self.vfs, limit)?;
            let part = &mut buffer[..span.length];
            frames.read(frame, offset + done, part);
            frames.write(page, span.offset, part);
            self.pipe.finish_write(span.slot, span.length);
            done += span.length;
        }
        Ok(done)
    }

    /// Returns the virtual file system.
    pub(super) const fn vfs(&self) -> &'static Vfs {
        self.vfs
    }

    /// Returns whether this end can be read, and whether it can be written.
    #[must_use]
    pub fn sides(&self) -> (bool, bool) {
        (self.reads, self.writes)
    }
}

/// The flags of `pipe2` that this kernel supports.
pub const PIPE_FLAGS: u32 = raw::O_CLOEXEC | raw::O_NONBLOCK;
