//! `epoll`: a set of watched open files, and the list of those that became ready.
//!
//! An entry ([`Item`]) observes the wait queues of its file. A wake-up of such a queue puts the entry on the ready list
//! and wakes the epoll's own queue. It does not poll the file. The thread that collects events (`Epoll::collect`) takes
//! entries off the list, polls their files, and puts the level-triggered entries that are ready back on the list. A
//! level-triggered entry that is found not ready leaves the list. An edge-triggered entry always leaves it.
//!
//! An entry belongs to its open file. The epoll holds no reference to the file; when the file's last descriptor is
//! closed, its entries are removed ([`Watches`]). An entry is immutable: `EPOLL_CTL_MOD` replaces it by a new entry.

mod collect;
mod item;
// Room in its lists is reserved before they grow.
mod nesting;
mod queue;
mod ready;

pub use item::{Event, Interest, Item, Watches};

use self::{
    nesting::{Nesting, PathCounts},
    ready::ReadyList,
};
use super::open_file::{File, OpenFile, OpenKind, Polling, Positions, Readiness};
use crate::{
    errno::Errno,
    fs::caller::Caller,
    identity::User,
    sync::{Lock, PausePoints, Rank},
    wait::{Queues, WaitQueue},
};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};
use core::sync::atomic::{AtomicBool, Ordering};
use memwright_table::{OutOfMemory, Shared};

/// The key of an entry: a descriptor, and the number of the open file that it referred to.
type Key = (i32, u64);

/// The number of entries that a loop handles between two scheduling points.
const ENTRIES: u32 = 128;

/// The set of watched files.
pub struct Epoll {
    items: Lock<BTreeMap<Key, Arc<Item>>>,
    /// Whether an entry was ever added whose file does not wake queues, so that its readiness must be polled.
    has_looked_at: AtomicBool,
    ready: ReadyList<Item>,
    /// Threads in `epoll_wait`, and the epolls that watch this one.
    queue: WaitQueue,
    /// The epolls that watch this one, for the limits on nesting.
    watched: Watches,
    paths: PathCounts,
    /// The user that created the epoll. The entries are charged to this user.
    user: Shared<User>,
}

impl Drop for Epoll {
    /// Drops the entries one by one, with scheduling points in between.
    fn drop(&mut self) {
        self.user.watches.remove(self.items.get_mut().len() as u64);
        let mut points = PausePoints::every(ENTRIES);
        while let Some(entry) = self.items.get_mut().pop_first() {
            drop(entry);
            points.round();
        }
        self.ready.clear();
        self.queue.sweep();
    }
}

impl Epoll {
    /// Creates an empty set that is charged to `user`.
    #[must_use]
    pub fn new(user: Shared<User>) -> Self {
        Self {
            items: Lock::new(Rank::File, BTreeMap::new()),
            has_looked_at: AtomicBool::new(false),
            ready: ReadyList::new(),
            queue: WaitQueue::new(),
            watched: Watches::new(),
            paths: PathCounts::default(),
            user,
        }
    }

    /// Adds an open file to the set (`EPOLL_CTL_ADD`).
    ///
    /// # Errors
    /// `EEXIST` if the set already contains this file under this descriptor; `ELOOP` if an epoll would watch itself, or
    /// a chain of epolls would be too long; `EINVAL` if too many paths through epolls would lead to a file; `ENOSPC` if
    /// the user has too many entries; `ENOMEM`.
    pub fn add(
        self: &Arc<Self>,
        caller: &dyn Caller,
        descriptor: i32,
        open: &Arc<OpenFile>,
        interest: Interest,
    ) -> Result<(), Errno> {
        caller.check_heap()?;
        let key = (descriptor, open.identity());
        let inner = open.as_kind::<EpollFile>().map(|file| &file.epoll);
        let mut nesting = Nesting::begin(self, inner);
        if let (Some(nesting), Some(inner)) = (&mut nesting, inner) {
            nesting.check_loop(self, inner)?;
        }
        let most = caller.vfs().file_limits.watches.load(Ordering::Relaxed);
        let only_new = |old: Option<&Arc<Item>>| match old {
            Some(_) => Err(Errno::EEXIST),
            None if self.user.watches.add_below(most) => Ok(()),
            None => Err(Errno::ENOSPC),
        };
        let home = Arc::downgrade(caller.signal_arrivals());
        let item = self.enter(key, open, (interest, Some(home)), only_new)?;
        if let Some(mut nesting) = nesting {
            nesting
                .check_paths(open, inner)
                .inspect_err(|_| self.forget(&item))?;
        }
        self.start(caller, open, &item)
    }

    /// Changes the events of a watched file (`EPOLL_CTL_MOD`).
    ///
    /// # Errors
    /// `ENOENT` if the set does not contain this file under this descriptor, `EINVAL` if the old or the new entry is
    /// exclusive, `ENOMEM`.
    pub fn change(
        self: &Arc<Self>,
        caller: &dyn Caller,
        descriptor: i32,
        open: &Arc<OpenFile>,
        interest: Interest,
    ) -> Result<(), Errno> {
        caller.check_heap()?;
        let key = (descriptor, open.identity());
        let only_old = |old: Option<&Arc<Item>>| {
            let old = old.ok_or(Errno::ENOENT)?;
            if old.interest.is_exclusive() || interest.is_exclusive() {
                return Err(Errno::EINVAL);
            }
            Ok(())
        };
        let item = self.enter(key, open, (interest, None), only_old)?;
        self.start(caller, open, &item)
    }

