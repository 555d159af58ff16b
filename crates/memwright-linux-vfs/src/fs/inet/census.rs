//! Lists the sockets of the network, for `/proc/net/tcp` and `/proc/net/udp`.

use crate::fs::inet::{
    address::{Endpoint, Family, Ip},
    claims::Protocol,
    held::{Flow, Seat},
    network::{Network, Occupant},
    place::Place,
    socket::InetSocket,
    state::TcpState,
};
use alloc::sync::Arc;
use core::{
    ops::Bound::{Excluded, Unbounded},
    sync::atomic::Ordering,
};
use memwright_linux_base::batch::Batch;

/// A position in the list of all sockets of a protocol. Listening sockets and datagram sockets come first, and then the
/// ends of connections.
#[derive(Clone, Copy, Debug)]
pub struct Spot(Position);

#[derive(Clone, Copy, Debug)]
enum Position {
    /// The next entry is the socket at this index in the group with this key.
    Receiver(Seat, usize),
    /// The next entry is the one after this end of a connection.
    Behind(Flow),
}

/// An entry of the list: a socket, or a connection in the state `TIME_WAIT`.
pub struct Found {
    /// The position after this entry.
    pub next: Spot,
    subject: Subject,
}

enum Subject {
    Socket(Arc<InetSocket>),
    Waiting {
        family: Family,
        flow: Flow,
        until: u64,
    },
    /// The socket is being dropped.
    Gone,
}

/// A row of `/proc/net/tcp` or `/proc/net/udp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The address family.
    pub family: Family,
    /// The address and port of the socket.
    pub local: Endpoint,
    /// The address and port of the peer; the wildcard address and port 0 for a socket without a peer.
    pub remote: Endpoint,
    /// The state of the socket. A datagram socket with a peer is in the state `Established`, and one without a peer in
    /// the state `Close`.
    pub state: TcpState,
    /// The number of received bytes that wait in the inbox. For a listening socket, the number of connections in the
    /// accept queue.
    pub received: usize,
    /// The time in nanoseconds until the state `TIME_WAIT` ends; `None` in other states.
    pub waits: Option<u64>,
    /// The id of the user that created the socket; 0 if the socket has no open file.
    pub user: u32,
    /// The inode number of the socket; 0 if the socket has no open file.
    pub inode: u64,
}

impl Spot {
    /// Returns the position of the first socket.
    #[must_use]
    pub const fn first(protocol: Protocol) -> Self {
        let least = Seat {
            protocol,
            port: 0,
            place: Place::One(Ip::V4([0; 4])),
            from: None,
        };
        Self(Position::Receiver(least, 0))
    }
}

impl Network {
    /// Appends an entry to `batch` for each socket of `protocol`, starting at `spot`, until `batch` is full.
    pub fn note(&self, protocol: Protocol, spot: Spot, batch: &mut Batch<Found>) {
        let table = self.table.lock();
        if let Position::Receiver(first, skipped) = spot.0 {
            let seats = table.seats.range(first..);
            for (&seat, group) in seats.take_while(|(seat, _)| seat.protocol == protocol) {
                let from = if seat == first { skipped } else { 0 };
                for index in from..group.len() {
                    let found = Found {
                        next: Spot(Position::Receiver(seat, index + 1)),
                        subject: group.get(index).map_or(Subject::Gone, Subject::Socket),
                    };
                    if !batch.push(found) {
                        return;
                    }
                }
            }
        }
        let from = match spot.0 {
            Position::Receiver(..) => Unbounded,
            Position::Behind(flow) => Excluded(flow),
        };
        if protocol == Protocol::Udp {
            return;
        }
        for (&flow, occupant) in table.flows.range((from, Unbounded)) {
            let subject = match occupant {
                Occupant::Socket(socket) => socket.upgrade().map_or(Subject::Gone, Subject::Socket),
                &Occupant::Waiting { family, until, .. } => Subject::Waiting {
                    family,
                    flow,
                    until,
                },
            };
            let found = Found {
                next: Spot(Position::Behind(flow)),
                subject,
            };
            if !batch.push(found) {
                return;
            }
        }
    }
}

impl Found {
    /// Returns the row of the entry at the time `now`. Returns `None` if the entry has no row any more, for example
    /// because the connection was reset.
    #[must_use]
    pub fn row(&self, now: u64) -> Option<Row> {
        match &self.subject {
            Subject::Socket(socket) => socket.row(),
            &Subject::Waiting {
                family,
                flow,
                until,
            } => (until > now).then(|| waiting(family, flow, until - now)),
            Subject::Gone => None,
        }
    }
}

/// Returns the row of a connection whose state `TIME_WAIT` ends in `left` nanoseconds.
const fn waiting(family: Family, flow: Flow, left: u64) -> Row {
    Row {
        family,
        local: flow.local,
        remote: flow.remote,
        state: TcpState::Close,
        received: 0,
        waits: Some(left),
        user: 0,
        inode: 0,
    }
}

impl InetSocket {
    fn row(&self) -> Option<Row> {
        let held = *self.held.lock();
        let local = held.local.filter(|_| !held.closed)?;
        let (progress, received) = {
            let state = self.state.lock();
            let received = match &state.listening {
                Some(listening) => listening.waiting.len(),
                None => state.inbox.bytes(),
            };
            (state.progress, received)
        };
        let state = match (self.protocol, held.remote) {
            (Protocol::Udp, Some(_)) => TcpState::Established,
            (Protocol::Udp, None) => TcpState::Close,
            (Protocol::Tcp, _) => match progress.state() {
                // Both ends have shut down sending, but this socket is still open. On Linux the connection is in the
                // state `TIME_WAIT` then, and its row replaces that of the socket.
                TcpState::Close if progress.waits_after_close() => {
                    let flow = held.flow?;
                    return Some(waiting(self.family, flow, 0));
                }
                TcpState::Close => return None,
                state @ (TcpState::Established
                | TcpState::SynSent
                | TcpState::FinWait
                | TcpState::CloseWait
                | TcpState::Listen) => state,
            },
        };
        let none = Endpoint {
            ip: self.family.any(),
            port: 0,
        };
        let inode = self.number.load(Ordering::Relaxed);
        Some(Row {
            family: self.family,
            local,
            remote: held.remote.unwrap_or(none),
            state,
            received,
            waits: None,
            user: if inode == 0 { 0 } else { self.user },
            inode,
        })
    }
}
