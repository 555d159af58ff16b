//! Tracing and lock statistics.

use core::sync::atomic::{AtomicBool, Ordering};
use memwright_table::sync::{Lock, Rank, Threads, stat};

use crate::types::trace::{Event, TraceSink};

/// The trace sink, and whether lock statistics are taken.
pub(crate) struct Tracing<H: Threads> {
    /// Whether events are traced or lock statistics are taken.
    watched: AtomicBool,
    /// Whether `sink` is set. Checked before the lock of `sink` is taken.
    tracing: AtomicBool,
    sink: Lock<Option<&'static dyn TraceSink>, H>,
}

impl<H: Threads> Tracing<H> {
    pub(super) fn new() -> Self {
        Self {
            watched: AtomicBool::new(false),
            tracing: AtomicBool::new(false),
            sink: Lock::new(Rank::Leaf, None),
        }
    }

    /// Sends events to `sink` from now on; `None` stops tracing.
    pub(super) fn set_sink(&self, sink: Option<&'static dyn TraceSink>) {
        *self.sink.lock() = sink;
        self.tracing.store(sink.is_some(), Ordering::Release);
        let watched = sink.is_some() || stat::is_on();
        self.watched.store(watched, Ordering::Release);
    }

    /// Starts or stops taking lock statistics.
    pub(super) fn set_statistics(&self, on: bool) {
        let watched = on || self.tracing.load(Ordering::Acquire);
        self.watched.store(watched, Ordering::Release);
        if on {
            stat::start();
        } else {
            stat::stop();
        }
    }

    /// Returns whether events are traced or lock statistics are taken.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    /// Calls `note_lines` if lock statistics are taken. If a sink is set, calls `event` and sends the event that
    /// `event` returns, if any, to the sink.
    #[inline]
    pub(super) fn trace<E: Into<Option<Event>>>(
        &self,
        note_lines: impl FnOnce(),
        event: impl FnOnce() -> E,
    ) {
        if self.is_watched() {
            if stat::is_on() {
                note_lines();
            }
            if self.tracing.load(Ordering::Acquire) {
                if let Some(event) = event().into() {
                    self.send(&event);
                }
            }
        }
    }

    #[cold]
    fn send(&self, event: &Event) {
        let sink = *self.sink.lock();
        if let Some(sink) = sink {
            sink.event(event);
        }
    }
}
