//! The end of a run after a kernel failure. For the failed CPU, the report contains the cause, the registers, the held
//! locks, a backtrace and the recent events. For every other CPU, it contains a short backtrace and the held locks. The
//! state of the personality follows. The code that writes the report waits for no lock and allocates no memory.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memwright_linux::syscall::described::DeepestStack;
use memwright_linux_abi::channel::Channel;

use super::console::{self, Text};
use super::{DEEPEST, frames, place, short_backtrace, state};
use crate::arch::power_off;
use crate::context::depth;
use crate::memory::paging::USER_LIMIT;
use crate::trap::frame::TrapFrame;
use crate::{apic, arch, percpu, usercopy};

/// The CPU whose failure is reported, as its index plus one; 0 for none.
static FAILED: AtomicU32 = AtomicU32::new(0);
/// The number of reports that the failed CPU has begun. A failure while a report is written begins another report, and
/// this number limits such reports.
static REPORTS: AtomicU32 = AtomicU32::new(0);
/// The CPUs that have stopped because another CPU failed, as one bit per CPU.
static STOPPED: AtomicU64 = AtomicU64::new(0);
/// The stopped CPU whose turn it is to write its report, as its index plus one; 0 for none.
static TURN: AtomicU32 = AtomicU32::new(0);
/// The stopped CPUs that have written their reports, as one bit per CPU.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Exit status of the machine after a panic.
const PANIC_STATUS: u8 = 0x3f;
/// The maximum number of steps for which this CPU waits for a CPU that may never answer.
const PATIENCE: u32 = 1_000_000;

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
    let _ = frames(&mut text, frame, DEEPEST);
    finish(text)
}

/// Formats the message and the location of a panic on one line.
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

/// Starts a report and stops the other CPUs. Powers the machine off if too many reports have failed.
pub fn begin() -> Text {
    let own = own_mark();
    match FAILED.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            stop_others();
            console::pad_open_frame();
        }
        Err(failed) if failed == own => console::pad_open_frame(),
        // Another CPU failed first. This CPU writes its report when its turn comes.
        Err(_) => stop(|text| {
            writeln!(text, "CPU {} failed at the same time:", own - 1)?;
            short_backtrace(text, arch::frame_pointer())
        }),
    }
    if REPORTS.fetch_add(1, Ordering::Relaxed) >= 2 {
        power_off(PANIC_STATUS);
    }
    Text::new(Channel::Panic)
}

/// Adds the common part of all reports, and powers the machine off without a result frame.
pub fn finish(mut text: Text) -> ! {
    let _ = state(&mut text, percpu::current());
    if let Some(deepest) = depth::known() {
        let _ = writeln!(text, "{}", DeepestStack(deepest));
    }
    // A second report must not query the other CPUs or the personality: such a query may have failed in the first
    // report.
    if REPORTS.load(Ordering::Relaxed) == 1 {
        let _ = others(&mut text);
        if let Some(events) = usercopy::events() {
            events.fatal_report(&mut text);
        }
    }
    text.flush();
    power_off(PANIC_STATUS)
}

fn own_mark() -> u32 {
    percpu::current().index.load(Ordering::Relaxed) + 1
}

/// Returns the online CPUs except this one, as one bit per CPU.
fn other_cpus() -> u64 {
    percpu::online() & !(1 << (own_mark() - 1))
}

/// Waits for at most `PATIENCE` steps until `answered` contains all of `cpus`.
fn wait_for(answered: &AtomicU64, cpus: u64) {
    for _ in 0..PATIENCE {
        if answered.load(Ordering::Acquire) & cpus == cpus {
            return;
        }
        arch::pause();
    }
}

/// Stops every other CPU by an NMI, regardless of its state. A CPU that is writing a frame completes the frame first.
fn stop_others() {
    let others = other_cpus();
    for index in (0..percpu::count()).filter(|index| others >> index & 1 != 0) {
        apic::send_nmi(percpu::apic_id(index));
    }
    wait_for(&STOPPED, others);
}

/// Makes every stopped CPU write its report, one after another.
fn others(text: &mut Text) -> fmt::Result {
    let others = other_cpus();
    for index in (0..percpu::count()).filter(|index| others >> index & 1 != 0) {
        text.flush();
        TURN.store(index as u32 + 1, Ordering::Release);
        if STOPPED.load(Ordering::Acquire) >> index & 1 != 0 {
            wait_for(&WRITTEN, 1 << index);
        }
        if WRITTEN.load(Ordering::Acquire) >> index & 1 == 0 {
            writeln!(text, "CPU {index} does not answer")?;
        }
    }
    Ok(())
}

/// Returns whether another CPU has failed. This CPU must then stop.
pub fn must_stop() -> bool {
    let failed = FAILED.load(Ordering::Acquire);
    failed != 0 && failed != own_mark()
}

/// Returns whether this CPU reports its own failure.
pub fn is_failing() -> bool {
    FAILED.load(Ordering::Acquire) == own_mark()
}

/// Stops this CPU because another CPU failed. `frame` is the trap frame of the NMI. Without it, the backtrace begins at
/// the caller.
pub fn stop_for_other(frame: Option<&TrapFrame>) -> ! {
    stop(|text| match frame {
        Some(frame) => {
            let (index, place) = (own_mark() - 1, place(frame));
            writeln!(text, "CPU {index} in {place}:\n  at {:#x}", frame.rip)?;
            if frame.rip < USER_LIMIT {
                return Ok(());
            }
            short_backtrace(text, frame.rbp)
        }
        None => {
            writeln!(
                text,
                "CPU {} in the kernel, writing output:",
                own_mark() - 1
            )?;
            short_backtrace(text, arch::frame_pointer())
        }
    })
}

/// Waits for this CPU's turn, writes `report`, and stops permanently.
fn stop(report: impl FnOnce(&mut Text) -> fmt::Result) -> ! {
    let own = own_mark();
    let bit = 1 << (own - 1);
    STOPPED.fetch_or(bit, Ordering::AcqRel);
    while TURN.load(Ordering::Acquire) != own {
        arch::pause();
    }
    let mut text = Text::new(Channel::Panic);
    let _ = report(&mut text);
    drop(text);
    WRITTEN.fetch_or(bit, Ordering::AcqRel);
    arch::halt_forever()
}
