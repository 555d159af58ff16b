//! Netlink sockets, through which programs query network interfaces, addresses and routes (`NETLINK_ROUTE`).
//!
//! The only interface is the loopback interface, whose properties are in [`interface`](crate::fs::interface). A send
//! processes the requests that it contains, and queues the replies. The bytes of a reply are generated only when the
//! program receives the reply. The size of the receive buffer limits the queue.

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
