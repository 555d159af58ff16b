//! Files about the system and about cgroups.

pub(crate) mod balance;
pub(crate) mod cgroup;
pub(crate) mod counts;
pub(crate) mod cpu;
pub(crate) mod file_limits;
pub(crate) mod frames;
pub(crate) mod general;
pub(crate) mod huge;
pub(crate) mod hugetlb;
pub(crate) mod lock_stat;
pub(crate) mod merge;
pub(crate) mod net;
pub(crate) mod nodes;
pub(crate) mod processors;
pub(crate) mod sizes;
pub(crate) mod split;
pub(crate) mod unix_sockets;
pub(crate) mod vm;
