//! The guest's clock: the time-stamp counter minus the time that the machine stood still.
//!
//! While the clock is paused the timer is stopped too, and afterwards it is set anew against the
//! clock, so that a deadline falls on the same guest instruction however long the pause was.
//!
//! All CPUs share the clock. So with several of them it is paused only while the others stand still,
//! for a wait for input; output, which with one CPU is no guest time, takes time like other work.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::apic;
use crate::arch;
use crate::percpu::{self, PerCpu};

/// Counter reading at boot, plus all pauses so far.
static OFFSET: AtomicU64 = AtomicU64::new(0);
/// Counter reading at which the running pause began.
static PAUSED_AT: AtomicU64 = AtomicU64::new(0);
/// How many pauses are nested.
static PAUSES: AtomicU32 = AtomicU32::new(0);

/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// Instructions of a pause that its two counter readings do not span: they are taken off the clock
/// as well, so that work done in a pause leaves no trace in the guest's time.
const OVERHEAD: u64 = 0;

/// Starts the clock at zero.
pub fn start() {
    OFFSET.store(arch::ticks(), Ordering::Relaxed);
}

/// Nanoseconds since boot.
#[inline(always)]
pub fn now() -> u64 {
    let ticks = if PAUSES.load(Ordering::Relaxed) == 0 {
        arch::ticks()
    } else {
        PAUSED_AT.load(Ordering::Relaxed)
    };
    ticks.wrapping_sub(OFFSET.load(Ordering::Relaxed))
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

/// This CPU's deadline.
pub fn deadline() -> Option<u64> {
    let deadline = percpu::current().deadline.load(Ordering::Relaxed);
    (deadline != NEVER).then_some(deadline)
}

/// What the timer is set to for `deadline` at `now`: at least one tick, at most what its register
/// holds (it is set again when it fires early); 0 stops it.
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

/// Sets this CPU's timer anew, after the machine stood still.
pub fn arm_again(cpu: &PerCpu) {
    arm(cpu.deadline.load(Ordering::Relaxed));
}

/// Notes the timer's interrupt. Returns whether the deadline has come; if not, the timer goes on.
pub fn timer_fired(cpu: &PerCpu) -> bool {
    let deadline = cpu.deadline.load(Ordering::Relaxed);
    if deadline > now() {
        arm(deadline);
        return false;
    }
    cpu.deadline.store(NEVER, Ordering::Relaxed);
    true
}

/// Stops the clock and the timer for work that is not the guest's. Pauses nest. With several CPUs it
/// does nothing.
pub fn pause() {
    if percpu::count() == 1 {
        stop();
    }
}

/// Ends a [`pause`].
pub fn resume() {
    if percpu::count() == 1 {
        go_on();
    }
}

/// Stops the clock and this CPU's timer. Other CPUs stand still. Nests.
pub fn stop() {
    if PAUSES.load(Ordering::Relaxed) == 0 {
        PAUSED_AT.store(arch::ticks(), Ordering::Relaxed);
        apic::set_timer(0);
    }
    PAUSES.store(PAUSES.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Lets clock and timer go on. Without a pause it does nothing.
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
    arm_again(percpu::current());
}
