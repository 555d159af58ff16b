//! `userfaultfd`: a descriptor that tells of faults, and by which they are resolved
//! (`fs/userfaultfd.c` of Linux 7.2).

mod control;
mod event;
mod message;
mod wait;

use super::{
    open_file::{File, OpenFile, Polling, Readiness},
    transfer::Sink,
};
use crate::{
    Space,
    abi::Plain,
    context::Context,
    errno::Errno,
    kernel::Kernel,
    sync::{Lock, Rank},
    wait::WaitQueue,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use bitflags::bitflags;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use linux_raw_sys::general as raw;
use memwright::uffd::Watch;

use event::{Event, Tidings};

pub(crate) use event::{fork, moving, removing, unmapping};
pub use message::Message;
pub(crate) use wait::wait_for_watcher;

bitflags! {
    /// What was asked for by `UFFDIO_API`: those that there are.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u64 {
        /// Stores to protected pages are told as such; there from the start.
        const WRITE_PROTECT = raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64;
        /// A child is watched by a descriptor of its own.
        const FORK = raw::UFFD_FEATURE_EVENT_FORK as u64;
        /// Memory is watched where it moves to.
        const REMAP = raw::UFFD_FEATURE_EVENT_REMAP as u64;
        /// Contents that go are told of.
        const REMOVE = raw::UFFD_FEATURE_EVENT_REMOVE as u64;
        /// Memory that goes is told of.
        const UNMAP = raw::UFFD_FEATURE_EVENT_UNMAP as u64;
        /// Missing huge pages of the pool; there from the start.
        const MISSING_HUGETLB = raw::UFFD_FEATURE_MISSING_HUGETLBFS as u64;
        /// Missing pages of shared memory; there from the start.
        const MISSING_SHARED = raw::UFFD_FEATURE_MISSING_SHMEM as u64;
        /// Nobody waits: a fault is a signal.
        const SIGNAL = raw::UFFD_FEATURE_SIGBUS as u64;
        /// Messages name the thread.
        const THREAD = raw::UFFD_FEATURE_THREAD_ID as u64;
        /// Huge pages of files that are not mapped; there from the start.
        const MINOR_HUGETLB = raw::UFFD_FEATURE_MINOR_HUGETLBFS as u64;
        /// Pages of shared memory that are not mapped; there from the start.
        const MINOR_SHARED = raw::UFFD_FEATURE_MINOR_SHMEM as u64;
        /// Messages have the whole address.
        const EXACT = raw::UFFD_FEATURE_EXACT_ADDRESS as u64;
        /// Shared memory can be protected; there from the start.
        const PROTECT_SHARED = raw::UFFD_FEATURE_WP_HUGETLBFS_SHMEM as u64;
        /// Memory that is not there yet can be protected.
        const UNPOPULATED = raw::UFFD_FEATURE_WP_UNPOPULATED as u64;
        /// `UFFDIO_POISON`; there from the start.
        const POISON = raw::UFFD_FEATURE_POISON as u64;
        /// Nobody waits for stores to protected pages.
        const ASYNCHRONOUS = raw::UFFD_FEATURE_WP_ASYNC as u64;
        /// `UFFDIO_MOVE`; there from the start.
        const MOVE = raw::UFFD_FEATURE_MOVE as u64;
    }
}

/// A thread that waits for a fault to be resolved.
struct Waiting {
    /// The address that it cannot use.
    address: u64,
    message: Message,
    /// Somebody has read the message.
    read: AtomicBool,
    /// It may try again.
    woken: AtomicBool,
}

struct State {
    /// After `UFFDIO_API`.
    agreed: Option<(Features, Watch)>,
    /// First come first.
    waiting: Vec<Arc<Waiting>>,
    /// Those that somebody waits for to be read.
    events: Vec<Arc<Event>>,
}

/// A userfaultfd: of one address space, and as long as its descriptor.
pub struct Userfault {
    number: u64,
    space: Weak<Space>,
    /// Faults of the kernel on behalf of a system call are refused.
    user_only: bool,
    state: Lock<State>,
    /// What is about to happen to watched memory, or has and was not read of yet.
    changing: AtomicU64,
    /// Woken when there is a message.
    messages: WaitQueue,
    /// Woken when threads may try again.
    resolved: WaitQueue,
}

/// Every userfaultfd by its number.
pub struct Userfaults {
    next: AtomicU64,
    /// How many ever wanted to know of more than faults.
    eventful: AtomicU64,
    all: Lock<Vec<Weak<Userfault>>>,
}

impl Default for Userfaults {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(1),
            eventful: AtomicU64::new(0),
            all: Lock::new(Rank::Leaf, Vec::new()),
        }
    }
}

impl Userfaults {
    /// Whether nobody ever wanted to know of more than faults.
    fn none_wants_events(&self) -> bool {
        self.eventful.load(Ordering::Relaxed) == 0
    }

    fn add(&self, userfault: &Arc<Userfault>) -> Result<(), Errno> {
        let mut all = self.all.lock();
        all.retain(|old| old.strong_count() > 0);
        all.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        all.push(Arc::downgrade(userfault));
        Ok(())
    }

    fn find(&self, number: u64) -> Option<Arc<Userfault>> {
        let all = self.all.lock();
        let mut living = all.iter().filter_map(Weak::upgrade);
        living.find(|userfault| userfault.number == number)
    }
}

/// The open file behind a descriptor of `userfaultfd`.
pub struct UserfaultFile {
    userfault: Arc<Userfault>,
    kernel: &'static Kernel,
}

