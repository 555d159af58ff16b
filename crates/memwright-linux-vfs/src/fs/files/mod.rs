//! The file operations of consoles, devices, directories, eventfds, timerfds and files of secret memory.

pub(in crate::fs) mod console;
pub(in crate::fs) mod device;
pub mod directory;
pub mod eventfd;
pub mod secret;
pub mod timerfd;
