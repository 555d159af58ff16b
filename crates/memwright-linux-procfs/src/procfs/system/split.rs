//! `/sys/kernel/debug/split_huge_pages`: a write to this file splits huge pages (Linux 7.2 `mm/huge_memory.c`,
//! `split_huge_pages_write`).
//!
//! A write has one of three forms: `PID,0xSTART,0xEND` for the addresses of a process, `/PATH,0xSTART,0xEND` for the
//! pages of a file, or `1` for all huge pages. The first two forms can be followed by `,ORDER` and `,OFFSET`. As on
//! Linux, text after the last parsed number is ignored, addresses are rounded down to pages, and an empty range is not
//! an error. A folio is skipped silently if its order does not exceed `ORDER`, or if it cannot be split now.

use crate::procfs::node::SystemControl;
use core::ops::Range;
use linux_raw_sys::general as raw;
use memwright::FolioSplit;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_tasks::process::Tasks;
use memwright_linux_vfs::fs::{caller::Caller, inode::Body, walk::LastLink};
use memwright_table::{PAGE_SIZE, Page, PageRange, VirtAddr};

/// `/sys/kernel/debug/split_huge_pages`.
pub static SPLIT: SystemControl = SystemControl {
    read: |_, _| Ok(()),
    store: |view, bytes| match Request::parse(bytes)? {
        Request::All => {
            let split = view.parts.memory().split_all_folios();
            split.map(|_| ()).map_err(|_| Errno::ENOMEM)
        }
        Request::Process { id, range, split } => {
            split_process(view.parts.tasks(), id, range, split)
        }
        Request::File { path, pages, split } => {
            split_file(view.parts.memory(), view.caller, path, pages, split)
        }
    },
};

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Request<'a> {
    /// Split all folios into base pages.
    All,
    /// Split the folios that the process `id` maps at the addresses in `range`.
    Process {
        id: i32,
        range: Range<u64>,
        split: FolioSplit,
    },
    /// Split the folios of the pages `pages` of the file at `path`.
    File {
        path: &'a [u8],
        pages: Range<u64>,
        split: FolioSplit,
    },
}

impl<'a> Request<'a> {
    /// Parses a write.
    ///
    /// # Errors
    /// `EINVAL` if the text has none of the three forms.
    fn parse(bytes: &'a [u8]) -> Result<Self, Errno> {
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        if text.first() == Some(&b'/') {
            let comma = text.iter().position(|byte| *byte == b',');
            let (path, rest) = text.split_at(comma.ok_or(Errno::EINVAL)?);
            let mut scanner = Scanner(&rest[1..]);
            let pages = scanner.range().ok_or(Errno::EINVAL)?;
            let split = scanner.split();
            return Ok(Self::File { path, pages, split });
        }
        let mut scanner = Scanner(text);
        let id = scanner.decimal().ok_or(Errno::EINVAL)? as i32;
        let mut first = Scanner(scanner.0);
        let starts = first.literal(b",0x").and_then(|()| first.hexadecimal());
        if starts.is_none() && id == 1 {
            return Ok(Self::All);
        }
        scanner.literal(b",").ok_or(Errno::EINVAL)?;
        let range = scanner.range().ok_or(Errno::EINVAL)?;
        let split = scanner.split();
        Ok(Self::Process { id, range, split })
    }
}

/// A cursor over the text, which parses numbers like `sscanf`.
struct Scanner<'a>(&'a [u8]);

