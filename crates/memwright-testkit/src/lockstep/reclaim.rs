//! The step that reclaims pages, and the handling of a step that runs out of memory.

use alloc::string::String;
use alloc::vec::Vec;

use memwright::{Effort, ObjectPlace};
use memwright_table::{CpuId, Page};

use super::{Difference, Lockstep, Successes};
use crate::machine::TestMachine;

impl<M: TestMachine> Lockstep<M> {
    /// Runs direct reclaim: scans all pages twice, so that pages whose accessed bit the first scan cleared are evicted
    /// by the second.
    pub(super) fn relieve(&mut self, cpu: CpuId) {
        let used = self.host.frames().used();
        self.reclaim(cpu);
        self.reclaim(cpu);
        let memory = self.host.memory();
        let _running = self.host.machine().act_as(cpu);
        memory.swap().shed_some(memory, u64::MAX);
        while memory.merging().shed(memory) > 0 {}
        if memory.frames().used() < used {
            self.succeeded("relief");
        }
    }

    /// Determines which pages direct reclaim has discarded, and updates the model.
    pub(super) fn find_discarded(&mut self) -> Result<(), String> {
        let numbers: Vec<usize> = self.processes.keys().copied().collect();
        for number in numbers {
            self.find_gone(number);
            self.find_armed(number)?;
        }
        Ok(())
    }

    /// Scans all pages once and evicts those that were not accessed since the previous scan.
    pub(super) fn reclaim(&mut self, cpu: CpuId) {
        for process in self.processes.values() {
            let mut effort = Effort {
                look: u64::MAX,
                wanted: u64::MAX,
                charged: false,
            };
            process.on(cpu, |space| space.reclaim(Page::new(0), &mut effort));
            if effort.wanted < u64::MAX {
                *self.successes.entry("page that left").or_default() += u64::MAX - effort.wanted;
            }
        }
        let running = self.host.machine().act_as(cpu);
        let mut effort = Effort {
            look: u64::MAX,
            wanted: u64::MAX,
            charged: false,
        };
        let mut place = ObjectPlace::default();
        let memory = self.host.memory();
        memory.reclaim_objects(&mut place, None, &mut effort);
        if effort.wanted < u64::MAX {
            let left = self.successes.entry("page that left unmapped").or_default();
            *left += u64::MAX - effort.wanted;
        }
        drop(running);
        self.succeeded("reclaim");
    }

    /// Ends a script whose step still ran out of memory after reclaim. Every process exits, and only leaks are checked
    /// for.
    pub(super) fn end_exhausted(&mut self) -> Result<Successes, Difference> {
        self.succeeded("out of memory");
        while let Some((number, process)) = self.processes.pop_first() {
            drop(process);
            self.model.exit(number);
        }
        self.leave()?;
        Ok(core::mem::take(&mut self.successes))
    }
}
