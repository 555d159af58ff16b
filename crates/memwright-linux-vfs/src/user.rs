//! User memory as seen by system calls: checked ranges, and copies that recover from faults.
//!
//! # Locks
//! No function here may be called with a lock held: a copy can fault, and the fault can wait and allocate memory.

use alloc::vec::Vec;
use memwright_linux_abi::{
    abi::{IoVector, PLAIN_MAX, Plain},
    errno::Errno,
    host::UserAccess,
};
use memwright_linux_base::sync;
use memwright_table::TryPush;

const PAGE_SIZE: usize = 4096;

/// Size in bytes of the buffer through which small values are copied. Most structures of system calls fit into it, and
/// zeroing it costs less than zeroing a buffer for the largest structure.
const SMALL: usize = 32;

/// Lowest address that an unprivileged process can map (`vm.mmap_min_addr`).
pub const LOWEST: u64 = 0x1_0000;

/// End of user addresses (`TASK_SIZE_MAX` of Linux 7.2 with four table levels).
pub const USER_END: u64 = 0x7fff_ffff_f000;

/// The maximum number of bytes that one read or write transfers (`MAX_RW_COUNT` of Linux 7.2).
pub const TRANSFER_MAX: u64 = 0x7fff_f000;

/// Longest path including its NUL (`PATH_MAX`).
pub const PATH_MAX: usize = 4096;

