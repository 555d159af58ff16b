//! The foundations of the Linux personality: locks, collections that return an error when an allocation fails, lists of
//! weak references, and flags.
//!
//! # Locks
//! Locks are acquired in the order of [`sync::Rank`].
#![no_std]
#![forbid(unsafe_code)]
// `clippy.toml` disallows calls that abort if memory is exhausted. Tests may use them.
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

/// Re-exported for the code that [`flags`] generates.
pub use bitflags;
