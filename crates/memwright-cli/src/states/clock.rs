//! Corrects the clocks in the snapshot of a machine.
//!
//! When the CPUs stop, QEMU sometimes considers them idle and advances the clock to the next timer
//! (`icount_start_warp_timer` in its icount.c), and sometimes it also runs that timer. Which of these happens depends
//! on which of QEMU's threads runs first. The guest reports its clock just before it stops, so the length of the jump
//! is known. This module subtracts the jump from the saved clock and from the counter of the HPET, which QEMU derives
//! from the clock. If QEMU has run the timer, this cannot be undone, because the timer's interrupt is pending; the
//! guest is then booted again.
//!
//! QEMU also saves for how long it has run according to the host's clock. A guest under the instruction clock cannot
//! observe this time. It is set to 0, so that two snapshots of a guest are equal byte for byte.

use std::fmt;

/// The number of instructions from the RDTSC of the guest's init process (`stand_still` in programs/lab/init.c) to the
/// stop. It is also the number of nanoseconds.
const BEFORE_STOP: i64 = 20;
/// The bytes before the clock in the device stream: the mark of a subsection, the length of its name, its name, and its
/// version. Two big-endian numbers of eight bytes follow: the nanoseconds that are added to the number of instructions,
/// and the number of instructions.
const CLOCK: &[u8] = b"\x05\x0ctimer/icount\x00\x00\x00\x01";

/// The bytes before the host's clocks in the device stream: the length of the name, the name, the instance and the
/// version. Ticks, an unused number and nanoseconds follow, eight bytes each.
const HOST_CLOCKS: &[u8] = b"\x05timer\x00\x00\x00\x00\x00\x00\x00\x02";

/// The bytes before the state of the CPU's local APIC: the length of the name, the name, the instance and the version.
const APIC: &[u8] = b"\x04apic\x00\x00\x00\x00\x00\x00\x00\x03";
/// The offset of the timer's expiry time in the state of the local APIC. The time has 8 bytes; it is -1 if the timer is
/// not set.
const APIC_EXPIRY: usize = 173;

/// The bytes before the state of the HPET: the length of the name, the name, the instance and the version. The HPET's
/// configuration, its interrupts and its counter follow, eight bytes each.
const HPET: &[u8] = b"\x04hpet\x00\x00\x00\x00\x00\x00\x00\x02";
/// The bytes before the number that the HPET adds to the clock (8 bytes). QEMU writes this number only if the HPET's
/// counter runs.
const HPET_OFFSET: &[u8] = b"\x05\x0bhpet/offset\x00\x00\x00\x01";
/// The period of the HPET's counter in nanoseconds.
const HPET_PERIOD: i64 = 10;

/// Whether QEMU ran the next timer after the guest had stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextTimer {
    /// QEMU did not run the timer: the machine is in the state in which it stopped.
    Waits,
    /// QEMU ran the timer, whose interrupt is pending.
    Ran,
}

/// Why the clock of a snapshot cannot be corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockError {
    /// The stream does not contain exactly one instruction clock.
    NotFound,
    /// The saved clock is earlier than the guest's clock when the machine stopped.
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

/// Sets the saved clock and the counter of the HPET to their values when the machine stopped. That was `BEFORE_STOP`
/// instructions after the guest had read `time` from its clock. Returns whether QEMU ran a timer after the stop.
///
/// # Errors
/// If the stream does not have the format that QEMU writes, or if the saved clock is earlier than the guest's clock
/// when the machine stopped.
pub fn set(stream: &mut [u8], time: u64) -> Result<NextTimer, ClockError> {
    let place = only_place_behind(CLOCK, stream)?;
    let added = number(stream, place)?;
    let instructions = number(stream, place + 8)?;
    let stopped = i64::try_from(time)
        .ok()
        .and_then(|time| time.checked_add(BEFORE_STOP))
        .ok_or(ClockError::Early)?;
    let wanted = stopped.checked_sub(instructions).ok_or(ClockError::Early)?;
    let jump = added.checked_sub(wanted).ok_or(ClockError::Early)?;
    if jump < 0 {
        return Err(ClockError::Early);
    }
    stream[place..place + 8].copy_from_slice(&wanted.to_be_bytes());
    set_hpet(stream, stopped)?;
    Ok(match jump {
        0 => NextTimer::Waits,
        _ => next_timer(stream, stopped)?,
    })
}

