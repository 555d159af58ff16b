//! The states of a connection, and the readiness that follows from them.

use crate::fs::readiness::Readiness;

/// The phase of a connection, as one of its ends sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// There is no connection, or the connection was reset.
    #[default]
    Closed,
    /// The socket accepts connections.
    Listening,
    /// The socket waits for room in the accept queue of the listening socket.
    Connecting,
    /// The connection is established.
    Connected,
}

/// The state of a connection, as one of its ends sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the connection is established.
    pub phase: Phase,
    /// Whether receiving was shut down. It is also set when the other end shuts down sending, and by a reset.
    pub read_shut: bool,
    /// Whether sending was shut down.
    pub write_shut: bool,
    /// Whether the other end has shut down sending.
    pub ended: bool,
    /// Whether this end was the first to shut down sending.
    pub ended_first: bool,
}

/// The states of a connection that this kernel reports, with their numbers in `/proc/net/tcp` (Linux 7.2
/// `include/net/tcp_states.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TcpState {
    /// Both ends can send.
    Established = 1,
    /// The connection waits for room in the accept queue.
    SynSent = 2,
    /// This end has shut down sending.
    FinWait = 5,
    /// There is no connection.
    Close = 7,
    /// The other end has shut down sending.
    CloseWait = 8,
    /// The socket accepts connections.
    Listen = 10,
}

impl Progress {
    /// Returns the state of the connection.
    #[must_use]
    pub const fn state(&self) -> TcpState {
        match (self.phase, self.write_shut, self.ended) {
            (Phase::Closed, _, _) | (Phase::Connected, true, true) => TcpState::Close,
            (Phase::Listening, _, _) => TcpState::Listen,
            (Phase::Connecting, _, _) => TcpState::SynSent,
            (Phase::Connected, false, false) => TcpState::Established,
            (Phase::Connected, true, false) => TcpState::FinWait,
            (Phase::Connected, false, true) => TcpState::CloseWait,
        }
    }

    /// Returns whether the connection is established and at least one end can still send.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        match self.state() {
            TcpState::Established | TcpState::FinWait | TcpState::CloseWait => true,
            TcpState::SynSent | TcpState::Close | TcpState::Listen => false,
        }
    }

    /// Returns whether the connection enters the state `TIME_WAIT` when the socket at this end is closed.
    #[must_use]
    pub const fn waits_after_close(&self) -> bool {
        matches!(self.phase, Phase::Connected) && (self.ended_first || !self.ended)
    }

    /// Records that this end has shut down sending.
    pub const fn end(&mut self) {
        self.ended_first |= !self.ended && !self.write_shut;
        self.write_shut = true;
    }

    /// Records that the other end has shut down sending.
    pub const fn note_end(&mut self) {
        self.ended = true;
        self.read_shut = true;
    }

    /// Records that the connection was reset.
    pub const fn reset(&mut self) {
        self.phase = Phase::Closed;
        self.read_shut = true;
        self.write_shut = true;
    }

    /// Returns the readiness of a stream socket that is not listening (`tcp_poll` of Linux 7.2, `net/ipv4/tcp.c`).
    /// `readable` is true if there are bytes to receive, `writable` if the peer's inbox has room, and `failed` if an
    /// error is pending.
    #[must_use]
    pub fn readiness(&self, readable: bool, writable: bool, failed: bool) -> Readiness {
        let mut ready = Readiness::empty();
        let state = self.state();
        let shut = self.read_shut && self.write_shut;
        ready.set(Readiness::HANGUP, shut || state == TcpState::Close);
        ready.set(Readiness::READ | Readiness::READ_HANGUP, self.read_shut);
        if state != TcpState::SynSent {
            if readable {
                ready |= Readiness::READ;
            }
            ready.set(Readiness::WRITE, self.write_shut || writable);
        }
        ready.set(Readiness::ERROR, failed);
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected() -> Progress {
        Progress {
            phase: Phase::Connected,
            ..Progress::default()
        }
    }

    #[test]
    fn states_follow_from_events() {
        type Event = fn(&mut Progress);
        let cases: [(&[Event], TcpState, bool); 7] = [
            (&[], TcpState::Established, true),
            (&[Progress::end], TcpState::FinWait, true),
            (&[Progress::note_end], TcpState::CloseWait, false),
            (&[Progress::end, Progress::note_end], TcpState::Close, true),
            (&[Progress::note_end, Progress::end], TcpState::Close, false),
            (
                &[Progress::note_end, Progress::end, Progress::end],
                TcpState::Close,
                false,
            ),
            (&[Progress::reset], TcpState::Close, false),
        ];
        for (events, state, waits) in cases {
            let mut progress = connected();
            for event in events {
                event(&mut progress);
            }
            assert_eq!(
                (progress.state(), progress.waits_after_close()),
                (state, waits)
            );
        }
    }

    #[test]
    fn readiness_follows_from_states() {
        use Readiness as R;
        let fresh = Progress::default();
        let connecting = Progress {
            phase: Phase::Connecting,
            ..fresh
        };
        let (mut ended, mut reset) = (connected(), connected());
        ended.note_end();
        reset.reset();
        let all = R::READ | R::WRITE | R::HANGUP | R::READ_HANGUP;
        for (progress, readable, failed, expected) in [
            (fresh, false, false, R::WRITE | R::HANGUP),
            (connecting, false, false, R::empty()),
            (connected(), false, false, R::WRITE),
            (connected(), true, false, R::READ | R::WRITE),
            (ended, false, false, R::READ | R::WRITE | R::READ_HANGUP),
            (reset, false, true, all | R::ERROR),
        ] {
            assert_eq!(progress.readiness(readable, true, failed), expected);
        }
        assert_eq!(connected().readiness(false, false, false), R::empty());
    }
}
