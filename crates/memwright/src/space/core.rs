//! The inside of an address space, which objects that it maps refer to as well.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use memwright_table::sync::stat::{self, Line};
use memwright_table::sync::{Rank, SpreadLock};
use memwright_table::{
    Bits, Change, Copied, CpuId, Cursor, Frame, Gather, GatherCounts, Machine, OutOfMemory, Page,
    PageRange, Present, Table, TryPush, VirtAddr,
};

use super::{Area, Areas, Layout};
use crate::huge::{HUGE_PAGES, HugeRefusal};
use crate::memory::Memory;
use crate::merge::UNSCANNED;
use crate::numa::Pace;
use crate::stats::Row;
use crate::swap::SwapPayer;
use crate::trace::Event;
use crate::vma::Rights;
use crate::writable::View;

/// One CPU's part in the number of pages that have a frame.
#[derive(Default)]
#[repr(align(128))]
struct CpuResident {
    /// Pages that it mapped less those that it unmapped.
    pages: AtomicI64,
    /// The most that it saw of all CPUs together when it took pages away.
    peak: AtomicU64,
    /// Pages that it ever mapped and that `pages` leaves out, those of the hugetlb pool and zero pages among them, but
    /// for zero pages that the program faulted on.
    uncounted: AtomicU64,
    /// Lineages that it founded.
    lineages: AtomicU64,
}

pub(crate) struct Core<M: Machine> {
    /// Its number among all spaces of the machine.
    number: AtomicU64,
    pub(crate) memory: Arc<Memory<M>>,
    pub(crate) table: Table<M>,
    pub(crate) layout: Layout,
    pub(crate) template: Option<Frame>,
    /// Read by faults, written by whatever changes areas.
    pub(crate) areas: SpreadLock<Areas<M>>,
    /// What the process refuses of huge pages, a [`HugeRefusal`].
    huge_refusal: AtomicU8,
    /// Whether a page was ever pinned through this address space. Set before the pinning takes the lock of the page's
    /// entry: who finds it clear under that lock finds no pinned page there.
    pinned: AtomicBool,
    /// One per CPU, so that faults on two CPUs write no common line.
    resident: Vec<CpuResident>,
    /// Pages in swap.
    swapped: AtomicI64,
    /// Who pays for the slots of pages that leave.
    payer: AtomicU8,
    /// Its number where equal pages are merged.
    merge_number: AtomicU64,
    /// How often its entries are made to tell who uses its pages.
    pace: Pace,
    /// Pages that are accounted as pinned for a long time.
    pinned_pages: AtomicU64,
}

impl<M: Machine> Core<M> {
    pub(crate) fn new(
        memory: Arc<Memory<M>>,
        layout: Layout,
        template: Option<Frame>,
    ) -> Result<Self, OutOfMemory> {
        let cpus = memory.frames().machine().cpu_count();
        let areas = SpreadLock::try_new(Rank::Space, cpus, Areas::new())?;
        let mut resident = Vec::new();
        resident.try_make_room(cpus)?;
        for _ in 0..cpus {
            resident.try_push(CpuResident::default())?;
        }
        let table = Table::new(memory.frames().clone(), template).map_err(|_| OutOfMemory)?;
        Ok(Self {
            number: AtomicU64::new(0),
            memory,
            table,
            layout,
            template,
            areas,
            huge_refusal: AtomicU8::new(HugeRefusal::Nothing as u8),
            pinned: AtomicBool::new(false),
            resident,
            swapped: AtomicI64::new(0),
            payer: AtomicU8::new(SwapPayer::NOBODY.raw()),
            merge_number: AtomicU64::new(UNSCANNED),
            pace: Pace::default(),
            pinned_pages: AtomicU64::new(0),
        })
    }

