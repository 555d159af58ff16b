//! The clock and the timer.

use memwright_linux::host::Host;

use memwright_linux::channel::Channel;

use super::{Outcomes, check_time, end};
use crate::clock;
use crate::machine::HARDWARE;

/// Instructions from the timer's interrupt to the reading behind it, at most.
const LATE: u64 = 500;

pub fn timer_fires() -> Outcomes {
    // By the clock of instructions a long one costs nothing: the machine sleeps through it.
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
            crate::arch::pause();
        }
        clock::go_on();
        clock::now() - before
    };
    check_time(
        span(10) == span(100_000),
        "work in a pause changed the clock",
    )
}

/// Copies standard input to standard output. The clock at the end depends on the input alone.
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
