//! Files with the arguments, the environment, the auxiliary vector, the cgroup and the name of a process.

use crate::procfs::node::{Subject, Text};
use core::{
    fmt::{self, Write},
    sync::atomic::Ordering,
};
use memwright_linux_abi::errno::Errno;
use memwright_linux_tasks::process::PathError;
use memwright_linux_vfs::user::PATH_MAX;
use memwright_table::VirtAddr;

/// Writes the bytes that the memory of the process now contains from the address `start` to the address `end`. The
/// cursor is an offset in bytes from `start`.
fn copy(subject: &Subject, start: u64, end: u64, text: &mut Text) -> fmt::Result {
    let Some(space) = subject.space_of(text) else {
        return Ok(());
    };
    let mut buffer = [0; 1024];
    let mut at = start.saturating_add(text.from());
    while at < end {
        if !text.has_room() {
            text.go_on_from(at - start);
            return Ok(());
        }
        let step = (end - at).min(buffer.len() as u64) as usize;
        let count = match space.read(VirtAddr::new(at), &mut buffer[..step]) {
            Ok(()) => step,
            Err((_, count)) => count,
        };
        text.push(&buffer[..count])?;
        if count < step {
            return Ok(());
        }
        at += count as u64;
    }
    Ok(())
}

/// Writes `/proc/PID/cgroup` (Linux 7.3 `kernel/cgroup/cgroup.c`, `proc_cgroup_show`). Reads of the file fail with
/// `ENAMETOOLONG` if the path of the group is longer than the limit for paths.
///
/// # Errors
/// The errors of `text`.
pub fn cgroup(subject: &Subject, text: &mut Text) -> fmt::Result {
    text.write_str("0::/")?;
    if let Some(group) = subject.process.cgroup() {
        match group.path(PATH_MAX) {
            Ok(path) => text.push(&path)?,
            Err(PathError::TooLong) => return text.fail(Errno::ENAMETOOLONG),
            Err(PathError::OutOfMemory) => return Err(fmt::Error),
        }
        if group.place.removed.load(Ordering::SeqCst) {
            text.write_str(" (deleted)")?;
        }
    }
    text.write_char('\n')
}

/// Writes `/proc/PID/cmdline`.
///
/// # Errors
/// The errors of `text`.
pub fn command_line(subject: &Subject, text: &mut Text) -> fmt::Result {
    if let Some(image) = subject.process.image() {
        let addresses = &image.addresses;
        let (start, end) = (addresses.arguments_start, addresses.arguments_end);
        copy(subject, start, end, text)?;
    }
    Ok(())
}

/// Writes `/proc/PID/environ`.
///
/// # Errors
/// The errors of `text`.
pub fn environment(subject: &Subject, text: &mut Text) -> fmt::Result {
    if let Some(image) = subject.process.image() {
        let addresses = &image.addresses;
        let (start, end) = (addresses.environment_start, addresses.environment_end);
        copy(subject, start, end, text)?;
    }
    Ok(())
}

/// Writes `/proc/PID/auxv`.
///
/// # Errors
/// The errors of `text`.
pub fn auxiliary(subject: &Subject, text: &mut Text) -> fmt::Result {
    if let Some(image) = subject.process.image() {
        text.push(&image.auxiliary)?;
    }
    Ok(())
}

/// Returns the bytes of a name up to its first NUL.
#[must_use]
pub fn trimmed(name: &[u8; 16]) -> &[u8] {
    let end = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    &name[..end]
}

/// Writes `/proc/PID/comm`.
///
/// # Errors
/// The errors of `text`.
pub fn name(subject: &Subject, text: &mut Text) -> fmt::Result {
    text.push(trimmed(&subject.name()))?;
    text.write_char('\n')
}

/// Handles a write to `/proc/PID/comm` by the process `own`. A process is allowed to change only its own name.
///
/// # Errors
/// `EINVAL` if `own` is not the process of `subject`.
pub fn set_name(own: u32, subject: &Subject, bytes: &[u8]) -> Result<(), Errno> {
    if own != subject.process.id {
        return Err(Errno::EINVAL);
    }
    let name = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if let Some(thread) = &subject.thread {
        thread.set_name(name);
    }
    Ok(())
}
