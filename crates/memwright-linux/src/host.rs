//! What the personality needs from the machine below it.

pub use crate::channel::Channel;
use crate::{
    arch::x86_64::regs::{FpuArea, UserState},
    context::Context,
    syscall::table,
};
use core::fmt;
use memwright::{DeviceError, Submission, Ticket, Transfer};
use memwright_table::{CpuId, Frame, Machine, sync::GaveWay};

/// A kernel stack with the registers that are saved on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct ContextId(pub u32);

/// The host has no memory left for what was asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfMemory;

/// How much of a kernel stack was used at its deepest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackDepth {
    /// Bytes that were used.
    pub used: u64,
    /// Bytes that there are.
    pub size: u64,
    /// The system call after which it was found; none if another one, a trap or the start of the machine was as likely.
    pub call: Option<u64>,
}

/// Says in which system call something was found, if that is known.
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
    /// Whether more than three quarters were used: what comes on top of the deepest call, such as an interrupt, must find
    /// room.
    #[must_use]
    pub const fn is_critical(&self) -> bool {
        self.used > self.size / 4 * 3
    }
}

/// The longest run of kernel instructions without a scheduling point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// How many instructions; nanoseconds where CPUs run by the host's clock.
    pub instructions: u64,
    /// The system call with whose return it ended; none if it ended with another trap's return or within a
    /// call.
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
    /// Whether a thread that became ready had to wait for longer than the kernel promises. Checked builds do
    /// many times the work.
    #[must_use]
    pub const fn is_critical(&self) -> bool {
        const BOUND: u64 = 2_000_000;
        self.instructions > BOUND && !cfg!(debug_assertions)
    }
}

/// Why user mode was left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trap {
    /// A system call has been served, and the thread has something else to look at.
    Syscall,
    /// A page fault at this address.
    PageFault {
        /// The address that was accessed.
        address: u64,
        /// The access was a write.
        write: bool,
        /// The access was an instruction fetch.
        fetch: bool,
        /// An entry was present: its rights did not suffice.
        present: bool,
    },
    /// An access to data that this CPU refuses by the page's protection key.
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
    /// The deadline passed.
    Timer,
    /// A control byte waits.
    Control,
    /// Another CPU asks this one to look at its run queue.
    Reschedule,
}

/// A user access by the kernel met a fault that could not be resolved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UserFault {
    /// The first address that could not be accessed.
    pub address: u64,
    /// Bytes copied before it.
    pub done: usize,
}

/// An interrupt that is counted, in the words of `/proc/interrupts`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InterruptKind {
    /// `LOC`: the CPU's timer.
    Timer,
    /// `RES`: another CPU asked this one to look at its run queue.
    Reschedule,
    /// `CAL`: another CPU asked this one for something else.
    Call,
    /// `TLB`: another CPU asked this one to forget translations.
    Invalidation,
}

impl InterruptKind {
    /// How many kinds there are.
    pub const COUNT: usize = 4;
}

/// What a CPU did since boot, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CpuTimes {
    /// It ran programs; without the program that runs now, since it was last interrupted.
    pub user: u64,
    /// It ran the kernel.
    pub system: u64,
    /// It waited for an interrupt.
    pub idle: u64,
}

/// What the host calls back into.
pub trait KernelEvents: Sync {
    /// A user address faulted while the kernel copied to or from it. `true`: the access may be
    /// retried. Called on the thread that copies, holding none of its locks.
    fn user_fault(&self, address: u64, write: bool) -> bool;

    /// Lets the threads run first that are ready on this CPU, as
    /// [`Hooks::give_way`](memwright_table::sync::Hooks::give_way) says.
    fn give_way(&self, waits: bool) -> GaveWay;

    /// Whether the thread that runs on this CPU should give way now.
    fn pause_due(&self) -> bool;

    /// First code on the stack of a context made by [`Host::create_context`].
    fn context_start(&self, argument: usize) -> !;

    /// First code of a CPU that [`Host::start_cpus`] started: on its boot context, with interrupts
    /// off and the kernel's own table loaded.
    fn cpu_start(&self) -> !;

    /// Writes what the personality knows for a panic or backtrace report: threads, held locks,
    /// the account. Must not take a lock that may be held.
    fn fatal_report(&self, out: &mut dyn core::fmt::Write);
}

/// A disk of the machine, in pages.
pub trait BlockDevice: Sync {
    /// How many.
    fn pages(&self) -> u32;

    /// Begins to copy a page between a frame and the place of that number on the disk, as
    /// [`SwapDevice::submit`](memwright::SwapDevice::submit) says.
    fn submit(&self, transfer: Transfer) -> Submission;

