//! Event counters. Each event is counted once, by its cause, in the code where it occurs.
//!
//! [`ROWS`] defines each row. Documentation, JSON and text reports are generated from it, so that a row has the same
//! meaning in all of them. There is one set of counters per CPU, in cache lines of its own.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_table::sync::Threads;
use memwright_table::sync::stat;
use memwright_table::sync::stat::Line;
use memwright_table::{CpuId, OutOfMemory, TryPush};

/// The way in which the value of a row is obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Counted by the memory manager, one counter per CPU.
    Counted,
    /// Read from the state of the memory manager when the account is created.
    Sampled,
    /// Read when the account is created, if the policy `locks` is `count`. Otherwise the row is omitted.
    Requested,
    /// Not observable with the clock or the machine of this run. Printed as "not observable under TCG".
    NotObservable,
}

/// The definition of one row.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The row that the definition is for.
    pub row: Row,
    /// The name of the row in JSON and in the host-guest protocol.
    pub name: &'static str,
    /// The title of the row in reports.
    pub title: &'static str,
    /// The counter of Linux 7.3 with this meaning, in `/proc/vmstat` unless stated otherwise; empty if there is none.
    pub linux: &'static str,
    /// One sentence that states what the row counts.
    pub definition: &'static str,
    /// The way in which the value of the row is obtained.
    pub source: Source,
}

