//! The state of a netlink socket.

use crate::fs::{
    netlink::{
        address::NetlinkName,
        ports::Ports,
        reply::{Content, Reply},
        writer::Return,
    },
    readiness::Readiness,
    socket::Options,
};
use alloc::collections::VecDeque;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::wait::WaitQueue;

/// Default size in bytes of the buffers (`net.core.rmem_default` of Linux 7.2).
const BUFFER: usize = 212_992;

/// The mutable state of a socket.
pub(super) struct State {
    /// The port; `None` before the socket is bound.
    pub(super) port: Option<u32>,
    /// The multicast groups of which the socket is a member. No message is ever sent to a group.
    pub(super) groups: u64,
    /// The name to which the socket sends by default.
    pub(super) peer: NetlinkName,
    pub(super) replies: VecDeque<Reply>,
    /// Sum of the charges of the replies, in bytes.
    pub(super) charged: usize,
    /// Whether a reply was lost. Further replies are dropped until the program has received all replies in the queue.
    pub(super) congested: bool,
    pub(super) error: Option<Errno>,
    pub(super) options: Options,
    /// The Boolean options of `SOL_NETLINK` that are set, as a bit mask by option number.
    pub(super) flags: u32,
}

/// A netlink socket.
pub struct NetlinkSocket {
    /// The type: `SOCK_RAW` or `SOCK_DGRAM`, which have the same effect.
    pub kind: u32,
    pub(super) ports: &'static Ports,
    pub(super) state: Lock<State>,
    /// Woken when a reply arrives.
    pub(super) readable: WaitQueue,
}

impl NetlinkSocket {
    /// Creates an unbound socket of type `kind`.
    #[must_use]
    pub const fn new(ports: &'static Ports, kind: u32) -> Self {
        let state = State {
            port: None,
            groups: 0,
            peer: NetlinkName { port: 0, groups: 0 },
            replies: VecDeque::new(),
            charged: 0,
            congested: false,
            error: None,
            options: Options::new(BUFFER),
            flags: 0,
        };
        Self {
            kind,
            ports,
            state: Lock::new(Rank::File, state),
            readable: WaitQueue::new(),
        }
    }

    /// Returns the readiness (`datagram_poll` of Linux 7.2, `net/core/datagram.c`).
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let mut ready = Readiness::WRITE;
        let state = self.state.lock();
        ready.set(Readiness::READ, !state.replies.is_empty());
        ready.set(Readiness::ERROR, state.error.is_some());
        ready
    }
}

impl State {
    /// Returns whether the receive buffer has room for another reply. If there is no room, and `NETLINK_NO_ENOBUFS` is
    /// not set, the next receive fails, and replies are dropped until the queue is empty (`netlink_overrun` of Linux
    /// 7.2, `net/netlink/af_netlink.c`).
    fn has_room(&mut self) -> bool {
        /// `NETLINK_NO_ENOBUFS`.
        const SILENT: u32 = 1 << 5;
        if !self.congested && self.charged <= self.options.receive_buffer {
            return true;
        }
        if self.flags & SILENT == 0 && !core::mem::replace(&mut self.congested, true) {
            self.error = Some(Errno::ENOBUFS);
        }
        false
    }

    /// Appends a reply with each of `contents`. Drops all of these replies if there is no room.
    pub(super) fn push<const N: usize>(&mut self, to: Return, contents: [Content; N]) {
        if !self.has_room() || self.replies.try_reserve(N).is_err() {
            return;
        }
        for content in contents {
            let reply = Reply { to, content };
            self.charged += reply.charge();
            #[expect(clippy::disallowed_methods, reason = "there is room")]
            self.replies.push_back(reply);
        }
    }

    /// Removes and returns the first reply. If no reply is left, further replies are queued again.
    pub(super) fn pop(&mut self) -> Option<Reply> {
        let reply = self.replies.pop_front();
        self.charged -= reply.as_ref().map_or(0, Reply::charge);
        self.congested &= !self.replies.is_empty();
        reply
    }
}
