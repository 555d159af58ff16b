//! Timers: each belongs to the CPU on which it was added, and expires there.

use super::{Cpu, Schedulable, Scheduler};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::Ordering;
use memwright_linux_base::{
    ordered::Ordered,
    sync::{self, Lock, lock_with_room},
};
use memwright_table::OutOfMemory;

/// Identifies a timer: its deadline, and a number that contains the CPU and orders timers with equal deadlines.
pub type TimerKey = (u64, u64);

/// The action of a timer that does not belong to a waiting thread.
pub trait Expiry: Send + Sync {
    /// Handles the expiration of the timer `key`. The timer may have been set again since it expired, so the
    /// implementation must check whether it is due.
    ///
    /// # Locks
    /// Called without locks.
    fn expire(self: Arc<Self>, key: TimerKey);
}

/// The action of an expired timer.
pub(super) enum TimerAction<T> {
    /// Wake a waiting thread.
    Wake(Arc<T>),
    /// Notify another object, if it still exists.
    Expire(Weak<dyn Expiry>),
}

/// The timers, and the clock by which they expire.
pub trait Timers: Send + Sync {
    /// Returns the time of the clock in nanoseconds since boot.
    fn now(&self) -> u64;

    /// Allocates memory for one timer. The next timer that this CPU adds before it blocks then needs no memory. Call
    /// this without locks before adding a timer under a lock.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn make_room_for_timer(&self) -> Result<(), OutOfMemory>;

    /// Adds a timer that expires at the time `at`.
    ///
    /// # Errors
    /// [`OutOfMemory`]. This cannot happen directly after a timer has expired or been removed on this CPU, or after
    /// [room](Self::make_room_for_timer) was made.
    fn add_timer(&self, at: u64, expiry: Weak<dyn Expiry>) -> Result<TimerKey, OutOfMemory>;

    /// Removes a timer, unless it has expired.
    fn remove_timer(&self, key: TimerKey);
}

/// The number of bits that hold the CPU in the second number of a [`TimerKey`].
const CPU_BITS: u32 = memwright_table::MAX_CPUS.trailing_zeros();

fn cpu_of(key: TimerKey) -> usize {
    (key.1 & ((1 << CPU_BITS) - 1)) as usize
}

/// The maximum number of timers that are handled at a time. If more timers are due, the CPU takes another timer
/// interrupt at once. A thread can run between the two interrupts.
const TOGETHER: usize = 256;

/// Nanoseconds after which `expire` handles no further timer. A single timer can take long, for example one that
/// signals a process with many threads that all block the signal.
pub const EXPIRING: u64 = 200_000;

/// Removes the first timer if its deadline has passed.
fn pop_due<T>(
    map: &Lock<Ordered<TimerKey, TimerAction<T>>>,
    now: u64,
) -> Option<(TimerKey, TimerAction<T>)> {
    let mut map = map.lock();
    let is_due = map.first().is_some_and(|key| key.0 <= now);
    if is_due { map.pop_first() } else { None }
}

impl<T> Cpu<T> {
    /// Returns the first deadline of all timers; `u64::MAX` if there is none.
    pub(super) fn first_deadline(&self) -> u64 {
        let first =
            |map: &Lock<Ordered<TimerKey, _>>| map.lock().first().map_or(u64::MAX, |key| key.0);
        first(&self.timers).min(first(&self.wakes))
    }
}

impl<T: Schedulable> Scheduler<T> {
    /// Adds a timer with the action `action`, which expires at the time `at`.
    ///
    /// # Errors
    /// The errors of [`Timers::add_timer`].
    pub(super) fn set_timer(
        &self,
        at: u64,
        action: TimerAction<T>,
    ) -> Result<TimerKey, OutOfMemory> {
        let cpu = sync::cpu().index();
        let number = self.sequence.fetch_add(1, Ordering::Relaxed);
        let key = (at, number << CPU_BITS | cpu as u64);
        let map = match &action {
            TimerAction::Wake(_) => &self.cpus[cpu].wakes,
            TimerAction::Expire(_) => &self.cpus[cpu].timers,
        };
        let mut map = lock_with_room(map, |map| map)?;
        map.insert(key, action)?;
        drop(map);
        self.arm();
        Ok(key)
    }

    /// Wakes threads whose deadlines on this CPU have passed, up to [`TOGETHER`]. All other timers are handled by
    /// [`expire`](Self::expire), because they may need locks that the caller holds.
    pub(super) fn wake_due(&self) {
        let now = self.host.now();
        for _ in 0..TOGETHER {
            let Some((_, TimerAction::Wake(thread))) = pop_due(&self.cpu().wakes, now) else {
                return;
            };
            self.wake(thread);
        }
    }

    /// Handles the expired timers of this CPU, up to [`TOGETHER`].
    pub(super) fn expire(&self) {
        let mut spent = 0;
        for _ in 0..TOGETHER {
            let cpu = self.cpu();
            let now = self.host.now();
            let first = |map: &Lock<Ordered<_, _>>| map.lock().first().copied();
            let due = match (first(&cpu.wakes), first(&cpu.timers)) {
                (Some(wake), Some(timer)) if timer < wake => pop_due(&cpu.timers, now),
                (Some(_), _) => pop_due(&cpu.wakes, now),
                (None, _) => pop_due(&cpu.timers, now),
            };
            match due {
                Some((_, TimerAction::Wake(thread))) => self.wake(thread),
                Some((key, TimerAction::Expire(expiry))) => {
                    if let Some(expiry) = expiry.upgrade() {
                        expiry.expire(key);
                    }
                    spent += self.host.now() - now;
                    if spent > EXPIRING {
                        return;
                    }
                }
                None => return,
            }
        }
    }
}

impl<T: Schedulable> Timers for Scheduler<T> {
    fn now(&self) -> u64 {
        self.host.now()
    }

    fn make_room_for_timer(&self) -> Result<(), OutOfMemory> {
        let cpu = self.cpu();
        lock_with_room(&cpu.wakes, |wakes| wakes).map(drop)?;
        lock_with_room(&cpu.timers, |timers| timers).map(drop)
    }

    fn add_timer(&self, at: u64, expiry: Weak<dyn Expiry>) -> Result<TimerKey, OutOfMemory> {
        self.set_timer(at, TimerAction::Expire(expiry))
    }

    fn remove_timer(&self, key: TimerKey) {
        let cpu = cpu_of(key);
        let Cpu { timers, wakes, .. } = &self.cpus[cpu];
        let removed = wakes.lock().remove(&key);
        let removed = removed.or_else(|| timers.lock().remove(&key));
        // If the timer belongs to another CPU, that CPU keeps its old deadline. It is interrupted at that time, and
        // finds no timer due.
        if removed.is_some() && cpu == sync::cpu().index() {
            self.arm();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CPU_BITS, cpu_of};

    #[test]
    fn a_key_names_its_cpu() {
        assert_eq!(CPU_BITS, 6);
        assert_eq!(cpu_of((5, 7 << 6 | 63)), 63);
        assert_eq!(cpu_of((5, 7 << 6)), 0);
    }
}
