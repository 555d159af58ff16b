//! `FUTEX_WAKE` and `FUTEX_WAKE_BITSET`.

use super::{Futexes, Left, Wanted, key};
use alloc::sync::Arc;
use memwright_linux_abi::{Space, errno::Errno};
use memwright_linux_tasks::process::Scope;

/// The bits that match every waiter (`FUTEX_BITSET_MATCH_ANY`).
pub const ANY: u32 = u32::MAX;

impl Futexes {
    /// Wakes up to `most` threads that wait for the word at `address` of `space` with at least one of the bits in
    /// `bits`. Returns the number of woken threads. As on Linux, one thread is woken even if `most` is 0 (`futex_wake`
    /// of Linux 7.2, `kernel/futex/waitwake.c`).
    ///
    /// # Errors
    /// `EINVAL` if `bits` is 0 or the address is not a multiple of 4, `EFAULT`.
    pub fn wake(
        &self,
        space: &Arc<Space>,
        address: u64,
        scope: Scope,
        most: u32,
        bits: u32,
    ) -> Result<u32, Errno> {
        if bits == 0 {
            return Err(Errno::EINVAL);
        }
        let found = key::find(space, address, scope, false)?;
        let mut left = Left::default();
        let mut wanted = Wanted::new(found.key, bits, at_least_one(most));
        let now = {
            let mut queue = self.lock(key::bucket_of(found.key));
            wanted.take(&mut queue, &mut left)
        };
        left.wake();
        if wanted.stay == 0 {
            return Ok(now);
        }
        Ok(now + self.wake_later(&mut wanted, &mut left))
    }
}

/// Converts the count `number` of a call. The count is an `int`; 0 and negative values mean 1.
pub(super) fn at_least_one(number: u32) -> u32 {
    (number as i32).max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::at_least_one;

    #[test]
    fn zero_and_less_wake_one() {
        for (number, most) in [(0, 1), (1, 1), (7, 7), (u32::MAX, 1), (1 << 31, 1)] {
            assert_eq!(at_least_one(number), most);
        }
    }
}
