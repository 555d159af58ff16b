//! Messages between sockets, and the arguments and results of sends and receives.

use crate::fs::{
    open_file::OpenFile,
    socket::{address::Address, credentials::Credentials, flight::Cargo},
};

use alloc::{sync::Arc, vec::Vec};

/// Charge of a message in bytes, in addition to that of its contents.
const OVERHEAD: usize = 256;

/// Maximum size in bytes of a message in which several writes to a stream are combined.
const JOINED: usize = 4096;

/// A message in an inbox.
pub struct Message {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// For a stream, number of bytes that were received already.
    pub start: usize,
    /// The open files that the message carries.
    pub rights: Cargo,
    /// The sender's credentials.
    pub credentials: Credentials,
    /// The sender's name.
    pub address: Option<Address>,
}

impl Message {
    /// Returns the present charge of the message in bytes, without the bytes that were received already.
    #[must_use]
    pub fn charge(&self) -> usize {
        self.bytes.len() - self.start + OVERHEAD
    }

    /// Returns the charge in bytes of a new message with `length` bytes.
    #[must_use]
    pub const fn charge_of(length: usize) -> usize {
        length + OVERHEAD
    }

    /// Returns whether `bytes` more bytes of a stream, from a sender with these credentials, can be appended to this
    /// message.
    #[must_use]
    pub fn may_grow(&self, bytes: usize, credentials: &Credentials) -> bool {
        self.rights.is_empty()
            && self.credentials == *credentials
            && self.bytes.len() + bytes <= JOINED
    }
}

/// The arguments of a send other than its bytes.
#[derive(Default)]
pub struct Request {
    /// The name of the receiver; `None` for the peer.
    pub address: Option<Address>,
    /// Open files.
    pub rights: Vec<Arc<OpenFile>>,
    /// The credentials that the sender passes explicitly.
    pub credentials: Option<Credentials>,
    /// The `MSG_` flags.
    pub flags: u32,
}

/// The results of a receive other than its bytes.
#[derive(Default)]
pub struct Received {
    /// Number of bytes stored.
    pub count: usize,
    /// Length of the complete message.
    pub length: usize,
    /// Open files that the message carried.
    pub rights: Vec<Arc<OpenFile>>,
    /// The sender's credentials; `None` if nothing was received.
    pub credentials: Option<Credentials>,
    /// The sender's name.
    pub address: Option<Address>,
}
