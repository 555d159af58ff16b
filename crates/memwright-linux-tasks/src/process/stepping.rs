//! The single step of a thread that executes a probed instruction out of line.

/// The state of a thread that executes a copy of a probed instruction.
#[derive(Clone, Copy, Debug)]
pub struct Stepping {
    /// Address of the breakpoint.
    pub at: u64,
    /// Address of the copy.
    pub copy: u64,
    /// Whether the program had set the trap flag. The step must then also raise the program's trap.
    pub traps: bool,
}
