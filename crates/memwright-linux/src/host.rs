//! The interface of the personality to the machine below it.

pub use crate::channel::Channel;
use crate::{
    arch::x86_64::regs::{FpuArea, UserState},
    context::Context,
    syscall::table,
};
use core::fmt;
use memwright::{DeviceError, Submission, Ticket, Transfer};
use memwright_table::{CpuId, Frame, Machine, sync::GaveWay};

/// A kernel stack and the registers saved on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct ContextId(pub u32);

/// The host has not enough memory for a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfMemory;

/// The largest depth that a kernel stack reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackDepth {
    /// Bytes used.
    pub used: u64,
    /// Size of the stack in bytes.
    pub size: u64,
    /// The system call after which the depth was found; `None` if another call, a trap or the boot can also have
    /// reached it.
    pub call: Option<u64>,
}

/// Writes the name of the system call, if it is known.
fn write_call(out: &mut fmt::Formatter<'_>, call: Option<u64>) -> fmt::Result {
    match call.and_then(table::find) {
        Some(call) => write!(out, ", in {}", call.name),
        None => Ok(()),
    }
}

impl fmt::Display for StackDepth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, size, call } = self;
        write!(out, "kernel stack: {used} of {size} bytes used at most")?;
        write_call(out, *call)
    }
}

impl StackDepth {
    /// Returns whether more than three quarters are used. The last quarter is for an interrupt that arrives during the
    /// deepest call.
    #[must_use]
    pub const fn is_critical(&self) -> bool {
        self.used > self.size / 4 * 3
    }
}

/// The longest stretch of kernel instructions without a scheduling point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Length in instructions; in nanoseconds if the CPUs run by the host's clock.
    pub instructions: u64,
    /// The system call whose return ended the stretch; `None` if the return from another trap or a scheduling point
    /// inside a call ended it.
    pub call: Option<u64>,
}

impl fmt::Display for Stretch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instructions, call } = self;
        write!(
            out,
            "longest stretch: {instructions} instructions without a scheduling point"
        )?;
        write_call(out, *call)
    }
}

impl Stretch {
    /// Returns whether the stretch exceeds the bound on the latency of a runnable thread. Debug builds execute many
    /// times as many instructions, so they have no bound and this is always false.
    #[must_use]
    pub const fn is_critical(&self) -> bool {
        const BOUND: u64 = 2_000_000;
        self.instructions > BOUND && !cfg!(debug_assertions)
    }
}

/// The reason for an exit from user mode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trap {
    /// A system call has been served, and the thread has work flags to handle.
    Syscall,
    /// A page fault at this address.
    PageFault {
        /// The address that was accessed.
        address: u64,
        /// The access was a write.
        write: bool,
        /// The access was an instruction fetch.
        fetch: bool,
        /// A present entry maps the address, but its rights do not permit the access.
        present: bool,
    },
    /// A data access that the page's protection key denies on this CPU.
    KeyFault {
        /// The address that was accessed.
        address: u64,
        /// The access was a write.
        write: bool,
    },
    /// Another processor exception.
    Exception {
        /// Vector: 0 divide error, 3 breakpoint, 6 invalid opcode, 13 general protection, ...
        vector: u8,
        /// Error code; zero for vectors that push none.
        error: u64,
    },
    /// The deadline has passed.
    Timer,
    /// A control byte has arrived.
    Control,
    /// Another CPU requested that this one check its run queue.
    Reschedule,
}

/// An access of the kernel to user memory faulted, and the fault could not be resolved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UserFault {
    /// The first address that could not be accessed.
    pub address: u64,
    /// Number of bytes copied before that address.
    pub done: usize,
}

/// The counted kinds of interrupts, with their names in `/proc/interrupts`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InterruptKind {
    /// `LOC`: the CPU's timer.
    Timer,
    /// `RES`: another CPU requested that this one check its run queue.
    Reschedule,
    /// `CAL`: another CPU made some other request.
    Call,
    /// `TLB`: another CPU requested a TLB invalidation.
    Invalidation,
}

