//! The operations of open files of the kinds that need no folder of their own.

pub(in crate::fs) mod console;
pub(in crate::fs) mod device;
pub mod directory;
pub mod eventfd;
pub mod secret;
pub mod timerfd;
