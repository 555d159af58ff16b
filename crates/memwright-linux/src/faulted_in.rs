//! Adds the faults that the kernel resolves without a trap to the fault counters of the running thread (Linux 7.3
//! `mm/memory.c`, `mm_account_fault`).

use crate::kernel::Kernel;
use core::sync::atomic::Ordering;
use memwright::{FaultSink, FaultedIn};

impl FaultSink for Kernel {
    fn faulted_in(&self, pages: FaultedIn) {
        // Without a running thread there are no counters to update.
        let Some(thread) = self.scheduler.current() else {
            return;
        };
        let usage = &thread.usage;
        usage.minor_faults.fetch_add(pages.minor, Ordering::Relaxed);
        usage.major_faults.fetch_add(pages.major, Ordering::Relaxed);
    }
}
