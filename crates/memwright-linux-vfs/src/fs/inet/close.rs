//! Shuts down, resets and closes sockets.

use crate::fs::{
    inet::{
        connect::forget,
        piece::Piece,
        socket::InetSocket,
        state::{Phase, TcpState},
    },
    socket::Directions,
};
use alloc::{
    collections::VecDeque,
    sync::{Arc, Weak},
};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::PausePoints;

/// Number of pieces that are freed between two scheduling points.
const FREED: u32 = 64;

/// Frees the pieces of an inbox, with scheduling points in between.
fn free(pieces: VecDeque<Piece>) {
    let mut points = PausePoints::every(FREED);
    for piece in pieces {
        drop(piece);
        points.round();
    }
}

impl InetSocket {
    /// Shuts down the directions that `how` selects (Linux 7.2 `net/ipv4/af_inet.c`, `inet_shutdown`).
    ///
    /// # Errors
    /// `EINVAL` for an invalid `how`, `ENOTCONN`.
    pub fn shut(&self, how: u32) -> Result<(), Errno> {
        let directions = Directions::from_number(how)?;
        let connected = match self.is_stream() {
            true => self.state.lock().progress.state(),
            false if self.held.lock().remote.is_some() => TcpState::Established,
            false => TcpState::Close,
        };
        match connected {
            TcpState::Listen => {
                if directions.read {
                    self.stop_listening();
                }
                return Ok(());
            }
            TcpState::SynSent => {
                self.refuse(Errno::ECONNRESET);
                return Ok(());
            }
            TcpState::Established | TcpState::FinWait | TcpState::Close | TcpState::CloseWait => {}
        }
        let ended = {
            let mut state = self.state.lock();
            state.progress.read_shut |= directions.read;
            let ends = directions.write && !state.progress.write_shut;
            if directions.write {
                state.progress.end();
            }
            state.peer.clone().filter(|_| ends)
        };
        if let Some(peer) = ended.as_ref().and_then(Weak::upgrade) {
            peer.take_end();
        }
        self.wake();
        if connected == TcpState::Close {
            Err(Errno::ENOTCONN)
        } else {
            Ok(())
        }
    }

    /// Records that the other end has shut down sending.
    fn take_end(&self) {
        self.state.lock().progress.note_end();
        self.wake();
    }

    /// Records that the other end has reset the connection (`tcp_reset` of Linux 7.2, `net/ipv4/tcp_input.c`). Bytes in
    /// the inbox can still be received.
    pub(super) fn take_reset(&self) {
        {
            let mut state = self.state.lock();
            let error = match state.progress.state() {
                TcpState::CloseWait => Errno::EPIPE,
                TcpState::Close | TcpState::Listen => return,
                TcpState::Established | TcpState::SynSent | TcpState::FinWait => Errno::ECONNRESET,
            };
            state.error = Some(error);
            state.progress.reset();
        }
        self.network.reset(self);
        self.wake();
    }

    /// Closes the socket. Its peer gets the end of the stream, or a reset if the socket has unread bytes or `SO_LINGER`
    /// with a time of 0 (`__tcp_close` of Linux 7.2, `net/ipv4/tcp.c`).
    pub(super) fn close(&self) {
        self.end(false);
    }

    /// Closes a socket that never had a descriptor, and resets its connection.
    pub(super) fn abort(&self) {
        self.end(true);
    }

    fn end(&self, resets: bool) {
        self.stop_listening();
        let (unread, peer, knocks_at, resets, waits) = {
            let mut state = self.state.lock();
            if core::mem::replace(&mut state.closed, true) {
                return;
            }
            let unread = state.inbox.empty();
            let resets = resets || !unread.is_empty() || state.settings.linger == Some(0);
            let waits = state.progress.waits_after_close() && !resets;
            let ends = state.progress.phase == Phase::Connected && !state.progress.write_shut;
            let resets = resets && state.progress.phase == Phase::Connected;
            let peer = state.peer.take().filter(|_| ends || resets);
            state.progress.reset();
            (unread, peer, state.knocks_at.take(), resets, waits)
        };
        self.network.close(self, waits, self.vfs.clock.now());
        if let Some((listener, number)) = knocks_at {
            forget(&listener, number);
        }
        if let Some(peer) = peer.and_then(|peer: Weak<Self>| peer.upgrade()) {
            if resets {
                peer.take_reset();
            } else {
                peer.take_end();
            }
        }
        free(unread);
        self.wake();
    }
}

/// The open file behind a descriptor of an internet socket.
pub struct InetFile {
    /// The socket.
    pub socket: Arc<InetSocket>,
}

impl Drop for InetFile {
    fn drop(&mut self) {
        self.socket.close();
        self.socket.readable.sweep();
        self.socket.writable.sweep();
    }
}
