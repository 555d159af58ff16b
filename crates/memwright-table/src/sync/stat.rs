//! Lock statistics: how many times locks are acquired, and how many times their words and other cache lines move from
//! CPU to CPU.
//!
//! Statistics are off until [`start`]. While they are off, acquiring a lock costs no more than in a build without
//! statistics: the fast path exchanges the expected value of the lock word, which it reads from `EXPECTED`, for
//! `TAKEN`. While they are on, `EXPECTED` is a value that no lock word ever has, so that every lock is acquired on the
//! slow path, which counts. Each lock word then records the CPU that wrote it last. For lines that are not locks, a
//! table that is indexed by the address contains that record.
//!
//! A *bounce* is a write of a word, or of a line of 64 bytes, that another CPU wrote last (`acq-bounces` in Linux's
//! /proc/lock_stat). A bounce costs time on real hardware, but not under an emulator. If there were no bounces, no two
//! CPUs have written the same word or line since the start.
//!
//! **What is covered.** The statistics cover every lock of this layer, by its word and by its line, and the lines that
//! are passed to [`line()`], whose kinds are the variants of [`Line`]. They do not cover other writes.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Functions, RANKS, Rank, Threads};
use crate::addr::MAX_CPUS;

/// The kind of a cache line that several CPUs can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Line {
    /// A lock and the data next to it.
    Lock,
    /// Entries of a page table.
    Entries,
    /// The metadata of a frame.
    Frame,
    /// One per-CPU share of the counts of a page table, or the set of CPUs that have the table loaded.
    Table,
    /// One per-CPU share of the counts of an address space, or the field of an area that records whether the area has
    /// pages.
    Space,
    /// One per-CPU share of the counters of the memory accounting.
    Account,
    /// One per-CPU share of the count of committed pages.
    Commit,
}

impl Line {
    /// The number of variants.
    pub const COUNT: usize = 7;

    /// Every variant.
    pub const ALL: [Line; Line::COUNT] = [
        Line::Lock,
        Line::Entries,
        Line::Frame,
        Line::Table,
        Line::Space,
        Line::Account,
        Line::Commit,
    ];

    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Line::Lock => "lock",
            Line::Entries => "entries",
            Line::Frame => "frame",
            Line::Table => "table",
            Line::Space => "space",
            Line::Account => "account",
            Line::Commit => "commit",
        }
    }
}

/// The counts of one rank of locks, or of one kind of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of lock acquisitions, or of writes of lines.
    pub taken: u64,
    /// The number of bounces among `taken`: another CPU was the last to write the word or line.
    pub bounced: u64,
    /// The number of different words, or lines, that more than one CPU wrote.
    pub shared: u64,
    /// The number of lock acquisitions that had to wait.
    pub waited: u64,
}

impl Counts {
    /// Adds `other`'s counts.
    pub fn add(&mut self, other: &Counts) {
        self.taken += other.taken;
        self.bounced += other.bounced;
        self.shared += other.shared;
        self.waited += other.waited;
    }
}

/// One CPU's counters for one rank of locks, or for one kind of lines.
struct Counters {
    taken: AtomicU64,
    bounced: AtomicU64,
    shared: AtomicU64,
    waited: AtomicU64,
}

impl Counters {
    const fn new() -> Self {
        Self {
            taken: AtomicU64::new(0),
            bounced: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            waited: AtomicU64::new(0),
        }
    }

    fn count(&self, moved: Moved, waited: bool) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        match moved {
            Moved::No => {}
            Moved::Again => {
                self.bounced.fetch_add(1, Ordering::Relaxed);
            }
            Moved::First => {
                self.bounced.fetch_add(1, Ordering::Relaxed);
                self.shared.fetch_add(1, Ordering::Relaxed);
            }
        }
        if waited {
            self.waited.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn add_to(&self, counts: &mut Counts) {
        counts.taken += self.taken.load(Ordering::Relaxed);
        counts.bounced += self.bounced.load(Ordering::Relaxed);
        counts.shared += self.shared.load(Ordering::Relaxed);
        counts.waited += self.waited.load(Ordering::Relaxed);
    }

    fn clear(&self) {
        self.taken.store(0, Ordering::Relaxed);
        self.bounced.store(0, Ordering::Relaxed);
        self.shared.store(0, Ordering::Relaxed);
        self.waited.store(0, Ordering::Relaxed);
    }
}

#[repr(align(64))]
struct CpuCounters {
    locks: [Counters; RANKS.len()],
    lines: [Counters; Line::COUNT],
}

static COUNTERS: [CpuCounters; MAX_CPUS] = [const {
    CpuCounters {
        locks: [const { Counters::new() }; RANKS.len()],
        lines: [const { Counters::new() }; Line::COUNT],
    }
}; MAX_CPUS];

/// The kinds of waits. They are counted even while the statistics are off, because the count costs less than the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Waits {
    /// A wait for a lock, or for another event that another CPU causes.
    Contended,
    /// A contended wait in which the CPU halted or yielded to other threads.
    Halted,
    /// A wait for the invalidations of other CPUs in which this CPU halted.
    FlushHalted,
}

