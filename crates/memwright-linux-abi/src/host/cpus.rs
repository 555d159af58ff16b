//! The CPUs and their interrupts.

use memwright_table::CpuId;

/// The kinds of interrupts that are counted, with their names in `/proc/interrupts`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InterruptKind {
    /// `LOC`: the CPU's timer.
    Timer,
    /// `RES`: another CPU requested that this CPU check its run queue.
    Reschedule,
    /// `CAL`: another CPU made a request of another kind.
    Call,
    /// `TLB`: another CPU requested a TLB invalidation.
    Invalidation,
}

impl InterruptKind {
    /// The number of kinds.
    pub const COUNT: usize = 4;
}

/// The time in nanoseconds that a CPU has spent in each state since boot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CpuTimes {
    /// The time in user mode. While the CPU is in user mode, the time since its last interrupt is missing here.
    pub user: u64,
    /// The time in the kernel, except the time spent waiting for an interrupt.
    pub system: u64,
    /// The time spent waiting for an interrupt.
    pub idle: u64,
}

/// The CPUs and their interrupts.
pub trait Cpus: Sync {
    /// Starts all other CPUs, each of which calls `KernelEvents::cpu_start`. Called once, on the boot CPU, after
    /// `set_events`. Returns when all CPUs run.
    fn start_cpus(&self);

    /// Interrupts CPU `cpu`, so that its `run_user` returns `Trap::Reschedule` or its [`idle`](Self::idle) returns.
    /// Does not wait for this. Several kicks can cause a single return, but no kick is lost: after the return, the
    /// target sees everything that this CPU stored before the kick. If the target is in the kernel when it is kicked,
    /// its next `run_user` or `idle` returns at once.
    fn kick(&self, cpu: CpuId);

    /// Returns the number of interrupts of the kind `kind` that CPU `cpu` has taken; 0 before it was started.
    fn interrupts(&self, cpu: CpuId, kind: InterruptKind) -> u64;

    /// Returns how CPU `cpu` spent its time since boot; all times are zero before it was started.
    fn times(&self, cpu: CpuId) -> CpuTimes;

    /// Returns EAX, EBX, ECX and EDX of the CPUID leaf `leaf`, `subleaf`. They are the same on all CPUs.
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4];

    /// Returns CPUID leaf 1 EDX, for AT_HWCAP.
    fn hardware_capabilities(&self) -> u64;

    /// Waits for an interrupt, and serves TLB invalidations meanwhile. Returns at once if an interrupt arrived since
    /// interrupts were last enabled, or if the CPU was kicked since `idle` or `run_user` last returned.
    fn idle(&self);
}
