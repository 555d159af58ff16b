//! Reads and creates archives in the `newc` format of cpio. The guest receives its files in one archive.

/// One entry of the archive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CpioEntry<'a> {
    /// Path without a leading slash.
    pub name: &'a [u8],
    /// File type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Modification time in seconds since 1970.
    pub modified: u32,
    /// Inode number. Entries with equal inode numbers and more than one link are hard links to one file.
    pub inode: u32,
    /// Number of hard links.
    pub links: u32,
    /// Contents, or the target of a symbolic link.
    pub data: &'a [u8],
}

/// Iterates over the entries of an archive. Stops at the trailer or at the first malformed header.
#[derive(Clone, Copy, Debug)]
pub struct CpioArchive<'a> {
    bytes: &'a [u8],
    position: usize,
}

/// Size in bytes of a `newc` header: the magic and thirteen numbers of eight hexadecimal digits.
const HEADER: usize = 110;

impl<'a> CpioArchive<'a> {
    /// Creates an iterator over the archive in `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    fn read(&mut self) -> Option<CpioEntry<'a>> {
        let header = self
            .bytes
            .get(self.position..self.position.checked_add(HEADER)?)?;
        // The magic is 070701 for newc, and 070702 for newc with checksums.
        if &header[..5] != b"07070" || !matches!(header[5], b'1' | b'2') {
            return None;
        }
        let number = |index: usize| {
            let digits = &header[6 + index * 8..14 + index * 8];
            u32::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
        };
        let name_start = self.position + HEADER;
        let name_size = number(11)? as usize;
        let name = self
            .bytes
            .get(name_start..name_start.checked_add(name_size)?)?;
        let data_start = (name_start + name_size).next_multiple_of(4);
        let data_end = data_start.checked_add(number(6)? as usize)?;
        let data = self.bytes.get(data_start..data_end)?;
        self.position = data_end.next_multiple_of(4);
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        (name != b"TRAILER!!!").then_some(CpioEntry {
            name,
            mode: number(1)?,
            modified: number(5)?,
            inode: number(0)?,
            links: number(4)?,
            data,
        })
    }
}

impl<'a> Iterator for CpioArchive<'a> {
    type Item = CpioEntry<'a>;

    fn next(&mut self) -> Option<CpioEntry<'a>> {
        let entry = self.read();
        if entry.is_none() {
            self.position = self.bytes.len();
        }
        entry
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::CpioArchive;
    use alloc::{format, vec::Vec};

    /// Appends one entry to an archive under construction.
    pub fn append(archive: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]) {
        let header = format!(
            "070701{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}",
            1,
            mode,
            0,
            0,
            1,
            7,
            data.len(),
            0,
            0,
            0,
            0,
            name.len() + 1,
            0
        );
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(name.as_bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend_from_slice(data);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }

    #[test]
    fn entries_come_in_order_and_end_at_the_trailer() {
        let mut bytes = Vec::new();
        append(&mut bytes, "bin/true", 0o100_755, b"abcde");
        append(&mut bytes, "etc", 0o040_755, b"");
        append(&mut bytes, "TRAILER!!!", 0, b"");
        append(&mut bytes, "after", 0, b"");
        let entries: Vec<_> = CpioArchive::new(&bytes).collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].name, b"bin/true");
        assert_eq!(entries[0].data, b"abcde");
        assert_eq!(entries[0].modified, 7);
        assert_eq!(entries[1].mode, 0o040_755);
    }

    #[test]
    fn a_cut_archive_ends() {
        let mut bytes = Vec::new();
        append(&mut bytes, "file", 0o100_644, b"0123456789");
        for cut in 0..bytes.len() - 2 {
            assert_eq!(CpioArchive::new(&bytes[..cut]).count(), 0, "cut at {cut}");
        }
    }
}
