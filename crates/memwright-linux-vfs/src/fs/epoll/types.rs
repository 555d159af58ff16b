//! The types of epolls that watch open files.

use crate::fs::{caller::Caller, open_file::OpenFile, readiness::Readiness, watch};

/// The set of watched files.
pub type Epoll = watch::set::Epoll<OpenFile>;

/// An entry of an epoll: one watched file. A change of its interest replaces it by a new entry.
pub type Item = watch::item::Item<OpenFile>;

impl Item {
    /// Returns which of the events of interest are ready now.
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
