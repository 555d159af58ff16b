//! Short, readable programs of several processes, which the property tests generate.
//!
//! Every parameter is a small number, and any numbers make a valid script: a process is chosen among the live ones, and
//! a range is cut at the end of the [arena](ARENA). A failing script therefore stays valid when it is shrunk.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::terms::{Advice, Rights};

/// The number of places that scripts use. Half of the places are below a boundary at which page tables of two levels
/// end, and half are above it, so that ranges cross page tables and complete page tables become empty.
pub const ARENA: u64 = 32;

/// A page at which page tables of two levels end: one of level 1 (512 pages) and one of level 2 (512 * 512 pages).
const BOUNDARY: u64 = 3 * 512 * 512;

/// The number of pages in each place of a script. With 1 page, ranges overlap often. With 64 pages, places are parts of
/// huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(pub u64);

impl Scale {
    /// Returns the first page of the arena.
    #[must_use]
    pub fn start(self) -> u64 {
        BOUNDARY - ARENA / 2 * self.0
    }

    /// Returns the page after the arena.
    #[must_use]
    pub fn end(self) -> u64 {
        BOUNDARY + ARENA / 2 * self.0
    }

    /// Returns the first page of a place.
    #[must_use]
    pub fn place(self, at: u8) -> u64 {
        self.start() + u64::from(at) % ARENA * self.0
    }

    /// Returns how a failure names a page: with the number of its place, as scripts do, and with its own number.
    #[must_use]
    pub fn name(self, page: u64) -> String {
        if page < self.start() || page >= self.end() {
            return format!("page {page:#x}, outside the arena,");
        }
        let (place, part) = (
            (page - self.start()) / self.0,
            (page - self.start()) % self.0,
        );
        match part {
            0 => format!("page {place} ({page:#x})"),
            // To access this page, a step uses an offset of eight times the number of the page in its place: see
            // `access`.
            _ => format!("page {place} offset {} ({page:#x})", part * 8),
        }
    }

    /// Returns the first page of a range and its length in pages.
    #[must_use]
    pub fn range(self, range: Range) -> (u64, u64) {
        let (at, length) = range.cut();
        (self.start() + at * self.0, length * self.0)
    }

    /// Returns the number of pages of each of the two initial files.
    #[must_use]
    pub fn file(self) -> u64 {
        FILE_PLACES * self.0
    }

    /// Returns the index of the page at which a place of a file begins.
    #[must_use]
    pub fn index(self, at: u8) -> u64 {
        u64::from(at) % FILE_PLACES * self.0
    }

    /// Returns the page that an access to a place uses. `offset` selects one of the pages of the place.
    #[must_use]
    pub fn access(self, at: u8, offset: u16) -> u64 {
        self.place(at) + u64::from(offset) / 8 % self.0
    }
}

/// The number of places of each of the two initial files.
pub const FILE_PLACES: u64 = 12;

/// The maximum number of processes that are alive at the same time.
pub const MOST_PROCESSES: usize = 4;

/// The source of the pages of a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Private anonymous memory.
    Anonymous,
    /// Shared anonymous memory.
    SharedAnonymous,
    /// A private mapping of the file with the first number, starting at the place with the second number.
    PrivateFile(u8, u8),
    /// A shared mapping of the file with the first number, starting at the place with the second number.
    SharedFile(u8, u8),
}

/// A part of the arena.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first place, counted from the start of the arena.
    pub at: u8,
    /// The length in places.
    pub pages: u8,
}

impl Range {
    /// Returns the first place and the length. The range is cut at the end of the arena, and its length is at least 1.
    fn cut(self) -> (u64, u64) {
        let at = u64::from(self.at) % ARENA;
        (at, u64::from(self.pages).clamp(1, ARENA - at))
    }
}

