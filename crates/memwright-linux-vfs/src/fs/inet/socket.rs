//! The state and the options of an internet socket.

use crate::fs::{
    caller::Caller,
    inet::{
        address::{Endpoint, Family},
        choices::Choices,
        claims::{Protocol, Sharing, Terms},
        held::Held,
        network::Network,
        piece::Inbox,
        place::Place,
        state::{Phase, Progress},
        urgent::Urgent,
    },
    open_file::OpenFile,
    readiness::Readiness,
    turn::Turn,
    vfs::Vfs,
};
use alloc::{
    collections::VecDeque,
    sync::{Arc, Weak},
};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::wait::WaitQueue;
use memwright_table::Rising;

/// Default sizes in bytes: of both buffers of a datagram socket (`net.core.wmem_default` of Linux 7.2), and of the send
/// buffer and the receive buffer of a stream socket (`net.ipv4.tcp_wmem`, `net.ipv4.tcp_rmem`).
const DATAGRAM_BUFFER: usize = 212_992;
const STREAM_BUFFERS: (usize, usize) = (16_384, 131_072);
/// The number of bytes that a stream socket can have in the peer's inbox beyond the peer's receive buffer, unless the
/// program set `SO_SNDBUF`. While that option is not set, Linux grows the send buffer as needed.
const GROWN: usize = 262_144;

/// The options of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The numeric options.
    pub choices: Choices,
    /// `SO_SNDBUF`, in bytes.
    pub send_buffer: usize,
    /// Whether the program set `SO_SNDBUF`.
    pub send_buffer_set: bool,
    /// `SO_RCVBUF`, in bytes.
    pub receive_buffer: usize,
    /// Timeout of a receive in nanoseconds; 0 for none.
    pub receive_timeout: u64,
    /// Timeout of a send in nanoseconds; 0 for none.
    pub send_timeout: u64,
    /// `SO_LINGER`, in seconds; `None` if it is not set.
    pub linger: Option<u32>,
}

impl Settings {
    fn new(protocol: Protocol) -> Self {
        let (send_buffer, receive_buffer) = match protocol {
            Protocol::Tcp => STREAM_BUFFERS,
            Protocol::Udp => (DATAGRAM_BUFFER, DATAGRAM_BUFFER),
        };
        Self {
            choices: Choices::default(),
            send_buffer,
            send_buffer_set: false,
            receive_buffer,
            receive_timeout: 0,
            send_timeout: 0,
            linger: None,
        }
    }

    /// Returns the number of bytes that a stream socket can have in the peer's inbox beyond the peer's receive buffer.
    pub(super) const fn send_room(&self) -> usize {
        if self.send_buffer_set {
            self.send_buffer
        } else {
            GROWN
        }
    }
}

/// A connection request that waits for room in the accept queue: the connecting socket, and the new socket for the
/// server's end.
pub(super) struct Knocker {
    pub(super) client: Weak<InetSocket>,
    pub(super) server: Arc<InetSocket>,
}

/// The accept queue of a listening socket, and the connection requests that wait for room in it.
pub(super) struct Listening {
    pub(super) limit: usize,
    pub(super) waiting: VecDeque<Arc<InetSocket>>,
    /// Number of connections that are being established and will be added to the queue.
    pub(super) coming: usize,
    pub(super) knocking: Rising<Knocker>,
}

/// The state of the connection, as reported to the program (`socket_state` of Linux 7.2, `include/uapi/linux/net.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The socket has no connection.
    Unconnected,
    /// The result of `connect` has not been reported yet.
    Connecting,
    /// The success of `connect` has been reported.
    Connected,
}

