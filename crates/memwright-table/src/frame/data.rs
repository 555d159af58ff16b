//! Access to the contents of frames, by copies and atomics.

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::{FrameKind, Frames, Meta, Metas, SetupError};
use crate::addr::{Frame, PAGE_SIZE};
use crate::arch::Architecture;
use crate::machine::{Machine, SlotOf, frame_pointer};

/// The number of 64-bit words in a frame.
pub(super) const WORDS: usize = PAGE_SIZE / 8;
/// The initial value of a digest, the constant that is XORed with every second word, and the constant that is added
/// after each pair of words.
const SEEDS: [u64; 3] = [
    0x9e37_79b9_7f4a_7c15,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
];

impl<M: Machine> Frames<M> {
    /// Copies bytes from `offset` in `frame` to `bytes`. If another CPU writes at the same time, the copy can contain a
    /// part of that write.
    ///
    /// # Panics
    /// If the bytes are not all inside the frame, or the frame is not a data frame ([`FrameKind::is_data`]).
    #[inline]
    pub fn read(&self, frame: Frame, offset: usize, bytes: &mut [u8]) {
        let source = self.data(frame, offset, bytes.len());
        // SAFETY: `data` checked that the source is this long; frames and Rust's own memory are
        // disjoint, so the slice does not overlap.
        unsafe { source.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies `bytes` to `offset` in `frame`.
    ///
    /// # Panics
    /// As for `read`.
    #[inline]
    pub fn write(&self, frame: Frame, offset: usize, bytes: &[u8]) {
        let target = self.data(frame, offset, bytes.len());
        // SAFETY: as in `read`.
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Fills `length` bytes from `offset` in `frame` with `value`.
    ///
    /// # Panics
    /// As for `read`.
    #[inline]
    pub fn fill(&self, frame: Frame, offset: usize, length: usize, value: u8) {
        let target = self.data(frame, offset, length);
        // SAFETY: `data` checked that the target is this long.
        unsafe { target.write_bytes(value, length) };
    }

    /// Fills `frame` with zeroes.
    ///
    /// # Panics
    /// If the frame holds no data.
    #[inline]
    pub fn clear(&self, frame: Frame) {
        self.data(frame, 0, PAGE_SIZE);
        self.machine.clear_frame(frame);
    }

    /// Returns the first 64-bit word of `frame` if all words are equal, otherwise `None`.
    ///
    /// # Panics
    /// If the frame holds no data.
    #[must_use]
    pub fn repeated_word(&self, frame: Frame) -> Option<u64> {
        let words = self.data(frame, 0, PAGE_SIZE).cast::<u64>().cast_const();
        let at = |index: usize| {
            // SAFETY: `data` checked the frame, so its words are valid and aligned. The result can contain a part of a
            // concurrent write, as in `read`.
            unsafe { words.add(index).read() }
        };
        let first = at(0);
        for group in (0..WORDS).step_by(8) {
            let same = at(group) == first
                && at(group + 1) == first
                && at(group + 2) == first
                && at(group + 3) == first
                && at(group + 4) == first
                && at(group + 5) == first
                && at(group + 6) == first
                && at(group + 7) == first;
            if !same {
                return None;
            }
        }
        Some(first)
    }

    /// Returns a digest of the contents of `frame`. Different digests prove that two pages differ; equal digests prove
    /// nothing. If another CPU writes at the same time, the digest can include a part of that write.
    ///
    /// # Panics
    /// If the frame holds no data.
    #[must_use]
    pub fn digest(&self, frame: Frame) -> u64 {
        let words = self.data(frame, 0, PAGE_SIZE).cast::<u64>().cast_const();
        let at = |index: usize| {
            // SAFETY: as in `repeated_word`.
            unsafe { words.add(index).read() }
        };
        let mut digest = SEEDS[0];
        for pair in (0..WORDS).step_by(2) {
            let product = u128::from(digest ^ at(pair)) * u128::from(at(pair + 1) ^ SEEDS[1]);
            digest = (product as u64 ^ (product >> 64) as u64).wrapping_add(SEEDS[2]);
        }
        digest
    }

    /// Returns whether both frames hold the same bytes. If another CPU writes at the same time, the comparison can read
    /// a part of that write.
    ///
    /// # Panics
    /// If one of the frames holds no data.
    #[must_use]
    pub fn are_equal(&self, one: Frame, other: Frame) -> bool {
        let one = self.data(one, 0, PAGE_SIZE).cast::<u64>().cast_const();
        let other = self.data(other, 0, PAGE_SIZE).cast::<u64>().cast_const();
        let differ = |index: usize| {
            // SAFETY: as in `repeated_word`.
            unsafe { one.add(index).read() ^ other.add(index).read() }
        };
        (0..WORDS).step_by(4).all(|group| {
            differ(group) | differ(group + 1) | differ(group + 2) | differ(group + 3) == 0
        })
    }

    /// Stores `word` in every 64-bit word of `frame`.
    ///
    /// # Panics
    /// If the frame holds no data.
    pub fn repeat_word(&self, frame: Frame, word: u64) {
        if word == 0 {
            self.clear(frame);
            return;
        }
        let words = self.data(frame, 0, PAGE_SIZE).cast::<u64>();
        for index in 0..WORDS {
            // SAFETY: as in `repeated_word`.
            unsafe { words.add(index).write(word) };
        }
    }

    /// Copies the contents of `from` to `to`.
    ///
    /// # Panics
    /// If both are the same frame, or one of them holds no data.
    #[inline]
    pub fn copy(&self, from: Frame, to: Frame) {
        assert!(from != to, "copied a frame to itself");
        self.data(from, 0, PAGE_SIZE);
        self.data(to, 0, PAGE_SIZE);
        self.machine.copy_frame(from, to);
    }

    /// Returns the 32-bit word at `offset` in `frame`.
    ///
    /// # Panics
    /// If `offset` is not a multiple of 4, or as for `read`.
    #[inline]
    pub fn word32(&self, frame: Frame, offset: usize) -> &AtomicU32 {
        assert!(offset % 4 == 0, "misaligned word");
        let word = self.data(frame, offset, 4);
        // SAFETY: the word is in a data frame and aligned. It is accessed only by atomics, and by copies, whose races
        // are like those with accesses by hardware. The frame's memory outlives `self`.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// Returns the 64-bit word at `offset` in `frame`.
    ///
    /// # Panics
    /// If `offset` is not a multiple of 8, or as for `read`.
    #[inline]
    pub fn word64(&self, frame: Frame, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0, "misaligned word");
        let word = self.data(frame, offset, 8);
        // SAFETY: as in `word32`.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// Returns the 64-bit words of `frame`.
    ///
    /// # Panics
    /// If the frame holds no data.
    #[inline]
    pub fn words64(&self, frame: Frame) -> &[AtomicU64; WORDS] {
        let words = self.data(frame, 0, PAGE_SIZE);
        // SAFETY: as in `word32`, for each of the frame's words.
        unsafe { &*words.cast() }
    }

    /// Returns the slots of the page table in frame `table`.
    #[inline]
    pub(crate) fn table_words(&self, table: Frame) -> &[SlotOf<M>; 512] {
        debug_assert_eq!(self.kind(table), FrameKind::Table);
        self.meta(table);
        // SAFETY: `meta` checked that the frame is this machine's. It is a table, so its frames, of which the last has
        // the slots, are valid, aligned, and accessed as atomics only, by this crate and by hardware.
        unsafe { &*slots_pointer::<M>(self.base, table).cast() }
    }

    /// Returns the handle through which a walk accesses all page tables.
    #[inline]
    pub(crate) fn all_tables(&self) -> AllTables<'_, M> {
        AllTables {
            base: self.base,
            metas: self.metas(),
            machine: PhantomData,
        }
    }

    /// Returns the words that processors read in `root`, the machine's template, for copying its kernel half.
    ///
    /// # Errors
    /// [`SetupError::ManagedTemplate`] if `root` is a frame of this allocator whose kind is not [`FrameKind::Kernel`].
    pub(crate) fn template_words(&self, root: Frame) -> Result<&[AtomicU64; 512], SetupError> {
        match self.kind_at(root.number()) {
            None | Some(FrameKind::Kernel) => {}
            Some(_) => return Err(SetupError::ManagedTemplate(root)),
        }
        // SAFETY: the machine's contract makes the words of its template valid, and the embedder writes them only as
        // hardware would. The allocator and the library write to no frame of the kind `Kernel`.
        Ok(unsafe { &*frame_pointer(self.base, root).cast() })
    }

    /// Checks that `frame` is a data frame and the bytes are inside it, and returns a pointer to the bytes.
    #[inline]
    fn data(&self, frame: Frame, offset: usize, length: usize) -> *mut u8 {
        assert!(
            self.metas()
                .find(frame.number())
                .is_some_and(|meta| meta.kind().is_data())
                || self.kind_inside(frame).is_data(),
            "{frame:?} holds no data"
        );
        assert!(
            offset <= PAGE_SIZE && length <= PAGE_SIZE - offset,
            "bytes beyond the end of a frame"
        );
        frame_pointer(self.base, frame).wrapping_add(offset)
    }
}

/// Returns a pointer to the slots of the page table that begins at frame `table`. The slots are in the last of the
/// table's frames.
#[inline]
fn slots_pointer<M: Machine>(base: NonNull<u8>, table: Frame) -> *mut u8 {
    let last = table.number() + (M::Arch::TABLE_FRAMES - 1);
    frame_pointer(base, Frame::new(last))
}

/// The base addresses of memory and of the metadata, through which a walk accesses page tables. They are read once for
/// all levels of the walk.
pub(crate) struct AllTables<'a, M> {
    base: NonNull<u8>,
    metas: Metas<'a>,
    machine: PhantomData<&'a M>,
}

impl<M> Clone for AllTables<'_, M> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for AllTables<'_, M> {}

impl<'a, M: Machine> AllTables<'a, M> {
    /// Returns the slots of a page table.
    ///
    /// # Panics
    /// If the frame does not belong to this machine.
    #[inline]
    pub(crate) fn words(self, table: Frame) -> &'a [SlotOf<M>; 512] {
        self.metas.get(table.number());
        // SAFETY: as in `Frames::table_words`; `get` checked the frame.
        unsafe { &*slots_pointer::<M>(self.base, table).cast() }
    }

    /// Returns the metadata of a page table.
    ///
    /// # Panics
    /// If the frame does not belong to this machine.
    #[inline]
    pub(crate) fn meta(self, table: Frame) -> &'a Meta {
        self.metas.get(table.number())
    }
}
