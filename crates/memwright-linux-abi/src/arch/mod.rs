//! Architecture-dependent code: registers and signal frames.

pub mod x86_64;
