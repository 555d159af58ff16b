//! `timerfd`: timers whose expirations are read from a descriptor.

use crate::fs::{
    abilities::{Polling, Positions},
    caller::Caller,
    open_file::{File, OpenFile},
    open_kind::OpenKind,
    readiness::Readiness,
    transfer::Sink,
};
use alloc::sync::{Arc, Weak};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::{
    scheduler::{Expiry, TimerKey, Timers},
    time::Schedule,
    wait::{Queues, WaitQueue},
};
use memwright_table::OutOfMemory;

/// The state of a timer.
#[derive(Default)]
struct State {
    schedule: Schedule,
    /// Number of unread expirations, as of the last time that expirations were counted.
    expired: u64,
    /// The scheduler's timer that wakes waiters, if it is set. After it fires, only the next read, `timerfd_gettime` or
    /// `timerfd_settime` sets it again, because Linux does not rearm a timer with unread expirations before one of
    /// these calls.
    deadline: Option<TimerKey>,
}

/// A timer, and the threads that wait for its expirations.
pub struct ReadableTimer {
    state: Lock<State>,
    expirations: WaitQueue,
}

impl ReadableTimer {
    fn new() -> Self {
        Self {
            state: Lock::new(Rank::File, State::default()),
            expirations: WaitQueue::new(),
        }
    }

    /// Sets the schedule of the timer. Returns the previous schedule.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no room for the scheduler's timer. The timer is unchanged then.
    fn set(
        self: &Arc<Self>,
        timers: &dyn Timers,
        schedule: Schedule,
    ) -> Result<Schedule, OutOfMemory> {
        timers.make_room_for_timer()?;
        let mut state = self.state.lock();
        let now = timers.now();
        let _ = state.schedule.pass(now);
        let old = core::mem::replace(&mut state.schedule, schedule);
        state.expired = 0;
        self.arm(timers, &mut state);
        Ok(old)
    }

    /// Sets the scheduler's timer for the next expiration, if there is one. The caller has tried to reserve room for
    /// the scheduler's timer. Without room, that timer stays unset.
    fn arm(self: &Arc<Self>, timers: &dyn Timers, state: &mut State) {
        if let Some(deadline) = state.deadline.take() {
            timers.remove_timer(deadline);
        }
        if let Some(at) = state.schedule.next {
            let this: Weak<Self> = Arc::downgrade(self);
            state.deadline = timers.add_timer(at, this).ok();
        }
    }

    /// Returns the number of unread expirations and resets it to zero. Returns `None` if there are none.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no room for the scheduler's timer of the next expiration. The expirations stay
    /// unread then.
    fn take(self: &Arc<Self>, timers: &dyn Timers) -> Result<Option<u64>, OutOfMemory> {
        let room = timers.make_room_for_timer();
        let mut state = self.state.lock();
        let mut schedule = state.schedule;
        let passed = schedule.pass(timers.now());
        let count = state.expired.saturating_add(passed);
        if count == 0 {
            return Ok(None);
        }
        // The scheduler's timer can be unset although an expiration follows: without room for that timer,
        // `timerfd_gettime` counts expirations but does not set it.
        let is_due = passed > 0 || state.deadline.is_none();
        if is_due && schedule.next.is_some() {
            room?;
        }
        (state.schedule, state.expired) = (schedule, 0);
        if is_due {
            self.arm(timers, &mut state);
        }
        Ok(Some(count))
    }
}

impl Expiry for ReadableTimer {
    fn expire(self: Arc<Self>, _key: TimerKey) {
        self.expirations.wake_all();
    }
}

/// The open file behind a descriptor of `timerfd_create`.
pub struct TimerFile {
    timer: Arc<ReadableTimer>,
    /// The number of nanoseconds by which the timer's clock is ahead of the clock of the scheduler's timers.
    pub clock_offset: u64,
    timers: &'static dyn Timers,
}

impl TimerFile {
    /// Creates a timer that is not set.
    #[must_use]
    pub fn new(timers: &'static dyn Timers, clock_offset: u64) -> Self {
        Self {
            timer: Arc::new(ReadableTimer::new()),
            clock_offset,
            timers,
        }
    }

    /// Sets the timer to `schedule`, whose times are those of the scheduler's clock. Returns the time that remained
    /// until the next expiration of the previous schedule, and the previous interval, both in nanoseconds.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no room for the scheduler's timer. The timer is unchanged then.
    pub fn set(&self, schedule: Schedule) -> Result<(u64, u64), OutOfMemory> {
        let old = self.timer.set(self.timers, schedule)?;
        Ok((old.remaining(self.timers.now()), old.interval))
    }

    /// Returns the time until the next expiration, and the interval, both in nanoseconds.
    #[must_use]
    pub fn get(&self) -> (u64, u64) {
        // Without room for the scheduler's timer, that timer stays unset until the next read.
        let _ = self.timers.make_room_for_timer();
        let mut state = self.timer.state.lock();
        let now = self.timers.now();
        let passed = state.schedule.pass(now);
        if passed > 0 {
            state.expired = state.expired.saturating_add(passed);
            self.timer.arm(self.timers, &mut state);
        }
        (state.schedule.remaining(now), state.schedule.interval)
    }
}

impl Drop for TimerFile {
    fn drop(&mut self) {
        let deadline = self.timer.state.lock().deadline.take();
        if let Some(deadline) = deadline {
            self.timers.remove_timer(deadline);
        }
        self.timer.expirations.sweep();
    }
}

impl File for TimerFile {
    fn counted_as(&self) -> OpenKind {
        OpenKind::Timer
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
        if sink.left() < 8 {
            return Err(Errno::EINVAL);
        }
        let count = match self.timer.take(self.timers)? {
            Some(count) => count,
            None if open.is_nonblocking() => return Err(Errno::EAGAIN),
            None => caller
                .wait_until(&[&self.timer.expirations], None, || {
                    self.timer.take(self.timers).transpose()
                })
                .map_err(|error| error.restart())??,
        };
        sink.put(&count.to_le_bytes())
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn readiness(&self, _caller: &dyn Caller, _open: &OpenFile) -> Readiness {
        let state = self.timer.state.lock();
        let now = self.timers.now();
        let mut ready = Readiness::empty();
        ready.set(
            Readiness::READ,
            state.expired > 0 || state.schedule.is_due(now),
        );
        ready
    }

    fn queues<'a>(&'a self, _caller: &'a dyn Caller, _wanted: Readiness, queues: &mut Queues<'a>) {
        queues.add(&self.timer.expirations);
    }
}
