//! The header in the first page of a swap device (`union swap_header` in `include/linux/swap.h` of Linux 7.2).

use memwright_linux_abi::errno::Errno;
use memwright_table::PAGE_SIZE;

/// The offset of the fields, which follow the area for a boot loader.
const FIELDS: usize = 1024;
const VERSION: usize = FIELDS;
const LAST_PAGE: usize = FIELDS + 4;
const BAD_PAGES: usize = FIELDS + 8;
/// The signature, which is at the end of the page.
const SIGNATURE: &[u8; 10] = b"SWAPSPACE2";
const SIGNATURE_START: usize = PAGE_SIZE - SIGNATURE.len();

fn field(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
}

/// Writes the header of a disk of `pages` pages to `page`, which is all zeroes.
pub fn write(page: &mut [u8], pages: u32) {
    page[VERSION..][..4].copy_from_slice(&1_u32.to_le_bytes());
    page[LAST_PAGE..][..4].copy_from_slice(&pages.saturating_sub(1).to_le_bytes());
    page[SIGNATURE_START..].copy_from_slice(SIGNATURE);
}

/// Returns the number of usable pages after the header of a disk of `pages` pages.
///
/// # Errors
/// `EINVAL` if the header is invalid, covers pages beyond the end of the disk, or lists bad pages (the disks of this
/// kernel have none).
pub fn read(page: &[u8], pages: u32) -> Result<u32, Errno> {
    let last = field(page, LAST_PAGE);
    let fits = last > 0 && last < pages;
    let known = page[SIGNATURE_START..] == *SIGNATURE && field(page, VERSION) == 1;
    if known && fits && field(page, BAD_PAGES) == 0 {
        Ok(last)
    } else {
        Err(Errno::EINVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let mut page = [0; PAGE_SIZE];
        assert_eq!(read(&page, 10), Err(Errno::EINVAL));
        write(&mut page, 10);
        assert_eq!(read(&page, 10), Ok(9));
        assert_eq!(read(&page, 11), Ok(9));
        assert_eq!(read(&page, 9), Err(Errno::EINVAL));
        for (at, value) in [(VERSION, 2), (BAD_PAGES, 1), (SIGNATURE_START, b's')] {
            let mut other = page;
            other[at] = value;
            assert_eq!(read(&other, 10), Err(Errno::EINVAL), "{at}");
        }
    }
}
