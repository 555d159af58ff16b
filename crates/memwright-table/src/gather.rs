//! The TLB gather: the translations that an operation must invalidate, and the frames that it may free only after the
//! invalidation.
//!
//! An operation creates one [`Gather`], passes it to every cursor that changes entries, and finishes it. Finishing
//! flushes at most once: it invalidates on this CPU, and sends at most one interrupt to each other CPU that may hold a
//! stale translation. After the flush, the gather frees the displaced frames and tables. Until then they are in lists
//! that are linked through the metadata of the frames, so the gather allocates no memory. A gather with many deferred
//! frames also flushes early, and frees these frames.
//!
//! **How much is invalidated.** The gather invalidates exactly the pages whose entries need an invalidation, each huge
//! page once. It invalidates up to [`PAGES_AT_A_TIME`] pages one by one, and does a full invalidation if there are
//! more. Linux uses the same number, which was measured on Intel processors, where one INVLPG costs about as much as
//! the refill of a few entries (`tlb_single_page_flush_ceiling`, Documentation/arch/x86/tlb.rst, 7.2). QEMU's TCG
//! counts either kind of invalidation as one instruction.
//!
//! **What is elided.** A translation is in no TLB if the accessed bit was clear when the entry was exchanged: "the
//! processor does not cache a translation unless the accessed flag is 1" (Intel SDM volume 3A, section on details of
//! TLB use, in substance). A change that clears the accessed bit of a translation is at least a
//! [`Change::LostCachedBit`] and is therefore flushed. A clear bit thus proves that no CPU caches the translation
//! (rule: elide-only-uncached), unless another operation cleared the bit and has not flushed yet. A gather that elided
//! a flush therefore flushes everything if another operation has invalidations pending (rule: see-pending-flushes).

mod make;
mod runs;
mod send;
mod upper;

use crate::arch::Architecture;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use crate::addr::{CpuSet, Frame, Page, PageSize};
use crate::entry::Change;
use crate::frame::{END, FOLIO_FRAMES, FrameKind, FrameRef, Frames, UNLINKED};
use crate::machine::{Invalidation, Machine};
use crate::root::{CpuShare, Table};
use crate::sync::Threads;
use send::send;
pub(crate) use upper::Dropped;

/// The maximum number of pages that are invalidated one by one.
pub const PAGES_AT_A_TIME: u64 = 33;

/// The number of deferred frames at which a gather flushes early. The gather frees these frames without a scheduling
/// point, so the number bounds the latency.
const MOST_HELD: u32 = 4096;

/// Replaces `MOST_HELD` if pages may have copies in swap slots, because freeing such a page takes many times as long.
const MOST_HELD_SWAPPING: u32 = 1024;

/// The number of frames that a deferred whole folio counts for: freeing the folio takes as long as freeing this many
/// frames.
const WHOLE_HELD: u32 = 128;

/// The number of deferred blocks that a gather can record in `shared`. A block that is already in a list cannot be
/// linked again.
const SHARED_HELD: usize = 16;
const NOTHING_SHARED: [Noted; SHARED_HELD] = [Noted {
    frame: Frame::new(0),
    whole: false,
    references: 0,
}; SHARED_HELD];

/// Deferred references to a frame, or to a whole folio, that is already in a gather's list.
#[derive(Clone, Copy, Debug)]
struct Noted {
    frame: Frame,
    whole: bool,
    references: u32,
}

/// The policy that decides when a gather flushes and which entries it flushes. `ElideGrow` is the default; the others
/// are older policies, for comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FlushPolicy {
    /// Invalidates each changed entry at once, on every CPU that has the table loaded.
    Immediate = 0,
    /// Invalidates every changed entry, in one flush.
    Gather = 1,
    /// Like `Gather`, but elides the flush of entries with a clear accessed bit. Entries whose rights grew are flushed
    /// on every CPU.
    Elide = 2,
    /// Like `Elide`, but entries whose rights grew are flushed only on the CPU that changed them.
    #[default]
    ElideGrow = 3,
}

