//! What happens to watched memory other than faults: who does it waits until the watcher has read of it
//! (`userfaultfd_event_wait_completion`).

use super::{Features, Message, Userfault, Userfaults};
use crate::{Space, context::Context, kernel::Kernel, wait::Interest};
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicBool, Ordering};
use linux_raw_sys::general as raw;
use memwright::{
    ForkError,
    uffd::{Watch, Watcher},
};
use memwright_table::{PAGE_SIZE, Page, PageRange, VirtAddr};

/// What a watcher is told.
#[derive(Clone)]
pub(super) enum Tidings {
    /// A message as it is.
    Message(Message),
    /// A child's memory is watched by this one from now on: whoever reads of it gets a descriptor.
    Fork(Arc<Userfault>),
}

/// An event that somebody waits for to be read.
pub(super) struct Event {
    pub(super) tidings: Tidings,
    /// Somebody is reading it.
    pub(super) taken: AtomicBool,
    /// It was read.
    pub(super) read: AtomicBool,
}

/// What will happen to memory that is watched. Meanwhile the watchers' commands fail with `EAGAIN`.
pub(crate) struct Announced {
    list: Vec<(Arc<Userfault>, Tidings)>,
}

impl Drop for Announced {
    /// It did not happen.
    fn drop(&mut self) {
        for (userfault, _) in &self.list {
            userfault.changing.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Announced {
    /// Nobody wants to know.
    const NOTHING: Self = Self { list: Vec::new() };

    fn push(&mut self, userfault: Arc<Userfault>, tidings: Tidings) {
        // Without memory for it the watcher is not told, as when it had been closed.
        if self.list.try_reserve(1).is_ok() {
            userfault.changing.fetch_add(1, Ordering::SeqCst);
            self.list.push((userfault, tidings));
        }
    }

    /// Tells the watchers, and waits until they have read of it, or are gone, or the caller is killed.
    pub(crate) fn tell(mut self, context: &Context<'_>) {
        for (userfault, tidings) in self.list.drain(..) {
            userfault.tell(context, tidings);
            userfault.changing.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Userfault {
    fn tell(&self, context: &Context<'_>, tidings: Tidings) {
        let event = Arc::new(Event {
            tidings,
            taken: AtomicBool::new(false),
            read: AtomicBool::new(false),
        });
        {
            let mut state = self.state.lock();
            if state.agreed.is_none() || state.events.try_reserve(1).is_err() {
                return;
            }
            state.events.push(event.clone());
        }
        let kernel = context.kernel;
        self.messages.wake_all(kernel);
        let over = || {
            let gone = self.state.lock().agreed.is_none();
            (gone || event.read.load(Ordering::Acquire)).then_some(())
        };
        let _ = kernel.wait(
            context.thread,
            &[&self.resolved],
            None,
            Interest::Fatal,
            over,
        );
        let mut state = self.state.lock();
        state.events.retain(|one| !Arc::ptr_eq(one, &event));
    }

    fn wants(&self, feature: Features) -> bool {
        let state = self.state.lock();
        let features = state.agreed.as_ref().map(|(features, _)| *features);
        features.is_some_and(|features| features.contains(feature))
    }
}

impl Userfaults {
    /// The watchers of parts of `range` that want to know of such an event, each with its part.
    fn of_range(
        &self,
        space: &Space,
        range: PageRange,
        feature: Features,
    ) -> Vec<(Arc<Userfault>, PageRange)> {
        let mut parts: Vec<(u64, PageRange)> = Vec::new();
        space.each_watched(range, &mut |watch, part| {
            if parts.try_reserve(1).is_ok() {
                parts.push((watch.number, part));
            }
        });
        let living = parts.into_iter().filter_map(|(number, part)| {
            let found = self.find(number)?;
            found.wants(feature).then_some((found, part))
        });
        living.collect()
    }
}

fn message(event: u32, first: u64, second: u64, third: u64) -> Tidings {
    Tidings::Message(Message {
        event: event as u8,
        reserved: [0; 7],
        flags: first,
        address: second,
        thread: third,
    })
}

/// The pages that `length` bytes touch; none if they are no range of user memory.
fn pages(address: u64, length: u64) -> PageRange {
    let end = address.checked_add(length);
    match end {
        Some(end) if end <= VirtAddr::USER_END.as_u64() => PageRange::new(
            Page::new(address / PAGE_SIZE as u64),
            Page::new(end.div_ceil(PAGE_SIZE as u64)),
        ),
        Some(_) | None => PageRange::default(),
    }
}

/// The contents of `length` bytes are about to go (`userfaultfd_remove`).
pub(crate) fn removing(context: &Context<'_>, address: u64, length: u64) -> Announced {
    going(
        context,
        address,
        length,
        Features::REMOVE,
        raw::UFFD_EVENT_REMOVE,
    )
}

/// What is mapped in `length` bytes is about to go (`userfaultfd_unmap_prep`).
pub(crate) fn unmapping(context: &Context<'_>, address: u64, length: u64) -> Announced {
    going(
        context,
        address,
        length,
        Features::UNMAP,
        raw::UFFD_EVENT_UNMAP,
    )
}

fn going(
    context: &Context<'_>,
    address: u64,
    length: u64,
    feature: Features,
    event: u32,
) -> Announced {
    let userfaults = &context.kernel.userfaults;
    let mut announced = Announced::NOTHING;
    if userfaults.none_wants_events() {
        return announced;
    }
    let range = pages(address, length);
    let parts = context.with_space(|space| userfaults.of_range(space, range, feature));
    for (userfault, part) in parts {
        announced.push(
            userfault,
            message(
                event,
                part.start.address().as_u64(),
                part.end.address().as_u64(),
                0,
            ),
        );
    }
    announced
}

/// Where watched memory may be about to move from (`mremap_userfaultfd_prep`).
pub(crate) struct Moving {
    announced: Announced,
    from: u64,
    length: u64,
}

/// `length` bytes may be about to move.
pub(crate) fn moving(context: &Context<'_>, from: u64, length: u64) -> Moving {
    let userfaults = &context.kernel.userfaults;
    let mut announced = Announced::NOTHING;
    if !userfaults.none_wants_events() {
        let range = pages(from, length);
        let parts = context.with_space(|space| {
            let parts = userfaults.of_range(space, range, Features::REMAP);
            parts.into_iter().map(|(userfault, _)| userfault)
        });
        for userfault in parts.take(1) {
            announced.push(userfault, message(raw::UFFD_EVENT_REMAP, 0, 0, 0));
        }
    }
    Moving {
        announced,
        from,
        length,
    }
}

impl Moving {
    /// It is at `to` now (`mremap_userfaultfd_complete`).
    pub(crate) fn tell(mut self, context: &Context<'_>, to: u64) {
        if to == self.from {
            return;
        }
        let (from, length) = (self.from, self.length);
        for (_, tidings) in &mut self.announced.list {
            *tidings = message(raw::UFFD_EVENT_REMAP, from, to, length);
        }
        let announced = core::mem::replace(&mut self.announced, Announced::NOTHING);
        announced.tell(context);
    }
}

/// Copies the address space for a child; who wants to know of forks watches the child as well, and is told
/// (`dup_userfaultfd`).
///
/// # Errors
/// Those of [`AddressSpace::fork`](memwright::AddressSpace::fork).
pub(crate) fn fork(context: &Context<'_>) -> Result<Arc<Space>, ForkError> {
    let userfaults = &context.kernel.userfaults;
    if userfaults.none_wants_events() {
        return context.with_space(|space| space.fork()).map(Arc::new);
    }
    let everything = PageRange::new(Page::new(0), VirtAddr::USER_END.page());
    let mut heirs: Vec<Heir> = Vec::new();
    let parents =
        context.with_space(|space| userfaults.of_range(space, everything, Features::FORK));
    for (parent, _) in parents {
        let known = heirs.iter().any(|heir| heir.parent.number == parent.number);
        if known || heirs.try_reserve(1).is_err() {
            continue;
        }
        heirs.extend(Heir::of(userfaults, parent));
    }
    let child = context.with_space(|space| {
        space.fork_watched(&mut |watch| {
            let mut mine = heirs
                .iter()
                .filter(|heir| heir.parent.number == watch.number);
            mine.next().map(|heir| heir.watch.clone())
        })
    })?;
    let child = Arc::new(child);
    let mut announced = Announced::NOTHING;
    for heir in heirs {
        let userfault = heir.userfault(context.kernel, Arc::downgrade(&child));
        announced.push(heir.parent, Tidings::Fork(userfault));
    }
    announced.tell(context);
    Ok(child)
}

/// Who watches a child's memory as somebody watches its parent's.
struct Heir {
    parent: Arc<Userfault>,
    features: Features,
    watch: Watch,
}

impl Heir {
    fn of(userfaults: &Userfaults, parent: Arc<Userfault>) -> Option<Self> {
        let (features, watch) = parent.state.lock().agreed.clone()?;
        let watch = Watch::try_new(Watcher {
            number: userfaults.next.fetch_add(1, Ordering::Relaxed),
            ..*watch
        });
        Some(Self {
            parent,
            features,
            watch: watch.ok()?,
        })
    }

    fn userfault(&self, kernel: &Kernel, space: Weak<Space>) -> Arc<Userfault> {
        let agreed = Some((self.features, self.watch.clone()));
        let userfault = Userfault::make(self.watch.number, space, self.parent.user_only, agreed);
        // Without memory for it nobody finds it, and faults are retried until it is closed.
        let _ = kernel.userfaults.add(&userfault);
        userfault
    }
}
