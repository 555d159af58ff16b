//! Shuts down and closes sockets.

use crate::fs::socket::{Message, Remains, Socket, socket::State};
use alloc::{collections::VecDeque, sync::Arc};
use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;

/// The directions that a shutdown closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directions {
    /// Whether receiving is shut down.
    pub read: bool,
    /// Whether sending is shut down.
    pub write: bool,
}

impl Directions {
    /// Decodes the argument `how` of `shutdown`.
    ///
    /// # Errors
    /// `EINVAL`.
    pub const fn from_number(how: u32) -> Result<Self, Errno> {
        let (read, write) = match how {
            net::SHUT_RD => (true, false),
            net::SHUT_WR => (false, true),
            net::SHUT_RDWR => (true, true),
            _ => return Err(Errno::EINVAL),
        };
        Ok(Self { read, write })
    }
}

impl Socket {
    /// Shuts down the directions that `how` selects, and the opposite directions of the peer.
    ///
    /// # Errors
    /// `EINVAL` for an invalid `how`, `ENOTCONN` if the socket must be connected and is not connected.
    pub fn shut(&self, how: u32) -> Result<(), Errno> {
        let directions = Directions::from_number(how)?;
        let peer = self.peer();
        if peer.is_none() && self.kind.connects() && self.state.lock().listening.is_none() {
            return Err(Errno::ENOTCONN);
        }
        self.mark_shut(directions, None);
        if let (Some(Ok(peer)), true) = (peer, self.kind.connects()) {
            let across = Directions {
                read: directions.write,
                write: directions.read,
            };
            peer.mark_shut(across, None);
        }
        Ok(())
    }

    fn mark_shut(&self, directions: Directions, error: Option<Errno>) {
        {
            let mut state = self.state.lock();
            state.read_shut |= directions.read;
            state.write_shut |= directions.write;
            state.error = state.error.or(error);
        }
        self.readable.wake_all();
        self.writable.wake_all();
        self.wake_senders();
    }

    /// Closes the socket and hangs up its peer. Called when the socket's last descriptor is closed. Moves unread
    /// messages to `remains`. If there are unread messages, the peer gets the error `ECONNRESET`. Returns whether the
    /// socket was open.
    pub(super) fn close(&self, remains: &mut Remains) -> bool {
        let unread = {
            let mut state = self.state.lock();
            if core::mem::replace(&mut state.closed, true) {
                return false;
            }
            !state.inbox.is_empty()
        };
        let waiting = self.empty(remains);
        if let (Some(Ok(peer)), true) = (self.peer(), self.kind.connects()) {
            let both = Directions {
                read: true,
                write: true,
            };
            peer.mark_shut(both, unread.then_some(Errno::ECONNRESET));
        }
        // A connection in the accept queue is not a listening socket, so the recursion is at most one level deep.
        for connection in waiting {
            connection.close(remains);
        }
        self.wake_senders();
        true
    }

    /// Shuts down the socket, and moves its unread messages to `remains`. Returns the connections in its accept queue.
    fn empty(&self, remains: &mut Remains) -> VecDeque<Arc<Self>> {
        self.take_messages(remains);
        let listening = self.state.lock().listening.take();
        listening.map_or_else(VecDeque::new, |listening| listening.waiting)
    }

    /// Shuts down a socket that no descriptor can reach. Moves its unread messages and those of the connections in its
    /// accept queue to `remains`. Closes no open file, so that the caller can hold the traffic lock.
    pub(super) fn abandon(&self, remains: &mut Remains) {
        self.take_messages(remains);
        for place in 0.. {
            let waiting = connection(&self.state.lock(), place);
            match waiting {
                Some(waiting) => waiting.take_messages(remains),
                None => return,
            }
        }
    }

    fn take_messages(&self, remains: &mut Remains) {
        let mut state = self.state.lock();
        state.read_shut = true;
        state.write_shut = true;
        state.charged = 0;
        state.carried = 0;
        if let Some(mut shell) = state.shell.take() {
            shell.messages = core::mem::take(&mut state.inbox);
            drop(state);
            remains.add(shell);
        }
    }

    /// Calls `show` for each message that carries open files, in the inbox of this socket and of the connections in its
    /// accept queue.
    pub(super) fn each_message_with_files(&self, show: &mut dyn FnMut(&Message)) {
        let mut waiting = {
            let state = self.state.lock();
            if state.carried > 0 {
                let carrying = |message: &&Message| !message.rights.is_empty();
                state.inbox.iter().filter(carrying).for_each(&mut *show);
            }
            connection(&state, 0)
        };
        let mut next = 1;
        while let Some(other) = waiting {
            let state = other.state.lock();
            let carrying = |message: &&Message| !message.rights.is_empty();
            state.inbox.iter().filter(carrying).for_each(&mut *show);
            drop(state);
            waiting = connection(&self.state.lock(), next);
            next += 1;
        }
    }
}

/// Returns the connection at index `place` of the accept queue, or `None` if there is none.
fn connection(state: &State, place: usize) -> Option<Arc<Socket>> {
    state.listening.as_ref()?.waiting.get(place).cloned()
}

impl Drop for Socket {
    /// Removes the socket from the list of all sockets. Discards its messages, which a socket without an open file can
    /// still have.
    fn drop(&mut self) {
        self.registry.forget(self);
        let _waiting = self.empty(&mut Remains::default());
    }
}