/// One action of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// `mmap(MAP_FIXED)`, with `MAP_POPULATE` if the last field is true.
    Map(Range, Rights, What, bool),
    /// `munmap`
    Unmap(Range),
    /// `mseal`
    Seal(Range),
    /// `mprotect`
    Protect(Range, Rights),
    /// `mremap(MREMAP_MAYMOVE)` to a new length.
    Resize(Range, u8),
    /// `mremap(MREMAP_FIXED)` to another place of the arena, with `MREMAP_DONTUNMAP` if the last field is true.
    Move(Range, u8, bool),
    /// `madvise`
    Advise(Range, Advice),
    /// `fork`; the child is a new process.
    Fork,
    /// The process exits, unless it is the last one.
    Exit,
    /// Loads eight bytes at this offset of a page.
    Read(u8, u16),
    /// Stores eight bytes at this offset of a page, each with this value.
    Write(u8, u16, u8),
    /// Fetches one instruction byte at the start of a page.
    Fetch(u8),
    /// `pread` of one byte of a page of a file.
    ReadFile(u8, u8),
    /// `pwrite` of one byte with this value to a page of a file.
    WriteFile(u8, u8, u8),
    /// `ftruncate` of a file to a number of pages.
    Truncate(u8, u8),
    /// `fallocate(FALLOC_FL_PUNCH_HOLE)` of a file: the first page and the number of pages.
    Punch(u8, u8, u8),
    /// `msync` or write-back: the file's pages become clean.
    Clean(u8),
    /// `UFFDIO_REGISTER` with write or read-write protection, with the process's userfaultfd of the given kind.
    Watch(Range, Watcher),
    /// `UFFDIO_UNREGISTER`
    Unwatch(Range, Watcher),
    /// `UFFDIO_WRITEPROTECT`: write-protects the range if true, ends its protection otherwise.
    WriteProtect(Range, Watcher, bool),
    /// `UFFDIO_RWPROTECT`: read-write-protects the range if true, ends its protection otherwise.
    ReadWriteProtect(Range, bool),
    /// `UFFDIO_SET_MODE`: accesses to read-write-protected pages are recorded if true, and wait otherwise.
    CountAccesses(bool),
    /// `PAGEMAP_SCAN` for written pages, which are write-protected again if the last field is true.
    Scan(Range, bool),
    /// `PAGEMAP_SCAN` for accessed pages.
    ScanAccessed(Range),
    /// Writes `4` to `/proc/self/clear_refs`.
    ClearSoftDirty,
    /// `MADV_COLLAPSE`. The kernel may refuse it for reasons that no program can observe.
    Collapse(Range),
    /// `/sys/kernel/debug/split_huge_pages` with this new order, for the folios of the pages that are mapped in the
    /// range.
    Split(Range, u8),
    /// The kernel loads eight bytes for the process, as `write` does.
    KernelRead(u8, u16),
    /// The kernel stores eight bytes with this value for the process, as `read` does.
    KernelWrite(u8, u16, u8),
    /// `process_vm_writev`: copies the first eight bytes of a page to another page. The last number selects the process
    /// of the second page.
    Transfer(u8, u8, u8),
    /// Reclaims every reclaimable page that was not accessed since the previous scan.
    Reclaim,
    /// `swapon` if true, `swapoff` otherwise. Does nothing on a machine without a swap device.
    Swap(bool),
    /// Merges the mergeable pages with equal contents.
    Merge,
    /// `mbind`. The number selects a preferred node, interleaving over all nodes, or the default policy.
    Bind(Range, u8),
    /// `move_pages` to the node that the number selects.
    Migrate(Range, u8),
    /// Starts a NUMA balancing scan, after which the next access to each page takes a hint fault.
    Hint,
    /// `UFFDIO_COPY` of a page filled with this value, or `UFFDIO_ZEROPAGE` if it is 0. Maps the page write-protected
    /// if the last field is true.
    Fill(u8, u8, bool),
    /// `UFFDIO_MOVE` with `UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES`
    Relocate(Range, u8),
}

/// The kind of a userfaultfd context. Each process has one context of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// A store to a protected page waits for the handler.
    Waits,
    /// A store to a protected page continues, and is recorded (`UFFD_FEATURE_WP_ASYNC`).
    Notes,
    /// Like `Waits`, and also registered for missing pages (`UFFDIO_REGISTER_MODE_MISSING`).
    Fills,
    /// Accesses to read-write-protected pages are recorded (`UFFD_FEATURE_RWP_ASYNC`), or wait for the handler.
    Accesses,
}

/// An action, with the process and the CPU that perform it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Selects one of the live processes.
    pub process: u8,
    /// Selects the CPU.
    pub cpu: u8,
    /// The action.
    pub action: Action,
}

/// Steps in order. `Debug` prints one line for each step.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Script(pub Vec<Step>);

impl Script {
    /// Returns the script with the CPU field of each step replaced by the number of the CPU that it selects on a
    /// machine with `cpus` CPUs.
    #[must_use]
    pub fn on(mut self, cpus: usize) -> Self {
        for step in &mut self.0 {
            step.cpu = (usize::from(step.cpu) % cpus) as u8;
        }
        self
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "script of {} steps", self.0.len())?;
        for (number, step) in self.0.iter().enumerate() {
            writeln!(f, "  {number:3}: {step:?}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "process {} cpu {}: {:?}",
            self.process, self.cpu, self.action
        )
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, pages) = self.cut();
        write!(f, "{first}+{pages}")
    }
}

