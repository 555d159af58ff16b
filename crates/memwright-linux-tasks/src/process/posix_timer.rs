//! POSIX timers of a process (Linux 7.2 `kernel/time/posix-timers.c`).
//!
//! A timer has at most one signal pending. While that signal is pending or ignored, the timer has no deadline; the
//! expirations in the meantime are counted when the signal is delivered. So a timer costs no time between the signals
//! that are delivered to the program, whatever its interval is.

use super::{
    Notice, PosixTimer, Process, TimerClock,
    cpu_clock::TICK,
    posix_timer_state::{Armed, Deadline, Place, State, TOGETHER},
};
use crate::process::send_timer_signal;
use alloc::sync::{Arc, Weak};
use memwright_linux_abi::{
    abi::MILLISECOND,
    errno::Errno,
    signal::{Detail, Signal, SignalInfo, code},
};
use memwright_linux_base::sync::{Lock, PausePoints, Rank, lock_with_room};
use memwright_linux_sched::{
    scheduler::{Expiry, TimerKey, Timers},
    time::Schedule,
};
use memwright_linux_vfs::identity::Resource;

/// Nanoseconds until another attempt to send a signal that could not be queued.
const LATER: u64 = 100 * MILLISECOND;

impl TimerClock {
    /// Returns the time of the clock in nanoseconds; `None` if the process or thread that it measures has ended.
    ///
    /// # Locks
    /// Takes the lock of the signals of the process whose CPU time the clock measures.
    #[must_use]
    pub fn now(&self, timers: &dyn Timers) -> Option<u64> {
        match self {
            Self::Host(_) => Some(timers.now()),
            Self::Cpu(clock) => clock.time(),
        }
    }
}

impl Process {
    /// Creates a timer that is not set. `value` is the value that its signals carry; `None` for the timer's id. Returns
    /// the id.
    ///
    /// # Errors
    /// `EAGAIN` if the process has as many timers as it can have pending signals, `ENOMEM`.
    pub fn create_timer(
        self: &Arc<Self>,
        notice: Notice,
        value: Option<u64>,
        clock: TimerClock,
    ) -> Result<i32, Errno> {
        let most = self.identity.soft_limit(Resource::PendingSignals);
        let mut table = lock_with_room(&self.posix_timers.0, |table| &mut table.timers)?;
        if table.count >= most {
            return Err(Errno::EAGAIN);
        }
        let mut id = table.next;
        while table.timers.get(&id).is_some() {
            id = id.checked_add(1).unwrap_or(0);
        }
        table.next = id.checked_add(1).unwrap_or(0);
        let timer = PosixTimer {
            id,
            process: Arc::downgrade(self),
            notice,
            value: value.unwrap_or(id as u64),
            clock,
            state: Lock::new(Rank::File, State::default()),
        };
        let (measures, measures_thread) = (timer.clock.measures(), timer.clock.measures_thread());
        drop(table.timers.insert(id, Arc::new(timer))?);
        table.count += 1;
        table.measuring += u64::from(measures_thread);
        drop(table);
        if measures {
            self.measure_cpu_time();
        }
        Ok(id)
    }

    /// Returns the timer `id`.
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub fn posix_timer(&self, id: i32) -> Result<Arc<PosixTimer>, Errno> {
        let table = self.posix_timers.0.lock();
        table.timers.get(&id).cloned().ok_or(Errno::EINVAL)
    }

    /// Sets a deadline for each timer that measures a running thread and has no deadline. Returns whether the process
    /// has timers that measure the CPU time of threads.
    ///
    /// # Locks
    /// The caller holds no lock.
    pub(super) fn resume_posix_timers(&self) -> bool {
        if self.posix_timers.0.lock().measuring == 0 {
            return false;
        }
        let timers: &dyn Timers = self.tasks.scheduler;
        let mut measure = false;
        self.posix_timers
            .each(|timer| measure |= timer.resume(timers));
        measure
    }

    /// Deletes a timer. Its pending signal is discarded when a thread dequeues it.
    ///
    /// # Errors
    /// `EINVAL` if there is no timer with this id.
    pub fn delete_timer(&self, id: i32) -> Result<(), Errno> {
        let timer = {
            let mut table = self.posix_timers.0.lock();
            let timer = table.timers.remove(&id).ok_or(Errno::EINVAL)?;
            table.count -= 1;
            table.measuring -= u64::from(timer.clock.measures_thread());
            timer
        };
        timer.cancel(self.tasks.scheduler);
        Ok(())
    }

