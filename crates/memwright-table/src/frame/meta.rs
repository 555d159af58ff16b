//! Metadata of one frame: one cache line.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::FrameKind;
use crate::sync::RawLock;

/// No link: the frame is in no list.
pub(crate) const UNLINKED: u32 = u32::MAX;
/// The link of the last frame of a list.
pub(crate) const END: u32 = u32::MAX - 1;

/// Metadata of one frame. Every field is atomic: who may write it is said beside it.
#[repr(C, align(64))]
pub(crate) struct Meta {
    /// References of an allocated block, at its first frame; 0 while free. Of a folio see `folio.rs`.
    pub(crate) references: AtomicU32,
    /// A [`State`]. Written by whoever allocates and frees, and under the lock of the node.
    state: AtomicU32,
    /// Free: the next of the list, guarded by the list's lock. Allocated: the next frame that a
    /// gather holds, claimed by whoever makes it linked; or the first frame, of a tail.
    link: AtomicU32,
    /// The previous of a node's list, guarded by the node's lock.
    pub(crate) back: AtomicU32,
    /// References by which devices or the kernel may write at any time (rule 6).
    pub(crate) pins: AtomicU32,
    /// A table's lock.
    pub(crate) lock: RawLock,
    /// The owner's: what the page belongs to. Of a table: the root and the level.
    pub(crate) owner: AtomicU64,
    /// The owner's: which page of it. Of a table: the first page it maps.
    pub(crate) index: AtomicU64,
    /// A table's entries that are not empty. Written under its lock.
    pub(crate) live: AtomicU32,
    /// References of a folio as a whole, at its first frame.
    pub(crate) whole: AtomicU32,
    /// Of a table: the first of those set aside for splits of its huge pages. Written under its lock.
    pub(crate) aside: AtomicU32,
    /// Of a lowest table: what is known of all its entries, until software locks it to change them. Written under its
    /// lock (`quiet.rs`).
    pub(crate) quiet: AtomicU32,
}

const _: () = assert!(size_of::<Meta>() == 64);

/// Kind, order, node and flags of a frame, in one word: one comparison tells whether two frames
/// are alike.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(u32);

impl State {
    /// Debug builds: the contents were overwritten when the frame was freed.
    pub(crate) const POISONED: u32 = 1 << 24;
    /// The frame is not the first of its allocated block; its link names the first.
    pub(crate) const TAIL: u32 = 1 << 25;
    /// The first frame of a free block in a list of its node.
    pub(crate) const LISTED: u32 = 1 << 26;
    /// The first frame of a folio.
    pub(crate) const FOLIO: u32 = 1 << 27;
    /// Beside `FOLIO`: the parts are counted by themselves.
    pub(crate) const PARTED: u32 = 1 << 28;
    /// A frame of a parted folio, but for the first.
    pub(crate) const PART: u32 = 1 << 29;
    /// A copy of the page is outside of memory, in the slot that the owner's field names.
    pub(crate) const COPIED: u32 = 1 << 30;
    /// What is in the frame may be lost.
    pub(crate) const LAZY: u32 = 1 << 31;
    /// The frame lies in a block of several whose metadata knows of it.
    pub(crate) const IN_BLOCK: u32 = Self::TAIL | Self::FOLIO | Self::PART;
    /// The order of the folio that the frame was made a page of; see `pages.rs`.
    pub(crate) const PAGE_OF: u32 = 0xf << Self::PAGE_OF_SHIFT;
    const PAGE_OF_SHIFT: u32 = 20;
    /// The node.
    const NODE: u32 = 0xf << 16;

    #[inline]
    pub(crate) const fn new(kind: FrameKind, order: u8, node: u8) -> Self {
        Self(kind as u32 | (order as u32) << 8 | (node as u32) << 16)
    }

    /// The same with flags added.
    #[inline]
    pub(crate) const fn with(self, flags: u32) -> Self {
        Self(self.0 | flags)
    }

    /// The same with flags removed.
    #[inline]
    pub(crate) const fn without(self, flags: u32) -> Self {
        Self(self.0 & !flags)
    }

    #[inline]
    pub(crate) const fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// Whether it is of this kind, and has no copy outside of memory.
    #[inline]
    pub(crate) const fn is_plain(self, kind: FrameKind) -> bool {
        self.0 & (0xff | Self::COPIED) == kind as u32
    }

    #[inline]
    pub(crate) const fn kind(self) -> FrameKind {
        FrameKind::ALL[(self.0 & 0xff) as usize]
    }

    /// The order of the free or allocated block that starts here.
    #[inline]
    pub(crate) const fn order(self) -> u8 {
        (self.0 >> 8) as u8
    }

    #[inline]
    pub(crate) const fn node(self) -> u8 {
        ((self.0 & Self::NODE) >> 16) as u8
    }

