//! The contents of inodes by type, without the operations of open files.

pub mod console;
pub mod device;
pub mod pipe;
pub mod regular;
pub mod ring;
pub mod room;
