//! The rate of the time-stamp counter.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{apic, arch};

/// Nanoseconds per tick of the counter, in units of 2^-32; 0 if a tick is a nanosecond.
static RATE: AtomicU64 = AtomicU64::new(0);

/// Measures the counter's rate. The timer must be set up, and must have no other use meanwhile.
pub fn calibrate() {
    const STEPS: u32 = 20_000;
    const LONG: u32 = 50_000_000;
    apic::set_timer(u32::MAX);
    let start = sample();
    for step in 0..STEPS {
        core::hint::black_box(step);
    }
    let mut end = sample();
    if rate(start, end) != 0 {
        // Measure over a longer time, so that the duration of the readings themselves has no significant effect.
        while start.1 - end.1 < LONG {
            arch::pause();
            end = sample();
        }
    }
    apic::set_timer(0);
    RATE.store(rate(start, end), Ordering::Relaxed);
}

/// Reads the counter and the timer at nearly the same time. Takes several samples, each a reading of the timer between
/// two readings of the counter. Returns the sample whose two counter readings are closest to each other.
fn sample() -> (u64, u32) {
    let read = || {
        let before = arch::ticks();
        let left = apic::timer_left();
        let after = arch::ticks();
        (after - before, (before, left))
    };
    let closest = (0..4).map(|_| read()).min_by_key(|&(apart, _)| apart);
    closest.unwrap_or_else(read).1
}

/// Computes [`RATE`] from two samples. Returns 0 if the ticks of the counter differ from those of the timer by at most
/// one percent.
fn rate(start: (u64, u32), end: (u64, u32)) -> u64 {
    let ticks = end.0 - start.0;
    let nanoseconds = u64::from(start.1 - end.1);
    if ticks.abs_diff(nanoseconds) <= nanoseconds / 100 {
        0
    } else {
        (nanoseconds << 32) / ticks.max(1)
    }
}

/// Returns whether a tick of the counter is a nanosecond, which is the case if the counter counts instructions.
pub fn counts_nanoseconds() -> bool {
    RATE.load(Ordering::Relaxed) == 0
}

/// Converts ticks of the counter to nanoseconds.
#[inline(always)]
pub fn nanoseconds(ticks: u64) -> u64 {
    match RATE.load(Ordering::Relaxed) {
        0 => ticks,
        rate => ((u128::from(ticks) * u128::from(rate)) >> 32) as u64,
    }
}
