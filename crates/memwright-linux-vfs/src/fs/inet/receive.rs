//! Receives bytes of streams, and datagrams.

use crate::fs::{
    caller::Caller,
    inet::{
        ancillary::{Header, Told},
        piece::Piece,
        socket::InetSocket,
        state::Phase,
        urgent::Cut,
    },
    open_file::OpenFile,
    transfer::{Sink, with_buffer},
};
use alloc::sync::Weak;
use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;
use memwright_linux_sched::wait::WaitError;

/// Maximum number of bytes of a stream that a receive with `MSG_TRUNC` drops in one step. Each step ends with a check
/// whether the receive is complete.
const DROPPED: usize = 65_536;

/// The results of a receive other than its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Incoming {
    /// Number of bytes stored in the destination.
    pub count: usize,
    /// Length of the complete datagram in bytes, even if it was truncated.
    pub length: usize,
    /// The header of the received datagram; `None` for a stream.
    pub header: Option<Header>,
    /// The types of control messages that the socket's options enable.
    pub told: Told,
    /// Whether the received byte is the urgent byte (`MSG_OOB`).
    pub urgent: bool,
}

impl InetSocket {
    /// Receives bytes of a stream, or one datagram, into `sink`.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOTCONN`, `ECONNRESET`, `ECONNREFUSED`, `EINVAL`, `ERESTARTSYS`, `EINTR`, `EFAULT`.
    pub fn receive(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        flags: u32,
        sink: &mut Sink<'_>,
    ) -> Result<Incoming, Errno> {
        if flags & net::MSG_ERRQUEUE != 0 {
            return Err(Errno::EAGAIN);
        }
        let waits = !open.is_nonblocking() && flags & net::MSG_DONTWAIT == 0;
        let timeout = self.settings().receive_timeout;
        let deadline = if waits { self.deadline(timeout) } else { None };
        let wait = Wait { waits, deadline };
        if !self.is_stream() {
            return self.receive_datagram(caller, wait, flags, sink);
        }
        if flags & net::MSG_OOB != 0 {
            return self.receive_urgent(flags, sink);
        }
        let count = self.receive_stream(caller, wait, flags, sink)?;
        Ok(Incoming {
            count,
            length: count,
            ..Incoming::default()
        })
    }