/// The mutable state of a socket.
pub(super) struct State {
    pub(super) progress: Progress,
    pub(super) stage: Stage,
    pub(super) listening: Option<Listening>,
    /// The listening socket that has this socket's connection request, and the number of the request; `None` while this
    /// socket does not wait for a connection.
    pub(super) knocks_at: Option<(Weak<InetSocket>, u64)>,
    /// The socket at the other end of the connection.
    pub(super) peer: Option<Weak<InetSocket>>,
    pub(super) inbox: Inbox,
    /// The urgent byte; `None` if there is none or a receive has passed its mark.
    pub(super) urgent: Option<Urgent>,
    /// `Some` while the peer waits for room in this inbox: the number of bytes that the peer can have in this inbox
    /// beyond the receive buffer size.
    pub(super) awaited: Option<usize>,
    pub(super) error: Option<Errno>,
    pub(super) closed: bool,
    pub(super) settings: Settings,
}

/// An internet socket.
pub struct InetSocket {
    /// The address family.
    pub family: Family,
    /// The protocol.
    pub protocol: Protocol,
    /// The id of the user that created the socket.
    pub user: u32,
    /// The inode number of the socket.
    pub number: AtomicU64,
    /// The open file of the socket, whose owner gets SIGURG.
    pub(super) file: Lock<Weak<OpenFile>>,
    pub(super) vfs: &'static Vfs,
    pub(super) network: &'static Network,
    /// The entries of the socket in the tables of the network. They are written only under the lock of these tables.
    pub(super) held: Lock<Held>,
    /// The index of the socket in its group of receiving sockets.
    pub(super) index: AtomicUsize,
    pub(super) state: Lock<State>,
    /// Serialises the copies of receivers (`receiving`) and those of senders (`sending`).
    pub(super) receiving: Turn,
    pub(super) sending: Turn,
    /// Woken when bytes, a datagram or a connection arrive, or when no more can arrive.
    pub(super) readable: WaitQueue,
    /// Woken when the peer's inbox has room, or when the connection is established or ended.
    pub(super) writable: WaitQueue,
}

impl InetSocket {
    /// Creates an unconnected socket.
    #[must_use]
    pub fn new(
        caller: &dyn Caller,
        network: &'static Network,
        family: Family,
        protocol: Protocol,
    ) -> Self {
        let user = caller.identity().credentials.lock().user.file;
        Self::with(caller.vfs(), network, (family, protocol), user)
    }

    fn with(
        vfs: &'static Vfs,
        network: &'static Network,
        (family, protocol): (Family, Protocol),
        user: u32,
    ) -> Self {
        let state = State {
            progress: Progress::default(),
            stage: Stage::Unconnected,
            listening: None,
            knocks_at: None,
            peer: None,
            inbox: Inbox::default(),
            urgent: None,
            awaited: None,
            error: None,
            closed: false,
            settings: Settings::new(protocol),
        };
        Self {
            family,
            protocol,
            user,
            number: AtomicU64::new(0),
            file: Lock::new(Rank::Leaf, Weak::new()),
            vfs,
            network,
            held: Lock::new(Rank::Leaf, Held::default()),
            index: AtomicUsize::new(0),
            state: Lock::new(Rank::File, state),
            receiving: Turn::new(),
            sending: Turn::new(),
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
        }
    }

    /// Creates the socket for the server's end of a connection to this listening socket. The new socket gets the
    /// options of this socket.
    pub(super) fn server(&self) -> Self {
        let kind = (self.family, self.protocol);
        let server = Self::with(self.vfs, self.network, kind, self.user);
        let settings = self.state.lock().settings;
        server.state.lock().settings = settings;
        server
    }

    /// Returns the addresses at which this socket receives if it is bound to `endpoint`.
    pub(super) fn place_of(&self, endpoint: Endpoint) -> Place {
        let only = self.state.lock().settings.choices.is_only_v6();
        Place::of(self.family, endpoint.ip, only)
    }

    /// Returns the terms of the socket's claim on a port. `outgoing` is true if `connect` chooses the port.
    pub(super) fn terms(&self, outgoing: bool) -> Terms {
        let choices = self.state.lock().settings.choices;
        Terms {
            reuse: choices.reuses_address(),
            sharing: if choices.reuses_port() {
                Sharing::User(self.user)
            } else {
                Sharing::Alone
            },
            listening: false,
            outgoing,
        }
    }