impl InterruptKind {
    /// Number of kinds.
    pub const COUNT: usize = 4;
}

/// How a CPU spent its time since boot, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CpuTimes {
    /// In user mode. The current stretch of user mode counts only up to the last interrupt.
    pub user: u64,
    /// In the kernel.
    pub system: u64,
    /// Waiting for an interrupt.
    pub idle: u64,
}

/// The callbacks from the host into the kernel.
pub trait KernelEvents: Sync {
    /// Handles a fault at a user address while the kernel copies to or from it. Returns true if the access may be
    /// retried.
    ///
    /// # Locks
    /// Called on the copying thread, which holds none of the locks that this function takes.
    fn user_fault(&self, address: u64, write: bool) -> bool;

    /// Lets the threads that are ready on this CPU run before the calling one: see
    /// [`Hooks::give_way`](memwright_table::sync::Hooks::give_way).
    fn give_way(&self, waits: bool) -> GaveWay;

    /// Returns whether the thread that runs on this CPU should yield now.
    fn pause_due(&self) -> bool;

    /// Entry point of a context created by [`Host::create_context`].
    fn context_start(&self, argument: usize) -> !;

    /// Entry point of a CPU started by [`Host::start_cpus`]. It runs on the CPU's boot context, with interrupts
    /// disabled and the kernel's own page table loaded.
    fn cpu_start(&self) -> !;

    /// Writes the state of the personality for a panic or backtrace report: threads, held locks and counters.
    ///
    /// # Locks
    /// Must not wait for a lock that the failing code may hold.
    fn fatal_report(&self, out: &mut dyn core::fmt::Write);
}

/// A disk of the machine, accessed in pages.
pub trait BlockDevice: Sync {
    /// Returns the size in pages.
    fn pages(&self) -> u32;

    /// Starts copying a page between a frame and the given page of the disk: see
    /// [`SwapDevice::submit`](memwright::SwapDevice::submit).
    fn submit(&self, transfer: Transfer) -> Submission;

    /// Waits for a transfer to complete: see [`SwapDevice::complete`](memwright::SwapDevice::complete).
    ///
    /// # Errors
    /// The disk reported an error.
    fn complete(&self, ticket: Ticket) -> Result<(), DeviceError>;
}

/// The machine: processors, clock, channels. The bare-metal kernel implements it; tests use an implementation on top of
/// the simulated machine.
pub trait Host: Machine {
    /// Runs a thread in user mode until a trap. Returns the trap on the same kernel stack, with interrupts disabled.
    /// [`serve`](crate::syscall::serve) serves system calls; user mode continues after a call unless `serve` returns
    /// false. The host accesses the state through [`Context::state_pointer`], and only while user mode runs.
    fn run_user(&self, context: &Context<'_>) -> Trap;

    /// Loads the FS and GS bases of user mode, which must be canonical. They belong to the running thread:
    /// [`switch_context`](Self::switch_context) saves and restores them.
    fn load_bases(&self, user: &UserState);

    /// Stores the FS and GS bases of user mode.
    fn store_bases(&self, user: &mut UserState);

    /// Returns the largest number of contexts from [`create_context`](Self::create_context) that can exist at the same
    /// time. This is the limit on threads, `/proc/sys/kernel/threads-max`.
    fn most_contexts(&self) -> usize;

    /// Creates a kernel stack with a guard page. The first switch to it calls [`KernelEvents::context_start`] with
    /// `argument`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no memory for a stack.
    fn create_context(&self, argument: usize) -> Result<ContextId, OutOfMemory>;

    /// Saves the running context as `from` and resumes `to`. Returns when another context switches back to `from`.
    fn switch_context(&self, from: ContextId, to: ContextId);

    /// Frees a context that does not run on any CPU and will not run again.
    fn destroy_context(&self, context: ContextId);

    /// Returns the context on which this CPU booted. It becomes the CPU's idle loop.
    fn boot_context(&self) -> ContextId;

    /// Starts all other CPUs; each calls [`KernelEvents::cpu_start`]. Called once, on the boot CPU, after
    /// [`set_events`](Self::set_events). Returns when all CPUs run.
    fn start_cpus(&self);

    /// Interrupts another CPU, so that its [`run_user`](Self::run_user) returns [`Trap::Reschedule`] or its
    /// [`idle`](Self::idle) returns. Does not wait. Kicks coalesce, but none is lost: after the return that a kick
    /// causes, the target sees what this CPU stored before the kick. If the target is in the kernel when it is kicked,
    /// its next `run_user` or `idle` returns at once.
    fn kick(&self, cpu: CpuId);

    /// Returns the number of interrupts of a kind that CPU `cpu` has taken; 0 before it was started.
    fn interrupts(&self, cpu: CpuId, kind: InterruptKind) -> u64;

    /// Returns how a CPU spent its time since boot; all zero before it was started.
    fn times(&self, cpu: CpuId) -> CpuTimes;

    /// Returns EAX, EBX, ECX and EDX of a CPUID leaf, which are the same on all CPUs.
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4];

