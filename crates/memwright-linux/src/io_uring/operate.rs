//! Decodes and executes submissions.

use super::Ring;
use crate::current::Current;
use linux_raw_sys::io_uring::io_uring_op as op;
use memwright_linux_abi::{abi::IoVector, errno::Errno};
use memwright_linux_vfs::fs::{
    abilities::Polling,
    open_file::OpenFile,
    transfer::{Sink, Source},
};

/// The supported fields of a submission (`struct io_uring_sqe`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    opcode: u8,
    flags: u8,
    descriptor: i32,
    offset: u64,
    address: u64,
    length: u32,
    modifiers: u32,
    /// The program's value that the kernel copies to the completion.
    pub user_data: u64,
    buffer: u16,
}

impl Submission {
    /// Decodes a submission from `struct io_uring_sqe`.
    #[must_use]
    pub fn new(bytes: &[u8; 64]) -> Self {
        let part = |at: usize, size: usize| {
            let mut value = [0; 8];
            value[..size].copy_from_slice(&bytes[at..at + size]);
            u64::from_le_bytes(value)
        };
        Self {
            opcode: bytes[0],
            flags: bytes[1],
            descriptor: part(4, 4) as i32,
            offset: part(8, 8),
            address: part(16, 8),
            length: part(24, 4) as u32,
            modifiers: part(28, 4) as u32,
            user_data: part(32, 8),
            buffer: part(40, 2) as u16,
        }
    }
}

/// The kind of operation that a submission requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Nothing,
    /// Reads into or writes from several pieces of user memory.
    Vectors {
        write: bool,
    },
    /// Reads into or writes from one piece of user memory.
    Plain {
        write: bool,
    },
    /// Reads into or writes from a registered buffer.
    Fixed {
        write: bool,
    },
}

/// Returns the operation of an opcode; `None` if it is not supported.
fn operation(code: u8) -> Option<Operation> {
    let is = |known: op| u32::from(code) == known as u32;
    let known = [
        (op::IORING_OP_NOP, Operation::Nothing),
        (op::IORING_OP_READV, Operation::Vectors { write: false }),
        (op::IORING_OP_WRITEV, Operation::Vectors { write: true }),
        (op::IORING_OP_READ_FIXED, Operation::Fixed { write: false }),
        (op::IORING_OP_WRITE_FIXED, Operation::Fixed { write: true }),
        (op::IORING_OP_READ, Operation::Plain { write: false }),
        (op::IORING_OP_WRITE, Operation::Plain { write: true }),
    ];
    known
        .into_iter()
        .find(|(known, _)| is(*known))
        .map(|(_, operation)| operation)
}

/// The flags that have no effect (`IOSQE_IO_DRAIN`, `IOSQE_ASYNC`), because the submissions are always executed in
/// order and by the calling thread.
const HARMLESS: u8 = 1 << 1 | 1 << 4;

/// Number of bytes that are copied through the kernel stack at a time.
const CHUNK: usize = 1024;

impl Ring {
    /// Executes a submission. Returns the number of bytes transferred.
    ///
    /// # Errors
    /// `EINVAL` for unsupported operations, flags and modifiers, `EOPNOTSUPP` for a file whose operations can block,
    /// and the errors of the file.
    pub(super) fn operate(&self, current: &Current<'_>, wanted: &Submission) -> Result<u64, Errno> {
        let operation = operation(wanted.opcode).ok_or(Errno::EINVAL)?;
        if wanted.flags & !HARMLESS != 0 || wanted.modifiers != 0 {
            return Err(Errno::EINVAL);
        }
        if operation == Operation::Nothing {
            return Ok(0);
        }
        let open = current.files().get_usable(wanted.descriptor)?;
        if open.file.polling() != Polling::Always {
            // The operation could block, and there is no background thread that could wait in place of the caller.
            return Err(Errno::EOPNOTSUPP);
        }
        match operation {
            Operation::Nothing => Ok(0),
            Operation::Vectors { write } => {
                let pieces = current
                    .user
                    .read_vectors(wanted.address, wanted.length.into())?;
                transfer(current, &open, wanted.offset, &pieces, write)
            }
            Operation::Plain { write } => {
                let length = u64::from(wanted.length);
                let length = current.user.transfer_length(wanted.address, length)? as u64;
                let piece = IoVector {
                    base: wanted.address,
                    length,
                };
                transfer(current, &open, wanted.offset, &[piece], write)
            }
            Operation::Fixed { write } => self.fixed(current, &open, wanted, write),
        }
    }

