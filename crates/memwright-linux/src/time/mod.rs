//! Interval timers and background work.

mod daemon;
mod next_look;
mod schedule;

pub(crate) use daemon::Daemon;
pub(crate) use next_look::NextLook;
pub use schedule::Schedule;
