//! The clock.

/// The clock of the machine.
pub trait Clock: Sync {
    /// Returns the time since boot in nanoseconds (one per retired instruction). All CPUs share this clock. Time spent
    /// waiting for input is not counted.
    fn now(&self) -> u64;

    /// Sets this CPU's deadline, a time of [`now`](Self::now), or clears it. When the deadline has passed, user mode
    /// ends with `Trap::Timer`, or `idle` returns.
    fn set_deadline(&self, deadline: Option<u64>);

    /// Stops the guest clock for work that must not count as guest time. Calls nest.
    fn pause_clock(&self);

    /// Resumes the guest clock.
    fn resume_clock(&self);
}
