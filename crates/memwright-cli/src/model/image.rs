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
    /// A kernel of another kind, which runs alone, without a program.
    Alone,
}

/// A kernel image given on the command line.
#[derive(Debug, Clone)]
pub struct Image {
    /// Whether the image is a Linux kernel, Memwright's own or another one.
    pub system: System,
    /// The name of the kernel in reports.
    pub name: String,
    /// The path of the image.
    pub path: PathBuf,
    /// SHA-256 of the image.
    pub sha256: String,
    /// SHA-256 of its configuration, if known.
    pub config_sha256: Option<String>,
    /// The version text of the kernel.
    pub version: String,
    /// The addresses of its code; empty for Linux and Memwright, whose code is in the upper half.
    pub code: Code,
}

/// The name that selects Memwright's own kernel in place of an image. An image file of this name must be given as
/// `./memwright`.
pub const MEMWRIGHT: &str = "memwright";

/// The prefix of names that refer to a Debian package.
pub const DEBIAN: &str = "debian:";

/// Splits `[NAME=]PATH`. The text before the `=` is not a name if it is empty or contains a slash.
pub fn split_name(text: &str) -> (Option<&str>, &str) {
    let named = text.split_once('=');
    let named = named.filter(|(name, _)| !name.is_empty() && !name.contains('/'));
    named.map_or((None, text), |(name, path)| (Some(name), path))
}

/// Splits `[NAME=]IMAGE`. In the name of a Debian package, `debian:SUITE=VERSION`, the `=` precedes a version.
pub fn split_image(text: &str) -> (Option<&str>, &str) {
    if text.starts_with(DEBIAN) {
        return (None, text);
    }
    split_name(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_part_of_the_image() {
        for (text, expected) in [
            ("new=./bzImage", (Some("new"), "./bzImage")),
            ("./a=b", (None, "./a=b")),
            ("=x", (None, "=x")),
            ("debian:trixie", (None, "debian:trixie")),
            ("debian:trixie=6.12.1-1", (None, "debian:trixie=6.12.1-1")),
            (
                "6.12=debian:trixie=6.12.1-1",
                (Some("6.12"), "debian:trixie=6.12.1-1"),
            ),
        ] {
            assert_eq!(split_image(text), expected, "{text}");
        }
    }
}
