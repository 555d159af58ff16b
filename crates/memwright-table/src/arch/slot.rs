//! The slots of a page table, in which entries are stored.

use core::fmt::Debug;
use core::sync::atomic::{AtomicU64, Ordering};

/// A slot of a page table: stores the word of one entry ([`word`](super::word)).
///
/// Hardware, and a translation by software, can set the accessed and the dirty bit at any time. All other changes are
/// made under the lock of the table.
pub trait TableSlot: Sized + Debug + Send + Sync + 'static {
    /// Returns `slots` as words in memory, each of which one instruction can read and test. Returns `None` if a slot is
    /// more than one word.
    fn as_words<const N: usize>(slots: &[Self; N]) -> Option<&[AtomicU64; N]>;

    /// Returns the word, with the bits that hardware has set.
    fn load(&self, order: Ordering) -> u64;

    /// Stores `word`.
    fn store(&self, word: u64, order: Ordering);

    /// Stores `hardware`, which is an entry in the format of the processors. Software does not use the entry.
    fn store_hardware(&self, hardware: u64);

    /// Stores `word`, and returns the previous word, with the bits that hardware has set until then.
    fn swap(&self, word: u64, order: Ordering) -> u64;

    /// If the word is `old`, stores `new` and returns `old`.
    ///
    /// # Errors
    /// The present word, if it is not `old`. In this case, nothing is stored.
    fn exchange(&self, old: u64, new: u64) -> Result<u64, u64>;

    /// Sets `bits` in the word of an entry that the processor uses. Bits that hardware sets at the same time are kept.
    fn set(&self, bits: u64);

    /// Clears `bits` in the word of an entry that the processor may use. Bits that hardware sets at the same time are
    /// kept, unless they are among `bits`.
    fn clear(&self, bits: u64);
}

impl TableSlot for AtomicU64 {
    #[inline(always)]
    fn as_words<const N: usize>(slots: &[Self; N]) -> Option<&[AtomicU64; N]> {
        Some(slots)
    }

    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, word: u64, order: Ordering) {
        self.store(word, order);
    }

    #[inline(always)]
    fn store_hardware(&self, hardware: u64) {
        self.store(hardware, Ordering::Relaxed);
    }

    #[inline(always)]
    fn swap(&self, word: u64, order: Ordering) -> u64 {
        self.swap(word, order)
    }

    #[inline(always)]
    fn exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(&self, bits: u64) {
        self.fetch_or(bits, Ordering::AcqRel);
    }

    #[inline(always)]
    fn clear(&self, bits: u64) {
        self.fetch_and(!bits, Ordering::AcqRel);
    }
}