impl fmt::Debug for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => write!(f, "anonymous private"),
            Self::SharedAnonymous => write!(f, "anonymous shared"),
            Self::PrivateFile(file, index) => write!(f, "file {file} from page {index} private"),
            Self::SharedFile(file, index) => write!(f, "file {file} from page {index} shared"),
        }
    }
}

fn letters(rights: Rights) -> String {
    let letter = |granted, letter| if granted { letter } else { '-' };
    [
        letter(rights.read, 'r'),
        letter(rights.write, 'w'),
        letter(rights.execute, 'x'),
    ]
    .iter()
    .collect()
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Map(range, rights, what, populate) => {
                let populate = if populate { " populate" } else { "" };
                write!(f, "map {range:?} {} {what:?}{populate}", letters(rights))
            }
            Self::Unmap(range) => write!(f, "unmap {range:?}"),
            Self::Seal(range) => write!(f, "seal {range:?}"),
            Self::Protect(range, rights) => write!(f, "protect {range:?} {}", letters(rights)),
            Self::Resize(range, pages) => write!(f, "resize {range:?} to {pages} pages"),
            Self::Move(range, to, keep) => {
                write!(
                    f,
                    "move {range:?} to {to}{}",
                    if keep { " keep" } else { "" }
                )
            }
            Self::Advise(range, advice) => write!(f, "advise {range:?} {advice:?}"),
            Self::Fork => write!(f, "fork"),
            Self::Exit => write!(f, "exit"),
            Self::Read(page, offset) => write!(f, "read page {page} offset {offset}"),
            Self::Write(page, offset, value) => {
                write!(f, "write page {page} offset {offset} value {value}")
            }
            Self::Fetch(page) => write!(f, "fetch page {page}"),
            Self::ReadFile(file, index) => write!(f, "read file {file} page {index}"),
            Self::WriteFile(file, index, value) => {
                write!(f, "write file {file} page {index} value {value}")
            }
            Self::Truncate(file, pages) => write!(f, "truncate file {file} to {pages} pages"),
            Self::Punch(file, index, pages) => write!(f, "punch file {file} {index}+{pages}"),
            Self::Clean(file) => write!(f, "clean file {file}"),
            Self::Watch(range, watcher) => write!(f, "watch {range:?} {watcher:?}"),
            Self::Unwatch(range, watcher) => write!(f, "unwatch {range:?} {watcher:?}"),
            Self::WriteProtect(range, watcher, on) => {
                let on = if on { "on" } else { "off" };
                write!(f, "write-protect {range:?} {watcher:?} {on}")
            }
            Self::ReadWriteProtect(range, on) => {
                let on = if on { "on" } else { "off" };
                write!(f, "read-write-protect {range:?} {on}")
            }
            Self::CountAccesses(on) => {
                write!(f, "count-accesses {}", if on { "on" } else { "off" })
            }
            Self::ScanAccessed(range) => write!(f, "scan-accessed {range:?}"),
            Self::Scan(range, protect) => {
                write!(f, "scan {range:?}{}", if protect { " protect" } else { "" })
            }
            Self::ClearSoftDirty => write!(f, "clear"),
            Self::Collapse(range) => write!(f, "collapse {range:?}"),
            Self::Split(range, order) => write!(f, "split {range:?} to {order}"),
            Self::KernelRead(page, offset) => write!(f, "kernel read {page} offset {offset}"),
            Self::KernelWrite(page, offset, value) => {
                write!(f, "kernel write {page} offset {offset} value {value}")
            }
            Self::Transfer(from, to, other) => {
                write!(f, "transfer {from} to {to} of process {other}")
            }
            Self::Reclaim => write!(f, "reclaim"),
            Self::Swap(on) => write!(f, "swap {}", if on { "on" } else { "off" }),
            Self::Merge => write!(f, "merge"),
            Self::Bind(range, node) => write!(f, "bind {range:?} to {node}"),
            Self::Migrate(range, node) => write!(f, "migrate {range:?} to {node}"),
            Self::Hint => write!(f, "hint"),
            Self::Fill(page, value, protect) => {
                let protect = if protect { " protect" } else { "" };
                write!(f, "fill {page} value {value}{protect}")
            }
            Self::Relocate(range, to) => write!(f, "relocate {range:?} to {to}"),
        }
    }
}
