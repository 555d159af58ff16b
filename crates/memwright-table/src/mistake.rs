//! Mistakes planted on purpose, for tests that must notice them.
//!
//! Each is one place in this crate or in `memwright` that does something wrong when the mistake is
//! chosen. With the feature `mistakes` the environment variable `MEMWRIGHT_MISTAKE` chooses one by name; without
//! it [`planted`] is `false` wherever it is asked, and nothing of them is compiled.

macro_rules! mistakes {
    ($($variant:ident $name:literal $what:literal)*) => {
        /// A mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mistake {
            $(#[doc = $what] $variant,)*
        }

        impl Mistake {
            /// Every mistake.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name that chooses it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

mistakes! {
    // Gather and flush.
    SkipFlush "skip-flush" "No CPU is told of any change."
    SkipLocal "skip-local" "The CPU that made the change is not told."
    SkipRemote "skip-remote" "No other CPU is told."
    OneCpuShort "one-cpu-short" "The last of the CPUs to be interrupted is left out."
    OnePageShort "one-page-short" "The last page of a run is not invalidated."
    FullFlushForgotten "full-flush-forgotten" "Pages that are too many to go one by one are not invalidated."
    TablesForgotten "tables-forgotten" "A freed table is flushed as if a leaf had gone."
    FreeBeforeFlush "free-before-flush" "Frames are given up before the flush."
    ElideAccessed "elide-accessed" "A CPU that used the translation is not told either."
    LostBitNotFlushed "lost-bit-not-flushed" "Clearing dirty or accessed is told to no CPU."
    ShrankAsGrew "shrank-as-grew" "A right that is taken is told to this CPU only."
    KeptBelieved "kept-believed" "What a CPU kept of an address space that it left is never stale."
    // Invalidations that another operation has not made yet.
    PendingNotAnnounced "pending-not-announced" "A gather does not say that it has invalidations to make."
    ProtectIgnoresPending "protect-ignores-pending" "A protection change that finds the right gone does not await its flush."
    ZapIgnoresPending "zap-ignores-pending" "A removal that finds the page gone does not await its flush."
    ForkIgnoresPending "fork-ignores-pending" "A fork that finds the right to write gone does not await its flush."
    ElideIgnoresPending "elide-ignores-pending" "A clear accessed bit is believed while its flush is pending."
    // Waits.
    HaltUnchecked "halt-unchecked" "A CPU that has announced that it halts for a lock does not look again whether the lock was released meanwhile."
    // Entries.
    LoseDirty "lose-dirty" "A protection change clears the dirty bit."
    RebuildEntry "rebuild-entry" "A protection change stores what it read before, over what hardware set meanwhile."
    FillUnlocked "fill-unlocked" "A new table is linked before its lock is taken."
    QuietUnflushed "quiet-unflushed" "The accessed bit of an upper entry is cleared and no CPU is told."
    QuietBeforeFlush "quiet-before-flush" "A table counts as quiet while another scan's flush of upper levels is pending."
    QuietDisturbed "quiet-disturbed" "A table stays quiet when software makes one of its pages written."
    MoveDirtyLost "move-dirty-lost" "A moved page is clean."
    MoveNotFlushed "move-not-flushed" "A moved page stays where it was on other CPUs."
    // Fork.
    ExclusiveAtFork "exclusive-at-fork" "Fork leaves the parent's pages exclusive."
    WritableAtFork "writable-at-fork" "Fork leaves the parent's pages writable."
    ChildExclusive "child-exclusive" "Fork gives the child pages that are exclusive."
    NoReferenceAtFork "no-reference-at-fork" "Fork gives the child entries without references."
    PinnedAtFork "pinned-at-fork" "Fork shares pinned pages."
    SwapUncountedAtFork "swap-uncounted-at-fork" "Fork lets two entries name a slot that counts one."
    SwapExclusiveAtFork "swap-exclusive-at-fork" "Fork leaves the parent's pages in swap exclusive."
    // Faults and the rule.
    CopyUnflushed "copy-unflushed" "Copy-on-write fills the entry before the old page is forgotten."
    CopyForgotten "copy-forgotten" "Copy-on-write maps a frame into which nothing was copied."
    RegainShared "regain-shared" "A page with two references becomes exclusive at a write fault."
    RegainSharedProtect "regain-shared-protect" "A page with two references becomes exclusive at a protection change."
    WritableShared "writable-shared" "The rule grants writing to a page that is not exclusive."
    WritableBorrowed "writable-borrowed" "The rule grants writing to the zero frame."
    NotifyForgotten "notify-forgotten" "An object does not hear of the first write."
    NotZeroed "not-zeroed" "New memory shows what the frame held before."
    GenerationIgnored "generation-ignored" "A fault maps a page of an object that was truncated meanwhile."
    RuleBeforeProtection "rule-before-protection" "A page comes back from swap writable before its protection is restored."
    FreeCleanSlot "free-clean-slot" "A slot is free while the entry of its page is clean."
    WriteBeforeFlush "write-before-flush" "A page is handed to the swap device before the flush."
    LeakFrame "leak-frame" "A displaced frame is not given up."
    LeakPromise "leak-promise" "Unmapped memory stays promised."
    // Tracking.
    ArmedWritable "armed-writable" "A page whose stores are to fault is protected and stays writable."
    ArmedDirty "armed-dirty" "A page of whose stores the dirty bit tells is armed while that bit is set."
    FoldHidesFromSoftDirty "fold-hides-from-soft-dirty" "Who clears the dirty bit does not tell soft-dirty."
    FoldHidesFromScan "fold-hides-from-scan" "Who clears the dirty bit does not tell the scans for written pages."
    FoldHidesFromSwap "fold-hides-from-swap" "Who clears the dirty bit does not say that a copy in swap is out of date."
    ClearedWritable "cleared-writable" "Clearing soft-dirty leaves pages writable of whose stores only a fault tells."
    ScanArmsUntaken "scan-arms-untaken" "A scan protects the pages of a run that were not taken, too."
    ScanArmsPinned "scan-arms-pinned" "A scan protects a page that is pinned, so that it counts as unwritten."
    ProtectBeforeMarkers "protect-before-markers" "What is mapped is protected before what is not."
    UnprotectGrants "unprotect-grants" "Who ends a protection grants writing without asking the rule."
    FillBeyondObject "fill-beyond-object" "Private memory is filled beyond the end of its object."
    MarkerNotInherited "marker-not-inherited" "What is mapped where nothing was does not inherit the protection."
    ZapForgetsProtection "zap-forgets-protection" "An object's page that goes takes its protection along."
    MoveKeepsProtection "move-keeps-protection" "A moved page stays protected, though nobody asked for that."
    MoveNotSoftDirty "move-not-soft-dirty" "A moved page is no more soft-dirty than it was."
    RemovalUntold "removal-untold" "Contents go, and the watcher who wants to know is not told before."
    MoveToldLast "move-told-last" "Watchers hear of a move after they heard of what is no longer at the old place."
    GrowthUnasked "growth-unasked" "What locked memory grows by is left to faults where its watcher is to be asked."
    // Huge pages.
    FolioNotZeroed "folio-not-zeroed" "The pages of a new folio show what their frames held before."
    FolioBeyondArea "folio-beyond-area" "A first touch fills a folio that reaches beyond its area."
    FolioBeyondObject "folio-beyond-object" "A folio of shared memory reaches beyond the end of its object."
    SharedFolioBeyondArea "shared-folio-beyond-area" "A fault maps all of an object's folio, of which its area shows a part."
    RoomKept "room-kept" "A page that an object loses keeps the room that several objects share."
    RoomTakenTwice "room-taken-twice" "A huge page that is gathered takes room for the pages that were there."
    HugeNotZeroed "huge-not-zeroed" "A new huge page shows what its frames held before."
    HugeRegainShared "huge-regain-shared" "A huge page with two references becomes exclusive at a write fault."
    WatchUncut "watch-uncut" "Who watches a part of a huge page leaves its entry whole."
    HugeBeyondArea "huge-beyond-area" "A huge page reaches beyond the end of its area."
    SplitOneReference "split-one-reference" "The parts of a huge page have its one reference together."
    CollapseUnflushed "collapse-unflushed" "Pages are copied into a huge page before their table is forgotten."
    CollapsePinned "collapse-pinned" "A page that is pinned is copied into a huge page."
    CollapseInUse "collapse-in-use" "An object's page is copied into a huge page while somebody has it."
    PartUncounted "part-uncounted" "A small entry of a part of an object's huge page counts as one of the whole."
    // Swap.
    SwapForgetsProtection "swap-forgets-protection" "The entry of a page in swap does not say that stores to it are watched."
    SwapHidesStore "swap-hides-store" "The entry of a page in swap does not say that the page was written."
    SwapPinned "swap-pinned" "A page that is pinned leaves memory."
    SwapLocked "swap-locked" "Locked memory leaves."
    SwapRefusedLost "swap-refused-lost" "What the device refused is given up nevertheless."
    SwapInExclusive "swap-in-exclusive" "A page of several that comes back is the first one's alone."
    SwapCachedExclusive "swap-cached-exclusive" "A page of several that one has brought back becomes the second one's alone."
    SwapFolioMisaligned "swap-folio-misaligned" "Pages that come back together are a folio wherever they begin."
    SwapFolioLost "swap-folio-lost" "With a page that cannot be read those that come with it stay out."
    LazyKeepsSlot "lazy-keeps-slot" "Contents that may be lost stay in a slot, as if that had them."
    LazyDropsWritten "lazy-drops-written" "Contents that may be lost go though they were written since."
    LazySharedOut "lazy-shared-out" "A page that several show goes to swap, and its contents may be lost still when it is back."
    ShedUsed "shed-used" "A slot gives up a frame that somebody else still shows."
    SharedOutShown "shared-out-shown" "A page of shared memory leaves while programs show it."
    SharedOutAsked "shared-out-asked" "A page of shared memory leaves though somebody asked for it while it was written."
    SharedSlotLeaked "shared-slot-leaked" "A page of shared memory that is cut off keeps its slot."
    SharedSlotReused "shared-slot-reused" "A slot is given to another page while it is read."
    SharedAroundReused "shared-around-reused" "A slot is given to another page while it is read unasked."
    SharedOutAskedAgain "shared-out-asked-again" "A page of shared memory leaves though somebody asked for it while it was written, as before."
    // Merging.
    MergeByDigest "merge-by-digest" "Pages with the same digest are merged without a comparison."
    MergeKeepsWriting "merge-keeps-writing" "A merged page stays exclusive and writable for one of those that show it."
    MergePinned "merge-pinned" "A page that is pinned or lent is merged."
    UnmergeInPlace "unmerge-in-place" "A store to a merged page writes the frame that the others show."
    SplitZeroBySight "split-zero-by-sight" "A page of a folio that was split goes because it was full of zeroes when it was looked at."
    SplitPinned "split-pinned" "A folio of which a page is pinned is split."
    MergeForgetsProtection "merge-forgets-protection" "A merged page is no longer protected."
    // Migration and hinting.
    MigratePinned "migrate-pinned" "A page that is pinned moves to another frame."
    MigrateShared "migrate-shared" "A page that others show moves to another frame."
    MigrateLosesDirty "migrate-loses-dirty" "A page that moved is clean."
    MigrateUnflushed "migrate-unflushed" "A page is copied to its new frame before the old one is forgotten."
    MigrateTogetherUnflushed "migrate-together-unflushed" "A page that several show is copied to its new frame before the old one is forgotten."
    MigrateReferenced "migrate-referenced" "A page that several show moves though somebody else has a reference."
    MigrateTogetherExclusive "migrate-together-exclusive" "A page that several show is one owner's alone once it moved."
    HintReadOnly "hint-read-only" "A hint fault leaves a page read-only that the rule allows to write."
    HintWritable "hint-writable" "A hint fault grants writing without asking the rule."
    HintKept "hint-kept" "A protection change leaves an entry that tells who uses it one."
    // Pages of the pool of huge pages.
    LeakReservation "leak-reservation" "Reserved huge pages that are not needed any more stay reserved."
    LargeRunShort "large-run-short" "Of a run of huge pages only the first is invalidated."
    LargeExclusiveAtFork "large-exclusive-at-fork" "Fork leaves the parent's huge pages exclusive."
    HugetlbCopyForgotten "hugetlb-copy-forgotten" "Copy-on-write maps a huge page of the pool into which nothing was copied."
}

/// Whether this mistake is to be made.
#[cfg(not(feature = "mistakes"))]
#[inline(always)]
#[must_use]
pub const fn planted(_: Mistake) -> bool {
    false
}

/// Whether this mistake is to be made.
///
/// # Panics
/// If `MEMWRIGHT_MISTAKE` names none.
#[cfg(feature = "mistakes")]
#[must_use]
pub fn planted(mistake: Mistake) -> bool {
    extern crate std;
    static CHOSEN: std::sync::OnceLock<Option<Mistake>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var("MEMWRIGHT_MISTAKE").ok()?;
        let found = Mistake::ALL.iter().find(|one| one.name() == name);
        Some(*found.unwrap_or_else(|| panic!("no mistake is named {name}")))
    });
    *chosen == Some(mistake)
}
