//! Stores pieces of at most one page, packed into frames.
//!
//! All pieces in a frame have the same class. A frame is divided into equal parts, and each piece occupies one part. A
//! word in the frame's metadata records which parts are in use. Frames with free parts are in linked lists, one list
//! per class. The store allocates only frames, and frees a frame with its last piece.

use memwright_linux_abi::M;
use memwright_table::{Frame, FrameKind, Frames, OutOfFrames, PAGE_SIZE};

/// The number of parts into which a frame is divided, for each class. The first class has the largest parts.
const PARTS: [u8; 13] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 21, 32, 64];

/// Returns the size in bytes of a part of the class `class`.
const fn part(class: usize) -> usize {
    PAGE_SIZE / PARTS[class] as usize
}

/// Returns the class with the smallest parts that can hold `length` bytes.
fn class_of(length: usize) -> usize {
    (0..PARTS.len())
        .rev()
        .find(|class| part(*class) >= length)
        .unwrap_or(0)
}

/// The frame number that stands for no frame.
const NONE: u32 = u32::MAX;

/// The location of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    frame: u32,
    class: u8,
    index: u8,
}

/// The number of spare frames. If no other frame is free, which is likely when pages are swapped out, pieces are stored
/// in spare frames.
const SPARE: usize = 64;

/// The heads of the lists, the number of frames with pieces, and the spare frames.
pub struct Store {
    heads: [u32; PARTS.len()],
    frames: u64,
    spare: [u32; SPARE],
    spares: usize,
}

impl Store {
    pub const fn new() -> Self {
        Self {
            heads: [NONE; PARTS.len()],
            frames: 0,
            spare: [NONE; SPARE],
            spares: 0,
        }
    }

    /// Returns the number of frames that contain pieces.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Stores `bytes`, which have at most the length of a page.
    ///
    /// # Errors
    /// `OutOfFrames` if neither a frame nor a spare frame is free.
    pub fn put(&mut self, frames: &Frames<M>, bytes: &[u8]) -> Result<Piece, OutOfFrames> {
        let class = class_of(bytes.len());
        let mut head = self.heads[class];
        if head == NONE {
            let new = self.new_frame(frames)?;
            frames.set_owner(new, 0, links(NONE, NONE));
            head = new.number();
            self.heads[class] = head;
            self.frames += 1;
        }
        let frame = Frame::new(head);
        let (taken, around) = frames.owner(frame);
        let index = taken.trailing_ones();
        let taken = taken | 1 << index;
        frames.set_owner(frame, taken, around);
        if taken.count_ones() == u32::from(PARTS[class]) {
            self.unlink(frames, class, frame);
        }
        frames.write(frame, index as usize * part(class), bytes);
        Ok(Piece {
            frame: head,
            class: class as u8,
            index: index as u8,
        })
    }

    /// Allocates a frame for pieces. If no other frame is free, uses a spare frame.
    fn new_frame(&mut self, frames: &Frames<M>) -> Result<Frame, OutOfFrames> {
        match frames.allocate(0, FrameKind::Slab) {
            Ok(frame) => {
                self.fill_spare(frames);
                Ok(frame.into_raw())
            }
            Err(OutOfFrames) if self.spares > 0 => {
                self.spares -= 1;
                Ok(Frame::new(self.spare[self.spares]))
            }
            Err(OutOfFrames) => Err(OutOfFrames),
        }
    }

    /// Refills the spare frames, as far as free frames are available.
    pub fn fill_spare(&mut self, frames: &Frames<M>) {
        while self.spares < SPARE {
            let Ok(frame) = frames.allocate(0, FrameKind::Slab) else {
                return;
            };
            self.spare[self.spares] = frame.into_raw().number();
            self.spares += 1;
        }
    }

    /// Copies the contents of `piece` to `bytes`.
    pub fn get(&self, frames: &Frames<M>, piece: Piece, bytes: &mut [u8]) {
        let offset = usize::from(piece.index) * part(usize::from(piece.class));
        frames.read(Frame::new(piece.frame), offset, bytes);
    }

    /// Frees `piece`. If it was the last piece in its frame, also frees the frame.
    pub fn take(&mut self, frames: &Frames<M>, piece: Piece) {
        let (frame, class) = (Frame::new(piece.frame), usize::from(piece.class));
        let (taken, around) = frames.owner(frame);
        let full = taken.count_ones() == u32::from(PARTS[class]);
        let left = taken & !(1 << piece.index);
        frames.set_owner(frame, left, around);
        if left == 0 {
            if !full {
                self.unlink(frames, class, frame);
            }
            self.frames -= 1;
            if self.spares < SPARE {
                self.spare[self.spares] = frame.number();
                self.spares += 1;
            } else {
                drop(frames.adopt(frame));
            }
        } else if full {
            self.link(frames, class, frame);
        }
    }

    /// Adds a frame to the front of the list of its class.
    fn link(&mut self, frames: &Frames<M>, class: usize, frame: Frame) {
        let next = core::mem::replace(&mut self.heads[class], frame.number());
        let (taken, _) = frames.owner(frame);
        frames.set_owner(frame, taken, links(NONE, next));
        if next != NONE {
            let next = Frame::new(next);
            let (taken, around) = frames.owner(next);
            frames.set_owner(next, taken, links(frame.number(), next_of(around)));
        }
    }

    fn unlink(&mut self, frames: &Frames<M>, class: usize, frame: Frame) {
        let (_, around) = frames.owner(frame);
        let (previous, next) = (previous_of(around), next_of(around));
        if previous == NONE {
            self.heads[class] = next;
        } else {
            let previous = Frame::new(previous);
            let (taken, around) = frames.owner(previous);
            frames.set_owner(previous, taken, links(previous_of(around), next));
        }
        if next != NONE {
            let next = Frame::new(next);
            let (taken, around) = frames.owner(next);
            frames.set_owner(next, taken, links(previous, next_of(around)));
        }
    }
}

const fn links(previous: u32, next: u32) -> u64 {
    (previous as u64) << 32 | next as u64
}

const fn previous_of(around: u64) -> u32 {
    (around >> 32) as u32
}

const fn next_of(around: u64) -> u32 {
    around as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_in_the_least_part_that_holds_it() {
        for (length, parts) in [
            (1, 64),
            (64, 64),
            (65, 32),
            (2048, 2),
            (2049, 1),
            (4096, 1),
            (1365, 3),
            (1366, 2),
        ] {
            assert_eq!(PARTS[class_of(length)], parts, "{length}");
        }
    }
}
