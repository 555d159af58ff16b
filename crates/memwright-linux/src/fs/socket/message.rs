//! What travels between sockets.

use super::{flight::Cargo, name::Address};
use crate::{abi_struct, context::Context, fs::open_file::OpenFile};
use alloc::{sync::Arc, vec::Vec};

abi_struct! {
    /// `struct ucred` of `linux/socket.h`.
    pub struct Credentials {
        /// Process id.
        pub process: u32,
        /// User id.
        pub user: u32,
        /// Group id.
        pub group: u32,
    }
}

impl Credentials {
    /// Those of the caller.
    #[must_use]
    pub fn of(context: &Context<'_>) -> Self {
        let process = context.process();
        let credentials = process.credentials.lock();
        Self {
            process: process.id,
            user: credentials.user.real,
            group: credentials.group.real,
        }
    }
}

/// What a message costs beside its bytes.
const OVERHEAD: usize = 256;

/// Bytes up to which what is written to a stream joins what waits there.
const JOINED: usize = 4096;

/// A message in an inbox.
pub struct Message {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Bytes that were received already, of a stream.
    pub start: usize,
    /// Open files that travel with it.
    pub rights: Cargo,
    /// Who sent it.
    pub credentials: Credentials,
    /// The sender's name.
    pub address: Option<Address>,
}

impl Message {
    /// What it is charged with while it waits.
    #[must_use]
    pub fn charge(&self) -> usize {
        self.bytes.len() - self.start + OVERHEAD
    }

    /// What a message of so many bytes is charged with.
    #[must_use]
    pub const fn charge_of(length: usize) -> usize {
        length + OVERHEAD
    }

    /// Whether bytes of a stream may follow in the same message.
    #[must_use]
    pub fn may_grow(&self, bytes: usize, credentials: &Credentials) -> bool {
        self.rights.is_empty()
            && self.credentials == *credentials
            && self.bytes.len() + bytes <= JOINED
    }
}

/// What a send sends beside its bytes.
#[derive(Default)]
pub struct Request {
    /// Where to; none for the peer.
    pub address: Option<Address>,
    /// Open files.
    pub rights: Vec<Arc<OpenFile>>,
    /// Credentials that were given.
    pub credentials: Option<Credentials>,
    /// The `MSG_` flags.
    pub flags: u32,
}

/// What a receive received beside its bytes.
#[derive(Default)]
pub struct Received {
    /// Bytes stored.
    pub count: usize,
    /// Bytes of the whole message.
    pub length: usize,
    /// Open files.
    pub rights: Vec<Arc<OpenFile>>,
    /// Who sent it; none if nothing came.
    pub credentials: Option<Credentials>,
    /// The sender's name.
    pub address: Option<Address>,
}
