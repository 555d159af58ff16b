//! Reads Debian packages, deb(5), without dpkg, because systems other than Debian lack dpkg.
//!
//! A package is an archive of ar(5) with the members `debian-binary`, `control.tar` and `data.tar`. The member
//! `data.tar` has the files, and is compressed. A user can pass any file as a package, so the amounts of data that are
//! read and written are limited.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};

use crate::host::host_file::{self, LARGEST_IMAGE};
use crate::model::size::in_mebibytes;

/// The beginning of every package.
const MAGIC: &[u8; 8] = b"!<arch>\n";
/// The size of the header of a member in bytes.
const HEADER: usize = 60;
/// The end of every header.
const HEADER_END: &[u8; 2] = b"`\n";
/// The maximum size of the uncompressed files of a package in bytes. Debian's largest packages of debug information have
/// about 8 GiB.
const MOST: u64 = 32 << 30;
/// The prefix of the name of the member with the files.
const FILES: &str = "data.tar";

/// How the files of a package are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Xz,
    Zstandard,
}

/// The name and the size of a member of the archive.
#[derive(Debug, PartialEq, Eq)]
struct Member {
    name: String,
    size: u64,
}

/// Why the header of a member is invalid.
#[derive(Debug, PartialEq, Eq)]
enum BadHeader {
    End,
    Size,
}

impl fmt::Display for BadHeader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::End => "a member's header does not end as it has to",
            Self::Size => "a member's size is no number",
        })
    }
}

impl std::error::Error for BadHeader {}

impl Member {
    /// Parses a header.
    fn parse(header: &[u8; HEADER]) -> Result<Self, BadHeader> {
        if !header.ends_with(HEADER_END) {
            return Err(BadHeader::End);
        }
        let text = |range: std::ops::Range<usize>| {
            let text = String::from_utf8_lossy(&header[range]).into_owned();
            text.trim_end().to_owned()
        };
        Ok(Self {
            name: text(0..16).trim_end_matches('/').to_owned(),
            size: text(48..58).parse().map_err(|_| BadHeader::Size)?,
        })
    }
}

/// Returns the compression of the member with the files, by the suffix of its name. Returns `None` for another member,
/// or if the compression is not supported.
fn compression(name: &str) -> Option<Compression> {
    match name.strip_prefix(FILES)? {
        "" => Some(Compression::None),
        ".gz" => Some(Compression::Gzip),
        ".xz" => Some(Compression::Xz),
        ".zst" => Some(Compression::Zstandard),
        _ => None,
    }
}

/// Returns whether a file begins with the magic of a package; `false` if the file cannot be read.
pub fn is_package(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    let read = host_file::open(path).and_then(|(mut file, _)| file.read_exact(&mut magic));
    read.is_ok() && magic == *MAGIC
}

/// Unpacks the files and links of a package for whose path `wanted` returns true into the folder `root`, which exists.
///
/// # Errors
/// One line if the file is not a complete package, or if its files are too large. Also I/O errors.
pub fn unpack(package: &Path, root: &Path, wanted: impl Fn(&Path) -> bool) -> anyhow::Result<()> {
    let mut room = MOST;
    visit(package, |path, entry| {
        if wanted(path) {
            let size = entry.size();
            room = room.checked_sub(size).context("its files are too large")?;
            entry.unpack_in(root)?;
        }
        Ok(true)
    })
}

/// Copies the first file of a package for whose path `wanted` returns true to `place`.
///
/// # Errors
/// One line if the file is not a complete package, or if the package contains no such file, or one that is too large.
/// Also I/O errors.
pub fn unpack_one(
    package: &Path,
    wanted: impl Fn(&Path) -> bool,
    place: &Path,
) -> anyhow::Result<()> {
    let mut found = false;
    visit(package, |path, entry| {
        if entry.header().entry_type().is_file() && wanted(path) {
            ensure!(
                entry.size() <= LARGEST_IMAGE,
                "{} is larger than {}",
                path.display(),
                in_mebibytes(LARGEST_IMAGE)
            );
            io::copy(entry, &mut File::create(place)?)?;
            found = true;
        }
        Ok(!found)
    })?;
    ensure!(found, "{}: has no such file", package.display());
    Ok(())
}

/// Calls a function with the path of each file of a package, until it returns false. The path is relative to the root of
/// the system.
fn visit(
    package: &Path,
    mut each: impl FnMut(&Path, &mut tar::Entry<'_, Box<dyn Read>>) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut inner = || -> anyhow::Result<()> {
        let mut archive = tar::Archive::new(files(package)?);
        for entry in archive.entries()? {
            let mut entry = entry.context("is damaged")?;
            let path: PathBuf = entry.path()?.components().skip_while(is_here).collect();
            if !each(&path, &mut entry)? {
                break;
            }
        }
        Ok(())
    };
    inner().with_context(|| package.display().to_string())
}

fn is_here(component: &std::path::Component<'_>) -> bool {
    *component == std::path::Component::CurDir
}

