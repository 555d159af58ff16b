//! What one CPU has counted.

use crate::count::interrupts::Interrupts;
use crate::model::code::Code;
use crate::model::counts::{Counts, Instructions};

/// The counts of a CPU.
#[derive(Debug, Default)]
pub struct Cpu {
    /// The counts up to now.
    pub now: Counts,
    /// The number of instructions that had begun when the plugin last reported counts of this CPU.
    pub begun: Option<Instructions>,
    /// The last value of CR3; 0 if it is not known.
    pub cr3: u64,
    /// The interrupts of this CPU.
    pub interrupts: Interrupts,
}

impl Cpu {
    /// Returns a CPU that has counted nothing. `counts_loads` states whether loads of CR3 by this CPU are counted.
    pub fn new(counts_loads: bool) -> Self {
        let mut cpu = Self::default();
        cpu.count_loads(counts_loads);
        cpu
    }

    /// Restarts the counts of loads of CR3 at 0, or marks them as not measured unless `counts_loads` is true.
    pub fn count_loads(&mut self, counts_loads: bool) {
        let none = counts_loads.then_some(0);
        (self.now.full_flushes, self.now.switches) = (none, none);
    }

    /// Configures the CPU for a kernel that runs alone. The meaning of such a kernel's interrupt vectors is not known,
    /// so interrupts that call functions are not counted separately.
    pub fn run_alone(&mut self, code: &Code) {
        self.now.call_interrupts = None;
        self.interrupts = Interrupts::of_code(code);
    }

    /// Stores the plugin's counts as the current ones.
    pub fn take(&mut self, flushes: [u64; 3], instructions: Option<Instructions>) {
        self.take_flushes(flushes);
        self.begun = instructions;
        self.now.instructions = instructions.map(|counted| self.interrupts.count(counted));
    }

    /// Stores the plugin's counts of flushes as the current ones.
    pub fn take_flushes(&mut self, flushes: [u64; 3]) {
        [self.now.invlpg, self.now.invpcid, self.now.cr4_writes] = flushes.map(Some);
    }
}
