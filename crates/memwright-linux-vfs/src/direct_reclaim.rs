//! Direct reclaim: an operation fails for lack of memory only if no page can be reclaimed (Linux 7.2 `mm/page_alloc.c`,
//! `__alloc_pages_slowpath`).
//!
//! The memory manager never waits for memory. If it finds no free frame, it returns an error and leaves everything
//! unchanged, or keeps the part that succeeded. The caller of the memory manager, which holds no lock by then, runs
//! direct reclaim and retries the operation. This module retries all operations except page faults. Page faults are
//! retried elsewhere, because they can run the OOM killer.

use memwright::{
    AdviseError, BindError, FaultError, ForkError, LockError, MapError, NameError, ObjectError,
    PopulateError, ProtectError, RemapError, SealError, UnmapError,
    uffd::{FillError, MoveError, WatchError},
};
use memwright_table::{OutOfFrames, OutOfMemory};

/// An error of an operation that can be retried after direct reclaim.
pub trait Failure {
    /// Returns whether the operation failed for lack of memory, and not because of a limit or the commit accounting.
    fn wants_memory(&self) -> bool;
}

/// Implements `Failure` for the listed error types. The patterns after a type match its errors for lack of memory.
macro_rules! failures {
    ($($error:ty: $($wants:pat_param)|+,)*) => {
        $(
            impl Failure for $error {
                #[inline]
                fn wants_memory(&self) -> bool {
                    matches!(self, $($wants)|+)
                }
            }
        )*
    };
}

failures! {
    memwright_linux_sched::scheduler::AdmitError: Self::OutOfMemory,
    AdviseError: Self::OutOfMemory | Self::Fault(FaultError::OutOfMemory),
    BindError: Self::OutOfMemory,
    FaultError: Self::OutOfMemory,
    // The `usize` is the number of bytes that were copied. A retry copies them again.
    (FaultError, usize): (FaultError::OutOfMemory, _),
    FillError: Self::OutOfMemory,
    ForkError: Self::OutOfMemory,
    LockError: Self::OutOfMemory | Self::Fault(FaultError::OutOfMemory),
    MapError: Self::OutOfMemory,
    MoveError: Self::OutOfMemory,
    NameError: Self::OutOfMemory,
    ObjectError: Self::OutOfMemory,
    OutOfFrames: _,
    OutOfMemory: _,
    memwright_linux_abi::host::OutOfMemory: _,
    PopulateError: Self::OutOfMemory,
    ProtectError: Self::OutOfMemory,
    RemapError: Self::OutOfMemory,
    SealError: Self::OutOfMemory,
    memwright::SpaceError: Self::OutOfMemory,
    UnmapError: Self::OutOfMemory,
    WatchError: Self::OutOfMemory,
}

/// Direct reclaim on behalf of an operation that found no memory.
pub trait DirectReclaim: Sync {
    /// Reclaims pages after attempt number `round` of an operation failed. The first attempt has the number 0. A larger
    /// number reclaims more pages. Returns the number of the next attempt. Returns `None` if the operation must not be
    /// retried: after too many attempts, or if no page was reclaimed and no other CPU allocated a frame in the
    /// meantime.
    ///
    /// # Locks
    /// The caller holds no lock.
    fn after_round(&self, round: u64) -> Option<u64>;
}

/// Retries operations after direct reclaim.
pub trait Retry {
    /// Calls `attempt`. If it fails for lack of memory, reclaims pages and calls it again, as long as pages can be
    /// reclaimed.
    ///
    /// # Errors
    /// The errors of the last attempt.
    ///
    /// # Locks
    /// The caller holds no lock.
    fn retry<T, E: Failure>(&self, attempt: impl FnMut() -> Result<T, E>) -> Result<T, E>;

    /// Retries like [`Self::retry`], for operations that continue where they stopped. `attempt` also returns the place
    /// where it stopped. If that place changed since the last attempt, the count of attempts restarts at 0.
    ///
    /// # Errors
    /// The errors of the last attempt.
    fn retry_onward<T, E: Failure, P: PartialEq>(
        &self,
        attempt: impl FnMut() -> (Result<T, E>, P),
    ) -> Result<T, E>;
}

impl<R: DirectReclaim + ?Sized> Retry for R {
    #[inline]
    fn retry<T, E: Failure>(&self, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        self.retry_onward(|| (attempt(), ()))
    }

    #[inline]
    fn retry_onward<T, E: Failure, P: PartialEq>(
        &self,
        mut attempt: impl FnMut() -> (Result<T, E>, P),
    ) -> Result<T, E> {
        let (mut round, mut place) = (0, None);
        loop {
            match attempt() {
                (Err(error), stopped) if error.wants_memory() => {
                    let stopped = Some(stopped);
                    if place != stopped {
                        (round, place) = (0, stopped);
                    }
                    match self.after_round(round) {
                        Some(next) => round = next,
                        None => return Err(error),
                    }
                }
                (done, _) => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memwright::Limit;

    #[test]
    fn want_of_memory_is_no_limit_and_no_promise() {
        #[rustfmt::skip]
        let rows = [
            (MapError::OutOfMemory.wants_memory(), true),
            (MapError::Overcommit.wants_memory(), false),
            (MapError::OverLimit(Limit::Areas).wants_memory(), false),
            (MapError::NoRoom.wants_memory(), false),
            (ForkError::Overcommit.wants_memory(), false),
            (LockError::OverLimit(Limit::Locked).wants_memory(), false),
            (LockError::Fault(FaultError::OutOfMemory).wants_memory(), true),
            (LockError::Fault(FaultError::Io).wants_memory(), false),
            (AdviseError::Fault(FaultError::OutOfMemory).wants_memory(), true),
            (AdviseError::Fault(FaultError::NoHugePage).wants_memory(), false),
            ((FaultError::OutOfMemory, 100).wants_memory(), true),
            ((FaultError::NoArea, 0).wants_memory(), false),
            (ObjectError::InSwap.wants_memory(), false),
            (OutOfFrames.wants_memory(), true),
        ];
        for (number, (found, expected)) in rows.into_iter().enumerate() {
            assert_eq!(found, expected, "row {number}");
        }
    }
}
