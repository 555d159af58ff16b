//! A Linux kernel image: its format, and its version text.

use std::{fmt, io};

use object::LittleEndian;
use object::elf::{ELFMAG, FileHeader64, NoteType};
use object::read::elf::{FileHeader, ProgramHeader};

/// The error for a file that is not a kernel image which QEMU can boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotBootable(pub String);

impl fmt::Display for NotBootable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for NotBootable {}

/// Returns whether an error of opening an image means that the image is absent or cannot boot, for example because a
/// build failed. Other errors are not caused by the build, so a bisection must not skip the commit because of them.
pub fn is_absent_or_broken(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::NotFound) || error.is::<NotBootable>()
}

/// The offset of the boot header's magic number, and the number itself (Documentation/arch/x86/boot.rst).
const MAGIC: (std::ops::Range<usize>, &[u8]) = (0x202..0x206, b"HdrS");
/// The field of the boot header that locates the version text. Its value is the offset of the text from the end of the
/// first sector.
const VERSION: std::ops::Range<usize> = 0x20e..0x210;
const SECTOR: usize = 0x200;

/// The beginning of the version text in an uncompressed image (init/version.c). A digit follows it.
const BANNER: &[u8] = b"Linux version ";
/// The owner and type of the ELF note with the 32-bit entry point at which QEMU starts a vmlinux
/// (include/xen/interface/elfnote.h).
pub const PVH_NOTE: (&[u8], NoteType) = (b"Xen", NoteType(18));

/// Returns whether the file is an image of a Linux kernel, even if QEMU cannot boot it.
pub fn is_linux(bytes: &[u8]) -> bool {
    match bytes.starts_with(&ELFMAG) {
        true => banner(bytes).is_some(),
        false => bytes.get(MAGIC.0) == Some(MAGIC.1),
    }
}

/// Checks that the bytes are a bzImage, or a vmlinux that QEMU can boot. `what` identifies the file in the error.
///
/// # Errors
/// One line with the reason if QEMU cannot boot them.
pub fn check(bytes: &[u8], what: &str) -> Result<(), NotBootable> {
    let refused = |why: &str| Err(NotBootable(format!("{what}: {why}")));
    if bytes.starts_with(&ELFMAG) && banner(bytes).is_some() {
        return match has_entry_note(bytes).unwrap_or(false) {
            true => Ok(()),
            false => refused("a vmlinux that QEMU cannot boot: it was built without CONFIG_PVH"),
        };
    }
    match bytes.get(MAGIC.0) == Some(MAGIC.1) {
        true => Ok(()),
        false => refused("not a Linux kernel image (bzImage or vmlinux)"),
    }
}

/// Returns whether a segment of notes contains the note with the entry point.
fn has_entry_note(bytes: &[u8]) -> object::Result<bool> {
    let header = FileHeader64::<LittleEndian>::parse(bytes)?;
    for segment in header.program_headers(LittleEndian, bytes)? {
        let Some(mut notes) = segment.notes(LittleEndian, bytes)? else {
            continue;
        };
        while let Some(note) = notes.next()? {
            if (note.name(), note.n_type(LittleEndian)) == PVH_NOTE {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns the version text of an uncompressed image, without [`BANNER`] at its beginning.
fn banner(bytes: &[u8]) -> Option<String> {
    let mut places = bytes.windows(BANNER.len() + 1);
    let at = places.position(|place| {
        place.starts_with(BANNER) && place.last().is_some_and(u8::is_ascii_digit)
    })?;
    let text = &bytes[at + BANNER.len()..];
    let end = text.iter().position(|byte| matches!(byte, 0 | b'\n'))?;
    Some(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// Returns the version text of an image: release, builder and time of the build.
pub fn version(bytes: &[u8]) -> String {
    if bytes.starts_with(&ELFMAG) {
        return banner(bytes).unwrap_or_default();
    }
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
    fn an_uncompressed_image_has_a_banner_and_an_entry() {
        let mut bytes = ELFMAG.to_vec();
        bytes.extend(b"\0Linux version %s (%s)\0Linux version 6.12.1 (x@y) #1\n\0");
        assert_eq!(version(&bytes), "6.12.1 (x@y) #1");
        let error = check(&bytes, "x").unwrap_err().to_string();
        assert!(error.contains("without CONFIG_PVH"), "{error}");
        let other = check(&ELFMAG, "x").unwrap_err().to_string();
        assert!(other.contains("not a Linux kernel image"), "{other}");
    }

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
