//! Text of `/proc` and `/sys` files: parses text that programs write, and generates text that they read, piece by
//! piece.

use super::Line;
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::fmt::{self, Write};
use memwright_linux_abi::{Space, errno::Errno};
use memwright_linux_base::batch::Batch;
use memwright_linux_vfs::fs::inet::Spot;
use memwright_table::TryPush;

/// Parses a decimal number. White space around the number is allowed. Returns `None` if the text is not a decimal
/// number.
pub(in crate::procfs) fn number(bytes: &[u8]) -> Option<u64> {
    core::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// Parses a write to a file of `/sys` (Linux 7.2 `lib/kstrtox.c`, `kstrtoul` with base 10): a number with an optional
/// plus sign and one optional trailing newline.
///
/// # Errors
/// `EINVAL` if the text is not such a number, `ERANGE` if the number exceeds 64 bits.
pub(in crate::procfs) fn attribute(bytes: &[u8]) -> Result<u64, Errno> {
    let digits = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    digits_to(digits, 10)
}

/// Parses a write to a file of `/proc/sys` (Linux 7.2 `kernel/sysctl.c`, `strtoul_lenient`): a number without a sign.
/// White space around it is allowed. The number is octal with the prefix `0`, hexadecimal with the prefix `0x`, and
/// otherwise decimal.
///
/// # Errors
/// `EINVAL` if the text is not such a number, or if the number exceeds 64 bits.
pub(in crate::procfs) fn setting(bytes: &[u8]) -> Result<u64, Errno> {
    let digits = bytes.trim_ascii();
    let found = match digits {
        [b'0', b'x' | b'X', digits @ ..] => digits_to(digits, 16),
        [b'0', digits @ ..] if !digits.is_empty() => digits_to(digits, 8),
        _ => digits_to(digits, 10),
    };
    found.map_err(|_| Errno::EINVAL)
}

/// Parses a number that consists only of digits in the given base.
///
/// # Errors
/// `EINVAL` if there are no digits, or if there is a character that is not a digit of the base; `ERANGE` if the number
/// exceeds 64 bits.
fn digits_to(digits: &[u8], base: u32) -> Result<u64, Errno> {
    if digits.is_empty() {
        return Err(Errno::EINVAL);
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = char::from(*digit).to_digit(base).ok_or(Errno::EINVAL)?;
        let value = value.checked_mul(base.into());
        let value = value.and_then(|value| value.checked_add(digit.into()));
        value.ok_or(Errno::ERANGE)
    })
}