/// Checks that a range is in user space.
///
/// # Errors
/// `EFAULT` if the range is not in user space.
pub fn check_range(address: u64, length: usize) -> Result<(), Errno> {
    match address.checked_add(length as u64) {
        Some(end) if end <= USER_END => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// The memory of the program that the calling thread runs.
#[derive(Clone, Copy)]
pub struct UserMemory<'a>(&'a dyn UserAccess);

impl<'a> UserMemory<'a> {
    /// Creates the user memory that `access` copies from and to.
    pub fn new(access: &'a dyn UserAccess) -> Self {
        Self(access)
    }

    /// Returns the interface through which user memory is accessed. The interface does not check that addresses are in
    /// user space.
    pub fn access(self) -> &'a dyn UserAccess {
        self.0
    }

    /// Copies bytes from user memory.
    ///
    /// # Errors
    /// `EFAULT` if any byte cannot be read.
    pub fn read_bytes(self, from: u64, to: &mut [u8]) -> Result<(), Errno> {
        sync::assert_none_held();
        check_range(from, to.len())?;
        self.0.copy_from_user(to, from).map_err(|_| Errno::EFAULT)
    }

    /// Copies bytes to user memory.
    ///
    /// # Errors
    /// `EFAULT` if any byte cannot be written.
    pub fn write_bytes(self, to: u64, from: &[u8]) -> Result<(), Errno> {
        sync::assert_none_held();
        check_range(to, from.len())?;
        self.0.copy_to_user(to, from).map_err(|_| Errno::EFAULT)
    }

    /// Copies bytes from user memory up to the first fault. Returns the number of bytes copied.
    ///
    /// # Errors
    /// `EFAULT` if not even the first byte can be read.
    pub fn read_some(self, from: u64, to: &mut [u8]) -> Result<usize, Errno> {
        sync::assert_none_held();
        check_range(from, to.len())?;
        match self.0.copy_from_user(to, from) {
            Ok(()) => Ok(to.len()),
            Err(fault) if fault.done > 0 => Ok(fault.done),
            Err(_) => Err(Errno::EFAULT),
        }
    }

    /// Copies bytes to user memory up to the first fault. Returns the number of bytes copied.
    ///
    /// # Errors
    /// `EFAULT` if not even the first byte can be written.
    pub fn write_some(self, to: u64, from: &[u8]) -> Result<usize, Errno> {
        sync::assert_none_held();
        check_range(to, from.len())?;
        match self.0.copy_to_user(to, from) {
            Ok(()) => Ok(from.len()),
            Err(fault) if fault.done > 0 => Ok(fault.done),
            Err(_) => Err(Errno::EFAULT),
        }
    }

    /// Zeroes user memory.
    ///
    /// # Errors
    /// `EFAULT` if any byte cannot be written.
    pub fn clear_bytes(self, to: u64, length: usize) -> Result<(), Errno> {
        sync::assert_none_held();
        check_range(to, length)?;
        self.0.clear_user(to, length).map_err(|_| Errno::EFAULT)
    }

    /// Reads a value of type `T`.
    ///
    /// # Errors
    /// `EFAULT` if the value cannot be read.
    pub fn read_value<T: Plain>(self, from: u64) -> Result<T, Errno> {
        const { assert!(T::SIZE <= PLAIN_MAX) };
        if T::SIZE <= SMALL {
            self.read_through::<T, SMALL>(from)
        } else {
            self.read_through::<T, PLAIN_MAX>(from)
        }
    }

    fn read_through<T: Plain, const ROOM: usize>(self, from: u64) -> Result<T, Errno> {
        let mut buffer = [0; ROOM];
        let bytes = &mut buffer[..T::SIZE];
        self.read_bytes(from, bytes)?;
        Ok(T::from_bytes(bytes))
    }

    /// Writes a value of type `T`.
    ///
    /// # Errors
    /// `EFAULT` if the value cannot be written.
    pub fn write_value<T: Plain>(self, to: u64, value: &T) -> Result<(), Errno> {
        const { assert!(T::SIZE <= PLAIN_MAX) };
        if T::SIZE <= SMALL {
            self.write_through::<T, SMALL>(to, value)
        } else {
            self.write_through::<T, PLAIN_MAX>(to, value)
        }
    }

    fn write_through<T: Plain, const ROOM: usize>(self, to: u64, value: &T) -> Result<(), Errno> {
        let mut buffer = [0; ROOM];
        let bytes = &mut buffer[..T::SIZE];
        value.to_bytes(bytes);
        self.write_bytes(to, bytes)
    }

    /// Writes a value unless the pointer is null.
    ///
    /// # Errors
    /// `EFAULT` if the value cannot be written.
    pub fn write_optional<T: Plain>(self, to: u64, value: &T) -> Result<(), Errno> {
        if to == 0 {
            Ok(())
        } else {
            self.write_value(to, value)
        }
    }

    /// Reads a value unless the pointer is null.
    ///
    /// # Errors
    /// `EFAULT` if the value cannot be read.
    pub fn read_optional<T: Plain>(self, from: u64) -> Result<Option<T>, Errno> {
        if from == 0 {
            Ok(None)
        } else {
            self.read_value(from).map(Some)
        }
    }

    /// Reads a NUL-terminated string of at most `limit` bytes including the NUL. Returns it without the NUL.
    ///
    /// # Errors
    /// `EFAULT` if the string cannot be read, `too_long` if there is no NUL within `limit` bytes, `ENOMEM`.
    pub fn read_string(self, from: u64, limit: usize, too_long: Errno) -> Result<Vec<u8>, Errno> {
        let mut string = Vec::new();
        self.each_string_part(from, limit, too_long, |part| {
            string.try_push_all(part).map_err(|_| Errno::ENOMEM)
        })?;
        Ok(string)
    }

    /// Reads a NUL-terminated string of at most `limit` bytes including the NUL, and passes its parts to `take` in
    /// order. Returns its length without the NUL.
    ///
    /// # Errors
    /// The errors of [`Self::read_string`] and of `take`.
    pub fn each_string_part(
        self,
        from: u64,
        limit: usize,
        too_long: Errno,
        mut take: impl FnMut(&[u8]) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        let mut chunk = [0; 256];
        while done < limit {
            let address = from.checked_add(done as u64).ok_or(Errno::EFAULT)?;
            // Do not read across a page boundary: the next page need not be mapped.
            let in_page = PAGE_SIZE - (address as usize % PAGE_SIZE);
            let length = chunk.len().min(in_page).min(limit - done);
            self.read_bytes(address, &mut chunk[..length])?;
            let end = chunk[..length].iter().position(|byte| *byte == 0);
            let part = &chunk[..end.unwrap_or(length)];
            take(part)?;
            done += part.len();
            if end.is_some() {
                return Ok(done);
            }
        }
        Err(too_long)
    }

    /// Reads a path of at most 4,095 bytes.
    ///
    /// # Errors
    /// `EFAULT`, `ENAMETOOLONG`, `ENOMEM`.
    pub fn read_path(self, from: u64) -> Result<Vec<u8>, Errno> {
        self.read_string(from, PATH_MAX, Errno::ENAMETOOLONG)
    }

    /// Reads an array of `count` I/O vectors. Shortens them so that their total length is at most `TRANSFER_MAX`.
    ///
    /// # Errors
    /// `EINVAL` for more than 1,024 vectors or a length beyond `isize::MAX`, `EFAULT`, `ENOMEM`.
    pub fn read_vectors(self, from: u64, count: u64) -> Result<Vec<IoVector>, Errno> {
        let mut vectors = self.read_vectors_of_other(from, count)?;
        let mut room = TRANSFER_MAX;
        for vector in &mut vectors {
            vector.length = vector.length.min(room);
            check_range(vector.base, vector.length as usize)?;
            room -= vector.length;
        }
        Ok(vectors)
    }

    /// Reads an array of `count` I/O vectors whose addresses are in another process. The addresses are not checked, and
    /// all lengths up to `isize::MAX` are accepted (lib/iov_iter.c, `iovec_from_user`).
    ///
    /// # Errors
    /// `EINVAL` for too many vectors or a negative length, `EFAULT` if the array itself cannot be read, `ENOMEM`.
    pub fn read_vectors_of_other(self, from: u64, count: u64) -> Result<Vec<IoVector>, Errno> {
        if count > 1024 {
            return Err(Errno::EINVAL);
        }
        let mut vectors = Vec::new();
        vectors
            .try_reserve_exact(count as usize)
            .map_err(|_| Errno::ENOMEM)?;
        for index in 0..count {
            let vector: IoVector = self.read_value(from.wrapping_add(index * 16))?;
            if vector.length > i64::MAX as u64 {
                return Err(Errno::EINVAL);
            }
            vectors.try_push(vector).map_err(|_| Errno::ENOMEM)?;
        }
        Ok(vectors)
    }

    /// Returns how many bytes a read or write of `length` bytes at `address` transfers: at most [`TRANSFER_MAX`].
    /// Checks the range.
    ///
    /// # Errors
    /// `EFAULT` if the range is not in user space.
    pub fn transfer_length(self, address: u64, length: u64) -> Result<usize, Errno> {
        let length = length.min(TRANSFER_MAX) as usize;
        check_range(address, length).map(|()| length)
    }
}

#[cfg(test)]
mod tests {
    use super::{USER_END, check_range};
    use memwright_linux_abi::errno::Errno;

    #[test]
    fn ranges_end_at_the_end_of_user_space() {
        assert_eq!(check_range(0, 0), Ok(()));
        assert_eq!(check_range(USER_END - 1, 1), Ok(()));
        assert_eq!(check_range(USER_END - 1, 2), Err(Errno::EFAULT));
        assert_eq!(check_range(0xffff_8000_0000_0000, 1), Err(Errno::EFAULT));
        assert_eq!(check_range(u64::MAX, 2), Err(Errno::EFAULT));
    }
}
