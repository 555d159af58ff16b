//! Epoll instances (called epolls): a set of watched open files, and the list of those that became ready.
//!
//! An entry ([`Item`]) observes the wait queues of its file. A wake-up of such a queue puts the entry on the ready list
//! and wakes the epoll's own queue. The wake-up does not poll the file. The thread that collects events
//! (`Epoll::collect`) takes entries off the list, polls their files, and puts the level-triggered entries that are
//! ready back on the list. A level-triggered entry that is not ready stays off the list. After its event is returned,
//! an edge-triggered entry stays off the list until the next wake-up. A one-shot entry reports no further events until
//! `EPOLL_CTL_MOD`.
//!
//! The epoll holds no reference to a watched file. When the file's last descriptor is closed, the file removes its
//! entries from all epolls ([`Watches`]). An entry is immutable: `EPOLL_CTL_MOD` replaces it by a new entry.

mod collect;
mod control;
mod file;
mod nesting;
mod types;

pub use crate::fs::watch::{
    interest::{Event, Interest},
    watches::Watches,
};
pub use collect::FoundEvents;
pub use file::EpollFile;
pub use types::{Epoll, Item};
