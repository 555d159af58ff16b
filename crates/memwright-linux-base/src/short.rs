//! A short text in a fixed-size buffer, without the heap.

use core::fmt::{self, Write};

/// The maximum number of bytes in a short text.
const MOST: usize = 64;

/// A text of up to 64 bytes, for example a number or the name of a directory in `/proc`.
#[derive(Clone, Copy)]
pub struct Short {
    bytes: [u8; MOST],
    length: usize,
}

impl Short {
    /// Formats `arguments`. A text that exceeds the capacity is truncated.
    #[must_use]
    pub fn of(arguments: fmt::Arguments<'_>) -> Self {
        let mut short = Self {
            bytes: [0; MOST],
            length: 0,
        };
        let _ = short.write_fmt(arguments);
        short
    }

    /// Returns the bytes of the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        if count == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out() {
        assert_eq!(Short::of(format_args!("cpu{}", 12)).as_bytes(), b"cpu12");
        let long = Short::of(format_args!("{:>63}{}", "x", "yz"));
        assert_eq!(long.as_bytes().len(), 64);
        assert!(long.as_bytes().ends_with(b" xy"));
    }
}
