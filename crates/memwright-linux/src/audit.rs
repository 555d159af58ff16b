//! Checks that a run has released all resources that it used.

use crate::{kernel::Kernel, syscall::described::DeepestStack};
use alloc::{format, string::String, sync::Arc, vec::Vec};
use memwright_linux_abi::Memory;
use memwright_linux_memory::swap::Swaps;
use memwright_linux_tasks::process::REAPER;
use memwright_table::FrameKind;

/// The kinds of frames that a run must free. The frames of the kernel heap are exempt: the heap never shrinks.
const RETURNED: [FrameKind; 6] = [
    FrameKind::Anonymous,
    FrameKind::Merged,
    FrameKind::Object,
    FrameKind::Table,
    FrameKind::PoolAnonymous,
    FrameKind::PoolObject,
];

/// Amounts of resources in use before the run.
pub struct Baseline {
    frames: [u64; RETURNED.len()],
    committed: u64,
    /// The number of swap slots in use, and the number of bytes in which swapped-out pages are stored.
    swap: (u64, u64),
    reserved: u64,
}

impl Baseline {
    /// Records the resources in use now.
    pub fn take(memory: &Arc<Memory>, swaps: &Swaps) -> Self {
        let audit = memory.frames().audit();
        Self {
            frames: RETURNED.map(|kind| audit.of(kind)),
            committed: memory.commit().committed(),
            swap: (memory.swap().totals().1, swaps.stored()),
            reserved: memory.frames().pool().reserved,
        }
    }
    /// Adds a finding for each resource whose amount in use differs from the amount before the run.
    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_macros,
        reason = "no program runs any more, and what it had is free"
    )]
    fn compare(&self, memory: &Arc<Memory>, swaps: &Swaps, findings: &mut Vec<String>) {
        let after = Self::take(memory, swaps);
        for (index, kind) in RETURNED.iter().enumerate() {
            if after.frames[index] != self.frames[index] {
                findings.push(format!(
                    "{kind:?} frames: {} before the run, {} after",
                    self.frames[index], after.frames[index]
                ));
            }
        }
        if after.committed != self.committed {
            findings.push(format!(
                "promised pages: {} before the run, {} after",
                self.committed, after.committed
            ));
        }
        if after.swap != self.swap {
            findings.push(format!(
                "swap slots and bytes: {:?} before the run, {:?} after",
                self.swap, after.swap
            ));
        }
        if after.reserved != self.reserved {
            findings.push(format!(
                "reserved huge pages: {} before the run, {} after",
                self.reserved, after.reserved
            ));
        }
    }
}

impl Kernel {
    /// Compares the resources in use at the end of a run with those at its start. Returns one line per finding.
    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_macros,
        reason = "no program runs any more, and what it had is free"
    )]
    pub(crate) fn audit(&'static self, before: &Baseline) -> Vec<String> {
        let mut findings = Vec::new();
        let left: Vec<u32> = self.tasks.processes().map(|process| process.id).collect();
        if left != [REAPER] {
            findings.push(format!("processes left in the table: {left:?}"));
        }
        self.sockets.flights.collect();
        self.vfs.mounts.clear();
        self.segments.clear();
        self.semaphores.clear();
        self.swaps.clear(&self.memory);
        if !self.memory.frames().are_mapped_objects_counted() {
            findings.push("the counters of mapped frames of objects differ from the frames".into());
        }
        for (kind, count) in self.vfs.open_files.left() {
            findings.push(format!("{kind} that nothing holds: {count}"));
        }
        for (kind, count) in self.vfs.mounts.nameless_nodes() {
            findings.push(format!("{kind} that nothing holds: {count}"));
        }
        if let Some(depth) = self.host.deepest_stack() {
            let text = format!("{}", DeepestStack(depth));
            self.log(&text);
            if depth.is_critical() {
                findings.push(text);
            }
        }
        before.compare(&self.memory, &self.swaps, &mut findings);
        findings
    }
}
