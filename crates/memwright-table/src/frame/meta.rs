//! The metadata of one frame: one cache line.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::FrameKind;
use crate::sync::RawLock;

/// The link of a frame that is in no list.
pub(crate) const UNLINKED: u32 = u32::MAX;
/// The link of the last frame of a list.
pub(crate) const END: u32 = u32::MAX - 1;

/// The references to a block that remain after one was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// No reference.
    None,
    /// One reference, and the frame belongs to an object. The reference is the object's, so no entry maps the frame any
    /// more.
    Object,
    /// One or more references, except the case of `Object`.
    Others,
}

/// The metadata of one frame. Every field is atomic. If the writers of a field must hold a lock, the comment of the
/// field names the lock.
#[repr(C, align(64))]
pub(crate) struct Meta {
    /// In the first frame of an allocated block: the number of references. 0 while free. For folios see `folio.rs`. In
    /// a table: the number of address spaces that share it (`table/shared.rs`).
    pub(crate) references: AtomicU32,
    /// A [`State`]. Written when the frame is allocated or freed, and under the lock of the node.
    state: AtomicU32,
    /// While free: the next frame of the list, protected by the list's lock. While allocated: the next frame in a
    /// gather's list; the gather that sets the link owns it. In a tail: the first frame of the block.
    link: AtomicU32,
    /// The previous block in a node's list, protected by the node's lock. In the head of a folio: the next folio in a
    /// gather's list.
    pub(crate) back: AtomicU32,
    /// The number of pins: references through which devices or the kernel can write at any time (rule:
    /// exclusive-before-pin).
    pub(crate) pins: AtomicU32,
    /// In a table: the lock of its entries. In the head of a folio: the lock that a CPU holds while it makes the folio
    /// parted.
    pub(crate) lock: RawLock,
    /// Set by the memory manager: a number that identifies the owner of the page, or the slot of its copy in swap. In a
    /// table: the root and the level, or a value that means that the table is shared.
    pub(crate) owner: AtomicU64,
    /// Set by the memory manager: the index of the page in its owner. In a table: the first page that it maps.
    pub(crate) index: AtomicU64,
    /// In a table: the counts of its entries by kind, in one word (`table/numbers.rs`); 0 if all entries are empty.
    /// Written under the table's lock.
    pub(crate) live: AtomicU32,
    /// In the first frame of a folio: the number of whole-folio references.
    pub(crate) whole: AtomicU32,
    /// In a table: the first of the page tables deposited for splits of its huge pages. Written under the table's lock.
    pub(crate) aside: AtomicU32,
    /// In a last-level table: flags about all of its entries (`quiet.rs`). Cleared when software locks the table to
    /// change it. Written under the table's lock.
    pub(crate) quiet: AtomicU32,
}

const _: () = assert!(size_of::<Meta>() == 64);

/// The kind, order, node and flags of a frame in one word, so that one comparison determines whether two frames have
/// equal states.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(u32);

impl State {
    /// The contents were poisoned when the frame was freed. In debug builds only.
    pub(crate) const POISONED: u32 = 1 << 24;
    /// The frame is not the first of its allocated block. Its link is the number of the first frame.
    pub(crate) const TAIL: u32 = 1 << 25;
    /// The first frame of a free block in a list of its node.
    pub(crate) const LISTED: u32 = 1 << 26;
    /// The first frame of a folio.
    pub(crate) const FOLIO: u32 = 1 << 27;
    /// With `FOLIO`: the references to each part are counted in the metadata of the part.
    pub(crate) const PARTED: u32 = 1 << 28;
    /// A frame of a parted folio, except for the first.
    pub(crate) const PART: u32 = 1 << 29;
    /// The page has a copy in the swap slot that the owner field holds.
    pub(crate) const COPIED: u32 = 1 << 30;
    /// The contents may be discarded (`MADV_FREE`).
    pub(crate) const LAZY: u32 = 1 << 31;
    /// The flags of frames in a block of several frames. In a closed folio, only the first frame has one of these
    /// flags.
    pub(crate) const IN_BLOCK: u32 = Self::TAIL | Self::FOLIO | Self::PART;
    /// The order of the folio with which the frame was allocated; see `pages.rs`.
    pub(crate) const PAGE_OF: u32 = 0xf << Self::PAGE_OF_SHIFT;
    const PAGE_OF_SHIFT: u32 = 20;
    /// The NUMA node.
    const NODE: u32 = 0xf << 16;

    #[inline]
    pub(crate) const fn new(kind: FrameKind, order: u8, node: u8) -> Self {
        Self(kind as u32 | (order as u32) << 8 | (node as u32) << 16)
    }

    /// Returns the state with flags added.
    #[inline]
    pub(crate) const fn with(self, flags: u32) -> Self {
        Self(self.0 | flags)
    }

    /// Returns the state with flags removed.
    #[inline]
    pub(crate) const fn without(self, flags: u32) -> Self {
        Self(self.0 & !flags)
    }

    #[inline]
    pub(crate) const fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// Whether the frame is of `kind` and has no copy in swap.
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

    /// The order of the folio with which the frame was allocated, or 0 for a single page.
    #[inline]
    pub(crate) const fn page_of(self) -> u8 {
        ((self.0 & Self::PAGE_OF) >> Self::PAGE_OF_SHIFT) as u8
    }

