//! Calculates the hash that identifies the guest's files in a document. It covers what the guest can observe of a file.

use anyhow::Context;
use sha2::{Digest, Sha256};
use std::os::unix::ffi::OsStrExt;

use crate::guestfs::tree::{Node, Tree};
use crate::host::host_file;
use crate::model::hash::{hash_part, hexadecimal};

/// Returns the SHA-256 of the paths, kinds, permissions and contents of a tree's nodes.
///
/// # Errors
/// I/O errors of reading the host's files.
pub fn digest(tree: &Tree) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    for (place, node) in tree.nodes() {
        let (kind, mode, contents) = match node {
            Node::Folder { mode } => (b'd', *mode, Vec::new()),
            Node::Text { mode, contents } => (b'f', *mode, contents.clone()),
            Node::Link { target } => (b'l', 0, target.as_os_str().as_bytes().to_vec()),
            Node::HostFile { mode, path, size } => {
                let contents = host_file::read_listed(path, *size)
                    .with_context(|| path.display().to_string())?;
                (b'f', *mode, contents)
            }
        };
        hash.update([kind]);
        hash.update(mode.to_le_bytes());
        for part in [place.as_os_str().as_bytes(), &contents] {
            hash_part(&mut hash, part);
        }
    }
    Ok(hexadecimal(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    #[test]
    fn whatever_the_guest_sees_changes_the_digest() {
        let host = tempfile::tempdir().unwrap();
        let file = host.path().join("file");
        let of = |guest: &str| {
            let mut tree = Tree::default();
            tree.add_copy(host.path(), Path::new(guest)).unwrap();
            digest(&tree).unwrap()
        };
        fs::write(&file, "one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let mut seen = vec![of("/x"), of("/y")];
        assert_eq!(of("/x"), seen[0]);
        fs::write(&file, "two").unwrap();
        seen.push(of("/x"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        seen.push(of("/x"));
        symlink("file", host.path().join("link")).unwrap();
        seen.push(of("/x"));
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
