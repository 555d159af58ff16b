//! Follows symbolic links in a tree.

use std::io;

use rustix::io::Errno;

use crate::guestfs::root::tree::{RootNode, RootTree};
use crate::model::hash::hexadecimal_hash;

/// The maximum number of links that are followed in one path, as on Linux.
const MOST_LINKS: usize = 40;

impl RootTree {
    /// Resolves all symbolic links in a path. Returns `None` if the path does not lead to a node.
    ///
    /// # Errors
    /// I/O errors, and `ELOOP` if there are too many links.
    pub fn resolve(&self, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut rest: Vec<Vec<u8>> = names(path);
        let mut resolved: Vec<Vec<u8>> = Vec::new();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == b".." {
                resolved.pop();
                continue;
            }
            resolved.push(name);
            match self.node(&joined(&resolved))? {
                None => return Ok(None),
                Some(RootNode::Link { target }) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    resolved.pop();
                    if target.starts_with(b"/") {
                        resolved.clear();
                    }
                    rest.extend(names(&target));
                }
                Some(RootNode::Folder { .. } | RootNode::File { .. }) => {}
            }
        }
        Ok(Some(joined(&resolved)))
    }

    /// Reads the file to which a path leads, following links. Returns `None` if there is no file.
    ///
    /// # Errors
    /// The errors of [`resolve`](Self::resolve).
    pub fn file(&self, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let Some(path) = self.resolve(path)? else {
            return Ok(None);
        };
        match self.node(&path)? {
            Some(RootNode::File { size, .. }) => self.read(&path, size).map(Some),
            Some(RootNode::Folder { .. } | RootNode::Link { .. }) | None => Ok(None),
        }
    }

    /// Returns the SHA-256 of the file to which a path leads, following links; `None` if there is no file.
    ///
    /// # Errors
    /// The errors of [`resolve`](Self::resolve).
    pub fn hash(&self, path: &[u8]) -> io::Result<Option<String>> {
        let file = self.file(path)?;
        Ok(file.map(|bytes| hexadecimal_hash(&bytes)))
    }
}

/// Returns the names in a path in reverse order.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').rev();
    let real = names.filter(|name| !name.is_empty() && *name != b".");
    real.map(<[u8]>::to_vec).collect()
}

/// Joins names to an absolute path.
fn joined(names: &[Vec<u8>]) -> Vec<u8> {
    names
        .iter()
        .flat_map(|name| [b"/", &name[..]].concat())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_lead_within_the_tree() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("usr/bin")).unwrap();
        fs::write(at("usr/bin/tool"), "x").unwrap();
        symlink("usr/bin", at("bin")).unwrap();
        symlink("/bin/tool", at("usr/again")).unwrap();
        symlink("../../../bin/./tool", at("usr/up")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("missing", at("broken")).unwrap();
        let tree = RootTree::open(folder.path()).unwrap();
        let tool = Some(b"/usr/bin/tool".to_vec());
        for (path, end) in [
            ("/bin/tool", &tool),
            ("/usr/again", &tool),
            ("/usr/up", &tool),
            ("/broken", &None),
            ("/bin/tool/below", &None),
        ] {
            assert_eq!(&tree.resolve(path.as_bytes()).unwrap(), end, "{path}");
        }
        assert!(tree.resolve(b"/loop").is_err());
        assert_eq!(
            tree.hash(b"/usr/again").unwrap().map(|hash| hash.len()),
            Some(64)
        );
        assert_eq!(tree.hash(b"/usr").unwrap(), None);
    }
}
