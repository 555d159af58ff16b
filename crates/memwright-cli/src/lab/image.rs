//! A Linux kernel image: where it is, what it must look like, and what it says of itself.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};

use crate::kernels;
use crate::report::hexadecimal_hash;

/// A kernel image of the command line.
#[derive(Debug, Clone)]
pub struct Image {
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

impl Image {
    /// Reads `[NAME=]IMAGE`, where IMAGE is a path or a name of `memwright kernels`.
    ///
    /// # Errors
    /// One line when there is no such image, or it is none.
    pub fn open(text: &str) -> anyhow::Result<Self> {
        let context = || format!("--kernel {text}");
        let (name, image) = match text.split_once('=') {
            Some((name, image)) if !name.is_empty() && !name.contains('/') => (Some(name), image),
            Some(_) | None => (None, text),
        };
        let (path, kept) = kernels::resolve(image).with_context(context)?;
        let path = std::path::absolute(path).with_context(context)?;
        let bytes = fs::read(&path).with_context(context)?;
        check(&bytes, &context())?;
        let name = match (name, &kept) {
            (Some(name), _) => name.to_owned(),
            (None, Some(kept)) => kept.name.clone(),
            (None, None) => {
                let file = path.file_name().unwrap_or_default();
                file.to_string_lossy().into_owned()
            }
        };
        Ok(Self {
            name,
            path,
            sha256: hexadecimal_hash(&bytes),
            config_sha256: kept.and_then(|kept| kept.config_sha256),
            version: version(&bytes),
        })
    }
}
/// Where the boot header's magic number is, and the number (Documentation/arch/x86/boot.rst).
const MAGIC: (std::ops::Range<usize>, &[u8]) = (0x202..0x206, b"HdrS");
/// Where the header points to the version's text, from the end of the first sector.
const VERSION: std::ops::Range<usize> = 0x20e..0x210;
const SECTOR: usize = 0x200;

/// Checks that bytes are a bzImage; `what` names them in the message.
///
/// # Errors
/// One line when they are not.
pub fn check(bytes: &[u8], what: &str) -> anyhow::Result<()> {
    ensure!(
        bytes.get(MAGIC.0) == Some(MAGIC.1),
        "{what}: not a Linux kernel image (bzImage)"
    );
    Ok(())
}

/// The version's text: release, builder and time of the build.
pub fn version(bytes: &[u8]) -> String {
    let text = || {
        let at: [u8; 2] = bytes.get(VERSION)?.try_into().ok()?;
        let rest = bytes.get(SECTOR + usize::from(u16::from_le_bytes(at))..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).trim().to_owned())
    };
    text().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_says_its_version() {
        let mut bytes = vec![0; 0x400];
        assert!(check(&bytes, "x").is_err());
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        assert!(check(&bytes, "x").is_ok());
        bytes[0x20e..0x210].copy_from_slice(&[0x00, 0x01]);
        bytes[0x300..0x308].copy_from_slice(b"6.1.0-x\0");
        assert_eq!(version(&bytes), "6.1.0-x");
        bytes[0x20e..0x210].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(version(&bytes), "");
        assert_eq!(version(b"short"), "");
    }
}
