//! `/proc/PID/mounts` and `/proc/PID/mountinfo`.

use crate::{
    batch::Batch,
    fs::{dentry::Dentry, file_system::FileSystem},
    procfs::node::{Subject, Text, stub::stubs},
    view::View,
};
use alloc::sync::Arc;
use core::fmt::{self, Write};

stubs! {
    DUMP: "/proc/PID/mounts" "fs_freq" Number(0), "The number is constant on Linux too.";
    CHECK: "/proc/PID/mounts" "fs_passno" Number(0), "The number is constant on Linux too.";
}

/// Writes the source of a mount. It is the source that a program passed to `mount`, or the type of the file system if
/// the kernel mounted it.
fn write_source(text: &mut Text, file_system: &FileSystem) -> fmt::Result {
    match &file_system.tmpfs {
        Some(tmpfs) => write_escaped(text, &tmpfs.source),
        None => text.write_str(file_system.kind.name()),
    }
}

/// Writes the options of a file system, each preceded by a comma.
fn write_options(view: &View<'_>, text: &mut Text, file_system: &FileSystem) -> fmt::Result {
    match &file_system.tmpfs {
        Some(tmpfs) => {
            let total = view.kernel.memory.frames().total();
            tmpfs.options().show(total, text)
        }
        None => Ok(()),
    }
}

/// Writes the path of a mount point, with escapes.
fn write_place(text: &mut Text, root: &Arc<Dentry>, top: &Arc<Dentry>) -> fmt::Result {
    let path = root.path_from(top).map_err(|_| fmt::Error)?;
    write_escaped(text, &path.0)
}

/// Writes bytes. White space and backslashes become octal escapes.
fn write_escaped(text: &mut Text, bytes: &[u8]) -> fmt::Result {
    for &byte in bytes {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => write!(text, "\\{byte:03o}")?,
            byte => text.push(&[byte])?,
        }
    }
    Ok(())
}

/// Number of mounts that are copied in one batch.
const TOGETHER: usize = 16;

/// Calls `write` for each mount, with its root and the id of its parent mount. The cursor is one more than the id of
/// the last mount written.
fn each(
    view: &View<'_>,
    text: &mut Text,
    mut write: impl FnMut(&mut Text, &Arc<Dentry>, u64) -> fmt::Result,
) -> fmt::Result {
    let mounts = &view.kernel.vfs.mounts;
    // The lock is held until the piece is written, so that the batch's references to the roots do not make an `umount`
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
/// Those of `text`.
pub fn mounts(view: &View<'_>, _subject: &Subject, text: &mut Text) -> fmt::Result {
    let mounts = &view.kernel.vfs.mounts;
    each(view, text, |text, root, _| {
        let file_system = &root.inode.file_system;
        write_source(text, file_system)?;
        text.write_char(' ')?;
        write_place(text, root, &mounts.root)?;
        write!(text, " {} rw", file_system.kind.name())?;
        file_system.flags().show(text)?;
        write_options(view, text, file_system)?;
        writeln!(text, " {DUMP} {CHECK}")
    })
}

/// Writes `/proc/PID/mountinfo`.
///
/// # Errors
/// Those of `text`.
pub fn mount_info(view: &View<'_>, _subject: &Subject, text: &mut Text) -> fmt::Result {
    let mounts = &view.kernel.vfs.mounts;
    each(view, text, |text, root, upper| {
        let file_system = &root.inode.file_system;
        let (number, device) = (file_system.mount, file_system.device);
        // On Linux, the parent of the root mount is the initial mount. This kernel has no such mount, so the root mount
        // is its own parent.
        write!(
            text,
            "{number} {upper} {}:{} / ",
            device.major, device.minor
        )?;
        write_place(text, root, &mounts.root)?;
        text.write_str(" rw")?;
        file_system.flags().show(text)?;
        write!(text, " - {} ", file_system.kind.name())?;
        write_source(text, file_system)?;
        text.write_str(" rw")?;
        write_options(view, text, file_system)?;
        writeln!(text)
    })
}
