//! Serves the guest's requests for the tree of `--root`.

use std::io;

use memwright_linux_abi::channel::lower::{LOWER_READ, LowerEntry, LowerNode, LowerRequest};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::guestfs::root::record::Record;
use crate::guestfs::root::tree::{Contents, RootNode, RootTree, is_hidden};
use crate::host::output::say;
use crate::model::hash::hexadecimal;

/// The maximum length in bytes of an answer with a folder's entries, including the status byte.
const LIST: usize = 32 << 10;

/// A tree, and the record of what the guest looked up in it.
pub struct RootServer {
    tree: RootTree,
    record: Record,
    reading: Option<Reading>,
    listing: Option<Listing>,
    /// Whether a file changed while the guest read it.
    changed: bool,
}

/// The file that the guest is copying.
struct Reading {
    path: Vec<u8>,
    contents: Box<dyn Contents + Send>,
    state: (u64, i64, i64),
    hash: Sha256,
    next: u64,
}

/// The folder that the guest is listing.
struct Listing {
    path: Vec<u8>,
    entries: Vec<(Vec<u8>, RootNode)>,
}

impl RootServer {
    /// Creates the server of a tree.
    pub fn new(tree: RootTree) -> Self {
        Self {
            tree,
            record: Record::default(),
            reading: None,
            listing: None,
            changed: false,
        }
    }

    /// Returns the record of what the guest looked up.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Returns whether a file changed while the guest read it. If it did, a second run could read other contents.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Returns the answer to the request in `payload`: a status byte, then the data.
    pub fn answer(&mut self, payload: &[u8]) -> Vec<u8> {
        let data = match LowerRequest::decode(payload) {
            Some(LowerRequest::LookUp { path }) => self.look_up(path),
            Some(LowerRequest::List { path, from }) => self.list(path, from),
            Some(LowerRequest::Read { path, offset }) => self.read(path, offset),
            Some(LowerRequest::NoRoom { path }) => {
                let path = String::from_utf8_lossy(path);
                say(&format!(
                    "{path}: does not fit into the guest's memory: use a larger --memory"
                ));
                Ok(Vec::new())
            }
            None => Err(Errno::INVAL.into()),
        };
        match data {
            Ok(data) => [&[0], &data[..]].concat(),
            Err(error) => vec![status(&error)],
        }
    }

    /// Returns the node at a path, and records it. Later lookups of the path return the recorded node.
    fn node(&mut self, path: &[u8]) -> io::Result<Option<RootNode>> {
        if let Some(node) = self.record.node(path) {
            return Ok(node.clone());
        }
        let node = self.tree.node(path)?;
        // Hidden paths are not recorded, because whether a path is hidden does not depend on the tree.
        if !is_hidden(path) {
            self.record.found(path, node.clone());
        }
        Ok(node)
    }

    fn look_up(&mut self, path: &[u8]) -> io::Result<Vec<u8>> {
        let node = self.node(path)?.ok_or(Errno::NOENT)?;
        let mut data = Vec::new();
        encoded(&node).encode(&mut data);
        Ok(data)
    }

    fn list(&mut self, path: &[u8], from: u64) -> io::Result<Vec<u8>> {
        let is_read = |listing: &&Listing| listing.path == path;
        if self.listing.as_ref().filter(is_read).is_none() {
            let entries = self.entries(path)?;
            let path = path.to_vec();
            self.listing = Some(Listing { path, entries });
        }
        let listing = self.listing.as_ref();
        let entries = listing.map_or(&[][..], |listing| &listing.entries);
        let mut data = Vec::new();
        for (name, node) in entries.iter().skip(from as usize) {
            let start = data.len();
            let node = encoded(node);
            LowerEntry { name, node }.encode(&mut data);
            if 1 + data.len() > LIST {
                data.truncate(start);
                break;
            }
        }
        Ok(data)
    }

    /// Reads a folder, and records the hash of its entries. The entries are not recorded individually, because the
    /// guest does not look them up again.
    fn entries(&mut self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, RootNode)>> {
        let mut hash = Sha256::new();
        let mut entries = Vec::new();
        for name in self.tree.names(path)? {
            let below = [path, b"/", &name[..]].concat();
            let known = self.record.node(&below).cloned();
            let Some(node) = known.map_or_else(|| self.tree.node(&below), Ok)? else {
                continue;
            };
            let mut entry = Vec::new();
            let (name_only, encoded) = (&name[..], encoded(&node));
            LowerEntry {
                name: name_only,
                node: encoded,
            }
            .encode(&mut entry);
            hash.update(&entry);
            entries.push((name, node));
        }
        let folder = if path.is_empty() { b"/" } else { path };
        if self.record.node(folder).is_none() {
            let mode = 0o755;
            self.record.found(folder, Some(RootNode::Folder { mode }));
        }
        self.record.read(folder, hexadecimal(&hash.finalize()));
        Ok(entries)
    }