    /// Stores the extended state of the processor.
    fn save_fpu(&self, area: &mut FpuArea);

    /// Loads the extended state of the processor. `area` was written by `save_fpu` or checked by
    /// [`xstate::sanitize`](crate::arch::x86_64::xstate::sanitize).
    fn restore_fpu(&self, area: &FpuArea);

    /// Returns the number of bytes of [`FpuArea`] in use: the size of the standard XSAVE format for the enabled
    /// features.
    fn fpu_size(&self) -> usize;

    /// Returns the features enabled in XCR0.
    fn fpu_features(&self) -> u64;

    /// Sets the [`key_rights`](Machine::key_rights) of the running thread, if [`fpu_features`](Self::fpu_features)
    /// includes protection keys.
    fn set_key_rights(&self, rights: u32);

    /// Returns CPUID leaf 1 EDX, for AT_HWCAP.
    fn hardware_capabilities(&self) -> u64;

    /// Returns the time since boot in nanoseconds (one per retired instruction). All CPUs share this clock. Time spent
    /// waiting for input is not counted.
    fn now(&self) -> u64;

    /// Sets this CPU's deadline, a time of [`now`](Self::now), or clears it. When the deadline has passed, user mode
    /// ends with [`Trap::Timer`], or [`idle`](Self::idle) returns.
    fn set_deadline(&self, deadline: Option<u64>);

    /// Waits for an interrupt while serving TLB invalidations. Returns at once if an interrupt arrived since interrupts
    /// were last enabled, or if the CPU was kicked since `idle` or `run_user` last returned.
    fn idle(&self);

    /// Returns the disk, if there is one. If [`now`](Self::now) counts instructions, a transfer takes no guest time.
    fn disk(&self) -> Option<&'static dyn BlockDevice>;

    /// Copies from user memory. The caller has checked that the range is in user space.
    ///
    /// # Errors
    /// The first fault that [`KernelEvents::user_fault`] did not resolve.
    fn copy_from_user(&self, to: &mut [u8], from: u64) -> Result<(), UserFault>;

    /// Copies to user memory. The caller has checked that the range is in user space.
    ///
    /// # Errors
    /// The first fault that [`KernelEvents::user_fault`] did not resolve.
    fn copy_to_user(&self, to: u64, from: &[u8]) -> Result<(), UserFault>;

    /// Copies bytes of a frame to user memory, like [`copy_to_user`](Self::copy_to_user). The caller holds a reference
    /// to the frame; `offset + length` does not exceed the page size.
    ///
    /// # Errors
    /// The first fault that [`KernelEvents::user_fault`] did not resolve.
    fn copy_frame_to_user(
        &self,
        to: u64,
        frame: Frame,
        offset: usize,
        length: usize,
    ) -> Result<(), UserFault>;

