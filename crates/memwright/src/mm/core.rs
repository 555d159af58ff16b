//! The part of an address space to which the mapped objects hold references.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering,
};
use memwright_table::sync::stat::Line;
use memwright_table::sync::{Rank, SpreadLock, SpreadWriteGuard, Threads, stat};
use memwright_table::{
    Architecture, Bits, Change, CpuId, Frame, Gather, GatherCounts, Machine, OutOfMemory,
    PageRange, Present, Table, TryPush, VirtAddr,
};

use crate::mm::areas::Areas;
use crate::mm::memory::Memory;
use crate::mm::merging::MergeNumber;
use crate::types::huge::{HUGE_PAGES, HugeRefusal};
use crate::types::layout::Layout;
use crate::types::memcg::Memcg;
use crate::types::numa_pace::Pace;
use crate::types::stats::Row;
use crate::types::trace::Event;

/// One CPU's share of the resident page count.
#[derive(Default)]
#[repr(align(128))]
struct CpuResident {
    /// The number of pages that this CPU mapped, minus the number that it unmapped.
    pages: AtomicI64,
    /// The number of pages of objects among `pages`.
    objects: AtomicI64,
    /// The highest resident count that this CPU sampled before it unmapped pages. A sample is the sum over all CPUs.
    peak: AtomicU64,
    /// The number of pages that this CPU ever mapped and that `pages` does not count, such as hugetlb pages and zero
    /// pages. Zero pages that were mapped by a trapped fault are not included.
    uncounted: AtomicU64,
    /// The number of anon_vmas that this CPU created.
    anon_vmas: AtomicU64,
}

/// Adds `pages`, which may be negative, to a count that only the calling CPU writes.
#[inline]
fn add_to(count: &AtomicI64, pages: i64) {
    count.store(count.load(Ordering::Relaxed) + pages, Ordering::Relaxed);
}

pub(crate) struct Core<M: Machine> {
    /// The number of this address space among all address spaces of the machine.
    number: AtomicU64,
    /// The number of this address space's node in the forest of all address spaces (`Spaces`).
    node: AtomicU32,
    pub(crate) memory: Arc<Memory<M>>,
    pub(crate) table: Table<M>,
    pub(crate) layout: Layout,
    /// Locked for reading by faults, for writing by operations that change areas.
    pub(crate) areas: SpreadLock<Areas<M>, M::Threads>,
    /// Which huge pages the process opts out of, as a [`HugeRefusal`].
    huge_refusal: AtomicU8,
    /// Whether a reference to a page was ever lent ([`AddressSpace::lend`](crate::AddressSpace::lend)).
    lent: AtomicBool,
    /// Whether a page was ever pinned through this address space. Set before pinning takes the lock of the page's
    /// entry, so that a clear flag under that lock means that the page is not pinned.
    pinned: AtomicBool,
    /// The number of resident pages, divided among the CPUs so that faults on two CPUs write no common cache line.
    resident: Vec<CpuResident>,
    /// The number of pages in swap.
    swapped: AtomicI64,
    /// The memcg that is charged for the swap slots of this address space.
    memcg: AtomicU16,
    /// The number of this address space in the scan for equal pages (KSM).
    pub(crate) merge_number: MergeNumber,
    /// The rate at which entries of this address space are turned into NUMA hints.
    pace: Pace,
    /// The number of pages that are accounted as long-term pinned.
    pinned_pages: AtomicU64,
    /// Whether the address space ever mapped hugetlb pages, or pages of an object that is not memory. To count these,
    /// `totals` examines their areas.
    has_special_areas: AtomicBool,
    /// Whether an area was ever registered with a userfaultfd, here or in an ancestor.
    watched: AtomicBool,
}

impl<M: Machine> Core<M> {
    pub(crate) fn new(memory: Arc<Memory<M>>, layout: Layout) -> Result<Self, OutOfMemory> {
        let cpus = memory.frames().machine().cpu_count();
        let areas = SpreadLock::try_new(Rank::Space, cpus, Areas::EMPTY)?;
        let mut resident = Vec::new();
        resident.try_make_room(cpus)?;
        for _ in 0..cpus {
            resident.try_push(CpuResident::default())?;
        }
        let table = Table::new(memory.frames().clone()).map_err(|_| OutOfMemory)?;
        Ok(Self {
            number: AtomicU64::new(0),
            node: AtomicU32::new(0),
            memory,
            table,
            layout,
            areas,
            huge_refusal: AtomicU8::new(HugeRefusal::Nothing as u8),
            lent: AtomicBool::new(false),
            pinned: AtomicBool::new(false),
            resident,
            swapped: AtomicI64::new(0),
            memcg: AtomicU16::new(Memcg::NOBODY.raw()),
            merge_number: MergeNumber::new(),
            pace: Pace::default(),
            pinned_pages: AtomicU64::new(0),
            has_special_areas: AtomicBool::new(false),
            watched: AtomicBool::new(false),
        })
    }

