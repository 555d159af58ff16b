//! Files whose text is made when it is read.

use super::ProcNode;
use crate::{
    context::Context,
    errno::Errno,
    fs::{
        open_file::{File, OpenFile},
        seek::{Whence, sought},
        transfer::{Sink, Source},
    },
    sync::{Lock, Rank},
};
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// The number that was written to a file, with white space around it.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    core::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// The number that was written to a file of `/sys` (Linux 7.2 `lib/kstrtox.c`, `kstrtoul` to base 10): nothing may
/// stand around it but one newline behind.
///
/// # Errors
/// `EINVAL` for what is no number, `ERANGE` for one of more than 64 bits.
pub(super) fn attribute(bytes: &[u8]) -> Result<u64, Errno> {
    let digits = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    digits_to(digits, 10)
}

/// The number that was written to a file of `/proc/sys` (Linux 7.2 `kernel/sysctl.c`, `strtoul_lenient`): octal behind
/// a 0 and hexadecimal behind 0x, with white space around it and no sign.
///
/// # Errors
/// `EINVAL` for what is no such number.
pub(super) fn setting(bytes: &[u8]) -> Result<u64, Errno> {
    let digits = bytes.trim_ascii();
    let found = match digits {
        [b'0', b'x' | b'X', digits @ ..] => digits_to(digits, 16),
        [b'0', digits @ ..] if !digits.is_empty() => digits_to(digits, 8),
        _ => digits_to(digits, 10),
    };
    found.map_err(|_| Errno::EINVAL)
}

/// The number that the digits make to this base.
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

/// What was written to a file of `/sys` that is on or off, by 1 or 0.
///
/// # Errors
/// As for [`attribute`]; `EINVAL` for another number.
pub(super) fn switch(bytes: &[u8]) -> Result<bool, Errno> {
    match attribute(bytes)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

/// What was written to a file of `/sys` that is on or off, by words whose beginning counts (Linux 7.2
/// `lib/kstrtox.c`, `kstrtobool`).
///
/// # Errors
/// `EINVAL` for anything else.
pub(super) fn truth(bytes: &[u8]) -> Result<bool, Errno> {
    match bytes {
        [b'y' | b'Y' | b't' | b'T' | b'1', ..] | [b'o' | b'O', b'n' | b'N', ..] => Ok(true),
        [b'n' | b'N' | b'f' | b'F' | b'0', ..] | [b'o' | b'O', b'f' | b'F', ..] => Ok(false),
        _ => Err(Errno::EINVAL),
    }
}

/// The text of such a file.
pub(super) fn read_switch(text: &mut Text, on: bool) -> fmt::Result {
    writeln!(text, "{}", u8::from(on))
}

/// Text in the making.
#[derive(Default)]
pub struct Text(Vec<u8>);

impl Text {
    /// No text yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends bytes that need not be text: arguments and names are what programs make them.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Writes a row `NAME: N kB` whose numbers end in column 24, as in `/proc/meminfo` and `/proc/PID/smaps`.
pub(super) fn kibibyte_row(text: &mut Text, name: &str, kibibytes: u64) -> fmt::Result {
    let pad = 15_usize.saturating_sub(name.len());
    writeln!(text, "{name}:{:pad$}{kibibytes:8} kB", "")
}

/// What was written, for tests.
#[cfg(test)]
pub(super) fn written(write: impl FnOnce(&mut Text) -> fmt::Result) -> alloc::string::String {
    let mut text = Text::new();
    write(&mut text).unwrap();
    alloc::string::String::from_utf8(text.into_bytes()).unwrap()
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.try_reserve(text.len()).map_err(|_| fmt::Error)?;
        self.push(text.as_bytes());
        Ok(())
    }
}

/// An open file of text. The text is made by a read at the beginning and stays for those that go
/// on from there, so that one who reads in pieces sees one state.
pub struct TextFile {
    node: ProcNode,
    text: Lock<Option<Vec<u8>>>,
}

impl TextFile {
    /// A file that nobody has read yet.
    #[must_use]
    pub const fn new(node: ProcNode) -> Self {
        Self {
            node,
            text: Lock::new(Rank::File, None),
        }
    }
}

/// Most bytes that one write to such a file takes.
const WRITE_MAX: usize = 256;

impl File for TextFile {
    fn read(
        &self,
        context: &Context<'_>,
        _open: &OpenFile,
        position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        // Taken out while it is copied: a lock must not be held then.
        let kept = self.text.lock().take().filter(|_| *position != 0);
        let text = match kept {
            Some(text) => text,
            None => {
                context.check_heap()?;
                let mut text = Text::new();
                self.node.write_text(context, &mut text)?;
                text.into_bytes()
            }
        };
        let start = usize::try_from(*position)
            .unwrap_or(usize::MAX)
            .min(text.len());
        let end = text.len().min(start.saturating_add(sink.left()));
        let result = sink.put(&text[start..end]);
        *self.text.lock() = Some(text);
        let count = result?;
        *position += count as u64;
        Ok(count)
    }

    fn write(
        &self,
        context: &Context<'_>,
        _open: &OpenFile,
        position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let mut buffer = [0; WRITE_MAX];
        let count = source.take(&mut buffer)?;
        self.node.store(context, &buffer[..count])?;
        *position += count as u64;
        Ok(count)
    }

    fn control(
        &self,
        context: &Context<'_>,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        self.node.control(context, command, argument)
    }

    fn seek(
        &self,
        _context: &Context<'_>,
        _open: &OpenFile,
        position: u64,
        offset: i64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        sought(position, offset, whence, None)
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
