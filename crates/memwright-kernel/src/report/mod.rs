//! Reports about a CPU: its registers, a backtrace, held locks, recent events. An NMI requests such a report from every
//! CPU. The CPUs answer one after another, and the last CPU adds the state of the personality.

pub mod console;
pub mod panic;

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memwright_linux_abi::channel::Channel;
use memwright_table::sync;

use crate::memory::paging::{self, USER_LIMIT};
use crate::percpu::{self, PerCpu};
use crate::trap::frame::TrapFrame;
use crate::{arch, context, ipi, trace, usercopy};
use console::Text;

/// Whether a CPU is writing its answer.
static ANSWERING: AtomicBool = AtomicBool::new(false);
/// The CPUs that have answered the current request, as one bit per CPU.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// The maximum number of return addresses in a backtrace.
pub const DEEPEST: usize = 64;
/// The maximum number of return addresses in a short backtrace.
const SHORT: usize = 12;

/// Returns the name of an exception.
pub const fn exception_name(number: u8) -> &'static str {
    match number {
        0 => "divide error",
        1 => "debug",
        2 => "NMI",
        3 => "breakpoint",
        4 => "overflow",
        5 => "bound range",
        6 => "invalid opcode",
        7 => "device not available",
        8 => "double fault",
        10 => "invalid TSS",
        11 => "segment not present",
        12 => "stack fault",
        13 => "general protection",
        14 => "page fault",
        16 => "x87 error",
        17 => "alignment check",
        18 => "machine check",
        19 => "SIMD error",
        21 => "control protection",
        _ => "unexpected vector",
    }
}

/// Writes the registers at a trap. `address` is the value of CR2.
pub fn registers(text: &mut Text, f: &TrapFrame, address: u64) -> fmt::Result {
    writeln!(
        text,
        "rip {:016x}  rsp {:016x}  rflags {:08x}  cs {:02x}",
        f.rip, f.rsp, f.flags, f.cs
    )?;
    writeln!(
        text,
        "rax {:016x}  rbx {:016x}  rcx {:016x}  rdx {:016x}",
        f.rax, f.rbx, f.rcx, f.rdx
    )?;
    writeln!(
        text,
        "rsi {:016x}  rdi {:016x}  rbp {:016x}  r8  {:016x}",
        f.rsi, f.rdi, f.rbp, f.r8
    )?;
    writeln!(
        text,
        "r9  {:016x}  r10 {:016x}  r11 {:016x}  r12 {:016x}",
        f.r9, f.r10, f.r11, f.r12
    )?;
    writeln!(
        text,
        "r13 {:016x}  r14 {:016x}  r15 {:016x}",
        f.r13, f.r14, f.r15
    )?;
    writeln!(
        text,
        "cr2 {address:016x}  cr3 {:016x}  cr4 {:08x}",
        arch::root(),
        arch::cr4()
    )
}

/// Writes the locks that this CPU holds, the CPUs that it waits for, and its recent events.
pub fn state(text: &mut Text, cpu: &PerCpu) -> fmt::Result {
    held_locks(text, cpu)?;
    let index = cpu.index.load(Ordering::Relaxed);
    writeln!(text, "last events of CPU {index}:")?;
    for event in cpu.ring.iter() {
        event_line(text, event)?;
    }
    Ok(())
}

