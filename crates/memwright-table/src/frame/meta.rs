//! Metadata of one frame: one cache line.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::FrameKind;
use crate::sync::RawLock;

/// No link: the frame is in no list.
pub(crate) const UNLINKED: u32 = u32::MAX;
/// The link of the last frame of a list.
pub(crate) const END: u32 = u32::MAX - 1;

/// Debug builds: the contents were overwritten when the frame was freed.
pub(crate) const POISONED: u8 = 1 << 0;
/// The frame is not the first of its allocated block; `link` names the first.
pub(crate) const TAIL: u8 = 1 << 1;

/// Metadata of one frame. Every field is atomic: who may write it is said beside it.
#[repr(C, align(64))]
pub(crate) struct Meta {
    /// References of an allocated block, at its first frame; 0 while free.
    pub(crate) references: AtomicU32,
    /// A `FrameKind`. Written by whoever allocates and frees.
    kind: AtomicU8,
    /// The order of the free or allocated block that starts here.
    pub(crate) order: AtomicU8,
    /// The node. Written once.
    pub(crate) node: AtomicU8,
    /// `POISONED`, `TAIL`.
    pub(crate) flags: AtomicU8,
    /// Free: the next of the list, guarded by the list's lock. Allocated: the next frame that a
    /// gather holds, claimed by compare-exchange from `UNLINKED`; or the first frame, of a tail.
    pub(crate) link: AtomicU32,
    /// Free: the previous of the buddy list.
    pub(crate) back: AtomicU32,
    /// The owner's: what the page belongs to. Of a table: the root.
    pub(crate) owner: AtomicU64,
    /// The owner's: which page of it. Of a table: the first page it maps.
    pub(crate) index: AtomicU64,
    /// A table's lock.
    pub(crate) lock: RawLock,
    /// References by which devices or the kernel may write at any time (rule 6).
    pub(crate) pins: AtomicU32,
    /// A table's entries that are not empty. Written under its lock.
    pub(crate) live: AtomicU32,
    /// A table's level, 1 the lowest.
    pub(crate) level: AtomicU8,
}

const _: () = assert!(size_of::<Meta>() == 64);

impl Meta {
    pub(crate) fn new(kind: FrameKind, node: u8) -> Self {
        Self {
            references: AtomicU32::new(0),
            kind: AtomicU8::new(kind as u8),
            order: AtomicU8::new(0),
            node: AtomicU8::new(node),
            flags: AtomicU8::new(0),
            link: AtomicU32::new(UNLINKED),
            back: AtomicU32::new(UNLINKED),
            owner: AtomicU64::new(0),
            index: AtomicU64::new(0),
            lock: RawLock::new(),
            pins: AtomicU32::new(0),
            live: AtomicU32::new(0),
            level: AtomicU8::new(0),
        }
    }

    #[inline]
    pub(crate) fn kind(&self) -> FrameKind {
        FrameKind::ALL[self.kind.load(Ordering::Relaxed) as usize]
    }

    #[inline]
    pub(crate) fn set_kind(&self, kind: FrameKind) {
        self.kind.store(kind as u8, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn order(&self) -> u8 {
        self.order.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    #[inline]
    pub(crate) fn link(&self) -> u32 {
        self.link.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_link(&self, link: u32) {
        self.link.store(link, Ordering::Relaxed);
    }
}