    /// The order of the folio that the frame was made a page of; 0 for none.
    #[inline]
    pub(crate) const fn page_of(self) -> u8 {
        ((self.0 & Self::PAGE_OF) >> Self::PAGE_OF_SHIFT) as u8
    }

    /// The same as a page of a folio of `order`.
    #[inline]
    pub(crate) const fn as_page_of(self, order: u8) -> Self {
        Self(self.0 & !Self::PAGE_OF | (order as u32) << Self::PAGE_OF_SHIFT)
    }

    /// Whether the block is one frame of the first node: any CPU's cache may have it without a look at where it
    /// belongs, where there is one node.
    #[inline]
    pub(crate) const fn is_single_of_first(self) -> bool {
        self.0 & (0xff00 | Self::NODE) == 0
    }

    /// Another kind and order on the same node, page of no folio. What was poisoned stays so until it is looked at.
    #[inline]
    pub(crate) const fn become_block(self, kind: FrameKind, order: u8) -> Self {
        let kept = self.0 & (Self::NODE | Self::POISONED);
        Self(kept | kind as u32 | (order as u32) << 8)
    }
}

impl State {
    /// The same folio, used for something else.
    pub(crate) const fn become_folio(self, kind: FrameKind) -> Self {
        self.become_block(kind, super::FOLIO_ORDER)
            .with(Self::FOLIO)
    }
}

impl Meta {
    pub(crate) fn new(state: State) -> Self {
        Self {
            references: AtomicU32::new(0),
            state: AtomicU32::new(state.0),
            link: AtomicU32::new(UNLINKED),
            back: AtomicU32::new(UNLINKED),
            pins: AtomicU32::new(0),
            lock: RawLock::new(),
            owner: AtomicU64::new(0),
            index: AtomicU64::new(0),
            live: AtomicU32::new(0),
            whole: AtomicU32::new(0),
            aside: AtomicU32::new(END),
            quiet: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        State(self.state.load(Ordering::Relaxed))
    }

    /// Adds flags that others may change meanwhile, each his own.
    pub(crate) fn add_flags(&self, flags: u32) {
        self.state.fetch_or(flags, Ordering::Relaxed);
    }

    /// Takes flags away that others may change meanwhile, each his own.
    pub(crate) fn remove_flags(&self, flags: u32) {
        self.state.fetch_and(!flags, Ordering::Relaxed);
    }

    /// Makes a page of a larger folio one of a folio of `order`, whatever others do to the flags meanwhile. A frame that is
    /// something else by now stays what it is.
    pub(crate) fn lower_page_of(&self, order: u8) {
        let change = |state| {
            let state = State(state);
            (state.page_of() > order).then(|| state.as_page_of(order).0)
        };
        let relaxed = Ordering::Relaxed;
        // It fails where there is nothing to lower.
        let _ = self.state.fetch_update(relaxed, relaxed, change);
    }

    #[inline]
    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state.0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn kind(&self) -> FrameKind {
        self.state().kind()
    }

    #[inline]
    pub(crate) fn is_table(&self) -> bool {
        self.state().0 & 0xff == FrameKind::Table as u32
    }

    #[inline]
    pub(crate) fn is_tail(&self) -> bool {
        self.state().has(State::TAIL)
    }

    /// Whether what is counted of the frame may be counted elsewhere too.
    #[inline]
    pub(crate) fn is_in_block(&self) -> bool {
        self.state().has(State::IN_BLOCK)
    }

    #[inline]
    pub(crate) fn link(&self) -> u32 {
        self.link.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_link(&self, link: u32) {
        self.link.store(link, Ordering::Relaxed);
    }

    /// Puts an allocated block into a gather's list before `next`, unless another has it. The
    /// caller has a reference, and gives it to the list.
    #[inline]
    pub(crate) fn claim(&self, next: u32) -> bool {
        // Acquire: whoever had another reference unlinked the frame before giving that up.
        if self.references.load(Ordering::Acquire) == 1 {
            // The only reference is the caller's, and every list has one of each of its frames.
            self.set_link(next);
            return true;
        }
        let (unlinked, order) = (UNLINKED, Ordering::Relaxed);
        self.link
            .compare_exchange(unlinked, next, order, order)
            .is_ok()
    }

    /// Drops one reference; `true` if it was the last, and the caller is to free the block.
    ///
    /// # Panics
    /// If there was none.
    #[inline]
    pub(crate) fn drop_reference(&self) -> bool {
        // The last holder need not tell anybody.
        if self.references.load(Ordering::Acquire) == 1 {
            self.references.store(0, Ordering::Relaxed);
            return true;
        }
        let before = self.references.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a reference was given up that does not exist");
        before == 1
    }
}
