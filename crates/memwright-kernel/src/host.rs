//! Implements the traits of `Host`, through which the personality uses this machine.

use core::sync::atomic::{AtomicU64, Ordering};

use alloc::boxed::Box;
use memwright_kernel_logic::retired;
use memwright_linux::run::{Execution, UserThread};
use memwright_linux_abi::arch::x86_64::debug::DebugRegisters;
use memwright_linux_abi::arch::x86_64::regs::{FpuArea, UserRegs, UserState};
use memwright_linux_abi::channel::Channel;
use memwright_linux_abi::host::{
    BlockDevice, Channels, Clock, ContextId, Contexts, CpuTimes, Cpus, Host, Instruments,
    InterruptKind, KernelEvents, OutOfMemory, Registers, StackDepth, Stretch, Trap, UserAccess,
    UserFault,
};
use memwright_table::{CpuId, Frame};

use crate::arch::{self, debug, fpu, vector};
use crate::clock::{self, stretch};
use crate::machine::Hardware;
use crate::memory::paging;
use crate::report::console;
use crate::trace::Kind;
use crate::trap::entry::{self, LOOK, SYSTEM_CALL};
use crate::trap::frame::{FAULT_FETCH, FAULT_KEY, FAULT_PRESENT, FAULT_RESERVED, FAULT_WRITE};
use crate::{apic, context, control, disk, heap, input, ipi, percpu, smp, usercopy};

impl Execution for Hardware {
    fn run_user(&self, thread: &UserThread<'_>) -> Trap {
        let argument = core::ptr::from_ref(thread).cast();
        // SAFETY: the personality has loaded a root made from the template and keeps the bases canonical. It borrows
        // the state only while `serve_call` runs, to which the thread is passed.
        unsafe {
            run(
                thread.registers().state_pointer(),
                serve_call as *const (),
                argument,
            )
        }
    }
}

impl Clock for Hardware {
    fn now(&self) -> u64 {
        clock::now()
    }

    fn set_deadline(&self, deadline: Option<u64>) {
        clock::set_deadline(deadline);
    }

    fn pause_clock(&self) {
        clock::pause();
    }

    fn resume_clock(&self) {
        clock::resume();
    }
}

impl Cpus for Hardware {
    fn start_cpus(&self) {
        smp::start_all();
    }

    fn kick(&self, cpu: CpuId) {
        ipi::kick(cpu.index());
    }

    fn interrupts(&self, cpu: CpuId, kind: InterruptKind) -> u64 {
        percpu::of(cpu.index()).map_or(0, |cpu| {
            cpu.interrupts[kind as usize].load(Ordering::Relaxed)
        })
    }

    fn times(&self, cpu: CpuId) -> CpuTimes {
        let Some(cpu) = percpu::of(cpu.index()) else {
            return CpuTimes::default();
        };
        let part = |ticks: &AtomicU64| clock::nanoseconds(ticks.load(Ordering::Relaxed));
        let (user, idle) = (part(&cpu.user_ticks), part(&cpu.idle_ticks));
        CpuTimes {
            user,
            system: self.now().saturating_sub(user + idle),
            idle,
        }
    }

    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        arch::cpuid(leaf, subleaf)
    }

    fn hardware_capabilities(&self) -> u64 {
        arch::hardware_capabilities()
    }

    fn idle(&self) {
        let cpu = percpu::current();
        // Measure with the guest's clock, which does not advance while another CPU has stopped this one.
        let start = clock::elapsed();
        arch::wait_for_interrupt();
        // The caller checks for all events after the return, so the recorded interrupts need not be raised again.
        cpu.missed.store(0, Ordering::Relaxed);
        percpu::add(&cpu.idle_ticks, clock::elapsed() - start);
        cpu.changed.store(arch::ticks(), Ordering::Relaxed);
    }
}

impl Contexts for Hardware {
    fn most_contexts(&self) -> usize {
        context::MOST
    }

    fn create_context(&self, argument: usize) -> Result<ContextId, OutOfMemory> {
        context::create(argument)
    }