/// Parses a write to a switch of `/sys`: 1 or 0.
///
/// # Errors
/// The errors of [`attribute`], and `EINVAL` for a number that is neither 1 nor 0.
pub(in crate::procfs) fn switch(bytes: &[u8]) -> Result<bool, Errno> {
    match attribute(bytes)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

/// Parses a write to a switch of `/sys` that takes a word. Only its first one or two characters matter (Linux 7.2
/// `lib/kstrtox.c`, `kstrtobool`).
///
/// # Errors
/// `EINVAL` for any other text.
pub(in crate::procfs) fn truth(bytes: &[u8]) -> Result<bool, Errno> {
    match bytes {
        [b'y' | b'Y' | b't' | b'T' | b'1', ..] | [b'o' | b'O', b'n' | b'N', ..] => Ok(true),
        [b'n' | b'N' | b'f' | b'F' | b'0', ..] | [b'o' | b'O', b'f' | b'F', ..] => Ok(false),
        _ => Err(Errno::EINVAL),
    }
}

/// Writes the text of a switch: 1 or 0.
pub(in crate::procfs) fn read_switch(text: &mut Text, on: bool) -> fmt::Result {
    writeln!(text, "{}", u8::from(on))
}

/// The minimum length in bytes of a piece to which no further record is added. So a piece with its last record is
/// rarely longer than a page, which is the maximum that one read of a generated file returns on Linux (`seq_read_iter`
/// of Linux 7.2, `fs/seq_file.c`).
const FULL: usize = 3584;
/// Initial capacity of a piece in bytes.
const FIRST_ROOM: usize = 1024;

/// The record with which a piece starts.
#[derive(Clone, Copy)]
enum Cursor {
    /// The record with the contained number. The writer of the file chooses the numbers, which can be indexes, IDs or
    /// addresses.
    Number(u64),
    /// The socket at the contained place in the tables of sockets, and the number of rows before it.
    Socket(Spot, u64),
}

/// A piece of a file's text.
///
/// A file is a sequence of records, each with a number, or of sockets. Reads generate the sequence piece by piece. A
/// piece starts with the record at [`from`](Self::from), the *cursor*. The piece ends where a writer calls
/// [`go_on_from`](Self::go_on_from), or at the end of the file. A file whose size programs cannot increase is a single
/// record, and its writer ignores the cursor.
pub struct Text {
    bytes: Vec<u8>,
    /// The record with which the piece starts.
    from: Cursor,
    /// The record with which the next piece starts; `None` at the end of the file.
    next: Option<Cursor>,
    /// The address space that the first piece described.
    space: Option<Weak<Space>>,
    /// The error with which the read fails if a writer fails; `None` for `ENOMEM`.
    failure: Option<Errno>,
}

impl Default for Text {
    fn default() -> Self {
        Self::new()
    }
}

impl Text {
    /// Creates an empty text at the start of a file.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            from: Cursor::Number(0),
            next: Some(Cursor::Number(0)),
            space: None,
            failure: None,
        }
    }

    /// Makes the read fail with `errno`.
    ///
    /// # Errors
    /// Always fails.
    pub fn fail(&mut self, errno: Errno) -> fmt::Result {
        self.failure = Some(errno);
        Err(fmt::Error)
    }

    /// Returns the error of a read for which a writer has failed.
    #[must_use]
    pub fn failure(&self) -> Errno {
        self.failure.unwrap_or(Errno::ENOMEM)
    }

    /// Appends `bytes`. They need not be UTF-8, because programs can choose any bytes as arguments and names.
    ///
    /// # Errors
    /// [`fmt::Error`] if the heap is exhausted.
    pub fn push(&mut self, bytes: &[u8]) -> fmt::Result {
        if self.bytes.capacity() == 0 {
            self.bytes
                .try_reserve_exact(FIRST_ROOM.max(bytes.len()))
                .map_err(|_| fmt::Error)?;
        }
        self.bytes.try_push_all(bytes).map_err(|_| fmt::Error)
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the piece is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes of the piece.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of the record with which the piece starts; 0 for the first piece.
    #[must_use]
    pub const fn from(&self) -> u64 {
        match self.from {
            Cursor::Number(number) => number,
            Cursor::Socket(..) => 0,
        }
    }

    /// Ends this piece, and sets the number of the record with which the next piece starts. Afterwards, the caller adds
    /// no more records.
    pub const fn go_on_from(&mut self, next: u64) {
        self.next = Some(Cursor::Number(next));
    }

    /// Returns whether the piece is short enough for another record.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.bytes.len() < FULL
    }

    /// Returns whether the earlier pieces of the file describe `space`, or no earlier piece has described an address
    /// space. After an `execve` between two reads, the process has another address space, and the writer must end the
    /// file. On Linux, an open file keeps a reference to the old address space instead.
    pub fn stays_with(&mut self, space: &Arc<Space>) -> bool {
        match &self.space {
            Some(first) => core::ptr::eq(first.as_ptr(), Arc::as_ptr(space)),
            None => {
                self.space = Some(Arc::downgrade(space));
                true
            }
        }
    }

    /// Returns whether the piece is the first one of a file.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        matches!(self.from, Cursor::Number(0))
    }

    /// Begins the next piece. Returns `false` at the end of the file.
    pub(in crate::procfs) fn begin_next(&mut self) -> bool {
        let Some(next) = self.next.take() else {
            return false;
        };
        self.bytes.clear();
        self.from = next;
        true
    }

    /// Writes records, beginning at the cursor, until the piece is full or no record is left.
    ///
    /// `note` takes the necessary locks, and appends records to a batch, beginning at a given cursor. The batch has
    /// room for `together` records. `write` is called without these locks, writes one record, and returns the cursor
    /// after that record.
    ///
    /// # Errors
    /// The errors of `write`, and [`fmt::Error`] if the heap is exhausted.
    pub(in crate::procfs) fn records<T>(
        &mut self,
        together: usize,
        note: impl FnMut(u64, &mut Batch<T>),
        mut write: impl FnMut(&mut Self, &T) -> Result<u64, fmt::Error>,
    ) -> fmt::Result {
        let write = |text: &mut Self, _, record: &T| write(text, record);
        self.records_from(self.from(), Cursor::Number, together, note, write)
    }

    /// Writes sockets, beginning at the cursor, until the piece is full or no socket is left. `first` is the place of
    /// the first socket of the file. `note` and `write` are as in [`records`](Self::records), with two differences: a
    /// cursor consists of a place and the number of rows before it, and `write` also receives this number.
    ///
    /// # Errors
    /// The errors of `write`, and [`fmt::Error`] if the heap is exhausted.
    pub(in crate::procfs) fn sockets<T>(
        &mut self,
        first: Spot,
        together: usize,
        note: impl FnMut((Spot, u64), &mut Batch<T>),
        mut write: impl FnMut(&mut Self, u64, &T) -> Result<(Spot, u64), fmt::Error>,
    ) -> fmt::Result {
        let from = match self.from {
            Cursor::Number(_) => (first, 0),
            Cursor::Socket(spot, before) => (spot, before),
        };
        let cursor = |(spot, before)| Cursor::Socket(spot, before);
        let write = |text: &mut Self, (_, before), socket: &T| write(text, before, socket);
        self.records_from(from, cursor, together, note, write)
    }

    fn records_from<T, C: Copy>(
        &mut self,
        mut from: C,
        cursor: impl Fn(C) -> Cursor,
        together: usize,
        mut note: impl FnMut(C, &mut Batch<T>),
        mut write: impl FnMut(&mut Self, C, &T) -> Result<C, fmt::Error>,
    ) -> fmt::Result {
        let mut batch = Batch::with_room(together).map_err(|_| fmt::Error)?;
        loop {
            note(from, &mut batch);
            let last = batch.has_room();
            for record in batch.drain() {
                if !self.has_room() {
                    self.next = Some(cursor(from));
                    return Ok(());
                }
                from = write(self, from, &record)?;
            }
            if last {
                return Ok(());
            }
        }
    }
}

