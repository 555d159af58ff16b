//! Messages between sockets, and the arguments and results of sends and receives.

use crate::fs::{
    open_file::OpenFile,
    socket::{address::Address, credentials::Credentials, flight::Cargo},
};

use alloc::{sync::Arc, vec::Vec};

/// Charge in bytes of a message, in addition to that of its bytes.
const OVERHEAD: usize = 256;

/// Maximum size in bytes of a message in which several writes to a stream are combined.
const JOINED: usize = 4096;

/// A message in an inbox.
pub struct Message {
    /// The data, including the part that was received already.
    pub bytes: Vec<u8>,
    /// Number of bytes that were received already; 0 unless the socket is a stream.
    pub start: usize,
    /// The open files that the message carries.
    pub rights: Cargo,
    /// The credentials of the process that sent the message.
    pub credentials: Credentials,
    /// The name to which the sender is bound, if any.
    pub address: Option<Address>,
}

impl Message {
    /// Returns the charge in bytes of the message, without the bytes that were received already.
    #[must_use]
    pub fn charge(&self) -> usize {
        self.bytes.len() - self.start + OVERHEAD
    }

    /// Returns the charge in bytes of a new message with `length` bytes.
    #[must_use]
    pub const fn charge_of(length: usize) -> usize {
        length + OVERHEAD
    }

    /// Returns whether `bytes` more bytes of a stream can be appended to this message. The bytes come from a sender
    /// with the credentials `credentials`.
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
    /// The open files that the message is to carry.
    pub rights: Vec<Arc<OpenFile>>,
    /// The credentials that the program passes explicitly (`SCM_CREDENTIALS`).
    pub credentials: Option<Credentials>,
    /// The `MSG_` flags.
    pub flags: u32,
}

/// The results of a receive other than its bytes.
#[derive(Default)]
pub struct Received {
    /// Number of bytes stored in the destination.
    pub count: usize,
    /// Length of the complete message in bytes, even if it was truncated.
    pub length: usize,
    /// Open files that the message carried.
    pub rights: Vec<Arc<OpenFile>>,
    /// The sender's credentials; `None` if nothing was received.
    pub credentials: Option<Credentials>,
    /// The name to which the sender is bound, if any.
    pub address: Option<Address>,
}