impl UserfaultFile {
    /// A userfaultfd of the caller's address space.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(context: &Context<'_>, user_only: bool) -> Result<Self, Errno> {
        let kernel = context.kernel;
        let userfaults = &kernel.userfaults;
        let number = userfaults.next.fetch_add(1, Ordering::Relaxed);
        let space = Arc::downgrade(&context.space());
        let userfault = Userfault::make(number, space, user_only, None);
        userfaults.add(&userfault)?;
        Ok(Self { userfault, kernel })
    }
}

impl UserfaultFile {
    /// A descriptor, in the reader's table, of the one that watches a child (`resolve_userfault_fork`).
    fn open_heir(
        &self,
        context: &Context<'_>,
        open: &OpenFile,
        heir: &Arc<Userfault>,
    ) -> Result<Message, Errno> {
        let file = Self {
            userfault: heir.clone(),
            kernel: self.kernel,
        };
        let kept = open.flags() & (raw::O_CLOEXEC | raw::O_NONBLOCK);
        let status = raw::O_RDONLY | kept & raw::O_NONBLOCK;
        let mounts = &self.kernel.mounts;
        let opened = mounts.open_anonymous(self.kernel, "[userfaultfd]", status, Box::new(file));
        let descriptor = context.add_descriptor(opened, kept & raw::O_CLOEXEC)?;
        Ok(Message {
            event: raw::UFFD_EVENT_FORK as u8,
            flags: descriptor,
            ..Message::default()
        })
    }
}

impl Drop for UserfaultFile {
    /// Nobody watches any more: who waits tries again, and finds memory as if nobody ever had
    /// (`userfaultfd_release`).
    fn drop(&mut self) {
        let watch = self.userfault.state.lock().agreed.take();
        if let (Some((_, watch)), Some(space)) = (watch, self.userfault.space.upgrade()) {
            space.forget_watch(&watch);
        }
        // Nobody reads of these any more.
        let events = core::mem::take(&mut self.userfault.state.lock().events);
        drop(events);
        self.userfault.wake(self.kernel, |_| true);
    }
}

/// What a read returns.
enum Unread {
    Fault(Message),
    Event(Arc<Event>),
}

impl Userfault {
    fn make(
        number: u64,
        space: Weak<Space>,
        user_only: bool,
        agreed: Option<(Features, Watch)>,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            space,
            user_only,
            state: Lock::new(
                Rank::File,
                State {
                    agreed,
                    waiting: Vec::new(),
                    events: Vec::new(),
                },
            ),
            changing: AtomicU64::new(0),
            messages: WaitQueue::named("a message of a userfaultfd"),
            resolved: WaitQueue::named("a userfaultfd"),
        })
    }

    /// Lets the threads try again whose addresses `chosen` names.
    fn wake(&self, kernel: &Kernel, chosen: impl Fn(u64) -> bool) {
        self.state.lock().waiting.retain(|one| {
            let stays = !chosen(one.address);
            if !stays {
                one.woken.store(true, Ordering::Release);
            }
            stays
        });
        self.resolved.wake_all(kernel);
    }

    /// The oldest fault that nobody has read of, else the oldest event; it counts as read now if `take`.
    fn unread(&self, take: bool) -> Option<Unread> {
        let state = self.state.lock();
        let unread = |one: &&Arc<Waiting>| !one.read.load(Ordering::Relaxed);
        if let Some(first) = state.waiting.iter().find(unread) {
            if take {
                first.read.store(true, Ordering::Relaxed);
            }
            return Some(Unread::Fault(first.message));
        }
        let unread = |one: &&Arc<Event>| !one.taken.load(Ordering::Relaxed);
        let first = state.events.iter().find(unread)?;
        if take {
            first.taken.store(true, Ordering::Relaxed);
        }
        Some(Unread::Event(first.clone()))
    }

    fn has_agreed(&self) -> bool {
        self.state.lock().agreed.is_some()
    }
}

impl File for UserfaultFile {
    fn has_position(&self) -> bool {
        false
    }

    fn read(
        &self,
        context: &Context<'_>,
        open: &OpenFile,
        _position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let userfault = &self.userfault;
        if !userfault.has_agreed() {
            return Err(Errno::EINVAL);
        }
        let mut done = 0;
        loop {
            if sink.left() < Message::SIZE {
                return if done > 0 {
                    Ok(done)
                } else {
                    Err(Errno::EINVAL)
                };
            }
            let unread = match userfault.unread(true) {
                Some(unread) => unread,
                None if done > 0 => return Ok(done),
                None if open.is_nonblocking() => return Err(Errno::EAGAIN),
                None => context
                    .wait_until(&[&userfault.messages], None, || userfault.unread(true))
                    .map_err(|error| error.restart())?,
            };
            let message = match &unread {
                Unread::Fault(message) => *message,
                Unread::Event(event) => match &event.tidings {
                    Tidings::Message(message) => *message,
                    Tidings::Fork(heir) => self.open_heir(context, open, heir)?,
                },
            };
            let mut bytes = [0; Message::SIZE];
            message.to_bytes(&mut bytes);
            let put = sink.put(&bytes);
            if let Unread::Event(event) = unread {
                event.read.store(true, Ordering::Release);
                userfault.resolved.wake_all(context.kernel);
            }
            done += put?;
        }
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn readiness(&self, _context: &Context<'_>) -> Readiness {
        if !self.userfault.has_agreed() {
            return Readiness::ERROR;
        }
        let mut ready = Readiness::empty();
        ready.set(Readiness::READ, self.userfault.unread(false).is_some());
        ready
    }

    fn queues<'a>(
        &'a self,
        _context: &'a Context<'_>,
        wanted: Readiness,
        queues: &mut Vec<&'a WaitQueue>,
    ) {
        if wanted.concerns_reading() {
            queues.push(&self.userfault.messages);
        }
    }

    fn control(
        &self,
        context: &Context<'_>,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        self.userfault.control(context, command, argument)
    }
}
