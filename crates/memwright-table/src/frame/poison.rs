//! Poisoning of free frames. Debug builds poison a frame when it is freed, and check that it is unchanged when it is
//! allocated again. The check detects writes through stale translations and stale pointers.

use super::Frames;
use super::meta::State;
use crate::addr::{Frame, PAGE_SIZE};
use crate::machine::{Machine, frame_pointer};

/// The value of each word of a poisoned frame. It is not a canonical address, not a small number, and odd.
const PATTERN: u64 = 0xdead_f7ee_dead_f7ed;
const WORDS: usize = PAGE_SIZE / 8;

impl<M: Machine> Frames<M> {
    /// Poisons a frame that is being freed.
    pub(super) fn poison(&self, frame: Frame) {
        let words = frame_pointer(self.base, frame).cast::<u64>();
        for index in 0..WORDS {
            // SAFETY: the frame belongs to this machine, because its metadata was found, and is free.
            unsafe { words.add(index).write_volatile(PATTERN) };
        }
        let meta = self.meta(frame);
        meta.set_state(meta.state().with(State::POISONED));
    }

    /// Panics if a poisoned frame has changed since it was freed.
    pub(super) fn check_poison(&self, frame: Frame) {
        let meta = self.meta(frame);
        if !meta.state().has(State::POISONED) {
            return;
        }
        let words = frame_pointer(self.base, frame).cast::<u64>();
        for index in 0..WORDS {
            // SAFETY: as in `poison`.
            let found = unsafe { words.add(index).read_volatile() };
            assert!(
                found == PATTERN,
                "{frame:?} was written to while free: {found:#x} at offset {:#x}",
                index * 8
            );
        }
        meta.set_state(meta.state().without(State::POISONED));
    }
}
