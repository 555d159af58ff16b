//! What every part of the Linux personality is built from: locks, collections that report a lack of memory, reference
//! counts that are released outside locks, and flags.
//!
//! # Locks
//! The order is that of [`sync::Rank`].
#![no_std]
#![forbid(unsafe_code)]
// `clippy.toml` lists what may allocate; tests may allocate freely.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;

pub mod batch;
#[cfg(any(test, feature = "draws"))]
pub mod draws;
mod flags;
pub mod ordered;
pub mod paged;
pub mod references;
pub mod short;
pub mod short_list;
pub mod sweep;
pub mod sync;

/// For [`flags`].
pub use bitflags;
