//! Per-CPU data, accessed through GS.
//!
//! A field is written only by the CPU to which it belongs (including that CPU's NMI handler), so relaxed atomics
//! suffice: on x86-64 they are plain loads and stores. The fields of the measurement of stretches (`clock::stretch`)
//! are the exception: one CPU can adjust or clear them for all CPUs. Other CPUs read the fields for reports and
//! statistics.

use core::arch::asm;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memwright_kernel_logic::acpi::ApicIds;
use memwright_linux_abi::host::InterruptKind;
use memwright_table::Tags;
use memwright_table::addr::MAX_CPUS;

use crate::arch::{
    self,
    debug::{KEPT_WITHOUT_BREAKPOINTS, Loaded},
    msr,
};
use crate::memory::frames;
use crate::trace::Ring;

/// The segment selector of kernel code. All selectors equal Linux's, because signal frames expose them to programs.
pub const KERNEL_CODE: u16 = 0x10;
/// The segment selector of kernel data and stack.
pub const KERNEL_DATA: u16 = 0x18;
/// The segment selector of user data and stack.
pub const USER_DATA: u16 = 0x2b;
/// The segment selector of 64-bit user code.
pub const USER_CODE: u16 = 0x33;
/// The segment selector of the task state segment.
const TASK_STATE: u16 = 0x40;

/// Indexes of the interrupt stacks in the task state. The exceptions that can occur at any instruction have separate
/// stacks.
#[derive(Clone, Copy)]
pub enum InterruptStack {
    /// Double faults, including those of a kernel stack overflow.
    DoubleFault,
    /// NMIs, by which another CPU or the command requests a report.
    Nmi,
    /// Machine checks.
    MachineCheck,
    /// Debug exceptions. A debug exception can be deferred to the first instruction of a kernel entry.
    Debug,
}

const INTERRUPT_STACKS: usize = 4;
/// The size and alignment of an interrupt stack in bytes. An entry masks the stack pointer with this size to find the
/// [`StackBase`].
pub const INTERRUPT_STACK_SIZE: usize = 16 * 1024;

/// An interrupt stack. Its lowest word contains the address of the CPU's data, because an entry on this stack cannot
/// rely on GS.
#[repr(C, align(16384))]
struct StackBase {
    cpu: AtomicU64,
    space: [AtomicU64; INTERRUPT_STACK_SIZE / 8 - 1],
}

impl StackBase {
    const fn new() -> Self {
        Self {
            cpu: AtomicU64::new(0),
            space: [const { AtomicU64::new(0) }; INTERRUPT_STACK_SIZE / 8 - 1],
        }
    }

    fn top(&self) -> u64 {
        &raw const *self as u64 + INTERRUPT_STACK_SIZE as u64
    }
}

/// The 64-bit task state segment, of which only the stack pointers are used. It is accessed as 32-bit words because its
/// 64-bit fields are at odd multiples of four bytes.
#[repr(C, align(128))]
struct TaskState([AtomicU32; 26]);

impl TaskState {
    const ENTRY_STACK: usize = 1;
    const FIRST_INTERRUPT_STACK: usize = 9;
    const PORT_MAP: usize = 25;

    fn set(&self, word: usize, value: u64) {
        self.0[word].store(value as u32, Ordering::Relaxed);
        self.0[word + 1].store((value >> 32) as u32, Ordering::Relaxed);
    }
}

