//! A line of text in a buffer of fixed size.

use super::Text;
use core::fmt;

/// The maximum number of bytes of a line.
const MOST: usize = 192;

/// A line that is composed in a separate buffer and then appended to a text as a whole. In files with many lines,
/// composing a line takes a tenth of the instructions of `write!`, which appends each number and each character
/// separately.
pub struct Line {
    bytes: [u8; MOST],
    length: usize,
}

impl Line {
    /// Creates an empty line.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; MOST],
            length: 0,
        }
    }

    /// Extends the line by `count` bytes, or by fewer if the line becomes full. Returns the added bytes, which the
    /// caller fills.
    fn grow(&mut self, count: usize) -> &mut [u8] {
        debug_assert!(
            count <= MOST - self.length,
            "the line is longer than {MOST}"
        );
        let start = self.length;
        self.length = MOST.min(start + count);
        &mut self.bytes[start..self.length]
    }

    /// Appends a text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        for (to, from) in self.grow(text.len()).iter_mut().zip(text.bytes()) {
            *to = from;
        }
        self
    }

    /// Appends an ASCII character.
    pub fn byte(&mut self, byte: u8) -> &mut Self {
        if let [to] = self.grow(1) {
            *to = byte;
        }
        self
    }

    /// Appends `count` spaces.
    pub fn spaces(&mut self, count: usize) -> &mut Self {
        self.grow(count).fill(b' ');
        self
    }

    /// Appends a number in hexadecimal, with at least `width` digits.
    pub fn hex(&mut self, value: u64, width: usize) -> &mut Self {
        self.digits(value, width, b"0123456789abcdef")
    }

    /// Appends a number in hexadecimal, with capital letters and at least `width` digits.
    pub fn capital_hex(&mut self, value: u64, width: usize) -> &mut Self {
        self.digits(value, width, b"0123456789ABCDEF")
    }

    fn digits(&mut self, value: u64, width: usize, letters: &[u8; 16]) -> &mut Self {
        let digits = (u64::BITS - value.leading_zeros()).div_ceil(4) as usize;
        let mut rest = value;
        for digit in self.grow(digits.max(width)).iter_mut().rev() {
            *digit = letters[(rest & 15) as usize];
            rest >>= 4;
        }
        self
    }

    /// Returns the length in bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Appends a number in decimal, padded with spaces on the left to `width` columns.
    pub fn decimal(&mut self, value: u64, width: usize) -> &mut Self {
        // This path is shorter. It serves single digits, because most of the numbers in files with many numbers are 0.
        if value < 10 && width <= 1 {
            return self.byte(b'0' + value as u8);
        }
        let digits = value.checked_ilog10().unwrap_or_default() as usize + 1;
        if digits < width {
            self.spaces(width - digits);
        }
        let mut rest = value;
        for digit in self.grow(digits).iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self
    }

    /// Returns the text of the line.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Appends the line to `text`.
    ///
    /// # Errors
    /// [`fmt::Error`] if the heap is exhausted.
    pub fn write(&self, text: &mut Text) -> fmt::Result {
        text.push(self.bytes())
    }
}

/// Appends formatted text. Fails if the text does not fit in the rest of the line.
impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.len() > MOST - self.length {
            return Err(fmt::Error);
        }
        self.text(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::node::text::written;
    use alloc::{format, string::String};

    #[test]
    fn lines_are_as_with_the_formatting_of_the_language() {
        for value in [
            0,
            1,
            9,
            10,
            15,
            16,
            99,
            4096,
            99_999_999,
            100_000_000,
            u64::MAX,
        ] {
            let text = written(|text| {
                let mut line = Line::new();
                line.hex(value, 8).text("-").hex(value, 0).spaces(2);
                line.decimal(value, 8).text("|").decimal(value, 0);
                line.write(text)
            });
            let hex = if value == 0 {
                String::new()
            } else {
                format!("{value:x}")
            };
            assert_eq!(text, format!("{value:08x}-{hex}  {value:8}|{value}"));
        }
    }

    #[test]
    fn a_text_that_does_not_fit_is_refused() {
        use fmt::Write;
        let mut line = Line::new();
        let long = "x".repeat(MOST - 1);
        assert_eq!(line.write_str(&long), Ok(()));
        assert_eq!(line.write_str("yz"), Err(fmt::Error));
        assert_eq!(line.write_str("y"), Ok(()));
        assert_eq!(written(|text| line.write(text)), long + "y");
    }
}
