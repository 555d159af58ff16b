//! The POSIX timers that measure the CPU time of a process, in the order of their expirations. One check of the CPU
//! time suffices for any number of timers.

use super::counted::Counted;
use memwright_linux_base::{
    ordered::Ordered,
    sync::{Lock, Rank, lock_with_room},
};
use memwright_linux_sched::scheduler::UsageSnapshot;
use memwright_table::OutOfMemory;

/// Expirations, each with its CPU time in nanoseconds and the id of its timer.
type Expirations = Ordered<(u64, i32), ()>;

#[derive(Default)]
struct Queues {
    user: Expirations,
    all: Expirations,
}

impl Queues {
    fn of(&mut self, counted: Counted) -> &mut Expirations {
        match counted {
            Counted::User => &mut self.user,
            Counted::All => &mut self.all,
        }
    }
}

/// The next expirations of the timers, in a separate queue for each kind of CPU time.
pub(super) struct CpuTimers(Lock<Queues>);

impl Default for CpuTimers {
    fn default() -> Self {
        Self(Lock::new(Rank::Lists, Queues::default()))
    }
}

impl CpuTimers {
    /// Adds the expiration of timer `id` at the CPU time `at`. Returns whether it is the earliest expiration of the
    /// timers that measure the same kind of CPU time.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn add(&self, counted: Counted, at: u64, id: i32) -> Result<bool, OutOfMemory> {
        let mut queues = lock_with_room(&self.0, |queues| queues.of(counted))?;
        let queue = queues.of(counted);
        queue.insert((at, id), ())?;
        Ok(queue.first() == Some(&(at, id)))
    }

    /// Removes an expiration, if it exists.
    pub(super) fn remove(&self, counted: Counted, at: u64, id: i32) {
        self.0.lock().of(counted).remove(&(at, id));
    }

    /// Returns the nanoseconds of CPU time until the first expiration; `None` without a timer.
    pub(super) fn left(&self, used: &UsageSnapshot) -> Option<u64> {
        let mut queues = self.0.lock();
        let mut left = |counted: Counted| {
            let &(at, _) = queues.of(counted).first()?;
            Some(at.saturating_sub(counted.of(used)))
        };
        let [user, all] = [Counted::User, Counted::All].map(&mut left);
        user.into_iter().chain(all).min()
    }

    /// Removes an expiration that is due at the CPU time `used`. Returns the CPU time of the expiration and the id of
    /// its timer; `None` if none is due.
    pub(super) fn pop_due(&self, used: &UsageSnapshot) -> Option<(u64, i32)> {
        let mut queues = self.0.lock();
        [Counted::User, Counted::All]
            .into_iter()
            .find_map(|counted| {
                let queue = queues.of(counted);
                let &(at, _) = queue.first()?;
                if at > counted.of(used) {
                    return None;
                }
                queue.pop_first().map(|(expiration, ())| expiration)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, CpuTimers, UsageSnapshot};

    #[test]
    fn what_is_due_is_taken_in_order() {
        let used = |user, system| UsageSnapshot {
            user,
            system,
            ..UsageSnapshot::default()
        };
        let timers = CpuTimers::default();
        assert_eq!(timers.left(&used(9, 9)), None);
        for (counted, at, id, is_first) in [
            (Counted::All, 50, 1, true),
            (Counted::User, 40, 2, true),
            (Counted::All, 20, 3, true),
            (Counted::User, 70, 4, false),
        ] {
            assert_eq!(timers.add(counted, at, id), Ok(is_first));
        }
        assert_eq!(timers.left(&used(5, 5)), Some(10));
        assert_eq!(timers.pop_due(&used(5, 14)), None);
        assert_eq!(timers.pop_due(&used(5, 15)), Some((20, 3)));
        assert_eq!(timers.left(&used(35, 0)), Some(5));
        timers.remove(Counted::User, 40, 2);
        timers.remove(Counted::User, 40, 2);
        assert_eq!(timers.pop_due(&used(45, 9)), Some((50, 1)));
        assert_eq!(timers.pop_due(&used(45, 9)), None);
        assert_eq!(timers.left(&used(80, 0)), Some(0));
        assert_eq!(timers.pop_due(&used(80, 0)), Some((70, 4)));
        assert_eq!(timers.left(&used(80, 0)), None);
    }
}
