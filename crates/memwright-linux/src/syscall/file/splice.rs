//! `splice`, `tee` and `vmsplice`: transfers through pipes inside the kernel (Linux 7.3 `fs/splice.c`).

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright::{Awaited, FaultError};
use memwright_linux_abi::{M, Space, errno::Errno};
use memwright_linux_memory::userfault::Userfaults;
use memwright_linux_tasks::process::Thread;
use memwright_linux_vfs::{
    fs::{
        OpenFile, Readiness,
        inet::{InetFile, Protocol},
        netlink::NetlinkFile,
        pipe::{Lender, PipeEnd},
        seek::explicit,
        socket::{SocketFile, SocketKind},
        transfer::{Sink, Source},
    },
    user::TRANSFER_MAX,
};
use memwright_table::{FrameRef, VirtAddr};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_splice,
        "splice",
        &[
            Kind::Fd,
            Kind::InOut(8),
            Kind::Fd,
            Kind::InOut(8),
            Kind::Unsigned,
            Kind::Hex,
        ],
        handler!(splice),
    ),
    real(
        raw::__NR_tee,
        "tee",
        &[Kind::Fd, Kind::Fd, Kind::Unsigned, Kind::Hex],
        handler!(tee),
    ),
    real(
        raw::__NR_vmsplice,
        "vmsplice",
        &[Kind::Fd, Kind::Vectors(2), Kind::Unsigned, Kind::Hex],
        handler!(vmsplice, userfaults),
    ),
];

/// The defined flags.
const KNOWN: u32 =
    raw::SPLICE_F_MOVE | raw::SPLICE_F_NONBLOCK | raw::SPLICE_F_MORE | raw::SPLICE_F_GIFT;

/// Decodes the flags. Returns whether the call is allowed to block.
///
/// # Errors
/// `EINVAL` for an undefined flag.
fn waits(flags: u64) -> Result<bool, Errno> {
    if flags as u32 & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(flags as u32 & raw::SPLICE_F_NONBLOCK == 0)
}

/// One of the two files of a `splice`, and the offset in it.
struct Side {
    open: Arc<OpenFile>,
    /// The offset that the caller passed, if any.
    offset: Option<i64>,
    is_pipe: bool,
}

impl Side {
    fn new(current: &Current<'_>, number: u64) -> Result<Self, Errno> {
        let open = current.files().get_usable(int(number))?;
        Ok(Self {
            is_pipe: open.as_kind::<PipeEnd>().is_some(),
            open,
            offset: None,
        })
    }

    /// Returns the file offset at which the transfer begins. Returns `None` for a file without a position.
    ///
    /// # Errors
    /// `EINVAL` if the caller passed an offset for a file without a position, or the transfer would exceed the maximum
    /// file size.
    fn start(&self, length: u64) -> Result<Option<u64>, Errno> {
        let start = match self.offset {
            Some(_) if !self.open.has_position() => return Err(Errno::EINVAL),
            Some(offset) => explicit(offset)?,
            None => self.open.position(),
        };
        let most = i64::MAX as u64;
        if length > most || start > most - length {
            return Err(Errno::EINVAL);
        }
        Ok(self.open.has_position().then_some(start))
    }

    /// Advances the offset or the file position to `count` bytes after `start`.
    fn finish(&mut self, current: &Current<'_>, start: Option<u64>, count: usize) -> CallResult {
        let end = start.map_or(0, |start| start + count as u64);
        match &mut self.offset {
            Some(offset) => *offset = end as i64,
            None if start.is_some() => self.open.set_position(current, end)?,
            None => {}
        }
        Ok(count as u64)
    }
}

/// Implements `splice`: moves bytes between two files, at least one of which is a pipe.
fn splice(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[input, input_offset, output, output_offset, length, flags] = arguments;
    if length == 0 {
        return Ok(0);
    }
    let waits = waits(flags)?;
    let mut input = Side::new(current, input)?;
    let mut output = Side::new(current, output)?;
    let has = |address: u64| address != 0;
    if (input.is_pipe && has(input_offset)) || (output.is_pipe && has(output_offset)) {
        return Err(Errno::ESPIPE);
    }
    output.offset = current.user.read_optional(output_offset)?;
    input.offset = current.user.read_optional(input_offset)?;
    if !input.open.is_readable() || !output.open.is_writable() {
        return Err(Errno::EBADF);
    }
    current.check_heap()?;
    let done = match (
        input.open.as_kind::<PipeEnd>(),
        output.open.as_kind::<PipeEnd>(),
    ) {
        (Some(from), Some(to)) => {
            if Arc::ptr_eq(&from.pipe, &to.pipe) {
                return Err(Errno::EINVAL);
            }
            let waits = waits && !input.open.is_nonblocking() && !output.open.is_nonblocking();
            let done = from.hand_on(current, to, limited(length), (waits, true))?;
            Ok(done as u64)
        }
        (Some(_), None) => {
            let waits = waits && !input.open.is_nonblocking();
            pipe_to_file(current, &input.open, &mut output, length, waits)
        }
        (None, Some(_)) => {
            let pipe_waits = waits && !output.open.is_nonblocking();
            file_to_pipe(
                current,
                &mut input,
                &output.open,
                length,
                (waits, pipe_waits),
            )
        }
        (None, None) => Err(Errno::EINVAL),
    }?;
    for (side, address) in [(&output, output_offset), (&input, input_offset)] {
        if let Some(offset) = &side.offset {
            current.user.write_value(address, offset)?;
        }
    }
    Ok(done)
}

/// Returns the length of a transfer in bytes, reduced to the maximum of one call.
fn limited(length: u64) -> usize {
    length.min(TRANSFER_MAX) as usize
}

