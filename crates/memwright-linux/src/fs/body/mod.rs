//! The contents of inodes by type, without the operations of open files.

pub mod ring;
