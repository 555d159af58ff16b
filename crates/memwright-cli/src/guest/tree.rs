//! The guest's file tree as it is put together on the host.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};

/// Most links followed while one path is resolved, as on Linux (fs/namei.c, MAXSYMLINKS).
const MOST_LINKS: usize = 40;

/// What stands at a path of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A folder and its permission bits.
    Folder { mode: u32 },
    /// A copy of a file of the host.
    HostFile { mode: u32, path: PathBuf, size: u64 },
    /// A file made here.
    Text { mode: u32, contents: Vec<u8> },
    /// A symbolic link.
    Link { target: PathBuf },
}

/// Files by their absolute path in the guest; no path has a link among its parents.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
    skipped: Vec<PathBuf>,
}

impl Tree {
    /// Adds the file or folder at an absolute path of the host at the same path of the guest, with every link that
    /// the path passes through, so that it resolves in the guest as it does here. A folder comes with its contents.
    /// Returns the path without links.
    ///
    /// # Errors
    /// Those of looking at the host's files; `NotFound` is kept as the cause.
    pub fn add_host_path(&mut self, path: &Path) -> anyhow::Result<PathBuf> {
        let resolved = self
            .add_links(path)
            .with_context(|| path.display().to_string())?;
        self.add_copy(&resolved, &resolved)?;
        Ok(resolved)
    }

    /// Adds a file or folder of the host at another path of the guest.
    ///
    /// # Errors
    /// Those of looking at the host's files.
    pub fn add_copy(&mut self, host: &Path, guest: &Path) -> anyhow::Result<()> {
        let about = fs::metadata(host).with_context(|| host.display().to_string())?;
        self.add_parents(guest)?;
        if about.is_dir() {
            self.add_folder(host, guest)
        } else {
            self.add_one(host, guest, &about)
        }
    }

    /// Adds a file with the given contents, unless one stands there already.
    pub fn add_text(&mut self, guest: &str, mode: u32, contents: &str) {
        if self.add_parents(Path::new(guest)).is_ok() {
            let node = Node::Text {
                mode,
                contents: contents.as_bytes().to_vec(),
            };
            self.nodes.entry(PathBuf::from(guest)).or_insert(node);
        }
    }

    /// Adds a file with these bytes, unless one stands there already.
    pub fn add_bytes(&mut self, guest: &Path, mode: u32, contents: Vec<u8>) {
        let node = Node::Text { mode, contents };
        self.nodes.entry(guest.to_owned()).or_insert(node);
    }

    /// Adds a folder, unless something stands there already.
    pub fn add_empty_folder(&mut self, guest: &Path, mode: u32) {
        self.nodes
            .entry(guest.to_owned())
            .or_insert(Node::Folder { mode });
    }

    /// Every node in the order of paths, parents before their contents.
    pub fn nodes(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_path(), node))
    }

    /// Files of a folder that were left out, being neither files, folders nor links.
    pub fn skipped(&self) -> &[PathBuf] {
        &self.skipped
    }

    /// Bytes of all files.
    pub fn size(&self) -> u64 {
        self.nodes
            .values()
            .map(|node| match node {
                Node::Folder { .. } | Node::Link { .. } => 0,
                Node::HostFile { size, .. } => *size,
                Node::Text { contents, .. } => contents.len() as u64,
            })
            .sum()
    }

    /// Adds an empty folder where the host has one, with the folders and links on the way to it.
    ///
    /// # Errors
    /// Those of walking there.
    pub fn add_host_folder(&mut self, path: &Path) -> anyhow::Result<()> {
        self.add_links(path)
            .map(drop)
            .with_context(|| path.display().to_string())
    }

    /// Walks `path` on the host; adds the folders and links on the way; returns where it leads.
    fn add_links(&mut self, path: &Path) -> io::Result<PathBuf> {
        let mut rest: Vec<PathBuf> = components(path);
        let mut resolved = PathBuf::from("/");
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == Path::new("..") {
                resolved.pop();
                continue;
            }
            let next = resolved.join(&part);
            let about = fs::symlink_metadata(&next)?;
            if !about.is_symlink() {
                if !rest.is_empty() && !about.is_dir() {
                    return Err(io::ErrorKind::NotADirectory.into());
                }
                resolved = next;
                if about.is_dir() {
                    self.add_empty_folder(&resolved, 0o755);
                }
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(io::Error::from_raw_os_error(
                    rustix::io::Errno::LOOP.raw_os_error(),
                ));
            }
            let target = fs::read_link(&next)?;
            if target.is_absolute() {
                resolved = PathBuf::from("/");
            }
            rest.extend(components(&target));
            self.nodes.insert(next, Node::Link { target });
        }
        Ok(resolved)
    }

    /// Makes the folders above a guest path.
    fn add_parents(&mut self, guest: &Path) -> anyhow::Result<()> {
        for parent in guest.ancestors().skip(1) {
            match self.nodes.get(parent) {
                None => self.add_empty_folder(parent, 0o755),
                Some(Node::Folder { .. }) => {}
                Some(Node::HostFile { .. } | Node::Text { .. } | Node::Link { .. }) => {
                    bail!(
                        "{}: {} is no folder in the guest",
                        guest.display(),
                        parent.display()
                    );
                }
            }
        }
        Ok(())
    }

    fn add_folder(&mut self, host: &Path, guest: &Path) -> anyhow::Result<()> {
        let mode = fs::metadata(host)
            .with_context(|| host.display().to_string())?
            .permissions()
            .mode()
            & 0o7777;
        self.nodes.insert(guest.to_owned(), Node::Folder { mode });
        let entries = fs::read_dir(host).with_context(|| host.display().to_string())?;
        for entry in entries {
            let entry = entry.with_context(|| host.display().to_string())?;
            let path = entry.path();
            let inside = guest.join(entry.file_name());
            let about = fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
            if about.is_dir() {
                self.add_folder(&path, &inside)?;
            } else if about.is_symlink() {
                let target = fs::read_link(&path).with_context(|| path.display().to_string())?;
                self.nodes.insert(inside, Node::Link { target });
            } else if about.file_type().is_socket()
                || about.file_type().is_fifo()
                || !about.is_file()
            {
                self.skipped.push(path);
            } else {
                self.add_one(&path, &inside, &about)?;
            }
        }
        Ok(())
    }

    fn add_one(&mut self, host: &Path, guest: &Path, about: &fs::Metadata) -> anyhow::Result<()> {
        if !about.is_file() {
            bail!("{}: neither a file nor a folder", host.display());
        }
        let mode = about.permissions().mode() & 0o7777;
        let node = Node::HostFile {
            mode,
            path: host.to_owned(),
            size: about.len(),
        };
        self.nodes.insert(guest.to_owned(), node);
        Ok(())
    }
}

