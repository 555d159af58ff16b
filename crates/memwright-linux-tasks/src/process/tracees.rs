//! The threads that a process traces.

use super::{Change, Thread, Tracer};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use core::ops::Bound;
use memwright_linux_abi::host::ContextId;

/// The kernel stack of a tracing thread, and the id of a thread that it traces. The stack is `None` if every thread of
/// the process traces that thread (`PTRACE_TRACEME`).
pub type TraceKey = (Option<ContextId>, u32);

/// The threads that a process traces, by the tracing thread and the id of the traced thread.
#[derive(Default)]
pub struct Tracees {
    threads: BTreeMap<TraceKey, Arc<Thread>>,
    /// The traced threads with a ptrace stop that no wait has reported. Some of them may have left the stop.
    news: BTreeSet<TraceKey>,
    /// The ids of exited threads that the process traced and whose exit no wait has reported.
    pub ended: BTreeSet<u32>,
}

/// An exited thread that its tracer has not waited for.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The tracer of the thread.
    pub tracer: Tracer,
    /// The process group of the thread.
    pub group: u32,
    /// The exit status of the thread.
    pub change: Change,
}

impl Tracees {
    /// Returns whether the process traces no thread, and no exited thread is left to wait for.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.ended.is_empty()
    }

    /// Adds a thread that `tracer` traces.
    pub fn add(&mut self, tracer: Tracer, thread: &Arc<Thread>) {
        self.threads
            .insert((tracer.context, thread.id()), thread.clone());
    }

    /// Returns whether `tracer` traces the thread `id`.
    pub fn contains(&self, tracer: Tracer, id: u32) -> bool {
        self.threads.contains_key(&(tracer.context, id))
    }

    /// Returns whether the process traces the thread `id`. If `by` is the kernel stack of a tracing thread, considers
    /// only the threads traced by that thread or by every thread of the process. The cost grows with the number of
    /// tracing threads, not with the number of traced threads.
    pub fn has(&self, id: u32, by: Option<ContextId>) -> bool {
        let mut rest = self.threads.range(..);
        while let Some(((context, _), _)) = rest.next() {
            if is_visible(*context, by) && self.threads.contains_key(&(*context, id)) {
                return true;
            }
            let end = Bound::Excluded((*context, u32::MAX));
            rest = self.threads.range((end, Bound::Unbounded));
        }
        false
    }

    /// Removes the thread `id` of `tracer`. Returns it if it was traced.
    pub fn remove(&mut self, tracer: Tracer, id: u32) -> Option<Arc<Thread>> {
        let key = (tracer.context, id);
        self.news.remove(&key);
        self.threads.remove(&key)
    }

    /// Removes one thread that the thread with the kernel stack `by` traces, or any traced thread if `by` is `None`.
    /// Returns the removed thread.
    pub fn remove_one(&mut self, by: Option<ContextId>) -> Option<Arc<Thread>> {
        let key = match by {
            Some(by) => self.threads.range(all_of(Some(by))).next(),
            None => self.threads.iter().next(),
        };
        let key = *key?.0;
        self.news.remove(&key);
        self.threads.remove(&key)
    }

    /// Records that the traced thread `id` has entered a ptrace stop, for a wait of its tracer.
    pub fn note(&mut self, tracer: Tracer, id: u32) {
        let key = (tracer.context, id);
        if self.threads.contains_key(&key) {
            self.news.insert(key);
        }
    }

    /// Returns the first thread after `last` that may be in an unreported stop. With `by`, considers only the threads
    /// traced by that thread or by every thread of the process.
    pub fn next_news(
        &self,
        last: Option<TraceKey>,
        by: Option<ContextId>,
    ) -> Option<(TraceKey, Arc<Thread>)> {
        let start = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut news = self.news.range((start, Bound::Unbounded));
        let key = news.find(|(context, _)| is_visible(*context, by))?;
        Some((*key, self.threads.get(key)?.clone()))
    }

    /// Removes the record of a ptrace stop, after a wait has reported it or the thread has left it.
    pub fn forget_news(&mut self, key: TraceKey) {
        self.news.remove(&key);
    }

    /// Iterates over the traced threads. With `by`, only over those traced by that thread or by every thread of the
    /// process.
    pub fn iter(&self, by: Option<ContextId>) -> impl Iterator<Item = &Arc<Thread>> {
        let visible = move |(context, _): &TraceKey| is_visible(*context, by);
        let threads = self.threads.iter().filter(move |(key, _)| visible(key));
        threads.map(|(_, thread)| thread)
    }
}

/// Returns whether a wait by the thread with the kernel stack `by` includes a thread whose tracer has the kernel stack
/// `context`. `None` stands for every thread of the process.
pub fn is_visible(context: Option<ContextId>, by: Option<ContextId>) -> bool {
    match (context, by) {
        (Some(context), Some(by)) => context == by,
        (None, _) | (_, None) => true,
    }
}

/// Returns the range of the keys of a tracing thread.
fn all_of(context: Option<ContextId>) -> core::ops::RangeInclusive<TraceKey> {
    (context, 0)..=(context, u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{ContextId, is_visible};

    #[test]
    fn a_thread_waits_for_its_own_tracees_and_for_those_of_all() {
        let (one, other) = (Some(ContextId(1)), Some(ContextId(2)));
        for (context, by, expected) in [
            (one, one, true),
            (one, other, false),
            (one, None, true),
            (None, one, true),
            (None, None, true),
        ] {
            assert_eq!(is_visible(context, by), expected);
        }
    }
}
