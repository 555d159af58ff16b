//! Computes file positions and the lengths of transfers.

use crate::user::TRANSFER_MAX;
use memwright_linux_abi::errno::Errno;

/// Largest size of a file, in bytes (Linux's `MAX_LFS_FILESIZE` on 64-bit machines).
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// The base to which `lseek` adds the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The start of the file (`SEEK_SET`).
    Start,
    /// The present position (`SEEK_CUR`).
    Position,
    /// The end of the file (`SEEK_END`).
    End,
    /// The next data at or after the offset, which counts from the start (`SEEK_DATA`).
    Data,
    /// The next hole at or after the offset, which counts from the start (`SEEK_HOLE`).
    Hole,
}

impl Whence {
    /// Decodes the argument `whence` of `lseek`.
    ///
    /// # Errors
    /// `EINVAL` for any other number.
    pub const fn decode(number: u32) -> Result<Self, Errno> {
        match number {
            0 => Ok(Self::Start),
            1 => Ok(Self::Position),
            2 => Ok(Self::End),
            3 => Ok(Self::Data),
            4 => Ok(Self::Hole),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Returns the position `offset` bytes after `base`, or before it if `offset` is negative.
///
/// # Errors
/// `EINVAL` if the position would be negative, `EOVERFLOW` if it would exceed [`SIZE_MAX`].
pub fn moved(base: u64, offset: i64) -> Result<u64, Errno> {
    match base.checked_add_signed(offset) {
        Some(position) if position <= SIZE_MAX => Ok(position),
        None if offset < 0 => Err(Errno::EINVAL),
        Some(_) | None => Err(Errno::EOVERFLOW),
    }
}

/// Returns the position to which `lseek` moves in a file that does not report holes. `size` is `None` for a file
/// without a size, such as a text of `/proc` or a directory.
///
/// # Errors
/// `EINVAL` if the file does not support the base `whence`, and the errors of [`moved`].
pub fn sought(position: u64, offset: i64, whence: Whence, size: Option<u64>) -> Result<u64, Errno> {
    match whence {
        Whence::Start => moved(0, offset),
        Whence::Position => moved(position, offset),
        Whence::End => moved(size.ok_or(Errno::EINVAL)?, offset),
        Whence::Data | Whence::Hole => Err(Errno::EINVAL),
    }
}

/// Checks the offset that a program passes to `pread64` or a similar call, and returns it.
///
/// # Errors
/// `EINVAL` if it is negative.
pub fn explicit(offset: i64) -> Result<u64, Errno> {
    u64::try_from(offset).map_err(|_| Errno::EINVAL)
}

/// Returns how many of `length` bytes a read at `position` returns from a file of `size` bytes.
#[must_use]
pub fn readable(position: u64, length: usize, size: u64) -> usize {
    let left = size.saturating_sub(position);
    usize::try_from(left)
        .unwrap_or(usize::MAX)
        .min(length)
        .min(TRANSFER_MAX as usize)
}

/// Returns how many of `length` bytes a write at `position` can store in a file that can grow to at most `limit` bytes.
///
/// # Errors
/// `EFBIG` if the write cannot store even one byte.
pub fn storable(position: u64, length: usize, limit: u64) -> Result<usize, Errno> {
    let room = limit.min(SIZE_MAX).saturating_sub(position);
    if room == 0 && length > 0 {
        return Err(Errno::EFBIG);
    }
    Ok(usize::try_from(room)
        .unwrap_or(usize::MAX)
        .min(length)
        .min(TRANSFER_MAX as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_do_not_wrap() {
        let cases = [
            (0, 0, Ok(0)),
            (0, -1, Err(Errno::EINVAL)),
            (10, -10, Ok(0)),
            (10, -11, Err(Errno::EINVAL)),
            (10, i64::MIN, Err(Errno::EINVAL)),
            (0, i64::MAX, Ok(SIZE_MAX)),
            (1, i64::MAX, Err(Errno::EOVERFLOW)),
            (SIZE_MAX, 1, Err(Errno::EOVERFLOW)),
            (SIZE_MAX, i64::MAX, Err(Errno::EOVERFLOW)),
        ];
        for (base, offset, result) in cases {
            assert_eq!(moved(base, offset), result, "{base} {offset}");
        }
        assert_eq!(explicit(-1), Err(Errno::EINVAL));
        assert_eq!(explicit(i64::MAX), Ok(SIZE_MAX));
    }

    #[test]
    fn places_are_counted_from_what_there_is() {
        let cases = [
            (Whence::Start, None, Ok(3)),
            (Whence::Position, None, Ok(13)),
            (Whence::End, None, Err(Errno::EINVAL)),
            (Whence::End, Some(20), Ok(23)),
            (Whence::Data, Some(20), Err(Errno::EINVAL)),
            (Whence::Hole, Some(20), Err(Errno::EINVAL)),
        ];
        for (whence, size, result) in cases {
            assert_eq!(sought(10, 3, whence, size), result, "{whence:?} {size:?}");
        }
    }

    #[test]
    fn transfers_stop_at_the_ends() {
        assert_eq!(readable(0, 10, 4), 4);
        assert_eq!(readable(4, 10, 4), 0);
        assert_eq!(readable(SIZE_MAX, 10, 4), 0);
        assert_eq!(readable(0, usize::MAX, SIZE_MAX), TRANSFER_MAX as usize);
        assert_eq!(storable(0, 10, 4), Ok(4));
        assert_eq!(storable(4, 10, 4), Err(Errno::EFBIG));
        assert_eq!(storable(4, 0, 4), Ok(0));
        assert_eq!(storable(SIZE_MAX - 1, 10, u64::MAX), Ok(1));
        assert_eq!(storable(SIZE_MAX, 10, u64::MAX), Err(Errno::EFBIG));
    }

    #[test]
    fn whence_is_decoded() {
        assert_eq!(Whence::decode(4), Ok(Whence::Hole));
        assert_eq!(Whence::decode(5), Err(Errno::EINVAL));
    }
}
