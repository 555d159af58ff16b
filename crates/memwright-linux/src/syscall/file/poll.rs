//! The `poll` and `ppoll` system calls.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{
        call::{Kind, SystemCall, handler, real},
        process::signal::with_signal_mask,
    },
};
use alloc::sync::Arc;
use core::cell::Cell;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{
    abi::{Plain, Timespec},
    errno::Errno,
};
use memwright_linux_base::{paged::Paged, sync::PausePoints};
use memwright_linux_memory::oom::OomKiller;
use memwright_linux_sched::wait::{Interest, Queues, WaitError};
use memwright_linux_tasks::process::RestartBlock;
use memwright_linux_vfs::fs::{OpenFile, Readiness};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_poll,
        "poll",
        &[Kind::Hex, Kind::Unsigned, Kind::Int],
        handler!(poll, oom),
    ),
    real(
        raw::__NR_ppoll,
        "ppoll",
        &[
            Kind::Hex,
            Kind::Unsigned,
            Kind::InOut(16),
            Kind::In(8),
            Kind::Unsigned,
        ],
        handler!(ppoll, oom),
    ),
];

/// Size in bytes of `struct pollfd` of `asm-generic/poll.h`. It consists of a descriptor, the requested events and the
/// returned events.
const ENTRY: usize = 8;
/// Offset of the returned events in a `struct pollfd`, in bytes.
const FOUND: u64 = 6;
/// Number of entries that are read at a time.
const TOGETHER: usize = 32;

/// A descriptor to poll.
pub struct Watch {
    /// The open file; `None` for a descriptor that is not open.
    open: Option<Arc<OpenFile>>,
    /// The requested events (`POLL` bits). Errors and hangups are always polled too.
    wanted: u16,
    /// The events that the last check found.
    found: Cell<u16>,
    /// Whether the descriptor is negative. The call ignores such an entry.
    passed_over: bool,
}

impl Watch {
    /// Creates an entry that polls `open` for the events `wanted`. `None` means a descriptor that is not open.
    #[must_use]
    pub const fn new(open: Option<Arc<OpenFile>>, wanted: u16) -> Self {
        Self {
            open,
            wanted,
            found: Cell::new(0),
            passed_over: false,
        }
    }

    /// Creates the entry of a negative descriptor. Such an entry never has an event.
    const fn nothing() -> Self {
        Self {
            open: None,
            wanted: 0,
            found: Cell::new(0),
            passed_over: true,
        }
    }

    /// Returns the events that the last check found.
    #[must_use]
    pub fn found(&self) -> u16 {
        self.found.get()
    }

    /// Checks the file for the requested events, and for errors and hangups. Returns whether an event was found.
    fn look(&self, current: &Current<'_>) -> bool {
        let always = Readiness::ERROR | Readiness::HANGUP;
        let found = match &self.open {
            Some(open) if open.is_path() => raw::POLLNVAL,
            Some(open) => {
                let wanted = u32::from(self.wanted) | always.bits();
                open.file.readiness(current, open).bits() & wanted
            }
            None if self.passed_over => 0,
            None => raw::POLLNVAL,
        };
        self.found.set(found as u16);
        found != 0
    }
}

/// Number of descriptors that are checked between two scheduling points.
const WATCHES: u32 = 256;

/// The descriptors that a call polls: at most as many as a process can have open.
#[derive(Default)]
pub struct Watches(Paged<Watch>);

impl Watches {
    /// Adds a descriptor.
    ///
    /// # Errors
    /// `ENOMEM` if the entry cannot be allocated.
    pub fn add(&mut self, watch: Watch) -> Result<(), Errno> {
        self.0.try_push(watch).map_err(|_| Errno::ENOMEM)
    }

    /// Returns the number of descriptors.
    fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the descriptors, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Watch> {
        self.0.iter()
    }
}

impl Drop for Watches {
    /// Drops the descriptors one at a time, with scheduling points in between.
    fn drop(&mut self) {
        let mut points = PausePoints::every(WATCHES);
        while self.0.pop().is_some() {
            points.round();
        }
    }
}