/// The data of one CPU. The assembly entries access the first fields by their offsets.
#[repr(C, align(64))]
pub struct PerCpu {
    /// Address of this structure.
    this: AtomicU64,
    /// The `UserState` of the thread that runs in user mode on this CPU.
    pub user_state: AtomicU64,
    /// The kernel stack pointer with which entries from user mode continue.
    pub kernel_stack: AtomicU64,
    /// Space in which an entry saves one register.
    pub scratch: AtomicU64,
    /// The counter value at the last transition between user mode and the kernel.
    pub changed: AtomicU64,
    /// Ticks spent in user mode.
    pub user_ticks: AtomicU64,
    /// Ticks spent waiting for an interrupt.
    pub idle_ticks: AtomicU64,
    /// The CPU's index.
    pub index: AtomicU32,
    /// The timer's deadline in nanoseconds of the guest's clock; `u64::MAX` for none.
    pub deadline: AtomicU64,
    /// The context whose stack is to be freed once this CPU has left the stack; 0 for none.
    pub leaving: AtomicU64,
    /// The context of the idle loop.
    pub idle_context: AtomicU32,
    /// Interrupts that were received and must still be handled, as `ipi::MISSED_` bits; see `ipi::remind`.
    pub missed: AtomicU32,
    /// The counter value from which on a return to user mode calls [`look`](crate::clock::stretch::look). If it is 0,
    /// the next return does so.
    pub look_at: AtomicU64,
    /// The counter value at the entry of the current interrupt; 0 for none. During an interrupt,
    /// [`look_at`](Self::look_at) is 0, so that the return to user mode takes the path that accounts for the duration
    /// of the interrupt.
    pub interrupted: AtomicU64,
    /// The value that [`look_at`](Self::look_at) gets when the current interrupt ends.
    pub look_after: AtomicU64,
    /// Ticks spent in interrupts that arrived in user mode.
    pub interrupt_ticks: AtomicU64,
    /// The length of the longest stretch in ticks, and the system call whose return ended that stretch.
    pub longest: AtomicU64,
    pub longest_call: AtomicU64,
    /// Whether an allocation of this CPU left the heap with little free memory. Only this CPU then grows the heap, so
    /// that CPUs that do not allocate never write to the heap.
    pub heap_is_low: AtomicBool,
    /// Bytes copied from and to user memory since the last scheduling point of a user copy.
    pub copied: AtomicU64,
    /// Whether a backtrace was requested while this CPU was writing an output frame.
    pub asked_to_report: AtomicU32,
    /// Number of interrupts taken, by [`InterruptKind`].
    pub interrupts: [AtomicU64; InterruptKind::COUNT],
    /// The debug registers that this CPU loaded last.
    pub debug: Loaded,
    /// The roots to which the PCIDs of this CPU are assigned.
    pub tags: Tags,
    /// The recent events of this CPU.
    pub ring: Ring,
    descriptors: [AtomicU64; 10],
    task_state: TaskState,
    entry_stack: [AtomicU64; 64],
    stacks: [StackBase; INTERRUPT_STACKS],
}

impl PerCpu {
    const fn new() -> Self {
        Self {
            this: AtomicU64::new(0),
            user_state: AtomicU64::new(0),
            kernel_stack: AtomicU64::new(0),
            scratch: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            user_ticks: AtomicU64::new(0),
            idle_ticks: AtomicU64::new(0),
            index: AtomicU32::new(0),
            deadline: AtomicU64::new(u64::MAX),
            leaving: AtomicU64::new(0),
            idle_context: AtomicU32::new(0),
            missed: AtomicU32::new(0),
            look_at: AtomicU64::new(0),
            interrupted: AtomicU64::new(0),
            look_after: AtomicU64::new(0),
            interrupt_ticks: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            longest_call: AtomicU64::new(0),
            heap_is_low: AtomicBool::new(false),
            copied: AtomicU64::new(0),
            asked_to_report: AtomicU32::new(0),
            interrupts: [const { AtomicU64::new(0) }; InterruptKind::COUNT],
            debug: Loaded::new(),
            tags: Tags::new(),
            ring: Ring::new(),
            descriptors: [const { AtomicU64::new(0) }; 10],
            task_state: TaskState([const { AtomicU32::new(0) }; 26]),
            entry_stack: [const { AtomicU64::new(0) }; 64],
            stacks: [const { StackBase::new() }; INTERRUPT_STACKS],
        }
    }

    /// Counts an interrupt.
    #[inline(always)]
    pub fn count(&self, kind: InterruptKind) {
        add(&self.interrupts[kind as usize], 1);
    }

    /// Makes the next return to user mode call [`look`](crate::clock::stretch::look).
    pub fn ask_to_look(&self) {
        self.look_at.store(0, Ordering::Relaxed);
        self.look_after.store(0, Ordering::Relaxed);
    }

    /// Begins an interrupt that arrived in user mode. Its duration is accounted until user mode continues or another
    /// context runs.
    pub fn begin_interrupt(&self) {
        let look_at = self.look_at.swap(0, Ordering::Relaxed);
        self.look_after.store(look_at, Ordering::Relaxed);
        let entered = self.changed.load(Ordering::Relaxed);
        self.interrupted.store(entered, Ordering::Relaxed);
    }

