//! The events that an entry of an epoll waits for, and how it reports them.

use crate::fs::readiness::Readiness;
use linux_raw_sys::general as raw;
use memwright_linux_abi::abi_struct;

abi_struct! {
    /// `struct epoll_event` of `linux/eventpoll.h`, packed on x86-64.
    pub struct Event {
        /// The events that `epoll_ctl` requests, or the ready events that `epoll_wait` returns.
        pub events: u32,
        /// The data that the program passed to `epoll_ctl`.
        pub data: u64,
    }
}

/// The events that an entry waits for, and how it reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// The `EPOLL` bits: events, and flags such as `EPOLLET`.
    pub events: u32,
    /// The data that the program passed to `epoll_ctl`.
    pub data: u64,
}

/// The bits that an exclusive entry is allowed to have (`EPOLLEXCLUSIVE_OK_BITS` of Linux 7.2, `fs/eventpoll.c`).
const EXCLUSIVE_BITS: u32 = raw::EPOLLIN
    | raw::EPOLLOUT
    | raw::EPOLLERR
    | raw::EPOLLHUP
    | raw::EPOLLWAKEUP
    | raw::EPOLLET
    | raw::EPOLLEXCLUSIVE;

impl Interest {
    /// Returns whether the entry is exclusive (`EPOLLEXCLUSIVE`): a wake-up of the file notifies at most one exclusive
    /// entry with a waiting thread.
    #[must_use]
    pub const fn is_exclusive(&self) -> bool {
        self.events & raw::EPOLLEXCLUSIVE != 0
    }

    /// Returns whether an exclusive entry is allowed to have these events.
    #[must_use]
    pub const fn may_be_exclusive(&self) -> bool {
        self.events & !EXCLUSIVE_BITS == 0
    }

    /// Returns whether the entry is edge-triggered (`EPOLLET`): it is reported once for each wake-up, however long the
    /// file stays ready.
    #[must_use]
    pub const fn is_edge_triggered(&self) -> bool {
        self.events & raw::EPOLLET != 0
    }

    /// Returns whether the entry is one-shot (`EPOLLONESHOT`): after one report it is disabled until `EPOLL_CTL_MOD`.
    #[must_use]
    pub const fn is_one_shot(&self) -> bool {
        self.events & raw::EPOLLONESHOT != 0
    }

    /// Returns the readiness that the entry waits for. Errors and hang-ups are always included.
    #[must_use]
    pub fn wanted(&self) -> Readiness {
        let always = Readiness::ERROR.union(Readiness::HANGUP);
        Readiness::from_bits_truncate(self.events).union(always)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interests_are_read() {
        let interest = |events: u32| Interest { events, data: 0 };
        assert!(interest(raw::EPOLLEXCLUSIVE | raw::EPOLLIN).may_be_exclusive());
        assert!(!interest(raw::EPOLLEXCLUSIVE | raw::EPOLLONESHOT).may_be_exclusive());
        assert!(!interest(raw::EPOLLEXCLUSIVE | raw::EPOLLRDHUP).may_be_exclusive());
        let wanted = interest(raw::EPOLLIN | raw::EPOLLET).wanted();
        assert!(wanted.contains(Readiness::ERROR | Readiness::HANGUP));
        assert!(wanted.concerns_reading() && !wanted.concerns_writing());
        let wanted = interest(raw::EPOLLOUT).wanted();
        assert!(!wanted.concerns_reading() && wanted.concerns_writing());
        // An entry without requested events observes the readers' queue, because errors wake that queue.
        assert!(interest(0).wanted().concerns_reading());
    }
}
