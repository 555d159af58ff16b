//! Wrappers of single instructions. Each wrapper is a safe function, or documents its safety requirements.

pub mod debug;
pub mod fpu;
pub mod vector;

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc};

use memwright_linux_abi::channel::{EXIT_PORT, RUN_BEGINS};
use memwright_table::X86_64Registers;

/// Model-specific registers that the kernel writes.
pub mod msr {
    /// Address and enable bits of the local APIC.
    pub const APIC_BASE: u32 = 0x1b;
    /// The first of the local APIC's registers in x2APIC mode.
    pub const X2APIC: u32 = 0x800;
    /// Segment selectors of SYSCALL and SYSRET.
    pub const STAR: u32 = 0xc000_0081;
    /// Entry point of SYSCALL.
    pub const LSTAR: u32 = 0xc000_0082;
    /// Flags that SYSCALL clears.
    pub const FMASK: u32 = 0xc000_0084;
    /// The current GS base.
    pub const GS_BASE: u32 = 0xc000_0101;
}

/// Reads the time-stamp counter. Under the pinned clock (`-icount shift=0`), each retired instruction is one tick,
/// which is one nanosecond.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: RDTSC is not disabled for the kernel and has no other effect.
    unsafe { _rdtsc() }
}

/// Raises the spurious interrupt, whose handler does nothing. QEMU's log of interrupts (`-d int`) then contains the
/// address of the descriptor table.
///
/// # Safety
/// The descriptor table is loaded on this CPU.
pub unsafe fn show_descriptor_table() {
    // SAFETY: the handler of the spurious vector returns at once and preserves all registers.
    unsafe { asm!("int {vector}", vector = const vector::SPURIOUS) };
}

/// Executes the NOP that marks the start of the program's run for tools that count from outside the machine
/// (`include/memwright/mark.h`).
#[inline(always)]
pub fn mark_run_begins() {
    // SAFETY: a NOP has no effect.
    unsafe {
        asm!(".byte 0x0f, 0x1f, 0x80", ".long {mark}", mark = const RUN_BEGINS, options(nomem, nostack, preserves_flags));
    };
}

/// Executes the NOP that marks the end of the program's run.
#[inline(always)]
pub fn mark_run_ends() {
    // SAFETY: a NOP has no effect.
    unsafe {
        asm!(".byte 0x0f, 0x1f, 0x80", ".long {mark}", mark = const RUN_BEGINS | 1, options(nomem, nostack, preserves_flags));
    };
}

/// Writes `value` to port `port`.
///
/// # Safety
/// The write must be one that the device at `port` permits at this time.
#[inline(always)]
pub unsafe fn write_port(port: u16, value: u8) {
    // SAFETY: the caller guarantees the access; the instruction does not touch memory.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags));
    };
}

/// Writes all of `bytes` to port `port`, in order.
///
/// # Safety
/// The requirements of [`write_port`] apply.
#[inline(always)]
pub unsafe fn write_port_all(port: u16, bytes: &[u8]) {
    // SAFETY: the caller guarantees the access; the instruction only reads the slice.
    unsafe {
        asm!("rep outsb", in("dx") port, inout("rsi") bytes.as_ptr() => _, inout("rcx") bytes.len() => _, options(nostack, readonly, preserves_flags));
    }
}

/// Reads one byte from port `port`.
///
/// # Safety
/// The requirements of [`write_port`] apply, because a read may have an effect on the device.
#[inline(always)]
pub unsafe fn read_port(port: u16) -> u8 {
    let value: u8;
    // SAFETY: the caller guarantees the access; the instruction does not touch memory.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags));
    };
    value
}

/// Writes two bytes to port `port`.
///
/// # Safety
/// The requirements of [`write_port`] apply.
pub unsafe fn write_port_half(port: u16, value: u16) {
    // SAFETY: the caller guarantees the access. Memory that the device reads because of this write was written before.
    unsafe {
        asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack, preserves_flags));
    };
}

/// Reads two bytes from port `port`.
///
/// # Safety
/// The requirements of [`write_port`] apply, because a read may have an effect on the device.
pub unsafe fn read_port_half(port: u16) -> u16 {
    let value: u16;
    // SAFETY: the caller guarantees the access; the instruction does not touch memory.
    unsafe {
        asm!("in ax, dx", in("dx") port, out("ax") value, options(nomem, nostack, preserves_flags));
    };
    value
}

/// Writes four bytes to port `port`.
///
/// # Safety
/// The requirements of [`write_port`] apply.
pub unsafe fn write_port_word(port: u16, value: u32) {
    // SAFETY: the caller guarantees the access; the instruction does not touch memory.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags));
    };
}

