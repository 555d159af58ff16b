//! The tables of the network: the claims on ports, the sockets that receive, and the connections.

use crate::fs::inet::{
    address::{Endpoint, Family, Ip},
    claims::{Choice, Claim, Claims, Protocol, Sharing, Terms},
    group::Group,
    held::{Flow, Held, Seat},
    place::Place,
    socket::InetSocket,
};
use alloc::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
};
use memwright_linux_abi::{abi::SECOND, errno::Errno};
use memwright_linux_base::sync::{Lock, PausePoints, Rank};

/// The first port that the kernel can choose, and the number of such ports (`net.ipv4.ip_local_port_range` of Linux
/// 7.2).
const FIRST_PORT: u16 = 32_768;
const PORTS: u16 = 28_232;
/// Number of ports that a search tries between two scheduling points.
const TRIED: u32 = 64;
/// The time in nanoseconds for which the active closer of a connection keeps its port (`TCP_TIMEWAIT_LEN` of Linux
/// 7.2), and the time after which a new connection between the same two addresses and ports can replace it
/// (`net.ipv4.tcp_tw_reuse`, which is 2).
const WAIT: u64 = 60 * SECOND;
const WAIT_BEFORE_REUSE: u64 = SECOND;
/// Maximum number of connections in the state `TIME_WAIT` (`net.ipv4.tcp_max_tw_buckets`). At this maximum, a closed
/// connection does not enter the state.
const MOST_WAITS: usize = 16_384;
/// Maximum number of `TIME_WAIT` states that are ended between two scheduling points.
const ENDED: usize = 64;

/// The entry for one end of a connection.
pub(super) enum Occupant {
    /// The socket at this end.
    Socket(Weak<InetSocket>),
    /// The connection is in the state `TIME_WAIT`: the socket at this end was closed.
    Waiting {
        /// The family of the closed socket.
        family: Family,
        /// The claim on the port, which lasts until the state ends.
        claim: Claim,
        /// The time in nanoseconds at which the state ends.
        until: u64,
    },
}

pub(super) struct Table {
    claims: Claims,
    pub(super) seats: BTreeMap<Seat, Group>,
    pub(super) flows: BTreeMap<Flow, Occupant>,
    /// The connections in the state `TIME_WAIT`, each with the time at which the state ends, in the order of these
    /// times. If a new connection has replaced a connection in this list, the key is that of the new connection.
    waits: VecDeque<(u64, Flow)>,
    /// The positions in the order of ports (see [`port_at`]) at which the next search of `bind` and the next search of
    /// `connect` start.
    next: [u16; 2],
}

/// The network of a machine that has only the loopback interface.
pub struct Network {
    pub(super) table: Lock<Table>,
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the port at position `number` of the order in which a search tries ports. A search for `connect` tries the
/// even ports first, and a search for `bind` the odd ports.
const fn port_at(choice: Choice, number: u16) -> u16 {
    let number = number % PORTS;
    let half = PORTS / 2;
    let (second, step) = (number >= half, number % half);
    let odd = second == matches!(choice, Choice::Connect);
    FIRST_PORT + 2 * step + odd as u16
}

impl Table {
    /// Returns the next port to try for a claim with the origin `choice`.
    const fn next_port(&mut self, choice: Choice) -> u16 {
        let next = &mut self.next[matches!(choice, Choice::Connect) as usize];
        let port = port_at(choice, *next);
        *next = (*next + 1) % PORTS;
        port
    }

    fn sit(&mut self, socket: &Arc<InetSocket>, seat: Seat) -> Result<(), Errno> {
        let group = self.seats.entry(seat).or_default();
        let added = group.add(socket);
        if added.is_err() && group.get(0).is_none() {
            self.seats.remove(&seat);
        }
        added.map_err(Errno::from)
    }

    fn stand_up(&mut self, socket: &InetSocket, seat: Seat) {
        if let Some(group) = self.seats.get_mut(&seat)
            && group.remove(socket)
        {
            self.seats.remove(&seat);
        }
    }

