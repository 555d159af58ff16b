//! Advisory locks: `fcntl` locks of ranges and `flock` locks of complete files.

mod file_locks;
pub mod queue;
mod ranges;
mod record;
pub mod record_locks;
pub mod waits;

pub use file_locks::{FileLocks, Held, LockFamily};
pub use record::{Holder, Record, Strength};
