//! `userfaultfd`: a descriptor from which a program reads messages about faults, and whose commands resolve these
//! faults (`fs/userfaultfd.c` of Linux 7.2).

use memwright_linux_base::flags;
mod control;
mod event;
mod message;
mod wait;

use crate::oom::OomKiller;
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use linux_raw_sys::general as raw;
use memwright::uffd::Watch;
use memwright_linux_abi::{Space, abi::Plain, errno::Errno, host::UserAccess};
use memwright_linux_base::{
    sweep::Sweep,
    sync::{Lock, Rank},
};
use memwright_linux_sched::wait::{Queues, WaitQueue};
use memwright_linux_vfs::{
    fs::{
        abilities::{Polling, Positions},
        caller::Caller,
        open_file::{File, OpenFile},
        open_kind::OpenKind,
        readiness::Readiness,
        transfer::Sink,
        vfs::Vfs,
    },
    user::UserMemory,
};

use event::{Event, Tidings};
use memwright_table::Rising;

pub use control::watch_errno;
pub use event::Announced;
pub use message::Message;
pub use wait::{Accessor, Resolved, Waited};

flags! {
    /// The features of `UFFDIO_API` that are supported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u64 {
        /// Messages have a flag for write-protect faults; always enabled.
        const WRITE_PROTECT = raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64;
        /// After `fork`, the child's memory is registered with a new userfaultfd, and the reader receives an event that
        /// contains the descriptor of the new userfaultfd.
        const FORK = raw::UFFD_FEATURE_EVENT_FORK as u64;
        /// Memory stays registered when `mremap` moves it, and the reader receives an event.
        const REMAP = raw::UFFD_FEATURE_EVENT_REMAP as u64;
        /// The reader receives an event when the contents of memory are discarded (`madvise`).
        const REMOVE = raw::UFFD_FEATURE_EVENT_REMOVE as u64;
        /// The reader receives an event when memory is unmapped.
        const UNMAP = raw::UFFD_FEATURE_EVENT_UNMAP as u64;
        /// Missing faults on hugetlb memory; always enabled.
        const MISSING_HUGETLB = raw::UFFD_FEATURE_MISSING_HUGETLBFS as u64;
        /// Missing faults on shared memory; always enabled.
        const MISSING_SHARED = raw::UFFD_FEATURE_MISSING_SHMEM as u64;
        /// The faulting thread receives SIGBUS instead of waiting.
        const SIGNAL = raw::UFFD_FEATURE_SIGBUS as u64;
        /// Messages contain the ID of the faulting thread.
        const THREAD = raw::UFFD_FEATURE_THREAD_ID as u64;
        /// Minor faults on hugetlb memory; always enabled.
        const MINOR_HUGETLB = raw::UFFD_FEATURE_MINOR_HUGETLBFS as u64;
        /// Minor faults on shared memory; always enabled.
        const MINOR_SHARED = raw::UFFD_FEATURE_MINOR_SHMEM as u64;
        /// Messages contain the exact faulting address instead of the address of its page.
        const EXACT = raw::UFFD_FEATURE_EXACT_ADDRESS as u64;
        /// Shared memory can be write-protected; always enabled.
        const PROTECT_SHARED = raw::UFFD_FEATURE_WP_HUGETLBFS_SHMEM as u64;
        /// Memory that is not populated can be write-protected.
        const UNPOPULATED = raw::UFFD_FEATURE_WP_UNPOPULATED as u64;
        /// `UFFDIO_POISON`; always enabled.
        const POISON = raw::UFFD_FEATURE_POISON as u64;
        /// A store to a write-protected page removes the protection without a message, and the thread does not wait.
        const ASYNCHRONOUS = raw::UFFD_FEATURE_WP_ASYNC as u64;
        /// `UFFDIO_MOVE`; always enabled.
        const MOVE = raw::UFFD_FEATURE_MOVE as u64;
        /// Memory can be registered for accesses to read-write-protected pages (`UFFD_FEATURE_RWP` of Linux 7.3).
        const ACCESSES = 1 << 17;
        /// An access to a read-write-protected page makes the page accessible without a message, and the thread does
        /// not wait (`UFFD_FEATURE_RWP_ASYNC`). `UFFDIO_SET_MODE` enables and disables this feature.
        const COUNTS_ACCESSES = 1 << 18;
    }
}

/// The bit that `/proc/PID/fdinfo` reports after the handshake in addition to the features (`UFFD_FEATURE_INITIALIZED`
/// of `fs/userfaultfd.c`).
const AGREED: u64 = 1 << 31;

/// A thread that waits for a fault to be resolved.
struct Waiting {
    /// The faulting address.
    address: u64,
    message: Message,
    /// Whether the message was read.
    read: AtomicBool,
    /// Whether the thread must retry its access.
    woken: AtomicBool,
}

