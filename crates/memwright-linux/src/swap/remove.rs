//! Turns a swap device off after swapping its pages in (Linux 7.2 `mm/swapfile.c`, `swapoff`).

use super::Disk;
use crate::{context::Context, direct_reclaim::Retry, errno::Errno, hand::Hand};
use memwright::{FaultError, ObjectPlace, OvercommitMode};

/// Pages swapped in between two checks for signals.
const AT_ONCE: u64 = 256;

/// Turns a swap device off. If that fails, the device stays in use.
///
/// # Errors
/// `EINVAL` if the disk is not used as swap, `ENOMEM` if there is no memory for the swapped-out pages or the commit
/// limit is exceeded, `EIO` if the disk fails, `EINTR` if a signal is pending.
pub fn remove(context: &Context<'_>, disk: &Disk) -> Result<(), Errno> {
    let memory = &context.kernel.memory;
    let number = disk.begin_off()?;
    memory.close_swap(number, true);
    let commit = memory.commit();
    let promised = commit.mode() == OvercommitMode::Never && commit.committed() > commit.limit();
    let emptied = if promised {
        Err(Errno::ENOMEM)
    } else {
        empty(context, number)
    };
    if emptied.is_err() {
        memory.close_swap(number, false);
    }
    disk.end_off(emptied.is_err().then_some(number));
    emptied
}

/// Swaps the pages of device `number` in and removes the device. One round over all processes may not suffice: a
/// process that forks or exits in the meantime can own slots after the round has passed it.
fn empty(context: &Context<'_>, number: usize) -> Result<(), Errno> {
    let kernel = context.kernel;
    loop {
        bring_all_back(context, number)?;
        if kernel.memory.remove_swap(number) {
            return Ok(());
        }
        if context.interrupted() {
            return Err(Errno::EINTR);
        }
        kernel.scheduler.yield_now(context.thread);
    }
}

fn bring_all_back(context: &Context<'_>, number: usize) -> Result<(), Errno> {
    let kernel = context.kernel;
    let hand = Hand::new();
    bring_back(context, || {
        let mut failed = None;
        let is_over = hand.go_on(kernel.tasks, |space, page| {
            match space.bring_back(number, page, AT_ONCE) {
                Ok(next) => next,
                Err(error) => {
                    failed = Some(error);
                    Some(page)
                }
            }
        });
        failed.map_or(Ok(is_over), Err)
    })?;
    let mut place = ObjectPlace::default();
    bring_back(context, || {
        let brought = kernel
            .memory
            .bring_objects_back(number, &mut place, AT_ONCE);
        Ok(brought?)
    })
}

/// Calls `some`, which swaps a number of pages in, until it returns false because there are no more.
fn bring_back(
    context: &Context<'_>,
    mut some: impl FnMut() -> Result<bool, FaultError>,
) -> Result<(), Errno> {
    let kernel = context.kernel;
    loop {
        match kernel.reclaim.retry(&mut some) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(FaultError::OutOfMemory) => return Err(Errno::ENOMEM),
            Err(_) => return Err(Errno::EIO),
        }
        if context.interrupted() {
            return Err(Errno::EINTR);
        }
    }
}
