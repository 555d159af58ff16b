//! The x86-64 processor as user programs see it.

pub mod debug;
pub mod exception;
pub mod regs;
pub mod signal_frame;
pub mod uapi;
pub mod xstate;