impl Waits {
    /// The number of variants.
    const COUNT: usize = 3;
}

/// One CPU's counts of waits.
#[repr(align(64))]
struct CpuWaits([AtomicU64; Waits::COUNT]);

static WAITS: [CpuWaits; MAX_CPUS] =
    [const { CpuWaits([const { AtomicU64::new(0) }; Waits::COUNT]) }; MAX_CPUS];

/// Counts a wait of the calling CPU.
#[cold]
pub fn count_wait<H: Threads>(wait: Waits) {
    count_wait_on(H::functions(), wait);
}

pub(super) fn count_wait_on(threads: &Functions, wait: Waits) {
    WAITS[threads.cpu_index()].0[wait as usize].fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of waits of the kind `wait` on all CPUs since the system started.
pub fn waits(wait: Waits) -> u64 {
    let count = |cpu: &CpuWaits| cpu.0[wait as usize].load(Ordering::Relaxed);
    WAITS.iter().map(count).sum()
}

/// The value of a lock word that the fast path expects; see the module documentation.
static EXPECTED: AtomicU32 = AtomicU32::new(FREE);
/// The bits of a reader word, any one of which makes a reader take the slow path.
static SLOW: AtomicU32 = AtomicU32::new(TAKEN);
/// The number of the current measurement, from 1 to 255; 0 while there is none.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// The number of the last measurement.
static LAST_EPOCH: AtomicU32 = AtomicU32::new(0);
/// The number of writes of lines for which the table had no room.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// The word of a free lock without a record in its upper half.
pub(super) const FREE: u32 = 0;
/// The bit of a held lock.
pub(super) const TAKEN: u32 = 1;
/// A bit that is set in every reader word, so that [`slow_bits`] can force the slow path.
pub(super) const ALWAYS: u32 = 1 << 15;
/// A value that no lock word ever has, because the bits between `TAKEN` and the upper half are always clear.
const NEVER: u32 = 0xfffe;

/// The fields of the upper half of a word, or of a line's slot: the number of the CPU that wrote it last plus 1, the
/// flag `SHARED`, and the number of the measurement.
const CPU_SHIFT: u32 = 16;
const CPU_MASK: u32 = 0x7f << CPU_SHIFT;
const SHARED: u32 = 1 << 23;
const EPOCH_SHIFT: u32 = 24;
/// The mask of the upper half.
pub(super) const TAG: u32 = 0xffff_0000;

const _: () = assert!(MAX_CPUS < CPU_MASK as usize >> CPU_SHIFT);

/// Whether another CPU was the last to write a word or line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    No,
    /// Another CPU was the last writer, and the word or line moves for the first time in this measurement.
    First,
    Again,
}

/// The value of a lock word that the fast path expects.
#[inline(always)]
pub(super) fn expected() -> u32 {
    EXPECTED.load(Ordering::Relaxed)
}

/// The bits of a reader word, any one of which makes a reader take the slow path.
#[inline(always)]
pub(super) fn slow_bits() -> u32 {
    SLOW.load(Ordering::Relaxed)
}

/// Whether the statistics are on.
#[inline]
pub fn is_on() -> bool {
    EPOCH.load(Ordering::Relaxed) != 0
}

/// Clears the statistics and turns them on, on every CPU. Simultaneous operations of other CPUs may or may not be
/// counted.
pub fn start() {
    clear();
    EXPECTED.store(NEVER, Ordering::SeqCst);
    SLOW.store(TAKEN | ALWAYS, Ordering::SeqCst);
}

/// Clears the counts and the records of last writers.
pub fn clear() {
    let epoch = LAST_EPOCH.load(Ordering::Relaxed) % 255 + 1;
    if epoch == 1 {
        // The numbers of measurements have wrapped. Clear the records of earlier measurements, so that a record with a
        // reused number does not look current.
        for slot in &LINES {
            slot.store(0, Ordering::Relaxed);
        }
    }
    LAST_EPOCH.store(epoch, Ordering::Relaxed);
    for cpu in &COUNTERS {
        cpu.locks.iter().chain(&cpu.lines).for_each(Counters::clear);
    }
    MISSED.store(0, Ordering::Relaxed);
    EPOCH.store(epoch, Ordering::SeqCst);
}

/// Turns the statistics off. The counts stay readable.
pub fn stop() {
    EXPECTED.store(FREE, Ordering::SeqCst);
    SLOW.store(TAKEN, Ordering::SeqCst);
    EPOCH.store(0, Ordering::SeqCst);
}

