//! Adds the nodes that one guest looked up in the tree of `--root` to the files of another guest.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;

use crate::guestfs::root::{Record, RootNode, RootTree};
use crate::guestfs::tree::{Node, Tree};

/// Adds each node that a guest looked up, and the entries of each folder that it listed, to `files`, the files of
/// another guest. Files that `files` already contains are not replaced.
///
/// # Errors
/// I/O errors of reading the tree.
pub fn carry(seen: &Record, root: &RootTree, files: &mut Tree) -> anyhow::Result<()> {
    for (path, node) in seen.found_nodes() {
        add(root, files, path, node).with_context(|| shown(path))?;
    }
    for folder in seen.listed() {
        let below = folder.strip_suffix(b"/").unwrap_or(folder);
        for name in root.names(below).with_context(|| shown(folder))? {
            let path = [below, b"/", &name[..]].concat();
            if seen.node(&path).is_none()
                && let Some(node) = root.node(&path).with_context(|| shown(&path))?
            {
                add(root, files, &path, &node).with_context(|| shown(&path))?;
            }
        }
    }
    Ok(())
}

/// Adds a node of the tree at its path.
fn add(root: &RootTree, files: &mut Tree, path: &[u8], node: &RootNode) -> io::Result<()> {
    let node = match node {
        RootNode::Folder { mode } => Node::Folder {
            mode: u32::from(*mode),
        },
        RootNode::Link { target } => Node::Link {
            target: OsStr::from_bytes(target).into(),
        },
        RootNode::File { mode, size } => {
            let mode = u32::from(*mode);
            match root.host_path(path) {
                Some(path) => Node::HostFile {
                    mode,
                    path,
                    size: *size,
                },
                None => Node::Text {
                    mode,
                    contents: root.read(path, *size)?,
                },
            }
        }
    };
    files.add_below(Path::new(OsStr::from_bytes(path)), node);
    Ok(())
}

fn shown(path: &[u8]) -> String {
    format!("--root: {}", String::from_utf8_lossy(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_guest_gets_what_another_has_seen() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("lib/listed/inner")).unwrap();
        for name in ["lib/used", "lib/unused", "lib/listed/one", "lib/own"] {
            fs::write(at(name), name).unwrap();
        }
        symlink("used", at("lib/link")).unwrap();
        let root = RootTree::open(folder.path()).unwrap();
        let mut record = Record::default();
        for path in ["/lib", "/lib/used", "/lib/link", "/lib/absent", "/lib/own"] {
            let path = path.as_bytes();
            record.found(path, root.node(path).unwrap());
        }
        record.found(b"/lib/listed", Some(RootNode::Folder { mode: 0o755 }));
        record.read(b"/lib/listed", String::new());
        let mut files = Tree::default();
        files.add_text("/lib/own", 0o600, "the guest's own");
        carry(&record, &root, &mut files).unwrap();
        let names: Vec<_> = files
            .nodes()
            .map(|(path, _)| path.to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "/",
                "/lib",
                "/lib/link",
                "/lib/listed",
                "/lib/listed/inner",
                "/lib/listed/one",
                "/lib/own",
                "/lib/used"
            ]
        );
        let own = files
            .nodes()
            .find(|(path, _)| *path == Path::new("/lib/own"));
        assert!(matches!(own, Some((_, Node::Text { mode: 0o600, .. }))));
    }
}
