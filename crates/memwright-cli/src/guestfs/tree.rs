//! The guest's files, collected on the host.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use rustix::io::Errno;

use crate::host::host_file::other_kind;

/// The maximum number of links that are followed in one path, as on Linux (fs/namei.c, MAXSYMLINKS).
const MOST_LINKS: usize = 40;

/// The entry at a path of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A folder and its permission bits.
    Folder { mode: u32 },
    /// A copy of a file of the host.
    HostFile { mode: u32, path: PathBuf, size: u64 },
    /// A generated file.
    Text { mode: u32, contents: Vec<u8> },
    /// A symbolic link.
    Link { target: PathBuf },
}

/// The nodes, by their absolute path in the guest. No parent of a path is a link.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
    skipped: Vec<(PathBuf, String)>,
}

impl Tree {
    /// Adds a file or folder of the host. The path in the guest is the absolute path on the host. Every link along the
    /// path is also added, so that the path resolves in the guest as on the host. A folder is added with its contents.
    /// Returns the path with all links resolved.
    ///
    /// # Errors
    /// I/O errors of reading the host's files. If the path does not exist, the error's cause is an I/O error of the
    /// kind `NotFound`.
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
    /// I/O errors of reading the host's files.
    pub fn add_copy(&mut self, host: &Path, guest: &Path) -> anyhow::Result<()> {
        if let Some(own) = filled_by_kernel(guest) {
            // If the host's file cannot be copied to any path, the error about the file is reported in place of the one
            // about the guest's path.
            copied_kind(host)?;
            bail!(
                "{}: the guest's kernel fills {} itself, no file of the host can be there",
                guest.display(),
                own.display()
            );
        }
        self.add_own_copy(host, guest)
    }

    /// Adds a file at a path that is reserved for the command, such as a module for the guest's kernel to load.
    ///
    /// # Errors
    /// I/O errors of reading the host's files.
    pub fn add_own_copy(&mut self, host: &Path, guest: &Path) -> anyhow::Result<()> {
        let about = copied_kind(host)?;
        if about.is_dir() {
            self.add_folder(host, guest)
        } else {
            self.add_one(host, guest, &about)
        }
    }

    /// Adds a file with this text, unless the path already exists.
    pub fn add_text(&mut self, guest: &str, mode: u32, contents: &str) {
        let node = Node::Text {
            mode,
            contents: contents.as_bytes().to_vec(),
        };
        self.add_below(Path::new(guest), node);
    }

    /// Adds a file with these bytes, unless the path already exists.
    pub fn add_bytes(&mut self, guest: &Path, mode: u32, contents: Vec<u8>) {
        let node = Node::Text { mode, contents };
        self.nodes.entry(guest.to_owned()).or_insert(node);
    }

    /// Adds a node and its parent folders, unless the path already exists or leads through a file.
    pub fn add_below(&mut self, guest: &Path, node: Node) {
        if self.add_parents(guest).is_ok() {
            self.nodes.entry(guest.to_owned()).or_insert(node);
        }
    }

    /// Adds a folder, unless the path already exists.
    pub fn add_empty_folder(&mut self, guest: &Path, mode: u32) {
        self.nodes
            .entry(guest.to_owned())
            .or_insert(Node::Folder { mode });
    }

    /// Returns the node at a path without links.
    pub fn node(&self, guest: &Path) -> Option<&Node> {
        self.nodes.get(guest)
    }