/// Waits until at least one descriptor has an event or the deadline has passed. Returns the number of descriptors with
/// events. [`Watch::found`] then returns the events of each descriptor.
///
/// `deadline` is a time of the host's clock. With `None`, the call waits without a limit. With a time in the past, the
/// call does not wait.
///
/// # Errors
/// `ERESTARTNOHAND` if a signal arrived first; `ENOMEM` if the wait queues cannot be allocated.
pub fn wait(
    current: &Current<'_>,
    oom: &OomKiller,
    watches: &Watches,
    deadline: Option<u64>,
) -> Result<u64, Errno> {
    // Record the events in the check that ends the wait: a later check might not find them any more.
    let ready = || {
        let mut points = PausePoints::every(WATCHES);
        let mut count = 0;
        for watch in watches.iter() {
            count += u64::from(watch.look(current));
            points.round();
        }
        (count > 0).then_some(count)
    };
    if let Some(count) = ready() {
        return Ok(count);
    }
    let mut queues = Queues::new();
    let mut points = PausePoints::every(WATCHES);
    for watch in watches.iter() {
        points.round();
        if let Some(open) = watch.open.as_deref().filter(|open| !open.is_path()) {
            let wanted = Readiness::from_bits_truncate(watch.wanted.into());
            open.file.queues(current, wanted, &mut queues);
        }
    }
    queues.complete().map_err(|_| Errno::ENOMEM)?;
    match oom.wait_in(
        current.thread,
        &queues.iter(),
        deadline,
        Interest::Signals,
        ready,
    ) {
        Ok(count) => Ok(count),
        Err(WaitError::TimedOut) => Ok(0),
        Err(WaitError::Interrupted) => Err(Errno::ERESTARTNOHAND),
    }
}

/// Returns the deadline for a timeout in milliseconds. Returns `None` for a negative timeout, which means no limit.
pub fn milliseconds_argument(current: &Current<'_>, timeout: u64) -> Option<u64> {
    let milliseconds = u64::try_from(timeout as i32).ok()?;
    if milliseconds == 0 {
        // For a timeout of 0, any time in the past can be the deadline, so the clock need not be read.
        return Some(0);
    }
    deadline_after(current, milliseconds * 1_000_000)
}

/// Returns the deadline that is `nanoseconds` from now. Returns `None` if the deadline exceeds the range of the clock.
pub fn deadline_after(current: &Current<'_>, nanoseconds: u64) -> Option<u64> {
    current.now().checked_add(nanoseconds)
}

/// Reads the optional timeout of `ppoll` and `pselect6`.
///
/// # Errors
/// `EFAULT`; `EINVAL` for a timeout that is negative or not normalised.
pub fn timeout_argument(current: &Current<'_>, address: u64) -> Result<Option<u64>, Errno> {
    match current.user.read_optional::<Timespec>(address)? {
        None => Ok(None),
        Some(time) => {
            let nanoseconds = time.to_nanoseconds().ok_or(Errno::EINVAL)?;
            Ok(deadline_after(current, nanoseconds))
        }
    }
}

/// Completes `ppoll`, `pselect6` and `select`: if there is a timeout, calls `store` to store the remaining time. If
/// `store` fails, an interrupted call is not restarted (`poll_select_finish` of Linux 7.2, `fs/select.c`).
///
/// # Errors
/// The error in `result`. After a failed `store`, `EINTR` replaces `ERESTARTNOHAND`.
pub fn finish(
    current: &Current<'_>,
    result: CallResult,
    deadline: Option<u64>,
    store: impl FnOnce(u64) -> Result<(), Errno>,
) -> CallResult {
    let Some(deadline) = deadline else {
        return result;
    };
    let left = deadline.saturating_sub(current.now());
    match (store(left), result) {
        (Err(_), Err(Errno::ERESTARTNOHAND)) => Err(Errno::EINTR),
        (_, result) => result,
    }
}

