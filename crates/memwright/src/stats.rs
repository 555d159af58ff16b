//! The account: every event counted once, where it happens, with its reason.
//!
//! [`ROWS`] defines each row; documentation, JSON and text reports are made from it, so that a row cannot
//! mean one thing here and another there. Counters are per CPU, in cache lines of their own.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use memwright_table::sync::stat::{self, Line};
use memwright_table::{CpuId, OutOfMemory, TryPush};

/// How the value of a row comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Added up by the memory manager, one counter per CPU.
    Counted,
    /// Read when the account is taken.
    Sampled,
    /// Read when the account is taken, if the policy `locks` asked for it; else the row is left out.
    Requested,
    /// The clock and machine of the run cannot show it: printed as "not observable under TCG".
    NotObservable,
}

/// One row's definition.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The row.
    pub row: Row,
    /// Its name in JSON and in the host-guest protocol.
    pub name: &'static str,
    /// Its name in reports.
    pub title: &'static str,
    /// What it counts, in one sentence.
    pub definition: &'static str,
    /// How its value comes about.
    pub source: Source,
}

macro_rules! rows {
    ($($(#[$group:meta])* $row:ident, $name:literal, $source:ident, $title:literal, $definition:literal;)*) => {
        /// A row of the account.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Row {
            $(#[doc = $definition] $row,)*
        }

        /// Every row, in the order in which reports show them.
        pub const ROWS: &[Definition] = &[
            $(Definition {
                row: Row::$row,
                name: $name,
                title: $title,
                definition: $definition,
                source: Source::$source,
            },)*
        ];
    };
}

rows! {
    FaultDemandZero, "fault_demand_zero", Counted, "faults: demand zero",
        "Page faults that gave a page of private anonymous memory its first, zeroed frame.";
    FaultZeroPage, "fault_zero_page", Counted, "faults: zero page",
        "Page faults by a read of untouched private anonymous memory, answered with the shared zero frame.";
    FaultHuge, "fault_huge", Counted, "faults: huge page",
        "Page faults that gave 2 MiB of private anonymous memory their first frames, zeroed, as one page.";
    FaultHugeZeroPage, "fault_huge_zero_page", Counted, "faults: huge zero page",
        "Page faults by a read of untouched private anonymous memory, answered with the shared 2 MiB page of zeroes.";
    FaultFolio, "fault_folio", Counted, "faults: folio",
        "Page faults that gave 16 KiB to 1 MiB of private anonymous or shared memory their first frames, zeroed, as one folio mapped by its pages.";
    FaultHugetlb, "fault_hugetlb", Counted, "faults: hugetlb page",
        "Page faults that mapped a 2 MiB page of the pool of huge pages, new or of a file.";
    FaultFile, "fault_file", Counted, "faults: file",
        "Page faults that mapped a frame of an object: a file or shared memory.";
    FaultCopy, "fault_copy", Counted, "faults: copy-on-write",
        "Page faults by a write that gave a private page a frame of its own, copied or, over the zero frame, zeroed.";
    FaultWriteOnly, "fault_write_only", Counted, "faults: write permission only",
        "Page faults that changed nothing but the write permission of a frame already mapped.";
    FaultHint, "fault_hint", Counted, "faults: NUMA hint",
        "Page faults at pages that the scan for accesses from other nodes had made to fault: they got their rights back, that to write among them where the rule allowed it.";
    FaultSwapIn, "fault_swap_in", Counted, "faults: swap-in",
        "Page faults by an access to a page that was in swap, read from the device: major faults.";
    FaultSwapCached, "fault_swap_cached", Counted, "faults: swap cache",
        "Page faults by an access to a page that was in swap, and in memory for another of its owners.";
    FaultSpurious, "fault_spurious", Counted, "faults: spurious",
        "Page faults that found the access already permitted by the table: a stale translation was dropped.";
    FaultRefused, "fault_refused", Counted, "faults: refused",
        "Page faults that could not be resolved; the program gets a signal, or a system call an error.";
    FaultAround, "fault_around", Counted, "pages mapped around",
        "Entries filled beside the one that faulted, from frames the object had in memory.";
    StackGrowth, "stack_growth", Counted, "stack growths",
        "Times a fault below an area that grows downwards extended it; the fault is counted by its kind too.";
    WriteFaultsAvoided, "write_faults_avoided", Counted, "write faults avoided",
        "Entries made writable at once by a protection change that granted writing, because the rule allowed it.";
    EntriesChanged, "entries_changed", Counted, "entries changed",
        "Page-table entries written by the memory manager with a meaning other than before.";
    EntriesGrew, "entries_grew", Counted, "entries: rights grew",
        "Changed entries that kept their frame and lost no right.";
    EntriesShrank, "entries_shrank", Counted, "entries: rights shrank",
        "Changed entries that kept their frame and lost a right.";
    EntriesMoved, "entries_moved", Counted, "entries: frame replaced",
        "Changed entries that name another frame or another size.";
    EntriesFreed, "entries_freed", Counted, "entries: freed",
        "Changed entries that map nothing any more.";
    EntriesLostCachedBit, "entries_lost_cached_bit", Counted, "entries: cleaned",
        "Changed entries whose accessed or dirty bit was cleared and nothing else taken.";
    EntriesFilled, "entries_filled", Counted, "entries: filled",
        "Changed entries that mapped nothing before.";
    FlushLocal, "flush_local", Counted, "flushes: local",
        "Invalidations of this CPU's translations, each of one page, a run or everything.";
    FlushLocalFull, "flush_local_full", Counted, "flushes: local, of everything",
        "Of these, invalidations of all the CPU's translations of the space.";
    FlushLocalPages, "flush_local_pages", Counted, "flushes: local, translations",
        "Translations that the other ones named, each of its own size.";
    FlushDropped, "flush_dropped", Counted, "flushes: dropped, at most",
        "Pages that a space still had when all its translations were invalidated: more cannot have been dropped.";
    FlushRemote, "flush_remote", Counted, "flushes: remote",
        "Rounds of interrupts that made other CPUs invalidate.";
    FlushCpusInterrupted, "flush_cpus_interrupted", Counted, "flushes: CPUs interrupted",
        "CPUs interrupted by those rounds, each counted once a round.";
    FlushElidedGrew, "flush_elided_grew", Counted, "flushes elided: grew",
        "Changed entries for which no other CPU was interrupted because rights only grew.";
    FlushElidedNotAccessed, "flush_elided_not_accessed", Counted, "flushes elided: not accessed",
        "Changed entries that needed no invalidation because no CPU had used them since they were filled.";
    FlushElidedNotLoaded, "flush_elided_not_loaded", Counted, "flushes elided: not loaded",
        "Gathers that interrupted nobody because no other CPU had the table loaded.";
    FlushEarly, "flush_early", Counted, "flushes: early",
        "Gathers flushed before their operation was over because they held as many frames as they can.";
    FramesZeroed, "frames_zeroed", Counted, "frames zeroed",
        "Frames filled with zeroes for a program or an object.";
    FramesCopied, "frames_copied", Counted, "frames copied",
        "Frames copied for a private page.";
    FramesPeak, "frames_peak", Sampled, "frames, peak",
        "The most frames in use at any time, by programs, objects and tables.";
    FramesInUse, "frames_in_use", Sampled, "frames in use",
        "Frames in use when the account was taken.";
    TableFrames, "table_frames", Sampled, "page-table frames",
        "Frames that are page tables when the account was taken.";
    TableFramesPeak, "table_frames_peak", Sampled, "page-table frames, peak",
        "The most frames that were page tables at any time.";
    Forks, "forks", Counted, "forks",
        "Address spaces made as copies of another.";
    ForkCopied, "fork_entries", Counted, "fork: entries copied",
        "Entries copied to a child's tables by forks.";
    AreasSplit, "areas_split", Counted, "areas split",
        "Times one area became two.";
    AreasMerged, "areas_merged", Counted, "areas merged",
        "Times two areas became one.";
    HugeFallbacks, "huge_fallbacks", Counted, "huge pages: fallbacks",
        "Times no 2 MiB of frames were free where a huge page was to be made, and 4 KiB pages were used.";
    FolioFallbacks, "folio_fallbacks", Counted, "folios: fallbacks",
        "Times no block was free for a folio of several pages of private anonymous or shared memory, and a smaller one or a single page was used.";
    HugeSplitsProtect, "huge_splits_protect", Counted, "huge pages split: protection",
        "2 MiB pages whose entry was split because a protection change concerned a part.";
    HugeSplitsUnmap, "huge_splits_unmap", Counted, "huge pages split: unmapping",
        "2 MiB pages whose entry was split because a part was unmapped.";
    HugeSplitsRemap, "huge_splits_remap", Counted, "huge pages split: mremap",
        "2 MiB pages whose entry was split because a part was moved, or the new place is not aligned.";
    HugeSplitsAdvise, "huge_splits_advise", Counted, "huge pages split: advice",
        "2 MiB pages whose entry was split because advice, a lock, a guard or a watcher concerned a part.";
    HugeSplitsCopy, "huge_splits_copy", Counted, "huge pages split: copy-on-write",
        "2 MiB pages whose entry was split because a write had to copy one of its pages.";
    HugeSplitsFork, "huge_splits_fork", Counted, "huge pages split: fork",
        "2 MiB pages whose entry was split because they were pinned when the process forked.";
    HugeSplitsSwap, "huge_splits_swap", Counted, "huge pages split: swap",
        "2 MiB pages whose entry was split because its pages went out to swap.";
    HugeSplitsMerge, "huge_splits_merge", Counted, "huge pages split: merging",
        "2 MiB pages whose entry was split because one of its pages was merged with an equal one.";
    HugeSplitsAsked, "huge_splits_asked", Counted, "huge pages split: by request",
        "2 MiB pages whose entry was split because somebody asked for it by name.";
    HugeSplitZeroes, "huge_split_zeroes", Counted, "huge pages split: pages of zeroes",
        "Pages full of zeroes of folios that were split, which show the zero frame since.";
    HugeCollapses, "huge_collapses", Counted, "huge pages: collapses",
        "2 MiB pages made out of 4 KiB pages, by request or by a scan.";
    HugetlbExhausted, "hugetlb_exhausted", Counted, "hugetlb: pool exhausted",
        "Page faults, and pages of a userfaultfd's, for which the pool of huge pages had no page left.";
    HugetlbTakenBack, "hugetlb_taken_back", Counted, "hugetlb: taken back",
        "Pages taken from children so that the process for which they were reserved need not copy them.";
    MergeLooked, "merge_looked", Counted, "merging: pages looked at",
        "Pages of which the scan for equal pages made a digest.";
    Merges, "merges", Counted, "merging: pages merged",
        "Pages that show a frame with the same contents since the scan found it.";
    MergesZero, "merges_zero", Counted, "merging: pages of zeroes merged",
        "Pages full of zeroes that show the zero frame since the scan found them.";
    UnmergesWritten, "unmerges_written", Counted, "un-merging: pages written",
        "Merged pages that a store gave a frame of its own.";
    UnmergesAsked, "unmerges_asked", Counted, "un-merging: by request",
        "Merged pages that got a frame of their own since they may not be merged any more.";
    EntriesHinted, "numa_hinted", Counted, "entries that were to tell",
        "Entries whose rights were taken away for the next access to tell on which node it is made.";
    HintLocal, "numa_hint_local", Counted, "hint faults: local",
        "Accesses that were told of so, by a CPU of the page's node.";
    HintRemote, "numa_hint_remote", Counted, "hint faults: remote",
        "The same by a CPU of another node: with the second in a row the page moves there.";
    PagesMigrated, "numa_migrated", Counted, "pages migrated",
        "Pages that changed their frame for one on another node, or elsewhere, while they stayed mapped; a huge page counts as 512.";
    PagesNotMigrated, "numa_not_migrated", Counted, "pages not migrated",
        "Pages that were to change their frame and stayed: pinned, shared, or without a free frame where they were to go.";
    LazyFreed, "lazy_freed", Counted, "pages lazily freed",
        "Pages for which MADV_FREE was asked: unless they are written again they go, without being written out, when memory is short.";
    LazyDropped, "lazy_dropped", Counted, "pages lazily freed, gone",
        "Of these, pages that have gone.";
    SwapOut, "swap_out", Counted, "swap: pages out",
        "Pages whose entry, or object, named a slot from then on.";
    SwapWritten, "swap_written", Counted, "swap: pages written",
        "Pages handed to a swap device; the others that went out were there already, unchanged.";
    WrittenBack, "written_back", Counted, "file pages written back",
        "Pages of files that were written to where the file is kept, so that they could leave memory.";
    SwapRefused, "swap_refused", Counted, "swap: pages refused",
        "Pages that a swap device did not take: they stayed in memory.";
    SwapFailed, "swap_failed", Counted, "swap: reads failed",
        "Pages that a swap device could not read: they stayed there, and an access that needed one got SIGBUS, a call EIO.";
    SwapIn, "swap_in", Counted, "swap: pages read",
        "Pages read from a swap device.";
    SwapAround, "swap_around", Counted, "swap: pages read around",
        "Of these, pages that no access had asked for: they were next to one that was, in memory and on the device.";
    SwapAroundHit, "swap_around_hit", Counted, "swap: read around, used",
        "Of these, pages that were used by the time of the next fault for a swapped page of their area, or call for one of their object, when they are looked at.";
    SwapAroundWasted, "swap_around_wasted", Counted, "swap: read around, unused",
        "Of these, pages that were not used by then, or are gone.";
    SwapFolios, "swap_folios", Counted, "swap: folios read",
        "Folios of 4 to 16 pages that pages were read into which came back together: each has an entry and a reference of its own.";
    SwapReused, "swap_reused", Counted, "swap: writable at once",
        "Pages mapped writable when a load brought them back, because the rule allowed it: their first store costs no fault.";
    SwapSlots, "swap_slots", Sampled, "swap slots in use",
        "Slots of swap devices in use when the account was taken.";
    LocksTaken, "locks_taken", Requested, "locks: taken",
        "Locks taken, by whatever part of the kernel; a writer of a lock with a word per CPU takes them all. With the policy locks=count.";
    LocksBounced, "locks_bounced", Requested, "locks: bounced",
        "Locks taken whose word another CPU wrote last. With the policy locks=count.";
    LockWordsShared, "lock_words_shared", Requested, "lock words of several CPUs",
        "Lock words that more than one CPU wrote, each counted once. With the policy locks=count.";
    LocksWaited, "locks_waited", Requested, "locks: waited for",
        "Locks that somebody else held when they were to be taken. With the policy locks=count.";
    LinesBounced, "lines_bounced", Requested, "count lines: bounced",
        "Writes of a line of 64 bytes with counts, entries or metadata that another CPU wrote last: the lines that /proc/lock_stat lists. With the policy locks=count.";
    LinesShared, "lines_shared", Requested, "count lines of several CPUs",
        "Such lines that more than one CPU wrote, each counted once. With the policy locks=count.";
    LinesMissed, "lines_missed", Requested, "count lines not followed",
        "Writes of such lines for which the table of lines had no room: unless it is 0, the two rows above say too little. With the policy locks=count.";
    PagingStructureHits, "paging_structure_hits", NotObservable, "paging-structure cache hits",
        "Walks that began at a cached upper-level entry.";
    TaggedSwitches, "tagged_switches", NotObservable, "switches that kept translations",
        "Changes of address space that kept tagged (PCID) translations.";
}

/// How many rows there are.
pub const ROW_COUNT: usize = ROWS.len();

/// A row's value in an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A count.
    Count(u64),
    /// Not observable under TCG.
    NotObservable,
}

impl Value {
    /// The count, if there is one.
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

/// The counters of one CPU. Aligned so that no two CPUs write one cache line.
#[repr(align(128))]
struct CpuCounters([AtomicU64; ROW_COUNT]);

/// Adds to a counter that only the calling CPU writes. No count reaches the end of 64 bits.
#[inline]
fn add_to(counter: &AtomicU64, count: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(count);
    counter.store(sum, Ordering::Relaxed);
}

/// How many counters a line of 64 bytes holds.
const COUNTERS_IN_LINE: usize = 8;

/// All counters.
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

    /// Counts `count` events on `cpu`, which must be the calling one: only it writes its counters, so a
    /// load and a store do.
    #[inline]
    pub(crate) fn add(&self, cpu: CpuId, row: Row, count: u64) {
        if let Some(counters) = self.cpus.get(cpu.index()) {
            add_to(&counters.0[row as usize], count);
        }
    }

    /// The same for several rows, most of which count nothing.
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

    /// Says to the lock statistics that `cpu`, the calling one, wrote its counters.
    pub(crate) fn note_lines(&self, cpu: CpuId) {
        for counter in self.cpus[cpu.index()].0.iter().step_by(COUNTERS_IN_LINE) {
            stat::line(Line::Account, counter);
        }
    }

    /// The sum over all CPUs.
    pub(crate) fn sum(&self, row: Row) -> u64 {
        self.cpus
            .iter()
            .map(|cpu| cpu.0[row as usize].load(Ordering::Relaxed))
            .sum()
    }
}

/// The account at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub(crate) values: [u64; ROW_COUNT],
    /// Whether it has the rows that are there on request only.
    pub(crate) requested: bool,
}

