//! The owner of an open file, to which a signal is sent when input or output becomes possible (`F_SETOWN`, `O_ASYNC`).

use alloc::sync::Arc;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::wait::Observer;

/// The threads to which a signal is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// There is no owner.
    #[default]
    Nobody,
    /// One thread.
    Thread(u32),
    /// A process.
    Process(u32),
    /// All processes of a group.
    Group(u32),
}

/// The owner, and the signal that it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The owner itself.
    pub who: Who,
    /// The real and the effective user id of the process that set the owner.
    pub users: [u32; 2],
    /// Number of the signal; 0 for SIGIO without details.
    pub signal: u8,
}

/// What an open file knows of its owner.
pub struct FileOwner {
    /// The owner. It is shared with the notices.
    pub ownership: Arc<Lock<Ownership>>,
    /// What observes the queues of the file while `O_ASYNC` is set: input, and output.
    pub notices: Lock<Option<[Arc<dyn Observer>; 2]>>,
    /// Sends SIGURG to the owner when urgent data arrives at a socket, once an owner was set.
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

/// The place of the owner in an open file. A file that has never had one needs no memory for it.
pub struct OwnerSlot(Lock<Option<Arc<FileOwner>>>);

impl Default for OwnerSlot {
    fn default() -> Self {
        Self(Lock::new(Rank::Leaf, None))
    }
}

impl OwnerSlot {
    /// Returns the owner, if one was set.
    #[must_use]
    pub fn get(&self) -> Option<Arc<FileOwner>> {
        self.0.lock().clone()
    }

    /// Returns the owner, and makes the file have one. The caller has checked the heap.
    #[must_use]
    pub fn get_or_make(&self) -> Arc<FileOwner> {
        if let Some(owner) = self.get() {
            return owner;
        }
        let new = Arc::new(FileOwner::default());
        let mut slot = self.0.lock();
        slot.get_or_insert_with(|| new.clone()).clone()
    }

    /// Returns the owner and the signal.
    #[must_use]
    pub fn ownership(&self) -> Ownership {
        let owner = self.get();
        owner.map_or_else(Ownership::default, |owner| *owner.ownership.lock())
    }
}