    /// Reads into or writes from a part of a registered buffer, in chunks. The caller holds the ring's mutex `turn`, so
    /// that the buffer stays registered.
    fn fixed(
        &self,
        current: &Current<'_>,
        open: &OpenFile,
        wanted: &Submission,
        write: bool,
    ) -> Result<u64, Errno> {
        let buffers = self.buffers.lock().clone().ok_or(Errno::EFAULT)?;
        let frames = buffers.memory.frames();
        let mut done = 0;
        for (frame, offset, count) in buffers.parts(wanted.buffer, wanted.address, wanted.length)? {
            let mut within = 0;
            while within < count {
                let mut chunk = [0; CHUNK];
                let step = (count - within).min(CHUNK);
                let part = &mut chunk[..step];
                let at = wanted.offset.wrapping_add(done);
                let moved = if write {
                    frames.read(frame, offset + within, part);
                    put(current, open, wanted.offset, at, &mut Source::kernel(part))
                } else {
                    get(current, open, wanted.offset, at, &mut Sink::kernel(part))
                };
                let moved = match moved {
                    Ok(moved) => moved,
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => return Ok(done),
                };
                if !write {
                    frames.write(frame, offset + within, &part[..moved]);
                }
                done += moved as u64;
                within += moved;
                if moved < step {
                    return Ok(done);
                }
            }
        }
        Ok(done)
    }
}

/// The value of a submission's offset that stands for the file position.
const POSITION: u64 = u64::MAX;

fn get(
    current: &Current<'_>,
    open: &OpenFile,
    offset: u64,
    at: u64,
    sink: &mut Sink<'_>,
) -> Result<usize, Errno> {
    if offset == POSITION || !open.has_position() {
        open.read(current, sink)
    } else {
        open.read_at(current, at, sink)
    }
}

fn put(
    current: &Current<'_>,
    open: &OpenFile,
    offset: u64,
    at: u64,
    source: &mut Source<'_>,
) -> Result<usize, Errno> {
    if offset == POSITION || !open.has_position() {
        open.write(current, source)
    } else {
        open.write_at(current, at, source)
    }
}

fn transfer(
    current: &Current<'_>,
    open: &OpenFile,
    offset: u64,
    pieces: &[IoVector],
    write: bool,
) -> Result<u64, Errno> {
    let moved = if write {
        put(
            current,
            open,
            offset,
            offset,
            &mut Source::user(current.user, pieces),
        )?
    } else {
        get(
            current,
            open,
            offset,
            offset,
            &mut Sink::user(current.user, pieces),
        )?
    };
    Ok(moved as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_is_taken_apart() {
        let mut bytes = [0; 64];
        bytes[0] = 5;
        bytes[4..8].copy_from_slice(&(-1_i32).to_le_bytes());
        bytes[8..16].copy_from_slice(&7_u64.to_le_bytes());
        bytes[24..28].copy_from_slice(&9_u32.to_le_bytes());
        bytes[32..40].copy_from_slice(&11_u64.to_le_bytes());
        bytes[40..42].copy_from_slice(&3_u16.to_le_bytes());
        let expected = Submission {
            opcode: 5,
            descriptor: -1,
            offset: 7,
            length: 9,
            user_data: 11,
            buffer: 3,
            ..Submission::default()
        };
        assert_eq!(Submission::new(&bytes), expected);
    }

    #[test]
    fn few_operations_are_offered() {
        let offered: alloc::vec::Vec<u8> = (0..=255)
            .filter(|code| operation(*code).is_some())
            .collect();
        assert_eq!(offered, [0, 1, 2, 4, 5, 22, 23]);
    }
}
