//! The virtual file system: the directory tree and its mounts, open files and descriptors, pipes, sockets, epoll
//! instances and file locks. The crate also contains the credentials, capabilities and limits of processes, which
//! permission checks use.
#![no_std]
#![forbid(unsafe_code)]
// `clippy.toml` disallows calls that abort if memory is exhausted. Tests may use them.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;

pub mod changes;
pub mod cpio;
pub mod direct_reclaim;
pub mod fs;
pub mod identity;
pub mod manifest;
pub mod random;
pub mod user;
