//! Types that do not refer to inodes: plain values and containers.

pub mod abilities;
pub mod attributes;
pub mod control;
pub mod descriptors;
pub mod dirents;
pub mod entries;
pub mod file_name;
pub mod file_system;
pub mod hugetlbfs;
pub mod interface;
pub mod kind;
pub mod lower;
pub mod mounted;
pub mod name;
pub mod namespace;
pub mod open_kind;
pub mod permission;
pub mod readiness;
pub mod seals;
pub mod seek;
pub mod tmpfs;
pub mod transfer;
pub mod turn;
