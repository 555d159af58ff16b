//! Files: the tree of names, the nodes behind them, and what descriptors stand for.
//!
//! A path is walked ([`walk`]) from name to name ([`dentry`]); each leads to a node ([`inode`]) of
//! a file system ([`file_system`]). Opening a node ([`open`]) gives an open file ([`open_file`])
//! with operations of its kind, which a descriptor of a [`FileTable`] stands for.
//!
//! # Locks
//! `FileTable` (descriptors), then `FileSystem` (held while names change), then `File` (one
//! directory, place, node, pipe or console; never two at once), then the object's pages. None is
//! held over a user copy or a wait: there a [`turn`] keeps others out. What a removed entry frees is
//! dropped behind the lock it was removed under.

pub mod attributes;
mod caller;
pub mod console;
pub mod dentry;
pub mod descriptors;
pub mod device;
pub mod directory;
pub mod dirents;
pub mod entries;
pub mod epoll;
pub mod eventfd;
pub mod executable;
pub mod file_limits;
pub mod file_system;
pub mod initrd;
pub mod inode;
pub mod io_uring;
pub mod kind;
mod lock_queue;
pub mod lock_waits;
pub mod locks;
pub mod mounts;
pub mod name;
pub mod open;
pub mod open_file;
pub mod perf_event;
pub mod permission;
pub mod pidfd;
pub mod pipe;
mod place;
pub mod procfs;
pub mod record_locks;
pub mod regular;
pub mod secret;
pub mod seek;
pub mod signalfd;
pub mod socket;
mod table;
pub mod timerfd;
pub mod tmpfs;
pub mod transfer;
pub mod tree;
pub mod turn;
pub mod used;
pub mod userfault;
pub mod walk;

pub use executable::Executable;
pub use mounts::Mounts;
pub use open_file::{File, Mapping, OpenFile, Readiness};
pub use place::FsContext;
pub use table::FileTable;