    /// Its number among all spaces of the machine: who locks the areas of several does so in this order.
    pub(crate) fn space_number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    pub(crate) fn set_space_number(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// How often its entries are made to tell who uses its pages.
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Its number where equal pages are merged.
    pub(crate) fn merge_number(&self) -> u64 {
        self.merge_number.load(Ordering::Acquire)
    }

    pub(crate) fn set_merge_number(&self, number: u64) {
        self.merge_number.store(number, Ordering::Release);
    }

    /// Says that a page is about to be pinned.
    pub(crate) fn note_pinning(&self) {
        self.pinned.store(true, Ordering::SeqCst);
    }

    /// Whether pages may be pinned: ask under the lock of their entries.
    pub(crate) fn may_have_pinned(&self) -> bool {
        self.pinned.load(Ordering::SeqCst)
    }

    /// Whether somebody may write the frame of this private page at any time, without its entry (design rule 6).
    pub(crate) fn is_pinned(&self, page: Present) -> bool {
        !page.bits.contains(Bits::BORROWED) && self.memory.frames().pins(page.frame) > 0
    }

    #[inline]
    pub(crate) fn cpu(&self) -> CpuId {
        self.memory.frames().machine().cpu()
    }

    /// The number of a new lineage: the CPUs count separately, so that no two write one line.
    pub(crate) fn next_lineage(&self, cpu: CpuId) -> u64 {
        let founded = &self.resident[cpu.index()].lineages;
        let round = founded.load(Ordering::Relaxed) + 1;
        founded.store(round, Ordering::Relaxed);
        round * self.resident.len() as u64 + cpu.index() as u64
    }

    /// A gather for one operation, under the policy.
    #[inline]
    pub(crate) fn gather(&self) -> Gather<'_, M> {
        self.table.gather_by(self.memory.policy().flush())
    }

    /// Pages that an area may lie in.
    pub(crate) fn bounds(&self) -> PageRange {
        PageRange::new(self.layout.lowest.page(), self.layout.highest.page())
    }

    /// Says to the lock statistics which lines a fault at `address` wrote on `cpu`, the calling one: those of
    /// the entry and its frame, and of the counts of the space.
    pub(crate) fn note_lines(&self, cpu: CpuId, address: VirtAddr) {
        if stat::is_on() && address < VirtAddr::USER_END {
            self.table.note_lines(address.page());
            stat::line(Line::Space, &self.resident[cpu.index()]);
        }
    }

    /// Counts `pages` that are resident now.
    #[inline]
    pub(crate) fn note_resident(&self, cpu: CpuId, pages: u64) {
        let cell = &self.resident[cpu.index()].pages;
        cell.store(
            cell.load(Ordering::Relaxed) + pages as i64,
            Ordering::Relaxed,
        );
    }

    /// Counts `pages` entries that were empty and now map a resident page.
    #[inline]
    pub(crate) fn note_filled(&self, cpu: CpuId, pages: u64) {
        self.note_resident(cpu, pages);
        self.memory.count_on(cpu, Row::EntriesFilled, pages);
    }

    /// The same for one 2 MiB page.
    pub(crate) fn note_filled_huge(&self, cpu: CpuId) {
        self.note_resident(cpu, HUGE_PAGES);
        self.memory.count_on(cpu, Row::EntriesFilled, 1);
    }

    /// What the process refuses of huge pages.
    pub(crate) fn huge_refusal(&self) -> HugeRefusal {
        HugeRefusal::of(self.huge_refusal.load(Ordering::Relaxed))
    }

    pub(crate) fn refuse_huge(&self, refusal: HugeRefusal) {
        self.huge_refusal.store(refusal as u8, Ordering::Relaxed);
    }

    /// Splits the huge pages that an edge of the cursor's range cuts, and counts them in `cause`.
    #[inline]
    pub(crate) fn split_cut(
        &self,
        cursor: &mut Cursor<'_, M>,
        gather: &mut Gather<'_, M>,
        cause: Row,
    ) {
        let split = cursor.split_pages(gather);
        if split > 0 {
            self.memory.count(cause, split);
        }
    }

    /// Splits the huge pages that an edge of `range` cuts: where an area is about to be cut there.
    pub(crate) fn split_at_edges(&self, range: PageRange, cause: Row) {
        let aligned = |page: Page| page.number() % HUGE_PAGES == 0;
        if aligned(range.start) && aligned(range.end) || range.is_empty() {
            return;
        }
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(range);
        self.split_cut(&mut cursor, &mut gather, cause);
        drop(cursor);
        let counts = gather.close();
        self.note_gather(self.cpu(), counts);
    }

