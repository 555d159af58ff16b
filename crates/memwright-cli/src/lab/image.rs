//! A Linux kernel image: what it must look like, and what it says of itself.

use anyhow::ensure;

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
