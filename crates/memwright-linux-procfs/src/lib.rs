//! `/proc` and `/sys`: files whose text is generated from kernel state.
#![no_std]
#![forbid(unsafe_code)]
// `clippy.toml` disallows calls that abort if memory is exhausted. Tests may use them.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;

pub mod procfs;