    /// Returns the number of this address space among all address spaces of the machine. The area locks of several
    /// address spaces are taken in the order of these numbers.
    pub(crate) fn space_number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Returns the number of the node of this address space in the forest of all address spaces.
    pub(crate) fn node(&self) -> u32 {
        self.node.load(Ordering::Relaxed)
    }

    /// Sets the number of this address space, and the number of its node in the forest of all address spaces.
    pub(crate) fn set_place(&self, number: u64, node: u32) {
        self.number.store(number, Ordering::Relaxed);
        self.node.store(node, Ordering::Relaxed);
    }

    /// Returns the rate at which entries of this address space are turned into NUMA hints.
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Records that a reference to a page is about to be lent.
    pub(crate) fn note_lending(&self) {
        self.lent.store(true, Ordering::SeqCst);
    }

    /// Returns whether a reference to a page of this address space was ever lent, so that one may still be lent. The
    /// result is final while the areas are locked for writing.
    pub(crate) fn may_have_lent(&self) -> bool {
        self.lent.load(Ordering::SeqCst)
    }

    /// Records that a page is about to be pinned.
    pub(crate) fn note_pinning(&self) {
        self.pinned.store(true, Ordering::SeqCst);
    }

    /// Returns whether a page of this address space was ever pinned, so that one may still be pinned. For a page, the
    /// result is valid only under the lock of its entry.
    pub(crate) fn may_have_pinned(&self) -> bool {
        self.pinned.load(Ordering::SeqCst)
    }

    /// Returns whether the private page is pinned. The owner of a pin can write to the frame without the entry (rule:
    /// exclusive-before-pin).
    pub(crate) fn is_pinned(&self, page: Present) -> bool {
        !page.bits.contains(Bits::BORROWED) && self.memory.frames().pins(page.frame) > 0
    }

    #[inline]
    pub(crate) fn cpu(&self) -> CpuId {
        let cpu = M::Threads::cpu();
        self.debug_check_cpu(cpu);
        cpu
    }

    #[inline]
    fn debug_check_cpu(&self, cpu: CpuId) {
        if cfg!(debug_assertions) {
            self.memory.frames().check_cpu(cpu);
        }
    }

    /// Returns the number of a new anon_vma. Each CPU counts separately to avoid sharing a cache line.
    pub(crate) fn next_anon_vma(&self, cpu: CpuId) -> u64 {
        let founded = &self.resident[cpu.index()].anon_vmas;
        founded.store(founded.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        founded.load(Ordering::Relaxed) * self.resident.len() as u64 + cpu.index() as u64
    }

    /// Returns a gather for one operation, under the current flush policy.
    #[inline]
    pub(crate) fn gather(&self) -> Gather<'_, M> {
        self.table.gather_by(self.memory.policy().flush())
    }

    /// Returns the range in which areas may be mapped.
    pub(crate) fn bounds(&self) -> PageRange {
        PageRange::new(self.layout.lowest.page(), self.layout.highest.page())
    }

    /// Reports to the lock statistics which cache lines a fault at `address` wrote on `cpu`, the calling CPU: the lines
    /// of the entry, of its frame, and of the counts of the address space.
    pub(crate) fn note_lines(&self, cpu: CpuId, address: VirtAddr) {
        if stat::is_on() && address.page() < M::Arch::USER.end {
            self.table.note_lines(address.page());
            stat::line::<M::Threads>(Line::Space, &self.resident[cpu.index()]);
        }
    }

    /// Counts `pages` more resident pages.
    #[inline]
    pub(crate) fn note_resident(&self, cpu: CpuId, pages: u64) {
        add_to(&self.resident[cpu.index()].pages, pages as i64);
    }

    /// Counts `pages` entries that were empty and now each map a resident page.
    #[inline]
    pub(crate) fn note_filled(&self, cpu: CpuId, pages: u64) {
        self.note_resident(cpu, pages);
        self.memory.count_on(cpu, Row::EntriesFilled, pages);
    }

    /// Counts an entry that was empty and now maps a 2 MiB page.
    pub(crate) fn note_filled_huge(&self, cpu: CpuId) {
        self.note_resident(cpu, HUGE_PAGES);
        self.memory.count_on(cpu, Row::EntriesFilled, 1);
    }

