//! Writes cpio archives in the `newc` format, which the kernel unpacks as its initrd.

use std::io::{self, Write};

/// The file type of a folder in `st_mode`.
pub const FOLDER: u32 = 0o040_000;
/// The file type of a regular file in `st_mode`.
pub const FILE: u32 = 0o100_000;
/// The file type of a symbolic link in `st_mode`.
pub const LINK: u32 = 0o120_000;

/// The name of the entry that marks the end of an archive.
pub const END: &[u8] = b"TRAILER!!!";

/// Writes one archive. All files are owned by root and inodes are numbered consecutively, so that equal contents
/// produce equal bytes.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    time: u32,
    inode: u32,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Starts an archive. `time` is the modification time of every entry, in seconds since 1970.
    pub fn new(output: W, time: u32) -> Self {
        Self {
            output,
            time,
            inode: 0,
            written: 0,
        }
    }

    /// Adds an entry. `name` must not begin with a slash.
    ///
    /// # Errors
    /// `InvalidInput` if the data is 4 GiB or more, the format's limit; otherwise I/O errors of the output.
    pub fn entry(&mut self, name: &[u8], mode: u32, data: &[u8]) -> io::Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "4 GiB or more do not fit into an initrd",
            )
        })?;
        self.inode += 1;
        let inode = self.inode;
        self.header(inode, mode, size, name)?;
        self.put(data)?;
        self.pad()
    }

    /// Ends the archive and returns the number of bytes in it.
    ///
    /// # Errors
    /// I/O errors of the output.
    pub fn finish(mut self) -> io::Result<u64> {
        self.header(0, 0, 0, END)?;
        self.output.flush()?;
        Ok(self.written)
    }

    fn header(&mut self, inode: u32, mode: u32, size: u32, name: &[u8]) -> io::Result<()> {
        let links = if mode & 0o170_000 == FOLDER { 2 } else { 1 };
        // The fields of the header after the magic number: inode, mode, owner, group, links, time, size, device (2
        // fields), represented device (2 fields), name length, checksum.
        let fields = [
            inode,
            mode,
            0,
            0,
            links,
            self.time,
            size,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        self.put(b"070701")?;
        for field in fields {
            self.put(format!("{field:08x}").as_bytes())?;
        }
        self.put(name)?;
        self.put(&[0])?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.output.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        let missing = (4 - self.written % 4) % 4;
        self.put(&[0; 3][..missing as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_laid_out_as_newc() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 0x10);
        writer.entry(b"ab", FILE | 0o755, b"hello").unwrap();
        let length = writer.finish().unwrap();
        assert_eq!(length as usize, bytes.len());
        let header = "070701\
            00000001000081ed00000000000000000000000100000010\
            0000000500000000000000000000000000000000\
            0000000300000000";
        assert_eq!(&bytes[..110], header.as_bytes());
        // 110 bytes of header and 3 of the name, padded to 116, then 5 bytes of data, padded to 124.
        assert_eq!(&bytes[110..124], b"ab\0\0\0\0hello\0\0\0");
        assert_eq!(&bytes[124..130], b"070701");
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0") && bytes.len() % 4 == 0);
    }
}
