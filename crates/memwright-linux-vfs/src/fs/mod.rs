//! Files: the directory tree, inodes, open files and descriptors.
//!
//! Path resolution ([`walk`]) follows directory entries ([`dentry`]). Each entry refers to an inode ([`inode`]) of a
//! file system ([`file_system`]). Opening an inode ([`open`]) creates an open file ([`open_file`]) with the operations
//! of its type. A descriptor in a [`FileTable`] refers to an open file.
//!
//! # Locks
//! The ranks, in the order in which a thread takes the locks: `FileTable` (descriptors), `FileSystem` (held while the
//! tree changes), `File` (one directory, dentry, inode, pipe or console; never two at once), and then the locks of the
//! memory object that stores the contents of a file. No such lock is held during a copy from or to user space, or
//! during a wait. Where copies or waits must be serialised, threads hold a sleeping mutex ([`turn`]). Objects that are
//! freed when an entry is removed are dropped after the locks are released.

mod body;
pub mod epoll;
mod files;
pub mod inet;
pub mod locks;
pub mod lower;
pub mod mounts;
pub mod netlink;
mod node;
pub mod open;
pub mod pipe;
pub mod regular;
pub mod socket;
pub mod tree;
mod types;
pub mod walk;
mod watch;

pub use body::{console, device};
pub use files::{directory, eventfd, secret, timerfd};
pub use mounts::initrd;
pub use node::mounts::Mounts;
pub use node::open_file::{File, Mapping, OpenFile};
pub use node::{
    FileTable, FsContext, caller, dentry, disk_node, file_limits, file_owner, generated, inode,
    open_file, socket_entry, used, vfs, xattrs,
};
pub use open::{Executable, executable};
pub use types::lower as lower_tree;
pub use types::readiness::Readiness;
pub use types::{
    abilities, attributes, control, descriptors, dirents, entries, file_name, file_system,
    hugetlbfs, interface, kind, mounted, name, namespace, open_kind, permission, readiness, seals,
    seek, tmpfs, transfer, turn,
};
