//! Checking ranges that programs pass.

use memwright_table::{PAGE_SIZE, PageRange, VirtAddr};

use crate::types::error::{AdviseError, NameError, SealError};

/// The reason why a range is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeError {
    Misaligned,
    Wraps,
}

/// Converts a [`RangeError`] to errors of operations.
macro_rules! from_range_error {
    ($($error:ty),+) => {
        $(impl From<RangeError> for $error {
            fn from(error: RangeError) -> Self {
                match error {
                    RangeError::Misaligned => Self::Misaligned,
                    RangeError::Wraps => Self::OutOfRange,
                }
            }
        })+
    };
}

from_range_error!(AdviseError, NameError, SealError);

/// Returns the pages of the `length` bytes from `address` on, which must be aligned. The length is rounded up to pages.
/// The range is empty if `length` is 0. It can extend beyond user addresses.
pub(crate) fn pages(address: VirtAddr, length: u64) -> Result<PageRange, RangeError> {
    if !address.is_aligned() {
        return Err(RangeError::Misaligned);
    }
    let length = length
        .checked_next_multiple_of(PAGE_SIZE as u64)
        .ok_or(RangeError::Wraps)?;
    let end = address
        .as_u64()
        .checked_add(length)
        .ok_or(RangeError::Wraps)?;
    Ok(PageRange::new(address.page(), VirtAddr::new(end).page()))
}

#[cfg(test)]
mod tests {
    use memwright_table::Page;

    use super::*;

    #[test]
    fn ranges_round_up_and_never_wrap() {
        let range = |start, end| Ok(PageRange::new(Page::new(start), Page::new(end)));
        #[rustfmt::skip]
        let rows = [
            (0x1000, 0,          range(1, 1)),
            (0x1000, 1,          range(1, 2)),
            (0x1000, 0x1000,     range(1, 2)),
            (0x1000, 0x1001,     range(1, 3)),
            (0x1001, 0x1000,     Err(RangeError::Misaligned)),
            (0x1000, u64::MAX,   Err(RangeError::Wraps)),
            (0x1000, u64::MAX - 0xfff, Err(RangeError::Wraps)),
            (u64::MAX - 0xfff, 0x1000, Err(RangeError::Wraps)),
        ];
        for (address, length, expected) in rows {
            assert_eq!(
                pages(VirtAddr::new(address), length),
                expected,
                "{address:#x} {length:#x}"
            );
        }
    }
}