    /// Counts pages that left, or with a sign those that came back.
    pub(crate) fn note_swapped(&self, pages: i64) {
        self.swapped.fetch_add(pages, Ordering::Relaxed);
    }

    /// Who pays for the slots of pages that leave.
    pub(crate) fn payer(&self) -> SwapPayer {
        SwapPayer::from_raw(self.payer.load(Ordering::Relaxed))
    }

    pub(crate) fn set_payer(&self, payer: SwapPayer) {
        self.payer.store(payer.raw(), Ordering::Relaxed);
    }

    /// Pages that are accounted as pinned for a long time.
    pub(crate) fn pinned_pages(&self) -> &AtomicU64 {
        &self.pinned_pages
    }

    /// Pages in swap.
    pub(crate) fn swapped(&self) -> u64 {
        self.swapped.load(Ordering::Relaxed).max(0) as u64
    }

    /// Counts entries that a fork filled, and the pages among them that hold a frame of their own.
    pub(crate) fn note_copied(&self, cpu: CpuId, copied: &Copied) {
        let cell = &self.resident[cpu.index()].pages;
        cell.store(
            cell.load(Ordering::Relaxed) + copied.counted as i64,
            Ordering::Relaxed,
        );
        if copied.pages != copied.counted {
            self.note_uncounted(cpu, copied.pages - copied.counted);
        }
        self.memory
            .count_on(cpu, Row::EntriesFilled, copied.entries);
        if copied.swapped > 0 {
            self.note_swapped(copied.swapped as i64);
        }
    }

    /// Counts an entry whose rights a fault let grow.
    #[inline]
    pub(crate) fn note_granted(&self, cpu: CpuId) {
        self.memory.count_on(cpu, Row::EntriesGrew, 1);
        // The CPU that faulted holds no translation of the page any more.
        if self.table.loaded().has_several() {
            self.memory.count_on(cpu, Row::FlushElidedGrew, 1);
        }
    }

    /// Counts an entry that was empty and now maps the zero page since a fault: the account knows how many of these
    /// there were, and the space does not.
    #[inline]
    pub(crate) fn note_zero_page(&self, cpu: CpuId) {
        self.memory.count_on(cpu, Row::EntriesFilled, 1);
    }

    /// Counts an entry that was empty and now maps `pages` pages that do not count as resident: a zero page, or one of
    /// the hugetlb pool.
    #[inline]
    pub(crate) fn note_borrowed(&self, cpu: CpuId, pages: u64) {
        self.note_uncounted(cpu, pages);
        self.memory.count_on(cpu, Row::EntriesFilled, 1);
    }

    /// Counts `pages` pages that are mapped now and do not count as resident.
    #[inline]
    pub(crate) fn note_uncounted(&self, cpu: CpuId, pages: u64) {
        let cell = &self.resident[cpu.index()].uncounted;
        cell.store(cell.load(Ordering::Relaxed) + pages, Ordering::Relaxed);
    }

    /// Enters what a gather did into the account.
    #[inline(always)]
    pub(crate) fn note_gather(&self, cpu: CpuId, counts: &GatherCounts) {
        if counts.released > 0 {
            let pages = counts.released - counts.of(Change::TableFreed);
            let cell = &self.resident[cpu.index()].pages;
            cell.store(
                cell.load(Ordering::Relaxed) - pages as i64,
                Ordering::Relaxed,
            );
        }
        if counts.slots > 0 {
            self.note_swapped(-(counts.slots as i64));
        }
        let memory = &*self.memory;
        memory.count_gather(cpu, counts);
        if counts.local_full > 0 {
            self.note_dropped(cpu, counts);
        }
        if memory.is_watched() && counts.local + counts.remote > 0 {
            memory.trace(|| flush_event(counts));
        }
    }

    /// Enters an upper bound of the translations that full flushes dropped. Software cannot know which ones a CPU held:
    /// of none but the pages that were mapped until the operation, those that it unmapped among them.
    #[cold]
    #[inline(never)]
    fn note_dropped(&self, cpu: CpuId, counts: &GatherCounts) {
        let uncounted = self.resident.iter();
        let uncounted: u64 = uncounted
            .map(|cpu| cpu.uncounted.load(Ordering::Relaxed))
            .sum();
        let tables = counts.of(Change::TableFreed);
        let unmapped = counts.released.saturating_sub(tables);
        let mapped = self.resident() + unmapped + uncounted;
        let most = u64::from(counts.local_full) * mapped;
        self.memory.count_on(cpu, Row::FlushDropped, most);
    }

