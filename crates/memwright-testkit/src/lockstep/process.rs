//! The steps that create and end processes.

use alloc::format;

use memwright::ForkError;
use memwright_table::CpuId;

use super::{Difference, Lockstep};
use crate::machine::TestMachine;
use crate::script::MOST_PROCESSES;

impl<M: TestMachine> Lockstep<M> {
    pub(super) fn fork(&mut self, process: usize, cpu: CpuId) -> Result<(), Difference> {
        if self.processes.len() == MOST_PROCESSES {
            return Ok(());
        }
        let forked = self.processes[&process]
            .fork(cpu)
            .map_err(|error| match error {
                ForkError::OutOfMemory => Difference::Exhausted,
                other @ ForkError::Overcommit => {
                    Difference::Disagreement(format!("fork: {other:?}"))
                }
            })?;
        let child = self.created;
        self.created += 1;
        self.processes.insert(child, forked);
        self.model.fork(process, child);
        self.succeeded("fork");
        Ok(())
    }

    pub(super) fn exit(&mut self, process: usize) {
        self.processes.remove(&process);
        self.watchers.retain(|(owner, ..)| *owner != process);
        self.model.exit(process);
        self.succeeded("exit");
    }
}
