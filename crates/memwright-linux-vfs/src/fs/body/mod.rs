//! The contents of inodes, by file type. The operations of open files are in other modules.

pub mod console;
pub mod device;
pub mod pipe;
pub mod regular;
pub mod ring;
pub mod room;