    fn receive_stream(
        &self,
        caller: &dyn Caller,
        wait: Wait,
        flags: u32,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        loop {
            let turn = self.receiving.take(caller)?;
            let part = match flags {
                flags if flags & net::MSG_PEEK != 0 => self.peek_part(done, sink),
                flags if flags & net::MSG_TRUNC != 0 => self.drop_part(done, sink),
                _ => self.receive_part(done, false, sink),
            };
            drop(turn);
            match part {
                Ok(None) => return Ok(done),
                Ok(Some(0)) => {}
                Ok(Some(count)) => {
                    done += count;
                    if sink.left() == 0 {
                        return Ok(done);
                    }
                    continue;
                }
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
            let all = flags & net::MSG_WAITALL != 0 && sink.left() > 0;
            if done > 0 && (!all || flags & net::MSG_PEEK != 0) {
                return Ok(done);
            }
            let ended = self.at_end();
            let result = match ended {
                Some(_) if done > 0 => return Ok(done),
                Some(result) => return result.map(|()| 0),
                None if sink.left() == 0 => return Ok(0),
                None => self.wait_to_receive(caller, wait),
            };
            match result {
                Ok(()) => {}
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves bytes of the first piece of the stream to `sink`, or drops them if `drops` is set. `done` is the number of
    /// bytes that this receive has already moved or dropped. Returns the number of bytes, which is 0 if nothing has
    /// arrived. Returns `None` if the receive ends before the mark of the urgent byte.
    fn receive_part(
        &self,
        done: usize,
        drops: bool,
        sink: &mut Sink<'_>,
    ) -> Result<Option<usize>, Errno> {
        while sink.left() > 0 {
            let (taken, before, skips) = {
                let mut state = self.state.lock();
                let before = state.before_mark();
                if before == Some(0) && done > 0 {
                    return Ok(None);
                }
                let skips = state.skips_mark();
                (state.inbox.take(), before, skips)
            };
            let Some(mut piece) = taken else {
                return Ok(Some(0));
            };
            let bytes = &piece.bytes[piece.start..];
            let cut = Cut::at(before, skips, bytes.len().min(sink.left()));
            let part = &bytes[cut.skipped..cut.skipped + cut.wanted];
            let stored = match part {
                [] => Ok(0),
                part if drops => {
                    sink.skip(part.len());
                    Ok(part.len())
                }
                part => sink.put(part),
            };
            let count = match stored {
                Ok(count) => count,
                Err(error) => {
                    self.put_back(piece);
                    return Err(error);
                }
            };
            let charge = piece.charge();
            piece.start += cut.skipped + count;
            if piece.left() > 0 {
                let after = piece.charge();
                self.put_back(piece);
                self.make_room(charge - after);
            } else {
                self.make_room(charge);
            }
            if before.is_some() {
                self.state.lock().pass_mark();
            }
            if count > 0 {
                return Ok(Some(count));
            }
        }
        Ok(Some(0))
    }

    /// Copies bytes of the stream to `sink`, starting `from` bytes after the first unreceived byte. Returns the number
    /// of bytes, or `None` if the receive ends before the mark of the urgent byte.
    fn peek_part(&self, from: usize, sink: &mut Sink<'_>) -> Result<Option<usize>, Errno> {
        let (before, skips) = {
            let state = self.state.lock();
            (state.before_mark(), state.skips_mark())
        };
        // At the mark, skip the urgent byte, as a receive without `MSG_PEEK` does.
        let skipped = usize::from(before == Some(0) && skips);
        let most = match before {
            Some(before) if before > 0 && before <= from => return Ok(None),
            Some(before) if before > 0 => before - from,
            Some(_) | None => usize::MAX,
        };
        with_buffer(sink.left().min(most), |buffer| {
            let count = self.state.lock().inbox.peek(from + skipped, buffer);
            if count == 0 {
                return Ok(0);
            }
            sink.put(&buffer[..count])
        })
        .map(Some)
    }

    /// Drops bytes of the stream until `sink` is full or about [`DROPPED`] bytes were dropped. Returns the same values
    /// as [`Self::receive_part`].
    fn drop_part(&self, done: usize, sink: &mut Sink<'_>) -> Result<Option<usize>, Errno> {
        let mut dropped = 0;
        while dropped < DROPPED && sink.left() > 0 {
            match self.receive_part(done + dropped, true, sink)? {
                None if dropped == 0 => return Ok(None),
                None | Some(0) => break,
                Some(count) => dropped += count,
            }
        }
        Ok(Some(dropped))
    }

    /// Puts back a piece at the front of the inbox. Drops it if the socket was closed in the meantime.
    fn put_back(&self, piece: Piece) {
        let refused = {
            let mut state = self.state.lock();
            if state.closed {
                Some(piece)
            } else {
                state.inbox.put_back(piece).err()
            }
        };
        if refused.is_none() {
            self.readable.wake_all();
        }
    }

    /// Reduces the charge of the inbox by `charge` bytes. Wakes the peer if it waits for room and at least a third of
    /// the space that it can use in this inbox is free.
    fn make_room(&self, charge: usize) {
        let sender = {
            let mut state = self.state.lock();
            state.inbox.uncharge(charge);
            match state.awaited {
                Some(beyond) => {
                    let most = state.settings.receive_buffer + beyond;
                    if most.saturating_sub(state.inbox.charged()) < most / 3 {
                        None
                    } else {
                        state.awaited = None;
                        state.peer.as_ref().and_then(Weak::upgrade)
                    }
                }
                None => None,
            }
        };
        if let Some(sender) = sender {
            sender.writable.wake_all();
        }
    }

    /// Returns `None` if more bytes of the stream can arrive. Otherwise returns the result of a receive without bytes:
    /// an error, or `Ok` at the end of the stream (`tcp_recvmsg_locked` of Linux 7.2, `net/ipv4/tcp.c`).
    fn at_end(&self) -> Option<Result<(), Errno>> {
        let mut state = self.state.lock();
        if state.progress.ended {
            return Some(Ok(()));
        }
        if let Some(error) = state.error.take() {
            return Some(Err(error));
        }
        if state.progress.read_shut {
            return Some(Ok(()));
        }
        match state.progress.phase {
            Phase::Closed | Phase::Listening => Some(Err(Errno::ENOTCONN)),
            Phase::Connecting | Phase::Connected => None,
        }
    }

    fn receive_datagram(
        &self,
        caller: &dyn Caller,
        wait: Wait,
        flags: u32,
        sink: &mut Sink<'_>,
    ) -> Result<Incoming, Errno> {
        loop {
            let turn = self.receiving.take(caller)?;
            let (error, piece, shut, told) = {
                let mut state = self.state.lock();
                let error = state.error.take();
                let piece = if error.is_some() {
                    None
                } else {
                    state.inbox.take()
                };
                let told = state.settings.choices.told();
                (error, piece, state.progress.read_shut, told)
            };
            if let Some(error) = error {
                return Err(error);
            }
            if let Some(piece) = piece {
                let result = store(&piece, told, sink);
                if flags & net::MSG_PEEK != 0 || result.is_err() {
                    self.put_back(piece);
                } else {
                    self.state.lock().inbox.uncharge(piece.charge());
                }
                return result;
            }
            drop(turn);
            if shut {
                return Ok(Incoming::default());
            }
            self.wait_to_receive(caller, wait)?;
        }
    }

    fn wait_to_receive(&self, caller: &dyn Caller, wait: Wait) -> Result<(), Errno> {
        if !wait.waits {
            return Err(Errno::EAGAIN);
        }
        let changed = || {
            let state = self.state.lock();
            let progress = &state.progress;
            let ended = progress.read_shut || state.error.is_some();
            (ended || !state.inbox.is_empty()).then_some(())
        };
        caller
            .wait_until(&[&self.readable], wait.deadline, changed)
            .map_err(|error| match error {
                WaitError::Interrupted if wait.deadline.is_some() => Errno::EINTR,
                other => other.restart(),
            })
    }
}

/// Whether a receive waits for bytes or a datagram, and its deadline.
#[derive(Clone, Copy)]
struct Wait {
    waits: bool,
    deadline: Option<u64>,
}

/// Stores a datagram in `sink`, truncated to the size of `sink`.
fn store(piece: &Piece, told: Told, sink: &mut Sink<'_>) -> Result<Incoming, Errno> {
    let count = piece.bytes.len().min(sink.left());
    let stored = if count == 0 {
        0
    } else {
        sink.put(&piece.bytes[..count])?
    };
    if stored < count {
        return Err(Errno::EFAULT);
    }
    Ok(Incoming {
        count,
        length: piece.bytes.len(),
        header: piece.header,
        told,
        urgent: false,
    })
}