/// Moves bytes from a pipe to a file.
fn pipe_to_file(
    current: &Current<'_>,
    input: &OpenFile,
    output: &mut Side,
    length: u64,
    waits: bool,
) -> CallResult {
    let pipe = input.as_kind::<PipeEnd>().ok_or(Errno::EINVAL)?;
    if output.offset.is_some() && !output.open.has_position() {
        return Err(Errno::EINVAL);
    }
    if output.open.flags() & raw::O_APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    let start = output.start(length)?;
    if !output.open.file.splices().writes() {
        return Err(Errno::EINVAL);
    }
    let open = output.open.clone();
    let count = pipe.drain_to(current, limited(length), waits, |done, bytes| {
        let mut source = Source::kernel(bytes);
        match start {
            Some(start) => open.write_at(current, start + done as u64, &mut source),
            None => open.write(current, &mut source),
        }
    })?;
    output.finish(current, start, count)
}

/// Moves bytes from a file to a pipe. `waits` permits waiting for the file, and `pipe_waits` permits waiting for room
/// in the pipe.
fn file_to_pipe(
    current: &Current<'_>,
    input: &mut Side,
    output: &OpenFile,
    length: u64,
    (waits, pipe_waits): (bool, bool),
) -> CallResult {
    let pipe = output.as_kind::<PipeEnd>().ok_or(Errno::EINVAL)?;
    let start = input.start(length)?;
    // Wait for room before accessing the file: errors of the pipe have precedence over errors of the file.
    pipe.await_room(current, pipe_waits)?;
    if !input.open.file.splices().reads() {
        return Err(Errno::EINVAL);
    }
    let open = input.open.clone();
    let socket = open.as_kind::<SocketFile>();
    let datagrams = open.as_kind::<InetFile>();
    let datagrams = datagrams.is_some_and(|file| file.socket.protocol == Protocol::Udp);
    let datagrams = datagrams || open.as_kind::<NetlinkFile>().is_some();
    let messages = datagrams || socket.is_some_and(|file| file.socket.kind != SocketKind::Stream);
    let how = (pipe_waits, messages);
    let count = pipe.fill_from(current, limited(length), how, |done, bytes| {
        let mut sink = Sink::kernel(bytes);
        if let Some(start) = start {
            return open.read_at(current, start + done as u64, &mut sink);
        }
        if !is_readable_now(current, &open) {
            if done > 0 {
                return Ok(0);
            }
            // SPLICE_F_NONBLOCK has no effect on message sockets: on Linux, only stream sockets implement
            // `splice_read`.
            if !waits && !messages {
                return Err(Errno::EAGAIN);
            }
        }
        open.read(current, &mut sink)
    })?;
    input.finish(current, start, count)
}

/// Returns whether a read of the file would return at once.
fn is_readable_now(current: &Current<'_>, open: &OpenFile) -> bool {
    let ended = Readiness::READ | Readiness::HANGUP | Readiness::ERROR;
    open.file.readiness(current, open).intersects(ended)
}

/// Implements `tee`: copies the contents of a pipe to another pipe.
fn tee(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[input, output, length, flags, ..] = arguments;
    let waits = waits(flags)?;
    if length == 0 {
        return Ok(0);
    }
    let input = current.files().get_usable(int(input))?;
    let output = current.files().get_usable(int(output))?;
    if !input.is_readable() || !output.is_writable() {
        return Err(Errno::EBADF);
    }
    current.check_heap()?;
    let from = input.as_kind::<PipeEnd>().ok_or(Errno::EINVAL)?;
    let to = output.as_kind::<PipeEnd>().ok_or(Errno::EINVAL)?;
    if Arc::ptr_eq(&from.pipe, &to.pipe) {
        return Err(Errno::EINVAL);
    }
    let waits = waits && !input.is_nonblocking() && !output.is_nonblocking();
    let done = from.hand_on(current, to, limited(length), (waits, false))?;
    Ok(done as u64)
}

/// The address space of the calling thread, from which `vmsplice` puts pages into a pipe.
struct CallerMemory<'a> {
    thread: &'a Arc<Thread>,
    userfaults: &'a Userfaults,
    space: Arc<Space>,
}

impl Lender for CallerMemory<'_> {
    fn lend(&self, at: VirtAddr) -> Result<FrameRef<'_, M>, FaultError> {
        self.space.lend(at)
    }

    fn wait_for(&self, awaited: Awaited) -> Result<(), Errno> {
        self.userfaults
            .await_watcher(self.thread, &self.space, awaited)
    }
}

/// Implements `vmsplice` (Linux 7.2 `fs/splice.c`): puts pages of the program into a pipe, or reads bytes from a pipe
/// into the program's memory.
fn vmsplice(current: &Current<'_>, userfaults: &Userfaults, arguments: &Arguments) -> CallResult {
    let &[number, vectors, count, flags, ..] = arguments;
    let waits = waits(flags)?;
    let open = current.files().get_usable(int(number))?;
    let end = open.as_kind::<PipeEnd>().ok_or(Errno::EBADF)?;
    let pieces = current.user.read_vectors(vectors, count)?;
    let (_, writes) = end.sides();
    if !writes {
        let mut sink = Sink::user(current.user, &pieces);
        return Ok(open.read(current, &mut sink)? as u64);
    }
    let waits = waits && !open.is_nonblocking();
    let lender = CallerMemory {
        thread: current.thread,
        userfaults,
        space: current.space(),
    };
    let mut done = 0;
    for piece in &pieces {
        let (address, length) = (piece.base, piece.length as usize);
        match end.lend(current, &lender, (address, length), waits && done == 0) {
            Ok(count) => done += count as u64,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}