    fn switch_context(&self, from: ContextId, to: ContextId) {
        context::switch(from, to);
    }

    fn destroy_context(&self, context: ContextId) {
        context::destroy(context);
    }

    fn boot_context(&self) -> ContextId {
        smp::idle_context()
    }

    fn kernel_root(&self) -> Option<Frame> {
        Some(Frame::new((paging::template() / 4096) as u32))
    }
}

impl Registers for Hardware {
    fn load_bases(&self, user: &UserState) {
        // SAFETY: the personality accepts only user addresses, which are canonical.
        unsafe { arch::load_user_bases(user.fs_base, user.gs_base) };
    }

    fn store_bases(&self, user: &mut UserState) {
        (user.fs_base, user.gs_base) = arch::user_bases();
    }

    fn save_fpu(&self, area: &mut FpuArea) {
        fpu::save(area);
    }

    fn restore_fpu(&self, area: &FpuArea) {
        fpu::restore(area);
    }

    fn fpu_size(&self) -> usize {
        fpu::size()
    }

    fn fpu_features(&self) -> u64 {
        fpu::features()
    }

    fn set_key_rights(&self, rights: u32) {
        fpu::set_key_rights(rights);
    }

    fn entered_with(&self) -> Option<UserRegs> {
        let state = percpu::current().user_state.load(Ordering::Relaxed);
        let pointer = arch::stack_pointer();
        let (_, top) = context::stack_of(pointer)?;
        // The state of a thread is on the thread's own stack. Until the thread has been in user mode, the recorded
        // address is that of another thread's state.
        let end = state.checked_add(size_of::<UserState>() as u64)?;
        // SAFETY: the state is in the part of the running stack that is in use, which is mapped, and an entry from user
        // mode has filled it. The read is volatile because a caller can hold a reference to the state.
        (state >= pointer && end <= top)
            .then(|| unsafe { (&raw const (*(state as *const UserState)).regs).read_volatile() })
    }

    fn load_debug(&self, registers: &DebugRegisters) {
        percpu::current().debug.load(registers);
    }
}

impl Channels for Hardware {
    fn output(&self, channel: Channel, bytes: &[u8]) {
        match channel {
            Channel::Log | Channel::Account | Channel::Trace | Channel::SystemCalls => {
                clock::pause();
                console::frame(channel, bytes);
                clock::resume();
            }
            Channel::Stdout
            | Channel::Stderr
            | Channel::InputRequest
            | Channel::LowerRequest
            | Channel::Panic
            | Channel::Result => console::frame(channel, bytes),
        }
    }

    fn input(&self, to: &mut [u8]) -> Option<usize> {
        input::read(to)
    }

    fn control(&self) -> Option<u8> {
        control::take()
    }

    fn lower(&self, request: &[u8], answer: &mut [u8]) -> usize {
        input::ask(Channel::LowerRequest, request, answer).unwrap_or(0)
    }
}

impl UserAccess for Hardware {
    fn copy_from_user(&self, to: &mut [u8], from: u64) -> Result<(), UserFault> {
        usercopy::copy_from_user(to, from)
    }

    fn copy_to_user(&self, to: u64, from: &[u8]) -> Result<(), UserFault> {
        usercopy::copy_to_user(to, from)
    }

    fn copy_frame_to_user(
        &self,
        to: u64,
        frame: Frame,
        offset: usize,
        length: usize,
    ) -> Result<(), UserFault> {
        usercopy::copy_frame_to_user(to, frame, offset, length)
    }

    fn copy_frame_from_user(
        &self,
        frame: Frame,
        offset: usize,
        length: usize,
        from: u64,
    ) -> Result<(), UserFault> {
        usercopy::copy_frame_from_user(frame, offset, length, from)
    }

    fn clear_user(&self, to: u64, length: usize) -> Result<(), UserFault> {
        usercopy::clear_user(to, length)
    }

    fn user_load32(&self, address: u64) -> Result<u32, UserFault> {
        usercopy::user_load32(address)
    }

