//! Internet sockets of one machine: TCP and UDP over IPv4 and IPv6, at the addresses of the loopback interface.
//!
//! No packets exist: a send appends to the inbox of the receiving socket, which it finds by address and port in the
//! tables of [`Network`]. A thread locks the state of at most one socket at a time, and releases that lock before it
//! takes the lock of these tables.

mod address;
mod ancillary;
mod bind;
mod census;
mod choices;
mod claims;
mod close;
mod connect;
mod file;
mod group;
mod held;
mod info;
mod listen;
mod network;
mod option;
mod piece;
mod place;
mod receive;
mod send;
mod socket;
mod state;
mod urgent;

pub use address::{Encoded, Endpoint, Family, Ip, NAME_MAX, Name, decode, encode};
pub use ancillary::{Header, tell};
pub use census::{Found, Row, Spot};
pub use claims::Protocol;
pub use close::InetFile;
pub use file::open;
pub use network::Network;
pub use option::Value;
pub use receive::Incoming;
pub use send::Outgoing;
pub use socket::InetSocket;
pub use state::TcpState;