    /// Copies user memory into a frame, like [`copy_from_user`](Self::copy_from_user). The caller holds a reference to
    /// the frame; `offset + length` does not exceed the page size.
    ///
    /// # Errors
    /// The first fault that [`KernelEvents::user_fault`] did not resolve.
    fn copy_frame_from_user(
        &self,
        frame: Frame,
        offset: usize,
        length: usize,
        from: u64,
    ) -> Result<(), UserFault>;

    /// Zeroes user memory. The caller has checked that the range is in user space.
    ///
    /// # Errors
    /// The first fault that [`KernelEvents::user_fault`] did not resolve.
    fn clear_user(&self, to: u64, length: usize) -> Result<(), UserFault>;

    /// Loads a user word atomically. The caller has checked that `address` is aligned and in user space.
    ///
    /// # Errors
    /// A fault that was not resolved.
    fn user_load32(&self, address: u64) -> Result<u32, UserFault>;

    /// Atomically replaces a user word with `new` if it equals `old`. Returns the previous value.
    ///
    /// # Errors
    /// A fault that was not resolved.
    fn user_compare_exchange32(&self, address: u64, old: u32, new: u32) -> Result<u32, UserFault>;

    /// Loads a user word like [`user_load32`](Self::user_load32). Returns `None` on a fault, which is not resolved, so
    /// the caller may hold locks.
    fn user_peek32(&self, address: u64) -> Option<u32>;

    /// Compares and exchanges like [`user_compare_exchange32`](Self::user_compare_exchange32). Returns `None` on a
    /// fault, which is not resolved, so the caller may hold locks.
    fn user_try_exchange32(&self, address: u64, old: u32, new: u32) -> Option<u32>;

    /// Sets the receiver of the callbacks. Called once, before any other method.
    fn set_events(&self, events: &'static dyn KernelEvents);

    /// Writes one frame to the output channel. `Account`, `Trace`, `Log` and `SystemCalls` frames take no guest time.
    fn output(&self, channel: Channel, bytes: &[u8]);

    /// Requests standard input from the command and waits for it, with the guest clock and the other CPUs stopped.
    /// Returns the number of bytes; 0 at the end of the input. Returns `None` if a control byte arrived first, which
    /// [`control`](Self::control) then returns.
    fn input(&self, to: &mut [u8]) -> Option<usize>;

    /// Takes the next control byte, if there is one.
    fn control(&self) -> Option<u8>;

    /// Stops the guest clock for work that must not count as guest time. Calls nest.
    fn pause_clock(&self);

    /// Resumes the guest clock.
    fn resume_clock(&self);

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

    /// Returns the part of [`kernel_instructions`](Self::kernel_instructions) that was spent in interrupts taken in
    /// user mode: from the entry to the return, or to a switch to another context.
    fn interrupt_instructions(&self) -> u64;

    /// Returns the root table whose kernel half is copied into every new address space; `None` if the host has none.
    fn kernel_root(&self) -> Option<Frame>;

    /// Returns whether the kernel heap is using its reserve. System calls that allocate must then fail.
    fn heap_low(&self) -> bool;

    /// Returns the bytes of kernel heap in use, for the audit at the end of a run.
    fn heap_used(&self) -> usize;

    /// Returns the largest depth of any kernel stack, for the audit at the end of a run; `None` if the host does not
    /// measure it.
    fn deepest_stack(&self) -> Option<StackDepth>;

    /// Returns the longest stretch of kernel instructions between two scheduling points on any CPU since
    /// [`forget_stretches`](Self::forget_stretches).
    fn longest_stretch(&self) -> Stretch;

    /// Restarts the measurement of stretches.
    fn forget_stretches(&self);

    /// Powers the machine off.
    fn power_off(&self, code: u8) -> !;
}
