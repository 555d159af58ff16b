//! The state of a Unix socket.

use crate::fs::{
    readiness::Readiness,
    socket::{
        address::Address,
        credentials::Credentials,
        kind::{MOST_DATAGRAMS, SocketKind},
        message::Message,
        options::Options,
        registry::Registry,
        remains::Shell,
    },
    turn::Turn,
};
use alloc::{
    boxed::Box,
    collections::VecDeque,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, AtomicUsize};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::{
    sweep::Sweep,
    sync::{Lock, Rank},
};
use memwright_linux_sched::wait::WaitQueue;
use memwright_table::{OutOfMemory, TryPush};

/// The value of `flight` for a socket that is not in flight.
pub(super) const GROUNDED: usize = usize::MAX;

/// Default limit in bytes on the charge of unread messages (`net.core.wmem_default` of Linux 7.2).
const DEFAULT_BUFFER: usize = 212_992;

/// The accept queue of a listening socket.
pub(super) struct Listening {
    pub(super) limit: usize,
    pub(super) waiting: VecDeque<Arc<Socket>>,
}

/// The mutable state of a socket.
pub(super) struct State {
    pub(super) inbox: VecDeque<Message>,
    /// Number of open files that the messages of the inbox carry.
    pub(super) carried: usize,
    /// The list node to which the unread messages are moved when the socket is closed; `None` after that.
    pub(super) shell: Option<Box<Shell>>,
    pub(super) closed: bool,
    /// Sum of the charges of the messages in the inbox, in bytes.
    pub(super) charged: usize,
    /// The socket to which this socket sends; `None` if it was never connected.
    pub(super) peer: Option<Weak<Socket>>,
    /// The sockets that send to this socket. Their threads may wait for room in its inbox.
    pub(super) senders: Vec<Weak<Socket>>,
    pub(super) sweep: Sweep,
    pub(super) listening: Option<Listening>,
    /// Whether receiving was shut down: no more messages arrive.
    pub(super) read_shut: bool,
    /// Whether sending was shut down: no more messages can be sent.
    pub(super) write_shut: bool,
    pub(super) error: Option<Errno>,
    pub(super) address: Option<Address>,
    pub(super) peer_address: Option<Address>,
    pub(super) peer_credentials: Option<Credentials>,
    pub(super) options: Options,
}

/// A Unix socket.
pub struct Socket {
    /// Whether it is a stream, datagram or sequenced-packet socket.
    pub kind: SocketKind,
    /// The registry of all Unix sockets, which contains their names and the open files in flight.
    pub(super) registry: &'static Registry,
    /// The number of the socket in the list of all sockets.
    pub(super) listed: AtomicU64,
    /// The inode number of the socket; 0 before the socket has an open file.
    pub(super) number: AtomicU64,
    pub(super) state: Lock<State>,
    /// The node number of a socket in flight, or [`GROUNDED`].
    pub(super) flight: AtomicUsize,
    /// Serialises the copies of receivers (`receiving`) and those of senders (`sending`).
    pub(super) receiving: Turn,
    pub(super) sending: Turn,
    /// Woken when a message or connection arrives, or when no more can arrive.
    pub(super) readable: WaitQueue,
    /// Woken when the peer's inbox has room, or when the peer stops receiving.
    pub(super) writable: WaitQueue,
    /// Woken when the inbox or accept queue of this socket has room.
    pub(super) room: WaitQueue,
}

impl Socket {
    /// Creates an unconnected socket. The caller must add it to the list of all sockets.
    pub(super) fn new(registry: &'static Registry, kind: SocketKind) -> Self {
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
            options: Options::new(DEFAULT_BUFFER),
        };
        Self {
            kind,
            registry,
            listed: AtomicU64::new(u64::MAX),
            number: AtomicU64::new(0),
            state: Lock::new(Rank::File, state),
            flight: AtomicUsize::new(GROUNDED),
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
    pub(super) fn peer(&self) -> Option<Result<Arc<Self>, Errno>> {
        let state = self.state.lock();
        let peer = state.peer.as_ref()?;
        Some(peer.upgrade().ok_or(Errno::EPIPE))
    }

    /// Returns the pending error, if any, and clears it.
    pub(super) fn take_error(&self) -> Option<Errno> {
        self.state.lock().error.take()
    }

    /// Registers `sender` as a socket whose waiting threads are woken when this socket has room.
    pub(super) fn add_sender(&self, sender: &Arc<Self>) -> Result<(), OutOfMemory> {
        let mut state = self.state.lock();
        let State { senders, sweep, .. } = &mut *state;
        if sweep.is_due(senders.len()) {
            senders.retain(|known| known.strong_count() > 0);
            sweep.done(senders.len());
        }
        senders.try_push(Arc::downgrade(sender))
    }

    /// Wakes the threads that wait for room in this socket. Called when the socket has room or stops receiving.
    pub(super) fn wake_senders(&self) {
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

    /// Returns how many bytes a sender with a send buffer of `buffer` bytes can still send. The charge of all unread
    /// messages in this inbox counts against that buffer.
    pub(super) fn room_for(&self, buffer: usize) -> usize {
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
