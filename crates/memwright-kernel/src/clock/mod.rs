//! The guest's clock: the time-stamp counter minus the time in which the machine was stopped.
//!
//! Under the pinned clock, the counter counts nanoseconds, one for each instruction. If the CPUs run by the host's
//! clock, the counter has a rate of its own, which is measured against the timer at boot. The timer always counts
//! nanoseconds.
//!
//! While the clock is paused, the timer is stopped as well. When the clock resumes, the timer is set again for the
//! CPU's deadline, so the deadline passes at the same guest instruction however long the pause was.
//!
//! The counter itself continues during a pause, by an amount that depends on the host. So before the kernel uses a
//! duration that it measured with the counter, it must subtract every pause from it: see
//! [`stretch::leave_out_everywhere`].
//!
//! All CPUs share the clock. With several CPUs, the clock is therefore paused only while the other CPUs are stopped,
//! which is during a wait for input or the disk. Output takes no guest time with one CPU, but takes guest time with
//! several.

mod rate;
pub mod stretch;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::percpu::{self, PerCpu};
use crate::{apic, arch};

pub use rate::{calibrate, counts_nanoseconds, nanoseconds};

/// The counter value at boot plus the lengths of all pauses that have ended.
static OFFSET: AtomicU64 = AtomicU64::new(0);
/// Counter value at the start of the current pause.
static PAUSED_AT: AtomicU64 = AtomicU64::new(0);
/// Nesting depth of pauses.
static PAUSES: AtomicU32 = AtomicU32::new(0);

/// The value of a deadline that is not set.
pub const NEVER: u64 = u64::MAX;

/// Ticks that are subtracted for each pause in addition to the difference of its two counter readings. They account for
/// the instructions of the pause before the first reading and after the second reading.
const OVERHEAD: u64 = 0;

/// The time in nanoseconds for which this CPU halts in [`settle`].
const SETTLING: u32 = 10_000;

/// Starts the clock at zero.
pub fn start() {
    OFFSET.store(arch::ticks(), Ordering::Relaxed);
}

/// Returns the ticks of the counter since boot, minus the pauses that have ended.
pub fn ticks() -> u64 {
    arch::ticks().wrapping_sub(OFFSET.load(Ordering::Relaxed))
}

/// Returns the ticks of the counter since boot, minus all pauses, including the current one.
#[inline(always)]
pub fn elapsed() -> u64 {
    let ticks = if PAUSES.load(Ordering::Relaxed) == 0 {
        arch::ticks()
    } else {
        PAUSED_AT.load(Ordering::Relaxed)
    };
    ticks.wrapping_sub(OFFSET.load(Ordering::Relaxed))
}

/// Returns the nanoseconds since boot, minus all pauses.
#[inline(always)]
pub fn now() -> u64 {
    nanoseconds(elapsed())
}

/// Sets or clears this CPU's deadline.
#[inline]
pub fn set_deadline(deadline: Option<u64>) {
    let cpu = percpu::current();
    let deadline = deadline.unwrap_or(NEVER);
    cpu.deadline.store(deadline, Ordering::Relaxed);
    if PAUSES.load(Ordering::Relaxed) == 0 {
        arm(deadline);
    }
}

/// Returns this CPU's deadline.
pub fn deadline() -> Option<u64> {
    let deadline = percpu::current().deadline.load(Ordering::Relaxed);
    (deadline != NEVER).then_some(deadline)
}

/// Returns the timer value for `deadline` at time `now`: at least one tick, and at most the capacity of the timer's
/// register. If the timer fires before the deadline, it is set again. Returns 0, which stops the timer, if there is no
/// deadline.
const fn timer_ticks(deadline: u64, now: u64) -> u32 {
    if deadline == NEVER {
        return 0;
    }
    let left = deadline.saturating_sub(now);
    if left > u32::MAX as u64 {
        u32::MAX
    } else if left == 0 {
        1
    } else {
        left as u32
    }
}

fn arm(deadline: u64) {
    apic::set_timer(timer_ticks(deadline, now()));
}

/// Sets this CPU's timer for the CPU's deadline again, after the machine was stopped.
pub fn arm_again(cpu: &PerCpu) {
    arm(cpu.deadline.load(Ordering::Relaxed));
}

/// Halts this CPU until an interrupt arrives, for at most `limit` nanoseconds. The CPU's deadline remains set.
pub fn nap(cpu: &PerCpu, limit: u32) {
    let left = timer_ticks(cpu.deadline.load(Ordering::Relaxed), now());
    apic::set_timer(if left == 0 { limit } else { left.min(limit) });
    arch::wait_for_interrupt();
    arm_again(cpu);
}

/// Handles the timer's interrupt. Returns whether the deadline has passed. If it has not, sets the timer again.
pub fn timer_fired(cpu: &PerCpu) -> bool {
    let deadline = cpu.deadline.load(Ordering::Relaxed);
    if deadline > now() {
        arm(deadline);
        return false;
    }
    cpu.deadline.store(NEVER, Ordering::Relaxed);
    true
}

/// Stops the clock and the timer for work that must not count as guest time. Pauses nest. Does nothing with several
/// CPUs.
pub fn pause() {
    if percpu::count() == 1 {
        stop();
    }
}

/// Ends a [`pause`]. Does nothing with several CPUs.
pub fn resume() {
    if percpu::count() == 1 {
        go_on();
    }
}

/// Stops the clock and this CPU's timer. The caller must have stopped the other CPUs. Calls nest.
pub fn stop() {
    if PAUSES.load(Ordering::Relaxed) == 0 {
        PAUSED_AT.store(arch::ticks(), Ordering::Relaxed);
        apic::set_timer(0);
    }
    PAUSES.store(PAUSES.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Halts this CPU for a moment while the other CPUs and the clock are stopped. QEMU ends the turn of a CPU by a
/// separate clock, which stops while all CPUs are halted. A pause that calls this function has a time at which all CPUs
/// are halted. Without the call, the host would determine whether it has one.
pub fn settle() {
    apic::set_timer(SETTLING);
    arch::wait_for_interrupt();
}

/// Ends one [`stop`]. When the last one ends, the clock and this CPU's timer resume. Does nothing if the clock is not
/// stopped.
pub fn go_on() {
    let pauses = PAUSES.load(Ordering::Relaxed);
    if pauses == 0 {
        return;
    }
    PAUSES.store(pauses - 1, Ordering::Relaxed);
    if pauses > 1 {
        return;
    }
    let passed = arch::ticks() - PAUSED_AT.load(Ordering::Relaxed) + OVERHEAD;
    percpu::add(&OFFSET, passed);
    stretch::leave_out_everywhere(passed);
    arm_again(percpu::current());
}
