//! Shutting and closing.

use super::Socket;
use crate::{errno::Errno, kernel::Kernel};
use linux_raw_sys::net;

/// Which direction is shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directions {
    /// Nothing more is received.
    pub read: bool,
    /// Nothing more is sent.
    pub write: bool,
}

impl Directions {
    /// The directions of `shutdown`.
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
    /// Shuts directions of the socket, and their other side at the peer.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn shut(&self, kernel: &Kernel, how: u32) -> Result<(), Errno> {
        let directions = Directions::from_number(how)?;
        let peer = self.peer();
        if peer.is_none() && self.kind.connects() && self.state.lock().listening.is_none() {
            return Err(Errno::ENOTCONN);
        }
        self.mark_shut(kernel, directions, None);
        if let (Some(Ok(peer)), true) = (peer, self.kind.connects()) {
            let across = Directions {
                read: directions.write,
                write: directions.read,
            };
            peer.mark_shut(kernel, across, None);
        }
        Ok(())
    }

    fn mark_shut(&self, kernel: &Kernel, directions: Directions, error: Option<Errno>) {
        {
            let mut state = self.state.lock();
            state.read_shut |= directions.read;
            state.write_shut |= directions.write;
            state.error = state.error.or(error);
        }
        self.readable.wake_all(kernel);
        self.writable.wake_all(kernel);
        self.wake_senders(kernel);
    }

    /// The last descriptor is closed: the peer hears of it, and learns of what was never read.
    pub(super) fn close(&self, kernel: &Kernel) {
        let (inbox, listening) = {
            let mut state = self.state.lock();
            state.read_shut = true;
            state.write_shut = true;
            state.charged = 0;
            let inbox = core::mem::take(&mut state.inbox);
            (inbox, state.listening.take())
        };
        let unread = !inbox.is_empty();
        drop(inbox);
        if let (Some(Ok(peer)), true) = (self.peer(), self.kind.connects()) {
            let both = Directions {
                read: true,
                write: true,
            };
            peer.mark_shut(kernel, both, unread.then_some(Errno::ECONNRESET));
        }
        if let Some(listening) = listening {
            for waiting in &listening.waiting {
                waiting.close(kernel);
            }
        }
        self.wake_senders(kernel);
    }

    /// Drops what waits unread.
    pub(super) fn discard(&self) {
        let inbox = core::mem::take(&mut self.state.lock().inbox);
        drop(inbox);
    }
}
