//! The report of a failure: what happened, registers, held locks, a backtrace, recent events, and
//! what the personality knows. It takes no lock and allocates nothing.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use memwright_linux::channel::Channel;
use memwright_table::sync;

use crate::console::Text;
use crate::host::power_off;
use crate::paging::{self, USER_LIMIT};
use crate::percpu::{self, PerCpu};
use crate::trap::idt::vector;
use crate::trap::kernel::{FAULT_FETCH, FAULT_PRESENT, FAULT_WRITE, TrapFrame};
use crate::{arch, console, context, selftest, trace, usercopy};

/// How many reports have begun: a failure inside a report must not start another for ever.
static REPORTS: AtomicU32 = AtomicU32::new(0);
/// A backtrace was asked for while a frame was open.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The status with which the machine ends after a panic.
const PANIC_STATUS: u8 = 0x3f;

/// Most return addresses of a backtrace.
const DEEPEST: usize = 64;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut text = begin();
    let _ = writeln!(text, "Memwright's kernel panicked: {}", Message(info));
    let (frame, stack) = (arch::frame_pointer(), arch::stack_pointer());
    let (address, root) = (arch::fault_address(), arch::root());
    let _ = writeln!(
        text,
        "rsp {stack:016x}  rbp {frame:016x}  cr2 {address:016x}  cr3 {root:016x}"
    );
    let _ = writeln!(text, "backtrace:");
    let _ = frames(&mut text, frame);
    finish(text)
}

/// Message and place on one line.
struct Message<'a>(&'a PanicInfo<'a>);

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.message())?;
        match self.0.location() {
            Some(place) => write!(f, " ({}:{})", place.file(), place.line()),
            None => Ok(()),
        }
    }
}

/// An exception in the kernel that nothing expects. Ends the run, unless a self-test provoked it.
pub fn exception(frame: &mut TrapFrame, address: u64) {
    if selftest::caught(frame, address) {
        return;
    }
    let mut text = begin();
    let _ = describe(&mut text, frame, address);
    let _ = registers(&mut text, frame, address);
    let _ = writeln!(text, "backtrace:\n  at {:#x}", frame.rip);
    let _ = frames(&mut text, frame.rbp);
    finish(text)
}

/// Writes the one line that says what an exception means.
fn describe(text: &mut Text, frame: &TrapFrame, address: u64) -> fmt::Result {
    let number = frame.vector as u8;
    let overflow = matches!(number, vector::PAGE_FAULT | vector::DOUBLE_FAULT)
        && (context::is_guard(address) || context::is_guard(frame.rsp.wrapping_sub(8)));
    if overflow {
        return writeln!(
            text,
            "Memwright's kernel overflowed its stack: {address:#x} is a guard page"
        );
    }
    if number != vector::PAGE_FAULT {
        let name = exception_name(number);
        let error = frame.error;
        return writeln!(
            text,
            "Memwright's kernel met an exception: {name} ({number}), error {error:#x}"
        );
    }
    let access = if frame.error & FAULT_FETCH != 0 {
        "execute"
    } else if frame.error & FAULT_WRITE != 0 {
        "write"
    } else {
        "read"
    };
    let why = match (frame.error & FAULT_PRESENT != 0, address < USER_LIMIT) {
        (true, true) => "user memory outside of a user copy (SMAP, SMEP)",
        (true, false) => "its protection forbids it",
        (false, _) => "nothing is mapped there",
    };
    writeln!(
        text,
        "Memwright's kernel could not {access} {address:#x}: {why}"
    )
}

const fn exception_name(number: u8) -> &'static str {
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

fn registers(text: &mut Text, f: &TrapFrame, address: u64) -> fmt::Result {
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

/// Starts a report, or ends the machine if reports fail themselves.
fn begin() -> Text {
    if REPORTS.fetch_add(1, Ordering::Relaxed) >= 2 {
        power_off(PANIC_STATUS);
    }
    console::pad_open_frame();
    Text::new(Channel::Panic)
}

/// Adds what every report has, and ends the machine without a result frame.
fn finish(mut text: Text) -> ! {
    let _ = state(&mut text, percpu::current());
    // A second report must not ask a personality that just failed.
    if REPORTS.load(Ordering::Relaxed) == 1
        && let Some(events) = usercopy::events()
    {
        events.fatal_report(&mut text);
    }
    text.flush();
    power_off(PANIC_STATUS)
}

/// Locks that the CPU holds, and its recent events.
fn state(text: &mut Text, cpu: &PerCpu) -> fmt::Result {
    let index = cpu.index.load(Ordering::Relaxed);
    if cfg!(debug_assertions) {
        write!(text, "locks held:")?;
        for rank in sync::held(index as usize).iter() {
            write!(text, " {rank:?}")?;
        }
        writeln!(text)?;
    }
    writeln!(text, "last events of CPU {index}:")?;
    for event in cpu.ring.iter() {
        event_line(text, event)?;
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
        trace::Kind::SystemCall => {
            writeln!(text, "  {time} system call {detail}, from {address:#x}")
        }
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

/// A recursion's one line.
fn repeated(text: &mut Text, times: u32) -> fmt::Result {
    if times == 0 {
        Ok(())
    } else {
        writeln!(text, "     ({times} more times)")
    }
}

/// Return addresses along the chain of frame pointers, as long as it stays on kernel stacks.
fn frames(text: &mut Text, mut frame_pointer: u64) -> fmt::Result {
    let (mut last, mut repeats) = (0, 0);
    for _ in 0..DEEPEST {
        let on_stack = |address| {
            context::stack_of(address)
                .or_else(|| percpu::current().interrupt_stack_of(address))
                .is_some_and(|(low, high)| address >= low && address + 16 <= high)
        };
        if !frame_pointer.is_multiple_of(8) || !on_stack(frame_pointer) {
            break;
        }
        // SAFETY: both words lie on a kernel stack that `on_stack` knows. Slots that are not in use
        // are not mapped: a stray pointer into one ends in a nested report.
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

/// An NMI asks for a backtrace. Inside an open frame it waits until the frame is complete.
pub fn backtrace_request(frame: &TrapFrame) {
    if console::is_open() {
        REQUESTED.store(true, Ordering::Relaxed);
        return;
    }
    let mut text = Text::new(Channel::Panic);
    let index = percpu::current().index.load(Ordering::Relaxed);
    let user = frame.rip < USER_LIMIT;
    let place = if user { "user mode" } else { "the kernel" };
    let _ = writeln!(text, "CPU {index} in {place}:");
    let _ = registers(&mut text, frame, arch::fault_address());
    if !user {
        let _ = writeln!(text, "  at {:#x}", frame.rip);
        let _ = frames(&mut text, frame.rbp);
    }
    rest_of_request(text);
}

/// Answers a request that came while a frame was open.
#[inline(always)]
pub fn answer_request() {
    if REQUESTED.load(Ordering::Relaxed) {
        answer();
    }
}

#[cold]
fn answer() {
    REQUESTED.store(false, Ordering::Relaxed);
    let mut text = Text::new(Channel::Panic);
    let index = percpu::current().index.load(Ordering::Relaxed);
    let _ = writeln!(text, "CPU {index} in the kernel, writing output:");
    let _ = frames(&mut text, arch::frame_pointer());
    rest_of_request(text);
}

fn rest_of_request(mut text: Text) {
    let _ = state(&mut text, percpu::current());
    if let Some(events) = usercopy::events() {
        events.fatal_report(&mut text);
    }
}