/// Reads four bytes from port `port`.
///
/// # Safety
/// The requirements of [`write_port`] apply, because a read may have an effect on the device.
pub unsafe fn read_port_word(port: u16) -> u32 {
    let value: u32;
    // SAFETY: the caller guarantees the access; the instruction does not touch memory.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags));
    };
    value
}

/// Writes a model-specific register.
///
/// # Safety
/// The register exists, and the value preserves all invariants that depend on it.
pub unsafe fn write_msr(register: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: the caller guarantees register and value.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") low, in("edx") high, options(nostack, preserves_flags));
    }
}

/// Reads a model-specific register.
///
/// # Safety
/// The register exists.
pub unsafe fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller guarantees that the register exists; reading it has no effect.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Returns the control registers of this CPU that apply to page tables.
pub fn paging_registers() -> X86_64Registers {
    const EFER: u32 = 0xc000_0080;
    const PAT: u32 = 0x277;
    let (cr0, cr4): (u64, u64);
    // SAFETY: the reads have no effect. Both model-specific registers are in every processor of x86-64.
    let [efer, pat] = unsafe {
        asm!("mov {}, cr0", "mov {}, cr4", out(reg) cr0, out(reg) cr4, options(nomem, nostack, preserves_flags));
        [EFER, PAT].map(|register| read_msr(register))
    };
    X86_64Registers {
        efer,
        cr0,
        cr4,
        pat,
    }
}

/// Loads `root` into CR3; the table that it addresses becomes the current one. Never invalidates global translations.
/// Without PCIDs, invalidates all other translations. With PCIDs, invalidates only those of the PCID in the low bits of
/// `root`, or none if [`KEEP_TRANSLATIONS`] is set.
///
/// # Safety
/// `root` contains the address of a top-level table that maps the kernel like the current table. Translations that the
/// load does not invalidate agree with the tables.
#[inline(always)]
pub unsafe fn load_root(root: u64) {
    // SAFETY: the caller guarantees the table.
    unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}

/// The bit of a value for CR3, with PCIDs enabled, that makes the load invalidate no translation.
pub const KEEP_TRANSLATIONS: u64 = 1 << 63;