struct State {
    /// The features that `UFFDIO_API` has enabled, and the context with which memory is registered; `None` before
    /// `UFFDIO_API` succeeds.
    agreed: Option<(Features, Watch)>,
    /// The waiting threads, in the order of their faults.
    waiting: Vec<Arc<Waiting>>,
    /// The unread events. The thread that caused an event waits until the event is read.
    events: Vec<Arc<Event>>,
}

/// The flags of `userfaultfd`.
#[derive(Clone, Copy)]
pub struct OpenedAs {
    /// Whether the context refuses faults that occur in the kernel during a system call (`UFFD_USER_MODE_ONLY`).
    pub user_only: bool,
    /// Flags of the descriptor: `O_CLOEXEC`, `O_NONBLOCK`.
    pub status: u32,
}

/// A userfaultfd, which belongs to one address space. It exists as long as its open file exists.
pub struct Userfault {
    number: u64,
    space: Weak<Space>,
    /// The flags with which the userfaultfd was opened. Child contexts inherit these flags.
    opened_as: OpenedAs,
    state: Lock<State>,
    /// The number of events about registered memory that operations have collected and that no program has read yet.
    changing: AtomicU64,
    /// Woken when there is a message to read.
    messages: WaitQueue,
    /// Woken when waiting threads must retry their accesses.
    resolved: WaitQueue,
}

/// The userfaultfds by number. Some of them may have been freed.
struct Numbered {
    list: Rising<Weak<Userfault>>,
    sweep: Sweep,
}

impl Numbered {
    const fn new() -> Self {
        Self {
            list: Rising::new(),
            sweep: Sweep::new(),
        }
    }
}

/// All userfaultfds by number, and the parts of the machine that they use.
pub struct Userfaults {
    vfs: &'static Vfs,
    user: &'static dyn UserAccess,
    oom: Arc<OomKiller>,
    next: AtomicU64,
    all: Lock<Numbered>,
    /// Whether unprivileged processes are allowed to handle faults that occur in the kernel
    /// (`vm.unprivileged_userfaultfd`).
    pub anybody: AtomicBool,
}

impl Userfaults {
    /// Creates the state of a machine without userfaultfds.
    pub const fn new(
        vfs: &'static Vfs,
        user: &'static dyn UserAccess,
        oom: Arc<OomKiller>,
    ) -> Self {
        Self {
            vfs,
            user,
            oom,
            next: AtomicU64::new(1),
            all: Lock::new(Rank::Lists, Numbered::new()),
            anybody: AtomicBool::new(false),
        }
    }

    /// Returns the access to the user memory of the calling thread.
    fn user(&self) -> UserMemory<'static> {
        UserMemory::new(self.user)
    }

    fn add(&self, userfault: &Arc<Userfault>) -> Result<(), Errno> {
        let mut all = self.all.lock();
        let Numbered { list, sweep } = &mut *all;
        if sweep.is_due(list.len()) {
            list.retain(|old| old.strong_count() > 0);
            sweep.done(list.len());
        }
        Ok(list.try_insert(userfault.number, Arc::downgrade(userfault))?)
    }

    fn find(&self, number: u64) -> Option<Arc<Userfault>> {
        let all = self.all.lock();
        all.list.get(number)?.upgrade()
    }
}

/// The open file behind a descriptor of `userfaultfd`.
pub struct UserfaultFile {
    userfault: Arc<Userfault>,
    userfaults: &'static Userfaults,
}

impl UserfaultFile {
    /// Creates a userfaultfd for the caller's address space.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn open(
        userfaults: &'static Userfaults,
        space: &Arc<Space>,
        opened_as: OpenedAs,
    ) -> Result<Arc<OpenFile>, Errno> {
        let number = userfaults.next.fetch_add(1, Ordering::Relaxed);
        let space = Arc::downgrade(space);
        let userfault = Userfault::make(number, space, opened_as, None);
        userfaults.add(&userfault)?;
        Ok(Self::open_as(userfaults, userfault))
    }

    fn open_as(userfaults: &'static Userfaults, userfault: Arc<Userfault>) -> Arc<OpenFile> {
        let status = raw::O_RDONLY | userfault.opened_as.status & raw::O_NONBLOCK;
        let file = Box::new(Self {
            userfault,
            userfaults,
        });
        let vfs = userfaults.vfs;
        vfs.mounts
            .open_anonymous(vfs, "[userfaultfd]", status, file)
    }

    /// Installs the userfaultfd of a child's memory in the reader's descriptor table. Returns the message with the new
    /// descriptor (`resolve_userfault_fork`).
    fn install_child_context(
        &self,
        caller: &dyn Caller,
        child_context: &Arc<OpenFile>,
    ) -> Result<Message, Errno> {
        let status = self.userfault.opened_as.status;
        Ok(Message {
            event: raw::UFFD_EVENT_FORK as u8,
            flags: caller.add_descriptor(child_context.clone(), status)?,
            ..Message::default()
        })
    }
}

