//! The x86-64 processor as user programs see it.

pub mod regs;
