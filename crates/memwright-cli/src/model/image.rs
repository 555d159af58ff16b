//! Kernel images, as named on the command line.

use std::path::PathBuf;

use crate::model::code::Code;

/// The kind of a kernel image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// A Linux kernel.
    Linux,
    /// Memwright's own kernel.
    Memwright,
    /// A kernel of another kind, which runs alone: it has no program.
    Alone,
}

/// A kernel image given on the command line.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its kind.
    pub system: System,
    /// Its name in reports.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// SHA-256 of the image.
    pub sha256: String,
    /// SHA-256 of its configuration, if known.
    pub config_sha256: Option<String>,
    /// Its version text.
    pub version: String,
    /// Where its code is; empty if it is of a kind whose code is in the upper half.
    pub code: Code,
}

/// The name that selects Memwright's own kernel in place of an image. An image file of this name must be given as
/// `./memwright`.
pub const MEMWRIGHT: &str = "memwright";

/// Splits `[NAME=]PATH`. The text before the `=` is not a name if it is empty or contains a slash.
pub fn split_name(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !name.contains('/') => (Some(name), path),
        Some(_) | None => (None, text),
    }
}
