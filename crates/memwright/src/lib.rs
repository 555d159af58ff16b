//! The memory manager.
#![no_std]
#![forbid(unsafe_code)]
