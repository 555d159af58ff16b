//! Counts the system calls that the report of a run lists: stubs by name, and unimplemented calls by number.

use alloc::collections::BTreeMap;
use memwright_linux_base::sync::{Lock, Rank};

/// Counts how often the programs of one run called each stub and each unimplemented system call.
pub struct CallCounts {
    counts: Lock<Counts>,
}

#[derive(Default)]
struct Counts {
    /// The number of calls of each stub, by name.
    stubs: BTreeMap<&'static str, u64>,
    /// The number of calls of each unimplemented system call, by its number. [`OTHERS`] is the key for all numbers that
    /// are not counted individually.
    missing: BTreeMap<u64, u64>,
}

/// A call that the report lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// A stub: it succeeds without having an effect.
    Stub(&'static str),
    /// An unimplemented call with this number.
    Missing(u64),
    /// All unimplemented calls that are not counted individually.
    Others,
}

/// Once this many call numbers have a count, a further number that Linux does not define is counted under [`OTHERS`].
/// The limit bounds the memory for the counts, because a program can try every number.
const MOST_UNKNOWN: usize = 1024;

/// The key for all numbers that are not counted individually.
const OTHERS: u64 = u64::MAX;

impl Default for CallCounts {
    /// Returns counters that are all zero.
    fn default() -> Self {
        Self {
            counts: Lock::new(Rank::Lists, Counts::default()),
        }
    }
}

impl CallCounts {
    /// Counts a call that succeeded without having an effect.
    pub fn count_stub(&self, name: &'static str) {
        *self.counts.lock().stubs.entry(name).or_default() += 1;
    }

    /// Counts a call that is not implemented. `has_name` states whether Linux has a call with this number.
    pub fn count_missing(&self, number: u64, has_name: bool) {
        let missing = &mut self.counts.lock().missing;
        let is_counted = has_name || missing.contains_key(&number) || missing.len() < MOST_UNKNOWN;
        let key = if is_counted { number } else { OTHERS };
        *missing.entry(key).or_default() += 1;
    }

    /// Calls `visit` with each call that was counted, and with its count.
    pub fn each(&self, mut visit: impl FnMut(Listed, u64)) {
        let counts = self.counts.lock();
        for (name, count) in &counts.stubs {
            visit(Listed::Stub(name), *count);
        }
        for (number, count) in &counts.missing {
            let listed = match *number {
                OTHERS => Listed::Others,
                number => Listed::Missing(number),
            };
            visit(listed, *count);
        }
    }
}
