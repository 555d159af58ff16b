//! The userfaultfd events that are not faults. The thread that causes an event waits until the event is read
//! (`userfaultfd_event_wait_completion`).

use super::{Message, Userfault, UserfaultFile, Userfaults};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, Ordering};
use linux_raw_sys::general as raw;
use memwright::{
    ForkError,
    uffd::{Watch, WatchEvent, WatchEvents, Watcher},
};
use memwright_linux_abi::Space;
use memwright_linux_sched::wait::Interest;
use memwright_linux_tasks::process::Thread;
use memwright_linux_vfs::fs::open_file::OpenFile;
use memwright_table::{PAGE_SIZE, Page, TryPush};

/// The content of an event, as a read of the userfaultfd delivers it.
#[derive(Clone)]
pub(super) enum Tidings {
    /// A message in the format that `read` returns.
    Message(Message),
    /// The userfaultfd of a child process's memory. The reader gets a descriptor of that userfaultfd.
    Fork(Arc<OpenFile>),
}

/// An event. The thread that caused the event waits until a reader has read it.
pub(super) struct Event {
    pub(super) tidings: Tidings,
    /// Whether a reader is reading the event. While it is, no other reader takes the event.
    pub(super) taken: AtomicBool,
    /// Whether the event was copied to the reader.
    pub(super) read: AtomicBool,
}

/// The events about registered memory that one operation has collected and that no program has read yet. Until an event
/// is read, commands on its userfaultfd fail with `EAGAIN` if they fill, move or protect memory.
pub struct Announced<'a> {
    userfaults: &'a Userfaults,
    list: Vec<(Arc<Userfault>, Tidings)>,
}

