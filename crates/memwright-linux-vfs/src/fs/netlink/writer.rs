//! Writes netlink messages.

use crate::fs::netlink::request::ALIGNMENT;
use alloc::vec::Vec;
use memwright_table::{OutOfMemory, TryPush};

/// The fields of a request that the headers of its replies repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return {
    /// The sequence number of the request.
    pub sequence: u32,
    /// The port of the socket that sent the request.
    pub port: u32,
}

/// Writes the messages of one datagram.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// The offset in `bytes` of the last message.
    start: usize,
}

impl Writer {
    /// Begins a message: appends its header and the structure `head`, which follows the header.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn begin(
        &mut self,
        (kind, flags): (u16, u16),
        to: Return,
        head: &[u8],
    ) -> Result<(), OutOfMemory> {
        self.start = self.bytes.len();
        let mut header = [0; 16];
        header[4..6].copy_from_slice(&kind.to_le_bytes());
        header[6..8].copy_from_slice(&flags.to_le_bytes());
        header[8..12].copy_from_slice(&to.sequence.to_le_bytes());
        header[12..].copy_from_slice(&to.port.to_le_bytes());
        self.bytes.try_push_all(&header)?;
        self.put(head)
    }

    /// Appends an attribute to the last message.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn attribute(&mut self, kind: u16, data: &[u8]) -> Result<(), OutOfMemory> {
        let length = (4 + data.len()) as u16;
        let [a, b] = length.to_le_bytes();
        let [c, d] = kind.to_le_bytes();
        self.bytes.try_push_all(&[a, b, c, d])?;
        self.put(data)
    }

    /// Appends a string and its NUL as an attribute to the last message.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn string(&mut self, kind: u16, text: &[u8]) -> Result<(), OutOfMemory> {
        let mut data = [0; 16];
        data[..text.len()].copy_from_slice(text);
        self.attribute(kind, &data[..=text.len()])
    }

    /// Appends a number as an attribute to the last message.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn number(&mut self, kind: u16, number: u32) -> Result<(), OutOfMemory> {
        self.attribute(kind, &number.to_le_bytes())
    }

    /// Appends bytes to the last message.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn append(&mut self, data: &[u8]) -> Result<(), OutOfMemory> {
        self.put(data)
    }

    /// Appends bytes, and zeros up to the next multiple of [`ALIGNMENT`]. Updates the length in the header of the last
    /// message.
    fn put(&mut self, data: &[u8]) -> Result<(), OutOfMemory> {
        self.bytes.try_push_all(data)?;
        let end = self.bytes.len().next_multiple_of(ALIGNMENT);
        let zeros = [0; ALIGNMENT];
        self.bytes.try_push_all(&zeros[..end - self.bytes.len()])?;
        let length = (end - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Returns the messages.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_lengths_and_are_aligned() {
        let mut writer = Writer::default();
        let to = Return {
            sequence: 7,
            port: 9,
        };
        writer.begin((20, 2), to, b"head").unwrap();
        writer.string(3, b"lo").unwrap();
        writer.begin((3, 2), to, &[0; 4]).unwrap();
        assert_eq!(
            writer.into_bytes(),
            b"\x1c\0\0\0\x14\0\x02\0\x07\0\0\0\x09\0\0\0head\x07\0\x03\0lo\0\0\
              \x14\0\0\0\x03\0\x02\0\x07\0\0\0\x09\0\0\0\0\0\0\0"
        );
    }
}
