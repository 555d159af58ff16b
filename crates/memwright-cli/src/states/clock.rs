//! The clocks in a saved machine.
//!
//! When the CPUs stop, QEMU may consider them idle, advance the clock to the next timer and run it
//! (`icount_start_warp_timer` in its icount.c), or not: that depends on which of its threads runs first. A machine that is
//! not saved has no such jump, and neither has a state that is used: after a jump, the guest boots again. Setting the clock
//! back would not undo the timer's interrupt. The guest reports its clock just before it stops, which reveals the jump.
//!
//! QEMU also saves how long it ran by the host's clock, which no guest sees that counts instructions. That is set to 0, so
//! that two states of a guest are equal byte for byte.

use std::fmt;

/// Instructions from the RDTSC of the guest's first process (`stand_still` in programs/lab/init.c) to the stop.
const BEFORE_STOP: i64 = 20;
/// The beginning of the part of the stream that contains the clock: the mark of a subsection, its name preceded by its
/// length, and its version. Two big-endian numbers of eight bytes follow: the nanoseconds that are added to the
/// instructions, and the instructions.
const CLOCK: &[u8] = b"\x05\x0ctimer/icount\x00\x00\x00\x01";

/// The beginning of the part of the stream that contains the host's clocks: the name preceded by its length, its instance
/// and its version. Ticks, eight unused bytes and nanoseconds follow, eight bytes each.
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

/// Returns by how many nanoseconds the clock jumped when the machine stopped; `time` is the value that the guest read just
/// before.
///
/// # Errors
/// The stream does not have the form that QEMU writes.
pub fn jump(stream: &[u8], time: u64) -> Result<u64, ClockError> {
    let place = only_place_behind(CLOCK, stream)?;
    let number = |at: usize| {
        let bytes = stream.get(at..at + 8)?.try_into().ok()?;
        Some(i64::from_be_bytes(bytes))
    };
    let added = number(place).ok_or(ClockError::NotFound)?;
    let instructions = number(place + 8).ok_or(ClockError::NotFound)?;
    let saved = added.checked_add(instructions);
    let stopped = i64::try_from(time)
        .ok()
        .and_then(|time| time.checked_add(BEFORE_STOP));
    saved
        .zip(stopped)
        .and_then(|(saved, stopped)| saved.checked_sub(stopped))
        .and_then(|jump| u64::try_from(jump).ok())
        .ok_or(ClockError::Early)
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

/// Returns the place behind `beginning`, which occurs once.
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
    fn a_jump_of_the_clock_is_found() {
        for (added, instructions, time, expected) in [
            (1000, 500, 1480, Ok(0)),
            (2_663_067, 500, 1480, Ok(2_662_067)),
            (999, 500, 1480, Err(ClockError::Early)),
            (1000, 500, u64::MAX, Err(ClockError::Early)),
            (i64::MAX, 1, 1480, Err(ClockError::Early)),
        ] {
            let bytes = stream(added, instructions);
            assert_eq!(jump(&bytes, time), expected, "{added} {time}");
        }
    }

    #[test]
    fn only_one_whole_clock_is_read() {
        let whole = stream(1000, 500);
        let twice = [&*whole, &*whole].concat();
        for bytes in [Vec::new(), twice, whole[..whole.len() - 7].to_vec()] {
            assert_eq!(jump(&bytes, 1480), Err(ClockError::NotFound));
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
