//! The urgent byte of a stream (`MSG_OOB`; Linux 7.3 `net/ipv4/tcp_input.c`, `tcp_check_urg`, and `net/ipv4/tcp.c`,
//! `tcp_recv_urg`).
//!
//! The byte stays in the stream, and its position is the mark. A receive stops before the mark, and the next receive
//! skips the byte unless `SO_OOBINLINE` is set. Only the newest urgent byte has a mark.

use crate::fs::{
    inet::{
        receive::Incoming,
        socket::{InetSocket, State},
        state::Phase,
    },
    transfer::Sink,
};
use linux_raw_sys::net;
use memwright_linux_abi::errno::Errno;

/// The urgent byte of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Urgent {
    /// The position of the byte in the stream.
    sequence: u64,
    /// The byte; `None` once a receive with `MSG_OOB` has returned it.
    byte: Option<u8>,
}

impl State {
    /// Returns the number of bytes before the mark; `None` if there is no mark or a receive has passed it.
    pub(super) fn before_mark(&self) -> Option<usize> {
        let urgent = self.urgent.as_ref()?;
        let front = self.inbox.front_sequence();
        urgent
            .sequence
            .checked_sub(front)
            .map(|count| count as usize)
    }

    /// Returns whether a receive skips the urgent byte.
    pub(super) const fn skips_mark(&self) -> bool {
        !self.settings.choices.has_urgent_inline()
    }

    /// Returns whether the stream is at the mark (`SIOCATMARK`).
    pub(super) fn is_at_mark(&self) -> bool {
        self.before_mark() == Some(0)
    }

    /// Returns whether there is an urgent byte that no receive with `MSG_OOB` has returned yet.
    pub(super) fn has_urgent(&self) -> bool {
        self.urgent.is_some_and(|urgent| urgent.byte.is_some())
    }

    /// Returns whether a receive without `MSG_OOB` would return a datagram, which can be empty, or a byte of a stream.
    pub(super) fn is_readable(&self) -> bool {
        let skipped = self.urgent.is_some() && self.skips_mark() && self.is_at_mark();
        if skipped {
            self.inbox.bytes() > 1
        } else {
            !self.inbox.is_empty()
        }
    }

    /// Makes `byte`, the last byte of the stream, the urgent byte. If the first byte of the inbox is an earlier urgent
    /// byte that a receive would skip, drops that earlier byte.
    pub(super) fn note_urgent(&mut self, byte: u8) {
        let sequence = self.inbox.received() - 1;
        if self.is_at_mark() && self.skips_mark() && self.inbox.front_sequence() < sequence {
            self.inbox.drop_first();
        }
        self.urgent = Some(Urgent {
            sequence,
            byte: Some(byte),
        });
    }

    /// Removes the mark if a receive has passed it.
    pub(super) fn pass_mark(&mut self) {
        if self.urgent.is_some() && self.before_mark().is_none() {
            self.urgent = None;
        }
    }
}

/// The part of the unreceived bytes that one receive can return without passing the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Number of bytes to skip first: 1 if the stream is at the mark and a receive skips the urgent byte.
    pub(super) skipped: usize,
    /// Number of bytes to return.
    pub(super) wanted: usize,
}

impl Cut {
    /// Returns the part for a receive of up to `wanted` bytes. The mark is `before` bytes away; `None` if there is no
    /// mark. `skips` is true if a receive skips the urgent byte.
    pub(super) fn at(before: Option<usize>, skips: bool, wanted: usize) -> Self {
        match before {
            Some(0) if skips && wanted > 0 => Self {
                skipped: 1,
                wanted: wanted - 1,
            },
            Some(before) if before > 0 => Self {
                skipped: 0,
                wanted: wanted.min(before),
            },
            Some(_) | None => Self { skipped: 0, wanted },
        }
    }
}

impl InetSocket {
    /// Receives the urgent byte (`MSG_OOB`).
    ///
    /// # Errors
    /// `EINVAL` if there is no urgent byte, or if `SO_OOBINLINE` is set; `ENOTCONN`, `EFAULT`.
    pub(super) fn receive_urgent(
        &self,
        flags: u32,
        sink: &mut Sink<'_>,
    ) -> Result<Incoming, Errno> {
        let byte = {
            let mut state = self.state.lock();
            if state.progress.phase == Phase::Listening {
                return Err(Errno::ENOTCONN);
            }
            let (skips, reset) = (
                state.skips_mark(),
                state.progress.phase == Phase::Closed && !state.progress.ended,
            );
            let urgent = state.urgent.as_mut().filter(|_| skips);
            let urgent = urgent.ok_or(Errno::EINVAL)?;
            let byte = urgent.byte.ok_or(Errno::EINVAL)?;
            if reset {
                return Err(Errno::ENOTCONN);
            }
            if flags & net::MSG_PEEK == 0 {
                urgent.byte = None;
            }
            byte
        };
        let count = match sink.left() {
            0 => 0,
            _ if flags & net::MSG_TRUNC != 0 => {
                sink.skip(1);
                1
            }
            _ => sink.put(&[byte])?,
        };
        Ok(Incoming {
            count,
            length: 1,
            urgent: true,
            ..Incoming::default()
        })
    }

    /// Sends SIGURG to the owner of the socket's file, because a new urgent byte arrived (`sk_send_sigurg`).
    pub(super) fn signal_urgent(&self) {
        let Some(open) = self.file.lock().upgrade() else {
            return;
        };
        let owner = open.owner.get();
        let observer = owner.and_then(|owner| owner.urgent.lock().clone());
        if let Some(observer) = observer {
            observer.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cut;

    #[test]
    fn parts_end_at_the_mark() {
        #[rustfmt::skip]
        let rows = [
            // The arguments of `Cut::at`: bytes before the mark, whether a receive skips the urgent byte, and bytes
            // wanted. Then the expected numbers of bytes to skip and to return.
            (None,    true,  5, (0, 5)),
            (Some(3), true,  5, (0, 3)),
            (Some(3), false, 2, (0, 2)),
            (Some(0), true,  5, (1, 4)),
            (Some(0), true,  1, (1, 0)),
            (Some(0), true,  0, (0, 0)),
            (Some(0), false, 5, (0, 5)),
            (Some(7), true,  5, (0, 5)),
        ];
        for (before, skips, wanted, expected) in rows {
            let cut = Cut::at(before, skips, wanted);
            assert_eq!(
                (cut.skipped, cut.wanted),
                expected,
                "{before:?} {skips} {wanted}"
            );
        }
    }
}
