//! Nothing fails for want of memory as long as pages can be sent out (Linux 7.2 `mm/page_alloc.c`,
//! `__alloc_pages_slowpath`).
//!
//! The memory manager waits for nobody: where it finds no frame it says so, and everything is as it was, or as far as it
//! came. Whoever asked it holds no lock then. He is relieved, and asks again: for all operations that is done here. Page
//! faults alone have a longer way, at whose end somebody is killed ([`crate::run`]).

use crate::kernel::Kernel;
use memwright::{
    AdviseError, BindError, FaultError, ForkError, LockError, MapError, ObjectError, PopulateError,
    ProtectError, RemapError, SealError, UnmapError,
    uffd::{FillError, MoveError, WatchError},
};
use memwright_table::{OutOfFrames, OutOfMemory};

/// How often one operation is tried again. Each time more pages go: after the last about 260 MiB have.
const MOST_ROUNDS: u64 = 64;

/// Why something failed.
pub(crate) trait Failure {
    /// Whether there was no memory: not because of a limit, or of what was promised.
    fn wants_memory(&self) -> bool;
}

/// Those that have a variant for it, and those with another beside that.
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
    AdviseError: Self::OutOfMemory | Self::Fault(FaultError::OutOfMemory),
    BindError: Self::OutOfMemory,
    FaultError: Self::OutOfMemory,
    // What went well before is done again.
    (FaultError, usize): (FaultError::OutOfMemory, _),
    FillError: Self::OutOfMemory,
    ForkError: Self::OutOfMemory,
    LockError: Self::OutOfMemory | Self::Fault(FaultError::OutOfMemory),
    MapError: Self::OutOfMemory,
    MoveError: Self::OutOfMemory,
    ObjectError: Self::OutOfMemory,
    OutOfFrames: _,
    OutOfMemory: _,
    crate::host::OutOfMemory: _,
    PopulateError: Self::OutOfMemory,
    ProtectError: Self::OutOfMemory,
    RemapError: Self::OutOfMemory,
    SealError: Self::OutOfMemory,
    UnmapError: Self::OutOfMemory,
    WatchError: Self::OutOfMemory,
}

impl Kernel {
    /// Does what `attempt` does, and does it again, as long as it finds no memory and pages can be sent out for it.
    /// Called without a lock.
    ///
    /// # Errors
    /// Those of the last attempt.
    #[inline]
    pub(crate) fn with_relief<T, E: Failure>(
        &self,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        self.with_relief_onward(|| (attempt(), ()))
    }

    /// Does so with what goes on where it stopped. `attempt` returns where that was, too: only attempts that stop at
    /// one place are counted together.
    ///
    /// # Errors
    /// Those of the last attempt.
    #[inline]
    pub(crate) fn with_relief_onward<T, E: Failure, P: PartialEq>(
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
                    match self.relieve_round(round) {
                        Some(next) => round = next,
                        None => return Err(error),
                    }
                }
                (done, _) => return done,
            }
        }
    }

    /// Sends pages out for the attempt after the `round`th; returns the number of that, or `None` if there is to be
    /// none: no page leaves, and no other CPU finds a frame either.
    #[cold]
    #[inline(never)]
    fn relieve_round(&self, round: u64) -> Option<u64> {
        let next = round + 1;
        let frames = self.memory.frames();
        let allocations = frames.allocations();
        if round >= MOST_ROUNDS {
            return None;
        }
        if self.reclaim.relieve(self, next) {
            return Some(next);
        }
        self.host.relax();
        (frames.allocations() != allocations).then_some(next)
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
