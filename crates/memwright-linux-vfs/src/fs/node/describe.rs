//! Writes the path of a mapped file for `/proc/PID/maps`.

use crate::fs::dentry::Dentry;
use alloc::sync::Arc;
use core::fmt;

/// Writes the path of a mapped file in the format of `/proc/PID/maps`, with newlines escaped.
///
/// # Errors
/// The errors of `out`, and [`fmt::Error`] if the heap is exhausted.
pub fn describe_object(entry: &Arc<Dentry>, out: &mut dyn fmt::Write) -> fmt::Result {
    let path = entry.shown_path(&entry.top());
    let path = path.map_err(|_| fmt::Error)?;
    for piece in path.split_inclusive(|&byte| byte == b'\n') {
        let (text, newline) = match piece.split_last() {
            Some((b'\n', text)) => (text, true),
            Some(_) | None => (piece, false),
        };
        for chunk in text.utf8_chunks() {
            out.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                out.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        if newline {
            out.write_str("\\012")?;
        }
    }
    Ok(())
}
