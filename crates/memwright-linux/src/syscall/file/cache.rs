//! `cachestat`: returns how many pages of a file are in memory (Linux 7.3 `mm/filemap.c`).

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use linux_raw_sys::general as raw;
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::fs::permission::Permission;
use memwright_table::PAGE_SIZE;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[real(
    raw::__NR_cachestat,
    "cachestat",
    &[Kind::Fd, Kind::In(16), Kind::Out(40), Kind::Hex],
    handler!(cachestat),
)];

fn cachestat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, range, answer, flags, ..] = arguments;
    let open = current.files().get_usable(int(number))?;
    let range: [u64; 2] = current.user.read_value(range)?;
    let inode = open.inode();
    let regular = inode.regular();
    if regular.is_some_and(|regular| regular.pages().huge().is_some()) {
        return Err(Errno::EOPNOTSUPP);
    }
    let subject = current.caller().subject();
    let may_ask = open.is_writable()
        || inode.check_owner(&subject).is_ok()
        || inode.check(&subject, Permission::WRITE).is_ok();
    if !may_ask {
        return Err(Errno::EPERM);
    }
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let (first, end) = pages(range);
    let (cached, evicted) = regular.map_or((0, 0), |regular| regular.cached(first, end));
    // Files are stored only in memory: no page is dirty or under writeback.
    let counts = [cached, 0, 0, evicted, 0];
    current.user.write_value(answer, &counts).map(|()| 0)
}

/// Returns the number of the first page of a range of bytes, and the number of its last page plus one. A length of 0
/// means up to the end of the file.
fn pages([offset, length]: [u64; 2]) -> (u64, u64) {
    const PAGE: u64 = PAGE_SIZE as u64;
    let end = match length.checked_sub(1) {
        None => u64::MAX,
        Some(rest) => offset.saturating_add(rest) / PAGE + 1,
    };
    (offset / PAGE, end)
}

#[cfg(test)]
mod tests {
    use super::pages;

    #[test]
    fn bytes_touch_pages() {
        for (range, expected) in [
            ([0, 0], (0, u64::MAX)),
            ([5000, 0], (1, u64::MAX)),
            ([0, 1], (0, 1)),
            ([0, 4096], (0, 1)),
            ([0, 4097], (0, 2)),
            ([4095, 2], (0, 2)),
            ([4096, u64::MAX], (1, 1 << 52)),
        ] {
            assert_eq!(pages(range), expected, "{range:?}");
        }
    }
}
