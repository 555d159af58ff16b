//! `eventfd`: a counter that reads decrease, writes increase, and threads can wait on.

use crate::fs::{
    abilities::{Polling, Positions},
    caller::Caller,
    open_file::{File, OpenFile},
    open_kind::OpenKind,
    readiness::Readiness,
    transfer::{Sink, Source},
};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::wait::{Queues, WaitQueue};

/// The largest counter value (`fs/eventfd.c` of Linux 7.2).
const LARGEST: u64 = u64::MAX - 1;

/// The open file behind a descriptor of `eventfd2`: the counter and its waiters.
pub struct EventCounter {
    count: Lock<u64>,
    /// Whether the counter is in semaphore mode: a read subtracts 1 and returns 1, instead of returning and clearing
    /// the value.
    semaphore: bool,
    readable: WaitQueue,
    writable: WaitQueue,
}

impl EventCounter {
    /// Creates a counter with the value `count`, in semaphore mode if `semaphore`.
    #[must_use]
    pub const fn new(count: u64, semaphore: bool) -> Self {
        Self {
            count: Lock::new(Rank::File, count),
            semaphore,
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
        }
    }

    /// Performs a read: decreases the counter, and returns the value that the reader gets. Returns `None` if the
    /// counter is zero.
    fn take(&self) -> Option<u64> {
        let mut count = self.count.lock();
        let taken = taken(*count, self.semaphore)?;
        *count -= taken;
        Some(taken)
    }

    /// Performs a write: adds `value` to the counter. Returns `None`, and adds nothing, if the sum would exceed
    /// [`LARGEST`].
    fn add(&self, value: u64) -> Option<()> {
        let mut count = self.count.lock();
        *count = added(*count, value)?;
        Some(())
    }
}

impl Drop for EventCounter {
    fn drop(&mut self) {
        self.readable.sweep();
        self.writable.sweep();
    }
}

/// Returns by how much a read decreases a counter with the value `count`; `None` if the counter is zero.
const fn taken(count: u64, semaphore: bool) -> Option<u64> {
    match (count, semaphore) {
        (0, _) => None,
        (_, true) => Some(1),
        (_, false) => Some(count),
    }
}

/// Returns the value of the counter after a write of `value`; `None` if the sum would exceed [`LARGEST`].
const fn added(count: u64, value: u64) -> Option<u64> {
    if LARGEST - count >= value {
        Some(count + value)
    } else {
        None
    }
}

impl File for EventCounter {
    fn counted_as(&self) -> OpenKind {
        OpenKind::Event
    }

    fn positions(&self) -> Positions {
        Positions::Ignored
    }

    fn read(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        _position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        if sink.left() < 8 {
            return Err(Errno::EINVAL);
        }
        let value = match self.take() {
            Some(value) => value,
            None if open.is_nonblocking() => return Err(Errno::EAGAIN),
            None => caller
                .wait_until(&[&self.readable], None, || self.take())
                .map_err(|error| error.restart())?,
        };
        self.writable.wake_all();
        sink.put(&value.to_le_bytes())
    }

    fn write(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        _position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let mut bytes = [0; 8];
        if source.left() < bytes.len() {
            return Err(Errno::EINVAL);
        }
        if source.take(&mut bytes)? < bytes.len() {
            return Err(Errno::EFAULT);
        }
        let value = u64::from_le_bytes(bytes);
        if value == u64::MAX {
            return Err(Errno::EINVAL);
        }
        match self.add(value) {
            Some(()) => {}
            None if open.is_nonblocking() => return Err(Errno::EAGAIN),
            None => caller
                .wait_until(&[&self.writable], None, || self.add(value))
                .map_err(|error| error.restart())?,
        }
        self.readable.wake_all();
        Ok(bytes.len())
    }

    fn polling(&self) -> Polling {
        Polling::Queues
    }

    fn readiness(&self, _caller: &dyn Caller, _open: &OpenFile) -> Readiness {
        let count = *self.count.lock();
        let mut ready = Readiness::empty();
        ready.set(Readiness::READ, count > 0);
        ready.set(Readiness::WRITE, count < LARGEST);
        ready
    }

    fn queues<'a>(&'a self, _caller: &'a dyn Caller, wanted: Readiness, queues: &mut Queues<'a>) {
        if wanted.concerns_reading() {
            queues.add(&self.readable);
        }
        if wanted.concerns_writing() {
            queues.add(&self.writable);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_counts() {
        for (count, semaphore, expected) in [
            (0, false, None),
            (0, true, None),
            (3, false, Some(3)),
            (3, true, Some(1)),
        ] {
            assert_eq!(taken(count, semaphore), expected);
        }
        for (count, value, expected) in [
            (0, 0, Some(0)),
            (1, 2, Some(3)),
            (0, LARGEST, Some(LARGEST)),
            (1, LARGEST, None),
            (LARGEST, 0, Some(LARGEST)),
            (LARGEST, 1, None),
        ] {
            assert_eq!(added(count, value), expected);
        }
    }
}
