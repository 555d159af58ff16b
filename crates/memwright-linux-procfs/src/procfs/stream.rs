//! Text files whose contents are generated piece by piece while they are read.

use crate::procfs::{
    node::view::{Parts, View},
    node::{ProcNode, text::Text},
    polled::Seen,
};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::wait::Queues;
use memwright_linux_vfs::fs::{
    abilities::{Polling, Splices},
    caller::Caller,
    open_file::{File, OpenFile},
    readiness::Readiness,
    seek::{Whence, sought},
    transfer::{Sink, Source},
};

/// The read state of a text file (`struct seq_file` of Linux 7.2).
///
/// At most one piece is in memory. A sequential read returns the rest of the current piece and, if there is room, bytes
/// of one more piece. A read at position 0 generates the file from its start. A read at any other position that is not
/// the next one generates all pieces before that position again (`seq_read_iter`, `traverse` in `fs/seq_file.c`).
#[derive(Default)]
struct Stream {
    /// The position in the file of the next unread byte.
    position: u64,
    /// The number of bytes of the current piece that were read.
    taken: usize,
    /// The current piece; `None` before the first read.
    piece: Option<Text>,
}

impl Stream {
    /// Reads up to `room` bytes at `position`. `make` generates a piece. `put` copies bytes to the reader, and returns
    /// how many of the bytes it has copied. Returns the number of bytes read.
    ///
    /// # Errors
    /// The errors of `make`, and the errors of `put` if no bytes were read before.
    fn read(
        &mut self,
        position: u64,
        room: usize,
        mut make: impl FnMut(&mut Text) -> Result<(), Errno>,
        mut put: impl FnMut(&[u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        if position == 0 || position != self.position || self.piece.is_none() {
            self.skip_to(position, &mut make)?;
        }
        let rest = self.rest();
        let rest = &rest[..rest.len().min(room)];
        let mut done = if rest.is_empty() { 0 } else { put(rest)? };
        self.advance(done);
        if done < room && self.rest().is_empty() {
            match self.make_next(&mut make) {
                Ok(()) => {}
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
            let piece = self.rest();
            let piece = &piece[..piece.len().min(room - done)];
            let count = match put(piece) {
                Ok(count) => count,
                Err(_) if done > 0 => 0,
                Err(error) => return Err(error),
            };
            self.advance(count);
            done += count;
        }
        Ok(done)
    }

    /// Returns the bytes of the current piece that were not read yet.
    fn rest(&self) -> &[u8] {
        match &self.piece {
            Some(piece) => &piece.bytes()[self.taken..],
            None => &[],
        }
    }

    fn advance(&mut self, count: usize) {
        self.taken += count;
        self.position += count as u64;
    }

    /// Generates the pieces from the start of the file up to the one that contains `position`.
    fn skip_to(
        &mut self,
        position: u64,
        make: &mut impl FnMut(&mut Text) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        *self = Self {
            piece: Some(Text::new()),
            ..Self::default()
        };
        while self.position < position {
            self.make_next(make)?;
            let length = self.rest().len();
            if length == 0 {
                // The file ends before `position`, so the read returns 0 bytes.
                self.position = position;
                return Ok(());
            }
            let before = position - self.position;
            self.advance(usize::try_from(before).map_or(length, |before| before.min(length)));
        }
        Ok(())
    }

    /// Generates the piece after the current one, which was read completely. The new piece is empty only at the end of
    /// the file.
    fn make_next(
        &mut self,
        make: &mut impl FnMut(&mut Text) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Some(piece) = &mut self.piece else {
            return Ok(());
        };
        while self.taken == piece.len() && piece.begin_next() {
            self.taken = 0;
            if let Err(error) = make(piece) {
                // Drop the piece, so that the next read generates the file from its start.
                self.piece = None;
                return Err(error);
            }
        }
        Ok(())
    }
}

/// An open text file. Its text is generated sequentially as it is read. If the file is a single record, small
/// sequential reads return one consistent text.
pub struct TextFile {
    node: ProcNode,
    parts: &'static dyn Parts,
    seen: Seen,
    stream: Lock<Stream>,
}

impl TextFile {
    /// Creates the open file of `node`. Nothing of its text has been read.
    #[must_use]
    pub fn new(node: ProcNode, parts: &'static dyn Parts) -> Self {
        Self {
            node,
            parts,
            seen: Seen::new(&node, parts),
            stream: Lock::new(
                Rank::File,
                Stream {
                    position: 0,
                    taken: 0,
                    piece: None,
                },
            ),
        }
    }
}

/// The maximum number of bytes that one write accepts.
const WRITE_MAX: usize = 256;

impl File for TextFile {
    fn splices(&self) -> Splices {
        self.node.splices()
    }

    fn read(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        caller.check_heap()?;
        let view = View::new(self.parts, caller);
        // Move the read state out of the lock, because no lock may be held while text is generated or copied. A
        // concurrent reader finds the initial state and starts at the beginning of the file.
        let mut stream = core::mem::take(&mut *self.stream.lock());
        let room = sink.left();
        let mark = self.node.mark(&view);
        let make = |text: &mut Text| self.node.write_text(&view, text);
        let result = stream.read(*position, room, make, |bytes| sink.put(bytes));
        let replaced = core::mem::replace(&mut *self.stream.lock(), stream);
        drop(replaced);
        let count = result?;
        if let Some(mark) = mark.filter(|_| count > 0) {
            self.seen.read(&self.node, mark);
        }
        *position += count as u64;
        Ok(count)
    }

    fn polling(&self) -> Polling {
        if self.node.can_be_watched() {
            Polling::Queues
        } else {
            Polling::Always
        }
    }

    fn readiness(&self, caller: &dyn Caller, open: &OpenFile) -> Readiness {
        let view = View::new(self.parts, caller);
        self.seen.readiness(&self.node, &view, open)
    }

    fn queues<'a>(&'a self, _caller: &'a dyn Caller, _wanted: Readiness, queues: &mut Queues<'a>) {
        self.node.add_queues(self.parts, queues);
    }

    fn write(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let mut buffer = [0; WRITE_MAX];
        let count = source.take(&mut buffer)?;
        self.node
            .store(&View::new(self.parts, caller), &buffer[..count])?;
        *position += count as u64;
        Ok(count)
    }

    fn control(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        self.node
            .control(&View::new(self.parts, caller), command, argument)
    }

    fn seek(
        &self,
        _caller: &dyn Caller,
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
    use alloc::vec::Vec;
    use core::{cell::Cell, fmt::Write};

    /// A file of `records` rows of eight bytes each. Each row contains its index.
    struct Rows {
        records: Cell<u64>,
        written: Cell<u64>,
    }

    impl Rows {
        fn of(records: u64) -> Self {
            Self {
                records: Cell::new(records),
                written: Cell::new(0),
            }
        }

        fn make(&self, text: &mut Text) -> Result<(), Errno> {
            let note = |from, batch: &mut memwright_linux_base::batch::Batch<u64>| {
                (from..self.records.get())
                    .take_while(|&row| batch.push(row))
                    .count();
            };
            let written = text.records(7, note, |text, &row| {
                self.written.set(self.written.get() + 1);
                writeln!(text, "{row:07}").map(|()| row + 1)
            });
            written.map_err(|_| Errno::ENOMEM)
        }

        fn whole(&self) -> Vec<u8> {
            let rows = (0..self.records.get()).map(|row| alloc::format!("{row:07}\n"));
            rows.flat_map(alloc::string::String::into_bytes).collect()
        }

        fn read(&self, stream: &mut Stream, position: u64, room: usize) -> Vec<u8> {
            let mut got = Vec::new();
            let count = stream.read(
                position,
                room,
                |text| self.make(text),
                |bytes| {
                    got.extend_from_slice(bytes);
                    Ok(bytes.len())
                },
            );
            assert_eq!(count, Ok(got.len()));
            assert!(got.len() <= room);
            got
        }
    }

    #[test]
    fn every_size_of_reads_gives_the_same_text_at_linear_cost() {
        for records in [0, 1, 447, 448, 449, 5000] {
            for room in [1, 7, 8, 100, 4096, 1 << 20] {
                let rows = Rows::of(records);
                let (mut stream, mut all) = (Stream::default(), Vec::new());
                loop {
                    let got = rows.read(&mut stream, all.len() as u64, room);
                    if got.is_empty() {
                        break;
                    }
                    all.extend_from_slice(&got);
                }
                assert!(all == rows.whole(), "{records} by {room}");
                assert_eq!(rows.written.get(), records, "{records} by {room}");
            }
        }
    }

    #[test]
    fn a_read_gives_one_piece_and_what_was_left() {
        let rows = Rows::of(5000);
        let mut stream = Stream::default();
        let first = rows.read(&mut stream, 0, 1 << 20);
        assert!((3584..4096 + 8).contains(&first.len()), "{}", first.len());
        let part = rows.read(&mut stream, first.len() as u64, 5);
        let next = rows.read(&mut stream, first.len() as u64 + 5, 1 << 20);
        let all = [first, part, next].concat();
        assert!(all == rows.whole()[..all.len()]);
        assert!(stream.piece.unwrap().len() < 4096 + 8);
    }

    #[test]
    fn a_read_elsewhere_makes_what_is_before_it_again() {
        let rows = Rows::of(5000);
        let whole = rows.whole();
        let mut stream = Stream::default();
        for at in [39_990, 8, 0, 20_003, 12_345, 39_999, 40_000, 50_000] {
            let got = rows.read(&mut stream, at, 10);
            let end = whole.len().min(at as usize + 10);
            let wanted = whole.get(at as usize..end).unwrap_or_default();
            assert!(wanted.starts_with(&got), "{at}");
            assert_eq!(got.is_empty(), wanted.is_empty(), "{at}");
        }
    }

    #[test]
    fn a_read_at_the_beginning_sees_the_present() {
        let rows = Rows::of(3);
        let mut stream = Stream::default();
        assert_eq!(rows.read(&mut stream, 0, 100).len(), 24);
        rows.records.set(5);
        // Once a read has reached the end, later reads find the end there until the file is read from the beginning.
        assert_eq!(rows.read(&mut stream, 24, 100).len(), 0);
        assert_eq!(rows.read(&mut stream, 0, 100).len(), 40);
    }

    #[test]
    fn what_could_not_be_copied_is_not_lost() {
        let rows = Rows::of(10);
        let mut stream = Stream::default();
        let make = |text: &mut Text| rows.make(text);
        let fault = |_: &[u8]| Err(Errno::EFAULT);
        assert_eq!(stream.read(0, 100, make, fault), Err(Errno::EFAULT));
        assert_eq!(rows.read(&mut stream, 0, 12), rows.whole()[..12]);
        assert_eq!(stream.read(12, 100, make, fault), Err(Errno::EFAULT));
        assert_eq!(rows.read(&mut stream, 12, 100), rows.whole()[12..]);
    }

    #[test]
    fn text_that_cannot_be_made_is_made_anew() {
        let rows = Rows::of(2000);
        let mut stream = Stream::default();
        let first = rows.read(&mut stream, 0, 1 << 20);
        let fails = |_: &mut Text| Err(Errno::ESRCH);
        let at = first.len() as u64;
        assert_eq!(stream.read(at, 100, fails, |_| Ok(0)), Err(Errno::ESRCH));
        let next = rows.read(&mut stream, at, 100);
        assert!(next == rows.whole()[first.len()..][..100]);
    }
}