/// Writes a row `NAME: N kB` in which the number ends in column 24, as in `/proc/meminfo` and `/proc/PID/smaps`.
pub(in crate::procfs) fn kibibyte_row(text: &mut Text, name: &str, kibibytes: u64) -> fmt::Result {
    let mut line = Line::new();
    line.text(name).text(":");
    line.spaces(15_usize.saturating_sub(name.len()));
    line.decimal(kibibytes, 8).text(" kB\n").write(text)
}

/// Returns the text that `write` writes, for tests.
#[cfg(test)]
pub(in crate::procfs) fn written(
    write: impl FnOnce(&mut Text) -> fmt::Result,
) -> alloc::string::String {
    let mut text = Text::new();
    write(&mut text).unwrap();
    alloc::string::String::from_utf8(text.bytes().to_vec()).unwrap()
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes())
    }

    fn write_char(&mut self, character: char) -> fmt::Result {
        self.push(character.encode_utf8(&mut [0; 4]).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_each_kind_of_file_reads_them() {
        type Number = Result<u64, Errno>;
        const BAD: Number = Err(Errno::EINVAL);
        #[rustfmt::skip]
        let rows: [(&[u8], Number, Number); 14] = [
            (b"5",       Ok(5),  Ok(5)),
            (b"5\n",     Ok(5),  Ok(5)),
            (b"5\n\n",   BAD,    Ok(5)),
            (b" 5",      BAD,    Ok(5)),
            (b"5 ",      BAD,    Ok(5)),
            (b"+5",      Ok(5),  BAD),
            (b"-5",      BAD,    BAD),
            (b"010",     Ok(10), Ok(8)),
            (b"0x10",    BAD,    Ok(16)),
            (b"0",       Ok(0),  Ok(0)),
            (b"\n",      BAD,    BAD),
            (b"5x",      BAD,    BAD),
            (b"18446744073709551615", Ok(u64::MAX), Ok(u64::MAX)),
            (b"18446744073709551616", Err(Errno::ERANGE), BAD),
        ];
        for (bytes, of_attribute, of_setting) in rows {
            assert_eq!(attribute(bytes), of_attribute, "{bytes:?}");
            assert_eq!(setting(bytes), of_setting, "{bytes:?}");
        }
    }

    #[test]
    fn the_beginning_of_a_word_turns_on_or_off() {
        for (bytes, expected) in [
            (&b"1.5"[..], Ok(true)),
            (b"on", Ok(true)),
            (b"yes\n", Ok(true)),
            (b"0x1", Ok(false)),
            (b"OFF", Ok(false)),
            (b"never", Ok(false)),
            (b"o", Err(Errno::EINVAL)),
            (b"2", Err(Errno::EINVAL)),
            (b"", Err(Errno::EINVAL)),
        ] {
            assert_eq!(truth(bytes), expected, "{bytes:?}");
        }
    }
}