    /// Returns all nodes, sorted by path, so that a folder is before its contents.
    pub fn nodes(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_path(), node))
    }

    /// Returns the entries of copied folders that were skipped, each with the reason.
    pub fn skipped(&self) -> &[(PathBuf, String)] {
        &self.skipped
    }

    /// Returns the total size of all files in bytes.
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

    /// Adds a folder at the path that it has on the host, without its contents, and the folders and links along the
    /// path.
    ///
    /// # Errors
    /// I/O errors of resolving the path.
    pub fn add_host_folder(&mut self, path: &Path) -> anyhow::Result<()> {
        self.add_links(path)
            .map(drop)
            .with_context(|| path.display().to_string())
    }

    /// Resolves `path` on the host and adds the folders and links along it. Returns the path with all links resolved.
    fn add_links(&mut self, path: &Path) -> anyhow::Result<PathBuf> {
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
                    return Err(io::Error::from(io::ErrorKind::NotADirectory).into());
                }
                resolved = next;
                if about.is_dir() {
                    self.add_empty_folder(&resolved, 0o755);
                }
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(io::Error::from(Errno::LOOP).into());
            }
            let target = fs::read_link(&next)?;
            if target.is_absolute() {
                resolved = PathBuf::from("/");
            }
            rest.extend(components(&target));
            // The guest's kernel provides the links in /proc and /dev itself.
            if filled_by_kernel(&next).is_none() {
                self.place(&next, Node::Link { target })?;
            }
        }
        Ok(resolved)
    }

    /// Adds the parent folders of a guest path.
    fn add_parents(&mut self, guest: &Path) -> anyhow::Result<()> {
        for parent in guest.ancestors().skip(1) {
            match self.nodes.get(parent) {
                None => self.add_empty_folder(parent, 0o755),
                Some(Node::Folder { .. }) => {}
                Some(Node::HostFile { .. } | Node::Text { .. } | Node::Link { .. }) => {
                    bail!(
                        "{}: {} is not a folder in the guest",
                        guest.display(),
                        parent.display()
                    );
                }
            }
        }
        Ok(())
    }

    /// Inserts a node at a path, replacing a file or a link, but not a folder that has contents.
    fn place(&mut self, guest: &Path, node: Node) -> anyhow::Result<()> {
        check_length(guest).with_context(|| guest.display().to_string())?;
        self.add_parents(guest)?;
        let replaces = match (self.nodes.get(guest), &node) {
            (None, _) | (Some(Node::Folder { .. }), Node::Folder { .. }) => true,
            (Some(Node::Folder { .. }), _) => !self.has_contents(guest),
            (Some(_), Node::Folder { .. }) => false,
            (Some(_), Node::HostFile { .. } | Node::Text { .. } | Node::Link { .. }) => true,
        };
        if !replaces {
            bail!(
                "{}: the guest has both a folder and a file or link of this name",
                guest.display()
            );
        }
        self.nodes.insert(guest.to_owned(), node);
        Ok(())
    }

    /// Returns whether any node is below a path.
    fn has_contents(&self, guest: &Path) -> bool {
        let behind = (Bound::Excluded(guest), Bound::Unbounded);
        let mut behind = self.nodes.range::<Path, _>(behind);
        behind
            .next()
            .is_some_and(|(path, _)| path.starts_with(guest))
    }

    /// Adds a folder and everything below it.
    fn add_folder(&mut self, host: &Path, guest: &Path) -> anyhow::Result<()> {
        let mut waiting = vec![(host.to_owned(), guest.to_owned())];
        while let Some((host, guest)) = waiting.pop() {
            let context = || host.display().to_string();
            let about = fs::metadata(&host).with_context(context)?;
            let mode = about.permissions().mode() & 0o7777;
            self.place(&guest, Node::Folder { mode })?;
            for entry in fs::read_dir(&host).with_context(context)? {
                let entry = entry.with_context(context)?;
                let (path, inside) = (entry.path(), guest.join(entry.file_name()));
                if let Some(own) = filled_by_kernel(&inside) {
                    let why = format!("the guest's kernel fills {} itself", own.display());
                    self.skipped.push((path, why));
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    waiting.push((path, inside));
                } else {
                    self.add_entry(path, &inside)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a folder's entry that is not itself a folder.
    fn add_entry(&mut self, host: PathBuf, guest: &Path) -> anyhow::Result<()> {
        let context = || host.display().to_string();
        let about = fs::symlink_metadata(&host).with_context(context)?;
        if about.is_symlink() {
            let target = fs::read_link(&host).with_context(context)?;
            self.place(guest, Node::Link { target })
        } else if let Some(kind) = other_kind(about.file_type()) {
            self.skipped.push((host, format!("is {kind}")));
            Ok(())
        } else {
            self.add_one(&host, guest, &about)
        }
    }

    fn add_one(&mut self, host: &Path, guest: &Path, about: &fs::Metadata) -> anyhow::Result<()> {
        let node = Node::HostFile {
            mode: about.permissions().mode() & 0o7777,
            path: host.to_owned(),
            size: about.len(),
        };
        self.place(guest, node)
    }
}

/// Returns the metadata of a file or folder that is to be copied into the guest.
///
/// # Errors
/// I/O errors, and an error for anything that is neither a file nor a folder.
fn copied_kind(host: &Path) -> anyhow::Result<fs::Metadata> {
    let about = fs::metadata(host).with_context(|| host.display().to_string())?;
    match other_kind(about.file_type()).filter(|_| !about.is_dir()) {
        Some(kind) => bail!("{}: is {kind}, neither a file nor a folder", host.display()),
        None => Ok(about),
    }
}

/// Returns the folder that contains the path `guest` and that the guest's kernel fills itself; `None` if there is no
/// such folder. The kernel would hide the archive's files in this folder, or would read them as the parameters that
/// this command passes.
fn filled_by_kernel(guest: &Path) -> Option<&'static Path> {
    let own = ["/dev", "/proc", "/sys", "/.memwright"];
    own.into_iter()
        .map(Path::new)
        .find(|own| guest.starts_with(own))
}

/// Returns an error for a path that exceeds the limits of the guest's kernel: PATH_MAX including the NUL, and NAME_MAX
/// for each name.
fn check_length(path: &Path) -> io::Result<()> {
    let too_long = |name: &OsStr, most: usize| name.as_bytes().len() > most;
    let is_long = too_long(path.as_os_str(), 4095) || path.iter().any(|name| too_long(name, 255));
    if is_long {
        return Err(Errno::NAMETOOLONG.into());
    }
    Ok(())
}

/// Returns the components of a path in reverse order, without `.` and the root.
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
    fn only_the_command_puts_files_where_the_kernel_does() {
        let host = tempfile::NamedTempFile::new().unwrap();
        let guest = Path::new("/.memwright/modules/zram.ko.xz");
        let mut tree = Tree::default();
        assert!(tree.add_copy(host.path(), guest).is_err());
        assert_eq!(tree.nodes().count(), 0);
        tree.add_own_copy(host.path(), guest).unwrap();
        assert!(tree.nodes().any(|(path, _)| path == guest));
    }

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
    fn a_name_is_a_folder_or_a_file_and_the_last_file_counts() {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir_all(host.path().join("folder/sub")).unwrap();
        fs::write(host.path().join("file"), "x").unwrap();
        fs::write(host.path().join("longer"), "xyz").unwrap();
        symlink("file", host.path().join("link")).unwrap();
        let add = |tree: &mut Tree, host_name: &str, guest: &str| {
            tree.add_copy(&host.path().join(host_name), Path::new(guest))
        };
        for (first, second, allowed) in [
            (("file", "/a"), ("longer", "/a"), true),
            (("link", "/a"), ("longer", "/a"), true),
            (("folder", "/a"), ("folder", "/a"), true),
            (("folder/sub", "/a"), ("file", "/a"), true),
            (("folder", "/a"), ("file", "/a"), false),
            (("file", "/a/b"), ("file", "/a"), false),
            (("file", "/a"), ("folder", "/a"), false),
            (("file", "/a"), ("file", "/a/b"), false),
        ] {
            let mut tree = Tree::default();
            add(&mut tree, first.0, first.1).unwrap();
            let second = add(&mut tree, second.0, second.1);
            assert_eq!(second.is_ok(), allowed, "{first:?}: {second:?}");
        }
        let mut tree = Tree::default();
        add(&mut tree, "file", "/a").unwrap();
        add(&mut tree, "longer", "/a").unwrap();
        assert_eq!(tree.size(), 3);
    }

    #[test]
    fn what_the_kernel_fills_and_names_that_are_too_long_are_refused() {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir_all(host.path().join("root/proc/1")).unwrap();
        fs::write(host.path().join("root/devices"), "").unwrap();
        fs::write(host.path().join("file"), "").unwrap();
        let file = host.path().join("file");
        let (name, path) = ("n".repeat(255), "/p".repeat(2047));
        let mut tree = Tree::default();
        for (guest, allowed) in [
            ("/proc/x".to_owned(), false),
            ("/dev".to_owned(), false),
            ("/sys/kernel/x".to_owned(), false),
            ("/.memwright/options".to_owned(), false),
            ("/device".to_owned(), true),
            ("/proc.old/x".to_owned(), true),
            (format!("/{name}"), true),
            (format!("/{name}n"), false),
            (format!("/{name}n/x"), false),
            (format!("{path}x"), true),
            (format!("{path}/x"), false),
        ] {
            let added = tree.add_copy(&file, Path::new(&guest));
            assert_eq!(added.is_ok(), allowed, "{guest}: {added:?}");
        }
        assert!(tree.add_host_path(Path::new("/proc/self/status")).is_err());
        // A copy of the complete root does not include the folders that the guest provides itself.
        let mut tree = Tree::default();
        tree.add_copy(&host.path().join("root"), Path::new("/"))
            .unwrap();
        let names: Vec<_> = tree.nodes().map(|(path, _)| path).collect();
        assert_eq!(names, [Path::new("/"), Path::new("/devices")]);
        assert_eq!(tree.skipped()[0].1, "the guest's kernel fills /proc itself");
    }

    #[test]
    fn what_is_no_file_is_left_out_of_a_folder_and_refused_by_itself() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        use std::os::unix::net::UnixListener;
        let host = tempfile::tempdir().unwrap();
        let pipe = host.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _listener = UnixListener::bind(host.path().join("socket")).unwrap();
        symlink("loop", host.path().join("loop")).unwrap();
        fs::write(host.path().join(OsStr::from_bytes(b"\xff\n")), "x").unwrap();
        let mut tree = Tree::default();
        tree.add_copy(host.path(), Path::new("/d")).unwrap();
        let mut why: Vec<_> = tree.skipped().iter().map(|(_, why)| why.as_str()).collect();
        why.sort_unstable();
        assert_eq!(why, ["is a named pipe", "is a socket"]);
        // A loop of links is copied unchanged; resolving it fails.
        assert_eq!((tree.nodes().count(), tree.size()), (4, 1));
        for path in [&*pipe, &host.path().join("loop"), Path::new("/dev/zero")] {
            assert!(tree.add_copy(path, Path::new("/x")).is_err(), "{path:?}");
        }
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
