//! Constants of Linux's user-space interface that linux-raw-sys does not define.

/// `UFFDIO_MOVE`, `UFFDIO_POISON` (`include/uapi/linux/userfaultfd.h`).
pub const UFFDIO_MOVE: u64 = 0xc028_aa05;
pub const UFFDIO_POISON: u64 = 0xc020_aa08;
/// `PAGEMAP_SCAN` (`include/uapi/linux/fs.h`).
pub const PAGEMAP_SCAN: u64 = 0xc060_6610;
/// `SHM_HUGETLB`, `SHM_RDONLY`, `SHM_RND`, `SHM_REMAP`, `SHM_EXEC` (`include/uapi/linux/shm.h`).
pub const SHM_HUGETLB: u64 = 0o4000;
pub const SHM_RDONLY: u64 = 0o10000;
pub const SHM_RND: u64 = 0o20000;
pub const SHM_REMAP: u64 = 0o40000;
pub const SHM_EXEC: u64 = 0o100_000;
/// `IPC_CREAT`, `IPC_EXCL` (`include/uapi/linux/ipc.h`).
pub const IPC_CREAT: u64 = 0o1000;
pub const IPC_EXCL: u64 = 0o2000;
/// `MPOL_F_STATIC_NODES`, `MPOL_F_RELATIVE_NODES`, `MPOL_F_NUMA_BALANCING` (`include/uapi/linux/mempolicy.h`).
pub const MPOL_F_STATIC_NODES: u64 = 1 << 15;
pub const MPOL_F_RELATIVE_NODES: u64 = 1 << 14;
pub const MPOL_F_NUMA_BALANCING: u64 = 1 << 13;
