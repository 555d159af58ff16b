//! Files about the system and about cgroups.

pub mod balance;
pub mod cgroup;
pub mod counts;
pub mod cpu;
pub mod file_limits;
pub mod frames;
pub mod general;
pub mod huge;
pub mod hugetlb;
pub mod lock_stat;
pub mod merge;
pub mod net;
pub mod nodes;
pub mod processors;
pub mod sizes;
pub mod split;
pub mod unix_sockets;
pub mod vm;
