//! Tracing and lock statistics without the feature `trace`: no event is sent, and no statistics are taken.

use memwright_table::Machine;

use crate::mm::memory::Memory;
use crate::types::trace::{Event, TraceSink};

impl<M: Machine> Memory<M> {
    /// Does nothing: no event is sent.
    pub fn set_trace(&self, _sink: Option<&'static dyn TraceSink>) {}

    /// Does nothing: no statistics are taken.
    pub fn set_lock_statistics(&self, _on: bool) {}

    /// Returns false.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        false
    }

    /// Sends nothing.
    #[inline]
    pub(crate) fn trace(&self, _event: impl FnOnce() -> Event) {}
}
