//! Waiting for descriptors: `poll` and `ppoll`.

use super::{descriptor, real};
use crate::{
    abi::Timespec,
    abi_struct,
    context::Context,
    errno::Errno,
    fs::{OpenFile, Readiness},
    process::RestartBlock,
    syscall::{
        Arguments, CallResult,
        table::{Kind, SystemCall},
    },
    wait::{WaitError, WaitQueue},
};
use alloc::{sync::Arc, vec::Vec};
use linux_raw_sys::general as raw;

/// The rows of this group.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_poll,
        "poll",
        &[Kind::Hex, Kind::Unsigned, Kind::Int],
        poll,
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
        ppoll,
    ),
];

abi_struct! {
    /// `struct pollfd` of `asm-generic/poll.h`.
    pub struct PollDescriptor {
        /// The descriptor; negative ones are passed over.
        pub descriptor: i32,
        /// What is waited for.
        pub wanted: u16,
        /// What was found.
        pub found: u16,
    }
}

/// Something to wait for.
pub struct Watch {
    /// The open file; none for a descriptor that is not open.
    pub open: Option<Arc<OpenFile>>,
    /// What is waited for; errors always are.
    pub wanted: u32,
}

impl Watch {
    /// What is there of what is waited for.
    #[must_use]
    pub fn found(&self, context: &Context<'_>) -> u32 {
        let always = Readiness::ERROR | Readiness::HANGUP;
        match &self.open {
            Some(open) if open.is_path() => raw::POLLNVAL,
            Some(open) => open.file.readiness(context, open).bits() & (self.wanted | always.bits()),
            None => raw::POLLNVAL,
        }
    }
}

/// Waits until something is found for at least one watch, or the deadline; returns how many, and
/// stores what was found of each.
///
/// `deadline` is a time of the host's clock; `None` waits for ever, zero not at all.
///
/// # Errors
/// `ERESTARTNOHAND` when a signal came first.
pub fn wait(
    context: &Context<'_>,
    watches: &[Watch],
    deadline: Option<u64>,
    found: &mut Vec<u32>,
) -> Result<u64, Errno> {
    let mut queues: Vec<&WaitQueue> = Vec::new();
    for watch in watches {
        if let Some(open) = watch.open.as_deref().filter(|open| !open.is_path()) {
            let wanted = Readiness::from_bits_truncate(watch.wanted);
            open.file.queues(context, wanted, &mut queues);
        }
    }
    // What ended the wait is what is reported: another look might find it gone.
    let ready = || {
        found.clear();
        found.extend(watches.iter().map(|watch| watch.found(context)));
        let count = found.iter().filter(|&&bits| bits != 0).count();
        (count > 0).then_some(count as u64)
    };
    match context.wait_until(&queues, deadline, ready) {
        Ok(count) => Ok(count),
        Err(WaitError::TimedOut) => Ok(0),
        Err(WaitError::Interrupted) => Err(Errno::ERESTARTNOHAND),
    }
}

/// The deadline of a timeout in milliseconds; negative ones never pass.
pub fn milliseconds_argument(context: &Context<'_>, timeout: u64) -> Option<u64> {
    let milliseconds = u64::try_from(timeout as i32).ok()?;
    deadline_after(context, milliseconds * 1_000_000)
}

/// The deadline of a relative time; times in the past have passed already.
pub fn deadline_after(context: &Context<'_>, nanoseconds: u64) -> Option<u64> {
    context.kernel.host.now().checked_add(nanoseconds)
}

/// Reads the optional timeout of `ppoll` and `pselect6`.
///
/// # Errors
/// `EFAULT`; `EINVAL` for a negative or unnormalised one.
pub fn timeout_argument(context: &Context<'_>, address: u64) -> Result<Option<u64>, Errno> {
    match context.read_optional::<Timespec>(address)? {
        None => Ok(None),
        Some(time) => {
            let nanoseconds = time.to_nanoseconds().ok_or(Errno::EINVAL)?;
            Ok(deadline_after(context, nanoseconds))
        }
    }
}

/// Ends `ppoll`, `pselect6` and `select`: stores by `store` what is left of the timeout, if there
/// is one. A call whose timeout cannot be stored is not restarted (`poll_select_finish` of Linux
/// 7.2, `fs/select.c`).
///
/// # Errors
/// Those of the call.
pub fn finish(
    context: &Context<'_>,
    result: CallResult,
    deadline: Option<u64>,
    store: impl FnOnce(u64) -> Result<(), Errno>,
) -> CallResult {
    let Some(deadline) = deadline else {
        return result;
    };
    let left = deadline.saturating_sub(context.kernel.host.now());
    match (store(left), result) {
        (Err(_), Err(Errno::ERESTARTNOHAND)) => Err(Errno::EINTR),
        (_, result) => result,
    }
}

/// Ends a call whose timeout is a `struct timespec`, or null.
///
/// # Errors
/// Those of the call.
pub fn finish_timespec(
    context: &Context<'_>,
    result: CallResult,
    deadline: Option<u64>,
    address: u64,
) -> CallResult {
    finish(context, result, deadline, |left| {
        context.write_optional(address, &Timespec::from_nanoseconds(left))
    })
}

fn poll_until(
    context: &Context<'_>,
    address: u64,
    count: u64,
    deadline: Option<u64>,
) -> CallResult {
    context.check_heap()?;
    if count as usize > context.descriptor_limit() {
        return Err(Errno::EINVAL);
    }
    let mut descriptors = Vec::new();
    let mut watches = Vec::new();
    let files = context.files();
    for index in 0..count {
        let place = address.checked_add(index * 8).ok_or(Errno::EFAULT)?;
        let entry: PollDescriptor = context.read_value(place)?;
        if entry.descriptor >= 0 {
            watches.push(Watch {
                open: files.get(descriptor(entry.descriptor as u64)).ok(),
                wanted: entry.wanted.into(),
            });
            descriptors.push((index, entry));
        } else {
            context.write_value(place, &PollDescriptor { found: 0, ..entry })?;
        }
    }
    let mut results = Vec::with_capacity(watches.len());
    let ready = wait(context, &watches, deadline, &mut results)?;
    for ((index, entry), found) in descriptors.into_iter().zip(results) {
        let place = address + index * 8;
        let found = found as u16;
        context.write_value(place, &PollDescriptor { found, ..entry })?;
    }
    Ok(ready)
}

fn poll(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[address, count, timeout, ..] = arguments;
    let deadline = milliseconds_argument(context, timeout);
    poll_or_restart(context, address, count as u32 as u64, deadline)
}

/// Polls until a time that stays the same when the call goes on after a stop.
///
/// # Errors
/// Those of `poll`, and `ERESTART_RESTARTBLOCK` after a signal.
pub fn poll_or_restart(
    context: &Context<'_>,
    descriptors: u64,
    count: u64,
    deadline: Option<u64>,
) -> CallResult {
    let result = poll_until(context, descriptors, count, deadline);
    if result != Err(Errno::ERESTARTNOHAND) {
        return result;
    }
    *context.thread.restart.lock() = Some(RestartBlock::Poll {
        descriptors,
        count,
        deadline,
    });
    Err(Errno::ERESTART_RESTARTBLOCK)
}

fn ppoll(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[address, count, timeout, mask, size, _] = arguments;
    let deadline = timeout_argument(context, timeout)?;
    let result = context.with_signal_mask(mask, size, || {
        poll_until(context, address, count as u32 as u64, deadline)
    });
    finish_timespec(context, result, deadline, timeout)
}
