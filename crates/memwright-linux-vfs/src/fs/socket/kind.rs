//! The types of sockets.

use linux_raw_sys::net;

/// The type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// A byte stream.
    Stream,
    /// Connectionless messages.
    Datagram,
    /// Messages over a connection.
    Sequence,
}

impl SocketKind {
    /// Returns the type with this number, from which the flags of `socket` were removed. Returns `None` if the type is
    /// not supported.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            net::SOCK_STREAM => Some(Self::Stream),
            // Linux treats raw Unix sockets as datagram sockets.
            net::SOCK_DGRAM | net::SOCK_RAW => Some(Self::Datagram),
            net::SOCK_SEQPACKET => Some(Self::Sequence),
            _ => None,
        }
    }

    /// Returns the type number.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Stream => net::SOCK_STREAM,
            Self::Datagram => net::SOCK_DGRAM,
            Self::Sequence => net::SOCK_SEQPACKET,
        }
    }

    /// Returns whether a socket of this type must be connected before it can send.
    pub(super) const fn connects(self) -> bool {
        match self {
            Self::Stream | Self::Sequence => true,
            Self::Datagram => false,
        }
    }
}

/// Limit on datagrams in an inbox (`net.unix.max_dgram_qlen` of Linux 7.2).
pub(super) const MOST_DATAGRAMS: usize = 10;
