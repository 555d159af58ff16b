//! System calls that read, write and seek.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use alloc::{sync::Arc, vec::Vec};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{abi::IoVector, errno::Errno};
use memwright_linux_base::sync::pause_point;
use memwright_linux_vfs::{
    fs::{
        OpenFile,
        seek::{Whence, explicit},
        transfer::{Sink, Source},
    },
    user::{TRANSFER_MAX, UserMemory},
};
use memwright_table::TryPush;

use Kind::{Fd, Hex, InBuffer, Int, OutBuffer, Unsigned, Vectors};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_read,
        "read",
        &[Fd, OutBuffer(2), Unsigned],
        handler!(read),
    ),
    real(
        raw::__NR_write,
        "write",
        &[Fd, InBuffer(2), Unsigned],
        handler!(write),
    ),
    real(
        raw::__NR_readv,
        "readv",
        &[Fd, Vectors(2), Int],
        handler!(readv),
    ),
    real(
        raw::__NR_writev,
        "writev",
        &[Fd, Vectors(2), Int],
        handler!(writev),
    ),
    real(
        raw::__NR_pread64,
        "pread64",
        &[Fd, OutBuffer(2), Unsigned, Int],
        handler!(pread64),
    ),
    real(
        raw::__NR_pwrite64,
        "pwrite64",
        &[Fd, InBuffer(2), Unsigned, Int],
        handler!(pwrite64),
    ),
    real(
        raw::__NR_preadv,
        "preadv",
        &[Fd, Vectors(2), Int, Int, Int],
        handler!(preadv),
    ),
    real(
        raw::__NR_pwritev,
        "pwritev",
        &[Fd, Vectors(2), Int, Int, Int],
        handler!(pwritev),
    ),
    real(
        raw::__NR_preadv2,
        "preadv2",
        &[Fd, Vectors(2), Int, Int, Int, Hex],
        handler!(preadv2),
    ),
    real(
        raw::__NR_pwritev2,
        "pwritev2",
        &[Fd, Vectors(2), Int, Int, Int, Hex],
        handler!(pwritev2),
    ),
    real(raw::__NR_lseek, "lseek", &[Fd, Int, Int], handler!(lseek)),
    real(
        raw::__NR_sendfile,
        "sendfile",
        &[Fd, Fd, Kind::InOut(8), Unsigned],
        handler!(sendfile),
    ),
    real(
        raw::__NR_copy_file_range,
        "copy_file_range",
        &[Fd, Kind::InOut(8), Fd, Kind::InOut(8), Unsigned, Hex],
        handler!(copy_file_range),
    ),
];

/// The offset of a transfer.
#[derive(Clone, Copy)]
enum At {
    /// The file position. The transfer advances it.
    Position,
    /// This offset. The file position does not change.
    Offset(u64),
}

fn transfer_in(current: &Current<'_>, open: &OpenFile, pieces: &[IoVector], at: At) -> CallResult {
    let mut sink = Sink::user(current.user, pieces);
    let done = match at {
        At::Position => open.read(current, &mut sink)?,
        At::Offset(offset) => open.read_at(current, offset, &mut sink)?,
    };
    Ok(done as u64)
}

fn transfer_out(current: &Current<'_>, open: &OpenFile, pieces: &[IoVector], at: At) -> CallResult {
    let mut source = Source::user(current.user, pieces);
    let done = match at {
        At::Position => open.write(current, &mut source)?,
        At::Offset(offset) => open.write_at(current, offset, &mut source)?,
    };
    Ok(done as u64)
}

/// Returns the open file and the buffer of a call with a single buffer. Checks that the file permits reads, or, if
/// `writes` is true, writes.
fn one_piece(
    current: &Current<'_>,
    arguments: &Arguments,
    writes: bool,
) -> Result<(Arc<OpenFile>, [IoVector; 1]), Errno> {
    let &[number, address, length, ..] = arguments;
    let open = usable(current, number, writes)?;
    let length = current.user.transfer_length(address, length)? as u64;
    Ok((
        open,
        [IoVector {
            base: address,
            length,
        }],
    ))
}

/// Returns the open file of a descriptor. Checks that the file permits reads, or, if `writes` is true, writes. A call
/// must make this check before it checks its other arguments.
fn usable(current: &Current<'_>, number: u64, writes: bool) -> Result<Arc<OpenFile>, Errno> {
    let open = current.files().get(int(number))?;
    let allowed = if writes {
        open.is_writable()
    } else {
        open.is_readable()
    };
    if allowed { Ok(open) } else { Err(Errno::EBADF) }
}

