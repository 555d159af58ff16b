//! The destination of a read and the source of a write.

use crate::user::UserMemory;
use memwright_linux_abi::{Memory, abi::IoVector, errno::Errno, host::UserFault};
use memwright_linux_base::sync;
use memwright_table::Frame;

/// Sizes in bytes of the buffers for a transfer that does not access a frame directly. A short transfer uses the small
/// buffer, because zeroing it costs less.
const LARGE: usize = 2048;
const SMALL: usize = 128;

/// Calls `act` with a buffer for a transfer of `length` bytes, and returns its result. The buffer is shorter than
/// `length` if `length` exceeds 2,048.
pub fn with_buffer<R>(length: usize, act: impl FnOnce(&mut [u8]) -> R) -> R {
    if length <= SMALL {
        act(&mut [0; SMALL][..length])
    } else {
        act(&mut [0; LARGE][..length.min(LARGE)])
    }
}

/// A cursor over the I/O vectors of a system call, here called pieces.
struct UserPieces<'a> {
    memory: UserMemory<'static>,
    pieces: &'a [IoVector],
    /// Number of bytes of the first remaining piece that were transferred already.
    done: usize,
    left: usize,
}

impl<'a> UserPieces<'a> {
    fn new(memory: UserMemory<'static>, pieces: &'a [IoVector]) -> Self {
        let left = pieces.iter().map(|piece| piece.length as usize).sum();
        Self {
            memory,
            pieces,
            done: 0,
            left,
        }
    }

    /// Returns the address of the next bytes, and the number of contiguous bytes at that address, at most `most`.
    /// Returns `None` at the end.
    fn next(&mut self, most: usize) -> Option<(u64, usize)> {
        while let Some(piece) = self.pieces.first() {
            let left = piece.length as usize - self.done;
            if left > 0 {
                return Some((piece.base + self.done as u64, left.min(most)));
            }
            self.pieces = &self.pieces[1..];
            self.done = 0;
        }
        None
    }

    /// Returns the address of the next bytes, and the number of contiguous bytes at that address.
    fn front(&mut self) -> Option<(u64, usize)> {
        self.next(usize::MAX)
    }

    fn advance(&mut self, count: usize) {
        self.done += count;
        self.left -= count;
    }

    /// Calls `copy` for each piece until `length` bytes are copied or a fault occurs. `copy` gets the user address, the
    /// number of bytes copied before and the number of bytes to copy. Returns the number of bytes copied.
    fn copy(
        &mut self,
        length: usize,
        mut copy: impl FnMut(u64, usize, usize) -> Result<(), UserFault>,
    ) -> Result<usize, Errno> {
        sync::assert_none_held();
        let mut done = 0;
        while done < length {
            let Some((address, part)) = self.next(length - done) else {
                break;
            };
            match copy(address, done, part) {
                Ok(()) => {
                    self.advance(part);
                    done += part;
                }
                Err(fault) => {
                    self.advance(fault.done);
                    done += fault.done;
                    return if done > 0 {
                        Ok(done)
                    } else {
                        Err(Errno::EFAULT)
                    };
                }
            }
        }
        Ok(done)
    }
}

enum Place<'a, K> {
    User(UserPieces<'a>),
    Kernel(K),
}

/// The destination of a read, in user or kernel memory.
pub struct Sink<'a>(Place<'a, &'a mut [u8]>);

impl<'a> Sink<'a> {
    /// Creates a destination in user memory. The caller has checked the pieces with `UserMemory::read_vectors` or
    /// `UserMemory::transfer_length`.
    #[must_use]
    pub fn user(memory: UserMemory<'static>, pieces: &'a [IoVector]) -> Self {
        Self(Place::User(UserPieces::new(memory, pieces)))
    }

    /// Creates a destination in kernel memory.
    #[must_use]
    pub fn kernel(bytes: &'a mut [u8]) -> Self {
        Self(Place::Kernel(bytes))
    }

    /// Returns the user address of the next bytes, and the number of contiguous bytes at that address; `None` for
    /// kernel memory or at the end.
    pub fn front(&mut self) -> Option<(u64, usize)> {
        match &mut self.0 {
            Place::User(pieces) => pieces.front(),
            Place::Kernel(_) => None,
        }
    }

    /// Returns the number of bytes that the destination can still take.
    #[must_use]
    pub fn left(&self) -> usize {
        match &self.0 {
            Place::User(pieces) => pieces.left,
            Place::Kernel(bytes) => bytes.len(),
        }
    }

    /// Stores `bytes`. Returns the number of bytes stored, which is less than the length of `bytes` if the destination
    /// becomes full or a fault occurs.
    ///
    /// # Locks
    /// The caller holds no lock.
    ///
    /// # Errors
    /// `EFAULT` if the first byte cannot be stored.
    pub fn put(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        match &mut self.0 {
            Place::User(pieces) => {
                let host = pieces.memory.access();
                pieces.copy(bytes.len(), |address, done, part| {
                    host.copy_to_user(address, &bytes[done..done + part])
                })
            }
            Place::Kernel(target) => {
                let count = bytes.len().min(target.len());
                let (now, later) = core::mem::take(target).split_at_mut(count);
                now.copy_from_slice(&bytes[..count]);
                *target = later;
                Ok(count)
            }
        }
    }

