//! The types of Unix sockets.

use linux_raw_sys::net;

/// The type of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// A byte stream.
    Stream,
    /// Messages without a connection.
    Datagram,
    /// Messages over a connection.
    Sequence,
}

impl SocketKind {
    /// Returns the type whose number is `number`, or `None` if that type is not supported. The caller has removed the
    /// flags `SOCK_NONBLOCK` and `SOCK_CLOEXEC`.
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

/// Maximum number of datagrams in an inbox while another can still be added (`net.unix.max_dgram_qlen` of Linux 7.2).
pub(super) const MOST_DATAGRAMS: usize = 10;
