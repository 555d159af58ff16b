//! `FUTEX_WAKE_OP`.

use super::{ANY, Futexes, Left, Wanted, key, wake::at_least_one};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{Space, errno::Errno, host::UserAccess};
use memwright_linux_tasks::process::Scope;

/// The change of the second word (one of the constants `FUTEX_OP_SET` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Set,
    Add,
    Or,
    AndNot,
    Xor,
}

/// The comparison of the second word's old value with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The operation and the comparison that the last argument of the call encodes (`futex_atomic_op_inuser` of Linux 7.2,
/// `kernel/futex/waitwake.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    change: Option<Change>,
    operand: u32,
    comparison: Option<Comparison>,
    against: i32,
}

/// Sign-extends a 12-bit field.
fn signed_12(field: u32) -> i32 {
    ((field << 20) as i32) >> 20
}

fn decode(encoded: u32) -> Operation {
    let operand = signed_12(encoded >> 12);
    let shifted = encoded >> 28 & raw::FUTEX_OP_OPARG_SHIFT != 0;
    Operation {
        change: match encoded >> 28 & 7 {
            raw::FUTEX_OP_SET => Some(Change::Set),
            raw::FUTEX_OP_ADD => Some(Change::Add),
            raw::FUTEX_OP_OR => Some(Change::Or),
            raw::FUTEX_OP_ANDN => Some(Change::AndNot),
            raw::FUTEX_OP_XOR => Some(Change::Xor),
            _ => None,
        },
        operand: if shifted {
            1 << (operand & 31)
        } else {
            operand as u32
        },
        comparison: match encoded >> 24 & 0xf {
            raw::FUTEX_OP_CMP_EQ => Some(Comparison::Equal),
            raw::FUTEX_OP_CMP_NE => Some(Comparison::NotEqual),
            raw::FUTEX_OP_CMP_LT => Some(Comparison::Less),
            raw::FUTEX_OP_CMP_LE => Some(Comparison::LessOrEqual),
            raw::FUTEX_OP_CMP_GT => Some(Comparison::Greater),
            raw::FUTEX_OP_CMP_GE => Some(Comparison::GreaterOrEqual),
            _ => None,
        },
        against: signed_12(encoded),
    }
}

impl Change {
    fn apply(self, old: u32, operand: u32) -> u32 {
        match self {
            Self::Set => operand,
            Self::Add => old.wrapping_add(operand),
            Self::Or => old | operand,
            Self::AndNot => old & !operand,
            Self::Xor => old ^ operand,
        }
    }

    /// Changes the word at `address` atomically. Returns its old value. Returns `None` if the access faults; the fault
    /// is not resolved.
    fn make(self, host: &dyn UserAccess, address: u64, operand: u32) -> Option<u32> {
        let mut old = host.user_peek32(address)?;
        loop {
            let seen = host.user_try_exchange32(address, old, self.apply(old, operand))?;
            if seen == old {
                return Some(old);
            }
            old = seen;
        }
    }
}

impl Comparison {
    fn holds(self, old: u32, against: i32) -> bool {
        let old = old as i32;
        match self {
            Self::Equal => old == against,
            Self::NotEqual => old != against,
            Self::Less => old < against,
            Self::LessOrEqual => old <= against,
            Self::Greater => old > against,
            Self::GreaterOrEqual => old >= against,
        }
    }
}

