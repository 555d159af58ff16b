//! The clock of the machine.

/// The clock of the machine.
pub trait Clock: Sync {
    /// Returns the time since boot in nanoseconds. If the clock counts instructions, each retired instruction takes one
    /// nanosecond. All CPUs share this clock. Time spent waiting for input is not counted.
    fn now(&self) -> u64;

    /// Sets or clears this CPU's deadline, which is a value of [`now`](Self::now). When the deadline has passed, user
    /// mode ends with `Trap::Timer`, or `idle` returns.
    fn set_deadline(&self, deadline: Option<u64>);

    /// Stops the guest clock for work that must not count as guest time. Calls nest: each call must be undone by one
    /// call of [`resume_clock`](Self::resume_clock).
    fn pause_clock(&self);

    /// Undoes one call of [`pause_clock`](Self::pause_clock). The clock runs again once every such call is undone.
    fn resume_clock(&self);
}