/// Returns the counts of the locks of `rank`, over all CPUs.
pub fn locks(rank: Rank) -> Counts {
    let mut counts = Counts::default();
    for cpu in &COUNTERS {
        cpu.locks[rank as usize].add_to(&mut counts);
    }
    counts
}

/// Returns the counts of lines of the kind `line`, over all CPUs.
pub fn lines(line: Line) -> Counts {
    let mut counts = Counts::default();
    for cpu in &COUNTERS {
        cpu.lines[line as usize].add_to(&mut counts);
    }
    counts
}

/// Returns the number of writes of lines that were not recorded because the table had no room. If it is not 0, a count
/// of 0 bounces proves nothing.
pub fn missed() -> u64 {
    MISSED.load(Ordering::Relaxed)
}

/// Counts an acquisition of the lock `word` of `rank`, whose value was `old`, and returns the new upper half of the
/// word; 0 while the statistics are off.
#[cold]
pub(super) fn taken(
    threads: &Functions,
    rank: Rank,
    word: &AtomicU32,
    old: u32,
    waited: bool,
) -> u32 {
    let epoch = EPOCH.load(Ordering::Relaxed);
    if epoch == 0 {
        return 0;
    }
    let me = threads.cpu_index();
    let (tag, moved) = retag(old, epoch, me);
    COUNTERS[me].locks[rank as usize].count(moved, waited);
    wrote(threads, Line::Lock, core::ptr::from_ref(word).cast());
    tag
}

/// Returns the new upper half of a word, or of a slot, that had the upper half of `old` and that CPU `me` now writes.
fn retag(old: u32, epoch: u32, me: usize) -> (u32, Moved) {
    let mine = epoch << EPOCH_SHIFT | (me as u32 + 1) << CPU_SHIFT;
    if old >> EPOCH_SHIFT != epoch {
        return (mine, Moved::No);
    }
    if (old ^ mine) & CPU_MASK == 0 {
        (mine | old & SHARED, Moved::No)
    } else if old & SHARED == 0 {
        (mine | SHARED, Moved::First)
    } else {
        (mine | SHARED, Moved::Again)
    }
}

/// The number of slots of the table, and so the maximum number of lines that can be recorded.
pub const SLOTS: usize = 1 << 13;
/// The number of slots of the table that are searched for a line.
const PROBES: usize = 16;
/// The table of lines. The lower 48 bits of a slot contain the number of the line. The upper 16 bits have the format of
/// the upper half of a lock word.
static LINES: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
const LINE_BITS: u32 = 48;
const LINE_MASK: u64 = (1 << LINE_BITS) - 1;

/// Records that this CPU has just written `what`, which is within one line. Does nothing while the statistics are off.
/// On a hot path, the caller should check [`is_on`] first.
#[inline]
pub fn line<H: Threads>(kind: Line, what: &impl ?Sized) {
    if is_on() {
        wrote(H::functions(), kind, core::ptr::from_ref(what).cast());
    }
}

#[cold]
fn wrote(threads: &Functions, kind: Line, what: *const u8) {
    let epoch = EPOCH.load(Ordering::Relaxed);
    let me = threads.cpu_index();
    // The number of a line has fewer than 48 significant bits.
    let number = (what.addr() as u64 >> 6) & LINE_MASK;
    let first = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    for probe in 0..PROBES {
        let slot = &LINES[(first as usize + probe) % SLOTS];
        let mut old = slot.load(Ordering::Relaxed);
        loop {
            let tag = (old >> LINE_BITS) as u32;
            let current = tag >> 8 == epoch;
            if current && old & LINE_MASK != number {
                break;
            }
            let (tag, moved) = retag(tag << CPU_SHIFT, epoch, me);
            let new = u64::from(tag >> CPU_SHIFT) << LINE_BITS | number;
            match slot.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    COUNTERS[me].lines[kind as usize].count(moved, false);
                    return;
                }
                Err(seen) => old = seen,
            }
        }
    }
    MISSED.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::{Moved, SHARED, retag};

    #[test]
    fn a_word_moves_when_another_cpu_wrote_it_in_the_same_measurement() {
        let (first, moved) = retag(0, 1, 0);
        assert_eq!(moved, Moved::No, "nobody wrote it before");
        let (again, moved) = retag(first, 1, 0);
        assert_eq!((again, moved), (first, Moved::No), "the same CPU did");
        let (other, moved) = retag(again, 1, 1);
        assert_eq!((other & SHARED, moved), (SHARED, Moved::First));
        let (stays, moved) = retag(other, 1, 1);
        assert_eq!((stays, moved), (other, Moved::No));
        let (back, moved) = retag(stays, 1, 0);
        assert_eq!((back & SHARED, moved), (SHARED, Moved::Again));
        let (new, moved) = retag(back, 2, 1);
        assert_eq!((new & SHARED, moved), (0, Moved::No), "another measurement");
    }
}
