//! Interval timers and background work.

mod daemon;
mod next_look;
mod schedule;

pub use daemon::Daemon;
pub use next_look::NextLook;
pub use schedule::Schedule;
