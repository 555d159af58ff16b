//! `PAGEMAP_SCAN`: finds pages by category, and can write-protect the found pages in the same step (`do_pagemap_scan`
//! in `fs/proc/task_mmu.c` of Linux 7.2).

use alloc::{sync::Arc, vec::Vec};
use linux_raw_sys::general as raw;
use memwright::track::{Categories, Scan, Share, Take};
use memwright_linux_abi::{Space, abi::Plain, abi_struct, errno::Errno};
use memwright_linux_memory::userfault::watch_errno;
use memwright_linux_vfs::user::{USER_END, UserMemory, check_range};
use memwright_table::{PAGE_SIZE, Page, PageRange};

/// `_IOWR('f', 16, struct pm_scan_arg)` (`include/uapi/linux/fs.h`).
pub const PAGEMAP_SCAN: u32 = 0xc060_6610;
/// The maximum number of regions that are collected before they are copied to user space.
const CHUNK: usize = 4096;
/// The offset in bytes of the field `walk_end` in `struct pm_scan_arg`.
const WALK_END: u64 = 32;

abi_struct! {
    /// `struct pm_scan_arg`.
    pub struct Request {
        /// Size of this structure in bytes.
        pub size: u64,
        /// The `PM_SCAN_` flags.
        pub flags: u64,
        /// First address of the range.
        pub start: u64,
        /// End address of the range, exclusive.
        pub end: u64,
        /// Out: the address at which the scan ended.
        pub walk_end: u64,
        /// Address of the array of regions.
        pub runs: u64,
        /// Capacity of the array.
        pub room: u64,
        /// The maximum number of pages that the regions contain; 0 for no limit.
        pub most_pages: u64,
        /// The categories whose bits are inverted before they are compared with `all` and `any`.
        pub inverted: u64,
        /// A page matches only if it has all of these categories.
        pub all: u64,
        /// A page matches only if it has at least one of these categories. If the mask is empty, this condition does
        /// not apply.
        pub any: u64,
        /// The categories that the regions report; other categories are omitted.
        pub told: u64,
    }
}

abi_struct! {
    /// `struct page_region`.
    pub struct Run {
        /// The first address of the region.
        pub start: u64,
        /// The end address of the region, exclusive.
        pub end: u64,
        /// The categories that the pages of the region have, limited to those in [`Request::told`].
        pub categories: u64,
    }
}

/// The regions that a scan has found but not yet copied to user space.
struct Found {
    /// The regions as the program will read them, each of which is a [`Run`]. All of them are copied to user space in
    /// one operation.
    runs: Vec<[u8; Run::SIZE]>,
    /// The maximum number of regions in this batch.
    room: usize,
    /// The number of pages that the scan may still report.
    pages: u64,
    told: Categories,
    /// Whether the program passed an array of regions. Without an array, every matching page is accepted.
    counts: bool,
}

impl Take for Found {
    /// Adds the pages of `range` to the regions, up to the limits on regions and pages. Returns the number of added
    /// pages.
    #[allow(
        clippy::disallowed_methods,
        reason = "within the capacity that was reserved"
    )]
    #[inline(always)]
    fn take(&mut self, range: PageRange, categories: Categories, share: Share) -> u64 {
        if !self.counts {
            return range.len();
        }
        let mut pages = range.len().min(self.pages);
        if share == Share::Whole && pages < range.len() {
            pages = 0;
        }
        let (start, categories) = (
            range.start.address().as_u64(),
            (categories & self.told).bits(),
        );
        let end = start + pages * PAGE_SIZE as u64;
        let run = Run {
            start,
            end,
            categories,
        };
        let continues = |last: &Run| last.end == start && last.categories == categories;
        let last = self.runs.last().map(|bytes| Run::from_bytes(bytes));
        match (last.filter(continues), self.runs.last_mut()) {
            (Some(last), Some(bytes)) => Run { end, ..last }.to_bytes(bytes),
            (Some(_) | None, _) => {
                let len = self.runs.len();
                // The capacity is never below `room`. The comparison with the capacity lets the compiler omit the code
                // that grows the vector.
                if pages == 0 || len == self.room || len == self.runs.capacity() {
                    return 0;
                }
                let mut bytes = [0; Run::SIZE];
                run.to_bytes(&mut bytes);
                self.runs.push(bytes);
            }
        }
        self.pages -= pages;
        pages
    }

    #[inline]
    fn room(&self) -> u64 {
        if !self.counts {
            return u64::MAX;
        }
        let regions = self.room.min(self.runs.capacity()) - self.runs.len();
        self.pages.min(regions as u64)
    }
}

impl Request {
    /// Decodes the masks and flags. Returns the scan and the categories to report, or `None` if a mask or flag is
    /// invalid.
    fn scan(&self) -> Option<(Scan, Categories)> {
        let known = u64::from(raw::PM_SCAN_WP_MATCHING | raw::PM_SCAN_CHECK_WPASYNC);
        if self.size != Self::SIZE as u64 || self.flags & !known != 0 {
            return None;
        }
        let scan = Scan {
            inverted: Categories::from_bits(self.inverted)?,
            all: Categories::from_bits(self.all)?,
            any: Categories::from_bits(self.any)?,
            protect: self.flags & u64::from(raw::PM_SCAN_WP_MATCHING) != 0,
            only_tracked: self.flags & u64::from(raw::PM_SCAN_CHECK_WPASYNC) != 0,
        };
        Some((scan, Categories::from_bits(self.told)?))
    }

