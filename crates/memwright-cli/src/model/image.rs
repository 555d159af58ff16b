//! Kernel images, as the command line names them.

use std::path::PathBuf;

/// The kernel that an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// A Linux kernel.
    Linux,
    /// Memwright's own.
    Memwright,
}

/// A kernel image of the command line.
#[derive(Debug, Clone)]
pub struct Image {
    /// What kernel it is.
    pub system: System,
    /// What it is called in reports.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 of it.
    pub sha256: String,
    /// SHA-256 of its configuration, where that is known.
    pub config_sha256: Option<String>,
    /// What it says of itself.
    pub version: String,
}

/// The name of Memwright's own kernel among images; a file of that name is `./memwright`.
pub const MEMWRIGHT: &str = "memwright";

/// Takes `[NAME=]PATH` apart. What stands before the sign is no name where it is empty or has a slash.
pub fn split_name(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !name.contains('/') => (Some(name), path),
        Some(_) | None => (None, text),
    }
}