impl Scanner<'_> {
    /// Parses `0xSTART,0xEND`.
    fn range(&mut self) -> Option<Range<u64>> {
        self.literal(b"0x")?;
        let start = self.hexadecimal()?;
        self.literal(b",0x")?;
        Some(start..self.hexadecimal()?)
    }

    /// Parses `,ORDER` and `,OFFSET`, both of which are optional. A negative order becomes a large one, with which no
    /// folio is split.
    fn split(&mut self) -> FolioSplit {
        let mut next = || {
            self.literal(b",")?;
            self.decimal()
        };
        let Some(order) = next() else {
            return FolioSplit::SINGLE;
        };
        FolioSplit {
            order: order as i32 as u32,
            at: next().and_then(|at| u64::try_from(at).ok()),
        }
    }

    /// Skips the characters `expected`. Returns `None` if the text does not start with them.
    fn literal(&mut self, expected: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    fn decimal(&mut self) -> Option<i64> {
        self.pass_spaces();
        let negative = self.literal(b"-").is_some();
        let value = self.digits(10)? as i64;
        Some(if negative {
            value.wrapping_neg()
        } else {
            value
        })
    }

    fn hexadecimal(&mut self) -> Option<u64> {
        self.pass_spaces();
        self.digits(16)
    }

    fn pass_spaces(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    /// Parses at least one digit. The value wraps around on overflow.
    fn digits(&mut self, base: u32) -> Option<u64> {
        let digit = |byte: &u8| char::from(*byte).to_digit(base);
        let count = self
            .0
            .iter()
            .take_while(|byte| digit(byte).is_some())
            .count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        let append = |value: u64, digit| {
            value
                .wrapping_mul(u64::from(base))
                .wrapping_add(u64::from(digit))
        };
        (count > 0).then(|| digits.iter().filter_map(digit).fold(0, append))
    }
}

fn split_process(
    tasks: &Tasks,
    id: i32,
    range: Range<u64>,
    split: FolioSplit,
) -> Result<(), Errno> {
    let id = u32::try_from(id).map_err(|_| Errno::ESRCH)?;
    let thread = || tasks.thread(id).map(|thread| thread.process.clone());
    let process = tasks.process(id).or_else(thread).ok_or(Errno::ESRCH)?;
    let space = process.space().ok_or(Errno::EINVAL)?;
    let page = |address: u64| Page::new(address / PAGE_SIZE as u64).min(VirtAddr::USER_END.page());
    let (start, end) = (page(range.start), page(range.end));
    if start < end {
        space
            .huge_pages()
            .split_folios(PageRange::new(start, end), split);
    }
    Ok(())
}

/// Splits folios of the file at `path`. Fails with `EINVAL` if the path cannot be resolved. Does nothing for a file
/// that is not a regular file.
fn split_file(
    memory: &Memory,
    caller: &dyn Caller,
    path: &[u8],
    pages: Range<u64>,
    split: FolioSplit,
) -> Result<(), Errno> {
    let walked = caller.walk_path(raw::AT_FDCWD, path, LastLink::Follow);
    let entry = walked.and_then(|walked| walked.existing());
    let entry = entry.map_err(|_| Errno::EINVAL)?;
    if let Body::Regular(file) = &entry.inode.body {
        memory.split_object(file.pages(), pages, split);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: i32, range: Range<u64>, order: u32, at: Option<u64>) -> Request<'static> {
        let split = FolioSplit { order, at };
        Request::Process { id, range, split }
    }

    fn file(path: &[u8], pages: Range<u64>, order: u32, at: Option<u64>) -> Request<'_> {
        let split = FolioSplit { order, at };
        Request::File { path, pages, split }
    }

    #[test]
    fn what_is_asked_for() {
        const NO_ORDER: u32 = u32::MAX;
        let range = 0x20_0000..0x40_0000;
        #[rustfmt::skip]
        let rows: &[(&str, Result<Request<'_>, Errno>)] = &[
            ("1",                              Ok(Request::All)),
            (" 1\n",                           Ok(Request::All)),
            ("1,",                             Ok(Request::All)),
            ("1 and more",                     Ok(Request::All)),
            ("7,0x200000,0x400000",            Ok(process(7, range.clone(), 0, None))),
            ("7,0x200000,0x400000,3",          Ok(process(7, range.clone(), 3, None))),
            ("7,0x200000,0x400000,3,128",      Ok(process(7, range.clone(), 3, Some(128)))),
            ("7,0x200000,0x400000,3,-1",       Ok(process(7, range.clone(), 3, None))),
            ("7,0x200000,0x400000,-1",         Ok(process(7, range.clone(), NO_ORDER, None))),
            ("7,0x200000,0x400000,3 128",      Ok(process(7, range.clone(), 3, None))),
            ("7,0x200000,0x400000 and more",   Ok(process(7, range.clone(), 0, None))),
            ("7,0x200000,0x400000,many",       Ok(process(7, range.clone(), 0, None))),
            ("1,0x200000,0x400000",            Ok(process(1, range.clone(), 0, None))),
            ("-7,0x200000,0x400000",           Ok(process(-7, range.clone(), 0, None))),
            ("7,0x200000,0x400000\0,3",        Ok(process(7, range, 0, None))),
            ("7,0x1,0x0",                      Ok(process(7, Range { start: 1, end: 0 }, 0, None))),
            ("/tmp/a,0x0,0x400",               Ok(file(b"/tmp/a", 0..0x400, 0, None))),
            ("/tmp/a b,0x0,0x400,2,5",         Ok(file(b"/tmp/a b", 0..0x400, 2, Some(5)))),
            ("",                               Err(Errno::EINVAL)),
            ("2",                              Err(Errno::EINVAL)),
            ("all",                            Err(Errno::EINVAL)),
            ("0x1,0x200000,0x400000",          Err(Errno::EINVAL)),
            ("7,0x200000",                     Err(Errno::EINVAL)),
            ("1,0x200000",                     Err(Errno::EINVAL)),
            ("7,200000,400000",                Err(Errno::EINVAL)),
            ("7,0x200000,400000",              Err(Errno::EINVAL)),
            ("7;0x200000;0x400000",            Err(Errno::EINVAL)),
            ("/tmp/a",                         Err(Errno::EINVAL)),
            ("/tmp/a,",                        Err(Errno::EINVAL)),
            ("/tmp/a,0x0",                     Err(Errno::EINVAL)),
            ("/tmp/a,0,1",                     Err(Errno::EINVAL)),
            ("tmp/a,0x0,0x1",                  Err(Errno::EINVAL)),
        ];
        for (text, expected) in rows {
            assert_eq!(&Request::parse(text.as_bytes()), expected, "{text:?}");
        }
    }
}
