//! Memory types, and the page attribute table (PAT) that selects one for each page (Intel SDM volume 3A, chapter "Memory
//! Cache Control", section "Page Attribute Table").

/// How a processor caches a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryType {
    /// WB.
    WriteBack,
    /// WT.
    WriteThrough,
    /// WC.
    WriteCombining,
    /// WP.
    WriteProtected,
    /// UC-, which the ranges of the machine (MTRRs) can override.
    UncachedMinus,
    /// UC.
    Uncached,
}

use MemoryType::*;

/// The PAT after a reset.
const RESET: [MemoryType; 8] = [
    WriteBack,
    WriteThrough,
    UncachedMinus,
    Uncached,
    WriteBack,
    WriteThrough,
    UncachedMinus,
    Uncached,
];

/// The PAT as Linux sets it (7.2 `arch/x86/mm/pat/memtype.c`, `pat_bp_init`).
const OF_LINUX: [MemoryType; 8] = [
    WriteBack,
    WriteCombining,
    UncachedMinus,
    Uncached,
    WriteBack,
    WriteProtected,
    UncachedMinus,
    WriteThrough,
];

/// Returns the type in entry `index` of the PAT. `write_combining` states whether the machine has set up its PAT as
/// Linux does. Otherwise, the PAT has the value after a reset.
pub(crate) fn in_pat(index: u8, write_combining: bool) -> MemoryType {
    let pat = if write_combining { OF_LINUX } else { RESET };
    pat[usize::from(index & 7)]
}
