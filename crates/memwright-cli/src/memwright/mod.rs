//! Runs on Memwright's kernel, which exchanges frames with this command through a shared window and sockets.

pub mod channel;
pub mod document;
pub mod drive;
pub mod fault_trace;
pub mod folder;
pub mod gdb;
pub mod guest;
pub mod input;
pub mod kernel;
pub mod run;
pub mod session;
pub mod symbolise;
pub mod trace;
pub mod watch;
pub mod window;