    /// Deletes all timers, for `execve` and the end of the process.
    pub fn delete_timers(&self) {
        let mut points = PausePoints::every(TOGETHER);
        while let Some(timer) = self.posix_timers.from(0) {
            // Another thread of the process may delete the timer first.
            let _deleted = self.delete_timer(timer.id);
            points.round();
        }
    }

    /// Completes a signal that a thread has dequeued: adds the overrun of the timer that sent the signal, and sets the
    /// timer's next deadline. Returns `None` if the signal must be discarded, because the timer was deleted or set
    /// again after it sent the signal. Returns any other signal unchanged.
    ///
    /// # Locks
    /// The caller holds no lock.
    pub fn complete_signal(&self, info: SignalInfo) -> Option<SignalInfo> {
        let Detail::Timer { timer, value, .. } = info.detail else {
            return Some(info);
        };
        let overrun = self.posix_timer(timer).ok()?.taken(self.tasks.scheduler)?;
        Some(SignalInfo {
            detail: Detail::Timer {
                timer,
                overrun,
                value,
            },
            ..info
        })
    }

    /// Adjusts the timers that send `signal` after the action for this signal has changed. If `ignores` is set, the
    /// process now ignores the signal: the caller has discarded the pending signals, and each timer with a pending
    /// signal becomes `Place::Ignored`. Otherwise the timers that were `Place::Ignored` send their signals again.
    ///
    /// # Locks
    /// The caller holds no lock.
    pub fn change_timer_action(self: &Arc<Self>, signal: Signal, ignores: bool) {
        self.posix_timers.each(|timer| {
            if timer.notice.signal() != Some(signal) {
                return;
            }
            let sends = {
                let mut state = timer.state.lock();
                match (state.place, ignores) {
                    (Place::Pending, true) => {
                        state.place = Place::Ignored;
                        false
                    }
                    (Place::Stale, true) => {
                        state.place = Place::Nowhere;
                        false
                    }
                    (Place::Ignored, false) => {
                        state.place = Place::Pending;
                        true
                    }
                    (Place::Nowhere | Place::Ignored, true)
                    | (Place::Nowhere | Place::Pending | Place::Stale, false) => false,
                }
            };
            if sends {
                timer.send(self);
            }
        });
    }
}

impl State {
    /// Returns whether the timer has no deadline and must have one.
    fn needs_deadline(&self) -> bool {
        self.deadline.is_none() && matches!(self.place, Place::Nowhere | Place::Stale)
    }

    /// Records that an expiration is due. Returns whether a signal must be sent.
    fn fall_due(&mut self) -> bool {
        self.deadline = None;
        // If a stale signal is still queued, it now reports this expiration, and no other signal is sent.
        core::mem::replace(&mut self.place, Place::Pending) != Place::Stale
    }
}

impl PosixTimer {
    /// Sets the timer to `schedule`. `now` is the present time of the timer's clock, and the times of `schedule` are
    /// times of that clock. Returns the previous time until the next expiration, and the previous interval, both in
    /// nanoseconds.
    ///
    /// # Errors
    /// `ENOMEM`; the timer is then unchanged.
    pub fn set(
        self: &Arc<Self>,
        timers: &dyn Timers,
        schedule: Schedule,
        now: u64,
    ) -> Result<(u64, u64), Errno> {
        timers.make_room_for_timer()?;
        let mut state = self.state.lock();
        let old = self.left(&state.schedule, now);
        state.schedule = schedule;
        state.overrun = 0;
        state.place = match state.place {
            Place::Nowhere | Place::Ignored => Place::Nowhere,
            Place::Pending | Place::Stale => Place::Stale,
        };
        let armed = self.arm(timers, &mut state, now);
        drop(state);
        self.plan_look(armed);
        Ok(old)
    }

    /// Returns the time until the next expiration, and the interval, both in nanoseconds. Both are 0 if the measured
    /// process or thread has ended.
    #[must_use]
    pub fn get(self: &Arc<Self>, timers: &dyn Timers) -> (u64, u64) {
        // Retry setting the deadline if there was no memory for it.
        let _ = timers.make_room_for_timer();
        let Some(now) = self.clock.now(timers) else {
            return (0, 0);
        };
        let mut state = self.state.lock();
        let armed = if state.needs_deadline() {
            self.arm(timers, &mut state, now)
        } else {
            Armed::Complete
        };
        let left = self.left(&state.schedule, now);
        drop(state);
        self.plan_look(armed);
        left
    }

