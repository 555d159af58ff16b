//! `epoll_ctl`: adds, changes and removes entries.

use crate::fs::{
    abilities::Polling,
    caller::Caller,
    epoll::{Epoll, Item, file::EpollFile, nesting::Nesting},
    open_file::OpenFile,
    open_kind::OpenKind,
    watch::{interest::Interest, items::Key},
};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_linux_sched::wait::{Queues, WaitQueue};
use memwright_table::OutOfMemory;

/// Returns whether an open file is a signalfd.
fn is_signalfd(open: &OpenFile) -> bool {
    open.file.counted_as() == OpenKind::Signal
}

impl Epoll {
    /// Adds an open file to the set (`EPOLL_CTL_ADD`). `inner` is the epoll of the file, if the file is an epoll.
    ///
    /// # Errors
    /// `EEXIST` if the set already contains this file under this descriptor; `ELOOP` if an epoll would watch itself
    /// directly or indirectly, or a chain of epolls would be too long; `EINVAL` if too many paths through epolls would
    /// lead to a file; `ENOSPC` if the user has too many entries; `ENOMEM`.
    pub fn add(
        self: &Arc<Self>,
        caller: &dyn Caller,
        descriptor: i32,
        (open, inner): (&Arc<OpenFile>, Option<&Arc<Self>>),
        interest: Interest,
    ) -> Result<(), Errno> {
        caller.check_heap()?;
        let key = (descriptor, open.identity());
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
        let home = if is_signalfd(open) {
            Arc::downgrade(caller.signal_arrivals())
        } else {
            Weak::new()
        };
        let item = self.enter((key, home), (open, inner), interest, only_new)?;
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
        // A signalfd entry keeps reporting the signals of the process that added it (`ep_modify`).
        let home = if is_signalfd(open) {
            let items = self.items.lock();
            items.get(&key).map(|old| old.home.clone())
        } else {
            None
        };
        let key = (key, home.unwrap_or_default());
        let inner = open.as_kind::<EpollFile>().map(|file| &file.epoll);
        let item = self.enter(key, (open, inner), interest, only_old)?;
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

    /// Creates an entry. If there is an entry with the same key, replaces it. First calls `may` with the entry that
    /// would be replaced, and changes nothing if `may` fails. For a signalfd, `home` is the queue that is woken when
    /// the process that added the entry gets a signal.
    fn enter(
        self: &Arc<Self>,
        (key, home): (Key, Weak<WaitQueue>),
        (open, inner): (&Arc<OpenFile>, Option<&Arc<Self>>),
        interest: Interest,
        may: impl FnOnce(Option<&Arc<Item>>) -> Result<(), Errno>,
    ) -> Result<Arc<Item>, Errno> {
        let item = Arc::new(Item::new(
            self,
            (open, inner),
            (key, home),
            interest,
            open.file.polling() == Polling::Look,
        ));
        let old = {
            let mut items = self.items.lock();
            let old = items.get(&key);
            let is_new = old.is_none();
            may(old)?;
            // Reserve room in the ready list for all entries, so that a wake-up cannot fail.
            let room = self.ready.make_room(items.len() + 1);
            if item.looked_at {
                self.has_looked_at.store(true, Ordering::Relaxed);
            }
            let inserted = room.and_then(|()| items.insert(item.clone()));
            inserted.map_err(|_| {
                self.user.watches.remove(is_new.into());
                Errno::ENOMEM
            })?
        };
        drop(old);
        let mut added = open.watches.add(&item);
        if let (Ok(()), Some(inner)) = (&added, item.inner()) {
            added = inner.watched.add(&item);
        }
        self.or_forget(&item, added)?;
        Ok(item)
    }

    /// If `watched` is an error, removes the new entry and returns `ENOMEM`. The error means that memory ran out while
    /// the entry was registered with its file.
    fn or_forget(&self, item: &Arc<Item>, watched: Result<(), OutOfMemory>) -> Result<(), Errno> {
        watched.map_err(|OutOfMemory| {
            self.forget(item);
            Errno::ENOMEM
        })
    }

    /// Registers a new entry with the wait queues of its file. Then polls the file. If the file is ready, puts the
    /// entry on the ready list.
    ///
    /// # Locks
    /// The caller holds no lock.
    fn start(
        &self,
        caller: &dyn Caller,
        open: &Arc<OpenFile>,
        item: &Arc<Item>,
    ) -> Result<(), Errno> {
        let wanted = item.interest.wanted();
        let home = item.home.upgrade();
        let mut queues = Queues::new();
        if !is_signalfd(open) {
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
        // From here on, every change of the file's readiness notifies the entry. This poll finds earlier changes.
        if !item.found(caller, open).is_empty() {
            self.make_ready(item);
        }
        Ok(())
    }
}
