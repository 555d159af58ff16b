//! The sources of the text of `/proc` and `/sys` files: the parts of the kernel, and the thread that accesses a file.

use alloc::sync::Arc;
use core::sync::atomic::AtomicUsize;
use memwright_linux_abi::{
    Memory,
    host::{Clock, Contexts, Cpus, Registers},
};
use memwright_linux_memory::{
    cgroup::Cgroups, huge_scan::HugeScan, ipc::Segments, merge_scan::MergeScan, numa::Balancing,
    oom::OomKiller, reclaim::Reclaim, swap::Swaps, userfault::Userfaults,
};
use memwright_linux_sched::scheduler::Scheduler;
use memwright_linux_tasks::{
    call_counts::CallCounts,
    process::{Process, Tasks, Thread},
    uname::Names,
};
use memwright_linux_vfs::fs::{caller::Caller, inet::Network, socket::Registry, vfs::Vfs};
use memwright_table::CpuSet;

/// The parts of the machine that files report.
pub trait MachineParts: Sync {
    /// Returns the clock.
    fn clock(&self) -> &dyn Clock;

    /// Returns the CPUs, with their times and interrupt counts.
    fn cpus(&self) -> &dyn Cpus;

    /// Returns the set of all CPUs.
    fn all_cpus(&self) -> CpuSet;

    /// Returns the interface to the registers of the CPUs.
    fn registers(&self) -> &dyn Registers;

    /// Returns the kernel stacks.
    fn contexts(&self) -> &dyn Contexts;

    /// Returns the seed of the random numbers of the run.
    fn seed(&self) -> u64;

    /// Returns the host name and the NIS domain name.
    fn names(&self) -> &Names;
}

/// The processes and the resources that they use, as far as files report them.
pub trait ProcessParts: Sync {
    /// Returns the process table.
    fn tasks(&self) -> &Tasks;

    /// Returns the scheduler.
    fn scheduler(&self) -> &Scheduler<Thread>;

    /// Returns the cgroups.
    fn cgroups(&self) -> &Cgroups;

    /// Returns the number of processes created since boot.
    fn processes_made(&self) -> u64;

    /// Returns the counts of the system calls that the report lists.
    fn calls(&self) -> &CallCounts;

    /// Returns the virtual file system.
    fn vfs(&self) -> &Vfs;

    /// Returns the internet sockets.
    fn network(&self) -> &Network;

    /// Returns the Unix sockets.
    fn sockets(&self) -> &Registry;
}

/// The parts of memory management that files report.
pub trait MemoryParts: Sync {
    /// Returns physical memory.
    fn memory(&self) -> &Arc<Memory>;

    /// Returns the swap devices.
    fn swaps(&self) -> &Swaps;

    /// Returns the state of reclaim.
    fn reclaim(&self) -> &Reclaim;

    /// Returns the OOM killer.
    fn oom(&self) -> &OomKiller;

    /// Returns khugepaged.
    fn huge_scan(&self) -> &HugeScan;

    /// Returns ksmd.
    fn merge_scan(&self) -> &MergeScan;

    /// Returns the state of NUMA balancing.
    fn balancing(&self) -> &Balancing;

    /// Returns System V shared memory.
    fn segments(&self) -> &Segments;

    /// Returns the userfaultfd contexts.
    fn userfaults(&self) -> &Userfaults;

    /// Returns the setting for the maximum number of areas in an address space (`vm.max_map_count`).
    fn most_areas(&self) -> &AtomicUsize;
}

/// The parts of the kernel that files report or change. Only the tables of files use this trait, because a function
/// that writes a file receives only the parts that the file reports.
pub trait Parts: MachineParts + ProcessParts + MemoryParts {}

impl<T: MachineParts + ProcessParts + MemoryParts> Parts for T {}

/// The thread that accesses a file, and the parts of the kernel that the file reports or changes.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The parts of the kernel.
    pub parts: &'static dyn Parts,
    /// The thread that accesses the file.
    pub caller: &'a dyn Caller,
}

impl<'a> View<'a> {
    /// Creates the view for an access by `caller`.
    pub fn new(parts: &'static dyn Parts, caller: &'a dyn Caller) -> Self {
        Self { parts, caller }
    }

    /// Returns the calling thread.
    ///
    /// # Panics
    /// If the caller is not a living thread of the kernel.
    pub fn thread(&self) -> Arc<Thread> {
        let thread = self.parts.tasks().thread(self.caller.ids().thread);
        thread.expect("the caller is a living thread")
    }

    /// Returns the caller's process.
    ///
    /// # Panics
    /// If the caller is not a living thread of the kernel.
    pub fn process(&self) -> Arc<Process> {
        self.thread().process.clone()
    }
}

/// Returns the writer of a file about the system: `shows!(function, part, ...)` calls `function` with the named parts
/// and the text.
macro_rules! shows {
    ($function:path) => {
        |_, text| $function(text)
    };
    ($function:path, $($part:ident),+) => {
        |view, text| $function($(view.parts.$part(),)+ text)
    };
}
pub(in crate::procfs) use shows;

/// Returns the writer of a file about one CPU, node or process: `shows_of!(function, part, ...)` calls `function` with
/// the named parts, with the CPU, node or process, and with the text.
macro_rules! shows_of {
    ($function:path) => {
        |_, subject, text| $function(subject, text)
    };
    ($function:path, $($part:ident),+) => {
        |view, subject, text| $function($(view.parts.$part(),)+ subject, text)
    };
}
pub(in crate::procfs) use shows_of;
