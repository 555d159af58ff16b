//! Decides which of a guest's CPUs an exception of QEMU's log belongs to.
//!
//! QEMU's log does not number the CPUs. It prints the registers of the CPU that receives an exception. The values of
//! two of them differ between CPUs: the base of the task state segment at all times, and the base of GS while the
//! kernel runs. When the run begins, the plugin reports each CPU's base of GS.

use std::collections::BTreeMap;

/// The maximum number of task state segments that are remembered; a guest has one for each CPU.
const TASK_STATES: usize = 1 << 12;

/// The CPUs that have been identified by their registers.
#[derive(Debug, Default)]
pub struct Placement {
    by_gs: BTreeMap<u64, usize>,
    gs_by_task_state: BTreeMap<u64, u64>,
    by_task_state: BTreeMap<u64, usize>,
    gs: u64,
}

impl Placement {
    /// Records `gs`, the base of GS on the CPU `cpu` while the kernel runs. Returns whether the base is new.
    pub fn know(&mut self, cpu: usize, gs: u64) -> bool {
        self.by_gs.insert(gs, cpu).is_none()
    }

    /// Records the base of GS that the log prints for an exception.
    pub fn gs(&mut self, base: u64) {
        self.gs = base;
    }

    /// Returns the CPU that received an exception; `None` if it is not known. The CPU is found by the base of its task
    /// state segment, and by the base of GS that the method `gs` recorded. If the exception was raised by an
    /// instruction that had begun, `running` is the CPU that executed this instruction.
    pub fn cpu(&mut self, task_state: u64, running: Option<usize>) -> Option<usize> {
        let is_kernels = self.gs >> 63 != 0;
        let knows = self.gs_by_task_state.contains_key(&task_state);
        if is_kernels && (knows || self.gs_by_task_state.len() < TASK_STATES) {
            self.gs_by_task_state.insert(task_state, self.gs);
        }
        let gs = self.gs_by_task_state.get(&task_state);
        if let Some(cpu) = gs.and_then(|gs| self.by_gs.get(gs)) {
            return Some(*cpu);
        }
        if let Some(cpu) = running
            && self.by_task_state.len() < TASK_STATES
        {
            self.by_task_state.insert(task_state, cpu);
        }
        self.by_task_state.get(&task_state).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_known_by_what_only_it_has() {
        const BASES: [u64; 2] = [0xffff_8880_7f60_0000, 0xffff_8880_7f80_0000];
        let mut placement = Placement::default();
        for (cpu, base) in BASES.into_iter().enumerate() {
            placement.know(cpu, base);
        }
        for (gs, task_state, expected) in [
            // A user program's base of GS does not identify a CPU, and the CPU of the task state segment is not known
            // yet.
            (0, 0xa000, None),
            (BASES[0], 0xa000, Some(0)),
            (0, 0xa000, Some(0)),
            (0x7000, 0xa000, Some(0)),
            (BASES[1], 0xb000, Some(1)),
            (0, 0xb000, Some(1)),
            // A base that the plugin did not report.
            (0xffff_ffff_8200_0000, 0xc000, None),
            // A task state segment whose CPU a known base of GS now identifies.
            (BASES[1], 0xc000, Some(1)),
        ] {
            placement.gs(gs);
            let found = placement.cpu(task_state, None);
            assert_eq!(found, expected, "{gs:x} {task_state:x}");
        }
        // If an instruction raised the exception, the task state segment is that of the CPU that executed the
        // instruction.
        placement.gs(0);
        let found = [None, Some(0), None].map(|running| placement.cpu(0xd000, running));
        assert_eq!(found, [None, Some(0), Some(0)]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut placement = Placement::default();
        placement.gs(1 << 63);
        for task_state in 0..3 * TASK_STATES as u64 {
            placement.cpu(task_state, Some(1));
        }
        let lengths = [
            placement.gs_by_task_state.len(),
            placement.by_task_state.len(),
        ];
        assert_eq!(lengths, [TASK_STATES; 2]);
    }
}
