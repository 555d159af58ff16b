//! What a guest starts with: files, arguments, environment and options.

pub mod carry;
pub mod cpio;
pub mod digest;
pub mod elf;
pub mod given;
pub mod initrd;
pub mod library;
pub mod prepare;
pub mod program;
pub mod region_names;
pub mod room;
pub mod root;
pub mod tree;