impl FlushPolicy {
    /// Whether the policy flushes entries with a clear accessed bit, too.
    const fn flushes_untouched(self) -> bool {
        match self {
            Self::Immediate | Self::Gather => true,
            Self::Elide | Self::ElideGrow => false,
        }
    }
}

/// The counts of what a gather did. The counts of several gathers can be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatherCounts {
    /// The number of changed entries, by [`Change::index`].
    pub changed: [u64; Change::COUNT],
    /// The number of flushes on this CPU, regardless of how many translations each covers.
    pub local: u32,
    /// The number of full flushes among `local`.
    pub local_full: u32,
    /// The number of translations that local flushes invalidated one by one. Full flushes are not included; a huge page
    /// counts once.
    pub local_pages: u64,
    /// The number of shootdowns: invalidations sent to other CPUs.
    pub remote: u32,
    /// The number of CPUs that the shootdowns in `remote` interrupted, summed over the shootdowns.
    pub interrupted: u32,
    /// The number of flushes, local and remote, that were elided because no changed entry had its accessed bit set.
    pub elided_not_accessed: u32,
    /// The number of flushes, local and remote, that were elided because rights only grew.
    pub elided_grew: u32,
    /// The number of flushes that were elided because no CPU had the table loaded.
    pub elided_not_loaded: u32,
    /// The number of flushes before the end of the operation, because too many frames were deferred.
    pub early: u32,
    /// The number of flushes that were performed because another operation had a flush pending.
    pub completed: u32,
    /// The number of dropped references to frames. A whole-folio reference counts for every frame of the folio, or for
    /// none if the folio belongs to the huge page pool.
    pub released: u64,
    /// The number of references to pages of objects among `released`.
    pub released_objects: u64,
    /// The number of removed swap entries.
    pub slots: u64,
}

impl GatherCounts {
    /// The number of changes of the class `change`.
    pub fn of(&self, change: Change) -> u64 {
        self.changed[change.index()]
    }

    /// The number of changed entries that still map the same page.
    pub fn edited(&self) -> u64 {
        let kinds = [
            Change::Same,
            Change::Grew,
            Change::Shrank,
            Change::LostCachedBit,
        ];
        kinds.into_iter().map(|change| self.of(change)).sum()
    }

    /// Adds `other`'s counts.
    pub fn add(&mut self, other: &GatherCounts) {
        for (sum, more) in self.changed.iter_mut().zip(other.changed) {
            *sum += more;
        }
        self.local += other.local;
        self.local_full += other.local_full;
        self.local_pages += other.local_pages;
        self.remote += other.remote;
        self.interrupted += other.interrupted;
        self.elided_not_accessed += other.elided_not_accessed;
        self.elided_grew += other.elided_grew;
        self.elided_not_loaded += other.elided_not_loaded;
        self.early += other.early;
        self.completed += other.completed;
        self.released += other.released;
        self.released_objects += other.released_objects;
        self.slots += other.slots;
    }
}

/// The pages to invalidate, as runs. Runs are recorded only while the pages are few enough to be invalidated one by
/// one.
struct Pages {
    /// The number of translations; a huge page counts once. A number above [`PAGES_AT_A_TIME`] means all translations.
    count: u64,
    /// The number of runs.
    used: usize,
    /// The first `used` elements are initialized.
    runs: [MaybeUninit<Invalidation>; PAGES_AT_A_TIME as usize],
}

impl Pages {
    #[cfg_attr(feature = "inline", inline(always))]
    const fn new() -> Self {
        Self {
            count: 0,
            used: 0,
            runs: [const { MaybeUninit::uninit() }; PAGES_AT_A_TIME as usize],
        }
    }

    #[inline]
    fn clear(&mut self) {
        self.count = 0;
        self.used = 0;
    }

