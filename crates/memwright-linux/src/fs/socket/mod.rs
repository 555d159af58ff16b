//! Unix sockets. There is no network.
//!
//! Messages wait in the inbox of the receiving socket. A socket has only a weak reference to its peer, so its open file
//! keeps it alive, not its peer. A thread locks the state of at most one socket at a time.

mod close;
mod connect;
mod file;
mod flight;
mod graph;
mod message;
mod name;
mod options;
mod receive;
mod remains;
mod send;

pub use connect::pair;
pub use file::{SocketFile, open};
pub use flight::{Cargo, Flights};
pub use message::{Credentials, Message, Received, Request};
pub use name::{ADDRESS_MAX, Address, Registry};
pub use options::OptionValue;
pub use remains::Remains;

use crate::{
    errno::Errno,
    fs::{readiness::Readiness, turn::Turn},
    sweep::Sweep,
    sync::{Lock, Rank},
    wait::WaitQueue,
};
use alloc::{
    boxed::Box,
    collections::VecDeque,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::AtomicUsize;
use linux_raw_sys::net;
use memwright_table::{OutOfMemory, TryPush};
use remains::Shell;

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
    /// Returns the type for a number, which contains no flags of `socket`, or `None` if the type is not supported.
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
    const fn connects(self) -> bool {
        match self {
            Self::Stream | Self::Sequence => true,
            Self::Datagram => false,
        }
    }
}

/// Default limit on unread bytes (`net.core.wmem_default` of Linux 7.2).
const DEFAULT_BUFFER: usize = 212_992;

/// Limit on datagrams in an inbox (`net.unix.max_dgram_qlen` of Linux 7.2).
const MOST_DATAGRAMS: usize = 10;

/// The accept queue.
struct Listening {
    limit: usize,
    waiting: VecDeque<Arc<Socket>>,
}

/// The mutable state of a socket.
struct State {
    inbox: VecDeque<Message>,
    /// Number of open files that the messages of the inbox carry.
    carried: usize,
    /// Takes over the inbox when the socket is closed.
    shell: Option<Box<Shell>>,
    closed: bool,
    /// Sum of the charges of the messages in the inbox, in bytes.
    charged: usize,
    /// The socket to which this socket sends.
    peer: Option<Weak<Socket>>,
    /// The sockets that send to this socket, which can have threads that wait for room.
    senders: Vec<Weak<Socket>>,
    sweep: Sweep,
    listening: Option<Listening>,
    /// Whether receiving was shut down: no more messages arrive.
    read_shut: bool,
    /// Whether sending was shut down: no more messages can be sent.
    write_shut: bool,
    error: Option<Errno>,
    address: Option<Address>,
    peer_address: Option<Address>,
    peer_credentials: Option<Credentials>,
    options: options::Options,
}

/// A Unix socket.
pub struct Socket {
    /// The type.
    pub kind: SocketKind,
    state: Lock<State>,
    /// The node number of the socket among the sockets in flight.
    flight: AtomicUsize,
    /// `receiving` serialises the copies of receivers, and `sending` those of senders.
    receiving: Turn,
    sending: Turn,
    /// Woken when a message or connection arrives, or when none can arrive any more.
    readable: WaitQueue,
    /// Woken when the peer's inbox has room, or when the peer receives nothing more.
    writable: WaitQueue,
    /// Woken when the inbox or accept queue of this socket has room.
    room: WaitQueue,
}

impl Socket {
    /// Creates an unconnected socket.
    #[must_use]
    pub fn new(kind: SocketKind) -> Self {
        let state = State {
            inbox: VecDeque::new(),
            carried: 0,
            shell: Some(Box::default()),
            closed: false,
            charged: 0,
            peer: None,
            senders: Vec::new(),
            sweep: Sweep::new(),
            listening: None,
            read_shut: false,
            write_shut: false,
            error: None,
            address: None,
            peer_address: None,
            peer_credentials: None,
            options: options::Options::new(DEFAULT_BUFFER),
        };
        Self {
            kind,
            state: Lock::new(Rank::File, state),
            flight: AtomicUsize::new(flight::GROUNDED),
            receiving: Turn::new(),
            sending: Turn::new(),
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
            room: WaitQueue::new(),
        }
    }

    /// Returns the peer, to which the socket sends, or `None` if it was never connected.
    ///
    /// # Errors
    /// `EPIPE` if the peer is closed.
    fn peer(&self) -> Option<Result<Arc<Self>, Errno>> {
        let state = self.state.lock();
        let peer = state.peer.as_ref()?;
        Some(peer.upgrade().ok_or(Errno::EPIPE))
    }

    /// Returns the pending error, if any, and clears it.
    fn take_error(&self) -> Option<Errno> {
        self.state.lock().error.take()
    }

    /// Registers `sender`, whose waiting threads are woken when this socket has room.
    fn add_sender(&self, sender: &Arc<Self>) -> Result<(), OutOfMemory> {
        let mut state = self.state.lock();
        let State { senders, sweep, .. } = &mut *state;
        if sweep.is_due(senders.len()) {
            senders.retain(|known| known.strong_count() > 0);
            sweep.done(senders.len());
        }
        senders.try_push(Arc::downgrade(sender))
    }

    /// Wakes the threads that wait to send to this socket. Called when the socket has room, or receives nothing more.
    fn wake_senders(&self) {
        self.room.wake_all();
        let mut index = 0;
        loop {
            let sender = match self.state.lock().senders.get(index) {
                None => return,
                Some(sender) => sender.upgrade(),
            };
            if let Some(sender) = sender {
                sender.writable.wake_all();
            }
            index += 1;
        }
    }

    /// Returns the number of bytes of its send buffer `buffer` that the unread messages leave to a sender.
    fn room_for(&self, buffer: usize) -> usize {
        buffer.saturating_sub(self.state.lock().charged)
    }

    /// Returns the readiness (`unix_poll` of Linux 7.2, `net/unix/af_unix.c`).
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let mut ready = Readiness::empty();
        let (peer, buffer) = {
            let state = self.state.lock();
            if let Some(listening) = &state.listening {
                ready.set(Readiness::READ, !listening.waiting.is_empty());
                return ready;
            }
            ready.set(Readiness::ERROR, state.error.is_some());
            ready.set(Readiness::READ, !state.inbox.is_empty() || state.read_shut);
            ready.set(Readiness::READ_HANGUP, state.read_shut);
            let unconnected = self.kind.connects() && state.peer.is_none();
            let shut = state.read_shut && state.write_shut;
            ready.set(Readiness::HANGUP, shut || unconnected);
            let peer = state.peer.as_ref().and_then(Weak::upgrade);
            (peer, state.options.send_buffer)
        };
        let full = peer.is_some_and(|peer| {
            let state = peer.state.lock();
            let crowded = self.kind == SocketKind::Datagram && state.inbox.len() > MOST_DATAGRAMS;
            crowded || state.charged * 4 > buffer
        });
        ready.set(Readiness::WRITE, !full);
        ready
    }
}
