//! Gives the files of `/proc` and `/sys` access to the parts of the kernel whose state they report.

use crate::kernel::Kernel;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use memwright_linux_abi::{
    Memory,
    host::{Clock, Contexts, Cpus, Registers},
};
use memwright_linux_memory::{
    cgroup::Cgroups, huge_scan::HugeScan, ipc::Segments, merge_scan::MergeScan, numa::Balancing,
    oom::OomKiller, reclaim::Reclaim, swap::Swaps, userfault::Userfaults,
};
use memwright_linux_procfs::procfs::{MachineParts, MemoryParts, ProcessParts};
use memwright_linux_sched::scheduler::Scheduler;
use memwright_linux_tasks::{
    call_counts::CallCounts,
    process::{Tasks, Thread},
    uname::Names,
};
use memwright_linux_vfs::fs::{inet::Network, socket::Registry, vfs::Vfs};
use memwright_table::CpuSet;

impl MachineParts for Kernel {
    fn clock(&self) -> &dyn Clock {
        self.host
    }

    fn cpus(&self) -> &dyn Cpus {
        self.host
    }

    fn all_cpus(&self) -> CpuSet {
        self.scheduler.all_cpus()
    }

    fn registers(&self) -> &dyn Registers {
        self.host
    }

    fn contexts(&self) -> &dyn Contexts {
        self.host
    }

    fn seed(&self) -> u64 {
        self.manifest.seed
    }

    fn names(&self) -> &Names {
        &self.names
    }
}

impl ProcessParts for Kernel {
    fn tasks(&self) -> &Tasks {
        self.tasks
    }

    fn scheduler(&self) -> &Scheduler<Thread> {
        self.scheduler
    }

    fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    fn processes_made(&self) -> u64 {
        self.tasks.made.load(Ordering::Relaxed)
    }

    fn calls(&self) -> &CallCounts {
        &self.calls
    }

    fn vfs(&self) -> &Vfs {
        self.vfs
    }

    fn network(&self) -> &Network {
        &self.network
    }

    fn sockets(&self) -> &Registry {
        &self.sockets
    }
}

impl MemoryParts for Kernel {
    fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn swaps(&self) -> &Swaps {
        &self.swaps
    }

    fn reclaim(&self) -> &Reclaim {
        &self.reclaim
    }

    fn oom(&self) -> &OomKiller {
        &self.oom
    }

    fn huge_scan(&self) -> &HugeScan {
        &self.huge_scan
    }

    fn merge_scan(&self) -> &MergeScan {
        &self.merge_scan
    }

    fn balancing(&self) -> &Balancing {
        &self.balancing
    }

    fn segments(&self) -> &Segments {
        &self.segments
    }

    fn userfaults(&self) -> &Userfaults {
        self.userfaults
    }

    fn most_areas(&self) -> &AtomicUsize {
        &self.spaces.most_areas
    }
}
