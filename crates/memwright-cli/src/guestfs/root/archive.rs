//! A tar archive as the tree of `--root`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use tar::EntryType;

use crate::guestfs::root::tree::{Contents, RootNode};

/// An archive: its file, its nodes, and the positions of the files' contents.
#[derive(Debug)]
pub struct Archive {
    file: Arc<File>,
    nodes: BTreeMap<PathBuf, RootNode>,
    /// The offset in the archive at which the contents of each file begin.
    offsets: BTreeMap<PathBuf, u64>,
}

impl Archive {
    /// Reads the headers of an archive. A later entry with the same path replaces an earlier one.
    ///
    /// # Errors
    /// I/O errors, and an error for a file that is not an archive or is compressed.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let mut file = File::open(path)?;
        check_start(&mut file)?;
        let mut archive = tar::Archive::new(&file);
        let (mut nodes, mut offsets) = (BTreeMap::new(), BTreeMap::new());
        let entries = archive.entries_with_seek();
        for entry in entries.context("is not a tar archive")? {
            let entry = entry.context("is not a tar archive, or is cut short")?;
            let Some(path) = inside(&entry.path()?) else {
                continue;
            };
            let header = entry.header();
            let mode = (header.mode()? & 0o7777) as u16;
            let target = entry.link_name()?;
            let node = match header.entry_type() {
                EntryType::Directory => RootNode::Folder { mode },
                EntryType::Symlink => RootNode::Link {
                    target: target.unwrap_or_default().as_os_str().as_bytes().to_vec(),
                },
                EntryType::Regular | EntryType::Continuous => {
                    offsets.insert(path.clone(), entry.raw_file_position());
                    let size = entry.size();
                    RootNode::File { mode, size }
                }
                EntryType::Link => {
                    // A hard link becomes a second node with the same contents.
                    let first = target.and_then(|target| inside(&target));
                    let first = first.unwrap_or_default();
                    let (Some(node), Some(offset)) = (nodes.get(&first), offsets.get(&first))
                    else {
                        continue;
                    };
                    let (node, offset) = (RootNode::clone(node), *offset);
                    offsets.insert(path.clone(), offset);
                    node
                }
                _ => continue,
            };
            add_parents(&mut nodes, &path);
            nodes.insert(path, node);
        }
        nodes
            .entry(PathBuf::new())
            .or_insert(RootNode::Folder { mode: 0o755 });
        let file = Arc::new(file);
        Ok(Self {
            file,
            nodes,
            offsets,
        })
    }

    /// Returns the node at a path, or `None` if there is none.
    pub fn node(&self, path: &Path) -> Option<RootNode> {
        self.nodes.get(path).cloned()
    }

    /// Returns the names of a folder's entries.
    pub fn names(&self, path: &Path) -> Vec<Vec<u8>> {
        let behind = (Bound::Excluded(path), Bound::Unbounded);
        let below = self.nodes.range::<Path, _>(behind);
        below
            .map(|(below, _)| below)
            .take_while(|below| below.starts_with(path))
            .filter(|below| below.parent() == Some(path))
            .filter_map(|below| below.file_name())
            .map(|name| name.as_bytes().to_vec())
            .collect()
    }

    /// Opens a file.
    ///
    /// # Errors
    /// If the archive has no file at this path.
    pub fn contents(&self, path: &Path) -> io::Result<Box<dyn Contents + Send>> {
        let (Some(RootNode::File { size, .. }), Some(&start)) =
            (self.nodes.get(path), self.offsets.get(path))
        else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let file = self.file.clone();
        let size = *size;
        Ok(Box::new(Part { file, start, size }))
    }
}

/// A file in an archive.
struct Part {
    file: Arc<File>,
    start: u64,
    size: u64,
}

impl Contents for Part {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        Contents::read_at(&*self.file, &mut buffer[..left], self.start + offset)
    }

    fn state(&self) -> io::Result<(u64, i64, i64)> {
        let (_, seconds, nanoseconds) = self.file.state()?;
        Ok((self.size, seconds, nanoseconds))
    }
}

/// Returns an error for a compressed archive, because files in it cannot be read at an arbitrary offset.
fn check_start(file: &mut File) -> anyhow::Result<()> {
    let mut start = [0; 512];
    let mut got = 0;
    while let Ok(count @ 1..) = file.read(&mut start[got..]) {
        got += count;
    }
    file.seek(SeekFrom::Start(0))?;
    let packed: [&[u8]; 4] = [b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"];
    if packed.iter().any(|magic| start.starts_with(magic)) {
        bail!("is compressed; unpack it to a .tar first");
    }
    if got < start.len() || !start[257..].starts_with(b"ustar") {
        bail!("is not a tar archive");
    }
    Ok(())
}

/// Returns a path of an archive relative to its root, or `None` if the path leads out of the root.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut relative = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => relative.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(relative)
}

/// Adds the parent folders of a path for which the archive has no entry.
fn add_parents(nodes: &mut BTreeMap<PathBuf, RootNode>, path: &Path) {
    for parent in path.ancestors().skip(1) {
        let folder = RootNode::Folder { mode: 0o755 };
        nodes.entry(parent.to_owned()).or_insert(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_the_files_that_were_put_into_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tar");
        let mut builder = tar::Builder::new(File::create(&path).unwrap());
        let mut header = tar::Header::new_ustar();
        header.set_size(5);
        header.set_mode(0o755);
        builder
            .append_data(&mut header, "usr/bin/tool", &b"hello"[..])
            .unwrap();
        let mut link = tar::Header::new_ustar();
        link.set_entry_type(EntryType::Symlink);
        link.set_size(0);
        link.set_mode(0o777);
        builder.append_link(&mut link, "bin", "usr/bin").unwrap();
        let mut hard = tar::Header::new_ustar();
        hard.set_entry_type(EntryType::Link);
        hard.set_size(0);
        hard.set_mode(0o755);
        builder
            .append_link(&mut hard, "usr/bin/again", "usr/bin/tool")
            .unwrap();
        builder.finish().unwrap();
        drop(builder);
        let archive = Archive::open(&path).unwrap();
        let names = |path: &str| {
            let names = archive.names(Path::new(path));
            let text = names
                .iter()
                .map(|name| String::from_utf8_lossy(name).into_owned());
            text.collect::<Vec<_>>()
        };
        assert_eq!(names(""), ["bin", "usr"]);
        assert_eq!(names("usr/bin"), ["again", "tool"]);
        let target = b"usr/bin".to_vec();
        assert_eq!(
            archive.node(Path::new("bin")),
            Some(RootNode::Link { target })
        );
        let file = RootNode::File {
            mode: 0o755,
            size: 5,
        };
        assert_eq!(archive.node(Path::new("usr/bin/again")), Some(file));
        let contents = archive.contents(Path::new("usr/bin/again")).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(contents.read_at(&mut buffer, 1).unwrap(), 4);
        assert_eq!(&buffer[..4], b"ello");
        assert!(archive.contents(Path::new("bin")).is_err());
    }
}
