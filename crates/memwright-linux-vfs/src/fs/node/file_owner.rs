//! The owner of an open file: the threads that get a signal when input or output becomes possible (`F_SETOWN`,
//! `O_ASYNC`).

use alloc::sync::Arc;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::wait::Observer;

/// The threads that get a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// None: the file has no owner.
    #[default]
    Nobody,
    /// The thread with this id.
    Thread(u32),
    /// The process with this id.
    Process(u32),
    /// All processes of a process group.
    Group(u32),
}

/// The owner of an open file, and the signal that it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The threads that get the signal.
    pub who: Who,
    /// The real and the effective user id of the process that set the owner.
    pub users: [u32; 2],
    /// Number of the signal; 0 for SIGIO without details (`siginfo`).
    pub signal: u8,
}

/// The owner of an open file, and the observers that send signals to it.
pub struct FileOwner {
    /// The owner. The observers share it.
    pub ownership: Arc<Lock<Ownership>>,
    /// The observers of the wait queues for input and for output, while `O_ASYNC` is set.
    pub notices: Lock<Option<[Arc<dyn Observer>; 2]>>,
    /// The observer that sends SIGURG when urgent data arrives at the socket; `None` until an owner was set.
    pub urgent: Lock<Option<Arc<dyn Observer>>>,
}

impl Default for FileOwner {
    fn default() -> Self {
        Self {
            ownership: Arc::new(Lock::new(Rank::Leaf, Ownership::default())),
            notices: Lock::new(Rank::Leaf, None),
            urgent: Lock::new(Rank::Leaf, None),
        }
    }
}

/// The owner of an open file, if it has ever had one. Other files need no memory for an owner.
pub struct OwnerSlot(Lock<Option<Arc<FileOwner>>>);

impl Default for OwnerSlot {
    fn default() -> Self {
        Self(Lock::new(Rank::Leaf, None))
    }
}

impl OwnerSlot {
    /// Returns the owner, or `None` if the file has never had one.
    #[must_use]
    pub fn get(&self) -> Option<Arc<FileOwner>> {
        self.0.lock().clone()
    }

    /// Returns the owner. Creates it, without threads that get a signal, if the file has never had one. The caller has
    /// checked that the kernel heap is above its reserve.
    #[must_use]
    pub fn get_or_make(&self) -> Arc<FileOwner> {
        if let Some(owner) = self.get() {
            return owner;
        }
        let new = Arc::new(FileOwner::default());
        let mut slot = self.0.lock();
        slot.get_or_insert_with(|| new.clone()).clone()
    }

    /// Returns the owner and the signal that it gets. If the file has never had an owner, returns the default of
    /// [`Ownership`].
    #[must_use]
    pub fn ownership(&self) -> Ownership {
        let owner = self.get();
        owner.map_or_else(Ownership::default, |owner| *owner.ownership.lock())
    }
}