macro_rules! rows {
    ($($(#[$group:meta])* $row:ident, $name:literal, $source:ident, $title:literal, $linux:literal, $definition:literal;)*) => {
        /// A row of the account: a kind of event, or a quantity.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Row {
            $(#[doc = $definition] $row,)*
        }

        /// Every row, in the order of reports.
        pub const ROWS: &[Definition] = &[
            $(Definition {
                row: Row::$row,
                name: $name,
                title: $title,
                linux: $linux,
                definition: $definition,
                source: Source::$source,
            },)*
        ];
    };
}

rows! {
    FaultDemandZero, "fault_demand_zero", Counted, "faults: demand zero", "",
        "Page faults that mapped a newly allocated, zeroed 4 KiB page of private anonymous memory.";
    FaultZeroPage, "fault_zero_page", Counted, "faults: zero page", "",
        "Read faults on untouched private anonymous memory that mapped the shared zero page.";
    FaultHuge, "fault_thp", Counted, "faults: huge page", "part of thp_fault_alloc and thp_file_mapped",
        "Page faults that mapped a transparent huge page of 2 MiB: newly allocated anonymous memory, or a page of shared memory.";
    FaultHugeZeroPage, "fault_thp_zero_page", Counted, "faults: huge zero page", "",
        "Read faults on untouched private anonymous memory that mapped the shared huge zero page of 2 MiB.";
    FaultFolio, "fault_folio", Counted, "faults: large folio", "part of /sys/kernel/mm/transparent_hugepage/hugepages-16kB to -1024kB/stats: anon_fault_alloc and shmem_alloc",
        "Page faults that mapped every page of a newly allocated, zeroed folio of 16 KiB to 1 MiB of private anonymous or shared memory.";
    FaultHugetlb, "fault_hugetlb", Counted, "faults: hugetlb page", "",
        "Page faults that mapped a hugetlb page of 2 MiB.";
    FaultFile, "fault_file", Counted, "faults: file", "",
        "Page faults that mapped a 4 KiB page of a file or of shared memory.";
    FaultCopy, "fault_cow", Counted, "faults: copy-on-write", "",
        "Write faults that mapped a new page in a private mapping: a copy, or a zeroed page in place of the zero page.";
    FaultWriteOnly, "fault_write_permission", Counted, "faults: write permission only", "pgreuse (without huge pages)",
        "Write faults that only made a present entry writable.";
    FaultReadExec, "fault_read_exec_permission", Counted, "faults: read or execute permission", "",
        "Read and fetch faults that only added that permission to a present entry.";
    FaultHint, "fault_numa_hint", Counted, "faults: NUMA hint", "numa_hint_faults",
        "Page faults on NUMA hint entries, whose permissions they restored.";
    FaultSwapIn, "fault_swap_in", Counted, "faults: swap-in", "part of pgmajfault and ru_majflt",
        "Page faults on a swap entry whose page was read from a swap device (major faults).";
    FaultSwapCached, "fault_swap_cache", Counted, "faults: swap cache", "",
        "Page faults on a swap entry whose page was still in memory for another owner (minor faults).";
    FaultSpurious, "fault_spurious", Counted, "faults: spurious", "",
        "Page faults on an entry that already permitted the access: the CPU had a stale translation, which was flushed.";
    FaultRefused, "fault_refused", Counted, "faults: refused", "",
        "Page faults outside every VMA, or that the permissions or the protection key do not allow.";
    FaultFailed, "fault_failed", Counted, "faults: failed", "part of pgfault",
        "Page faults whose page could not be provided: beyond the end of the file, after a read error, at a guard or poison marker, or with an empty hugetlb pool.";
    FaultGup, "fault_gup", Counted, "faults: get_user_pages", "part of pgfault and ru_minflt",
        "Pages that the kernel faulted in without a trap: for MAP_POPULATE, MADV_POPULATE_*, mlock, an access to memory of another process, or KSM pages that are unmerged.";
    FaultGupMajor, "fault_gup_major", Counted, "faults: get_user_pages, major", "part of pgmajfault and ru_majflt",
        "Of these, pages that were read from a swap device.";
    FaultAround, "fault_around", Counted, "fault-around: pages mapped", "",
        "Cached pages of a file or of shared memory that page faults mapped beside the page that faulted.";
    StackGrowth, "stack_expansions", Counted, "stack expansions", "",
        "Page faults below a stack VMA that expanded it; each is also counted by its kind.";
    WriteFaultsAvoided, "write_faults_avoided_max", Counted, "write faults avoided, at most", "",
        "Pages that mprotect or userfaultfd made writable at once when it granted the permission: an upper bound on the write faults that this saved.";
    EntriesChanged, "entries_changed", Counted, "entries: changed", "",
        "Page-table entries whose meaning to the hardware changed: the sum of the rows below.";
    EntriesGrew, "entries_permissions_added", Counted, "entries: permissions added", "",
        "Entries that kept their page and lost no permission.";
    EntriesShrank, "entries_permissions_removed", Counted, "entries: permissions removed", "",
        "Entries that kept their page and lost a permission, or changed their protection key.";
    EntriesMoved, "entries_replaced", Counted, "entries: page replaced", "",
        "Entries that now map another page, or a page of another size: copy-on-write faults, splits and collapses.";
    EntriesFreed, "entries_unmapped", Counted, "entries: unmapped", "",
        "Entries that mapped a page and no longer do.";
    EntriesLostCachedBit, "entries_cleaned", Counted, "entries: accessed or dirty cleared", "",
        "Entries whose accessed or dirty bit was cleared and that lost nothing else.";
    EntriesFilled, "entries_mapped", Counted, "entries: mapped", "",
        "Entries that mapped no page and now map one.";
    FlushLocal, "flush_local", Counted, "TLB flushes: local", "",
        "Flushes of the TLB of the CPU that changed entries, each counted once however many pages it covered.";
    FlushLocalFull, "flush_local_all", Counted, "TLB flushes: local, full", "nr_tlb_local_flush_all",
        "Of these, flushes of all translations of the address space.";
    FlushLocalPages, "flush_local_pages", Counted, "TLB flushes: local, pages", "nr_tlb_local_flush_one",
        "Translations that the other local flushes invalidated one by one, each of its own page size.";
    FlushDropped, "flush_dropped_max", Counted, "TLB entries dropped by full flushes, at most", "",
        "Pages that the address space had mapped at each local full flush: an upper bound on the translations that were dropped.";
    FlushRemote, "flush_remote", Counted, "TLB shootdowns", "nr_tlb_remote_flush",
        "Flushes of the TLBs of other CPUs, each counted once however many CPUs it interrupted.";
    FlushCpusInterrupted, "flush_remote_cpus", Counted, "TLB shootdowns: CPUs interrupted", "nr_tlb_remote_flush_received",
        "CPUs that these interrupted, counted once for each shootdown.";
    FlushElidedGrew, "flush_elided_permissions_added", Counted, "TLB flushes elided: permissions added", "",
        "Local flushes and shootdowns that were omitted because entries only gained permissions.";
    FlushElidedNotAccessed, "flush_elided_not_accessed", Counted, "TLB flushes elided: not accessed", "",
        "Local flushes and shootdowns that were omitted because no changed entry had been accessed.";
    FlushElidedNotLoaded, "flush_elided_not_loaded", Counted, "TLB flushes elided: not loaded", "",
        "Flushes that were omitted because no CPU had the page tables loaded.";
    FlushEarly, "flush_early", Counted, "TLB flushes: early", "",
        "Flushes made before the end of an operation because it had deferred the maximum number of pages to free.";
    FramesZeroed, "frames_zeroed", Counted, "frames zeroed", "",
        "Frames that were filled with zeroes for a program, a file or shared memory.";
    FramesCopied, "frames_copied", Counted, "frames copied", "",
        "Frames whose contents were copied to another frame.";
    FramesPeak, "frames_peak", Sampled, "frames in use, peak", "",
        "The maximum number of frames in use at one time by programs, files and page tables.";
    FramesInUse, "frames_in_use", Sampled, "frames in use", "",
        "Frames in use when the account was taken.";
    TableFrames, "page_tables", Sampled, "page tables", "nr_page_table_pages",
        "Frames that hold page tables when the account is taken.";
    TableFramesPeak, "page_tables_peak", Sampled, "page tables, peak", "",
        "The maximum number of frames that held page tables at one time.";
    Forks, "forks", Counted, "forks", "",
        "Address spaces that were created as copies of others.";
    ForkCopied, "fork_entries_copied", Counted, "fork: entries copied", "",
        "Page-table entries that forks copied to the child.";
    TablesShared, "fork_tables_shared", Counted, "fork: page tables shared", "",
        "Last-level page tables that forks shared with the child instead of copying their entries.";
    TablesCopied, "shared_tables_copied", Counted, "shared page tables: copied", "",
        "Shared page tables that were copied for one address space because an entry was to change.";
    TablesTaken, "shared_tables_taken_over", Counted, "shared page tables: taken over", "",
        "Shared page tables that the last address space that used them took without a copy.";
    AreasSplit, "vmas_split", Counted, "VMAs split", "",
        "VMAs that were split in two.";
    AreasMerged, "vmas_merged", Counted, "VMAs merged", "",
        "Pairs of VMAs that were merged.";
    HugeFallbacks, "thp_fallbacks", Counted, "THP: fallbacks", "thp_fault_fallback + thp_file_fallback + thp_collapse_alloc_failed",
        "Huge pages that were not allocated because no 2 MiB of frames were free: smaller pages were used.";
    FolioFallbacks, "folio_fallbacks", Counted, "large folios: fallbacks", "/sys/kernel/mm/transparent_hugepage/hugepages-16kB to -1024kB/stats: anon_fault_fallback + shmem_fallback",
        "Large folios of private anonymous or shared memory that were not allocated because no block was free: smaller folios or single pages were used.";
    HugeSplitsProtect, "thp_split_mprotect", Counted, "THP split: mprotect", "part of thp_split_pmd",
        "Huge entries that were split because a protection change covered a part.";
    HugeSplitsUnmap, "thp_split_munmap", Counted, "THP split: munmap", "part of thp_split_pmd",
        "Huge entries that were split because a part was unmapped.";
    HugeSplitsRemap, "thp_split_mremap", Counted, "THP split: mremap", "part of thp_split_pmd",
        "Huge entries that were split because a part was moved, or the new address is not aligned to 2 MiB.";
    HugeSplitsAdvise, "thp_split_madvise", Counted, "THP split: madvise", "part of thp_split_pmd",
        "Huge entries that were split because madvise, mlock, mbind or userfaultfd covered a part.";
    HugeSplitsCopy, "thp_split_cow", Counted, "THP split: copy-on-write", "part of thp_split_pmd",
        "Huge entries that were split because a write had to copy one of their pages.";
    HugeSplitsFork, "thp_split_fork", Counted, "THP split: fork", "part of thp_split_pmd",
        "Huge entries that were split because they were pinned when the process forked.";
    HugeSplitsSwap, "thp_split_swap", Counted, "THP split: swap", "part of thp_split_pmd",
        "Huge entries that were split because their pages were swapped out.";
    HugeSplitsMerge, "thp_split_ksm", Counted, "THP split: KSM", "part of thp_split_pmd",
        "Huge entries that were split because KSM merged one of their pages.";
    HugeSplitsAsked, "thp_split_debugfs", Counted, "THP split: debugfs", "part of thp_split_pmd",
        "Huge entries that were split by a write to /sys/kernel/debug/split_huge_pages.";
    HugeSplitZeroes, "thp_split_zero_pages", Counted, "THP split: zero-filled pages", "",
        "Zero-filled pages of split folios that were replaced by the shared zero page.";
    HugeCollapses, "thp_collapses", Counted, "THP: collapses", "thp_collapse_alloc",
        "Huge pages that khugepaged or MADV_COLLAPSE made of 4 KiB pages.";
    HugetlbExhausted, "hugetlb_exhausted", Counted, "hugetlb: pool exhausted", "",
        "Page faults and userfaultfd calls for which the pool had no huge page left.";
    HugetlbTakenBack, "hugetlb_unmapped_from_children", Counted, "hugetlb: unmapped from children", "",
        "Huge pages that were unmapped from children so that the process that reserved them need not copy them.";
    MergeLooked, "ksm_pages_scanned", Counted, "KSM: pages scanned", "/sys/kernel/mm/ksm/pages_scanned",
        "Pages whose checksum ksmd computed.";
    Merges, "ksm_merged", Counted, "KSM: pages merged", "",
        "Pages that ksmd replaced by a KSM page of the same contents.";
    MergesZero, "ksm_merged_zero", Counted, "KSM: zero-filled pages merged", "",
        "Zero-filled pages that ksmd replaced by the shared zero page.";
    UnmergesWritten, "ksm_cow", Counted, "KSM: copy-on-write", "part of cow_ksm",
        "KSM pages, zero-filled ones not counted, that a write replaced by a private copy.";
    UnmergesAsked, "ksm_unmerged", Counted, "KSM: pages unmerged", "part of cow_ksm",
        "KSM pages, zero-filled ones not counted, that were replaced by private copies because they may no longer be merged.";
    EntriesHinted, "numa_hints_installed", Counted, "NUMA hint entries installed", "numa_pte_updates",
        "Entries that NUMA balancing made inaccessible so that the next access faults.";
    HintLocal, "numa_hint_faults_local", Counted, "NUMA hint faults: local", "numa_hint_faults_local",
        "NUMA hint faults on a page of the CPU's own node.";
    HintRemote, "numa_hint_faults_remote", Counted, "NUMA hint faults: remote", "numa_hint_faults - numa_hint_faults_local",
        "NUMA hint faults on a page of another node; the second in a row migrates it.";
    PagesMigrated, "migrated", Counted, "pages migrated", "pgmigrate_success",
        "Pages that were moved to another frame while they stayed mapped, on another node or not; a huge page counts as 512.";
    PagesNotMigrated, "migration_failed", Counted, "pages not migrated", "pgmigrate_fail",
        "Pages whose migration failed: they are pinned or shared, or no frame was free.";
    LazyFreed, "lazyfree", Counted, "MADV_FREE: pages", "pglazyfree",
        "Pages that MADV_FREE marked: unless written again, they are reclaimed without being written out.";
    LazyDropped, "lazyfree_reclaimed", Counted, "MADV_FREE: pages reclaimed", "pglazyfreed",
        "Of these, pages that were reclaimed.";
    SwapOut, "swap_out", Counted, "swap: pages swapped out", "",
        "Pages whose entry, or place in an object, was replaced by a swap entry.";
    SwapWritten, "swap_written", Counted, "swap: pages written", "pswpout",
        "Pages that were written to a swap device; the other pages swapped out were there already, unchanged.";
    WrittenBack, "written_back", Counted, "file pages written back", "part of nr_written",
        "Dirty pages of files that were written back so that they could be reclaimed.";
    SwapRefused, "swap_write_failed", Counted, "swap: writes failed", "",
        "Pages whose write to a swap device failed: they stayed in memory.";
    SwapFailed, "swap_read_failed", Counted, "swap: reads failed", "",
        "Pages that could not be read from a swap device: the access that needed the page received SIGBUS, or its system call returned EIO.";
    SwapIn, "swap_read", Counted, "swap: pages read", "pswpin",
        "Pages that were read from a swap device.";
    SwapAround, "swap_readahead", Counted, "swap: readahead", "swap_ra",
        "Of these, pages that no access requested: they were read because a page next to them was.";
    SwapAroundHit, "swap_readahead_hit", Counted, "swap: readahead, used", "swap_ra_hit",
        "Of these, pages that were accessed before the next swap fault in their VMA, or the next read of a swapped page of their object.";
    SwapAroundWasted, "swap_readahead_unused", Counted, "swap: readahead, unused", "",
        "Pages read ahead that were not accessed by then, or were unmapped.";
    SwapFolios, "swap_folios", Counted, "swap: folios read", "",
        "Folios of 4 to 16 pages into which pages that were swapped out together were read.";
    SwapReused, "swap_in_writable", Counted, "swap: mapped writable by a read", "",
        "Pages that a read fault swapped in and mapped writable: the first write does not fault.";
    SwapSlots, "swap_slots", Sampled, "swap slots in use", "",
        "Slots of swap devices in use when the account was taken.";
    LocksTaken, "locks_taken", Requested, "locks: acquisitions", "/proc/lock_stat: acquisitions",
        "Lock acquisitions anywhere in the kernel; a writer of a lock with one word per CPU acquires every word.";
    LocksBounced, "locks_bounced", Requested, "locks: acquisitions bounced", "/proc/lock_stat: acq-bounces",
        "Acquisitions of a lock whose word another CPU wrote last.";
    LockWordsShared, "lock_words_shared", Requested, "lock words of several CPUs", "",
        "Lock words that more than one CPU wrote, each counted once.";
    LocksWaited, "locks_waited", Requested, "locks: contentions", "/proc/lock_stat: contentions",
        "Acquisitions of a lock that another CPU or thread held at first.";
    LinesBounced, "lines_bounced", Requested, "cache lines: bounced", "",
        "Writes to a 64-byte line of counters, entries or metadata that another CPU wrote last; /proc/lock_stat lists these lines.";
    LinesShared, "lines_shared", Requested, "cache lines of several CPUs", "",
        "Such lines that more than one CPU wrote, each counted once.";
    LinesMissed, "lines_untracked", Requested, "cache lines not tracked", "",
        "Writes to such lines, or to those of locks, for which the table of lines had no room: unless this is 0, the two rows above are too low.";
    PagingStructureHits, "paging_structure_hits", NotObservable, "paging-structure cache hits", "",
        "Page walks that began at a cached upper-level entry.";
    TaggedSwitches, "pcid_switches", NotObservable, "PCID: switches without a flush", "",
        "Switches of the address space that kept translations tagged with a PCID.";
}

/// The number of rows.
pub const ROW_COUNT: usize = ROWS.len();

/// The value of a row in an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A count.
    Count(u64),
    /// Not observable under TCG.
    NotObservable,
}

impl Value {
    /// Returns the count, or `None` if the value is not observable.
    pub fn count(self) -> Option<u64> {
        match self {
            Self::Count(count) => Some(count),
            Self::NotObservable => None,
        }
    }
}

impl core::fmt::Display for Value {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::NotObservable => f.write_str("not observable under TCG"),
        }
    }
}

