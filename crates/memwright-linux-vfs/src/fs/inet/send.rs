//! Sends bytes of streams, and datagrams.

use crate::fs::{
    caller::Caller,
    inet::{
        address::{Endpoint, Family, Name},
        ancillary::{self, Chosen, Header},
        connect::route,
        piece::{OVERHEAD, Piece},
        socket::InetSocket,
        state::Phase,
    },
    open_file::OpenFile,
    transfer::Source,
};
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;
use memwright_linux_sched::wait::WaitError;
use memwright_table::TryPush;

/// Maximum number of bytes of a stream that are copied in one step.
const LARGEST_PART: usize = 32 * 1024;
/// Maximum number of bytes of a datagram over IPv4 and over IPv6, without the headers.
const LARGEST_V4: usize = 65_507;
const LARGEST_V6: usize = 65_527;

/// `MSG_FASTOPEN` of `linux/socket.h`.
const FAST_OPEN: u32 = 0x2000_0000;

/// The arguments of a send other than its bytes.
#[derive(Clone, Copy, Default)]
pub struct Outgoing<'a> {
    /// The destination; `None` for the peer.
    pub name: Option<Name>,
    /// The control messages, as the program passes them.
    pub control: &'a [u8],
    /// The `MSG_` flags.
    pub flags: u32,
}

impl InetSocket {
    /// Sends bytes of a stream, or a datagram. Returns the number of bytes sent.
    ///
    /// # Errors
    /// `EPIPE` (with SIGPIPE for a stream, unless `MSG_NOSIGNAL`), `ECONNRESET`, `ECONNREFUSED`, `EDESTADDRREQ`,
    /// `EMSGSIZE`, `EAGAIN`, `ENETUNREACH`, `EOPNOTSUPP`, `ERESTARTSYS`, `EINTR`, `EFAULT`, `ENOMEM`.
    pub fn send(
        self: &Arc<Self>,
        caller: &dyn Caller,
        open: &OpenFile,
        outgoing: Outgoing<'_>,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let urgent = outgoing.flags & net::MSG_OOB != 0;
        if urgent && !self.is_stream() {
            return Err(Errno::EOPNOTSUPP);
        }
        caller.check_heap()?;
        if !self.is_stream() {
            return self.send_datagram(outgoing, source);
        }
        if outgoing.flags & FAST_OPEN != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        ancillary::check(outgoing.control)?;
        let nonblocking = open.is_nonblocking() || outgoing.flags & net::MSG_DONTWAIT != 0;
        let result = self.send_stream(caller, nonblocking, urgent, source);
        if result == Err(Errno::EPIPE) && outgoing.flags & net::MSG_NOSIGNAL == 0 {
            caller.broken_pipe();
        }
        result
    }

    /// Returns the socket to which this stream socket sends, or an error if it can send nothing.
    fn receiver(&self) -> Result<Receiver, Errno> {
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        match state.progress.phase {
            Phase::Connecting => return Ok(Receiver::Coming),
            Phase::Closed | Phase::Listening => return Err(Errno::EPIPE),
            Phase::Connected if state.progress.write_shut => return Err(Errno::EPIPE),
            Phase::Connected => {}
        }
        let beyond = state.settings.send_room();
        let peer = state.peer.as_ref().and_then(Weak::upgrade);
        Ok(peer.map_or(Receiver::Gone, |peer| Receiver::Peer(peer, beyond)))
    }