    /// Ends the current interrupt, if there is one. Called when another context is about to run.
    #[inline(always)]
    pub fn end_interrupt(&self) {
        let entered = self.interrupted.load(Ordering::Relaxed);
        if entered != 0 {
            self.interrupted.store(0, Ordering::Relaxed);
            add(&self.interrupt_ticks, arch::ticks() - entered);
            let look_at = self.look_after.load(Ordering::Relaxed);
            self.look_at.store(look_at, Ordering::Relaxed);
        }
    }

    /// Records an interrupt that arrived in the kernel and must still be handled.
    #[inline(always)]
    pub fn miss(&self, what: u32) {
        let missed = self.missed.load(Ordering::Relaxed);
        self.missed.store(missed | what, Ordering::Relaxed);
    }

    /// Returns the bounds of the interrupt stack of this CPU that contains `address`: its lowest byte and one past its
    /// highest byte.
    pub fn interrupt_stack_of(&self, address: u64) -> Option<(u64, u64)> {
        self.stacks
            .iter()
            .map(|stack| (&raw const *stack as u64 + 8, stack.top()))
            .find(|&(bottom, top)| (bottom..top).contains(&address))
    }
}

/// The data of the boot processor. The data of another processor is allocated from frames when that processor is
/// started.
static BOOT_CPU: PerCpu = PerCpu::new();

/// The data of each CPU; null until it is allocated.
static CPUS: [AtomicPtr<PerCpu>; MAX_CPUS] = [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CPUS];
/// The online CPUs, as one bit per CPU.
static ONLINE: AtomicU64 = AtomicU64::new(1);
/// The number of CPUs of the machine, including those that do not run yet.
static COUNT: AtomicUsize = AtomicUsize::new(1);
/// The local APIC ID of each CPU.
static APIC_IDS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

/// Sets the CPUs of the machine, of which the boot processor is the first. Called before any other code reads them.
pub fn set_present(ids: &ApicIds) {
    for (slot, &id) in APIC_IDS.iter().zip(ids.as_slice()) {
        slot.store(id, Ordering::Relaxed);
    }
    COUNT.store(ids.as_slice().len(), Ordering::Relaxed);
}

/// Returns the number of CPUs of the machine, including those that do not run yet.
#[inline(always)]
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Returns the local APIC ID of CPU `index`.
pub fn apic_id(index: usize) -> u32 {
    APIC_IDS[index].load(Ordering::Relaxed)
}

/// Returns the online CPUs, as one bit per CPU.
pub fn online() -> u64 {
    ONLINE.load(Ordering::Acquire)
}

/// Returns whether CPU `index` is online.
pub fn is_online(index: usize) -> bool {
    online() >> index & 1 != 0
}

/// Marks the calling CPU, `cpu`, as online, so that other CPUs may interrupt it.
pub fn set_online(cpu: &PerCpu) {
    ONLINE.fetch_or(1 << cpu.index.load(Ordering::Relaxed), Ordering::AcqRel);
}

/// Returns the data of CPU `index`; `None` if that CPU was never started.
pub fn of(index: usize) -> Option<&'static PerCpu> {
    let cpu = CPUS.get(index)?.load(Ordering::Acquire);
    // SAFETY: a non-null pointer refers to data that is never freed.
    unsafe { cpu.as_ref() }
}

/// Returns the data of this CPU.
#[inline(always)]
pub fn current() -> &'static PerCpu {
    let this: *const PerCpu;
    // SAFETY: `setup` points GS at this CPU's data before any caller can run. The first word of the data is its own
    // address, and every entry from user mode restores GS.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) this, options(readonly, nostack, preserves_flags, pure));
        &*this
    }
}

/// Adds `amount` to a counter that only this CPU writes.
#[inline(always)]
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(amount),
        Ordering::Relaxed,
    );
}

/// Sets the boot processor's GS base, segments, task state and stacks.
///
/// # Safety
/// Called once on the boot processor, with interrupts disabled.
pub unsafe fn setup_boot_cpu() {
    CPUS[0].store((&raw const BOOT_CPU).cast_mut(), Ordering::Relaxed);
    // SAFETY: guaranteed by the caller; the data is static.
    unsafe { BOOT_CPU.setup() };
}

