//! Encodes directory entries as the records that `getdents64` and `getdents` return.

use crate::fs::kind::Kind;

/// The layout of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `struct linux_dirent64`, in which the file type precedes the name.
    Wide,
    /// `struct linux_dirent`, in which the file type is the last byte.
    Old,
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Inode number.
    pub inode: u64,
    /// The directory position from which a read continues after this entry.
    pub next: u64,
    /// The file type.
    pub kind: Kind,
    /// The name.
    pub name: &'a [u8],
}

/// Size in bytes of the largest record: a header of 19 bytes, the longest name and its NUL, rounded up.
pub const RECORD_MAX: usize = 280;

impl DirectoryEntry<'_> {
    /// Returns the length of the record in bytes, a multiple of eight.
    #[must_use]
    pub fn record_length(&self, layout: Layout) -> usize {
        let unaligned = match layout {
            Layout::Wide => 19 + self.name.len() + 1,
            Layout::Old => 18 + self.name.len() + 2,
        };
        unaligned.next_multiple_of(8)
    }

    /// Writes the record to `buffer`. Returns the length of the record in bytes, or `None` if `buffer` is too short.
    #[must_use]
    pub fn encode(&self, layout: Layout, buffer: &mut [u8]) -> Option<usize> {
        let length = self.record_length(layout);
        let record = buffer.get_mut(..length)?;
        record.fill(0);
        record[0..8].copy_from_slice(&self.inode.to_le_bytes());
        record[8..16].copy_from_slice(&self.next.to_le_bytes());
        record[16..18].copy_from_slice(&u16::try_from(length).ok()?.to_le_bytes());
        let name = match layout {
            Layout::Wide => {
                record[18] = self.kind.directory_type();
                19
            }
            Layout::Old => {
                record[length - 1] = self.kind.directory_type();
                18
            }
        };
        record[name..name + self.name.len()].copy_from_slice(self.name);
        Some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_layout_of_the_interface() {
        let entry = DirectoryEntry {
            inode: 0x0102_0304_0506_0708,
            next: 9,
            kind: Kind::Regular,
            name: b"abcd",
        };
        let mut buffer = [0xff; 32];
        assert_eq!(entry.encode(Layout::Wide, &mut buffer), Some(24));
        assert_eq!(
            buffer[..24],
            [
                8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 24, 0, 8, b'a', b'b', b'c', b'd', 0
            ]
        );
        assert_eq!(buffer[24], 0xff);
        assert_eq!(entry.encode(Layout::Wide, &mut buffer[..23]), None);
        assert_eq!(entry.encode(Layout::Old, &mut buffer), Some(24));
        assert_eq!(buffer[18..24], [b'a', b'b', b'c', b'd', 0, 8]);
    }

    #[test]
    fn the_longest_name_fits_the_largest_record() {
        let name = [b'x'; crate::fs::name::NAME_MAX];
        let entry = DirectoryEntry {
            inode: 1,
            next: 2,
            kind: Kind::Directory,
            name: &name,
        };
        let mut buffer = [0; RECORD_MAX];
        for layout in [Layout::Wide, Layout::Old] {
            let length = entry.encode(layout, &mut buffer).unwrap();
            assert!(length <= RECORD_MAX);
            assert_eq!(length % 8, 0);
        }
    }
}