/// The parts of a path, last first, without `.` and the root.
fn components(path: &Path) -> Vec<PathBuf> {
    let mut parts: Vec<PathBuf> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(PathBuf::from(part)),
            Component::ParentDir => Some(PathBuf::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_on_the_way_are_kept() {
        let host = tempfile::tempdir().unwrap();
        let root = host.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(root.join("usr/lib/libx.so.1.2"), "x").unwrap();
        symlink("usr/lib", root.join("lib")).unwrap();
        symlink("libx.so.1.2", root.join("usr/lib/libx.so")).unwrap();
        let mut tree = Tree::default();
        let end = tree
            .add_host_path(&root.join("lib/../lib/libx.so"))
            .unwrap();
        assert_eq!(end, root.join("usr/lib/libx.so.1.2"));
        let nodes: Vec<_> = tree
            .nodes()
            .filter(|(path, _)| *path != root && path.starts_with(&root))
            .collect();
        let names: Vec<_> = nodes
            .iter()
            .map(|(path, _)| path.strip_prefix(&root).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "lib",
                "usr",
                "usr/lib",
                "usr/lib/libx.so",
                "usr/lib/libx.so.1.2"
            ]
        );
        assert_eq!(
            nodes[0].1,
            &Node::Link {
                target: PathBuf::from("usr/lib")
            }
        );
        assert_eq!(tree.size(), 1);
    }

    #[test]
    fn loops_and_files_as_folders_are_errors() {
        let host = tempfile::tempdir().unwrap();
        symlink("b", host.path().join("a")).unwrap();
        symlink("a", host.path().join("b")).unwrap();
        fs::write(host.path().join("file"), "").unwrap();
        let mut tree = Tree::default();
        assert!(tree.add_host_path(&host.path().join("a")).is_err());
        assert!(
            tree.add_host_path(&host.path().join("file/inside"))
                .is_err()
        );
        assert!(tree.add_host_path(&host.path().join("missing")).is_err());
    }

    #[test]
    fn a_folder_comes_with_its_contents_and_modes() {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir(host.path().join("sub")).unwrap();
        fs::write(host.path().join("sub/tool"), "abc").unwrap();
        fs::set_permissions(
            host.path().join("sub/tool"),
            fs::Permissions::from_mode(0o4711),
        )
        .unwrap();
        symlink("../elsewhere", host.path().join("sub/link")).unwrap();
        let mut tree = Tree::default();
        tree.add_copy(host.path(), Path::new("/data")).unwrap();
        let nodes: Vec<_> = tree
            .nodes()
            .map(|(path, _)| path.to_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            nodes,
            [
                "/",
                "/data",
                "/data/sub",
                "/data/sub/link",
                "/data/sub/tool"
            ]
        );
        assert!(tree.nodes().any(|(_, node)| matches!(
            node,
            Node::HostFile {
                mode: 0o4711,
                size: 3,
                ..
            }
        )));
        assert!(
            tree.add_copy(host.path(), Path::new("/data/sub/tool/inside"))
                .is_err()
        );
    }
}
