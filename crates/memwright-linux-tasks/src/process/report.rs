//! The threads' part of a failure report.

use super::{Tasks, Thread};
use core::fmt::{self, Write};
use memwright_linux_sched::{scheduler::RunState, wait::Interest};

impl Tasks {
    /// Writes what each thread does or waits for at the time `now`. Omits data whose lock is held. Waits for no lock
    /// and allocates nothing.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn report(&self, now: u64, out: &mut dyn Write) -> fmt::Result {
        let Some(tasks) = self.try_lock() else {
            return writeln!(out, "threads: not readable, their table is locked");
        };
        for thread in tasks.threads.values() {
            describe(thread, now, out)?;
        }
        Ok(())
    }
}

fn describe(thread: &Thread, now: u64, out: &mut dyn Write) -> fmt::Result {
    let (id, process, cpu) = (thread.id(), thread.process.id, thread.cpu().index());
    write!(out, "thread {id} of {process}")?;
    if let Some(name) = thread.try_name() {
        let length = name.iter().position(|byte| *byte == 0);
        let text = core::str::from_utf8(&name[..length.unwrap_or(name.len())]);
        write!(out, " ({})", text.unwrap_or("?"))?;
    }
    match thread.run_state() {
        RunState::Running => write!(out, ": runs on CPU {cpu}")?,
        RunState::Waiting => write!(out, ": is about to wait on CPU {cpu}")?,
        RunState::Ready => write!(out, ": ready for CPU {cpu}")?,
        RunState::Ended => out.write_str(": ended")?,
        RunState::Blocked => match thread.try_sleep() {
            Some(sleep) => {
                let what = match (thread.futex.is_waiting(), sleep.interest) {
                    (true, _) => "a futex",
                    (false, Interest::Continuation) => "SIGCONT",
                    (false, Interest::Tracer) => "its tracer",
                    (false, Interest::Signals | Interest::Fatal) => sleep.what,
                };
                let passed = now.saturating_sub(sleep.since);
                write!(out, ": waits for {what} since {passed} ns")?;
                if let Some(deadline) = sleep.deadline {
                    let left = deadline.saturating_sub(now);
                    write!(out, ", {left} ns more")?;
                }
            }
            None => out.write_str(": waits")?,
        },
    }
    let work = thread.work().bits();
    if work != 0 {
        write!(out, ", work {work:#x}")?;
    }
    if let Some(mut signals) = thread.process.signals.try_lock() {
        let shared = signals.pending.set().0;
        let own = signals
            .find(thread)
            .map_or(0, |state| state.pending.set().0);
        if shared | own != 0 {
            write!(out, ", pending signals {own:#x}, process {shared:#x}")?;
        }
    }
    writeln!(out)
}