    /// Sets the deadline of a timer that has none, if the timer measures the CPU time of a running thread. A timer has
    /// no deadline while its thread does not run. Returns whether the timer measures CPU time.
    fn resume(self: &Arc<Self>, timers: &dyn Timers) -> bool {
        let TimerClock::Cpu(clock) = &self.clock else {
            return false;
        };
        if !clock.is_of_running_thread() {
            return true;
        }
        let Some(now) = clock.time() else {
            return true;
        };
        // If there is no memory, the next switch to a thread tries again.
        let _ = timers.make_room_for_timer();
        let mut state = self.state.lock();
        if state.needs_deadline() {
            // The timer measures a thread, so its deadline is a time of the host's clock and `plan_look` has nothing to
            // do.
            let _complete = self.arm(timers, &mut state, now);
        }
        true
    }

    /// Makes the process check its CPU time early enough for the timer, if the timer now expires first.
    ///
    /// # Locks
    /// The caller does not hold the lock of the state.
    fn plan_look(&self, armed: Armed) {
        let process = match armed {
            Armed::Complete => None,
            Armed::First => self.process.upgrade(),
        };
        if let Some(process) = process {
            // If there is no memory, the next switch to a thread tries again.
            let _ = process.plan_cpu_look();
        }
    }

    /// Returns the overrun of the timer's last delivered signal.
    #[must_use]
    pub fn overrun(&self) -> i32 {
        self.state.lock().overrun
    }

    fn left(&self, schedule: &Schedule, now: u64) -> (u64, u64) {
        let mut later = *schedule;
        // Advance a copy to `now`: a one-shot timer whose expiration is due has no time left, although `schedule` keeps
        // the expiration until the signal is delivered.
        later.pass(now);
        (later.remaining(now), schedule.interval)
    }

    /// Replaces the deadline with that of the next expiration. A timer that sends no signals gets no deadline. `now` is
    /// the present time of the timer's clock. The caller has made room for a timer of the host's clock.
    #[must_use = "the process may have to plan a look"]
    fn arm(self: &Arc<Self>, timers: &dyn Timers, state: &mut State, now: u64) -> Armed {
        self.disarm(timers, state);
        let sends = self.notice.signal().is_some();
        let Some(next) = state.schedule.next.filter(|_| sends) else {
            return Armed::Complete;
        };
        if let Some(counted) = self.clock.of_process() {
            let process = self.process.upgrade();
            let added =
                process.and_then(|process| process.cpu_timers.add(counted, next, self.id).ok());
            state.deadline = added.map(|_| Deadline::Cpu(next));
            return match added {
                Some(true) => Armed::First,
                Some(false) | None => Armed::Complete,
            };
        }
        let at = self.deadline(timers, next, now);
        let this: Weak<Self> = Arc::downgrade(self);
        state.deadline = timers.add_timer(at, this).ok().map(Deadline::Host);
        Armed::Complete
    }

    fn disarm(&self, timers: &dyn Timers, state: &mut State) {
        match state.deadline.take() {
            None => {}
            Some(Deadline::Host(key)) => timers.remove_timer(key),
            Some(Deadline::Cpu(at)) => {
                let counted = self.clock.of_process();
                if let (Some(counted), Some(process)) = (counted, self.process.upgrade()) {
                    process.cpu_timers.remove(counted, at, self.id);
                }
            }
        }
    }

    /// Returns the earliest time of the host's clock at which the timer's clock can reach `next`. `now` is the present
    /// time of the timer's clock. A thread runs on one CPU at a time, so its CPU time is never ahead of the host's
    /// clock.
    fn deadline(&self, timers: &dyn Timers, next: u64, now: u64) -> u64 {
        match &self.clock {
            TimerClock::Host(_) => next,
            TimerClock::Cpu(_) => {
                let delay = next.saturating_sub(now).max(TICK);
                timers.now().saturating_add(delay)
            }
        }
    }

    /// Removes the deadline of a timer that is being deleted.
    fn cancel(&self, timers: &dyn Timers) {
        let mut state = self.state.lock();
        state.schedule.next = None;
        self.disarm(timers, &mut state);
    }

