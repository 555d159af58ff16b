//! Scheduling points in the middle of long operations, and waits for sleeping mutexes.

use super::{Schedulable, Scheduler, place::slice_is_over};
use core::sync::atomic::Ordering;
use memwright_table::sync::GaveWay;

impl<T: Schedulable> Scheduler<T> {
    /// Returns whether the thread that runs on this CPU should yield: other threads are runnable, and its time slice is
    /// over. First wakes the threads whose deadlines have passed, like a tick.
    pub fn pause_due(&self) -> bool {
        let cpu = self.cpu();
        let now = self.host.now();
        if now >= cpu.armed.load(Ordering::Relaxed) {
            self.wake_due();
            if !self.is_alone() {
                self.look_around(now);
            }
        }
        let waiting = cpu.waiting.load(Ordering::SeqCst);
        slice_is_over(now, cpu.slice_end.load(Ordering::Relaxed), waiting)
    }

    /// Lets the threads that are runnable on this CPU run before the calling one. `waits` states whether the calling
    /// thread waits for a lock that one of them may hold.
    pub fn give_way(&self, waits: bool) -> GaveWay {
        let cpu = self.cpu();
        let waiting = cpu.waiting.load(Ordering::SeqCst);
        let Some(thread) = self.current().filter(|_| waiting > 0) else {
            return GaveWay::ToNobody;
        };
        let gave = gave_way(waiting, cpu.lock_waiters.load(Ordering::Relaxed));
        thread.usage.involuntary.fetch_add(1, Ordering::Relaxed);
        // A load and a store suffice, because only this CPU changes `lock_waiters` and the thread does not leave this
        // CPU.
        let count = |by: isize| {
            let waiters = cpu.lock_waiters.load(Ordering::Relaxed);
            let waiters = waiters.wrapping_add_signed(if waits { by } else { 0 });
            cpu.lock_waiters.store(waiters, Ordering::Relaxed);
        };
        count(1);
        thread.paused.store(true, Ordering::Relaxed);
        self.yield_now(&thread);
        thread.paused.store(false, Ordering::Relaxed);
        count(-1);
        gave
    }
}

/// Returns which threads get the CPU if `waiting` threads are runnable, `lock_waiters` of which wait for locks.
fn gave_way(waiting: usize, lock_waiters: usize) -> GaveWay {
    if waiting == 0 {
        GaveWay::ToNobody
    } else if waiting <= lock_waiters {
        GaveWay::ToWaiters
    } else {
        GaveWay::ToOthers
    }
}

#[cfg(test)]
mod tests {
    use super::{GaveWay, gave_way};

    #[test]
    fn who_waits_too_cannot_go_on() {
        for (waiting, lock_waiters, expected) in [
            (0, 0, GaveWay::ToNobody),
            (1, 0, GaveWay::ToOthers),
            (1, 1, GaveWay::ToWaiters),
            (3, 2, GaveWay::ToOthers),
            (3, 3, GaveWay::ToWaiters),
        ] {
            assert_eq!(gave_way(waiting, lock_waiters), expected);
        }
    }
}
