//! What depends on the processor: registers and signal frames.

pub mod x86_64;
