//! Tracing and lock statistics.

use core::sync::atomic::Ordering;
use memwright_table::Machine;
use memwright_table::sync::{Threads, stat};

use crate::mm::memory::Memory;
use crate::types::trace::{Event, TraceSink};

impl<M: Machine> Memory<M> {
    /// Sends events to `sink` from now on; `None` stops tracing.
    pub fn set_trace(&self, sink: Option<&'static dyn TraceSink>) {
        *self.sink.lock() = sink;
        self.tracing.store(sink.is_some(), Ordering::Release);
        let watched = sink.is_some() || stat::is_on();
        self.watched.store(watched, Ordering::Release);
    }

    /// Starts or stops taking [lock statistics](stat). Starting clears the records of locks and lines. The statistics
    /// are per machine: memory managers on one machine share them.
    pub fn set_lock_statistics(&self, on: bool) {
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
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    /// Sends an event to the trace sink, if one is set. `event` is called only then.
    #[inline]
    pub(crate) fn trace(&self, event: impl FnOnce() -> Event) {
        if self.is_watched() {
            self.note_lines();
            if self.tracing.load(Ordering::Acquire) {
                self.send(&event());
            }
        }
    }

    /// Reports to the lock statistics which cache lines of counters the calling CPU wrote.
    #[cold]
    fn note_lines(&self) {
        if stat::is_on() {
            let cpu = M::Threads::cpu();
            self.counters.note_lines::<M::Threads>(cpu);
            self.commit.note_line::<M::Threads>(cpu);
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