/// Returns the value of CR3.
#[inline(always)]
pub fn root() -> u64 {
    let value: u64;
    // SAFETY: reading CR3 has no effect.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Returns the address part of CR3.
#[inline(always)]
pub fn root_address() -> u64 {
    root() & 0x000f_ffff_ffff_f000
}

/// Returns the faulting address of the last page fault.
#[inline(always)]
pub fn fault_address() -> u64 {
    let value: u64;
    // SAFETY: reading CR2 has no effect.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Returns the value of CR4.
pub fn cr4() -> u64 {
    let value: u64;
    // SAFETY: reading CR4 has no effect.
    unsafe { asm!("mov {}, cr4", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Sets bits in CR4.
///
/// # Safety
/// The processor has the features that `bits` enables.
pub unsafe fn set_cr4(bits: u64) {
    let value = cr4() | bits;
    // SAFETY: the caller guarantees the bits.
    unsafe { asm!("mov cr4, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// Clears bits in CR4.
///
/// # Safety
/// Until the bits are set again, no code relies on the features that `bits` enables.
pub unsafe fn clear_cr4(bits: u64) {
    let value = cr4() & !bits;
    // SAFETY: the caller guarantees the bits.
    unsafe { asm!("mov cr4, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// The bit of CR4 that enables global translations.
pub const CR4_PAGE_GLOBAL: u64 = 1 << 7;
/// The bit of CR4 that enables PCIDs.
pub const CR4_PCID: u64 = 1 << 17;

/// Invalidates this CPU's translations of the page at `address`: those of the current table, and global ones.
#[inline(always)]
pub fn invalidate_page(address: u64) {
    // SAFETY: invalidating a translation is always permitted; the next access walks the tables.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Executes PAUSE. Under the pinned clock, QEMU runs one CPU at a time, and PAUSE lets it switch to another CPU.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}

/// Halts until an interrupt has been handled. Returns with interrupts disabled again.
#[inline(always)]
pub fn wait_for_interrupt() {
    // SAFETY: STI takes effect after HLT has begun, so no wakeup is lost. Handlers preserve all registers and run on
    // this stack, which is valid here.
    unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
}

/// Handles the interrupts that are pending now.
pub fn take_pending_interrupts() {
    // SAFETY: the argument of `wait_for_interrupt` applies; STI takes effect after the next instruction.
    unsafe { asm!("sti", "nop", "cli", options(nostack)) };
}

/// Stops this CPU permanently.
pub fn halt_forever() -> ! {
    loop {
        // SAFETY: with interrupts disabled, only an NMI ends the HLT, and the loop then halts the CPU again.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// Powers the machine off. QEMU's exit status is 2 × `code` + 1.
pub fn power_off(code: u8) -> ! {
    // SAFETY: the exit device accepts any byte; the machine is off afterwards.
    unsafe { write_port(EXIT_PORT, code) };
    halt_forever()
}

/// Returns the frame pointer of the caller.
#[inline(always)]
pub fn frame_pointer() -> u64 {
    let value: u64;
    // SAFETY: reading a register has no effect.
    unsafe { asm!("mov {}, rbp", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Returns the FS and GS bases of user mode. While the kernel runs, the processor keeps user mode's GS base for SWAPGS.
#[inline(always)]
pub fn user_bases() -> (u64, u64) {
    let (fs, gs): (u64, u64);
    // SAFETY: reading registers has no effect. Interrupts are disabled, and the handlers of the NMIs and exceptions
    // that can still arrive do not use GS to find the data of their CPU.
    unsafe {
        asm!(
            "rdfsbase {fs}",
            "swapgs",
            "rdgsbase {gs}",
            "swapgs",
            fs = out(reg) fs,
            gs = out(reg) gs,
            options(nomem, nostack, preserves_flags),
        );
    }
    (fs, gs)
}

/// Sets the FS and GS bases of user mode.
///
/// # Safety
/// `fs` and `gs` are canonical.
#[inline(always)]
pub unsafe fn load_user_bases(fs: u64, gs: u64) {
    // SAFETY: the kernel does not use FS, and the kernel's GS base is restored at the end. Apart from this, the
    // argument of `user_bases` applies.
    unsafe {
        asm!(
            "wrfsbase {fs}",
            "swapgs",
            "wrgsbase {gs}",
            "swapgs",
            fs = in(reg) fs,
            gs = in(reg) gs,
            options(nomem, nostack, preserves_flags),
        );
    }
}

/// Returns the stack pointer.
#[inline(always)]
pub fn stack_pointer() -> u64 {
    let value: u64;
    // SAFETY: reading a register has no effect.
    unsafe { asm!("mov {}, rsp", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Returns EAX, EBX, ECX and EDX of the CPUID leaf `leaf`, `subleaf`.
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let leaf = __cpuid_count(leaf, subleaf);
    [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]
}

/// Returns whether the processor supports pages of 1 GiB.
pub fn has_gigabyte_pages() -> bool {
    let extended = __cpuid(0x8000_0001);
    extended.edx & (1 << 26) != 0
}

/// Returns whether the processor supports x2APIC mode.
pub fn has_x2apic() -> bool {
    __cpuid(1).ecx & (1 << 21) != 0
}

/// Returns the id of this CPU's local APIC.
pub fn own_apic_id() -> u32 {
    // The leaf of the extended topology, if it exists, contains all 32 bits.
    if __cpuid(0).eax >= 0xb && __cpuid_count(0xb, 0).ebx != 0 {
        return __cpuid_count(0xb, 0).edx;
    }
    __cpuid(1).ebx >> 24
}

/// The optional processor features that the kernel uses.
#[derive(Clone, Copy)]
pub struct Features {
    /// Supervisor-mode execution prevention.
    pub smep: bool,
    /// Supervisor-mode access prevention.
    pub smap: bool,
    /// User-mode instruction prevention.
    pub umip: bool,
    /// RDFSBASE, WRFSBASE, RDGSBASE and WRGSBASE.
    pub fsgsbase: bool,
    /// XSAVE.
    pub xsave: bool,
    /// AVX.
    pub avx: bool,
    /// Process-context identifiers (PCIDs).
    pub pcid: bool,
    /// Protection keys of user pages.
    pub keys: bool,
}

/// Queries the processor.
pub fn features() -> Features {
    let basic = __cpuid(1);
    let structured = __cpuid_count(7, 0);
    let bit = |word: u32, bit: u32| word & (1 << bit) != 0;
    Features {
        smep: bit(structured.ebx, 7),
        smap: bit(structured.ebx, 20),
        umip: bit(structured.ecx, 2),
        fsgsbase: bit(structured.ebx, 0),
        xsave: bit(basic.ecx, 26),
        avx: bit(basic.ecx, 28),
        pcid: bit(basic.ecx, 17),
        keys: bit(structured.ecx, 3),
    }
}

/// Returns the size of the enabled extended-state components in the standard format, in bytes.
pub fn enabled_state_size() -> usize {
    __cpuid_count(0xd, 0).ebx as usize
}

/// Returns CPUID leaf 1 EDX, which Linux passes to programs as AT_HWCAP.
pub fn hardware_capabilities() -> u64 {
    u64::from(__cpuid(1).edx)
}