/// Returns whether QEMU ran the local APIC's timer after it had advanced the clock. A timer that ran is no longer set.
/// In a guest that has just woken up, the local APIC's timer is always the next timer.
fn next_timer(stream: &[u8], stopped: i64) -> Result<NextTimer, ClockError> {
    let place = only_place_behind(APIC, stream)?;
    Ok(match number(stream, place + APIC_EXPIRY)? {
        expiry if expiry > stopped => NextTimer::Waits,
        _ => NextTimer::Ran,
    })
}

/// Sets the counter of the HPET to the counter's value at `time`. Does nothing if the counter does not run.
fn set_hpet(stream: &mut [u8], time: i64) -> Result<(), ClockError> {
    let offset = match only_place_behind(HPET_OFFSET, stream) {
        Ok(place) => number(stream, place)?,
        Err(_) => return Ok(()),
    };
    let counter = only_place_behind(HPET, stream)? + 16;
    let ticks = time.wrapping_add(offset).div_euclid(HPET_PERIOD);
    stream
        .get_mut(counter..counter + 8)
        .ok_or(ClockError::NotFound)?
        .copy_from_slice(&ticks.to_be_bytes());
    Ok(())
}

/// Returns the big-endian number at offset `place`.
fn number(stream: &[u8], place: usize) -> Result<i64, ClockError> {
    let bytes = stream
        .get(place..place + 8)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map(i64::from_be_bytes).ok_or(ClockError::NotFound)
}

/// Sets the host's clocks in the device stream to 0.
///
/// # Errors
/// If the stream does not have the format that QEMU writes.
pub fn forget_host(stream: &mut [u8]) -> Result<(), ClockError> {
    let place = only_place_behind(HOST_CLOCKS, stream)?;
    let clocks = stream
        .get_mut(place..place + 24)
        .ok_or(ClockError::NotFound)?;
    clocks.fill(0);
    Ok(())
}

/// Returns the offset of the first byte after the bytes `beginning`, which must occur exactly once in the stream.
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

    /// Returns a stream with a clock, a local APIC whose timer expires at `expiry`, and an HPET with the counter
    /// `counter`.
    fn stream(added: i64, instructions: i64, expiry: i64, counter: i64) -> Vec<u8> {
        let numbers = |numbers: &[i64]| -> Vec<u8> {
            numbers.iter().flat_map(|one| one.to_be_bytes()).collect()
        };
        let apic = [&[7; APIC_EXPIRY][..], &numbers(&[expiry])].concat();
        [
            b"before timer/icount",
            CLOCK,
            &numbers(&[added, instructions]),
            APIC,
            &apic,
            HPET,
            &numbers(&[3, 0, counter]),
            HPET_OFFSET,
            &numbers(&[-500]),
            b"behind",
        ]
        .concat()
    }

    #[test]
    fn a_jump_of_the_clock_is_found_and_taken_back() {
        use NextTimer::{Ran, Waits};
        for (added, instructions, time, expiry, expected) in [
            (1000, 500, 1480, 1600, Ok(Waits)),
            (1000, 500, 1480, -1, Ok(Waits)),
            (2_663_067, 500, 1480, 2_663_567, Ok(Waits)),
            (2_663_067, 500, 1480, -1, Ok(Ran)),
            (999, 500, 1480, 1600, Err(ClockError::Early)),
            (1000, 500, u64::MAX, 1600, Err(ClockError::Early)),
            (i64::MAX, i64::MAX, 1480, 1600, Err(ClockError::Early)),
        ] {
            let counter = (added.saturating_add(instructions) - 500) / 10;
            let mut bytes = stream(added, instructions, expiry, counter);
            assert_eq!(set(&mut bytes, time), expected, "{added} {time}");
            if expected.is_ok() {
                assert_eq!(bytes, stream(1000, 500, expiry, 100));
            }
        }
    }

    #[test]
    fn only_one_whole_clock_is_set() {
        let whole = stream(1000, 500, 1600, 100);
        let twice = [&*whole, &*whole].concat();
        let cut = CLOCK.len() + "before timer/icount".len() + 9;
        for mut bytes in [Vec::new(), twice, whole[..cut].to_vec()] {
            assert_eq!(set(&mut bytes, 1480), Err(ClockError::NotFound));
        }
    }

    #[test]
    fn an_hpet_that_does_not_count_is_left_alone() {
        let whole = stream(1000, 500, 1600, 7);
        let end = whole.len() - HPET_OFFSET.len() - 8 - "behind".len();
        let mut bytes = whole[..end].to_vec();
        assert_eq!(set(&mut bytes, 1480), Ok(NextTimer::Waits));
        assert_eq!(bytes, whole[..end]);
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
