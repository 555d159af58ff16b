//! Netlink sockets, by which programs ask the kernel about network interfaces, addresses and routes (`NETLINK_ROUTE`).
//!
//! The only interface is the loopback interface, whose facts are in [`interface`](crate::fs::interface). A request is
//! answered during the send: a reply is queued as what it describes, and its bytes are written when the program receives
//! it. The queue is bounded by the receive buffer.

mod address;
mod describe;
mod file;
mod option;
mod ports;
mod receive;
mod reply;
mod request;
mod route;
mod send;
mod socket;
mod writer;

pub use address::{NAME_SIZE, NetlinkName};
pub use file::{NetlinkFile, open};
pub use ports::Ports;
pub use receive::NetlinkReceived;
pub use socket::NetlinkSocket;