    /// Removes a file from the set (`EPOLL_CTL_DEL`).
    ///
    /// # Errors
    /// `ENOENT` if the set does not contain this file under this descriptor.
    pub fn remove(&self, descriptor: i32, open: &OpenFile) -> Result<(), Errno> {
        let key = (descriptor, open.identity());
        let removed = self.items.lock().remove(&key);
        let removed = removed.ok_or(Errno::ENOENT)?;
        self.user.watches.remove(1);
        drop(removed);
        Ok(())
    }

    /// Creates an entry and replaces the entry with the same key, if there is one. `may` receives that old entry, and
    /// an error from it prevents the change. Without `home`, the new entry inherits the old entry's process, whose
    /// signals a signalfd entry reports.
    fn enter(
        self: &Arc<Self>,
        key: Key,
        open: &Arc<OpenFile>,
        (interest, home): (Interest, Option<Weak<WaitQueue>>),
        may: impl FnOnce(Option<&Arc<Item>>) -> Result<(), Errno>,
    ) -> Result<Arc<Item>, Errno> {
        let home = home.or_else(|| self.items.lock().get(&key).map(|old| old.home.clone()));
        let item = Arc::new(Item::new(
            self,
            open,
            (key, home.unwrap_or_default()),
            interest,
        ));
        let old = {
            let mut items = self.items.lock();
            // Room for every entry is reserved in the ready list, so that a wake-up cannot fail.
            let room = self.ready.make_room(items.len() + 1);
            may(items.get(&key))?;
            let is_new = !items.contains_key(&key);
            room.map_err(|_| {
                self.user.watches.remove(is_new.into());
                Errno::ENOMEM
            })?;
            if item.looked_at {
                self.has_looked_at.store(true, Ordering::Relaxed);
            }
            items.insert(key, item.clone())
        };
        drop(old);
        let mut added = open.watches.add(&item);
        if let (Ok(()), Some(inner)) = (&added, item.inner()) {
            added = inner.watched.add(&item);
        }
        self.or_forget(&item, added)?;
        Ok(item)
    }

    /// Removes a new entry again and returns `ENOMEM` if there was no memory to observe its file.
    fn or_forget(&self, item: &Arc<Item>, watched: Result<(), OutOfMemory>) -> Result<(), Errno> {
        watched.map_err(|OutOfMemory| {
            self.forget(item);
            Errno::ENOMEM
        })
    }

    /// Registers a new entry with the queues of its file, and checks whether the file is ready.
    ///
    /// # Locks
    /// The caller holds no lock.
    fn start(
        &self,
        caller: &dyn Caller,
        open: &Arc<OpenFile>,
        item: &Arc<Item>,
    ) -> Result<(), Errno> {
        let mut queues = Queues::new();
        let wanted = item.interest.wanted();
        // The process whose signals a signalfd entry reports is fixed when the entry is added (`ep_modify`).
        let home = item.home.upgrade();
        if open.file.counted_as() != OpenKind::Signal {
            open.file.queues(caller, wanted, &mut queues);
        } else if let Some(home) = &home {
            queues.add(home);
        }
        let observer: Weak<Item> = Arc::downgrade(item);
        let mut observed = queues.complete();
        for queue in queues.iter() {
            observed = observed.and_then(|()| queue.observe(observer.clone()));
        }
        self.or_forget(item, observed)?;
        // From here on, every change of the file's readiness wakes the entry. Polling the file now finds what became
        // ready before.
        if !item.found(caller, open).is_empty() {
            self.make_ready(item);
        }
        Ok(())
    }

    /// Removes an entry whose file was closed or whose addition failed, unless another entry has replaced it.
    fn forget(&self, item: &Arc<Item>) {
        let mut items = self.items.lock();
        let own = items
            .get(&item.key)
            .is_some_and(|known| Arc::ptr_eq(known, item));
        let removed = if own { items.remove(&item.key) } else { None };
        drop(items);
        if removed.is_some() {
            self.user.watches.remove(1);
        }
        drop(removed);
    }

    /// Puts an entry on the ready list and wakes one waiter. Returns whether a thread was waiting.
    fn make_ready(&self, item: &Arc<Item>) -> bool {
        self.enlist(item);
        self.queue.wake_one()
    }

    /// Puts an entry at the end of the ready list unless it is already on the list.
    fn enlist(&self, item: &Arc<Item>) {
        if item.enlist() {
            self.ready.push(item);
        }
    }
}

/// The open file behind a descriptor of `epoll_create1`.
pub struct EpollFile {
    /// The set.
    pub epoll: Arc<Epoll>,
}

impl File for EpollFile {
    fn counted_as(&self) -> OpenKind {
        OpenKind::Epoll
    }

    fn kernel_bytes(&self) -> u64 {
        /// Estimated size of an entry in bytes, including its nodes in sets and lists.
        const ENTRY: usize = 256;
        ((self.epoll.items.lock().len() + 2) * ENTRY) as u64
    }

    fn positions(&self) -> Positions {
        Positions::Ignored
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn readiness(&self, caller: &dyn Caller, _open: &OpenFile) -> Readiness {
        if self.epoll.has_ready(caller) {
            Readiness::READ
        } else {
            Readiness::empty()
        }
    }

    fn queues<'a>(&'a self, _caller: &'a dyn Caller, _wanted: Readiness, queues: &mut Queues<'a>) {
        queues.add(&self.epoll.queue);
    }
}