impl Drop for UserfaultFile {
    /// Unregisters all memory and wakes the waiting threads, which retry their accesses to memory that is no longer
    /// registered (`userfaultfd_release`).
    fn drop(&mut self) {
        let watch = self.userfault.state.lock().agreed.take();
        if let (Some((_, watch)), Some(space)) = (watch, self.userfault.space.upgrade()) {
            space.uffd().forget_watch(&watch);
        }
        // No thread can read these events any more.
        let events = core::mem::take(&mut self.userfault.state.lock().events);
        drop(events);
        self.userfault.wake(|_| true);
    }
}

/// The next message to read.
enum Unread {
    Fault(Message),
    Event(Arc<Event>),
}

impl Userfault {
    fn make(
        number: u64,
        space: Weak<Space>,
        opened_as: OpenedAs,
        agreed: Option<(Features, Watch)>,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            space,
            opened_as,
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

    /// Wakes the waiting threads for whose faulting addresses `chosen` returns true.
    fn wake(&self, chosen: impl Fn(u64) -> bool) {
        self.state.lock().waiting.retain(|one| {
            let stays = !chosen(one.address);
            if !stays {
                one.woken.store(true, Ordering::Release);
            }
            stays
        });
        self.resolved.wake_all();
    }

    /// Returns the oldest unread fault, or the oldest unread event if no fault is unread. If `take` is set, marks the
    /// fault or event as read.
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

    /// Writes the lines of `/proc/PID/fdinfo/N`: the number of unread faults, the number of waiting threads, the
    /// enabled features and the supported commands (`userfaultfd_show_fdinfo`).
    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let (pending, total, features) = {
            let state = self.state.lock();
            let waiting = &state.waiting;
            let unread = |one: &&Arc<Waiting>| !one.read.load(Ordering::Relaxed);
            let pending = waiting.iter().filter(unread).count();
            let agreed = state.agreed.as_ref();
            let features = agreed.map_or(0, |(features, _)| features.bits() | AGREED);
            (pending, waiting.len(), features)
        };
        writeln!(out, "pending:\t{pending}\ntotal:\t{total}")?;
        let (version, commands) = (raw::UFFD_API, control::EVERY_COMMAND);
        writeln!(out, "API:\t{version:x}:{features:x}:{commands:x}")
    }
}

impl File for UserfaultFile {
    fn counted_as(&self) -> OpenKind {
        OpenKind::Userfault
    }

    fn positions(&self) -> Positions {
        Positions::Ignored
    }

    fn read(
        &self,
        caller: &dyn Caller,
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
                None => caller
                    .wait_until(&[&userfault.messages], None, || userfault.unread(true))
                    .map_err(|error| error.restart())?,
            };
            let message = match &unread {
                Unread::Fault(message) => Ok(*message),
                Unread::Event(event) => match &event.tidings {
                    Tidings::Message(message) => Ok(*message),
                    Tidings::Fork(child_context) => self
                        .install_child_context(caller, child_context)
                        .inspect_err(|_| {
                            // The descriptor could not be installed. The event stays unread, so that a later read can
                            // deliver it.
                            event.taken.store(false, Ordering::Relaxed);
                        }),
                },
            };
            let message = match message {
                Err(_) if done > 0 => return Ok(done),
                message => message?,
            };
            let mut bytes = [0; Message::SIZE];
            message.to_bytes(&mut bytes);
            let put = sink.put(&bytes);
            if let Unread::Event(event) = unread {
                event.read.store(true, Ordering::Release);
                userfault.resolved.wake_all();
            }
            done += put?;
        }
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn readiness(&self, _caller: &dyn Caller, open: &OpenFile) -> Readiness {
        // In blocking mode, report an error. Readiness would not guarantee that a later read does not block, because
        // the fault can be resolved before it is read (`userfaultfd_poll`).
        if !self.userfault.has_agreed() || !open.is_nonblocking() {
            return Readiness::ERROR;
        }
        let mut ready = Readiness::empty();
        ready.set(Readiness::READ, self.userfault.unread(false).is_some());
        ready
    }

    fn queues<'a>(&'a self, _caller: &'a dyn Caller, wanted: Readiness, queues: &mut Queues<'a>) {
        if wanted.concerns_reading() {
            queues.add(&self.userfault.messages);
        }
    }

    fn control(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        self.execute(caller, command, argument)
    }

    fn describe(&self, _caller: &dyn Caller, out: &mut dyn fmt::Write) -> fmt::Result {
        self.userfault.describe(out)
    }
}