fn read(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let (open, piece) = one_piece(current, arguments, false)?;
    transfer_in(current, &open, &piece, At::Position)
}

fn write(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let (open, piece) = one_piece(current, arguments, true)?;
    transfer_out(current, &open, &piece, At::Position)
}

fn pread64(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let offset = explicit(arguments[3] as i64)?;
    let (open, piece) = one_piece(current, arguments, false)?;
    transfer_in(current, &open, &piece, At::Offset(offset))
}

fn pwrite64(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let offset = explicit(arguments[3] as i64)?;
    let (open, piece) = one_piece(current, arguments, true)?;
    transfer_out(current, &open, &piece, At::Offset(offset))
}

fn readv(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, vectors, count, ..] = arguments;
    let open = usable(current, number, false)?;
    let pieces = current.user.read_vectors(vectors, count)?;
    transfer_in(current, &open, &pieces, At::Position)
}

fn writev(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, vectors, count, ..] = arguments;
    let open = usable(current, number, true)?;
    let pieces = current.user.read_vectors(vectors, count)?;
    transfer_out(current, &open, &pieces, At::Position)
}

/// Returns the offset in the fourth argument. The fifth argument is ignored: it contains the upper half of the offset
/// only on 32-bit machines.
fn vector_offset(arguments: &Arguments) -> Result<At, Errno> {
    explicit(arguments[3] as i64).map(At::Offset)
}

/// Returns the offset like [`vector_offset`] does, except that -1 means the file position. Accepts only flags whose
/// guarantees always hold for files in memory.
fn flagged_offset(arguments: &Arguments) -> Result<At, Errno> {
    const HELD: u32 = raw::RWF_HIPRI | raw::RWF_DSYNC | raw::RWF_SYNC;
    if arguments[5] as u32 & !HELD != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if arguments[3] as i64 == -1 {
        Ok(At::Position)
    } else {
        vector_offset(arguments)
    }
}

fn vectors_in(current: &Current<'_>, arguments: &Arguments, at: At) -> CallResult {
    let &[number, vectors, count, ..] = arguments;
    let open = usable(current, number, false)?;
    let pieces = current.user.read_vectors(vectors, count)?;
    transfer_in(current, &open, &pieces, at)
}

fn vectors_out(current: &Current<'_>, arguments: &Arguments, at: At) -> CallResult {
    let &[number, vectors, count, ..] = arguments;
    let open = usable(current, number, true)?;
    let pieces = current.user.read_vectors(vectors, count)?;
    transfer_out(current, &open, &pieces, at)
}

fn preadv(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    vectors_in(current, arguments, vector_offset(arguments)?)
}

fn pwritev(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    vectors_out(current, arguments, vector_offset(arguments)?)
}

fn preadv2(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    vectors_in(current, arguments, flagged_offset(arguments)?)
}

fn pwritev2(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    vectors_out(current, arguments, flagged_offset(arguments)?)
}

fn lseek(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, offset, whence, ..] = arguments;
    let open = current.files().get_usable(int(number))?;
    open.seek(current, offset as i64, Whence::decode(whence as u32)?)
}

/// Number of bytes that a copy between files moves at a time.
const CHUNK: usize = 4096;

