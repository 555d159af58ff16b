//! The entries of a socket in the tables of the network: its port, the address where it receives, and its connection.

use crate::fs::inet::{
    address::Endpoint,
    claims::{Claim, Protocol},
    place::Place,
};
use core::cmp::Ordering;

/// The key of a group of sockets that receive at an address and port. Listening sockets and datagram sockets are in
/// such groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// The addresses at which the sockets receive.
    pub place: Place,
    /// For a connected datagram socket, the peer, which is the only sender from which it receives; `None` for other
    /// sockets.
    pub from: Option<Endpoint>,
}

/// The key of one end of a connection. The ports are compared first, because two keys nearly always differ in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The address and port of this end.
    pub local: Endpoint,
    /// The address and port of the other end.
    pub remote: Endpoint,
}

impl Ord for Flow {
    fn cmp(&self, other: &Self) -> Ordering {
        let addresses = |flow: &Self| (flow.local.ip, flow.remote.ip);
        let by_ports = self.ports().cmp(&other.ports());
        by_ports.then_with(|| addresses(self).cmp(&addresses(other)))
    }
}

impl PartialOrd for Flow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Flow {
    const fn ports(&self) -> u32 {
        (self.local.port as u32) << 16 | self.remote.port as u32
    }

    /// Returns the key of the other end.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            local: self.remote,
            remote: self.local,
        }
    }
}

/// The entries of a socket in the tables of the network, and the addresses of the socket and its peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// The claim on a port.
    pub claim: Option<Claim>,
    /// Whether the program chose the port. The socket then keeps the port when its connection ends.
    pub keeps_port: bool,
    /// Whether the program chose the address. The socket then keeps the address when its connection ends.
    pub keeps_address: bool,
    /// The key under which a listening or datagram socket receives; `None` for the end of a connection.
    pub seat: Option<Seat>,
    /// The key of the end of a connection; `None` for listening and datagram sockets.
    pub flow: Option<Flow>,
    /// The address and port of the socket.
    pub local: Option<Endpoint>,
    /// The address and port of the peer.
    pub remote: Option<Endpoint>,
    /// Whether the socket was closed. A closed socket has no entries.
    pub closed: bool,
}
