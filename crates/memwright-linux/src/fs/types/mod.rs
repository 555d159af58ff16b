//! Plain values and containers, which refer to no inode.

pub mod attributes;
pub mod descriptors;
pub mod dirents;
pub mod entries;
pub mod file_system;
pub mod kind;
pub mod name;
pub mod permission;
pub mod seek;
pub mod tmpfs;
pub mod transfer;
pub mod turn;