    /// Waits until a transfer is over, as [`SwapDevice::complete`](memwright::SwapDevice::complete) says.
    ///
    /// # Errors
    /// The disk failed.
    fn complete(&self, ticket: Ticket) -> Result<(), DeviceError>;
}

/// The machine: processors, clock, channels. Implemented by the bare-metal kernel, and over the
/// simulated machine in tests.
pub trait Host: Machine {
    /// Runs the user mode of a thread and returns at a trap, on the same kernel stack, interrupts off.
    /// System calls are served by [`serve`](crate::syscall::serve), and user mode goes on unless that
    /// returns false. The state is used through [`Context::state_pointer`], while user mode runs only.
    fn run_user(&self, context: &Context<'_>) -> Trap;

    /// Loads the FS and GS base of user mode, which are canonical. They are the running thread's:
    /// [`switch_context`](Self::switch_context) keeps them.
    fn load_bases(&self, user: &UserState);

    /// Stores the FS and GS base of user mode.
    fn store_bases(&self, user: &mut UserState);

    /// The most contexts that [`create_context`](Self::create_context) may have made and that are not freed. It is the
    /// limit on threads, `/proc/sys/kernel/threads-max`.
    fn most_contexts(&self) -> usize;

    /// A new kernel stack with a guard page. The first switch to it calls
    /// [`KernelEvents::context_start`] with `argument`.
    ///
    /// # Errors
    /// [`OutOfMemory`] when there is no room for a stack.
    fn create_context(&self, argument: usize) -> Result<ContextId, OutOfMemory>;

    /// Saves the running context as `from` and continues `to`; returns when something switches
    /// back to `from`.
    fn switch_context(&self, from: ContextId, to: ContextId);

    /// Frees a context that runs on no CPU and will not run again.
    fn destroy_context(&self, context: ContextId);

    /// The context this CPU booted on; it becomes the CPU's idle loop.
    fn boot_context(&self) -> ContextId;

    /// Starts every other CPU; each calls [`KernelEvents::cpu_start`]. Called once, on the CPU that
    /// booted, after [`set_events`](Self::set_events). Returns when all of them run.
    fn start_cpus(&self);

    /// Interrupts another CPU, so that its [`run_user`](Self::run_user) returns
    /// [`Trap::Reschedule`] or its [`idle`](Self::idle) returns. Does not wait. Kicks coalesce, but
    /// none is lost: what this CPU stored before the call is seen by that one after the return
    /// that the kick causes, and a kick that strikes a CPU in the kernel makes the next of the two
    /// calls return at once.
    fn kick(&self, cpu: CpuId);

    /// How many interrupts of a kind CPU `cpu` has taken; 0 before it was started.
    fn interrupts(&self, cpu: CpuId, kind: InterruptKind) -> u64;

    /// What a CPU did since boot; nothing before it was started.
    fn times(&self, cpu: CpuId) -> CpuTimes;

    /// The registers EAX, EBX, ECX and EDX of a leaf of CPUID; all CPUs are alike.
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4];

    /// Stores the extended state of the processor.
    fn save_fpu(&self, area: &mut FpuArea);

    /// Loads the extended state. `area` was written by `save_fpu` or checked by
    /// [`xstate::sanitize`](crate::arch::x86_64::xstate::sanitize).
    fn restore_fpu(&self, area: &FpuArea);

    /// Bytes of [`FpuArea`] in use: the size of the standard XSAVE format for the enabled features.
    fn fpu_size(&self) -> usize;

    /// Features enabled in XCR0.
    fn fpu_features(&self) -> u64;

    /// Sets [`key_rights`](Machine::key_rights) of the running thread, where
    /// [`fpu_features`](Self::fpu_features) has protection keys.
    fn set_key_rights(&self, rights: u32);

    /// CPUID leaf 1 EDX, for AT_HWCAP.
    fn hardware_capabilities(&self) -> u64;

    /// Nanoseconds since boot (one per retired instruction), by one clock for all CPUs; waits for
    /// input are not counted.
    fn now(&self) -> u64;

    /// Asks for [`Trap::Timer`] on this CPU, or for its [`idle`](Self::idle) to return, at this
    /// time of [`now`](Self::now).
    fn set_deadline(&self, deadline: Option<u64>);

    /// Waits for an interrupt, serving invalidations. Returns at once when one came since
    /// interrupts were last on, or the CPU was kicked since `idle` or `run_user` last returned.
    fn idle(&self);

