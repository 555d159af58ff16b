//! `/proc/PID/mounts` and `/proc/PID/mountinfo`. A program can create many mounts, so the lines are composed without
//! `write!`, which would take longer.

use crate::procfs::node::{Line, Text, stub::stubs};
use alloc::sync::Arc;
use core::fmt;
use memwright_linux_abi::Memory;
use memwright_linux_base::batch::Batch;
use memwright_linux_vfs::fs::{Mounts, dentry::Dentry, file_system::FileSystem, vfs::Vfs};

stubs! {
    DUMP: "/proc/PID/mounts" "fs_freq" Number(0), "The number is constant on Linux too.";
    CHECK: "/proc/PID/mounts" "fs_passno" Number(0), "The number is constant on Linux too.";
}

/// Writes the source of a mount: the source that a program passed to `mount`, or the type of the file system if the
/// kernel mounted it.
fn write_source(text: &mut Text, file_system: &FileSystem) -> fmt::Result {
    match &file_system.mounted {
        Some(mounted) => write_escaped(text, &mounted.source),
        None => text.push(file_system.kind.name().as_bytes()),
    }
}

/// Writes the options of `file_system`, each preceded by a comma.
fn write_options(memory: &Memory, line: &mut Line, file_system: &FileSystem) -> fmt::Result {
    match &file_system.mounted {
        Some(mounted) => {
            let total = memory.frames().total();
            mounted.show(total, line)
        }
        None => Ok(()),
    }
}

/// Writes the path of a mount point, with escapes.
fn write_place(text: &mut Text, root: &Arc<Dentry>, top: &Arc<Dentry>) -> fmt::Result {
    let path = root.path_from(top).map_err(|_| fmt::Error)?;
    write_escaped(text, &path.0)
}

/// Writes `bytes`, with white space and backslashes as octal escapes.
fn write_escaped(text: &mut Text, bytes: &[u8]) -> fmt::Result {
    let special = |byte: &u8| matches!(*byte, b' ' | b'\t' | b'\n' | b'\\');
    let mut rest = bytes;
    while let Some(place) = rest.iter().position(special) {
        let (plain, behind) = rest.split_at(place);
        text.push(plain)?;
        if let Some((byte, behind)) = behind.split_first() {
            let digit = |shift: u32| b'0' + (byte >> shift & 7);
            text.push(&[b'\\', digit(6), digit(3), digit(0)])?;
            rest = behind;
        }
    }
    text.push(rest)
}

/// The number of mounts that are copied in one batch.
const TOGETHER: usize = 16;

/// Calls `write` for each mount, with the root of the mount and the ID of its parent mount. The cursor is one more than
/// the ID of the last mount that was written.
fn each(
    mounts: &Mounts<Dentry>,
    text: &mut Text,
    mut write: impl FnMut(&mut Text, &Arc<Dentry>, u64) -> fmt::Result,
) -> fmt::Result {
    // Hold the lock until the piece is written. Otherwise the batch's references to the roots could make an `umount`
    // fail with `EBUSY`.
    let _names = mounts.names.keep();
    let note = |from, batch: &mut Batch<(Arc<Dentry>, u64)>| mounts.note(from, batch);
    text.records(TOGETHER, note, |text, (root, upper)| {
        write(text, root, *upper)?;
        Ok(root.inode.file_system.mount + 1)
    })
}

/// Writes `/proc/PID/mounts`.
///
/// # Errors
/// The errors of `text`.
pub fn mounts(vfs: &Vfs, memory: &Memory, text: &mut Text) -> fmt::Result {
    let mounts = &vfs.mounts;
    each(&vfs.mounts, text, |text, root, _| {
        let file_system = &root.inode.file_system;
        write_source(text, file_system)?;
        text.push(b" ")?;
        write_place(text, root, &mounts.root)?;
        let mut line = Line::new();
        line.text(" ").text(file_system.kind.name()).text(" rw");
        file_system.flags().show(&mut line)?;
        line.write(text)?;
        let mut line = Line::new();
        write_options(memory, &mut line, file_system)?;
        line.text(" ").decimal(DUMP.number(), 0);
        line.text(" ").decimal(CHECK.number(), 0);
        line.text("\n").write(text)
    })
}

/// Writes `/proc/PID/mountinfo`.
///
/// # Errors
/// The errors of `text`.
pub fn mount_info(vfs: &Vfs, memory: &Memory, text: &mut Text) -> fmt::Result {
    let mounts = &vfs.mounts;
    each(&vfs.mounts, text, |text, root, upper| {
        let file_system = &root.inode.file_system;
        let (number, device) = (file_system.mount, file_system.device);
        // On Linux, the parent of the root mount is the initial mount. This kernel has no initial mount, so the root
        // mount is its own parent.
        let mut line = Line::new();
        line.decimal(number, 0).text(" ").decimal(upper, 0);
        line.text(" ").decimal(device.major.into(), 0);
        line.text(":").decimal(device.minor.into(), 0);
        line.text(" / ").write(text)?;
        write_place(text, root, &mounts.root)?;
        let mut line = Line::new();
        line.text(" rw");
        file_system.flags().show(&mut line)?;
        line.text(" - ").text(file_system.kind.name());
        line.text(" ").write(text)?;
        write_source(text, file_system)?;
        let mut line = Line::new();
        line.text(" rw");
        write_options(memory, &mut line, file_system)?;
        line.text("\n").write(text)
    })
}

#[cfg(test)]
mod tests {
    use super::write_escaped;
    use crate::procfs::node::text::written;

    #[test]
    fn white_space_and_backslashes_are_escaped() {
        for (bytes, expected) in [
            (&b""[..], ""),
            (b"none", "none"),
            (b" ", "\\040"),
            (b"/a b/c", "/a\\040b/c"),
            (b"\t\n\\x", "\\011\\012\\134x"),
            (b"end ", "end\\040"),
            (b"\r#", "\r#"),
        ] {
            assert_eq!(written(|text| write_escaped(text, bytes)), expected);
        }
    }
}
