//! Measurements of the machine: counts of instructions, the use of heap and stacks, and marks for tools outside the
//! machine.

/// The largest depth that a kernel stack reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackDepth {
    /// The number of bytes used.
    pub used: u64,
    /// Size of the stack in bytes.
    pub size: u64,
    /// The system call that reached the depth. It is `None` if it is unknown, because another call, a trap or the boot
    /// may have reached the depth.
    pub call: Option<u64>,
}

impl StackDepth {
    /// Returns whether more than three quarters of the stack are used. The last quarter is reserved for an interrupt
    /// that arrives at the greatest depth.
    #[must_use]
    pub const fn is_critical(&self) -> bool {
        self.used > self.size / 4 * 3
    }
}

/// The longest stretch of kernel instructions between two scheduling points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The length in instructions, or in nanoseconds if the CPUs run by the host's clock.
    pub instructions: u64,
    /// The system call whose return ended the stretch. It is `None` if the return from another trap, or a scheduling
    /// point inside a call, ended the stretch.
    pub call: Option<u64>,
}

impl Stretch {
    /// Returns whether the stretch exceeds the bound on the latency of a runnable thread. In debug builds, always
    /// returns false: they execute many times as many instructions, so they have no bound.
    #[must_use]
    pub const fn is_critical(&self) -> bool {
        const BOUND: u64 = 2_000_000;
        self.instructions > BOUND && !cfg!(debug_assertions)
    }
}

/// Measurements of the machine.
pub trait Instruments: Sync {
    /// Marks the start of the program's run for tools that count from outside the machine. Called by the program's
    /// first thread just before it executes the program.
    fn mark_run_begins(&self);

    /// Marks the end of the program's run for tools that count from outside the machine. Called when the program's
    /// process has exited; other processes that it created can still run.
    fn mark_run_ends(&self);

    /// Returns the instructions that this CPU retired in user mode since boot.
    fn user_instructions(&self) -> u64;

    /// Returns the instructions that this CPU retired in the kernel since boot, without idle time and clock pauses.
    fn kernel_instructions(&self) -> u64;

    /// Returns how many of the [`kernel_instructions`](Self::kernel_instructions) handled interrupts that arrived in
    /// user mode. The instructions count from the entry of the interrupt to the return to user mode, or to a switch to
    /// another context.
    fn interrupt_instructions(&self) -> u64;

    /// Returns whether the kernel heap has begun to use its reserve. System calls that allocate must then fail with
    /// `ENOMEM`.
    fn heap_low(&self) -> bool;

    /// Returns the number of bytes of kernel heap in use, for the audit at the end of a run.
    fn heap_used(&self) -> usize;

    /// Returns the largest depth of any kernel stack, for the audit at the end of a run. Returns `None` if the host
    /// does not measure the depth.
    fn deepest_stack(&self) -> Option<StackDepth>;

    /// Returns the longest stretch of kernel instructions between two scheduling points on any CPU since
    /// [`forget_stretches`](Self::forget_stretches).
    fn longest_stretch(&self) -> Stretch;

    /// Restarts the measurement of stretches.
    fn forget_stretches(&self);
}