impl Futexes {
    /// Changes the word at `second` and wakes up to `most` waiters of the word at `first`. If the comparison holds for
    /// the old value of the second word, also wakes up to `most_second` waiters of the second word. Returns the number
    /// of woken threads (`futex_wake_op` of Linux 7.2, `kernel/futex/waitwake.c`).
    ///
    /// # Errors
    /// `ENOSYS` for an unknown operation; `ENOSYS` for an unknown comparison, after the word was changed; `EINVAL`,
    /// `EFAULT`.
    pub fn wake_and_operate(
        &self,
        space: &Arc<Space>,
        [first, second]: [u64; 2],
        scope: Scope,
        [most, most_second]: [u32; 2],
        encoded: u32,
    ) -> Result<u64, Errno> {
        let operation = decode(encoded);
        loop {
            let find = |address, write| key::find(space, address, scope, write);
            let (one, two) = (find(first, false)?, find(second, true)?);
            let change = operation.change.ok_or(Errno::ENOSYS)?;
            let mut left = Left::default();
            let (mut queue, mut other) =
                self.lock_two(key::bucket_of(one.key), key::bucket_of(two.key));
            let Some(old) = change.make(self.user, second, operation.operand) else {
                drop((queue, other));
                // This access makes the page of the second word writable, and leaves the word unchanged.
                self.user
                    .user_compare_exchange32(second, 0, 0)
                    .map_err(|_| Errno::EFAULT)?;
                continue;
            };
            let comparison = operation.comparison.ok_or(Errno::ENOSYS)?;
            let mut wanted = Wanted::new(one.key, ANY, at_least_one(most));
            let mut woken = wanted.take(&mut queue, &mut left);
            let mut wanted_second = Wanted::new(two.key, ANY, at_least_one(most_second));
            if comparison.holds(old, operation.against) {
                let queue = other.as_mut().unwrap_or(&mut queue);
                woken += wanted_second.take(queue, &mut left);
            }
            drop((queue, other));
            left.wake();
            for wanted in [&mut wanted, &mut wanted_second] {
                woken += self.wake_later(wanted, &mut left);
            }
            return Ok(woken.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Comparison, Operation, decode};

    /// Encodes an operation like `FUTEX_OP` of `linux/futex.h`.
    fn encode(op: u32, operand: u32, cmp: u32, against: u32) -> u32 {
        op << 28 | cmp << 24 | (operand & 0xfff) << 12 | against & 0xfff
    }

    #[test]
    fn operations_are_decoded() {
        let minus_one = u32::MAX;
        for (encoded, change, operand, comparison, against) in [
            (
                encode(0, 5, 0, 7),
                Some(Change::Set),
                5,
                Some(Comparison::Equal),
                7,
            ),
            (
                encode(1, minus_one, 1, minus_one),
                Some(Change::Add),
                minus_one,
                Some(Comparison::NotEqual),
                -1,
            ),
            (
                encode(2, 3, 2, 0),
                Some(Change::Or),
                3,
                Some(Comparison::Less),
                0,
            ),
            (
                encode(3, 3, 3, 0),
                Some(Change::AndNot),
                3,
                Some(Comparison::LessOrEqual),
                0,
            ),
            (
                encode(4, 3, 4, 0),
                Some(Change::Xor),
                3,
                Some(Comparison::Greater),
                0,
            ),
            (
                encode(8, 4, 5, 0),
                Some(Change::Set),
                16,
                Some(Comparison::GreaterOrEqual),
                0,
            ),
            (
                encode(10, 31, 0, 0),
                Some(Change::Or),
                1 << 31,
                Some(Comparison::Equal),
                0,
            ),
            (encode(5, 0, 6, 0), None, 0, None, 0),
        ] {
            let expected = Operation {
                change,
                operand,
                comparison,
                against,
            };
            assert_eq!(decode(encoded), expected, "{encoded:#x}");
        }
    }

    #[test]
    fn words_are_changed_and_compared() {
        for (change, old, operand, new) in [
            (Change::Set, 1, 9, 9),
            (Change::Add, u32::MAX, 2, 1),
            (Change::Or, 4, 1, 5),
            (Change::AndNot, 7, 2, 5),
            (Change::Xor, 6, 3, 5),
        ] {
            assert_eq!(change.apply(old, operand), new);
        }
        for (comparison, below, equal, above) in [
            (Comparison::Equal, false, true, false),
            (Comparison::NotEqual, true, false, true),
            (Comparison::Less, true, false, false),
            (Comparison::LessOrEqual, true, true, false),
            (Comparison::Greater, false, false, true),
            (Comparison::GreaterOrEqual, false, true, true),
        ] {
            // The comparison is signed: a word with all bits set is less than 0.
            assert_eq!(comparison.holds(u32::MAX, 0), below);
            assert_eq!(comparison.holds(0, 0), equal);
            assert_eq!(comparison.holds(1, 0), above);
        }
    }
}
