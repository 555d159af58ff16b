//! The single step of a thread over a copy of an instruction.

/// The state of a thread that executes a copy of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Stepping {
    /// Address of the breakpoint.
    pub at: u64,
    /// Address of the copy.
    pub copy: u64,
    /// The program had set the trap flag, so the step must also raise the program's trap.
    pub traps: bool,
}