    /// Counts `pages` entries that were empty and now each map a resident page of an object.
    #[inline]
    pub(crate) fn note_filled_objects(&self, cpu: CpuId, pages: u64) {
        let own = &self.resident[cpu.index()];
        add_to(&own.pages, pages as i64);
        add_to(&own.objects, pages as i64);
        self.memory.count_on(cpu, Row::EntriesFilled, pages);
    }

    /// Counts `pages` pages, which are already counted as resident, as pages of objects.
    #[inline]
    pub(crate) fn note_objects(&self, cpu: CpuId, pages: u64) {
        add_to(&self.resident[cpu.index()].objects, pages as i64);
    }

    /// Records that the address space maps pages that are counted by examining their areas: pages of the hugetlb pool,
    /// or pages of objects that are not memory.
    pub(crate) fn note_special_areas(&self) {
        self.has_special_areas.store(true, Ordering::Relaxed);
    }

    /// Returns whether the address space ever mapped pages that are counted by examining their areas.
    pub(crate) fn has_special_areas(&self) -> bool {
        self.has_special_areas.load(Ordering::Relaxed)
    }

    /// Records that an area is about to be registered with a userfaultfd.
    pub(crate) fn note_watched(&self) {
        self.watched.store(true, Ordering::Relaxed);
    }

    /// Returns whether entries can have marks of a userfaultfd, which stay when a registration ends.
    pub(crate) fn may_have_marks(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// Returns which huge pages the process opts out of.
    pub(crate) fn huge_refusal(&self) -> HugeRefusal {
        HugeRefusal::of(self.huge_refusal.load(Ordering::Relaxed))
    }

    /// Copies what a child's address space inherits from that of its `parent`: which huge pages it opts out of, and whether
    /// entries can have marks of a userfaultfd.
    pub(crate) fn inherit(&self, parent: &Self) {
        let order = Ordering::Relaxed;
        (self.huge_refusal).store(parent.huge_refusal.load(order), order);
        self.watched.store(parent.watched.load(order), order);
    }

    pub(crate) fn refuse_huge(&self, refusal: HugeRefusal) {
        self.huge_refusal.store(refusal as u8, Ordering::Relaxed);
    }

    /// Counts `pages` pages that were swapped out; negative for pages that were swapped in.
    pub(crate) fn note_swapped(&self, pages: i64) {
        self.swapped.fetch_add(pages, Ordering::Relaxed);
    }

    /// Returns the memcg that is charged for the swap slots of this address space.
    pub(crate) fn memcg(&self) -> Memcg {
        Memcg::from_raw(self.memcg.load(Ordering::Relaxed))
    }

    pub(crate) fn set_memcg(&self, memcg: Memcg) {
        let before = Memcg::from_raw(self.memcg.swap(memcg.raw(), Ordering::Relaxed));
        self.memory.swap().bills.rename_space(before, memcg);
    }

    /// Returns the number of pages that are accounted as long-term pinned.
    pub(crate) fn pinned_pages(&self) -> &AtomicU64 {
        &self.pinned_pages
    }

    /// Returns the number of pages in swap.
    pub(crate) fn swapped(&self) -> u64 {
        self.swapped.load(Ordering::Relaxed).max(0) as u64
    }

    /// Subtracts pages from the resident count without a sample of its peak.
    pub(super) fn note_left_pages(&self, cpu: CpuId, pages: u64) {
        add_to(&self.resident[cpu.index()].pages, -(pages as i64));
    }

    /// Counts an entry to which a fault granted rights.
    #[inline]
    pub(crate) fn note_granted(&self, cpu: CpuId) {
        self.memory.count_on(cpu, Row::EntriesGrew, 1);
        // The page fault has invalidated the faulting CPU's translation of the page, so only a shootdown was elided.
        if self.table.loaded().has_several() {
            self.memory.count_on(cpu, Row::FlushElidedGrew, 1);
        }
    }

    /// Counts an entry that was empty and that a fault mapped to the zero page. The fault statistics count these pages,
    /// so the counters of the address space do not.
    #[inline]
    pub(crate) fn note_zero_page(&self, cpu: CpuId) {
        self.memory.count_on(cpu, Row::EntriesFilled, 1);
    }

    /// Counts an entry that was empty and now maps `pages` pages that do not count as resident: a zero page or a
    /// hugetlb page.
    #[inline]
    pub(crate) fn note_borrowed(&self, cpu: CpuId, pages: u64) {
        self.note_uncounted(cpu, pages);
        self.memory.count_on(cpu, Row::EntriesFilled, 1);
    }

    /// Counts `pages` newly mapped pages that do not count as resident.
    #[inline]
    pub(crate) fn note_uncounted(&self, cpu: CpuId, pages: u64) {
        let cell = &self.resident[cpu.index()].uncounted;
        cell.store(cell.load(Ordering::Relaxed) + pages, Ordering::Relaxed);
    }

    /// Ends an operation that changes areas: flushes what `gather` recorded, releases the locks, and adds the work to
    /// the statistics. Then sends the event that `event` returns, if any, to the trace sink. `inner` is a lock that is
    /// released before that of the areas, or `()`.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn conclude<E: Into<Option<Event>>>(
        &self,
        cpu: CpuId,
        gather: &mut Gather<'_, M>,
        (inner, mut areas): (impl Sized, SpreadWriteGuard<'_, Areas<M>, M::Threads>),
        event: impl FnOnce(&GatherCounts) -> E,
    ) {
        let counts = gather.close();
        self.note_areas(cpu, &mut areas);
        drop(inner);
        drop(areas);
        self.note_released(cpu, counts);
        self.memory.count_operation(cpu, counts, event);
    }

    /// Adds the work of a gather to the statistics.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn note_gather(&self, cpu: CpuId, counts: &GatherCounts) {
        self.note_released(cpu, counts);
        self.memory.count_gather(cpu, counts);
        self.memory.trace_flush(counts);
    }

