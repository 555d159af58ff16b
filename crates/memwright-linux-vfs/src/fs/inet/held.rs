//! What a socket holds in the tables of the network.

use crate::fs::inet::{
    address::Endpoint,
    claims::{Claim, Protocol},
    place::Place,
};
use core::cmp::Ordering;

/// The key by which the network finds the sockets that receive what is sent to an address and port: listening sockets
/// and datagram sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// The addresses.
    pub place: Place,
    /// The only sender, for a connected datagram socket.
    pub from: Option<Endpoint>,
}

/// The key of one end of a connection. Keys are ordered by ports first, in which they nearly always differ.
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

/// What a socket holds in the tables of the network, and its names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// The port.
    pub claim: Option<Claim>,
    /// Whether the program chose the port, so that the socket keeps it without a connection.
    pub keeps_port: bool,
    /// Whether the program chose the address.
    pub keeps_address: bool,
    /// Where the socket receives.
    pub seat: Option<Seat>,
    /// The connection.
    pub flow: Option<Flow>,
    /// The name of the socket.
    pub local: Option<Endpoint>,
    /// The name of its peer.
    pub remote: Option<Endpoint>,
    /// Whether the socket was closed: it holds nothing any more.
    pub closed: bool,
}
