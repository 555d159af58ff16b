//! Inodes, directory entries, open files, descriptor tables, and the interface of calling threads. These types refer to
//! each other.

pub mod caller;
pub mod dentry;
pub mod describe;
pub mod disk_node;
pub mod file_limits;
pub mod file_owner;
pub mod generated;
pub mod inode;
mod lock;
mod mapped_file;
pub mod mounts;
pub mod open_file;
mod place;
pub mod socket_entry;
mod table;
pub mod used;
pub mod vfs;
pub mod xattrs;

pub use place::FsContext;
pub use table::FileTable;
