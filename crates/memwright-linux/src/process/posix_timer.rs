//! POSIX timers of a process (Linux 7.2 `kernel/time/posix-timers.c`).
//!
//! A timer has at most one signal pending. While that signal is pending, or is ignored, the timer has no deadline: the
//! expirations in the meantime are counted when a thread takes the signal. So a timer costs nothing between the
//! signals that a program takes, whatever its interval is.

use super::{
    CpuClock, Process, Thread,
    cpu_clock::{TICK, wait_for},
};
use crate::{
    abi::MILLISECOND,
    errno::Errno,
    identity::Resource,
    ordered::Ordered,
    process::send_timer_signal,
    scheduler::{Expiry, TimerKey, Timers},
    signal::{Detail, Signal, SignalInfo, code},
    sync::{Lock, PausePoints, Rank, lock_with_room},
    time::Schedule,
};
use alloc::sync::{Arc, Weak};

/// Nanoseconds after which a signal is sent again for which there was no room.
const LATER: u64 = 100 * MILLISECOND;

/// Timers that are looked at between two scheduling points.
const TOGETHER: u32 = 64;

/// What an expiration does.
pub enum Notice {
    /// Nothing (`SIGEV_NONE`).
    None,
    /// It sends a signal to the process.
    Process(Signal),
    /// It sends a signal to a thread.
    Thread(Signal, Weak<Thread>),
}

impl Notice {
    fn signal(&self) -> Option<Signal> {
        match self {
            Self::None => None,
            Self::Process(signal) | Self::Thread(signal, _) => Some(*signal),
        }
    }
}

/// The clock of a timer.
#[derive(Debug)]
pub enum TimerClock {
    /// The host's clock. The program's times are ahead of it by this number of nanoseconds.
    Host(u64),
    /// A clock that measures CPU time.
    Cpu(CpuClock),
}

impl TimerClock {
    /// Returns the number of nanoseconds by which the program's times are ahead of the clock.
    #[must_use]
    pub fn ahead(&self) -> u64 {
        match self {
            Self::Host(ahead) => *ahead,
            Self::Cpu(_) => 0,
        }
    }

    fn measures(&self) -> bool {
        match self {
            Self::Host(_) => false,
            Self::Cpu(_) => true,
        }
    }

    /// Returns the time of the clock in nanoseconds; `None` if the process or thread that it measures has ended.
    ///
    /// # Locks
    /// Takes the lock of the signals of the process whose CPU time it measures.
    #[must_use]
    pub fn now(&self, timers: &dyn Timers) -> Option<u64> {
        match self {
            Self::Host(_) => Some(timers.now()),
            Self::Cpu(clock) => clock.time(),
        }
    }
}

/// Where the signal of a timer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// No signal is pending.
    #[default]
    Nowhere,
    /// It is pending, and a thread that takes it handles an expiration.
    Pending,
    /// It is pending, but the timer was set again since: a thread that takes it discards it.
    Stale,
    /// It was sent while the process ignored it, and is sent again when the process no longer does.
    Ignored,
}

/// The changing part of a timer.
#[derive(Default)]
struct State {
    schedule: Schedule,
    deadline: Option<TimerKey>,
    place: Place,
    /// Expirations before the last signal that a thread took, in addition to the one that it stood for.
    overrun: i32,
}

/// A POSIX timer.
pub struct PosixTimer {
    id: i32,
    process: Weak<Process>,
    notice: Notice,
    /// The value that the signal carries.
    value: u64,
    /// The clock of its times.
    pub clock: TimerClock,
    state: Lock<State>,
}

/// The POSIX timers of a process.
pub struct PosixTimers(Lock<Table>);

struct Table {
    timers: Ordered<i32, Arc<PosixTimer>>,
    count: u64,
    /// The number of timers that measure CPU time.
    measuring: u64,
    next: i32,
}

impl Default for PosixTimers {
    fn default() -> Self {
        let table = Table {
            timers: Ordered::new(),
            count: 0,
            measuring: 0,
            next: 0,
        };
        Self(Lock::new(Rank::Process, table))
    }
}