    /// The disk, if there is one. What it takes is no time of [`now`](Self::now), where that counts instructions.
    fn disk(&self) -> Option<&'static dyn BlockDevice>;

    /// Copies from user memory. The caller checked that the range lies in user space.
    ///
    /// # Errors
    /// The first fault that [`KernelEvents::user_fault`] did not resolve.
    fn copy_from_user(&self, to: &mut [u8], from: u64) -> Result<(), UserFault>;

    /// Copies to user memory. The caller checked that the range lies in user space.
    ///
    /// # Errors
    /// The first fault that [`KernelEvents::user_fault`] did not resolve.
    fn copy_to_user(&self, to: u64, from: &[u8]) -> Result<(), UserFault>;

    /// Copies bytes of a frame to user memory, as [`copy_to_user`](Self::copy_to_user). The caller
    /// holds a reference of the frame; `offset + length` does not exceed the page.
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

    /// Copies user memory into a frame, as [`copy_from_user`](Self::copy_from_user). The caller
    /// holds a reference of the frame; `offset + length` does not exceed the page.
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

    /// Zeroes user memory. The caller checked that the range lies in user space.
    ///
    /// # Errors
    /// The first fault that [`KernelEvents::user_fault`] did not resolve.
    fn clear_user(&self, to: u64, length: usize) -> Result<(), UserFault>;

    /// Loads a user word atomically; `address` is aligned and lies in user space.
    ///
    /// # Errors
    /// A fault that was not resolved.
    fn user_load32(&self, address: u64) -> Result<u32, UserFault>;

    /// Replaces a user word by `new` if it equals `old`, atomically; returns what was there.
    ///
    /// # Errors
    /// A fault that was not resolved.
    fn user_compare_exchange32(&self, address: u64, old: u32, new: u32) -> Result<u32, UserFault>;

    /// Loads a user word as [`user_load32`](Self::user_load32), unless that faults: nothing is asked
    /// to resolve the fault, so that locks may be held.
    fn user_peek32(&self, address: u64) -> Option<u32>;

    /// As [`user_compare_exchange32`](Self::user_compare_exchange32), unless that faults: nothing is
    /// asked to resolve the fault, so that locks may be held.
    fn user_try_exchange32(&self, address: u64, old: u32, new: u32) -> Option<u32>;

    /// Names the receiver of events; called once, before anything else.
    fn set_events(&self, events: &'static dyn KernelEvents);

    /// Writes one frame to the output channel. Costs no guest time for `Account`, `Trace`, `Log`
    /// and `SystemCalls`.
    fn output(&self, channel: Channel, bytes: &[u8]);

    /// Asks for standard input and waits, the machine standing still; 0 is the end of the input. `None` when a control
    /// byte came first: [`control`](Self::control) has it.
    fn input(&self, to: &mut [u8]) -> Option<usize>;

    /// Takes the next control byte.
    fn control(&self) -> Option<u8>;

    /// Stops the guest clock, for work that is not the guest's. Calls nest.
    fn pause_clock(&self);

    /// Lets the guest clock go on.
    fn resume_clock(&self);

    /// Tells who counts from outside that the run of the program begins: its first thread is about to execute it.
    fn mark_run_begins(&self);

    /// Tells who counts from outside that the run of the program is over: its process has ended, and what it left behind
    /// lives on.
    fn mark_run_ends(&self);

    /// Instructions retired in user mode by this CPU since boot.
    fn user_instructions(&self) -> u64;

    /// Instructions retired in the kernel by this CPU since boot, idle time and pauses left out.
    fn kernel_instructions(&self) -> u64;

    /// Of [`kernel_instructions`](Self::kernel_instructions), those spent in interrupts that struck in user mode: from the
    /// entry to the return, or to the switch to another context.
    fn interrupt_instructions(&self) -> u64;

    /// The kernel half every new address space starts with.
    fn kernel_root(&self) -> Option<Frame>;

    /// The kernel heap is in its reserve: calls that allocate shall fail.
    fn heap_low(&self) -> bool;

    /// Kernel heap in use, in bytes, for the audit at the end of a run.
    fn heap_used(&self) -> usize;

    /// How deep the fullest kernel stack became, for the audit at the end of a run; none where that is not watched.
    fn deepest_stack(&self) -> Option<StackDepth>;

    /// The longest stretch of kernel instructions between two scheduling points, of all CPUs, since
    /// [`forget_stretches`](Self::forget_stretches).
    fn longest_stretch(&self) -> Stretch;

    /// Measures stretches anew from here on.
    fn forget_stretches(&self);

    /// Ends the machine.
    fn power_off(&self, code: u8) -> !;
}
