//! The users, and for each the amount of limited resources that its processes use together (`user_struct` of Linux 7.2,
//! `include/linux/sched/user.h`).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_linux_base::{
    sweep::Sweep,
    sync::{Lock, Rank, lock_with_room},
};
use memwright_table::{OutOfMemory, Shared, TryPush};

/// The amount of a limited resource that a user has.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Returns the amount.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds `count` to the amount. Returns the new amount.
    pub fn add(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Ordering::Relaxed) + count
    }

    /// Subtracts `count` from the amount.
    pub fn remove(&self, count: u64) {
        let before = self.0.fetch_sub(count, Ordering::Relaxed);
        debug_assert!(before >= count, "less than nothing is left");
    }

    /// Adds one unless the amount is at least `most`. Returns whether one was added.
    pub fn add_below(&self, most: u64) -> bool {
        let one_more = |count: u64| (count < most).then_some(count + 1);
        let added = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        added.is_ok()
    }
}

/// A user, identified by the real user id, and its use of limited resources.
#[derive(Debug)]
pub struct User {
    id: u32,
    /// Number of threads. A zombie process counts as one thread.
    pub threads: Tally,
    /// Number of entries in the epolls of the user.
    pub watches: Tally,
    /// Capacity of the user's pipes, in pages.
    pub pipe_pages: Tally,
}

/// The users that have a process, a pipe or an epoll.
pub struct Users {
    known: Lock<Known>,
}

struct Known {
    /// The users, sorted by id.
    users: Vec<Shared<User>>,
    sweep: Sweep,
}

impl Default for Users {
    fn default() -> Self {
        let known = Known {
            users: Vec::new(),
            sweep: Sweep::new(),
        };
        Self {
            known: Lock::new(Rank::Lists, known),
        }
    }
}

impl Users {
    /// Returns the user with this id. Creates it if it is not in the list.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn get(&self, id: u32) -> Result<Shared<User>, OutOfMemory> {
        let mut known = lock_with_room(&self.known, |known| &mut known.users)?;
        if let Ok(index) = known.place_of(id) {
            return Ok(known.users[index].clone());
        }
        if known.sweep.is_due(known.users.len()) {
            known.users.retain(|user| Shared::references(user) > 1);
            let left = known.users.len();
            known.sweep.done(left);
        }
        let user = Shared::try_new(User {
            id,
            threads: Tally::default(),
            watches: Tally::default(),
            pipe_pages: Tally::default(),
        })?;
        let place = known.users.partition_point(|user| user.id < id);
        known.users.try_insert(place, user.clone())?;
        Ok(user)
    }
}

impl Known {
    fn place_of(&self, id: u32) -> Result<usize, usize> {
        self.users.binary_search_by_key(&id, |user| user.id)
    }
}

#[cfg(test)]
mod tests {
    use crate::identity::users::{Shared, Tally, Users};

    #[test]
    fn a_user_is_one_while_it_has_something() {
        let users = Users::default();
        let root = users.get(0).unwrap();
        let other = users.get(1000).unwrap();
        root.threads.add(2);
        other.threads.add(1);
        assert!(Shared::ptr_eq(&root, &users.get(0).unwrap()));
        for id in (1..500).rev() {
            users.get(id).unwrap().watches.add(1);
        }
        assert!(Shared::ptr_eq(&other, &users.get(1000).unwrap()));
        assert_eq!(users.get(0).unwrap().threads.get(), 2);
        // Users to which nothing refers have been removed.
        assert!(users.known.lock().users.len() < 100);
        let ids: alloc::vec::Vec<u32> = users
            .known
            .lock()
            .users
            .iter()
            .map(|user| user.id)
            .collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn a_tally_stops_at_its_limit() {
        let tally = Tally::default();
        assert!(tally.add_below(2) && tally.add_below(2) && !tally.add_below(2));
        tally.remove(1);
        assert!(tally.add_below(2));
        assert!(!tally.add_below(0));
        assert_eq!(tally.get(), 2);
    }
}