/// The counters of one CPU, aligned so that no cache line has counters of two CPUs.
#[repr(align(128))]
struct CpuCounters([AtomicU64; ROW_COUNT]);

/// Adds to a counter that only the calling CPU writes. The 64-bit counters do not overflow in practice.
#[inline]
fn add_to(counter: &AtomicU64, count: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(count);
    counter.store(sum, Ordering::Relaxed);
}

/// The number of counters in a cache line of 64 bytes.
const COUNTERS_IN_LINE: usize = 8;

/// The counters of all CPUs.
pub(crate) struct Counters {
    cpus: Vec<CpuCounters>,
}

impl Counters {
    pub(crate) fn new(cpus: usize) -> Result<Self, OutOfMemory> {
        let mut counters = Vec::new();
        counters.try_make_room(cpus)?;
        for _ in 0..cpus {
            counters.try_push(CpuCounters([const { AtomicU64::new(0) }; ROW_COUNT]))?;
        }
        Ok(Self { cpus: counters })
    }

    /// Counts `count` events of `row` on `cpu`, which must be the calling CPU. Only that CPU writes its counters, so a
    /// load and a store suffice.
    #[inline]
    pub(crate) fn add(&self, cpu: CpuId, row: Row, count: u64) {
        if let Some(counters) = self.cpus.get(cpu.index()) {
            add_to(&counters.0[row as usize], count);
        }
    }