impl PerCpu {
    /// Allocates the data of CPU `index` from frames. Returns `None` if no frames are available.
    pub fn create(index: usize) -> Option<&'static Self> {
        const ORDER: u8 = size_of::<PerCpu>()
            .div_ceil(4096)
            .next_power_of_two()
            .trailing_zeros() as u8;
        let memory = frames::allocate(ORDER)? as *mut Self;
        // SAFETY: the frames belong to this data and are never freed. Their size and alignment are the next power of
        // two that holds the data. All fields are atomic integers, for which zero is valid. In `tags`, zero means frame
        // 0, which is never a root.
        let cpu: &'static Self = unsafe {
            memory.write_bytes(0, 1);
            &*memory
        };
        cpu.index.store(index as u32, Ordering::Relaxed);
        cpu.deadline.store(u64::MAX, Ordering::Relaxed);
        let kept = &cpu.debug.kept_flags;
        kept.store(KEPT_WITHOUT_BREAKPOINTS, Ordering::Relaxed);
        CPUS[index].store(memory, Ordering::Release);
        Some(cpu)
    }

    /// Sets this CPU's GS base, segments, task state and stacks.
    ///
    /// # Safety
    /// Called once per CPU, on that CPU, with interrupts disabled. The data is not used by another CPU.
    pub unsafe fn setup(&'static self) {
        // SAFETY: guaranteed by the caller.
        unsafe { setup(self) };
    }
}

/// Sets the calling CPU's GS base, segments, task state and stacks.
///
/// # Safety
/// The requirements of [`PerCpu::setup`] apply.
unsafe fn setup(cpu: &'static PerCpu) {
    let address = &raw const *cpu as u64;
    cpu.this.store(address, Ordering::Relaxed);
    let entry_stack = &raw const cpu.entry_stack as u64 + size_of_val(&cpu.entry_stack) as u64;
    cpu.task_state.set(TaskState::ENTRY_STACK, entry_stack);
    for (slot, stack) in cpu.stacks.iter().enumerate() {
        stack.cpu.store(address, Ordering::Relaxed);
        cpu.task_state
            .set(TaskState::FIRST_INTERRUPT_STACK + 2 * slot, stack.top());
    }
    // The I/O permission bitmap begins beyond the segment's end, so user mode cannot access any port.
    cpu.task_state.0[TaskState::PORT_MAP].store(104 << 16, Ordering::Relaxed);
    let task = &raw const cpu.task_state as u64;
    let descriptors = [
        0,
        0,
        0x00af_9b00_0000_ffff, // 0x10: kernel code
        0x00cf_9300_0000_ffff, // 0x18: kernel data
        0,                     // 0x20: 32-bit user code, which is not supported
        0x00cf_f300_0000_ffff, // 0x28: user data
        0x00af_fb00_0000_ffff, // 0x30: user code
        0,
        0x0000_8900_0000_0067 | (task & 0xff_ffff) << 16 | (task >> 24 & 0xff) << 56,
        task >> 32,
    ];
    for (slot, value) in cpu.descriptors.iter().zip(descriptors) {
        slot.store(value, Ordering::Relaxed);
    }
    #[repr(C, packed)]
    struct Pointer {
        limit: u16,
        base: u64,
    }
    let pointer = Pointer {
        limit: (size_of_val(&cpu.descriptors) - 1) as u16,
        base: &raw const cpu.descriptors as u64,
    };
    // SAFETY: the table contains flat kernel segments at the loaded selectors; the far return reloads CS at the next
    // instruction. GS is set after its selector, the load of which clears the base.
    unsafe {
        asm!(
            "lgdt [{pointer}]",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ds, {data:e}",
            "mov es, {data:e}",
            "mov ss, {data:e}",
            "mov fs, {null:e}",
            "mov gs, {null:e}",
            "ltr {task:x}",
            pointer = in(reg) &raw const pointer,
            code = in(reg) u64::from(KERNEL_CODE),
            data = in(reg) u32::from(KERNEL_DATA),
            null = in(reg) 0,
            task = in(reg) TASK_STATE,
            scratch = out(reg) _,
        );
        arch::write_msr(msr::GS_BASE, address);
    }
}
