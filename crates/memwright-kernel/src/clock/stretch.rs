//! Measures the longest time that this kernel runs between two scheduling points.
//!
//! The kernel is not preemptible. A stretch begins when a CPU enters the kernel from user mode, or at a scheduling
//! point: a context switch, or a check of whether another thread should run. The stretch ends at the next scheduling
//! point or with the return to user mode. It excludes the time in which the CPU is halted or the clock is stopped.
//!
//! The start of the current stretch is [`PerCpu::changed`]. A return to user mode does not measure the stretch; it only
//! compares the counter with [`PerCpu::look_at`], because no stretch can have become the longest before the counter
//! reaches that value. From then on, the return calls [`look`], which measures the stretch.

use core::sync::atomic::Ordering;

use memwright_linux_abi::host::Stretch;

use super::nanoseconds;
use crate::percpu::{self, PerCpu};
use crate::{arch, heap};

/// The value of [`PerCpu::longest_call`] for an unknown system call.
const NO_CALL: u64 = u64::MAX;

/// The minimum number of ticks between two measurements. Without it, the cost of measuring would be too high if all
/// stretches are short. A stretch that is shorter than this number can therefore be missed.
const LEAST: u64 = 500_000;

/// Ends the current stretch and begins the next one. Called at a scheduling point of this CPU.
#[inline(always)]
pub fn end(cpu: &PerCpu) {
    end_in(cpu, NO_CALL);
}

#[inline(always)]
fn end_in(cpu: &PerCpu, call: u64) {
    let now = arch::ticks();
    let length = now.wrapping_sub(cpu.changed.load(Ordering::Relaxed));
    cpu.changed.store(now, Ordering::Relaxed);
    if length > cpu.longest.load(Ordering::Relaxed) {
        note(cpu, length, call);
    }
}

#[cold]
fn note(cpu: &PerCpu, length: u64, call: u64) {
    cpu.longest.store(length, Ordering::Relaxed);
    cpu.longest_call.store(call, Ordering::Relaxed);
}

/// Excludes `ticks` from the current stretch: the CPU was idle during that time.
#[inline(always)]
pub fn leave_out(cpu: &PerCpu, ticks: u64) {
    percpu::add(&cpu.changed, ticks);
    for reading in [&cpu.look_at, &cpu.look_after, &cpu.interrupted] {
        if reading.load(Ordering::Relaxed) != 0 {
            percpu::add(reading, ticks);
        }
    }
}

/// Excludes `ticks` from the stretches of all CPUs: the clock was stopped during that time, as were all CPUs except the
/// calling one. That time is not guest time, so it must not affect when a CPU next measures its stretch.
pub fn leave_out_everywhere(ticks: u64) {
    for cpu in (0..percpu::count()).filter_map(percpu::of) {
        leave_out(cpu, ticks);
    }
}

/// Handles a return to user mode once the counter has reached [`PerCpu::look_at`]. Measures the stretch, and grows the
/// heap if an allocation of this CPU left little of the heap free. `call` is the number of the system call that
/// returns, or `u64::MAX`.
#[cold]
pub fn look(cpu: &PerCpu, call: u64) {
    end_in(cpu, call);
    let wait = cpu.longest.load(Ordering::Relaxed).max(LEAST);
    let now = cpu.changed.load(Ordering::Relaxed);
    if cpu.interrupted.load(Ordering::Relaxed) == 0 {
        cpu.look_at.store(now + wait, Ordering::Relaxed);
    } else {
        cpu.look_after.store(now + wait, Ordering::Relaxed);
    }
    if cpu.heap_is_low.load(Ordering::Relaxed) {
        cpu.heap_is_low.store(false, Ordering::Relaxed);
        heap::top_up();
    }
}

/// Returns the longest stretch of all CPUs.
pub fn longest() -> Stretch {
    let cpus = (0..percpu::count()).filter_map(percpu::of);
    let longest = cpus.max_by_key(|cpu| cpu.longest.load(Ordering::Relaxed));
    longest.map_or_else(Stretch::default, |cpu| {
        let call = cpu.longest_call.load(Ordering::Relaxed);
        Stretch {
            instructions: nanoseconds(cpu.longest.load(Ordering::Relaxed)),
            call: (call < NO_CALL).then_some(call),
        }
    })
}

/// Discards the stretches that were measured so far on all CPUs. Called when the program starts.
pub fn forget() {
    for cpu in (0..percpu::count()).filter_map(percpu::of) {
        cpu.longest.store(0, Ordering::Relaxed);
        cpu.ask_to_look();
    }
    percpu::current()
        .changed
        .store(arch::ticks(), Ordering::Relaxed);
}