    /// Returns whether the socket shares its port by `SO_REUSEPORT`.
    pub(super) fn shares_port(&self) -> bool {
        let claim = self.held.lock().claim;
        claim.is_some_and(|claim| claim.terms.sharing != Sharing::Alone)
    }

    /// Returns the address and port of the socket; the wildcard address and port 0 if it is not bound.
    #[must_use]
    pub fn name(&self) -> Endpoint {
        let none = Endpoint {
            ip: self.family.any(),
            port: 0,
        };
        self.held.lock().local.unwrap_or(none)
    }

    /// Returns the address and port of the peer.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn peer_name(&self) -> Result<Endpoint, Errno> {
        let connected = match self.protocol {
            Protocol::Udp => true,
            Protocol::Tcp => self.state.lock().progress.is_open(),
        };
        let remote = self.held.lock().remote;
        remote.filter(|_| connected).ok_or(Errno::ENOTCONN)
    }

    /// Returns the address and port of the client of a connection that was just accepted, even if the connection has
    /// ended.
    #[must_use]
    pub fn accepted_from(&self) -> Option<Endpoint> {
        self.held.lock().remote
    }

    pub(super) fn settings(&self) -> Settings {
        self.state.lock().settings
    }

    /// Returns the time at which a wait with the timeout `timeout` ends if it begins now; `None` if `timeout` is 0.
    pub(super) fn deadline(&self, timeout: u64) -> Option<u64> {
        (timeout > 0).then(|| self.vfs.clock.now().saturating_add(timeout))
    }

    pub(super) fn wake(&self) {
        self.readable.wake_all();
        self.writable.wake_all();
    }

    /// Returns the number of bytes that the peer can send to this socket now. The capacity of the inbox is the receive
    /// buffer size plus `beyond` bytes. If less than a third of this capacity is free, records that the peer waits for
    /// room.
    pub(super) fn room_for(&self, beyond: usize) -> usize {
        let mut state = self.state.lock();
        let most = state.settings.receive_buffer + beyond;
        let room = most.saturating_sub(state.inbox.charged());
        if room < most / 3 {
            state.awaited = Some(beyond);
        }
        room
    }

    /// Returns the readiness (`tcp_poll` and `udp_poll` of Linux 7.2, `net/ipv4/tcp.c`, `net/ipv4/udp.c`).
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let (progress, readable, urgent, failed, peer, beyond) = {
            let state = self.state.lock();
            if let Some(listening) = &state.listening {
                let waits = !listening.waiting.is_empty();
                return if waits {
                    Readiness::READ
                } else {
                    Readiness::empty()
                };
            }
            let peer = state.peer.as_ref().and_then(Weak::upgrade);
            let (readable, failed) = (state.is_readable(), state.error.is_some());
            (
                state.progress,
                readable,
                state.has_urgent(),
                failed,
                peer,
                state.settings.send_room(),
            )
        };
        match self.protocol {
            Protocol::Tcp => {
                let writable = peer.is_none_or(|peer| peer.is_writable(beyond));
                let mut ready = progress.readiness(readable, writable, failed);
                ready.set(Readiness::PRIORITY, urgent);
                ready
            }
            Protocol::Udp => {
                let open = Progress {
                    phase: Phase::Connected,
                    ..progress
                };
                open.readiness(readable, true, failed)
            }
        }
    }

    /// Returns whether `poll` on the peer reports it as writable: at least a third of the space that the peer can use
    /// in this inbox is free, or this socket is closed. The inbox can contain `beyond` bytes more than the receive
    /// buffer size. If the peer is not writable, records that it waits for room.
    pub(super) fn is_writable(&self, beyond: usize) -> bool {
        let room = self.room_for(beyond);
        let state = self.state.lock();
        state.closed || room >= (state.settings.receive_buffer + beyond) / 3
    }

    /// Sets the inode number of the socket.
    pub(super) fn set_number(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }
}