    /// Returns whether a new connection can use the key `flow`. Removes a connection with this key that has been in the
    /// state `TIME_WAIT` for at least a second.
    fn vacate(&mut self, flow: Flow, now: u64) -> bool {
        let claim = match self.flows.get(&flow) {
            None => return true,
            Some(Occupant::Socket(_)) => return false,
            Some(&Occupant::Waiting { until, claim, .. }) => {
                if now.saturating_add(WAIT) < until + WAIT_BEFORE_REUSE {
                    return false;
                }
                claim
            }
        };
        self.flows.remove(&flow);
        self.claims.remove(&claim);
        true
    }

    /// Ends up to [`ENDED`] `TIME_WAIT` states whose time has passed. Returns whether there may be more such states.
    fn end_waits(&mut self, now: u64) -> bool {
        for _ in 0..ENDED {
            match self.waits.front() {
                Some(&(until, _)) if until <= now => {}
                Some(_) | None => return false,
            }
            let Some((ended, flow)) = self.waits.pop_front() else {
                return false;
            };
            if let Some(&Occupant::Waiting { until, claim, .. }) = self.flows.get(&flow)
                && until == ended
            {
                self.flows.remove(&flow);
                self.claims.remove(&claim);
            }
        }
        true
    }

    /// Puts a closed connection with its key and port into the state `TIME_WAIT`. Returns `false`, and leaves the key
    /// and port free, if `MOST_WAITS` connections are in the state or memory is exhausted.
    fn begin_wait(&mut self, family: Family, flow: Flow, claim: Claim, now: u64) -> bool {
        if self.waits.len() >= MOST_WAITS || self.waits.try_reserve(1).is_err() {
            return false;
        }
        let until = now + WAIT;
        let sharing = match claim.terms.sharing {
            Sharing::Alone => Sharing::Alone,
            Sharing::User(_) | Sharing::Anyone => Sharing::Anyone,
        };
        let terms = Terms {
            sharing,
            ..claim.terms
        };
        let claim = Claim { terms, ..claim };
        self.claims.add(&claim);
        let occupant = Occupant::Waiting {
            family,
            claim,
            until,
        };
        self.flows.insert(flow, occupant);
        #[expect(clippy::disallowed_methods, reason = "there is room")]
        self.waits.push_back((until, flow));
        true
    }
}

impl Network {
    /// Creates an empty network.
    #[must_use]
    pub const fn new() -> Self {
        let table = Table {
            claims: Claims::new(),
            seats: BTreeMap::new(),
            flows: BTreeMap::new(),
            waits: VecDeque::new(),
            next: [0; 2],
        };
        Self {
            table: Lock::new(Rank::File, table),
        }
    }

    /// Ends all `TIME_WAIT` states whose time has passed, with scheduling points in between.
    fn end_waits(&self, now: u64) {
        let mut points = PausePoints::every(1);
        while self.table.lock().end_waits(now) {
            points.round();
        }
    }

    /// Binds `socket` to the port of `endpoint` at the addresses `place`, or to a free port if that port is 0. A
    /// datagram socket can receive afterwards.
    ///
    /// # Errors
    /// `EINVAL` if the socket already has a port, `EADDRINUSE`, `ENOMEM`.
    pub fn bind(
        &self,
        socket: &Arc<InetSocket>,
        endpoint: Endpoint,
        place: Place,
        terms: Terms,
        now: u64,
    ) -> Result<(), Errno> {
        self.end_waits(now);
        let choice = if endpoint.port == 0 {
            Choice::Bind
        } else {
            Choice::Program
        };
        let mut points = PausePoints::every(TRIED);
        for _ in 0..PORTS {
            let table = &mut *self.table.lock();
            let port = if endpoint.port == 0 {
                table.next_port(choice)
            } else {
                endpoint.port
            };
            let claim = Claim {
                protocol: socket.protocol,
                port,
                place,
                terms,
            };
            let mut held = *socket.held.lock();
            if held.claim.is_some() || held.closed {
                return Err(Errno::EINVAL);
            }
            if !table.claims.exclude(&claim, choice) {
                if socket.protocol == Protocol::Udp {
                    let seat = Seat {
                        protocol: Protocol::Udp,
                        port,
                        place,
                        from: None,
                    };
                    table.sit(socket, seat)?;
                    held.seat = Some(seat);
                }
                table.claims.add(&claim);
                held.claim = Some(claim);
                held.keeps_port = endpoint.port != 0;
                held.keeps_address = !endpoint.ip.is_any();
                held.local = Some(Endpoint { port, ..endpoint });
                *socket.held.lock() = held;
                return Ok(());
            }
            if endpoint.port != 0 {
                break;
            }
            points.round();
        }
        Err(Errno::EADDRINUSE)
    }

