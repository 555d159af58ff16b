//! `userfaultfd`: a descriptor that tells of faults, and by which they are resolved
//! (`fs/userfaultfd.c` of Linux 7.2).

mod control;
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
    sync::{Arc, Weak},
    vec::Vec,
};
use bitflags::bitflags;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use linux_raw_sys::general as raw;
use memwright::uffd::Watch;

pub use message::Message;
pub(crate) use wait::wait_for_watcher;

bitflags! {
    /// What was asked for by `UFFDIO_API`: those that there are.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u64 {
        /// Stores to protected pages are told as such; there from the start.
        const WRITE_PROTECT = raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64;
        /// Missing pages of shared memory; there from the start.
        const MISSING_SHARED = raw::UFFD_FEATURE_MISSING_SHMEM as u64;
        /// Nobody waits: a fault is a signal.
        const SIGNAL = raw::UFFD_FEATURE_SIGBUS as u64;
        /// Messages name the thread.
        const THREAD = raw::UFFD_FEATURE_THREAD_ID as u64;
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
}

/// A userfaultfd: of one address space, and as long as its descriptor.
pub struct Userfault {
    number: u64,
    space: Weak<Space>,
    /// Faults of the kernel on behalf of a system call are refused.
    user_only: bool,
    state: Lock<State>,
    /// Woken when there is a message.
    messages: WaitQueue,
    /// Woken when threads may try again.
    resolved: WaitQueue,
}

/// Every userfaultfd by its number.
pub struct Userfaults {
    next: AtomicU64,
    all: Lock<Vec<Weak<Userfault>>>,
}

impl Default for Userfaults {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(1),
            all: Lock::new(Rank::Leaf, Vec::new()),
        }
    }
}

impl Userfaults {
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
        let userfault = Arc::new(Userfault {
            number: userfaults.next.fetch_add(1, Ordering::Relaxed),
            space: Arc::downgrade(&context.space()),
            user_only,
            state: Lock::new(
                Rank::File,
                State {
                    agreed: None,
                    waiting: Vec::new(),
                },
            ),
            messages: WaitQueue::named("a message of a userfaultfd"),
            resolved: WaitQueue::named("a userfaultfd"),
        });
        let mut all = userfaults.all.lock();
        all.retain(|old| old.strong_count() > 0);
        all.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        all.push(Arc::downgrade(&userfault));
        drop(all);
        Ok(Self { userfault, kernel })
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
        self.userfault.wake(self.kernel, |_| true);
    }
}

impl Userfault {
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

    /// The oldest message that nobody has read; it counts as read now if `take`.
    fn message(&self, take: bool) -> Option<Message> {
        let state = self.state.lock();
        let unread = |one: &&Arc<Waiting>| !one.read.load(Ordering::Relaxed);
        let first = state.waiting.iter().find(unread)?;
        if take {
            first.read.store(true, Ordering::Relaxed);
        }
        Some(first.message)
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
            let message = match userfault.message(true) {
                Some(message) => message,
                None if done > 0 => return Ok(done),
                None if open.is_nonblocking() => return Err(Errno::EAGAIN),
                None => context
                    .wait_until(&[&userfault.messages], None, || userfault.message(true))
                    .map_err(|error| error.restart())?,
            };
            let mut bytes = [0; Message::SIZE];
            message.to_bytes(&mut bytes);
            done += sink.put(&bytes)?;
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
        ready.set(Readiness::READ, self.userfault.message(false).is_some());
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
