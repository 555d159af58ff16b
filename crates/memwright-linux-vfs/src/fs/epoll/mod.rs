//! `epoll`: a set of watched open files, and the list of those that became ready.
//!
//! An entry ([`Item`]) observes the wait queues of its file. A wake-up of such a queue puts the entry on the ready list
//! and wakes the epoll's own queue. It does not poll the file. The thread that collects events (`Epoll::collect`) takes
//! entries off the list, polls their files, and puts the level-triggered entries that are ready back on the list. A
//! level-triggered entry that is found not ready leaves the list. An edge-triggered entry always leaves it.
//!
//! An entry belongs to its open file. The epoll holds no reference to the file; when the file's last descriptor is
//! closed, its entries are removed ([`Watches`]). An entry is immutable: `EPOLL_CTL_MOD` replaces it by a new entry.

mod collect;
mod control;
mod file;
// `nesting` reserves room in its lists before the lists grow.
mod nesting;
mod types;

pub use crate::fs::watch::{
    interest::{Event, Interest},
    watches::Watches,
};
pub use collect::FoundEvents;
pub use file::EpollFile;
pub use types::{Epoll, Item};
