//! Turns a swap device off after all pages on it have been swapped in (Linux 7.2 `mm/swapfile.c`, `swapoff`).

use super::Disk;
use crate::hand::Hand;
use memwright::{FaultError, ObjectPlace, OvercommitMode};
use memwright_linux_abi::errno::Errno;
use memwright_linux_tasks::process::Tasks;
use memwright_linux_vfs::{direct_reclaim::Retry, fs::caller::Caller};

/// The number of pages that are swapped in between two checks for signals.
const AT_ONCE: u64 = 256;

/// Turns the swap device on `disk` off. If that fails, the device stays in use.
///
/// # Errors
/// `EINVAL` if the disk is not used as swap, `ENOMEM` if there is no memory for the swapped-out pages or the commit
/// limit is exceeded, `EIO` if the disk fails, `EINTR` if a signal is pending.
pub fn remove(tasks: &Tasks, caller: &dyn Caller, disk: &Disk) -> Result<(), Errno> {
    let memory = &caller.vfs().memory;
    let number = disk.begin_off()?;
    memory.close_swap(number, true);
    let commit = memory.commit();
    let promised = commit.mode() == OvercommitMode::Never && commit.committed() > commit.limit();
    let emptied = if promised {
        Err(Errno::ENOMEM)
    } else {
        empty(tasks, caller, number)
    };
    if emptied.is_err() {
        memory.close_swap(number, false);
    }
    disk.end_off(emptied.is_err().then_some(number));
    emptied
}

/// Swaps in the pages of the swap device `number`, and removes the device. One round over all processes may not
/// suffice: if a process forks or exits during the round, a process that the round does not visit can own slots.
fn empty(tasks: &Tasks, caller: &dyn Caller, number: usize) -> Result<(), Errno> {
    loop {
        bring_all_back(tasks, caller, number)?;
        if caller.vfs().memory.remove_swap(number) {
            return Ok(());
        }
        if caller.interrupted() {
            return Err(Errno::EINTR);
        }
        caller.yield_now();
    }
}

fn bring_all_back(tasks: &Tasks, caller: &dyn Caller, number: usize) -> Result<(), Errno> {
    let hand = Hand::default();
    bring_back(caller, || {
        let mut failed = None;
        let is_over = hand.go_on(tasks, |space, page| {
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
    bring_back(caller, || {
        let brought = caller
            .vfs()
            .memory
            .bring_objects_back(number, &mut place, AT_ONCE);
        Ok(brought?)
    })
}

/// Calls `some` until it returns true. Each call of `some` swaps in a number of pages and returns whether no page is
/// left.
fn bring_back(
    caller: &dyn Caller,
    mut some: impl FnMut() -> Result<bool, FaultError>,
) -> Result<(), Errno> {
    loop {
        match caller.vfs().reclaim.retry(&mut some) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(FaultError::OutOfMemory) => return Err(Errno::ENOMEM),
            Err(_) => return Err(Errno::EIO),
        }
        if caller.interrupted() {
            return Err(Errno::EINTR);
        }
    }
}