/// Completes a call like [`finish`]. The remaining time is stored in the `struct timespec` at `address`, unless
/// `address` is null.
///
/// # Errors
/// The errors of [`finish`].
pub fn finish_timespec(
    current: &Current<'_>,
    result: CallResult,
    deadline: Option<u64>,
    address: u64,
) -> CallResult {
    finish(current, result, deadline, |left| {
        current
            .user
            .write_optional(address, &Timespec::from_nanoseconds(left))
    })
}

fn poll_until(
    current: &Current<'_>,
    oom: &OomKiller,
    address: u64,
    count: u64,
    deadline: Option<u64>,
) -> CallResult {
    current.check_heap()?;
    if count as usize > current.caller().descriptor_limit() {
        return Err(Errno::EINVAL);
    }
    let watches = read_watches(current, address, count as usize)?;
    let result = wait(current, oom, &watches, deadline);
    match result {
        // After a signal, store the returned events too. They are empty for all descriptors (`do_sys_poll` of Linux
        // 7.2, `fs/select.c`).
        Ok(_) | Err(Errno::ERESTARTNOHAND) => {}
        Err(error) => return Err(error),
    }
    let mut place = address.wrapping_add(FOUND);
    let mut points = PausePoints::every(WATCHES);
    for watch in watches.iter() {
        points.round();
        current.user.write_value(place, &watch.found())?;
        place = place.wrapping_add(ENTRY as u64);
    }
    result
}

/// Reads the array of `struct pollfd`.
fn read_watches(current: &Current<'_>, address: u64, count: usize) -> Result<Watches, Errno> {
    let mut watches = Watches::default();
    let files = current.files();
    let mut buffer = [0; TOGETHER * ENTRY];
    let mut points = PausePoints::every(WATCHES / TOGETHER as u32);
    while watches.len() < count {
        points.round();
        let now = TOGETHER.min(count - watches.len());
        let place = address.checked_add((watches.len() * ENTRY) as u64);
        let bytes = &mut buffer[..now * ENTRY];
        current
            .user
            .read_bytes(place.ok_or(Errno::EFAULT)?, bytes)?;
        for entry in bytes.chunks_exact(ENTRY) {
            let (number, rest) = entry.split_at(4);
            let number = i32::from_bytes(number);
            let watch = if number < 0 {
                Watch::nothing()
            } else {
                Watch::new(files.get(number).ok(), u16::from_bytes(&rest[..2]))
            };
            watches.add(watch)?;
        }
    }
    Ok(watches)
}

fn poll(current: &Current<'_>, oom: &OomKiller, arguments: &Arguments) -> CallResult {
    let &[address, count, timeout, ..] = arguments;
    let deadline = milliseconds_argument(current, timeout);
    poll_or_restart(current, oom, address, count as u32 as u64, deadline)
}

/// Implements `poll` with an absolute deadline. A restart of the call keeps the deadline.
///
/// # Errors
/// The errors of `poll`, and `ERESTART_RESTARTBLOCK` after a signal.
pub fn poll_or_restart(
    current: &Current<'_>,
    oom: &OomKiller,
    descriptors: u64,
    count: u64,
    deadline: Option<u64>,
) -> CallResult {
    let result = poll_until(current, oom, descriptors, count, deadline);
    if result != Err(Errno::ERESTARTNOHAND) {
        return result;
    }
    *current.thread.restart.lock() = Some(RestartBlock::Poll {
        descriptors,
        count,
        deadline,
    });
    Err(Errno::ERESTART_RESTARTBLOCK)
}

fn ppoll(current: &Current<'_>, oom: &OomKiller, arguments: &Arguments) -> CallResult {
    let &[address, count, timeout, mask, size, _] = arguments;
    let deadline = timeout_argument(current, timeout)?;
    let result = with_signal_mask(current, mask, size, || {
        poll_until(current, oom, address, count as u32 as u64, deadline)
    });
    finish_timespec(current, result, deadline, timeout)
}