    /// Handles an expiration of a timer that measures the CPU time of the process: this CPU time has reached `at`.
    ///
    /// # Locks
    /// The caller holds no lock.
    pub(super) fn reach(self: &Arc<Self>, process: &Arc<Process>, at: u64) {
        let sends = {
            let mut state = self.state.lock();
            // The timer may have been set again in the meantime.
            state.deadline == Some(Deadline::Cpu(at)) && state.fall_due()
        };
        if sends {
            self.send(process);
        }
    }

    /// Handles the delivery of the signal. Returns the overrun; `None` if the signal is stale.
    fn taken(self: &Arc<Self>, timers: &dyn Timers) -> Option<i32> {
        // If there is no memory for the next deadline, `timer_gettime` sets it.
        let _ = timers.make_room_for_timer();
        let now = self.clock.now(timers).unwrap_or_default();
        let mut state = self.state.lock();
        match state.place {
            Place::Nowhere | Place::Ignored => return None,
            Place::Stale => {
                state.place = Place::Nowhere;
                return None;
            }
            Place::Pending => state.place = Place::Nowhere,
        }
        let passed = state.schedule.pass(now);
        state.overrun = overrun(passed);
        let overrun = state.overrun;
        let armed = self.arm(timers, &mut state, now);
        drop(state);
        self.plan_look(armed);
        Some(overrun)
    }

    /// Sends the signal. The state is already [`Pending`](Place::Pending).
    fn send(self: &Arc<Self>, process: &Arc<Process>) {
        let (signal, thread) = match &self.notice {
            Notice::None => return,
            Notice::Process(signal) => (*signal, None),
            Notice::Thread(signal, thread) => match thread.upgrade() {
                None => return,
                Some(thread) => (*signal, Some(thread)),
            },
        };
        let info = SignalInfo {
            signal,
            code: code::SI_TIMER,
            errno: 0,
            detail: Detail::Timer {
                timer: self.id,
                overrun: 0,
                value: self.value,
            },
        };
        if send_timer_signal(process, thread.as_ref(), info) {
            return;
        }
        {
            let mut state = self.state.lock();
            if state.place != Place::Pending {
                return;
            }
            state.place = Place::Ignored;
        }
        // If the action changed before the state became [`Ignored`](Place::Ignored), `change_timer_action` has not sent
        // the signal. Try again later.
        if !process.signals.lock().ignored(signal) {
            self.send_later(process.tasks.scheduler);
        }
    }

    /// Sets a deadline for another attempt to send the signal, which could not be queued.
    fn send_later(self: &Arc<Self>, timers: &dyn Timers) {
        // If there is no memory for the deadline either, `timer_gettime` sets it.
        let _ = timers.make_room_for_timer();
        let mut state = self.state.lock();
        if state.place == Place::Ignored {
            state.place = Place::Nowhere;
            let this: Weak<Self> = Arc::downgrade(self);
            let key = timers.add_timer(timers.now() + LATER, this);
            state.deadline = key.ok().map(Deadline::Host);
        }
    }
}

/// Returns the overrun of a signal that stands for `passed` expirations (`timer_overrun_to_int`).
fn overrun(passed: u64) -> i32 {
    i32::try_from(passed.saturating_sub(1)).unwrap_or(i32::MAX)
}

impl Expiry for PosixTimer {
    fn expire(self: Arc<Self>, key: TimerKey) {
        let Some(process) = self.process.upgrade() else {
            return;
        };
        let timers: &dyn Timers = process.tasks.scheduler;
        // The timer does not expire if the process or thread that the clock measures has ended.
        let Some(now) = self.clock.now(timers) else {
            return;
        };
        let sends = {
            let mut state = self.state.lock();
            // Another CPU may have set the timer again after this deadline passed.
            if state.deadline != Some(Deadline::Host(key)) {
                return;
            }
            if state.schedule.next.is_some_and(|next| next > now) {
                state.deadline = None;
                drop(state);
                self.resume(timers);
                return;
            }
            state.fall_due()
        };
        if sends {
            self.send(&process);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::overrun;

    #[test]
    fn a_signal_stands_for_one_expiration() {
        for (passed, expected) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (1 << 31, i32::MAX),
            (u64::MAX, i32::MAX),
        ] {
            assert_eq!(overrun(passed), expected);
        }
    }
}