impl Account {
    /// The value of one row.
    pub fn get(&self, row: Row) -> Value {
        match ROWS[row as usize].source {
            Source::Counted | Source::Sampled | Source::Requested => {
                Value::Count(self.values[row as usize])
            }
            Source::NotObservable => Value::NotObservable,
        }
    }

    /// The count of one row, 0 if it is not observable.
    pub fn count(&self, row: Row) -> u64 {
        self.values[row as usize]
    }

    /// Every row with its value, in the order of [`ROWS`], but those that nobody asked for.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Definition, Value)> + '_ {
        ROWS.iter()
            .filter(|definition| self.requested || definition.source != Source::Requested)
            .map(|definition| (definition, self.get(definition.row)))
    }

    /// Page faults of every kind that were resolved.
    pub fn faults(&self) -> u64 {
        [
            Row::FaultDemandZero,
            Row::FaultZeroPage,
            Row::FaultHuge,
            Row::FaultHugeZeroPage,
            Row::FaultFile,
            Row::FaultCopy,
            Row::FaultWriteOnly,
            Row::FaultHint,
            Row::FaultSwapIn,
            Row::FaultSwapCached,
            Row::FaultSpurious,
        ]
        .iter()
        .map(|row| self.count(*row))
        .sum()
    }

    /// What was counted since `earlier`. Sampled rows keep their present value.
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