    /// Sends bytes until the source is empty, or until a non-blocking call would wait. `urgent` is true if the last
    /// byte is urgent.
    fn send_stream(
        &self,
        caller: &dyn Caller,
        nonblocking: bool,
        urgent: bool,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        let result = loop {
            match self.send_part(caller, urgent, source) {
                Ok(Part::Sent(count)) => done += count,
                Ok(Part::Full) if nonblocking => break Err(Errno::EAGAIN),
                Ok(Part::Full) => {
                    if let Err(error) = self.wait_for_room(caller) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
            if source.left() == 0 {
                break Ok(());
            }
        };
        match result {
            Err(error) if done == 0 => Err(error),
            Ok(()) | Err(_) => Ok(done),
        }
    }

    /// Sends as many of the next bytes of a stream as the peer has room for, up to [`LARGEST_PART`].
    fn send_part(
        &self,
        caller: &dyn Caller,
        urgent: bool,
        source: &mut Source<'_>,
    ) -> Result<Part, Errno> {
        let turn = self.sending.take(caller)?;
        let part = source.left().min(LARGEST_PART);
        let (peer, room) = match self.receiver()? {
            Receiver::Coming => return Ok(Part::Full),
            Receiver::Gone => return Ok(self.send_to_nobody(part, source)),
            Receiver::Peer(peer, beyond) => {
                let room = peer.room_for(beyond);
                (peer, room)
            }
        };
        if room <= OVERHEAD {
            return Ok(Part::Full);
        }
        let part = part.min(room - OVERHEAD);
        let bytes = fetch(source, part)?;
        let count = bytes.len();
        if count > 0 {
            let mut state = peer.state.lock();
            if state.closed {
                drop(state);
                return Ok(self.send_to_nobody(count, source));
            }
            let last = if urgent && source.left() == 0 {
                bytes.last().copied()
            } else {
                None
            };
            let refused = state.inbox.append(bytes);
            if let Some(last) = last.filter(|_| refused.is_ok()) {
                state.note_urgent(last);
            }
            drop(state);
            refused.map_err(|_| Errno::ENOMEM)?;
            drop(turn);
            if last.is_some() {
                peer.signal_urgent();
            }
            peer.readable.wake_all();
        }
        Ok(Part::Sent(count))
    }

    /// Drops `count` bytes of `source` because the peer was closed. Resets the connection, as the peer's answer would.
    fn send_to_nobody(&self, count: usize, source: &mut Source<'_>) -> Part {
        source.skip(count);
        self.take_reset();
        Part::Sent(count)
    }

    /// Waits until the peer has room, or until sending fails.
    fn wait_for_room(&self, caller: &dyn Caller) -> Result<(), Errno> {
        let timeout = self.settings().send_timeout;
        let deadline = self.deadline(timeout);
        let look = || {
            let (progress, failed, peer, beyond) = {
                let state = self.state.lock();
                let peer = state.peer.as_ref().and_then(Weak::upgrade);
                let beyond = state.settings.send_room();
                (state.progress, state.error.is_some(), peer, beyond)
            };
            let open = progress.phase == Phase::Connected && !progress.write_shut;
            let waits = progress.phase == Phase::Connecting
                || open && peer.is_some_and(|peer| !peer.is_writable(beyond));
            (failed || !waits).then_some(())
        };
        caller
            .wait_until(&[&self.writable], deadline, look)
            .map_err(|error| match error {
                WaitError::Interrupted if timeout > 0 => Errno::EINTR,
                other => other.restart(),
            })
    }

    /// Sends a datagram (Linux 7.2 `net/ipv4/udp.c`, `udp_sendmsg`; `net/ipv6/udp.c`). The datagram is dropped if its
    /// receiver has no room for it.
    fn send_datagram(
        self: &Arc<Self>,
        outgoing: Outgoing<'_>,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let length = source.left();
        if length > usize::from(u16::MAX) {
            return Err(Errno::EMSGSIZE);
        }
        let connected = self.held.lock().remote;
        let to = match (outgoing.name, connected) {
            (Some(Name::Endpoint(endpoint)), _) | (None, Some(endpoint)) => endpoint,
            (Some(Name::Unspecified), Some(endpoint)) if self.family == Family::V6 => endpoint,
            (Some(Name::Unspecified), _) => return Err(Errno::EAFNOSUPPORT),
            (None, None) => return Err(Errno::EDESTADDRREQ),
        };
        if to.port == 0 {
            return Err(Errno::EINVAL);
        }
        let (error, choices, shut) = {
            let mut state = self.state.lock();
            let error = state.error.take();
            (error, state.settings.choices, state.progress.write_shut)
        };
        let to = route(self.family, choices.is_only_v6(), to)?;
        let family = to.ip.family();
        let chosen = if outgoing.control.is_empty() {
            Chosen::default()
        } else {
            ancillary::chosen(self.family, family, outgoing.control)?
        };
        if let Some(error) = error {
            return Err(error);
        }
        let most = match family {
            Family::V4 => LARGEST_V4,
            Family::V6 => LARGEST_V6,
        };
        if length > most {
            return Err(Errno::EMSGSIZE);
        }
        if shut {
            return Err(Errno::EPIPE);
        }
        self.bind_any()?;
        let own = self.name();
        let own_ip = Some(own.ip).filter(|ip| !ip.is_any());
        let from = Endpoint {
            ip: chosen.source.or(own_ip).unwrap_or_else(|| to.ip.source()),
            ..own
        };
        let bytes = fetch(source, length)?;
        if bytes.len() < length {
            return Err(Errno::EFAULT);
        }
        let (hops, class) = chosen.hops_and_class(family, &choices);
        let piece = Piece {
            bytes,
            start: 0,
            header: Some(Header {
                from,
                to,
                hops,
                class,
            }),
        };
        match self.network.find(self.protocol, from, to) {
            Some(receiver) => receiver.deliver(piece),
            None if connected == Some(to) || choices.receives_errors() => self.note_refusal(),
            None => {}
        }
        Ok(length)
    }

    /// Appends a datagram to the inbox. Drops it if the receive buffer is full.
    fn deliver(&self, piece: Piece) {
        let refused = {
            let mut state = self.state.lock();
            let full = state.inbox.charged() > state.settings.receive_buffer;
            if full || state.closed {
                Some(piece)
            } else {
                state.inbox.push(piece).err()
            }
        };
        if refused.is_none() {
            self.readable.wake_all();
        }
    }

    /// Records the error `ECONNREFUSED`, because no socket receives at the destination of a datagram.
    fn note_refusal(&self) {
        self.state.lock().error = Some(Errno::ECONNREFUSED);
        self.wake();
    }
}

/// The state of the socket to which a stream socket sends.
enum Receiver {
    /// The connection is not established yet.
    Coming,
    /// The other end was closed.
    Gone,
    /// The peer, and the number of bytes that can be in its inbox beyond its receive buffer.
    Peer(Arc<InetSocket>, usize),
}

/// The result of an attempt to send a part of a stream.
enum Part {
    /// This number of bytes was sent.
    Sent(usize),
    /// The peer has no room now.
    Full,
}

/// Copies the next `length` bytes from `source`. Returns fewer bytes after a fault.
fn fetch(source: &mut Source<'_>, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_fill(length, 0)?;
    let count = if length == 0 {
        0
    } else {
        source.take(&mut bytes)?
    };
    bytes.truncate(count);
    Ok(bytes)
}