    /// Changes the terms of the claim of `socket`, if it has a port.
    pub fn change_terms(&self, socket: &InetSocket, change: impl FnOnce(&mut Terms)) {
        let table = &mut *self.table.lock();
        let mut held = *socket.held.lock();
        if let Some(claim) = &mut held.claim {
            table.claims.remove(claim);
            change(&mut claim.terms);
            table.claims.add(claim);
            *socket.held.lock() = held;
        }
    }

    /// Makes `socket`, which must have a port, receive connection requests.
    ///
    /// # Errors
    /// `EADDRINUSE` if another socket listens on the port, `EINVAL` if the socket has no port, `ENOMEM`.
    pub fn listen(&self, socket: &Arc<InetSocket>) -> Result<(), Errno> {
        let table = &mut *self.table.lock();
        let mut held = *socket.held.lock();
        let (Some(old), None, false) = (held.claim, held.seat, held.closed) else {
            return Err(Errno::EINVAL);
        };
        let terms = Terms {
            listening: true,
            outgoing: false,
            ..old.terms
        };
        let claim = Claim { terms, ..old };
        let seat = Seat {
            protocol: claim.protocol,
            port: claim.port,
            place: claim.place,
            from: None,
        };
        table.claims.remove(&old);
        let entered = if table.claims.exclude(&claim, Choice::Program) {
            Err(Errno::EADDRINUSE)
        } else {
            table.sit(socket, seat)
        };
        if let Err(error) = entered {
            table.claims.add(&old);
            return Err(error);
        }
        table.claims.add(&claim);
        held.claim = Some(claim);
        held.seat = Some(seat);
        *socket.held.lock() = held;
        Ok(())
    }

    /// Returns the socket that receives a packet from `from` to `to`; `None` if there is none.
    #[must_use]
    pub fn find(
        &self,
        protocol: Protocol,
        from: Endpoint,
        to: Endpoint,
    ) -> Option<Arc<InetSocket>> {
        let table = self.table.lock();
        let seat = |place, from| Seat {
            protocol,
            port: to.port,
            place,
            from,
        };
        let connected = match protocol {
            Protocol::Udp => table.seats.get(&seat(Place::One(to.ip), Some(from))),
            Protocol::Tcp => None,
        };
        let places = Place::receiving(to.ip);
        let mut unconnected = places
            .iter()
            .map(|place| table.seats.get(&seat(*place, None)));
        let group = connected.or_else(|| unconnected.find_map(|group| group))?;
        let shares = group.get(0).is_some_and(|socket| socket.shares_port());
        group.choose(shares, hash(from, to))
    }

