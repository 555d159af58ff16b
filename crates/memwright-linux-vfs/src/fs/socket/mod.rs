//! Unix sockets.
//!
//! Messages wait in the inbox of the receiving socket. A socket has only a weak reference to its peer, so that a
//! connection does not keep its sockets alive. A thread locks the state of at most one socket at a time.

mod address;
mod census;
mod close;
mod connect;
mod credentials;
mod file;
mod flight;
mod graph;
mod handle;
mod kind;
mod message;
mod option;
mod options;
mod receive;
mod registry;
mod remains;
mod send;
#[expect(
    clippy::module_inception,
    reason = "the folder is about sockets, and the file about one"
)]
mod socket;

pub use address::{ADDRESS_MAX, Address};
pub use census::{Found as FoundSocket, Row as SocketRow};
pub use close::Directions;
pub use connect::pair;
pub use credentials::Credentials;
pub use file::open;
pub use flight::{Cargo, Flights};
pub use handle::SocketFile;
pub use kind::SocketKind;
pub use message::{Message, Received, Request};
pub use options::{OptionValue, Options, buffer_size};
pub use registry::Registry;
pub use remains::Remains;
pub use socket::Socket;
