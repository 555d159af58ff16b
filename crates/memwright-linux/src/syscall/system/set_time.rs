//! `clock_settime` and `settimeofday` (Linux 7.3 `kernel/time/posix-timers.c` and `time.c`). The time of day is derived
//! from the instruction clock, so no program is permitted to set it.

use crate::{
    context::CallResult,
    syscall::call::{Kind, SystemCall, real},
};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{
    abi::{Timespec, Timeval},
    errno::Errno,
};
use memwright_linux_vfs::user::UserMemory;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_clock_settime,
        "clock_settime",
        &[Kind::Int, Kind::In(16)],
        |context, &[clock, time, ..]| clock_settime(context.current.user, clock, time),
    ),
    real(
        raw::__NR_settimeofday,
        "settimeofday",
        &[Kind::In(16), Kind::In(8)],
        |context, &[time, zone, ..]| settimeofday(context.current.user, time, zone),
    ),
];

/// Implements `clock_settime`.
///
/// # Errors
/// `EINVAL` for a clock that cannot be set or a time that is not normalised; `EFAULT`; `EPERM` for every other call.
fn clock_settime(user: UserMemory<'_>, clock: u64, time: u64) -> CallResult {
    if clock as u32 != raw::CLOCK_REALTIME {
        return Err(Errno::EINVAL);
    }
    let time: Timespec = user.read_value(time)?;
    time.to_nanoseconds().ok_or(Errno::EINVAL)?;
    Err(Errno::EPERM)
}

/// Implements `settimeofday`. A call that sets neither the time nor the time zone has no effect.
///
/// # Errors
/// `EINVAL` for a time that is not normalised; `EFAULT`; `EPERM` for every other call.
fn settimeofday(user: UserMemory<'_>, time: u64, zone: u64) -> CallResult {
    let time: Option<Timeval> = user.read_optional(time)?;
    if let Some(time) = time {
        time.to_nanoseconds().ok_or(Errno::EINVAL)?;
    }
    let zone: Option<u64> = user.read_optional(zone)?;
    if time.is_none() && zone.is_none() {
        return Ok(0);
    }
    Err(Errno::EPERM)
}