    fn read(&mut self, path: &[u8], offset: u64) -> io::Result<Vec<u8>> {
        let Some(RootNode::File { size, .. }) = self.node(path)? else {
            return Err(Errno::ISDIR.into());
        };
        let mut reading = match self.reading.take() {
            Some(reading) if reading.path == path && reading.next == offset => reading,
            Some(_) | None => {
                let contents = self.tree.contents(path)?;
                let state = contents.state()?;
                Reading {
                    path: path.to_vec(),
                    contents,
                    state,
                    hash: Sha256::new(),
                    next: 0,
                }
            }
        };
        let wanted = size.saturating_sub(offset).min(LOWER_READ as u64) as usize;
        let mut data = vec![0; wanted];
        let got = reading.contents.read_at(&mut data, offset)?;
        let same = reading.contents.state()? == reading.state && reading.state.0 == size;
        if got < wanted || !same {
            let path = String::from_utf8_lossy(path);
            say(&format!("{path}: changed while the guest used it"));
            self.changed = true;
            return Err(Errno::IO.into());
        }
        reading.hash.update(&data);
        reading.next = offset + wanted as u64;
        if reading.next == size {
            self.record
                .read(path, hexadecimal(&reading.hash.finalize()));
        } else {
            self.reading = Some(reading);
        }
        Ok(data)
    }
}

/// Converts a node to the format of the protocol.
fn encoded(node: &RootNode) -> LowerNode<'_> {
    match node {
        RootNode::Folder { mode } => LowerNode::Folder { permissions: *mode },
        RootNode::Link { target } => LowerNode::Link { target },
        RootNode::File { mode, size } => LowerNode::File {
            permissions: *mode,
            size: *size,
        },
    }
}

/// Returns the status byte that reports an error.
fn status(error: &io::Error) -> u8 {
    let number = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
    u8::try_from(number).unwrap_or(Errno::IO.raw_os_error() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn ask(server: &mut RootServer, request: LowerRequest<'_>) -> Vec<u8> {
        server.answer(&[&request.header()[..], request.path()].concat())
    }

    #[test]
    fn answers_stay_the_same_and_changes_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let large = vec![7; LOWER_READ + 5];
        fs::write(folder.path().join("large"), &large).unwrap();
        fs::write(folder.path().join("small"), "x").unwrap();
        let mut server = RootServer::new(RootTree::open(folder.path()).unwrap());
        let absent = ask(&mut server, LowerRequest::LookUp { path: b"/late" });
        assert_eq!(absent, [Errno::NOENT.raw_os_error() as u8]);
        fs::write(folder.path().join("late"), "y").unwrap();
        assert_eq!(
            ask(&mut server, LowerRequest::LookUp { path: b"/late" }),
            absent
        );
        let list = ask(&mut server, LowerRequest::List { path: b"", from: 0 });
        let mut rest = &list[1..];
        let mut names = Vec::new();
        while let Some((entry, after)) = LowerEntry::decode(rest) {
            names.push(entry.name.to_vec());
            rest = after;
        }
        assert_eq!(names, [b"large", b"small"]);
        assert_eq!(
            ask(&mut server, LowerRequest::List { path: b"", from: 2 }),
            [0]
        );
        let path = b"/large";
        let first = ask(&mut server, LowerRequest::Read { path, offset: 0 });
        assert_eq!(first[1..], large[..LOWER_READ]);
        let offset = LOWER_READ as u64;
        let last = ask(&mut server, LowerRequest::Read { path, offset });
        assert_eq!(last.len(), 1 + 5);
        assert!(!server.has_changed());
        assert_eq!(
            server
                .record()
                .lines()
                .filter(|line| line.contains("sha256"))
                .count(),
            2
        );
        ask(&mut server, LowerRequest::LookUp { path: b"/small" });
        fs::write(folder.path().join("small"), "longer").unwrap();
        let path = b"/small";
        let answer = ask(&mut server, LowerRequest::Read { path, offset: 0 });
        assert_eq!(answer, [Errno::IO.raw_os_error() as u8]);
        assert!(server.has_changed());
    }

    #[test]
    fn nonsense_is_refused() {
        let mut server = RootServer::new(RootTree::open(std::path::Path::new("/")).unwrap());
        assert_eq!(server.answer(&[1, 2]), [Errno::INVAL.raw_os_error() as u8]);
        let path = b"/proc/self/status";
        let refused = ask(&mut server, LowerRequest::LookUp { path });
        assert_eq!(refused, [Errno::NOENT.raw_os_error() as u8]);
    }
}