    /// Enters a new connection between a stream socket and `remote` in the tables. Claims a port if the socket has
    /// none. Returns the key of the socket's end.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if a connection with the same addresses and ports exists, or if no port is free for it; `EINVAL`
    /// if the socket was closed.
    pub fn open(
        &self,
        socket: &Arc<InetSocket>,
        remote: Endpoint,
        terms: Terms,
        now: u64,
    ) -> Result<Flow, Errno> {
        self.end_waits(now);
        let mut points = PausePoints::every(TRIED);
        for _ in 0..PORTS {
            let table = &mut *self.table.lock();
            let mut held = *socket.held.lock();
            if held.closed || held.flow.is_some() || held.seat.is_some() {
                return Err(Errno::EINVAL);
            }
            let bound = held.local.map(|local| local.ip).filter(|ip| !ip.is_any());
            let ip = bound.unwrap_or_else(|| remote.ip.source());
            let port = match held.claim {
                Some(claim) => claim.port,
                None => table.next_port(Choice::Connect),
            };
            let local = Endpoint { ip, port };
            let flow = Flow { local, remote };
            let claim = held.claim.unwrap_or(Claim {
                protocol: Protocol::Tcp,
                port,
                place: Place::One(ip),
                terms,
            });
            let free = held.claim.is_some() || !table.claims.exclude(&claim, Choice::Connect);
            if free && table.vacate(flow, now) && table.vacate(flow.reversed(), u64::MAX) {
                if held.claim.is_none() {
                    table.claims.add(&claim);
                    held.claim = Some(claim);
                }
                table
                    .flows
                    .insert(flow, Occupant::Socket(Arc::downgrade(socket)));
                held.flow = Some(flow);
                held.local = Some(local);
                held.remote = Some(remote);
                *socket.held.lock() = held;
                return Ok(flow);
            }
            if held.claim.is_some() {
                break;
            }
            points.round();
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    /// Enters the server's end of a new connection in the tables, with the key `flow`. The new socket shares the port
    /// of the listening socket.
    pub fn enter(&self, socket: &Arc<InetSocket>, flow: Flow, listener: &InetSocket) {
        let table = &mut *self.table.lock();
        let mut held = Held {
            flow: Some(flow),
            local: Some(flow.local),
            remote: Some(flow.remote),
            ..Held::default()
        };
        // The guard must be dropped before `add` allocates memory.
        let claim = listener.held.lock().claim;
        if let Some(claim) = claim {
            let terms = Terms {
                listening: false,
                ..claim.terms
            };
            let claim = Claim {
                place: Place::One(flow.local.ip),
                terms,
                ..claim
            };
            table.claims.add(&claim);
            held.claim = Some(claim);
        }
        table
            .flows
            .insert(flow, Occupant::Socket(Arc::downgrade(socket)));
        *socket.held.lock() = held;
    }

    /// Makes `remote` the peer of a datagram socket that has a port.
    ///
    /// # Errors
    /// `ENOMEM`, and `EINVAL` if the socket was closed.
    pub fn connect(&self, socket: &Arc<InetSocket>, remote: Endpoint) -> Result<(), Errno> {
        let table = &mut *self.table.lock();
        let held = *socket.held.lock();
        let (Some(local), Some(seat)) = (held.local, held.seat) else {
            return Err(Errno::EINVAL);
        };
        let ip = if held.keeps_address {
            local.ip
        } else {
            remote.ip.source()
        };
        let local = Endpoint { ip, ..local };
        let seat = Seat {
            place: Place::One(ip),
            from: Some(remote),
            ..seat
        };
        table.move_to(socket, seat, held, local, Some(remote))
    }

    /// Removes the peer of a datagram socket. Also removes the socket's port if the kernel chose the port. If the
    /// socket keeps its port and the kernel chose its address, the address becomes `any`, and the socket receives at
    /// `place`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn disconnect(&self, socket: &Arc<InetSocket>, any: Ip, place: Place) -> Result<(), Errno> {
        let mut table = self.table.lock();
        let held = *socket.held.lock();
        let (Some(local), Some(seat)) = (held.local, held.seat) else {
            return Ok(());
        };
        if held.remote.is_none() {
            return Ok(());
        }
        if !held.keeps_port {
            drop(table);
            self.release(socket);
            return Ok(());
        }
        let (ip, place) = if held.keeps_address {
            (local.ip, seat.place)
        } else {
            (any, place)
        };
        let local = Endpoint { ip, ..local };
        let seat = Seat {
            place,
            from: None,
            ..seat
        };
        table.move_to(socket, seat, held, local, None)
    }

    /// Removes `socket` from the connections and receivers. Also removes its port unless the program chose the port. If
    /// the kernel chose the address, resets it to the wildcard address.
    pub fn release(&self, socket: &InetSocket) {
        let table = &mut *self.table.lock();
        table.release(socket, None);
        let mut held = socket.held.lock();
        let port = held.claim.map_or(0, |claim| claim.port);
        let any = socket.family.any();
        let ip = |local: Endpoint| if held.keeps_address { local.ip } else { any };
        held.local = held.local.map(|local| Endpoint {
            ip: ip(local),
            port,
        });
        held.remote = None;
    }

    /// Removes the connection of `socket`, which was reset. Also removes its port unless the program chose the port.
    pub fn reset(&self, socket: &InetSocket) {
        self.table.lock().release(socket, None);
    }

    /// Removes all entries of `socket`, which was closed. If `waits` is set, the connection keeps the port in the state
    /// `TIME_WAIT`, which begins at the time `now`.
    pub fn close(&self, socket: &InetSocket, waits: bool, now: u64) {
        let table = &mut *self.table.lock();
        socket.held.lock().keeps_port = false;
        table.release(socket, waits.then_some(now));
        socket.held.lock().closed = true;
    }
}

impl Table {
    /// Moves a datagram socket, whose entries are `held`, to the group with the key `seat`.
    fn move_to(
        &mut self,
        socket: &Arc<InetSocket>,
        seat: Seat,
        mut held: Held,
        local: Endpoint,
        remote: Option<Endpoint>,
    ) -> Result<(), Errno> {
        if let Some(old) = held.seat {
            self.stand_up(socket, old);
            if let Err(error) = self.sit(socket, seat) {
                // Return the socket to the old group, which had room for it. If that group has been freed and memory is
                // exhausted, the socket can no longer receive.
                held.seat = self.sit(socket, old).is_ok().then_some(old);
                *socket.held.lock() = held;
                return Err(error);
            }
        }
        if let Some(claim) = &mut held.claim {
            self.claims.remove(claim);
            claim.place = seat.place;
            self.claims.add(claim);
        }
        held.seat = Some(seat);
        held.local = Some(local);
        held.remote = remote;
        *socket.held.lock() = held;
        Ok(())
    }