    /// Returns the range of pages to scan.
    fn range(&self) -> Result<PageRange, Errno> {
        let page = PAGE_SIZE as u64;
        if !self.start.is_multiple_of(page) {
            return Err(Errno::EINVAL);
        }
        if self.start > self.end || self.end > USER_END {
            return Err(Errno::EFAULT);
        }
        let end = self.end.div_ceil(page);
        Ok(PageRange::new(Page::new(self.start / page), Page::new(end)))
    }
}

/// Handles the `ioctl` `PAGEMAP_SCAN` of `/proc/PID/pagemap`. Returns the number of regions found.
///
/// # Errors
/// `ESRCH` if the address space is destroyed, even if the request cannot be read (Linux 7.3 `do_pagemap_scan`);
/// `EINVAL` for invalid flags or masks; `EFAULT` for invalid addresses; `EPERM` for memory without write tracking if
/// the request requires write tracking; `ENOMEM`.
pub fn scan(
    user: UserMemory<'static>,
    space: Option<Arc<Space>>,
    argument: u64,
) -> Result<u64, Errno> {
    let space = space.ok_or(Errno::ESRCH)?;
    let request: Request = user.read_value(argument)?;
    let (scan, told) = request.scan().ok_or(Errno::EINVAL)?;
    let range = request.range()?;
    if request.runs == 0 && request.room > 0 {
        return Err(Errno::EINVAL);
    }
    let bytes = request.room.checked_mul(Run::SIZE as u64);
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    check_range(request.runs, bytes.ok_or(Errno::EFAULT)?)?;
    let mut found = Found {
        runs: Vec::new(),
        room: 0,
        pages: match request.most_pages {
            0 => u64::MAX,
            most => most,
        },
        told,
        counts: request.room > 0,
    };
    let chunk = CHUNK.min(request.room as usize);
    found
        .runs
        .try_reserve_exact(chunk)
        .map_err(|_| Errno::ENOMEM)?;
    let (mut next, mut written) = (range.start, 0);
    let mut result = Ok(());
    while next < range.end {
        let rest = PageRange::new(next, range.end);
        let left = request.room - written;
        found.room = chunk.min(left as usize);
        let ended = space.tracking().scan(rest, &scan, &mut found);
        let to = request.runs + written * Run::SIZE as u64;
        result = user.write_bytes(to, found.runs.as_flattened());
        written += found.runs.len() as u64;
        let none = found.runs.is_empty();
        found.runs.clear();
        // Report the end of the walk to the program even if the regions could not be copied to user space
        // (`do_pagemap_scan`).
        if result.is_err() {
            next = ended.unwrap_or(range.end);
            break;
        }
        match ended {
            // The walk made no progress although the buffer was empty, because the next page-table entry covers more
            // pages than the request permits.
            Ok(end) if end == next && none => break,
            Ok(end) => next = end,
            Err(error) => {
                // Report the end of the range, as if the walk had reached it.
                next = range.end;
                result = Err(watch_errno(error));
                break;
            }
        }
        if written == request.room || found.pages == 0 {
            break;
        }
    }
    user.write_value(argument + WALK_END, &next.address().as_u64())?;
    result.map(|()| written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(room: usize, pages: u64) -> Found {
        Found {
            runs: Vec::with_capacity(room),
            room,
            pages,
            told: Categories::WRITTEN,
            counts: true,
        }
    }

    fn pages(start: u64, end: u64) -> PageRange {
        PageRange::new(Page::new(start), Page::new(end))
    }

    #[test]
    fn neighbours_alike_in_what_is_told_become_one_run() {
        let mut found = found(2, 100);
        let (written, present) = (Categories::WRITTEN, Categories::PRESENT);
        assert_eq!(found.take(pages(1, 2), written, Share::Any), 1);
        assert_eq!(found.take(pages(2, 4), written | present, Share::Any), 2);
        assert_eq!(found.take(pages(4, 5), present, Share::Any), 1);
        assert_eq!(
            found.take(pages(6, 7), present, Share::Any),
            0,
            "no room for a third"
        );
        let runs = found.runs.iter().map(|bytes| Run::from_bytes(bytes));
        let runs: Vec<_> = runs.map(|run| (run.start, run.end)).collect();
        assert_eq!(runs, [(0x1000, 0x4000), (0x4000, 0x5000)]);
    }

    #[test]
    fn no_more_pages_are_taken_than_asked_for() {
        let mut found = found(8, 5);
        assert_eq!(found.take(pages(1, 4), Categories::WRITTEN, Share::Any), 3);
        assert_eq!(found.take(pages(4, 8), Categories::WRITTEN, Share::Any), 2);
        assert_eq!(found.take(pages(9, 10), Categories::WRITTEN, Share::Any), 0);
    }

    #[test]
    fn requests_are_checked() {
        let good = Request {
            size: 96,
            start: 0x1000,
            end: 0x2001,
            ..Request::default()
        };
        assert!(good.scan().is_some());
        assert_eq!(good.range(), Ok(pages(1, 3)));
        assert!(Request { size: 88, ..good }.scan().is_none());
        assert!(Request { flags: 4, ..good }.scan().is_none());
        assert!(
            Request {
                told: 1 << 20,
                ..good
            }
            .scan()
            .is_none()
        );
        assert_eq!(Request { start: 1, ..good }.range(), Err(Errno::EINVAL));
        assert_eq!(
            Request {
                end: u64::MAX,
                ..good
            }
            .range(),
            Err(Errno::EFAULT)
        );
    }
}