impl PosixTimers {
    fn from(&self, first: i32) -> Option<Arc<PosixTimer>> {
        let table = self.0.lock();
        let found = table.timers.first_from(&first);
        found.map(|(_, timer)| timer.clone())
    }

    /// Calls `act` for each timer, in the order of their ids.
    fn each(&self, mut act: impl FnMut(&Arc<PosixTimer>)) {
        let mut points = PausePoints::every(TOGETHER);
        let mut next = self.from(0);
        while let Some(timer) = next {
            act(&timer);
            points.round();
            next = timer.id.checked_add(1).and_then(|id| self.from(id));
        }
    }
}

impl Process {
    /// Creates a timer that is not set. `value` is the value of its signals; `None` for the timer's id. Returns the id.
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
        let measures = timer.clock.measures();
        drop(table.timers.insert(id, Arc::new(timer))?);
        table.count += 1;
        table.measuring += u64::from(measures);
        drop(table);
        if measures {
            self.measure_cpu_time();
        }
        Ok(id)
    }

    /// Returns the timer with this id.
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub fn posix_timer(&self, id: i32) -> Result<Arc<PosixTimer>, Errno> {
        let table = self.posix_timers.0.lock();
        table.timers.get(&id).cloned().ok_or(Errno::EINVAL)
    }

    /// Sets the deadlines again of the timers whose clocks advance. Returns whether there are timers that measure CPU
    /// time.
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

    /// Deletes a timer. A thread that takes its pending signal discards it.
    ///
    /// # Errors
    /// `EINVAL` if there is no timer with this id.
    pub fn delete_timer(&self, id: i32) -> Result<(), Errno> {
        let timer = {
            let mut table = self.posix_timers.0.lock();
            let timer = table.timers.remove(&id).ok_or(Errno::EINVAL)?;
            table.count -= 1;
            table.measuring -= u64::from(timer.clock.measures());
            timer
        };
        timer.cancel(self.tasks.scheduler);
        Ok(())
    }

    /// Deletes all timers, for `execve` and the end of the process.
    pub(crate) fn delete_timers(&self) {
        let mut points = PausePoints::every(TOGETHER);
        while let Some(timer) = self.posix_timers.from(0) {
            // Another thread of the process may delete it first.
            let _deleted = self.delete_timer(timer.id);
            points.round();
        }
    }

    /// Completes a signal that a thread took: adds the overrun of the timer that sent it, and sets the timer's next
    /// deadline. Returns `None` if the timer was deleted or set again since, and the signal is to be discarded; returns
    /// any other signal unchanged.
    ///
    /// # Locks
    /// The caller holds no lock.
    pub(crate) fn complete_signal(&self, info: SignalInfo) -> Option<SignalInfo> {
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

    /// Adjusts the timers that send `signal` after a change of its action: those whose pending signals were discarded
    /// because the process ignores it now, or those whose signals were ignored before.
    ///
    /// # Locks
    /// The caller holds no lock.
    pub(crate) fn change_timer_action(self: &Arc<Self>, signal: Signal, ignores: bool) {
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

impl PosixTimer {
    /// Sets the timer to `schedule`, whose times are those of its clock, which shows `now`. Returns the previous time
    /// until the next expiration, and the previous interval, both in nanoseconds.
    ///
    /// # Errors
    /// `ENOMEM`. The timer is unchanged then.
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
        self.arm(timers, &mut state, now);
        Ok(old)
    }

    /// Returns the time until the next expiration, and the interval, both in nanoseconds.
    #[must_use]
    pub fn get(self: &Arc<Self>, timers: &dyn Timers) -> (u64, u64) {
        // A deadline for which there was no memory is set again here.
        let _ = timers.make_room_for_timer();
        let Some(now) = self.clock.now(timers) else {
            return (0, 0);
        };
        let mut state = self.state.lock();
        if state.deadline.is_none() && matches!(state.place, Place::Nowhere | Place::Stale) {
            self.arm(timers, &mut state, now);
        }
        self.left(&state.schedule, now)
    }

    /// Sets the deadline again of a timer whose clock advances and that has none. The deadline is missing while nothing
    /// runs that the clock measures. Returns whether the clock measures CPU time.
    fn resume(self: &Arc<Self>, timers: &dyn Timers) -> bool {
        let TimerClock::Cpu(clock) = &self.clock else {
            return false;
        };
        let Some(now) = clock.time().filter(|_| clock.advances()) else {
            return true;
        };
        // Without memory, the next switch to a thread tries again.
        let _ = timers.make_room_for_timer();
        let mut state = self.state.lock();
        let has_none = state.deadline.is_none();
        if has_none && matches!(state.place, Place::Nowhere | Place::Stale) {
            self.arm(timers, &mut state, now);
        }
        true
    }

    /// Returns the overrun of the last signal that a thread took.
    #[must_use]
    pub fn overrun(&self) -> i32 {
        self.state.lock().overrun
    }

    fn left(&self, schedule: &Schedule, now: u64) -> (u64, u64) {
        let mut later = *schedule;
        // A single expiration without a signal is over when it is due. One with a signal is over when it is sent.
        later.pass(now);
        (later.remaining(now), schedule.interval)
    }

    /// Replaces the deadline by that of the next expiration, if the timer sends signals. The timer's clock shows `now`.
    /// The caller has made room for the deadline.
    fn arm(self: &Arc<Self>, timers: &dyn Timers, state: &mut State, now: u64) {
        if let Some(deadline) = state.deadline.take() {
            timers.remove_timer(deadline);
        }
        let sends = self.notice.signal().is_some();
        if let Some(next) = state.schedule.next.filter(|_| sends) {
            let at = self.deadline(timers, next, now);
            let this: Weak<Self> = Arc::downgrade(self);
            state.deadline = timers.add_timer(at, this).ok();
        }
    }

    /// Returns the time of the host's clock at which the timer's clock, which shows `now`, can show `next` at the
    /// earliest.
    fn deadline(&self, timers: &dyn Timers, next: u64, now: u64) -> u64 {
        let delay = match &self.clock {
            TimerClock::Host(_) => return next,
            TimerClock::Cpu(clock) if clock.is_threads() => next.saturating_sub(now).max(TICK),
            TimerClock::Cpu(_) => {
                let cpus = self
                    .process
                    .upgrade()
                    .map_or(1, |process| process.tasks.scheduler.all_cpus().len().into());
                wait_for(next.saturating_sub(now), cpus)
            }
        };
        timers.now().saturating_add(delay)
    }

    /// Removes the deadline of a timer that is being deleted.
    fn cancel(&self, timers: &dyn Timers) {
        let mut state = self.state.lock();
        state.schedule.next = None;
        if let Some(deadline) = state.deadline.take() {
            timers.remove_timer(deadline);
        }
    }

    /// Handles that a thread took the signal. Returns the overrun; `None` if the signal is stale.
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
        self.arm(timers, &mut state, now);
        Some(overrun)
    }

    /// Sends the signal, which the state already says is pending.
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
        // The action may have changed since, before the timer was marked.
        if !process.signals.lock().ignored(signal) {
            self.send_later(process.tasks.scheduler);
        }
    }

    /// Sets a deadline for another attempt to send the signal, for which there was no room.
    fn send_later(self: &Arc<Self>, timers: &dyn Timers) {
        // If there is no memory for the deadline either, `timer_gettime` sets it.
        let _ = timers.make_room_for_timer();
        let mut state = self.state.lock();
        if state.place == Place::Ignored {
            state.place = Place::Nowhere;
            let this: Weak<Self> = Arc::downgrade(self);
            state.deadline = timers.add_timer(timers.now() + LATER, this).ok();
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
        // Nothing expires once what the clock measures has ended.
        let Some(now) = self.clock.now(timers) else {
            return;
        };
        {
            let mut state = self.state.lock();
            // Another CPU may have set the timer again after this deadline passed.
            if state.deadline != Some(key) {
                return;
            }
            state.deadline = None;
            if state.schedule.next.is_some_and(|next| next > now) {
                drop(state);
                self.resume(timers);
                return;
            }
            let before = core::mem::replace(&mut state.place, Place::Pending);
            if before == Place::Stale {
                // The signal in the queue stands for this expiration from now on.
                return;
            }
        }
        self.send(&process);
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
