//! The scan period of NUMA balancing without the feature `numa`: no scan is due.

/// The time of the next scan, which never comes.
#[derive(Debug, Default)]
pub(crate) struct Pace;

impl Pace {
    /// Returns false.
    pub(crate) fn is_due(&self, _round: u64) -> bool {
        false
    }

    /// Does nothing.
    pub(crate) fn end_scan(&self, _round: u64) {}
}