    fn release(&mut self, socket: &InetSocket, waits_from: Option<u64>) {
        let mut held = *socket.held.lock();
        if let Some(seat) = held.seat.take() {
            self.stand_up(socket, seat);
        }
        let flow = held.flow.take();
        if let Some(flow) = flow {
            self.flows.remove(&flow);
        }
        if let Some(mut claim) = held.claim.take() {
            self.claims.remove(&claim);
            if let (Some(flow), Some(now)) = (flow, waits_from) {
                self.begin_wait(socket.family, flow, claim, now);
            }
            claim.terms.listening = false;
            if held.keeps_port {
                self.claims.add(&claim);
                held.claim = Some(claim);
            }
        }
        *socket.held.lock() = held;
    }
}

/// Returns a hash of the sender `from` and the receiver `to`. The hash selects one of several sockets that share a
/// port, so that the senders are distributed evenly among the sockets.
fn hash(from: Endpoint, to: Endpoint) -> u32 {
    /// The multiplier of Fibonacci hashing: 2^64 divided by the golden ratio.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = u64::from(from.port) << 16 | u64::from(to.port);
    for byte in from.ip.to_v6().into_iter().chain(to.ip.to_v6()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(SPREAD);
    }
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_tries_each_port_once() {
        for choice in [Choice::Bind, Choice::Connect] {
            let mut seen = [false; PORTS as usize];
            for number in 0..PORTS {
                let port = port_at(choice, number);
                assert!(!core::mem::replace(
                    &mut seen[(port - FIRST_PORT) as usize],
                    true
                ));
            }
        }
        assert_eq!(port_at(Choice::Connect, 0) % 2, 0);
        assert_eq!(port_at(Choice::Bind, 0) % 2, 1);
    }

    #[test]
    fn receivers_that_share_a_port_share_the_senders() {
        let to = Endpoint {
            ip: Ip::LOCAL_V4,
            port: 80,
        };
        let mut counts = [0; 4];
        for port in 32_768..33_768 {
            let from = Endpoint { port, ..to };
            counts[((u64::from(hash(from, to)) * 4) >> 32) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (150..350).contains(count)),
            "{counts:?}"
        );
    }
}