    /// Like `add`, for several rows. Calling this is faster if most of the counts are 0.
    #[inline]
    pub(crate) fn add_all<const N: usize>(&self, cpu: CpuId, rows: [(Row, u64); N]) {
        if let Some(counters) = self.cpus.get(cpu.index()) {
            for (row, count) in rows {
                if count == 0 {
                    continue;
                }
                add_to(&counters.0[row as usize], count);
            }
        }
    }

    /// Reports to the lock statistics that `cpu`, the calling CPU, has written the cache lines of its counters.
    pub(crate) fn note_lines<H: Threads>(&self, cpu: CpuId) {
        for counter in self.cpus[cpu.index()].0.iter().step_by(COUNTERS_IN_LINE) {
            stat::line::<H>(Line::Account, counter);
        }
    }

    /// Returns the sum of the counters of `row` over all CPUs.
    pub(crate) fn sum(&self, row: Row) -> u64 {
        self.cpus
            .iter()
            .map(|cpu| cpu.0[row as usize].load(Ordering::Relaxed))
            .sum()
    }
}

/// The values of all rows at one point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub(crate) values: [u64; ROW_COUNT],
    /// Whether the rows with [`Source::Requested`] have values.
    pub(crate) requested: bool,
}

impl Account {
    /// Returns the value of `row`.
    pub fn get(&self, row: Row) -> Value {
        match ROWS[row as usize].source {
            Source::Counted | Source::Sampled | Source::Requested => {
                Value::Count(self.values[row as usize])
            }
            Source::NotObservable => Value::NotObservable,
        }
    }