    /// Like [`Self::put`], but stores `length` bytes of a frame. The caller holds a reference to the frame.
    ///
    /// # Errors
    /// `EFAULT` if the first byte cannot be stored.
    pub fn put_frame(
        &mut self,
        memory: &Memory,
        frame: Frame,
        offset: usize,
        length: usize,
    ) -> Result<usize, Errno> {
        match &mut self.0 {
            Place::User(pieces) => {
                let host = pieces.memory.access();
                pieces.copy(length, |address, done, part| {
                    host.copy_frame_to_user(address, frame, offset + done, part)
                })
            }
            Place::Kernel(target) => {
                let count = length.min(target.len());
                let (now, later) = core::mem::take(target).split_at_mut(count);
                memory.frames().read(frame, offset, now);
                *target = later;
                Ok(count)
            }
        }
    }

    /// Skips `count` bytes without storing anything.
    pub fn skip(&mut self, count: usize) {
        let mut left = count.min(self.left());
        match &mut self.0 {
            Place::User(pieces) => {
                while let Some((_, length)) = pieces.next(left).filter(|(_, length)| *length > 0) {
                    pieces.advance(length);
                    left -= length;
                }
            }
            Place::Kernel(target) => *target = &mut core::mem::take(target)[left..],
        }
    }

    /// Like [`Self::put`], but stores `count` zeroes.
    ///
    /// # Errors
    /// `EFAULT` if the first byte cannot be stored.
    pub fn put_zeroes(&mut self, count: usize) -> Result<usize, Errno> {
        if let Place::User(pieces) = &mut self.0 {
            let host = pieces.memory.access();
            return pieces.copy(count, |address, _, part| host.clear_user(address, part));
        }
        let mut done = 0;
        while done < count {
            match self.put(&[0; 256][..(count - done).min(256)])? {
                0 => break,
                length => done += length,
            }
        }
        Ok(done)
    }
}

/// The source of a write, in user or kernel memory.
pub struct Source<'a>(Place<'a, &'a [u8]>);

impl<'a> Source<'a> {
    /// Creates a source in user memory. The caller has checked the pieces, as for [`Sink::user`].
    #[must_use]
    pub fn user(memory: UserMemory<'static>, pieces: &'a [IoVector]) -> Self {
        Self(Place::User(UserPieces::new(memory, pieces)))
    }

    /// Creates a source in kernel memory.
    #[must_use]
    pub const fn kernel(bytes: &'a [u8]) -> Self {
        Self(Place::Kernel(bytes))
    }

    /// Returns the user address of the next bytes, and the number of contiguous bytes at that address; `None` for
    /// kernel memory or at the end.
    pub fn front(&mut self) -> Option<(u64, usize)> {
        match &mut self.0 {
            Place::User(pieces) => pieces.front(),
            Place::Kernel(_) => None,
        }
    }

    /// Returns the number of bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        match &self.0 {
            Place::User(pieces) => pieces.left,
            Place::Kernel(bytes) => bytes.len(),
        }
    }

    /// Copies the next bytes into `buffer`. Returns the number of bytes copied, which is less than the length of
    /// `buffer` at the end of the source or after a fault.
    ///
    /// # Locks
    /// The caller holds no lock.
    ///
    /// # Errors
    /// `EFAULT` if the first byte cannot be read.
    pub fn take(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match &mut self.0 {
            Place::User(pieces) => {
                let host = pieces.memory.access();
                pieces.copy(buffer.len(), |address, done, part| {
                    host.copy_from_user(&mut buffer[done..done + part], address)
                })
            }
            Place::Kernel(source) => {
                let count = buffer.len().min(source.len());
                buffer[..count].copy_from_slice(&source[..count]);
                *source = &source[count..];
                Ok(count)
            }
        }
    }

    /// Like [`Self::take`], but copies `length` bytes into a frame. The caller holds a reference to the frame.
    ///
    /// # Errors
    /// `EFAULT` if the first byte cannot be read.
    pub fn take_frame(
        &mut self,
        memory: &Memory,
        frame: Frame,
        offset: usize,
        length: usize,
    ) -> Result<usize, Errno> {
        match &mut self.0 {
            Place::User(pieces) => {
                let host = pieces.memory.access();
                pieces.copy(length, |address, done, part| {
                    host.copy_frame_from_user(frame, offset + done, part, address)
                })
            }
            Place::Kernel(source) => {
                let count = length.min(source.len());
                memory.frames().write(frame, offset, &source[..count]);
                *source = &source[count..];
                Ok(count)
            }
        }
    }

    /// Skips `count` bytes without reading them.
    pub fn skip(&mut self, count: usize) {
        let mut left = count.min(self.left());
        match &mut self.0 {
            Place::User(pieces) => {
                while let Some((_, length)) = pieces.next(left).filter(|(_, length)| *length > 0) {
                    pieces.advance(length);
                    left -= length;
                }
            }
            Place::Kernel(source) => *source = &source[left..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Sink, Source};

    #[test]
    fn kernel_transfers_stop_at_the_end() {
        let mut buffer = [0xff; 5];
        let mut sink = Sink::kernel(&mut buffer);
        assert_eq!(sink.put(b"ab"), Ok(2));
        assert_eq!(sink.put_zeroes(1), Ok(1));
        assert_eq!(sink.left(), 2);
        assert_eq!(sink.put(b"cdef"), Ok(2));
        assert_eq!(sink.put(b"g"), Ok(0));
        assert_eq!(sink.put_zeroes(9), Ok(0));
        assert_eq!(&buffer, b"ab\0cd");

        let mut source = Source::kernel(b"hello");
        let mut part = [0; 3];
        assert_eq!(source.take(&mut part), Ok(3));
        assert_eq!(&part, b"hel");
        source.skip(1);
        assert_eq!(source.take(&mut part), Ok(1));
        assert_eq!(part[0], b'o');
        source.skip(7);
        assert_eq!(source.left(), 0);
    }
}