    /// Returns the state with `order` as the order of the page's folio.
    #[inline]
    pub(crate) const fn as_page_of(self, order: u8) -> Self {
        Self(self.0 & !Self::PAGE_OF | (order as u32) << Self::PAGE_OF_SHIFT)
    }

    /// Whether the block is a single frame of the first node. The fast path moves such a frame to the calling CPU's
    /// cache without a check of the frame's node. A cache that does not keep frames of the first node has a limit of 0
    /// frames, so the slow path then returns the frame to its node.
    #[inline]
    pub(crate) const fn is_single_of_first(self) -> bool {
        self.0 & (0xff00 | Self::NODE) == 0
    }

    /// Whether the references to the frame are counted in its own metadata and the frame is in no folio. `false` means
    /// unknown: the frame may be in a block of several frames, or free. In a closed folio, all frames except the first
    /// have the state of a free frame.
    #[inline]
    pub(crate) const fn is_alone(self) -> bool {
        self.0 & Self::IN_BLOCK == 0 && self.0 & 0xff != FrameKind::Free as u32
    }

    /// Returns the state of a block of `kind` and `order` on the same node, outside of a folio. Clears all flags except
    /// `POISONED`, which stays until the contents are checked.
    #[inline]
    pub(crate) const fn become_block(self, kind: FrameKind, order: u8) -> Self {
        let kept = self.0 & (Self::NODE | Self::POISONED);
        Self(kept | kind as u32 | (order as u32) << 8)
    }
}

impl State {
    /// Returns the state of the folio with the kind `kind`. The folio must be closed.
    pub(crate) const fn become_folio(self, kind: FrameKind) -> Self {
        self.become_block(kind, super::order::FOLIO_ORDER)
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

    /// Sets flags by an atomic operation, because other CPUs may change other flags at the same time.
    pub(crate) fn add_flags(&self, flags: u32) {
        self.state.fetch_or(flags, Ordering::Relaxed);
    }

    /// Clears flags by an atomic operation, because other CPUs may change other flags at the same time.
    pub(crate) fn remove_flags(&self, flags: u32) {
        self.state.fetch_and(!flags, Ordering::Relaxed);
    }

    /// Lowers the recorded order of the page's folio to `order` by an atomic operation, because other CPUs may change
    /// flags at the same time. Does nothing if the recorded order is not higher.
    pub(crate) fn lower_page_of(&self, order: u8) {
        let change = |state| {
            let state = State(state);
            (state.page_of() > order).then(|| state.as_page_of(order).0)
        };
        let relaxed = Ordering::Relaxed;
        // An error means that the recorded order was not above `order`.
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

    /// Makes the frame an empty table with the owner `owner`, for the pages from number `start` on. The caller then
    /// calls `disturb`.
    pub(crate) fn become_table(&self, owner: u64, start: u64) {
        self.owner.store(owner, Ordering::Relaxed);
        self.index.store(start, Ordering::Relaxed);
        self.live.store(0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_tail(&self) -> bool {
        self.state().has(State::TAIL)
    }

    /// Whether the references to the frame, or its pins, may be counted in the metadata of another frame of its block.
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

    /// Links an allocated block into a gather's list before `next`. The list takes over the caller's reference. Returns
    /// `false`, with nothing changed, if the block is already in a list.
    #[inline]
    pub(crate) fn claim(&self, next: u32) -> bool {
        // Acquire pairs with the drop of another reference: a gather unlinks the frame before it drops its reference.
        if self.references.load(Ordering::Acquire) == 1 {
            // The caller holds the only reference. A gather's list holds a reference to each of its frames, so the
            // block is in no list of another gather.
            self.set_link(next);
            return true;
        }
        let (unlinked, order) = (UNLINKED, Ordering::Relaxed);
        self.link
            .compare_exchange(unlinked, next, order, order)
            .is_ok()
    }

    /// Like [`drop_reference`](Self::drop_reference), for a block that belongs to no object. Returns whether no
    /// reference remains. Calls `between` at the point where another CPU can drop its reference before this CPU does.
    ///
    /// # Panics
    /// If the block has no reference.
    #[inline(always)]
    #[must_use]
    pub(crate) fn drop_anonymous(&self, between: impl Fn()) -> bool {
        let references = self.references.load(Ordering::Acquire);
        if references <= 1 {
            assert!(
                references == 1,
                "a reference was given up that does not exist"
            );
            self.references.store(0, Ordering::Relaxed);
            return true;
        }
        between();
        let before = self.references.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a reference was given up that does not exist");
        before == 1
    }

    /// Drops one reference, and returns what remains. If no reference remains, the caller must free the block.
    ///
    /// # Panics
    /// If the block has no reference.
    #[inline]
    #[must_use]
    pub(crate) fn drop_reference(&self) -> Left {
        // The caller holds the last reference, so a store without an atomic exchange is sufficient.
        if self.references.load(Ordering::Acquire) == 1 {
            self.references.store(0, Ordering::Relaxed);
            return Left::None;
        }
        // Read the kind first: after the reference is dropped, another CPU may free the block, and allocate it as
        // another kind.
        let is_object = self.state().0 & 0xff == FrameKind::Object as u32;
        let before = self.references.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a reference was given up that does not exist");
        match before {
            1 => Left::None,
            2 if is_object => Left::Object,
            _ => Left::Others,
        }
    }
}