/// Writes the locks that this CPU holds (in debug builds), and the CPUs that it waits for.
fn held_locks(text: &mut Text, cpu: &PerCpu) -> fmt::Result {
    let index = cpu.index.load(Ordering::Relaxed) as usize;
    if cfg!(debug_assertions) {
        write!(text, "locks held:")?;
        for rank in sync::held(index).iter() {
            write!(text, " {rank:?}")?;
        }
        writeln!(text)?;
    }
    let awaited = ipi::awaited(index);
    if awaited != 0 {
        write!(text, "waits until these CPUs have forgotten:")?;
        for other in (0..percpu::count()).filter(|other| awaited >> other & 1 != 0) {
            write!(text, " {other}")?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn event_line(text: &mut Text, event: trace::Event) -> fmt::Result {
    let trace::Event {
        kind,
        detail,
        address,
        time,
    } = event;
    match kind {
        trace::Kind::Empty => Ok(()),
        trace::Kind::UserTrap => {
            writeln!(
                text,
                "  {time} user {}, {address:#x}",
                exception_name(detail as u8)
            )
        }
        trace::Kind::KernelTrap => {
            writeln!(
                text,
                "  {time} kernel {}, {address:#x}",
                exception_name(detail as u8)
            )
        }
        trace::Kind::Switch => writeln!(text, "  {time} context {address} to {detail}"),
    }
}

/// Writes a line for the repeated return addresses of a recursion.
fn repeated(text: &mut Text, times: u32) -> fmt::Result {
    if times == 0 {
        Ok(())
    } else {
        writeln!(text, "     ({times} more times)")
    }
}

/// Writes a short backtrace that starts at `frame_pointer`, and the locks that this CPU holds.
pub fn short_backtrace(text: &mut Text, frame_pointer: u64) -> fmt::Result {
    frames(text, frame_pointer, SHORT)?;
    held_locks(text, percpu::current())
}

/// Writes at most `most` return addresses along the chain of frame pointers. Stops where the chain leaves the kernel
/// stacks.
pub fn frames(text: &mut Text, mut frame_pointer: u64, most: usize) -> fmt::Result {
    let (mut last, mut repeats) = (0, 0);
    for _ in 0..most {
        let on_stack = |address| {
            context::stack_of(address)
                .or_else(|| percpu::current().interrupt_stack_of(address))
                .is_some_and(|(low, high)| address >= low && address + 16 <= high)
        };
        if !frame_pointer.is_multiple_of(8) || !on_stack(frame_pointer) {
            break;
        }
        // SAFETY: both words are on a kernel stack that `on_stack` has found. Slots that are not in use are unmapped,
        // so a stray pointer into such a slot causes a nested report.
        let [next, address] = unsafe { *(frame_pointer as *const [u64; 2]) };
        if address < paging::IMAGE_BASE {
            break;
        }
        if address == last {
            repeats += 1;
        } else {
            repeated(text, repeats)?;
            writeln!(text, "  at {address:#x}")?;
            (last, repeats) = (address, 0);
        }
        if next <= frame_pointer {
            break;
        }
        frame_pointer = next;
    }
    repeated(text, repeats)
}

/// Handles an NMI, which means that another CPU has failed or that the command requests a backtrace. If this CPU is
/// writing an output frame, it answers once the frame is complete.
pub fn requested(frame: &TrapFrame) {
    let cpu = percpu::current();
    if panic::is_failing() {
        return;
    }
    if console::is_open() {
        cpu.asked_to_report.store(1, Ordering::Relaxed);
        return;
    }
    if panic::must_stop() {
        panic::stop_for_other(Some(frame));
    }
    answer(cpu, |text| {
        let index = cpu.index.load(Ordering::Relaxed);
        writeln!(text, "CPU {index} in {}:", place(frame))?;
        registers(text, frame, arch::fault_address())?;
        if frame.rip >= USER_LIMIT {
            writeln!(text, "  at {:#x}", frame.rip)?;
            frames(text, frame.rbp, DEEPEST)?;
        }
        Ok(())
    });
}

/// Returns a description of where a trap occurred: in user mode or in the kernel.
pub fn place(frame: &TrapFrame) -> &'static str {
    if frame.rip < USER_LIMIT {
        "user mode"
    } else {
        "the kernel"
    }
}

/// Answers a request that arrived while this CPU was writing an output frame.
#[inline(always)]
pub fn answer_late(cpu: &PerCpu) {
    if cpu.asked_to_report.load(Ordering::Relaxed) != 0 {
        was_requested(cpu);
    }
}

#[cold]
fn was_requested(cpu: &PerCpu) {
    cpu.asked_to_report.store(0, Ordering::Relaxed);
    if panic::must_stop() {
        panic::stop_for_other(None);
    }
    answer(cpu, |text| {
        let index = cpu.index.load(Ordering::Relaxed);
        writeln!(text, "CPU {index} in the kernel, writing output:")?;
        frames(text, arch::frame_pointer(), DEEPEST)
    });
}

/// Waits until no other CPU is writing an answer, and writes this CPU's answer with `report`. While a CPU writes its
/// answer, it waits only for the end of another CPU's output frame.
fn answer(cpu: &PerCpu, report: impl FnOnce(&mut Text) -> fmt::Result) {
    while ANSWERING.swap(true, Ordering::Acquire) {
        if panic::must_stop() {
            return; // the NMI that stops this CPU is taken after the current one
        }
        arch::pause();
    }
    let mut text = Text::new(Channel::Panic);
    let _ = report(&mut text).and_then(|()| state(&mut text, cpu));
    let own = 1 << cpu.index.load(Ordering::Relaxed);
    let answered = ANSWERED.fetch_or(own, Ordering::Relaxed) | own;
    if answered == percpu::online() {
        ANSWERED.store(0, Ordering::Relaxed);
        if let Some(events) = usercopy::events() {
            events.fatal_report(&mut text);
        }
    }
    drop(text);
    ANSWERING.store(false, Ordering::Release);
}
