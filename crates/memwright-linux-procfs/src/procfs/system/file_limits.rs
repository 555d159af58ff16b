//! `/proc/sys/fs`: the limits on open files, on watches of epolls and on pipes.

use crate::procfs::node::{
    SystemControl,
    stub::stubs,
    text::{Text, setting},
};
use core::{
    fmt::{self, Write},
    sync::atomic::{AtomicU64, Ordering},
};
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::fs::{file_limits::FileLimits, pipe::rounded_size, vfs::Vfs};

stubs! {
    UNUSED_FILES: "/proc/sys/fs/file-nr" "unused" Number(0), "The number is constant on Linux too.";
}

/// Defines the control of the file that reports and sets one limit.
macro_rules! limit {
    ($field:ident) => {
        SystemControl {
            read: |view, text| show(&view.parts.vfs().file_limits, text, |limits| &limits.$field),
            store: |view, bytes| {
                let value = plain(bytes)?;
                let limits = &view.parts.vfs().file_limits;
                limits.$field.store(value, Ordering::Relaxed);
                Ok(())
            },
        }
    };
}

/// `/proc/sys/fs/file-max`.
pub static OPEN_FILES: SystemControl = limit!(open_files);

/// `/proc/sys/fs/epoll/max_user_watches`.
pub static WATCHES: SystemControl = limit!(watches);

/// `/proc/sys/fs/pipe-user-pages-soft`.
pub static PIPE_PAGES_SOFT: SystemControl = limit!(pipe_pages_soft);

/// `/proc/sys/fs/pipe-user-pages-hard`.
pub static PIPE_PAGES_HARD: SystemControl = limit!(pipe_pages_hard);

/// `/proc/sys/fs/pipe-max-size`. A written value is rounded up to a capacity that a pipe can have.
pub static LARGEST_PIPE: SystemControl = SystemControl {
    read: |view, text| {
        show(&view.parts.vfs().file_limits, text, |limits| {
            &limits.largest_pipe
        })
    },
    store: |view, bytes| {
        let asked = usize::try_from(setting(bytes)?).map_err(|_| Errno::EINVAL)?;
        let size = rounded_size(asked).ok_or(Errno::EINVAL)?;
        let limits = &view.parts.vfs().file_limits;
        limits.largest_pipe.store(size as u64, Ordering::Relaxed);
        Ok(())
    },
};

/// Writes `/proc/sys/fs/file-nr`: the number of open files, the number of free file structures, which is always 0, and
/// the limit.
pub fn open_files(vfs: &Vfs, text: &mut Text) -> fmt::Result {
    let open = vfs.open_files.total();
    let most = &vfs.file_limits.open_files;
    let most = most.load(Ordering::Relaxed);
    writeln!(text, "{open}\t{UNUSED_FILES}\t{most}")
}

fn show(
    limits: &FileLimits,
    text: &mut Text,
    limit: impl Fn(&FileLimits) -> &AtomicU64,
) -> fmt::Result {
    let value = limit(limits).load(Ordering::Relaxed);
    writeln!(text, "{value}")
}

/// Parses a number that fits in a Linux `long`.
fn plain(bytes: &[u8]) -> Result<u64, Errno> {
    let value = setting(bytes)?;
    if value > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    Ok(value)
}
