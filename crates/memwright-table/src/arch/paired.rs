//! Slots of two words: one that software uses, and one that the processors read.
//!
//! An entry of RISC-V leaves two bits to software, and an entry of AArch64 four bits. Memwright keeps ten marks and a
//! protection key in an entry. A table therefore has a second frame, after the one that the processors walk, with a
//! word for each entry. The processors record accesses and stores in their own word only. The accessed bit of an entry
//! is therefore set if it is set in at least one of the two words. The same holds for the dirty bit.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

use super::slot::TableSlot;
use crate::addr::PAGE_SIZE;

/// The format in which the processors of an architecture read entries.
pub trait HardwareFormat: Send + Sync + 'static {
    /// Returns the entry `word` in the format of the processors. The result is 0 if the processors do not use the entry.
    fn encode(word: u64) -> u64;

    /// Returns the accessed and the dirty bit that `hardware`, an entry in the format of the processors, contains.
    fn recorded(hardware: u64) -> u64;
}

/// A slot of a table that has a frame for each of the two words.
///
/// The field `word` is the word of software. The word of the processors is at the same place in the frame before.
#[repr(transparent)]
pub struct PairedSlot<F> {
    word: AtomicU64,
    format: PhantomData<fn() -> F>,
}

impl<F> PairedSlot<F> {
    #[inline(always)]
    fn hardware(&self) -> &AtomicU64 {
        let address = core::ptr::from_ref(self).addr() - PAGE_SIZE;
        let word = core::ptr::with_exposed_provenance_mut(address);
        // SAFETY: a `PairedSlot` exists only in the last frame of a table that `Frames` has allocated, which has a
        // frame before it. Both frames are memory of the machine, whose base `Frames::new` has exposed. The words of
        // the first frame are aligned, and are accessed only by atomics and by hardware.
        unsafe { AtomicU64::from_ptr(word) }
    }
}

impl<F> fmt::Debug for PairedSlot<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairedSlot")
            .field("word", &self.word)
            .field("hardware", self.hardware())
            .finish()
    }
}

impl<F: HardwareFormat> TableSlot for PairedSlot<F> {
    #[inline(always)]
    fn as_words<const N: usize>(_: &[Self; N]) -> Option<&[AtomicU64; N]> {
        None
    }

    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.word.load(order) | F::recorded(self.hardware().load(order))
    }

    #[inline]
    fn store(&self, word: u64, order: Ordering) {
        self.word.store(word, order);
        self.hardware().store(F::encode(word), order);
    }

    #[inline]
    fn store_hardware(&self, hardware: u64) {
        self.hardware().store(hardware, Ordering::Relaxed);
    }

    #[inline]
    fn swap(&self, word: u64, order: Ordering) -> u64 {
        let old = self.word.swap(word, order);
        old | F::recorded(self.hardware().swap(F::encode(word), order))
    }

    #[inline]
    fn exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        let word = self.word.load(Ordering::Relaxed);
        let hardware = self.hardware().load(Ordering::Relaxed);
        let now = word | F::recorded(hardware);
        if now != old {
            return Err(now);
        }
        let encoded = F::encode(new);
        self.hardware()
            .compare_exchange(hardware, encoded, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|seen| word | F::recorded(seen))?;
        // A translation without the table's lock sets only bits that the word of the processors records. It must not
        // store the word of software, which the holder of the lock may have changed since.
        if word | F::recorded(encoded) != new {
            self.word.store(new, Ordering::Release);
        }
        Ok(old)
    }

    #[inline]
    fn set(&self, bits: u64) {
        self.update(|word| word | bits);
    }

    #[inline]
    fn clear(&self, bits: u64) {
        self.update(|word| word & !bits);
    }
}

impl<F: HardwareFormat> PairedSlot<F> {
    /// Replaces the word by what `change` returns for it.
    #[inline]
    fn update(&self, change: impl Fn(u64) -> u64) {
        let mut word = self.load(Ordering::Relaxed);
        while let Err(now) = self.exchange(word, change(word)) {
            word = now;
        }
    }
}