/// Returns the uncompressed tar archive with the files of a package.
fn files(package: &Path) -> anyhow::Result<Box<dyn Read>> {
    let (mut file, about) = host_file::open(package)?;
    let mut magic = [0; MAGIC.len()];
    let read = file.read_exact(&mut magic);
    ensure!(read.is_ok() && magic == *MAGIC, "is not a Debian package");
    loop {
        let mut header = [0; HEADER];
        if file.read_exact(&mut header).is_err() {
            bail!("is not a complete Debian package: it has no {FILES}");
        }
        let member = Member::parse(&header).map_err(|bad| anyhow!("is damaged: {bad}"))?;
        let begin = file.stream_position()?;
        let end = begin.checked_add(member.size);
        ensure!(
            end.is_some_and(|end| end <= about.len()),
            "is not a complete Debian package: {} is truncated",
            member.name
        );
        if !member.name.starts_with(FILES) {
            // Members begin at even offsets.
            let next = begin + member.size + member.size % 2;
            file.seek(SeekFrom::Start(next))?;
            continue;
        }
        let Some(compression) = compression(&member.name) else {
            bail!("{} has an unknown compression", member.name);
        };
        let data = BufReader::new(file.take(member.size));
        return Ok(Box::new(decompressed(data, compression)?.take(MOST)));
    }
}

fn decompressed(
    data: BufReader<io::Take<File>>,
    compression: Compression,
) -> anyhow::Result<Box<dyn Read>> {
    Ok(match compression {
        Compression::None => Box::new(data),
        Compression::Gzip => Box::new(flate2::bufread::GzDecoder::new(data)),
        Compression::Xz => Box::new(lzma_rust2::XzReader::new(data, true)),
        Compression::Zstandard => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(data);
            Box::new(decoder.map_err(|error| anyhow!("is damaged: {error}"))?)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns a package with these members.
    fn package(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for (name, contents) in members {
            let header = format!("{name:<16}{:<32}{:<10}`\n", "", contents.len());
            bytes.extend(header.as_bytes());
            bytes.extend(*contents);
            bytes.resize(bytes.len().next_multiple_of(2), b'\n');
        }
        bytes
    }

    /// Returns an archive with two files.
    fn archive() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, text) in [("./boot/vmlinuz-6", "image"), ("./usr/x", "other")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            builder
                .append_data(&mut header, path, text.as_bytes())
                .unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn files_are_found_whatever_their_compression_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.deb");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut gzip, &archive()).unwrap();
        let options = lzma_rust2::XzOptions::with_preset(0);
        let mut xz = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        io::Write::write_all(&mut xz, &archive()).unwrap();
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let zstandard = ruzstd::encoding::compress_to_vec(&*archive(), level);
        for (name, data) in [
            ("data.tar", archive()),
            ("data.tar.gz", gzip.finish().unwrap()),
            ("data.tar.xz", xz.finish().unwrap()),
            ("data.tar.zst", zstandard),
        ] {
            let bytes = package(&[
                ("debian-binary", b"2.0"),
                ("control.tar", b"x"),
                (name, &data),
            ]);
            fs::write(&path, bytes).unwrap();
            assert!(is_package(&path));
            let root = folder.path().join(name);
            fs::create_dir(&root).unwrap();
            unpack(&path, &root, |path| path.starts_with("boot")).unwrap();
            assert_eq!(fs::read(root.join("boot/vmlinuz-6")).unwrap(), b"image");
            assert!(!root.join("usr").exists(), "{name}");
            let place = folder.path().join("one");
            unpack_one(&path, |path| path.ends_with("x"), &place).unwrap();
            assert_eq!(fs::read(&place).unwrap(), b"other");
        }
    }

    #[test]
    fn what_is_no_package_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.deb");
        let whole = package(&[("debian-binary", b"2.0\n"), ("data.tar", &archive())]);
        let mut bad_size = whole.clone();
        bad_size[MAGIC.len() + 48] = b'x';
        let mut bad_end = whole.clone();
        bad_end[MAGIC.len() + HEADER - 1] = b'x';
        let half = whole.len() / 2;
        let odd = package(&[("data.tar.lzma", b"x")]);
        let damaged = package(&[("data.tar.xz", b"no such compression")]);
        for (bytes, words) in [
            (&b""[..], "is not a Debian package"),
            (b"not a package", "is not a Debian package"),
            (&whole[..MAGIC.len()], "it has no data.tar"),
            (&whole[..half], "data.tar is truncated"),
            (&bad_size, "a member's size is no number"),
            (&bad_end, "a member's header does not end"),
            (&odd, "data.tar.lzma has an unknown compression"),
            (&damaged, "is damaged"),
        ] {
            fs::write(&path, bytes).unwrap();
            let error = unpack(&path, folder.path(), |_| true).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(words), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        assert!(!is_package(folder.path()) && !is_package(Path::new("/dev/zero")));
    }
}