    /// Adds `leaves` consecutive translations of `size` from `start` on.
    #[inline]
    fn add(&mut self, start: Page, leaves: u64, size: PageSize) {
        // Too few entries exist for the sum to wrap.
        self.count = self.count.wrapping_add(leaves);
        if self.is_many() {
            return;
        }
        if self.used == 0 {
            self.runs[0].write(Invalidation::Pages {
                first: start,
                count: leaves as u32,
                stride: size,
            });
            self.used = 1;
            return;
        }
        self.add_more(start, leaves, size);
    }

    /// Adds a run after the first one, or extends the last run if this one continues it.
    fn add_more(&mut self, start: Page, leaves: u64, size: PageSize) {
        if let Some(Invalidation::Pages {
            first,
            count,
            stride,
        }) = self.runs_mut().last_mut()
        {
            if *stride == size
                && first.number() + u64::from(*count) * size.pages() == start.number()
            {
                *count += leaves as u32;
                return;
            }
        }
        // Each run has at least one page, so there are at most `PAGES_AT_A_TIME` runs.
        self.runs[self.used].write(Invalidation::Pages {
            first: start,
            count: leaves as u32,
            stride: size,
        });
        self.used += 1;
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether there are too many pages to invalidate one by one.
    #[inline]
    fn is_many(&self) -> bool {
        self.count > PAGES_AT_A_TIME
    }

    /// The runs, if there are few enough pages to invalidate one by one.
    #[inline]
    fn few(&self) -> Option<&[Invalidation]> {
        if self.is_many() {
            return None;
        }
        // SAFETY: `add` wrote the first `used` runs.
        Some(unsafe { core::slice::from_raw_parts(self.runs.as_ptr().cast(), self.used) })
    }

    #[inline]
    fn runs_mut(&mut self) -> &mut [Invalidation] {
        // SAFETY: as in `few`.
        unsafe { core::slice::from_raw_parts_mut(self.runs.as_mut_ptr().cast(), self.used) }
    }
}

/// The invalidations and the deferred frees of one operation on one table. It must be finished by [`Gather::finish`] or
/// [`Gather::close`].
#[must_use = "call `finish`: stale translations remain until then"]
pub struct Gather<'t, M: Machine> {
    table: &'t Table<M>,
    /// The pages that every CPU must invalidate.
    shrunk: Pages,
    /// The pages that this CPU should invalidate because their rights grew.
    grown: Pages,
    /// Whether CPUs must also invalidate cached upper-level entries, for example because a table was freed or unlinked.
    tables: bool,
    /// The per-CPU share of the table's counts in which this gather is counted as pending; `None` if the gather is not
    /// pending.
    pending: Option<&'t CpuShare>,
    /// Whether the gather relies on the flushes of other operations: it elided a flush because of a clear accessed bit,
    /// or a right that the operation removes was already absent. Both are safe only if no other operation has a flush
    /// pending.
    relied: bool,
    /// Whether an entry with a clear accessed bit was changed and its flush elided.
    untouched: bool,
    finished: bool,
    policy: FlushPolicy,
    /// The first of the deferred frames, which are linked through their metadata.
    held: u32,
    held_count: u32,
    /// The first of the deferred whole folios, which are linked through `back` in their metadata.
    wholes: u32,
    /// The number of frames of the deferred whole folios, minus the number that `held_count` counts for these folios.
    /// The difference wraps if it is negative.
    held_more: u32,
    /// The deferred blocks that were already in a list, each with the number of its deferred references.
    shared: Option<[Noted; SHARED_HELD]>,
    shared_count: u32,
    counts: GatherCounts,
}

impl<M: Machine> Table<M> {
    /// Creates a gather for one operation.
    #[inline]
    pub fn gather(&self) -> Gather<'_, M> {
        self.gather_by(FlushPolicy::default())
    }

    /// Creates a gather for one operation, which flushes according to `policy`.
    #[inline]
    pub fn gather_by(&self, policy: FlushPolicy) -> Gather<'_, M> {
        Gather::new(self, policy)
    }
}

