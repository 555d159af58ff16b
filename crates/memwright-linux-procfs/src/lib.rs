//! `/proc` and `/sys`: files whose text is generated from kernel state.
#![no_std]
#![forbid(unsafe_code)]
// `clippy.toml` lists what may allocate; tests may allocate freely.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;

pub mod procfs;