    /// Enters splits and merges into the account.
    pub(crate) fn note_areas(&self, cpu: CpuId, areas: &mut Areas<M>) {
        if !areas.map.has_counts() {
            return;
        }
        let (splits, merges) = areas.map.take_counts();
        self.memory.count_on(cpu, Row::AreasSplit, splits);
        self.memory.count_on(cpu, Row::AreasMerged, merges);
    }

    /// Pages with a frame, over all CPUs.
    pub(crate) fn resident(&self) -> u64 {
        let sum: i64 = self
            .resident
            .iter()
            .map(|cpu| cpu.pages.load(Ordering::Relaxed))
            .sum();
        sum.max(0) as u64
    }

    /// Notes what is resident now, before pages go: the number is at its highest then, or a later one is.
    pub(crate) fn note_peak(&self, cpu: CpuId) {
        let now = self.resident();
        let peak = &self.resident[cpu.index()].peak;
        if now > peak.load(Ordering::Relaxed) {
            peak.store(now, Ordering::Relaxed);
        }
    }

    /// The most pages that had a frame at one time.
    pub(crate) fn peak(&self) -> u64 {
        self.resident
            .iter()
            .map(|cpu| cpu.peak.load(Ordering::Relaxed))
            .fold(self.resident(), u64::max)
    }

    /// Makes the peak what is resident now.
    pub(crate) fn reset_peak(&self) {
        for cpu in &self.resident {
            cpu.peak.store(0, Ordering::Relaxed);
        }
    }

    /// Whether `frame` holds a page of private memory, merged or not.
    pub(crate) fn is_private(&self, frame: Frame) -> bool {
        self.memory.frames().kind(frame).is_private()
    }

    /// Whether `frame` holds a page of private anonymous memory that only entries reach.
    pub(crate) fn is_anonymous(&self, frame: Frame) -> bool {
        self.memory.frames().kind(frame).is_anonymous()
    }
}

/// The event of a flush. Its reason is the last of those that need one, in the order of [`Change::ALL`].
#[cold]
fn flush_event(counts: &GatherCounts) -> Event {
    let mut reason = Change::Same;
    let mut entries = 0;
    for change in Change::ALL {
        let count = counts.of(change);
        entries += count;
        if count > 0 && change.needs_local() {
            reason = change;
        }
    }
    Event::Flush {
        reason: reason.name(),
        entries,
        cpus: counts.interrupted,
    }
}

impl<M: Machine> Area<M> {
    /// What the rule must know of the area.
    #[inline]
    pub(crate) fn view(&self) -> View {
        let shared = self.is_shared();
        View {
            rights: self.rights,
            shared,
            notify: shared
                && self
                    .object()
                    .is_some_and(|object| object.notify_first_write()),
            soft_dirty: self.watches_stores(),
        }
    }

    /// The addresses of a page's index in the object, the other way round: the pages of this area that
    /// show the indices `first..end`.
    pub(crate) fn pages_showing(&self, first: u64, end: u64) -> PageRange {
        let page_of = |index: u64| {
            let ahead = index.saturating_sub(self.offset).min(self.pages());
            Page::new(self.start().number() + ahead)
        };
        PageRange::new(page_of(first), page_of(end))
    }
}

/// Few areas have a key: kept out of the way of the others.
#[cold]
#[inline(never)]
fn key_bits(rights: Rights) -> Bits {
    Bits::of_key(rights.key())
}

/// The bits of an entry that follow from the rights alone, the protection key among them: all but writing, on which
/// the rule decides.
#[inline(always)]
pub(crate) fn access_bits(rights: Rights) -> Bits {
    let read = if rights.is_none() {
        Bits::empty()
    } else {
        Bits::READ
    };
    let execute = if rights.contains(Rights::EXECUTE) {
        Bits::EXECUTE
    } else {
        Bits::empty()
    };
    if rights.key() == 0 {
        read | execute
    } else {
        read | execute | key_bits(rights)
    }
}
