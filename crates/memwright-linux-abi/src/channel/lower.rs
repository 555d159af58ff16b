//! Requests of the guest to the `memwright` command for the lower tree (the files of `--root`), and the answers of the
//! command.
//!
//! A request is the payload of a frame of kind [`Channel::LowerRequest`](super::Channel::LowerRequest). Its answer is
//! in the input area of the window: a status byte, which is 0 or an error number, and the data that follows it.

use alloc::vec::Vec;

/// The maximum number of bytes of a file in one answer: a multiple of the page size.
pub const LOWER_READ: usize = 60 << 10;
/// The number of bytes of a request before its path.
pub const REQUEST_HEADER: usize = 9;
/// The number of bytes of an encoded node before the target, if the node is a symbolic link.
const NODE_HEADER: usize = 13;

/// A request. Paths start with a slash, and none of their components is `.`, `..` or a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowerRequest<'a> {
    /// Looks up a path. The answer is an encoded [`LowerNode`].
    LookUp {
        /// The path in the lower tree.
        path: &'a [u8],
    },
    /// Lists the entries of a folder, sorted by name, from the index `from` on. The answer has as many entries as fit
    /// in the input area. It is empty if the folder has no entry with the index `from`.
    List {
        /// The path of the folder.
        path: &'a [u8],
        /// The number of entries that earlier answers contained.
        from: u64,
    },
    /// Reads a file, starting at `offset`. The answer has [`LOWER_READ`] bytes, or fewer at the end of the file.
    Read {
        /// The path of the file.
        path: &'a [u8],
        /// The offset in bytes, a multiple of [`LOWER_READ`].
        offset: u64,
    },
    /// Reports that a file cannot be opened because it does not fit into the guest's memory. The answer has no data.
    NoRoom {
        /// The path of the file.
        path: &'a [u8],
    },
}

impl<'a> LowerRequest<'a> {
    /// Encodes the part of the request before the path.
    #[must_use]
    pub fn header(&self) -> [u8; REQUEST_HEADER] {
        let (kind, number) = match *self {
            Self::LookUp { .. } => (1, 0),
            Self::List { from, .. } => (2, from),
            Self::Read { offset, .. } => (3, offset),
            Self::NoRoom { .. } => (4, 0),
        };
        let mut header = [kind; REQUEST_HEADER];
        header[1..].copy_from_slice(&u64::to_le_bytes(number));
        header
    }

    /// Returns the path of the request.
    #[must_use]
    pub const fn path(&self) -> &'a [u8] {
        match *self {
            Self::LookUp { path }
            | Self::List { path, .. }
            | Self::Read { path, .. }
            | Self::NoRoom { path } => path,
        }
    }

    /// Decodes a request: the header, and the path after it. Returns `None` if the payload is too short or its kind is
    /// unknown.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let (header, path) = payload.split_first_chunk::<REQUEST_HEADER>()?;
        let (kind, number) = header.split_first()?;
        let number = u64::from_le_bytes(number.try_into().ok()?);
        match kind {
            1 => Some(Self::LookUp { path }),
            2 => Some(Self::List { path, from: number }),
            3 => Some(Self::Read {
                path,
                offset: number,
            }),
            4 => Some(Self::NoRoom { path }),
            _ => None,
        }
    }
}

/// A file, folder or symbolic link of the lower tree. Its owner in the guest is root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowerNode<'a> {
    /// A folder.
    Folder {
        /// The permission bits.
        permissions: u16,
    },
    /// A symbolic link.
    Link {
        /// The target of the link.
        target: &'a [u8],
    },
    /// A regular file.
    File {
        /// The permission bits.
        permissions: u16,
        /// Size in bytes.
        size: u64,
    },
}

impl<'a> LowerNode<'a> {
    /// The maximum number of bytes of an encoded node. Linux limits the target of a symbolic link to 4095 bytes.
    pub const LONGEST: usize = NODE_HEADER + 4095;

    /// Appends the encoded node to `to`.
    #[expect(clippy::disallowed_methods, reason = "runs in the command")]
    pub fn encode(&self, to: &mut Vec<u8>) {
        let (kind, permissions, size, target): (u8, u16, u64, &[u8]) = match *self {
            Self::Folder { permissions } => (1, permissions, 0, b""),
            Self::Link { target } => (2, 0o777, 0, target),
            Self::File { permissions, size } => (3, permissions, size, b""),
        };
        to.push(kind);
        to.extend_from_slice(&permissions.to_le_bytes());
        to.extend_from_slice(&size.to_le_bytes());
        to.extend_from_slice(&(target.len() as u16).to_le_bytes());
        to.extend_from_slice(target);
    }

    /// Decodes the node at the start of `bytes`. Returns the node and the bytes after it, or `None` if bytes are
    /// missing or the kind of the node is unknown.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = bytes.split_first_chunk::<NODE_HEADER>()?;
        let permissions = u16::from_le_bytes([header[1], header[2]]) & 0o7777;
        let size = u64::from_le_bytes(header[3..11].try_into().ok()?);
        let length = u16::from_le_bytes([header[11], header[12]]);
        let (target, rest) = rest.split_at_checked(usize::from(length))?;
        let node = match header[0] {
            1 => Self::Folder { permissions },
            2 => Self::Link { target },
            3 => Self::File { permissions, size },
            _ => return None,
        };
        Some((node, rest))
    }
}

/// An entry of a folder of the lower tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowerEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The node with this name.
    pub node: LowerNode<'a>,
}

impl<'a> LowerEntry<'a> {
    /// Appends the encoded entry to `to`. The name has at most 255 bytes.
    #[expect(clippy::disallowed_methods, reason = "runs in the command")]
    pub fn encode(&self, to: &mut Vec<u8>) {
        to.push(self.name.len() as u8);
        to.extend_from_slice(self.name);
        self.node.encode(to);
    }

    /// Decodes the entry at the start of `bytes`. Returns the entry and the bytes after it, or `None` if bytes are
    /// missing or the kind of its node is unknown.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&length, rest) = bytes.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(length))?;
        let (node, rest) = LowerNode::decode(rest)?;
        Some((Self { name, node }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_channel() {
        let path: &[u8] = b"/usr/lib";
        for request in [
            LowerRequest::LookUp { path },
            LowerRequest::List { path, from: 300 },
            LowerRequest::Read {
                path,
                offset: 1 << 40,
            },
            LowerRequest::NoRoom { path: b"" },
        ] {
            let payload = [&request.header()[..], request.path()].concat();
            assert_eq!(LowerRequest::decode(&payload), Some(request));
        }
        assert_eq!(LowerRequest::decode(&[1; 8]), None);
        assert_eq!(LowerRequest::decode(&[9; 20]), None);
    }

    #[test]
    fn entries_survive_the_channel() {
        let nodes = [
            LowerNode::Folder { permissions: 0o755 },
            LowerNode::Link {
                target: b"../elsewhere",
            },
            LowerNode::File {
                permissions: 0o4755,
                size: 5 << 32,
            },
        ];
        let mut bytes = Vec::new();
        for node in nodes {
            LowerEntry {
                name: b"name",
                node,
            }
            .encode(&mut bytes);
        }
        let mut rest = &bytes[..];
        for node in nodes {
            let (entry, after) = LowerEntry::decode(rest).unwrap();
            assert_eq!((entry.name, entry.node), (&b"name"[..], node));
            rest = after;
        }
        assert!(rest.is_empty());
        assert!((0..20).all(|cut| LowerEntry::decode(&bytes[..cut.min(17)]).is_none()));
        assert_eq!(LowerNode::decode(&[7; 20]), None);
    }
}
