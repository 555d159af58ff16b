//! Waiting for descriptors: `poll` and `ppoll`.

use super::{descriptor, real};
use crate::{
    abi::Timespec,
    abi_struct,
    context::Context,
    errno::Errno,
    fs::{OpenFile, Readiness},
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
            Some(open) => open.file.readiness(context).bits() & (self.wanted | always.bits()),
            None => raw::POLLNVAL,
        }
    }
}

/// Waits until something is found for at least one watch, or the deadline; returns how many.
///
/// `deadline` is a time of the host's clock; `None` waits for ever, zero not at all.
///
/// # Errors
/// `EINTR` when a signal came first.
pub fn wait(
    context: &Context<'_>,
    watches: &[Watch],
    deadline: Option<u64>,
    mut found: impl FnMut(usize, u32),
) -> Result<u64, Errno> {
    let mut queues: Vec<&WaitQueue> = Vec::new();
    for open in watches.iter().filter_map(|watch| watch.open.as_deref()) {
        open.file.queues(&mut queues);
    }
    let ready = || {
        let count = watches
            .iter()
            .filter(|watch| watch.found(context) != 0)
            .count();
        (count > 0).then_some(count)
    };
    match context.wait_until(&queues, deadline, ready) {
        Ok(_) | Err(WaitError::TimedOut) => {}
        Err(WaitError::Interrupted) => return Err(Errno::EINTR),
    }
    let mut count = 0;
    for (index, watch) in watches.iter().enumerate() {
        let bits = watch.found(context);
        found(index, bits);
        count += u64::from(bits != 0);
    }
    Ok(count)
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

/// Stores what is left of a timeout, as Linux does at the end of `ppoll` and `pselect6`; that it
/// cannot be stored is no error.
pub fn store_rest(context: &Context<'_>, address: u64, deadline: Option<u64>) {
    if let (Some(deadline), true) = (deadline, address != 0) {
        let rest = deadline.saturating_sub(context.kernel.host.now());
        let _ = context.write_value(address, &Timespec::from_nanoseconds(rest));
    }
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
    let ready = wait(context, &watches, deadline, |_, bits| {
        results.push(bits as u16);
    })?;
    for ((index, entry), found) in descriptors.into_iter().zip(results) {
        let place = address + index * 8;
        context.write_value(place, &PollDescriptor { found, ..entry })?;
    }
    Ok(ready)
}

fn poll(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[address, count, timeout, ..] = arguments;
    let deadline = match u64::try_from(timeout as i32) {
        Ok(milliseconds) => deadline_after(context, milliseconds * 1_000_000),
        Err(_) => None,
    };
    poll_until(context, address, count as u32 as u64, deadline)
}

fn ppoll(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[address, count, timeout, mask, size, _] = arguments;
    let deadline = timeout_argument(context, timeout)?;
    let result = context.with_signal_mask(mask, size, || {
        poll_until(context, address, count as u32 as u64, deadline)
    });
    store_rest(context, timeout, deadline);
    result
}
