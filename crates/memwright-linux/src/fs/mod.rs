//! Files: the directory tree, inodes, open files and descriptors.
//!
//! Path resolution ([`walk`]) follows directory entries ([`dentry`]). Each entry refers to an inode ([`inode`]) of a
//! file system ([`file_system`]). Opening an inode ([`open`]) creates an open file ([`open_file`]) with the operations
//! of its type. A descriptor in a [`FileTable`] refers to an open file.
//!
//! # Locks
//! The ranks, in the order in which a thread takes the locks: `FileTable` (descriptors), `FileSystem` (held while the
//! tree changes), `File` (one directory, dentry, inode, pipe or console; never two at once), and then the locks of the
//! memory object. No such lock is held during a copy from or to user space, or during a wait. A sleeping mutex
//! ([`turn`]) serialises threads there. Objects that the removal of an entry frees are dropped after the lock is
//! released.

pub mod attributes;
pub mod caller;
pub mod console;
pub mod dentry;
pub mod descriptors;
pub mod device;
pub mod directory;
pub mod dirents;
pub mod disk_node;
pub mod entries;
pub mod epoll;
pub mod eventfd;
pub mod executable;
pub mod file_limits;
pub mod file_system;
pub mod generated;
pub mod initrd;
pub mod inode;
pub mod kind;
mod lock_queue;
pub mod lock_waits;
pub mod locks;
pub mod mounts;
pub mod name;
pub mod open;
pub mod open_file;
pub mod permission;
pub mod pipe;
mod place;
pub mod record_locks;
pub mod regular;
pub mod secret;
pub mod seek;
pub mod socket;
mod table;
pub mod timerfd;
pub mod tmpfs;
pub mod transfer;
pub mod tree;
pub mod turn;
pub mod used;
pub mod vfs;
pub mod walk;

pub use executable::Executable;
pub use mounts::Mounts;
pub use open_file::{File, Mapping, OpenFile, Readiness};
pub use place::FsContext;
pub use table::FileTable;