    fn user_compare_exchange32(&self, address: u64, old: u32, new: u32) -> Result<u32, UserFault> {
        usercopy::user_compare_exchange32(address, old, new)
    }

    fn user_peek32(&self, address: u64) -> Option<u32> {
        usercopy::user_peek32(address)
    }

    fn user_try_exchange32(&self, address: u64, old: u32, new: u32) -> Option<u32> {
        usercopy::user_try_exchange32(address, old, new)
    }
}

impl Instruments for Hardware {
    fn mark_run_begins(&self) {
        arch::mark_run_begins();
    }

    fn mark_run_ends(&self) {
        arch::mark_run_ends();
    }

    fn user_instructions(&self) -> u64 {
        clock::nanoseconds(percpu::current().user_ticks.load(Ordering::Relaxed))
    }

    fn kernel_instructions(&self) -> u64 {
        let cpu = percpu::current();
        // The corrections for entries and exits can make the difference slightly negative.
        let user = cpu.user_ticks.load(Ordering::Relaxed);
        let elsewhere = user.wrapping_add(cpu.idle_ticks.load(Ordering::Relaxed));
        clock::now().saturating_sub(clock::nanoseconds(elsewhere))
    }

    fn interrupt_instructions(&self) -> u64 {
        clock::nanoseconds(percpu::current().interrupt_ticks.load(Ordering::Relaxed))
    }

    fn heap_low(&self) -> bool {
        heap::is_low()
    }

    fn heap_used(&self) -> usize {
        heap::used()
    }

    fn deepest_stack(&self) -> Option<StackDepth> {
        context::deepest_stack()
    }

    fn longest_stretch(&self) -> Stretch {
        stretch::longest()
    }

    fn forget_stretches(&self) {
        stretch::forget();
    }
}

impl Host for Hardware {
    fn set_events(&self, events: &'static dyn KernelEvents) {
        usercopy::set_events(Box::leak(Box::new(events)));
    }

    fn disk(&self) -> Option<&'static dyn BlockDevice> {
        disk::get()
    }

    fn power_off(&self, code: u8) -> ! {
        arch::power_off(code)
    }
}

/// Serves a system call of the thread. Returns whether the thread can return to user mode at once.
extern "C" fn serve_call(thread: &UserThread<'_>) -> bool {
    let served = thread.serve();
    if cfg!(debug_assertions) {
        context::after_call(thread.registers().state().regs.orig_rax);
    }
    served
}

/// Runs user mode until an event that the personality must handle: a trap that this kernel does not handle completely,
/// or a system call for which `serve` returned false.
///
/// # Safety
/// The requirements of [`entry::enter_user`] apply.
pub unsafe fn run(user: *mut UserState, serve: *const (), argument: *const ()) -> Trap {
    loop {
        // SAFETY: guaranteed by the caller.
        let left = unsafe { entry::enter_user(user, serve, argument) };
        if left.vector == SYSTEM_CALL {
            return Trap::Syscall;
        }
        // SAFETY: user mode has been left, and only user mode and `serve` use the state.
        let (rip, call) = unsafe { ((*user).regs.rip, (*user).regs.orig_rax) };
        if left.vector == LOOK {
            stretch::look(percpu::current(), call);
            continue;
        }
        // Determine the current CPU only now: a system call that waited can return on another CPU.
        if let Some(trap) = trap_of(percpu::current(), left.vector as u8, left.error, rip) {
            return trap;
        }
    }
}

/// Converts a trap from user mode, which is not a system call, to a trap for the personality. Returns `None` if this
/// kernel has handled the trap and user mode can continue.
fn trap_of(cpu: &percpu::PerCpu, number: u8, error: u64, rip: u64) -> Option<Trap> {
    match number {
        vector::PAGE_FAULT if error & FAULT_RESERVED == 0 => {
            let address = arch::fault_address();
            let changed = cpu.changed.load(Ordering::Relaxed);
            cpu.ring
                .record(Kind::UserTrap, u64::from(number), address, changed);
            if error & FAULT_KEY != 0 {
                let write = error & FAULT_WRITE != 0;
                return Some(Trap::KeyFault { address, write });
            }
            Some(Trap::PageFault {
                address,
                write: error & FAULT_WRITE != 0,
                fetch: error & FAULT_FETCH != 0,
                present: error & FAULT_PRESENT != 0,
            })
        }
        vector::PAGE_FAULT => panic!(
            "a page-table entry has a reserved bit set: address {:#x}, error {error:#x}",
            arch::fault_address()
        ),
        _ => other_trap(cpu, number, error, rip),
    }
}

