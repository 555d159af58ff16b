//! Tests of the clock and the timer.

use memwright_linux_abi::host::Channels;
use memwright_linux_abi::host::Cpus;

use memwright_linux_abi::channel::Channel;

use super::{Outcomes, check_time, end};
use crate::clock::{self, stretch};
use crate::machine::HARDWARE;
use crate::{arch, percpu};
use core::arch::asm;

/// The maximum number of instructions from the timer's interrupt to the next reading of the clock.
const LATE: u64 = 500;

pub fn timer_fires() -> Outcomes {
    // If the clock counts instructions, a long wait takes no host time, because the clock skips the wait while all CPUs
    // are halted.
    let long = if clock::counts_nanoseconds() {
        6_000_000_000
    } else {
        100_000_000
    };
    for distance in [1_000, 50_000, long] {
        let deadline = clock::now() + distance;
        clock::set_deadline(Some(deadline));
        while clock::now() < deadline {
            HARDWARE.idle();
        }
        check_time(clock::now() < deadline + LATE, "it was late")?;
    }
    Ok(())
}

pub fn pause_takes_no_time() -> Outcomes {
    let span = |work: u32| {
        let before = clock::now();
        clock::stop();
        for _ in 0..work {
            arch::pause();
        }
        clock::go_on();
        clock::now() - before
    };
    check_time(
        span(10) == span(100_000),
        "work in a pause changed the clock",
    )
}

/// The number of iterations of `count_down`. `AROUND` is the maximum number of instructions that a test counts in
/// addition to those of the loop.
const TURNS: u32 = 400_000;
const AROUND: u64 = 100;

/// Executes two instructions in each of `turns` iterations.
#[inline(always)]
fn count_down(turns: u32) {
    // SAFETY: the instructions change only the register of the operand and the flags.
    unsafe {
        asm!("2: dec {0:e}", "jnz 2b", inout(reg) turns => _, options(nomem, nostack));
    }
}

/// Checks that the reported length of the longest stretch is exact: it includes neither adjacent stretches nor the time
/// in which the clock was stopped.
pub fn longest_stretch_is_told() -> Outcomes {
    let cpu = percpu::current();
    stretch::forget();
    count_down(TURNS / 2);
    stretch::end(cpu);
    count_down(TURNS);
    stretch::end(cpu);
    clock::stop();
    count_down(TURNS * 2);
    clock::go_on();
    stretch::end(cpu);
    let longest = stretch::longest().instructions;
    crate::log!("selftest: the longest stretch is {longest}");
    let least = 2 * u64::from(TURNS);
    check_time(
        (least..least + AROUND).contains(&longest),
        "the longest stretch is not as long as it was",
    )
}

/// Copies standard input to standard output. The final clock value depends only on the input.
pub fn echo() -> ! {
    let mut buffer = alloc::vec![0; 64 * 1024];
    loop {
        let length = HARDWARE.input(&mut buffer).unwrap_or(0);
        if length == 0 {
            crate::log!("selftest: {} ns", clock::now());
            end(0);
        }
        HARDWARE.output(Channel::Stdout, &buffer[..length]);
    }
}
