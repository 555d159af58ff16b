//! The argument or environment strings of a program, stored in page-sized blocks.

use alloc::vec::Vec;
use memwright_linux_base::paged::Paged;
use memwright_table::{OutOfMemory, TryPush};

/// A list of NUL-terminated strings. A program can pass up to 6 MiB of strings, so they are stored in blocks of at most
/// one page.
#[derive(Default)]
pub struct Strings {
    /// The strings that precede those in `bytes`: the arguments that a `#!` line adds. They replace the first string in
    /// `bytes`.
    front: Vec<Vec<u8>>,
    /// The bytes of all other strings, each with its NUL, concatenated.
    bytes: Paged<u8>,
    /// The length in bytes of each string in `bytes`, including its NUL.
    lengths: Paged<u32>,
    /// Whether `front` replaces the first string in `bytes`, which is then skipped.
    first_replaced: bool,
}

impl Strings {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            front: Vec::new(),
            bytes: Paged::new(),
            lengths: Paged::new(),
            first_replaced: false,
        }
    }

    /// Creates a list that contains copies of `contents`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the copies cannot be allocated.
    pub fn of<'a>(contents: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, OutOfMemory> {
        let mut strings = Self::new();
        for content in contents {
            strings.push_part(content)?;
            strings.end(content.len())?;
        }
        Ok(strings)
    }

    /// Appends a part of a string. [`end`](Self::end) completes the string.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the part cannot be allocated.
    pub fn push_part(&mut self, part: &[u8]) -> Result<(), OutOfMemory> {
        self.bytes.try_push_all(part)
    }

    /// Completes a string whose parts have a total length of `length` bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the list cannot grow or the string is longer than 4 GiB.
    pub fn end(&mut self, length: usize) -> Result<(), OutOfMemory> {
        let length = u32::try_from(length + 1).map_err(|_| OutOfMemory)?;
        self.bytes.try_push(0)?;
        self.lengths.try_push(length)
    }

    /// Replaces the first string with `contents`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the copies cannot be allocated.
    pub fn replace_first<'a>(
        &mut self,
        contents: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), OutOfMemory> {
        let mut front = Vec::new();
        for content in contents {
            let mut string = Vec::new();
            string.try_push_all(content)?;
            string.try_push(0)?;
            front.try_push(string)?;
        }
        let mut old = core::mem::take(&mut self.front).into_iter();
        if old.next().is_none() {
            self.first_replaced = true;
        }
        for string in old {
            front.try_push(string)?;
        }
        self.front = front;
        Ok(())
    }

    /// Returns the number of skipped strings in `bytes` (0 or 1), and their length in bytes.
    fn left_out(&self) -> (usize, usize) {
        match self.lengths.get(0) {
            Some(&first) if self.first_replaced => (1, first as usize),
            Some(_) | None => (0, 0),
        }
    }

    /// Returns the number of strings.
    #[must_use]
    pub fn count(&self) -> usize {
        self.front.len() + self.lengths.len() - self.left_out().0
    }

    /// Returns the total size of all strings in bytes, including their NULs.
    #[must_use]
    pub fn size(&self) -> u64 {
        let front: usize = self.front.iter().map(Vec::len).sum();
        (front + self.bytes.len() - self.left_out().1) as u64
    }

    /// Iterates over the lengths of the strings in bytes, including their NULs, in order.
    pub fn lengths(&self) -> impl Iterator<Item = u64> {
        let front = self.front.iter().map(|string| string.len() as u64);
        let others = self.lengths.iter_from(self.left_out().0);
        front.chain(others.map(|&length| length.into()))
    }

    /// Iterates over the bytes of all strings in order, in pieces of at most one page.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut left_out = self.left_out().1;
        let others = self.bytes.blocks().map(move |block| {
            let now = left_out.min(block.len());
            left_out -= now;
            &block[now..]
        });
        self.front.iter().map(Vec::as_slice).chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(strings: &Strings) -> Vec<Vec<u8>> {
        let all: Vec<u8> = strings.pieces().flatten().copied().collect();
        assert_eq!(all.len() as u64, strings.size());
        let mut rest = &all[..];
        let mut found = Vec::new();
        for length in strings.lengths() {
            let (string, after) = rest.split_at(length as usize);
            let (nul, content) = string.split_last().unwrap();
            assert_eq!(*nul, 0);
            found.push(content.to_vec());
            rest = after;
        }
        assert!(rest.is_empty());
        assert_eq!(found.len(), strings.count());
        found
    }

    #[test]
    fn strings_come_back_as_they_were() {
        let long = [b'x'; 10_000];
        let all: [&[u8]; 5] = [b"prog", b"", &long, b"b", &long[..4095]];
        let strings = Strings::of(all).unwrap();
        assert!(contents(&strings) == all);
        assert!(strings.pieces().all(|piece| piece.len() <= 4096));
        assert_eq!(contents(&Strings::new()), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn interpreters_take_the_place_of_the_first_argument() {
        let long = [b'x'; 5000];
        for first in [&b"script"[..], b"", &long] {
            let mut strings = Strings::of([first, b"-v"]).unwrap();
            let line: [&[u8]; 3] = [b"/bin/sh", b"-e", b"./script"];
            strings.replace_first(line).unwrap();
            assert_eq!(
                contents(&strings),
                [&b"/bin/sh"[..], b"-e", b"./script", b"-v"]
            );
            let line: [&[u8]; 2] = [b"/bin/run", b"/bin/sh"];
            strings.replace_first(line).unwrap();
            assert_eq!(
                contents(&strings),
                [&b"/bin/run"[..], b"/bin/sh", b"-e", b"./script", b"-v"]
            );
        }
    }
}