impl<'t, M: Machine> Gather<'t, M> {
    #[inline]
    fn new(table: &'t Table<M>, policy: FlushPolicy) -> Self {
        Self {
            table,
            shrunk: Pages::new(),
            grown: Pages::new(),
            tables: false,
            pending: None,
            relied: false,
            untouched: false,
            finished: false,
            policy,
            held: END,
            held_count: 0,
            wholes: END,
            held_more: 0,
            shared: None,
            shared_count: 0,
            counts: GatherCounts::default(),
        }
    }

    /// The frame allocator of the gather's table.
    #[inline]
    pub(crate) fn frames(&self) -> &'t Frames<M> {
        self.table.frames()
    }

    /// Records `change` of the entry that maps `page` with a page of `size`. Call this before releasing the lock that
    /// protects the entry.
    #[inline]
    pub fn record(&mut self, page: Page, size: PageSize, change: Change) {
        self.record_run(page, size, change, 1);
    }

    /// Records `change` for `entries` consecutive entries from `start` on. If `elided` is true, no CPU can have cached
    /// the old entries, and the flush of the change is elided.
    #[inline]
    pub(crate) fn record_entries(
        &mut self,
        start: Page,
        size: PageSize,
        change: Change,
        elided: bool,
        entries: u64,
    ) {
        if elided {
            self.elide(start, size, change, entries);
        } else {
            self.record_run(start, size, change, entries);
        }
    }

    /// Records `change` for `entries` consecutive entries from `start` on.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn record_run(&mut self, start: Page, size: PageSize, change: Change, entries: u64) {
        let changed = &mut self.counts.changed[change.index()];
        *changed = changed.wrapping_add(entries);
        if !matches!(self.policy, FlushPolicy::ElideGrow) && change.needs_local() {
            self.record_older(start, size, change, entries);
        } else if change.needs_remote() {
            if matches!(change, Change::TableFreed) {
                self.tables = true;
            } else {
                self.shrunk.add(start, entries, size);
            }
            if self.pending.is_none() {
                self.pending = Some(self.table.begin_pending());
            }
        } else if change.needs_local() {
            self.grown.add(start, entries, size);
        } else if matches!(change, Change::Same) {
            // The change affects no CPU. The right that this operation removes may have been absent because another
            // operation removed it and has not flushed yet (rule: see-pending-flushes).
            self.relied = true;
        }
    }

    /// Records a change under one of the older policies. They flush on all CPUs even a change that only this CPU needs
    /// to flush.
    #[cold]
    fn record_older(&mut self, start: Page, size: PageSize, change: Change, entries: u64) {
        if self.pending.is_none() {
            self.pending = Some(self.table.begin_pending());
        }
        if matches!(change, Change::TableFreed) {
            self.tables = true;
        } else if matches!(self.policy, FlushPolicy::Immediate) {
            for entry in 0..entries {
                self.shrunk.add(start.add(entry * size.pages()), 1, size);
                self.invalidate_recorded();
                self.forget_recorded();
            }
        } else {
            self.shrunk.add(start, entries, size);
        }
    }

    /// Whether another gather has recorded an invalidation that it has not performed yet.
    pub(crate) fn others_pending(&self) -> bool {
        self.table.pending() > u64::from(self.pending.is_some())
    }

    /// Records `change` for `entries` consecutive entries from `start` on whose accessed bits were clear, so that no
    /// CPU needs to flush them.
    #[inline]
    pub(crate) fn elide(&mut self, start: Page, size: PageSize, change: Change, entries: u64) {
        if self.policy.flushes_untouched() {
            self.record_run(start, size, change, entries);
            return;
        }
        self.counts.changed[change.index()] += entries;
        self.untouched = true;
        self.relied = true;
    }

    /// Whether an edit that removes rights also clears the accessed bits. A later edit of pages that were not accessed
    /// in between then needs no flush. True only if several CPUs have the table loaded, because the flush of the
    /// present edit then interrupts another CPU anyway.
    #[inline]
    pub(crate) fn takes_accessed(&self) -> bool {
        self.table.loaded().has_several() && matches!(self.policy, FlushPolicy::ElideGrow)
    }

    /// Corrects the counts when the caller fills the entry that it has just emptied with another page: the change
    /// counts as `Moved`, not as `Freed`.
    #[inline]
    pub fn note_replaced(&mut self) {
        let changed = &mut self.counts.changed;
        let freed = &mut changed[Change::Freed.index()];
        *freed = freed.wrapping_sub(1);
        let moved = &mut changed[Change::Moved.index()];
        *moved = moved.wrapping_add(1);
    }

    /// Records that a right that the operation removes may have been absent already. The next flush then also covers
    /// the pending invalidations of other operations (rule: see-pending-flushes).
    #[inline]
    pub fn rely_on_pending(&mut self) {
        self.relied = true;
    }

    /// Defers dropping a frame reference until after the flush.
    ///
    /// # Panics
    /// If the reference is to a whole folio.
    #[inline]
    pub fn free(&mut self, frame: FrameRef<'_, M>) {
        assert!(!frame.is_whole(), "a folio goes with its entry");
        self.hold(frame.into_raw());
    }

    /// Defers dropping a frame reference that an entry held.
    #[inline]
    pub(crate) fn hold(&mut self, frame: Frame) {
        let frames = self.table.frames();
        let first = frames.first_frame(frame);
        let meta = frames.meta(first);
        // There are too few frames for either sum to wrap.
        let objects = &mut self.counts.released_objects;
        *objects = objects.wrapping_add(u64::from(meta.kind() == FrameKind::Object));
        if meta.claim(self.held) {
            self.held = first.number();
        } else {
            self.hold_shared(first, false);
        }
        self.held_count = self.held_count.wrapping_add(1);
    }

    /// Drops the references of removed swap entries to their slots. No flush is needed, because CPUs do not cache swap
    /// entries.
    #[cold]
    pub(crate) fn release_slots(&mut self, slots: &[u64]) {
        self.counts.slots += slots.len() as u64;
        self.table.frames().release_slots(slots);
    }

    /// Defers dropping a whole-folio reference that a huge entry held.
    #[cold]
    pub(crate) fn hold_whole(&mut self, head: Frame) {
        let back = &self.table.frames().meta(head).back;
        let (unlinked, order) = (UNLINKED, Ordering::Relaxed);
        if back
            .compare_exchange(unlinked, self.wholes, order, order)
            .is_ok()
        {
            self.wholes = head.number();
        } else {
            self.hold_shared(head, true);
        }
        self.held_count += WHOLE_HELD;
        // Pages of the huge page pool do not count as resident memory, so `released` does not count them.
        let kind = self.table.frames().kind(head);
        let frames = if kind.is_pool() { 0 } else { FOLIO_FRAMES };
        if kind == FrameKind::Object {
            self.counts.released_objects += u64::from(FOLIO_FRAMES);
        }
        self.held_more = self.held_more.wrapping_add(frames.wrapping_sub(WHOLE_HELD));
    }

    /// Defers dropping a reference to a block that is already in a list of this gather or of another one. Flushes first
    /// if `shared` is full. That flush covers all pages, because the caller may not have recorded yet which entries it
    /// removed.
    #[cold]
    fn hold_shared(&mut self, frame: Frame, whole: bool) {
        let shared = self.shared.get_or_insert(NOTHING_SHARED);
        if let Some(last) = shared[..self.shared_count as usize].last_mut() {
            if last.frame == frame && last.whole == whole {
                last.references += 1;
                return;
            }
        }
        if self.shared_count as usize == SHARED_HELD {
            self.counts.early += 1;
            self.shrunk
                .add(M::Arch::USER.start, M::Arch::USER.len(), PageSize::Size4K);
            self.relied = true;
            self.flush();
        }
        let shared = self.shared.get_or_insert(NOTHING_SHARED);
        shared[self.shared_count as usize] = Noted {
            frame,
            whole,
            references: 1,
        };
        self.shared_count += 1;
    }

    /// Flushes if too many frames are deferred. Cursors call this between tables.
    #[inline]
    pub fn relieve(&mut self) {
        if self.is_too_much(self.held_count) {
            self.count_early();
            self.flush();
        }
    }

    /// Whether `held` deferred frames are so many that the operation must flush and free them.
    #[inline]
    pub(crate) fn is_too_much(&self, held: u32) -> bool {
        held >= MOST_HELD_SWAPPING && (held >= MOST_HELD || self.table.frames().has_slots())
    }

    /// Counts a flush before the end of the operation.
    #[inline]
    pub(crate) fn count_early(&mut self) {
        self.counts.early += 1;
    }

    /// Performs the invalidations recorded so far, and then frees the deferred frames. An operation that replaces a
    /// frame empties the entry, calls this, and then fills the entry (rule: flush-what-shrank).
    #[inline]
    pub fn flush(&mut self) {
        if self.has_recorded() {
            self.invalidate_recorded();
            self.forget_recorded();
        }
        if self.held_count > 0 {
            self.release();
        }
    }

    /// Whether the gather must flush, or must check for pending flushes of other operations.
    #[inline]
    fn has_recorded(&self) -> bool {
        self.pending.is_some() || self.relied || !self.grown.is_empty()
    }

    /// Clears the recorded pages and flags after the invalidations have been performed.
    #[inline]
    fn forget_recorded(&mut self) {
        self.shrunk.clear();
        self.grown.clear();
        self.tables = false;
        self.relied = false;
        self.untouched = false;
    }

    fn invalidate_recorded(&mut self) {
        let loaded = self.table.make_stale();
        let own = u64::from(self.pending.is_some());
        let others_pending = self.relied && self.table.pending() > own;
        if self.tables || others_pending || self.shrunk.is_many() {
            self.invalidate_all(loaded, others_pending);
        } else if !self.shrunk.is_empty() {
            let runs = self.shrunk.few().unwrap_or_default();
            let pages = self.shrunk.count;
            send(self.table, &mut self.counts, loaded, runs, pages, true);
            if !self.grown.is_empty() {
                self.invalidate_grown_too(loaded);
            }
        } else if let Some(runs) = self.grown.few().filter(|runs| !runs.is_empty()) {
            let pages = self.grown.count;
            send(self.table, &mut self.counts, loaded, runs, pages, false);
        } else {
            self.count_elided(loaded);
        }
        if let Some(share) = self.pending.take() {
            share.end_pending();
        }
    }

    /// Invalidates on this CPU the entries whose rights grew, during a flush of other pages. This is optional: it only
    /// avoids spurious faults.
    #[cold]
    fn invalidate_grown_too(&mut self, loaded: CpuSet) {
        let machine = self.table.frames().machine();
        let Some(runs) = self.grown.few() else { return };
        if !loaded.contains(M::Threads::cpu()) {
            return;
        }
        self.counts.local_pages += self.grown.count;
        for what in runs {
            machine.invalidate_local(what);
        }
    }

    /// Counts an elided flush. The flush is elided for one of two reasons: rights only grew, in so many pages that a
    /// full invalidation on this CPU would cost more than the few faults that it avoids; or the accessed bits of all
    /// changed entries were clear, so that no CPU has cached their translations.
    #[inline]
    fn count_elided(&mut self, loaded: CpuSet) {
        let grew = !self.grown.is_empty();
        if !grew && !self.untouched {
            return;
        }
        let flushes = if loaded.has_several() {
            self.flushes_of_several(loaded)
        } else {
            1
        };
        if loaded.is_empty() {
            self.counts.elided_not_loaded += 1;
        } else if grew {
            self.counts.elided_grew += flushes;
        } else {
            self.counts.elided_not_accessed += flushes;
        }
    }

    /// Returns the number of elided flushes: 1 for the other CPUs together, plus 1 if this CPU has the table loaded,
    /// too.
    #[cold]
    fn flushes_of_several(&self, loaded: CpuSet) -> u32 {
        let cpu = M::Threads::cpu();
        1 + u32::from(loaded.contains(cpu))
    }

    /// Performs a full invalidation. `others_pending` states whether another gather has a pending flush that may cover
    /// an entry whose flush this gather elided.
    #[cold]
    fn invalidate_all(&mut self, loaded: CpuSet, others_pending: bool) {
        self.counts.completed += u32::from(others_pending);
        // The pending flush of the other gather can include upper-level entries.
        let what = if self.tables || others_pending {
            Invalidation::AllAndTables
        } else {
            Invalidation::All
        };
        self.counts.local_full += u32::from(loaded.contains(M::Threads::cpu()));
        send(self.table, &mut self.counts, loaded, &[what], 0, true);
    }

    fn release(&mut self) {
        let frames: &Frames<M> = self.table.frames();
        frames.release_list(self.held);
        if self.wholes != END {
            self.release_wholes();
        }
        let noted = self.shared.iter().flatten();
        for noted in noted.take(self.shared_count as usize) {
            for _ in 0..noted.references {
                if noted.whole {
                    frames.release_whole(noted.frame);
                } else {
                    frames.release(noted.frame);
                }
            }
        }
        self.counts.released += u64::from(self.held_count.wrapping_add(self.held_more));
        self.held = END;
        self.held_count = 0;
        self.held_more = 0;
        self.shared_count = 0;
    }

    #[cold]
    fn release_wholes(&mut self) {
        let frames: &Frames<M> = self.table.frames();
        let mut number = core::mem::replace(&mut self.wholes, END);
        while number != END {
            let head = Frame::new(number);
            // Unlink before dropping the reference: once the reference is dropped, the gather of another holder may
            // link the folio again.
            number = frames.meta(head).back.swap(UNLINKED, Ordering::Relaxed);
            frames.release_whole(head);
        }
    }

    /// Flushes once, frees the deferred frames, and returns the counts.
    #[inline]
    pub fn finish(mut self) -> GatherCounts {
        *self.close()
    }

    /// Like `finish`, but returns the counts by reference, so that the gather, which is large, is not moved. The gather
    /// must not be used afterwards.
    #[inline]
    pub fn close(&mut self) -> &GatherCounts {
        // The gather records no further change, so the recorded pages need not be cleared.
        if self.has_recorded() {
            self.invalidate_recorded();
        }
        if self.held_count > 0 {
            self.release();
        }
        self.finished = true;
        &self.counts
    }
}

impl<M: Machine> Drop for Gather<'_, M> {
    fn drop(&mut self) {
        if !self.finished {
            self.abandon();
        }
    }
}

impl<M: Machine> Gather<'_, M> {
    /// Finishes a gather that is dropped without [`finish`](Self::finish), because an operation returned early or
    /// panicked.
    #[cold]
    fn abandon(&mut self) {
        if panicking() {
            // An assertion may have failed while the gather was freeing frames. It is unknown which of them remain to
            // be freed, so the gather leaks them all.
            if let Some(share) = self.pending.take() {
                share.end_pending();
            }
            return;
        }
        debug_assert!(
            self.counts == GatherCounts::default() && self.held_count == 0,
            "a gather was dropped without `finish`"
        );
        self.flush();
    }
}

/// Whether the thread is unwinding. `drop` must not panic then, so that the first panic is reported.
fn panicking() -> bool {
    #[cfg(any(test, feature = "std"))]
    {
        extern crate std;
        std::thread::panicking()
    }
    #[cfg(not(any(test, feature = "std")))]
    false
}

impl<M: Machine> core::fmt::Debug for Gather<'_, M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Gather")
            .field("counts", &self.counts)
            .field("held", &self.held_count)
            .finish_non_exhaustive()
    }
}