    /// Returns the count of `row`, or 0 if it is not observable.
    pub fn count(&self, row: Row) -> u64 {
        self.values[row as usize]
    }

    /// Returns every row with its value, in the order of [`ROWS`]. Rows with `Source::Requested` are included only if
    /// they were requested.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Definition, Value)> + '_ {
        ROWS.iter()
            .filter(|definition| self.requested || definition.source != Source::Requested)
            .map(|definition| (definition, self.get(definition.row)))
    }

    /// Returns the number of page faults that were resolved, of all kinds.
    pub fn faults(&self) -> u64 {
        [
            Row::FaultDemandZero,
            Row::FaultZeroPage,
            Row::FaultHuge,
            Row::FaultHugeZeroPage,
            Row::FaultFolio,
            Row::FaultHugetlb,
            Row::FaultFile,
            Row::FaultCopy,
            Row::FaultWriteOnly,
            Row::FaultReadExec,
            Row::FaultHint,
            Row::FaultSwapIn,
            Row::FaultSwapCached,
            Row::FaultSpurious,
        ]
        .iter()
        .map(|row| self.count(*row))
        .sum()
    }

    /// Returns the account of the time since `earlier` was created: for each `Source::Counted` row, the increase since
    /// then; for each other row, the present value.
    #[must_use]
    pub fn since(&self, earlier: &Account) -> Account {
        let mut values = self.values;
        for definition in ROWS {
            if definition.source == Source::Counted {
                values[definition.row as usize] -= earlier.values[definition.row as usize];
            }
        }
        Account { values, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_defined_once_at_its_place_and_says_what_it_counts() {
        for (index, definition) in ROWS.iter().enumerate() {
            assert_eq!(definition.row as usize, index);
            assert!(definition.definition.ends_with('.'), "{}", definition.name);
            assert!(
                definition
                    .name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            );
            let same = ROWS
                .iter()
                .filter(|other| other.name == definition.name)
                .count();
            assert_eq!(same, 1, "{}", definition.name);
        }
    }

    #[test]
    fn counters_of_all_cpus_are_added_up() {
        let counters = Counters::new(3).unwrap();
        for cpu in 0..3 {
            counters.add(CpuId::new(cpu), Row::Forks, u64::from(cpu) + 1);
        }
        assert_eq!(counters.sum(Row::Forks), 6);
        assert_eq!(counters.sum(Row::FlushLocal), 0);
    }

    #[test]
    fn what_cannot_be_observed_is_not_zero() {
        let account = Account {
            values: [0; ROW_COUNT],
            requested: false,
        };
        assert_eq!(account.get(Row::PagingStructureHits), Value::NotObservable);
        assert_eq!(account.get(Row::Forks), Value::Count(0));
    }
}
