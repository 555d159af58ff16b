//! Deliberate bugs ("mistakes") for mutation testing: the tests must detect each of them.
//!
//! Each mistake makes one place in this crate or in `memwright` misbehave. With the feature `mistakes`, the environment
//! variable `MEMWRIGHT_MISTAKE` selects one by name. Without the feature, [`planted`] is the constant `false` and no
//! mistake is compiled in.

macro_rules! mistakes {
    ($($variant:ident $name:literal $what:literal)*) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mistake {
            $(#[doc = $what] $variant,)*
        }

        impl Mistake {
            /// Every mistake.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name by which `MEMWRIGHT_MISTAKE` selects it.
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
    SkipFlush "skip-flush" "No CPU is flushed after any change."
    SkipLocal "skip-local" "The CPU that made the change is not flushed."
    SkipRemote "skip-remote" "No other CPU is flushed."
    OneCpuShort "one-cpu-short" "One of the CPUs to be interrupted for a flush is left out."
    OnePageShort "one-page-short" "The last page of a run is not invalidated."
    FullFlushForgotten "full-flush-forgotten" "A flush of more pages than are invalidated one by one is skipped."
    TablesForgotten "tables-forgotten" "A freed table is flushed like a leaf entry, without the paging-structure caches."
    FreeBeforeFlush "free-before-flush" "Frames are freed before the flush."
    ElideAccessed "elide-accessed" "The flush of an entry is elided although its accessed bit is set."
    LostBitNotFlushed "lost-bit-not-flushed" "Clearing a dirty or accessed bit flushes no CPU."
    ShrankAsGrew "shrank-as-grew" "A lost right is flushed on the local CPU only."
    KeptBelieved "kept-believed" "Translations that a CPU keeps of an address space after switching away never become stale."
    // Flushes that another operation has recorded but not made yet.
    PendingNotAnnounced "pending-not-announced" "A gather does not announce that it has a flush pending."
    ProtectIgnoresPending "protect-ignores-pending" "A protection change that finds the right already gone ignores the flush still pending for it."
    ZapIgnoresPending "zap-ignores-pending" "A zap that finds the page already gone ignores the flush still pending for it."
    ForkIgnoresPending "fork-ignores-pending" "A fork that finds the page already write-protected ignores the flush still pending for it."
    ElideIgnoresPending "elide-ignores-pending" "A clear accessed bit is trusted while the flush for it is still pending."
    // Waits.
    HaltUnchecked "halt-unchecked" "A CPU that has announced that it halts for a lock does not check again whether the lock has been released."
    // Entries.
    LoseDirty "lose-dirty" "A protection change clears the dirty bit."
    RebuildEntry "rebuild-entry" "A protection change stores the value that it read before and overwrites the bits that hardware set meanwhile."
    FillUnlocked "fill-unlocked" "A new table is linked before its lock is acquired."
    QuietUnflushed "quiet-unflushed" "The accessed bit of an upper-level entry is cleared without a flush."
    QuietBeforeFlush "quiet-before-flush" "A table is marked skippable while another scan's flush of upper levels is pending."
    QuietDisturbed "quiet-disturbed" "A table stays skippable after software has locked it to change its entries."
    MoveDirtyLost "move-dirty-lost" "A moved page loses its dirty bit."
    MoveNotFlushed "move-not-flushed" "A moved page stays mapped at its old address in the TLBs."
    // Fork.
    ExclusiveAtFork "exclusive-at-fork" "Fork leaves the parent's pages exclusive."
    WritableAtFork "writable-at-fork" "Fork leaves the parent's pages writable."
    ChildExclusive "child-exclusive" "Fork maps pages exclusive in the child."
    NoReferenceAtFork "no-reference-at-fork" "Fork maps pages in the child without taking references to them."
    PinnedAtFork "pinned-at-fork" "Fork shares pinned pages."
    SwapUncountedAtFork "swap-uncounted-at-fork" "Fork copies a swap entry without taking a reference to its slot."
    SwapExclusiveAtFork "swap-exclusive-at-fork" "Fork leaves the parent's swap entries exclusive."
    // Faults and write permission.
    CopyUnflushed "copy-unflushed" "Copy-on-write fills the entry before the old page is flushed."
    CopyForgotten "copy-forgotten" "Copy-on-write maps a new frame without copying the contents."
    RegainShared "regain-shared" "A page with two references becomes exclusive at a write fault."
    RegainSharedProtect "regain-shared-protect" "A page with two references becomes exclusive at a protection change."
    WritableShared "writable-shared" "Write permission is granted to a page that is not exclusive."
    WritableBorrowed "writable-borrowed" "Write permission is granted to the zero page."
    NotifyForgotten "notify-forgotten" "An object is not notified of the first write to a page."
    NotZeroed "not-zeroed" "New memory contains what its frame held before."
    GenerationIgnored "generation-ignored" "A fault maps a page of an object that was truncated meanwhile."
    RuleBeforeProtection "rule-before-protection" "Swap-in decides on write permission before the page's write protection is restored."
    FreeCleanSlot "free-clean-slot" "The swap slot of a page is discarded while the page is clean."
    WriteBeforeFlush "write-before-flush" "A page is submitted to the swap device before the flush."
    LeakFrame "leak-frame" "A displaced frame is not freed."
    LeakPromise "leak-promise" "Unmapped memory stays accounted."
    // Tracking of stores.
    ArmedWritable "armed-writable" "Write-protecting a page through userfaultfd leaves it writable."
    ArmedDirty "armed-dirty" "A page keeps its dirty bit when tracking through that bit begins."
    FoldHidesFromSoftDirty "fold-hides-from-soft-dirty" "Clearing the dirty bit of a page does not set soft-dirty."
    FoldHidesFromScan "fold-hides-from-scan" "Clearing the dirty bit of a page hides the store from scans for written pages."
    FoldHidesFromSwap "fold-hides-from-swap" "Clearing the dirty bit of a page hides that its copy in swap is out of date."
    ClearedWritable "cleared-writable" "Clearing soft-dirty leaves pages writable whose stores only a fault can report."
    ScanArmsUntaken "scan-arms-untaken" "A scan also write-protects pages of a run that it does not report."
    ScanArmsPinned "scan-arms-pinned" "A scan write-protects a pinned page, which then counts as unwritten."
    ProtectBeforeMarkers "protect-before-markers" "Mapped pages are write-protected before markers are set for unmapped ones."
    UnprotectGrants "unprotect-grants" "Removing a write protection grants write permission without checking whether the page may be written."
    FillBeyondObject "fill-beyond-object" "A userfaultfd fill of a private mapping succeeds beyond the end of its object."
    MarkerNotInherited "marker-not-inherited" "A page that is mapped in place of a marker does not inherit the marker's write protection."
    ZapForgetsProtection "zap-forgets-protection" "Zapping an object's page drops its write protection."
    MoveKeepsProtection "move-keeps-protection" "A moved page keeps its userfaultfd write protection where it must lose it."
    MoveNotSoftDirty "move-not-soft-dirty" "A moved page does not become soft-dirty."
    RemovalUntold "removal-untold" "Contents are discarded without notifying the userfaultfd context first."
    MoveToldLast "move-told-last" "A userfaultfd context receives the move event after the unmap events of the old range."
    GrowthUnasked "growth-unasked" "Populating grown locked memory leaves pages to later faults that a userfaultfd context must supply at once."
    // Huge pages.
    FolioNotZeroed "folio-not-zeroed" "The pages of a new folio contain what their frames held before."
    FolioBeyondArea "folio-beyond-area" "A first-touch fault populates a folio that extends beyond its VMA."
    FolioBeyondObject "folio-beyond-object" "A folio of shared memory extends beyond the end of its object."
    SharedFolioBeyondArea "shared-folio-beyond-area" "A fault maps all of an object's folio although its VMA covers only a part."
    RoomKept "room-kept" "Removing an object's page does not return its share of a size limit common to several objects."
    RoomTakenTwice "room-taken-twice" "Collapsing an object's pages into a huge page charges the size limit again for pages already present."
    HugeNotZeroed "huge-not-zeroed" "A new huge page contains what its frames held before."
    HugeRegainShared "huge-regain-shared" "A huge page with two references becomes exclusive at a write fault."
    WatchUncut "watch-uncut" "Registering a part of a huge page with userfaultfd does not split its entry."
    HugeBeyondArea "huge-beyond-area" "A huge page extends beyond the end of its VMA."
    SplitOneReference "split-one-reference" "Splitting a huge page leaves all of its parts with one common reference."
    CollapseUnflushed "collapse-unflushed" "Pages are copied into a huge page before their table is flushed."
    CollapsePinned "collapse-pinned" "A pinned page is collapsed into a huge page."
    CollapseInUse "collapse-in-use" "An object's page is collapsed into a huge page while it has extra references."
    PartUncounted "part-uncounted" "A 4 KiB entry of an object's huge page is counted as a reference to the whole folio."
    // Swap.
    SwapForgetsProtection "swap-forgets-protection" "A swap entry loses the write protection of its page."
    SwapHidesStore "swap-hides-store" "A swap entry does not record that its page was written."
    SwapPinned "swap-pinned" "A pinned page is swapped out."
    SwapLocked "swap-locked" "Locked memory is swapped out."
    SwapRefusedLost "swap-refused-lost" "A page that the swap device refused is freed nevertheless."
    SwapInExclusive "swap-in-exclusive" "Swap-in maps a page exclusive although other entries share its slot."
    SwapCachedExclusive "swap-cached-exclusive" "A page found in the swap cache is mapped exclusive although another entry already maps it."
    SwapFolioMisaligned "swap-folio-misaligned" "Pages that are swapped in together form a folio regardless of alignment."
    SwapFolioLost "swap-folio-lost" "One unreadable page keeps the pages read with it from being swapped in."
    LazyKeepsSlot "lazy-keeps-slot" "A page freed lazily keeps its swap slot as if the slot had its contents."
    LazyDropsWritten "lazy-drops-written" "A page freed lazily is discarded although it was written since."
    LazySharedOut "lazy-shared-out" "A shared page that is swapped out is still freed lazily after swap-in."
    ShedUsed "shed-used" "A swap slot drops its cached frame while other entries still map it."
    SharedOutShown "shared-out-shown" "A shmem page is swapped out while it is mapped."
    SharedOutAsked "shared-out-asked" "A shmem page is swapped out although it was looked up while being written out."
    SharedSlotLeaked "shared-slot-leaked" "A truncated shmem page leaks its swap slot."
    SharedSlotReused "shared-slot-reused" "A swap slot of shmem is reused while it is being read."
    SharedAroundReused "shared-around-reused" "A swap slot of shmem is reused while read-ahead reads it."
    SharedOutAskedAgain "shared-out-asked-again" "A shmem page already marked referenced is swapped out although it was looked up while being written out."
    // Merging.
    MergeByDigest "merge-by-digest" "Pages with the same digest are merged without comparing their contents."
    MergeKeepsWriting "merge-keeps-writing" "Merging leaves one of the entries exclusive and writable."
    MergePinned "merge-pinned" "A page that is pinned or has extra references is merged."
    UnmergeInPlace "unmerge-in-place" "A store to a merged page writes the shared frame instead of a copy."
    SplitZeroBySight "split-zero-by-sight" "Splitting a folio drops a page that an earlier check found to be zero, without checking again."
    SplitPinned "split-pinned" "A folio with a pinned page is split."
    MergeForgetsProtection "merge-forgets-protection" "Merging drops the write protection of a page."
    // Migration and hinting.
    MigratePinned "migrate-pinned" "A pinned page is migrated."
    MigrateShared "migrate-shared" "A page that other entries map is migrated."
    MigrateLosesDirty "migrate-loses-dirty" "A migrated page loses its dirty bit."
    MigrateUnflushed "migrate-unflushed" "A page is copied to its new frame before the old translation is flushed."
    MigrateTogetherUnflushed "migrate-together-unflushed" "A page with several mappings is copied to its new frame before all of them are flushed."
    MigrateReferenced "migrate-referenced" "A page with several mappings is migrated although it has an extra reference."
    MigrateTogetherExclusive "migrate-together-exclusive" "A migrated page with several mappings becomes exclusive to one of them."
    HintReadOnly "hint-read-only" "A NUMA hint fault leaves a page read-only that may be written."
    HintWritable "hint-writable" "A NUMA hint fault grants write permission without checking whether the page may be written."
    HintKept "hint-kept" "A protection change leaves the NUMA hint of an entry in place."
    // Pages of the huge page pool (hugetlb).
    LeakReservation "leak-reservation" "Huge page reservations that are no longer needed are not released."
    LargeRunShort "large-run-short" "Of a run of huge pages only the first is invalidated."
    LargeExclusiveAtFork "large-exclusive-at-fork" "Fork leaves the parent's huge pages exclusive."
    HugetlbCopyForgotten "hugetlb-copy-forgotten" "Copy-on-write maps a hugetlb page without copying the contents."
}

/// Returns whether this mistake is selected: never, without the feature `mistakes`.
#[cfg(not(feature = "mistakes"))]
#[inline(always)]
#[must_use]
pub const fn planted(_: Mistake) -> bool {
    false
}

/// Returns whether this mistake is selected.
///
/// # Panics
/// If `MEMWRIGHT_MISTAKE` names no mistake.
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