    /// Subtracts what a gather released from the counts of the address space.
    #[cfg_attr(feature = "inline", inline(always))]
    fn note_released(&self, cpu: CpuId, counts: &GatherCounts) {
        if counts.released > 0 {
            let pages = counts.released - counts.of(Change::TableFreed);
            let own = &self.resident[cpu.index()];
            add_to(&own.pages, -(pages as i64));
            add_to(&own.objects, -(counts.released_objects as i64));
        }
        if counts.slots > 0 {
            self.note_swapped(-(counts.slots as i64));
        }
        if counts.local_full > 0 {
            self.note_dropped(cpu, counts);
        }
    }

    /// Adds an upper bound of the number of translations that full flushes dropped. Software cannot know which
    /// translations a CPU held. Each translation was for a page that was mapped before the operation, so the bound also
    /// counts the pages that the operation unmapped.
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

    /// Adds splits and merges of areas to the statistics.
    pub(crate) fn note_areas(&self, cpu: CpuId, areas: &mut Areas<M>) {
        if !areas.map.has_counts() {
            return;
        }
        let (splits, merges) = areas.map.take_counts();
        self.memory.count_on(cpu, Row::AreasSplit, splits);
        self.memory.count_on(cpu, Row::AreasMerged, merges);
    }

    /// Returns the number of resident pages, summed over all CPUs.
    pub(crate) fn resident(&self) -> u64 {
        let sum: i64 = self
            .resident
            .iter()
            .map(|cpu| cpu.pages.load(Ordering::Relaxed))
            .sum();
        sum.max(0) as u64
    }

    /// Returns the number of resident pages that are pages of objects, summed over all CPUs.
    pub(crate) fn resident_objects(&self) -> u64 {
        let each = self.resident.iter();
        let sum: i64 = each.map(|cpu| cpu.objects.load(Ordering::Relaxed)).sum();
        sum.max(0) as u64
    }

    /// Samples the resident page count before pages are unmapped, when it is at a local maximum.
    pub(crate) fn note_peak(&self, cpu: CpuId) {
        let now = self.resident();
        let peak = &self.resident[cpu.index()].peak;
        if now > peak.load(Ordering::Relaxed) {
            peak.store(now, Ordering::Relaxed);
        }
    }

    /// Returns the peak of the resident page count.
    pub(crate) fn peak(&self) -> u64 {
        self.resident
            .iter()
            .map(|cpu| cpu.peak.load(Ordering::Relaxed))
            .fold(self.resident(), u64::max)
    }

    /// Resets the peak to the current resident page count.
    pub(crate) fn reset_peak(&self) {
        for cpu in &self.resident {
            cpu.peak.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether `frame` holds a page of private memory, which can be a KSM page.
    pub(crate) fn is_private(&self, frame: Frame) -> bool {
        self.memory.frames().kind(frame).is_private()
    }

    /// Returns whether `frame` holds a page of private memory to which only entries have references, that is, not a KSM
    /// page.
    pub(crate) fn is_anonymous(&self, frame: Frame) -> bool {
        self.memory.frames().kind(frame).is_anonymous()
    }
}