/// Copies between two open files through a kernel buffer. If the input has a position, it is advanced only past the
/// bytes that were written.
fn copy(
    current: &Current<'_>,
    from: (&OpenFile, &mut At),
    to: (&OpenFile, &mut At),
    count: usize,
) -> Result<usize, Errno> {
    current.check_heap()?;
    let (input, from) = from;
    let (output, to) = to;
    let mut buffer = Vec::new();
    let room = buffer.try_fill(CHUNK.min(count), 0);
    room.map_err(|_| Errno::ENOMEM)?;
    let mut done = 0;
    while done < count {
        pause_point();
        let wanted = (count - done).min(CHUNK);
        let start = match *from {
            At::Position => input.position(),
            At::Offset(offset) => offset,
        };
        // If the file has a position, read at an explicit offset and advance the position after the write: a short
        // write then loses no bytes.
        let mut sink = Sink::kernel(&mut buffer[..wanted]);
        let positioned = input.has_position();
        let result = if positioned {
            input.read_at(current, start, &mut sink)
        } else {
            input.read(current, &mut sink)
        };
        let count = match result {
            Ok(0) => break,
            Ok(count) => count,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let mut source = Source::kernel(&buffer[..count]);
        let result = match *to {
            At::Position => output.write(current, &mut source),
            At::Offset(offset) => output.write_at(current, offset, &mut source),
        };
        let written = match result {
            Ok(written) => written,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        match from {
            At::Offset(offset) => *offset += written as u64,
            At::Position if positioned => {
                input.seek(current, (start + written as u64) as i64, Whence::Start)?;
            }
            At::Position => {}
        }
        if let At::Offset(offset) = to {
            *offset += written as u64;
        }
        done += written;
        if written < count || (!positioned && count < wanted) {
            break;
        }
    }
    Ok(done)
}

/// Returns the offset that is stored at `address`, or the file position if `address` is null.
fn offset_argument(current: &Current<'_>, address: u64) -> Result<At, Errno> {
    match current.user.read_optional::<i64>(address)? {
        Some(offset) => explicit(offset).map(At::Offset),
        None => Ok(At::Position),
    }
}

fn store_offset(user: UserMemory<'_>, address: u64, at: At) -> Result<(), Errno> {
    match at {
        At::Offset(offset) => user.write_value(address, &offset),
        At::Position => Ok(()),
    }
}

fn sendfile(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[output, input, offset, count, ..] = arguments;
    let input = usable(current, input, false)?;
    let output = usable(current, output, true)?;
    let mut from = offset_argument(current, offset)?;
    if matches!(from, At::Offset(_)) && !input.has_position() {
        return Err(Errno::ESPIPE);
    }
    if output.flags() & raw::O_APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    // Pipes and sockets have no position from which to read, and directories have no bytes (fs/splice.c,
    // `splice_direct_to_actor`).
    if !input.has_position()
        || input.inode().kind() == memwright_linux_vfs::fs::kind::Kind::Directory
    {
        return Err(Errno::EINVAL);
    }
    let is_pipe = output
        .as_kind::<memwright_linux_vfs::fs::pipe::PipeEnd>()
        .is_some();
    if !input.file.splices().reads() || !(is_pipe || output.file.splices().writes()) {
        return Err(Errno::EINVAL);
    }
    let count = count.min(TRANSFER_MAX) as usize;
    let mut to = At::Position;
    let done = copy(current, (&input, &mut from), (&output, &mut to), count)?;
    store_offset(current.user, offset, from)?;
    Ok(done as u64)
}

fn copy_file_range(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[input, from, output, to, count, flags] = arguments;
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let input = usable(current, input, false)?;
    let output = usable(current, output, true)?;
    for open in [&input, &output] {
        match open.inode().kind() {
            memwright_linux_vfs::fs::kind::Kind::Regular => {}
            memwright_linux_vfs::fs::kind::Kind::Directory => return Err(Errno::EISDIR),
            memwright_linux_vfs::fs::kind::Kind::Symlink
            | memwright_linux_vfs::fs::kind::Kind::Character
            | memwright_linux_vfs::fs::kind::Kind::Block
            | memwright_linux_vfs::fs::kind::Kind::Fifo
            | memwright_linux_vfs::fs::kind::Kind::Socket
            | memwright_linux_vfs::fs::kind::Kind::Anonymous => return Err(Errno::EINVAL),
        }
    }
    if output.flags() & raw::O_APPEND != 0 {
        return Err(Errno::EBADF);
    }
    let mut source = offset_argument(current, from)?;
    let mut target = offset_argument(current, to)?;
    let mut count = count.min(TRANSFER_MAX) as usize;
    if Arc::ptr_eq(input.inode(), output.inode()) {
        let start = |at, open: &OpenFile| match at {
            At::Offset(offset) => offset,
            At::Position => open.position(),
        };
        let begin = start(source, &input);
        let distance = begin.abs_diff(start(target, &output));
        // Limit the copy to the end of the input (fs/read_write.c, `generic_copy_file_checks`).
        let there = input.attributes(current).size.saturating_sub(begin);
        count = count.min(usize::try_from(there).unwrap_or(usize::MAX));
        if distance < count as u64 {
            return Err(Errno::EINVAL);
        }
    }
    let done = copy(
        current,
        (&input, &mut source),
        (&output, &mut target),
        count,
    )?;
    store_offset(current.user, from, source)?;
    store_offset(current.user, to, target)?;
    Ok(done as u64)
}
