//! The clocks in a saved machine.
//!
//! When the CPUs stop, QEMU sometimes considers them idle, advances the clock to the next timer and runs that timer
//! (`icount_start_warp_timer` in its icount.c). Whether it does depends on which of its threads runs first. The guest
//! reports its clock just before it stops, so the length of the jump is known, and the saved clock is set back by it.
//! The interrupt of the timer stays pending. A guest that stopped without a jump, which is rarer, has no pending
//! interrupt and therefore another state: it boots again.
//!
//! QEMU also saves how long it ran by the host's clock, which a guest under the instruction clock cannot observe. That
//! time is set to 0, so that two states of a guest are equal byte for byte.

use std::fmt;

/// Instructions from the RDTSC of the guest's first process (`stand_still` in programs/lab/init.c) to the stop.
const BEFORE_STOP: i64 = 20;
/// The beginning of the part of the stream that contains the clock: the mark of a subsection, its name preceded by its
/// length, and its version. Two big-endian numbers of eight bytes follow: the nanoseconds that are added to the
/// instructions, and the instructions.
const CLOCK: &[u8] = b"\x05\x0ctimer/icount\x00\x00\x00\x01";

/// The beginning of the part of the stream that contains the host's clocks: the name preceded by its length, its
/// instance and its version. Ticks, eight unused bytes and nanoseconds follow, eight bytes each.
const HOST_CLOCKS: &[u8] = b"\x05timer\x00\x00\x00\x00\x00\x00\x00\x02";

/// Why the clock cannot be read.
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

/// Sets the saved clock to its value when the machine stopped, which is computed from `time`: the guest read it just
/// before. Returns by how many nanoseconds QEMU had advanced the clock.
///
/// # Errors
/// The stream does not have the form that QEMU writes.
pub fn set(stream: &mut [u8], time: u64) -> Result<u64, ClockError> {
    let place = only_place_behind(CLOCK, stream)?;
    let number = |at: usize| {
        let bytes = stream.get(at..at + 8)?.try_into().ok()?;
        Some(i64::from_be_bytes(bytes))
    };
    let added = number(place).ok_or(ClockError::NotFound)?;
    let instructions = number(place + 8).ok_or(ClockError::NotFound)?;
    let stopped = i64::try_from(time)
        .ok()
        .and_then(|time| time.checked_add(BEFORE_STOP));
    let wanted = stopped
        .and_then(|time| time.checked_sub(instructions))
        .ok_or(ClockError::Early)?;
    let jump = added.checked_sub(wanted).ok_or(ClockError::Early)?;
    let jump = u64::try_from(jump).map_err(|_| ClockError::Early)?;
    stream[place..place + 8].copy_from_slice(&wanted.to_be_bytes());
    Ok(jump)
}

/// Sets the host's clocks to 0.
///
/// # Errors
/// The stream does not have the form that QEMU writes.
pub fn forget_host(stream: &mut [u8]) -> Result<(), ClockError> {
    let place = only_place_behind(HOST_CLOCKS, stream)?;
    let clocks = stream
        .get_mut(place..place + 24)
        .ok_or(ClockError::NotFound)?;
    clocks.fill(0);
    Ok(())
}

/// Returns the offset after `beginning`, which must occur exactly once.
fn only_place_behind(beginning: &[u8], stream: &[u8]) -> Result<usize, ClockError> {
    let mut places = stream
        .windows(beginning.len())
        .enumerate()
        .filter(|(_, window)| *window == beginning)
        .map(|(place, _)| place + beginning.len());
    match (places.next(), places.next()) {
        (Some(place), None) => Ok(place),
        (Some(_), Some(_)) | (None, _) => Err(ClockError::NotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(added: i64, instructions: i64) -> Vec<u8> {
        let numbers = [added.to_be_bytes(), instructions.to_be_bytes()].concat();
        [b"before timer/icount", CLOCK, &numbers, b"behind"].concat()
    }

    #[test]
    fn a_jump_of_the_clock_is_found_and_taken_back() {
        for (added, instructions, time, expected) in [
            (1000, 500, 1480, Ok(0)),
            (2_663_067, 500, 1480, Ok(2_662_067)),
            (999, 500, 1480, Err(ClockError::Early)),
            (1000, 500, u64::MAX, Err(ClockError::Early)),
            (i64::MAX, i64::MAX, 1480, Err(ClockError::Early)),
        ] {
            let mut bytes = stream(added, instructions);
            assert_eq!(set(&mut bytes, time), expected, "{added} {time}");
            if expected.is_ok() {
                assert_eq!(bytes, stream(1000, instructions));
            }
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

    #[test]
    fn what_the_host_counted_is_forgotten() {
        let with =
            |clocks: [u8; 24]| [b"x", HOST_CLOCKS, &clocks, b"\x05\x0ctimer/icount"].concat();
        let mut bytes = with([7; 24]);
        assert_eq!(forget_host(&mut bytes), Ok(()));
        assert_eq!(bytes, with([0; 24]));
        let mut truncated = HOST_CLOCKS.to_vec();
        assert_eq!(forget_host(&mut truncated), Err(ClockError::NotFound));
    }
}
