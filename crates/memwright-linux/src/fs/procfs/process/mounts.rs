//! `/proc/PID/mounts` and `/proc/PID/mountinfo`.

use super::Subject;
use crate::{
    context::Context,
    fs::{dentry::Dentry, procfs::Text},
};
use alloc::sync::Arc;
use core::fmt::{self, Write};

/// What holds for every mount.
const OPTIONS: &str = "rw,relatime";

/// Writes the place of a mount with blanks as octal numbers, so that fields stay apart.
fn write_place(text: &mut Text, root: &Arc<Dentry>, top: &Arc<Dentry>) -> fmt::Result {
    for &byte in &root.path_from(top).0 {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => write!(text, "\\{byte:03o}")?,
            byte => text.push(&[byte]),
        }
    }
    Ok(())
}

/// `/proc/PID/mounts`.
///
/// # Errors
/// Those of the text.
pub fn mounts(context: &Context<'_>, _subject: &Subject, text: &mut Text) -> fmt::Result {
    let mounts = &context.kernel.mounts;
    for root in mounts.mounts() {
        let kind = root.inode.file_system.kind.name();
        write!(text, "{kind} ")?;
        write_place(text, &root, &mounts.root)?;
        writeln!(text, " {kind} {OPTIONS} 0 0")?;
    }
    Ok(())
}

/// `/proc/PID/mountinfo`.
///
/// # Errors
/// Those of the text.
pub fn mount_info(context: &Context<'_>, _subject: &Subject, text: &mut Text) -> fmt::Result {
    let mounts = &context.kernel.mounts;
    let top = mounts.root.inode.file_system.mount;
    for root in mounts.mounts() {
        let file_system = &root.inode.file_system;
        let (number, device) = (file_system.mount, file_system.device);
        // The root is mounted on what came before it, which has no number here but its own.
        write!(text, "{number} {top} {}:{} / ", device.major, device.minor)?;
        write_place(text, &root, &mounts.root)?;
        let kind = file_system.kind.name();
        writeln!(text, " {OPTIONS} - {kind} {kind} rw")?;
    }
    Ok(())
}
