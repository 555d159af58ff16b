//! Tracing and lock statistics without the feature `trace`: no event is sent, and no statistics are taken.

use core::marker::PhantomData;
use memwright_table::sync::Threads;

use crate::types::trace::{Event, TraceSink};

/// Stores nothing: no event is sent.
pub(crate) struct Tracing<H: Threads>(PhantomData<fn(H)>);

impl<H: Threads> Tracing<H> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }

    /// Does nothing: no event is sent.
    pub(super) fn set_sink(&self, _sink: Option<&'static dyn TraceSink>) {}

    /// Does nothing: no statistics are taken.
    pub(super) fn set_statistics(&self, _on: bool) {}

    /// Returns false.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        false
    }

    /// Sends nothing.
    #[inline]
    pub(super) fn trace<E: Into<Option<Event>>>(
        &self,
        _note_lines: impl FnOnce(),
        _event: impl FnOnce() -> E,
    ) {
    }
}
