//! Records what a guest looked up in the tree of `--root`.

use std::collections::BTreeMap;

use crate::guestfs::root::tree::RootNode;

/// The result of each lookup of the guest, by path. A later lookup of the same path returns the recorded result.
#[derive(Debug, Default, Clone)]
pub struct Record {
    nodes: BTreeMap<Vec<u8>, Option<RootNode>>,
    /// By path: for each file that was read, the SHA-256 of its contents; for each folder that was listed, the SHA-256
    /// of its entries.
    hashes: BTreeMap<Vec<u8>, String>,
}

impl Record {
    /// Returns the node that the guest found at a path, `Some(None)` if it found none, or `None` if it has not looked
    /// up the path.
    pub fn node(&self, path: &[u8]) -> Option<&Option<RootNode>> {
        self.nodes.get(path)
    }

    /// Records the result of looking up a path.
    pub fn found(&mut self, path: &[u8], node: Option<RootNode>) {
        self.nodes.insert(path.to_vec(), node);
    }

    /// Records the hash of the contents that were read from a path.
    pub fn read(&mut self, path: &[u8], hash: String) {
        self.hashes.insert(path.to_vec(), hash);
    }

    /// Returns the paths at which the guest found a node, and the nodes.
    pub fn found_nodes(&self) -> impl Iterator<Item = (&[u8], &RootNode)> {
        let nodes = self.nodes.iter();
        nodes.filter_map(|(path, node)| Some((&path[..], node.as_ref()?)))
    }

    /// Returns the folders whose entries the guest listed.
    pub fn listed(&self) -> impl Iterator<Item = &[u8]> {
        let folders = self
            .found_nodes()
            .filter(|(_, node)| matches!(node, RootNode::Folder { .. }));
        let paths = folders.map(|(path, _)| path);
        paths.filter(|path| self.hashes.contains_key(*path))
    }

    /// Returns one line for each path that was looked up: the path, and a description of its node.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().map(|(path, node)| {
            let node = match node {
                None => "absent".to_owned(),
                Some(RootNode::Folder { mode }) => format!("folder {mode:o}"),
                Some(RootNode::Link { target }) => {
                    format!("link to {}", String::from_utf8_lossy(target))
                }
                Some(RootNode::File { mode, size }) => format!("file {mode:o} of {size} bytes"),
            };
            let hash = self.hashes.get(path);
            let hash = hash.map_or_else(String::new, |hash| format!(" sha256 {hash}"));
            format!("{} {node}{hash}", String::from_utf8_lossy(path))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_a_line() {
        let mut record = Record::default();
        record.found(b"/x", None);
        record.found(b"/a", Some(RootNode::Folder { mode: 0o755 }));
        let file = RootNode::File {
            mode: 0o644,
            size: 3,
        };
        record.found(b"/a/f", Some(file));
        record.read(b"/a/f", "00ff".to_owned());
        let target = b"a".to_vec();
        record.found(b"/l", Some(RootNode::Link { target }));
        let lines: Vec<String> = record.lines().collect();
        assert_eq!(
            lines,
            [
                "/a folder 755",
                "/a/f file 644 of 3 bytes sha256 00ff",
                "/l link to a",
                "/x absent"
            ]
        );
    }
}
