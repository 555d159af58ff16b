//! The step that merges pages with equal contents.

use memwright_table::CpuId;

use super::Lockstep;
use crate::machine::TestMachine;

/// The number of scans after which an unchanged page is merged: the first scan records its contents, the second finds
/// it unchanged, and the third merges it with the page that equals it.
const ROUNDS: usize = 3;
/// The maximum number of pages that one call visits.
const BUDGET: u64 = 1000;

impl<M: TestMachine> Lockstep<M> {
    pub(super) fn merge(&mut self, cpu: CpuId) {
        let memory = self.host.memory();
        let running = self.host.machine().act_as(cpu);
        for _ in 0..ROUNDS {
            while !memory.merge_pages(BUDGET) {}
        }
        let merged = memory.merging().counts(memory).sharing;
        drop(running);
        self.find_merged();
        self.succeeded("merge");
        *self.successes.entry("page that is merged").or_default() += merged;
    }
}
