//! The calls from the machine into the personality.

use memwright_table::sync::GaveWay;

/// The callbacks from the host into the personality.
pub trait KernelEvents: Sync {
    /// Handles a fault at `address`, a user address that the kernel is copying to or from. Returns whether the fault
    /// was resolved. If it was, the copy is retried.
    ///
    /// # Locks
    /// The caller is the copying thread, which holds none of the locks that this function takes.
    fn user_fault(&self, address: u64, write: bool) -> bool;

    /// Lets threads that are ready on this CPU run before the calling one: see
    /// [`Threads::give_way`](memwright_table::sync::Threads::give_way).
    fn give_way(&self, waits: bool) -> GaveWay;

    /// Returns whether the thread that runs on this CPU should yield now.
    fn pause_due(&self) -> bool;

    /// The entry point of a context created by `Host::create_context`.
    fn context_start(&self, argument: usize) -> !;

    /// The entry point of a CPU started by `Host::start_cpus`. It runs on the CPU's boot context, with interrupts
    /// disabled and the kernel's own page table loaded.
    fn cpu_start(&self) -> !;

    /// Writes the state of the personality for a panic or backtrace report: threads, held locks and counters.
    ///
    /// # Locks
    /// Waits for no lock, because the code that failed may hold any lock.
    fn fatal_report(&self, out: &mut dyn core::fmt::Write);
}