impl Drop for Announced<'_> {
    /// Drops the events that were not delivered. After that, commands on the userfaultfds of these events can succeed
    /// again.
    fn drop(&mut self) {
        for (userfault, _) in &self.list {
            userfault.changing.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl<'a> Announced<'a> {
    /// Creates an empty collection.
    pub fn new(userfaults: &'a Userfaults) -> Self {
        Self {
            userfaults,
            list: Vec::new(),
        }
    }

    /// Adds an event. The caller may hold the lock of the address space. An operation that ran out of memory and is
    /// retried adds the same event again. The duplicate is ignored.
    pub fn note(&mut self, watch: &Watch, event: WatchEvent) {
        let Some(userfault) = self.userfaults.find(watch.number) else {
            return;
        };
        let message = message_of(event);
        let is_known = self.list.iter().any(|(known, tidings)| {
            Arc::ptr_eq(known, &userfault)
                && matches!(tidings, Tidings::Message(told) if *told == message)
        });
        if !is_known {
            self.push(userfault, Tidings::Message(message));
        }
    }

    fn push(&mut self, userfault: Arc<Userfault>, tidings: Tidings) {
        // If there is no memory for the event, it is lost, as if the userfaultfd had been closed.
        userfault.changing.fetch_add(1, Ordering::SeqCst);
        if self.list.try_make_room(1).is_err() {
            userfault.changing.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "there is room")]
        self.list.push((userfault, tidings));
    }

    /// Delivers the events one after another. After each event, waits until the event is read, its userfaultfd is
    /// closed, or the calling thread is killed.
    pub fn tell(mut self, thread: &Arc<Thread>) {
        for (userfault, tidings) in self.list.drain(..) {
            userfault.tell(self.userfaults, thread, tidings);
            userfault.changing.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Userfault {
    fn tell(&self, userfaults: &Userfaults, thread: &Arc<Thread>, tidings: Tidings) {
        let event = Arc::new(Event {
            tidings,
            taken: AtomicBool::new(false),
            read: AtomicBool::new(false),
        });
        {
            let mut state = self.state.lock();
            if state.agreed.is_none() || state.events.try_push(event.clone()).is_err() {
                return;
            }
        }
        self.messages.wake_all();
        let over = || {
            let gone = self.state.lock().agreed.is_none();
            (gone || event.read.load(Ordering::Acquire)).then_some(())
        };
        let _ = userfaults
            .oom
            .wait(thread, &[&self.resolved], None, Interest::Fatal, over);
        let mut state = self.state.lock();
        state.events.retain(|one| !Arc::ptr_eq(one, &event));
    }
}

/// Encodes an event as a message (`struct uffd_msg`).
fn message_of(event: WatchEvent) -> Message {
    let (number, words) = match event {
        WatchEvent::Unmapped(range) => (raw::UFFD_EVENT_UNMAP, [range.start, range.end]),
        WatchEvent::Removed(range) => (raw::UFFD_EVENT_REMOVE, [range.start, range.end]),
        WatchEvent::Moved { from, to, .. } => (raw::UFFD_EVENT_REMAP, [from, to]),
    };
    let [flags, address] = words.map(|page: Page| page.address().as_u64());
    let thread = match event {
        WatchEvent::Moved { pages, .. } => pages * PAGE_SIZE as u64,
        WatchEvent::Unmapped(_) | WatchEvent::Removed(_) => 0,
    };
    Message {
        event: number as u8,
        reserved: [0; 7],
        flags,
        address,
        thread,
    }
}

impl Userfaults {
    /// Copies the address space `space` of the calling thread for a child process. For each userfaultfd context with
    /// `UFFD_FEATURE_EVENT_FORK`, creates a child context and delivers an event to the parent context
    /// (`dup_userfaultfd`).
    ///
    /// # Errors
    /// The errors of [`AddressSpace::fork`](memwright::AddressSpace::fork).
    pub fn fork(
        &'static self,
        thread: &Arc<Thread>,
        space: &Space,
    ) -> Result<Arc<Space>, ForkError> {
        let mut child_contexts: Vec<ChildContext> = Vec::new();
        let child = space.fork_watched(&mut |watch| {
            if !watch.events.contains(WatchEvents::FORK) {
                return None;
            }
            let known = child_contexts
                .iter()
                .find(|child_context| child_context.parent.number == watch.number);
            if let Some(child_context) = known {
                return Some(child_context.watch.clone());
            }
            let child_context = ChildContext::of(self, watch)?;
            let watch = child_context.watch.clone();
            child_contexts.try_push(child_context).ok()?;
            Some(watch)
        })?;
        let child = Arc::new(child);
        for child_context in child_contexts {
            child_context.announce(self, thread, &child);
        }
        Ok(child)
    }
}

/// The userfaultfd context of a child process, with the features of the parent's context. The child's memory is
/// registered with it at the addresses at which the parent's memory is registered with the parent's context. Until this
/// value is dropped, commands on the parent context fail with `EAGAIN` if they fill, move or protect memory.
struct ChildContext {
    parent: Arc<Userfault>,
    watch: Watch,
}

impl Drop for ChildContext {
    fn drop(&mut self) {
        self.parent.changing.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ChildContext {
    fn of(userfaults: &Userfaults, parent: &Watch) -> Option<Self> {
        let watch = Watch::try_new(Watcher {
            number: userfaults.next.fetch_add(1, Ordering::Relaxed),
            asynchronous: parent.asynchronous,
            unpopulated: parent.unpopulated,
            counts_accesses: parent.counts_accesses().into(),
            events: parent.events,
        });
        let watch = watch.ok()?;
        let parent = userfaults.find(parent.number)?;
        parent.changing.fetch_add(1, Ordering::SeqCst);
        Some(Self { parent, watch })
    }

    /// Delivers the fork event to the parent context. If the event is not read, unregisters the memory of the child.
    fn announce(&self, userfaults: &'static Userfaults, thread: &Arc<Thread>, child: &Arc<Space>) {
        let parent = &self.parent;
        let Some((features, _)) = parent.state.lock().agreed.clone() else {
            child.uffd().forget_watch(&self.watch);
            return;
        };
        let agreed = Some((features, self.watch.clone()));
        let place = Arc::downgrade(child);
        let userfault = Userfault::make(self.watch.number, place, parent.opened_as, agreed);
        // Closing this file unregisters the memory of the child.
        let open = UserfaultFile::open_as(userfaults, userfault.clone());
        if userfaults.add(&userfault).is_ok() {
            parent.tell(userfaults, thread, Tidings::Fork(open));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memwright_table::PageRange;

    #[test]
    fn a_message_has_what_its_event_is_about() {
        let range = PageRange::new(Page::new(16), Page::new(19));
        let moved = WatchEvent::Moved {
            from: Page::new(16),
            to: Page::new(32),
            pages: 3,
        };
        for (event, expected) in [
            (moved, (0x14, 0x1_0000, 0x2_0000, 0x3000)),
            (WatchEvent::Removed(range), (0x15, 0x1_0000, 0x1_3000, 0)),
            (WatchEvent::Unmapped(range), (0x16, 0x1_0000, 0x1_3000, 0)),
        ] {
            let message = message_of(event);
            let words = (message.flags, message.address, message.thread);
            assert_eq!((message.event, words.0, words.1, words.2), expected);
        }
    }
}
