//! Opens files of the host that the command reads.
//!
//! A path can name a file that never ends (`/dev/zero`), that blocks until another process opens it (a named pipe), or
//! that has an effect when it is opened (a tape). The command therefore reads the files that a user names by the
//! functions of this module. They accept only regular files, they never block when they open a file, and they read at
//! most the size that the caller accepts.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use anyhow::Context;

use crate::model::hash::hexadecimal_hash;
use crate::model::hashed_file::HashedFile;
use crate::model::size::in_mebibytes;

/// The maximum size of a kernel image in bytes. With debug information, a `vmlinux` has hundreds of megabytes.
pub const LARGEST_IMAGE: u64 = 4 << 30;
/// The maximum size of a JSON document or a settings file in bytes.
pub const LARGEST_DOCUMENT: u64 = 64 << 20;

/// Describes the kind of a file that is not a regular file, for an error message.
///
/// Returns `None` for a regular file.
pub fn other_kind(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_fifo() {
        Some("a named pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else if kind.is_char_device() || kind.is_block_device() {
        Some("a device")
    } else {
        Some("of an unknown kind")
    }
}

/// Opens a regular file for reading, through symbolic links.
///
/// # Errors
/// I/O errors of opening; `IsADirectory` for a folder and `InvalidInput` for anything else that is not a regular file.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    // The kind is checked before the file is opened, because opening a device can have an effect.
    refuse_other_kinds(&fs::metadata(path)?)?;
    // Another process can replace the file after the check. Even then, this open must not wait for the writer of a
    // named pipe, and a read must not wait for contents that the kernel generates (/proc/kmsg).
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let about = file.metadata()?;
    refuse_other_kinds(&about)?;
    Ok((file, about))
}

fn refuse_other_kinds(about: &Metadata) -> io::Result<()> {
    let Some(kind) = other_kind(about.file_type()) else {
        return Ok(());
    };
    let error = if about.is_dir() {
        ErrorKind::IsADirectory
    } else {
        ErrorKind::InvalidInput
    };
    Err(io::Error::new(
        error,
        format!("is {kind}, not a regular file"),
    ))
}

/// Reads a complete regular file of at most `most` bytes.
///
/// # Errors
/// The errors of [`open`], I/O errors of reading, and `FileTooLarge` if the file is larger than `most` or becomes
/// larger while it is read.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, about) = open(path)?;
    if about.len() > most {
        return Err(too_large(most));
    }
    let mut data = Vec::new();
    // The length does not limit the read: files that the kernel generates report a length of 0, and others can grow.
    file.take(most.saturating_add(1)).read_to_end(&mut data)?;
    if data.len() as u64 > most {
        return Err(too_large(most));
    }
    Ok(data)
}

/// Reads a regular file whose length was `size` when its folder was listed. If the file has grown since then, only
/// `size` bytes are read.
///
/// # Errors
/// The errors of [`read`], and an error if the file has become shorter.
pub fn read_listed(path: &Path, size: u64) -> io::Result<Vec<u8>> {
    if size == 0 {
        let data = read(path, LARGEST_DOCUMENT)?;
        // A file in /proc always reports a length of 0, so its data is used. A file that now reports another length was
        // empty when its folder was listed.
        let grew = fs::metadata(path)?.len() > 0;
        return Ok(if grew { Vec::new() } else { data });
    }
    let (file, _) = open(path)?;
    let mut data = Vec::new();
    (&file).take(size).read_to_end(&mut data)?;
    // A file in /sys reports the length of a page even if it contains less. It is not an error if the reported length
    // is still `size`.
    if data.len() as u64 == size || file.metadata()?.len() == size {
        return Ok(data);
    }
    Err(io::Error::new(
        ErrorKind::UnexpectedEof,
        format!("had {size} bytes, and became shorter"),
    ))
}

fn too_large(most: u64) -> io::Error {
    io::Error::new(
        ErrorKind::FileTooLarge,
        format!("is larger than {}", in_mebibytes(most)),
    )
}

/// Reads a JSON file.
///
/// # Errors
/// One line with the reason why the file cannot be read or parsed.
pub fn read_json(path: &Path) -> anyhow::Result<serde_json::Value> {
    let context = || path.display().to_string();
    let text = read(path, LARGEST_DOCUMENT).with_context(context)?;
    serde_json::from_slice(&text).with_context(context)
}

/// Returns the path and hash of a file. The hash is empty if the file cannot be read, for example because it was
/// removed.
pub fn hashed_file(path: &Path) -> HashedFile {
    let sha256 = read(path, LARGEST_IMAGE)
        .map(|data| hexadecimal_hash(&data))
        .unwrap_or_default();
    HashedFile {
        path: path.to_string_lossy().into_owned(),
        sha256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mknodat};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_regular_files_are_read_and_nothing_waits() {
        let host = tempfile::tempdir().unwrap();
        let at = |name: &str| host.path().join(name);
        fs::write(at("file"), "12345").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        for (path, expected) in [
            (at("file"), Ok(5)),
            (at("link"), Ok(5)),
            (at("pipe"), Err("is a named pipe, not a regular file")),
            (at("socket"), Err("is a socket, not a regular file")),
            (host.path().into(), Err("is a folder, not a regular file")),
            ("/dev/zero".into(), Err("is a device, not a regular file")),
            ("/dev/stdin/x".into(), Err("Not a directory")),
            (at("loop"), Err("Too many levels of symbolic links")),
            (at("none"), Err("No such file")),
            (at("file\0"), Err("NUL byte")),
        ] {
            match (read(&path, 5).map(|data| data.len()), expected) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{path:?}"),
                (Err(error), Err(words)) => {
                    assert!(error.to_string().contains(words), "{path:?}: {error}");
                }
                (found, _) => panic!("{path:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_file_is_taken_as_it_was_listed() {
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("file");
        fs::write(&path, "12345").unwrap();
        for (size, expected) in [
            (5, Some("12345")),
            (3, Some("123")),
            (0, Some("")),
            (6, None),
        ] {
            let data = read_listed(&path, size).ok();
            let text = data.map(|data| String::from_utf8(data).unwrap());
            assert_eq!(text.as_deref(), expected, "{size}");
        }
        let made = read_listed(Path::new("/proc/self/status"), 0).unwrap();
        assert!(made.starts_with(b"Name:"));
        assert!(read_listed(Path::new("/proc/self/mem"), 0).is_err());
    }

    #[test]
    fn no_more_is_read_than_there_is_room_for() {
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("file");
        fs::write(&path, "12345").unwrap();
        for (most, fits) in [(0, false), (4, false), (5, true), (u64::MAX, true)] {
            assert_eq!(read(&path, most).is_ok(), fits, "{most}");
        }
        // Reading a large sparse file would take long. Its length is checked before it is read.
        let sparse = File::create(host.path().join("sparse")).unwrap();
        sparse.set_len(1 << 42).unwrap();
        let error = read(&host.path().join("sparse"), 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "is larger than 1 MiB");
        // The kernel reports a length of 0 for this file.
        assert!(read(Path::new("/proc/self/status"), 10).is_err());
        assert!(
            !read(Path::new("/proc/self/status"), 1 << 20)
                .unwrap()
                .is_empty()
        );
    }
}