/// Converts a trap that is not a page fault, like `trap_of`.
// Not inlined, so that page faults do not become slower.
#[cold]
#[inline(never)]
fn other_trap(cpu: &percpu::PerCpu, number: u8, error: u64, rip: u64) -> Option<Trap> {
    take_back(cpu, number, rip);
    match number {
        // `INVALIDATE` does not leave user mode, so it is missing here.
        vector::TIMER
        | vector::RESCHEDULE
        | vector::HOLD
        | vector::WAKE
        | vector::CONTROL
        | vector::INPUT
        | vector::SPURIOUS => {
            cpu.begin_interrupt();
            interrupt(cpu, number)
        }
        _ => {
            let changed = cpu.changed.load(Ordering::Relaxed);
            cpu.ring
                .record(Kind::UserTrap, u64::from(number), rip, changed);
            let error = match number {
                vector::DEBUG => debug::take_status(),
                _ => error,
            };
            Some(Trap::Exception {
                vector: number,
                error,
            })
        }
    }
}

/// Handles an interrupt that arrived in user mode. Returns a trap if the personality must handle the interrupt as well.
fn interrupt(cpu: &percpu::PerCpu, number: u8) -> Option<Trap> {
    match number {
        vector::TIMER => {
            apic::acknowledge();
            cpu.count(InterruptKind::Timer);
            clock::timer_fired(cpu).then_some(Trap::Timer)
        }
        vector::RESCHEDULE => {
            ipi::taken(cpu, number);
            Some(Trap::Reschedule)
        }
        // `taken` stops this CPU if `HOLD` requests that. A `WAKE` that arrives in user mode is late, because another
        // event has ended the halt already.
        vector::HOLD | vector::WAKE => {
            ipi::taken(cpu, number);
            None
        }
        vector::CONTROL => {
            control::receive();
            apic::acknowledge();
            Some(Trap::Control)
        }
        vector::INPUT => {
            apic::acknowledge();
            None
        }
        _ => None,
    }
}

/// Moves the surplus instructions of this trap's entry from user time to kernel time. The entry code accounts for as
/// many instructions as a page fault's entry executes. The surplus is the number of instructions that this trap's entry
/// executes in addition to these.
fn take_back(cpu: &percpu::PerCpu, number: u8, rip: u64) {
    let surplus = retired::surplus(number, || code_at(rip));
    for ticks in [&cpu.user_ticks, &cpu.changed] {
        let entered = ticks.load(Ordering::Relaxed);
        // The difference can be negative if the CPUs run by the host's clock, because the entry can then take fewer
        // ticks than it has instructions.
        ticks.store(entered.wrapping_sub(surplus), Ordering::Relaxed);
    }
}

/// Returns the bytes of user memory from `address` on, up to the first word that cannot be read, and the number of
/// these bytes.
fn code_at(address: u64) -> ([u8; retired::LONGEST], usize) {
    let mut code = [0; retired::LONGEST];
    let mut length = 0;
    // Read aligned words: none of them crosses a page boundary, so the readable bytes before an unmapped page are
    // found.
    let mut skipped = (address & 3) as usize;
    let mut word_at = address & !3;
    while let Some(word) = usercopy::user_peek32(word_at) {
        for byte in word.to_le_bytes().into_iter().skip(skipped) {
            if length == code.len() {
                return (code, length);
            }
            code[length] = byte;
            length += 1;
        }
        skipped = 0;
        word_at += 4;
    }
    (code, length)
}
