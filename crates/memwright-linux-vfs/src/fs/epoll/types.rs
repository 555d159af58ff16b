//! The types of epolls and entries for watched files of type [`OpenFile`].

use crate::fs::{caller::Caller, open_file::OpenFile, readiness::Readiness, watch};

/// An epoll: the set of watched files and the ready list.
pub type Epoll = watch::set::Epoll<OpenFile>;

/// An entry of an epoll: one watched file. `EPOLL_CTL_MOD` replaces it by a new entry.
pub type Item = watch::item::Item<OpenFile>;

impl Item {
    /// Polls the file. Returns the events that the entry waits for and that are ready.
    ///
    /// # Locks
    /// The caller holds no lock.
    pub(in crate::fs) fn found(&self, caller: &dyn Caller, open: &OpenFile) -> Readiness {
        if self.is_spent() {
            return Readiness::empty();
        }
        open.file
            .readiness(caller, open)
            .intersection(self.interest.wanted())
    }
}
