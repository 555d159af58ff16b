//! Sets the clock in a saved machine.
//!
//! When the CPUs stop, QEMU may consider them idle and advance the clock to the next timer (`icount_start_warp_timer`
//! in its icount.c), or not: that depends on which of its threads runs first. A machine that is not saved has no such
//! jump. The guest therefore reports its clock just before it stops, and the saved clock is set to that value.

use std::fmt;

/// Instructions from the RDTSC of the guest's first process (`stand_still` in programs/lab/init.c) to the stop.
const BEFORE_STOP: i64 = 20;
/// The beginning of the part of the stream that contains the clock: the mark of a subsection, its name preceded by its
/// length, and its version. Two big-endian numbers of eight bytes follow: the nanoseconds that are added to the
/// instructions, and the instructions.
const CLOCK: &[u8] = b"\x05\x0ctimer/icount\x00\x00\x00\x01";

/// Why the clock cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockError {
    /// The stream has no instruction clock, or more than one.
    NotFound,
    /// The clock is earlier than the guest reported.
    Early,
}

impl fmt::Display for ClockError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotFound => "the saved machine has no clock of instructions",
            Self::Early => "the saved machine's clock is earlier than the guest's",
        })
    }
}

impl std::error::Error for ClockError {}

/// Sets the clock to its value when the machine stopped; `time` is the value that the guest read just before.
///
/// # Errors
/// The stream does not have the form that QEMU writes.
pub fn set(stream: &mut [u8], time: u64) -> Result<(), ClockError> {
    let mut places = stream
        .windows(CLOCK.len())
        .enumerate()
        .filter(|(_, window)| *window == CLOCK)
        .map(|(place, _)| place + CLOCK.len());
    let (Some(place), None) = (places.next(), places.next()) else {
        return Err(ClockError::NotFound);
    };
    let number = |at: usize| {
        let bytes = stream.get(at..at + 8)?.try_into().ok()?;
        Some(i64::from_be_bytes(bytes))
    };
    let added = number(place).ok_or(ClockError::NotFound)?;
    let instructions = number(place + 8).ok_or(ClockError::NotFound)?;
    let stopped = i64::try_from(time)
        .ok()
        .and_then(|time| time.checked_add(BEFORE_STOP));
    let wanted = stopped.and_then(|time| time.checked_sub(instructions));
    let wanted = wanted
        .filter(|wanted| *wanted <= added)
        .ok_or(ClockError::Early)?;
    stream[place..place + 8].copy_from_slice(&wanted.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(added: i64, instructions: i64) -> Vec<u8> {
        let numbers = [added.to_be_bytes(), instructions.to_be_bytes()].concat();
        [b"before timer/icount", CLOCK, &numbers, b"behind"].concat()
    }

    #[test]
    fn a_jump_of_the_clock_is_taken_back() {
        for (added, instructions, time, expected) in [
            // No jump, a jump of 2,662,067 ns, and a clock that stood still.
            (1000, 500, 1480, Ok(1000)),
            (2_663_067, 500, 1480, Ok(1000)),
            (999, 500, 1480, Err(ClockError::Early)),
            (1000, 500, u64::MAX, Err(ClockError::Early)),
        ] {
            let mut bytes = stream(added, instructions);
            let result = set(&mut bytes, time);
            let set_to =
                result.map(|()| bytes == stream(expected.unwrap_or_default(), instructions));
            assert_eq!(set_to, expected.map(|_| true), "{added} {time}");
        }
    }

    #[test]
    fn only_one_whole_clock_is_set() {
        let whole = stream(1000, 500);
        let twice = [&*whole, &*whole].concat();
        for mut bytes in [Vec::new(), twice, whole[..whole.len() - 7].to_vec()] {
            assert_eq!(set(&mut bytes, 1480), Err(ClockError::NotFound));
        }
    }
}
