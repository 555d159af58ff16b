//! The scheduler's part of a failure report: all CPUs.

use super::{Schedulable, Scheduler};
use core::{
    fmt::{self, Write},
    sync::atomic::Ordering,
};

impl<T: Schedulable> Scheduler<T> {
    /// Writes which thread runs on each CPU, and the deadlines of each CPU. Omits data whose lock is held. Waits for no
    /// lock and allocates nothing.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn report(&self, out: &mut dyn Write) -> fmt::Result {
        for (number, cpu) in self.cpus.iter().enumerate() {
            write!(out, "CPU {number}: ")?;
            match cpu.current.try_lock() {
                None => out.write_str("switching")?,
                Some(current) => match &*current {
                    None => out.write_str("idle")?,
                    Some(thread) => thread.identify(out)?,
                },
            }
            write!(out, ", {} ready", cpu.waiting.load(Ordering::Relaxed))?;
            // Times in the distant past indicate a timer that does not fire.
            for (what, time) in [
                ("slice", &cpu.slice_end),
                ("tick", &cpu.tick),
                ("timer", &cpu.armed),
            ] {
                match time.load(Ordering::Relaxed) {
                    u64::MAX => write!(out, ", no {what}")?,
                    time => write!(out, ", {what} at {time}")?,
                }
            }
            writeln!(out)?;
        }
        writeln!(out, "now {}", self.host.now())
    }
}
