//! The page walk of x86-64 hardware with four levels.
//!
//! Written from the processor manual, and deliberately not from `memwright_table::entry`. The two share only the bits
//! in memory, so the tests detect an encoding that hardware would read differently.

use std::sync::atomic::Ordering;

use memwright_table::{Frame, PageSize};

use crate::machine::Memory;
use crate::tlb::{CachedDirectory, Directory, Rights, Tlb, Translation};

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
/// The low bit of the index in the page attribute table.
const WRITE_THROUGH: u64 = 1 << 3;
/// The middle bit of the index.
const CACHE_DISABLE: u64 = 1 << 4;
const LEAF: u64 = 1 << 7;
/// In a 4 KiB entry, which is always a leaf, the bit of `LEAF` is the high bit of the index.
const SMALL_MEMORY_TYPE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// In a huge leaf, bit 12 is the high bit of the index. The frame number begins above it.
const LEAF_MEMORY_TYPE: u64 = 1 << 12;

/// The kind of an access that a translation must permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// A load in user mode.
    Read,
    /// A store in user mode.
    Write,
    /// An instruction fetch in user mode.
    Fetch,
}

impl Intent {
    /// Returns whether `rights` permit the access.
    #[must_use]
    pub fn permitted(self, rights: Rights) -> bool {
        rights.user
            && match self {
                Intent::Read => true,
                Intent::Write => rights.write,
                Intent::Fetch => rights.execute,
            }
    }
}

/// The reason why a walk found no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkFault {
    /// An entry of the walk is not present.
    NotPresent,
    /// All entries are present, but they forbid the access.
    Forbidden,
    /// An entry of the walk has a reserved bit set, or contains a frame number that the machine does not have.
    Reserved,
}

/// The result of a walk and its cost.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// The translation, or the reason why there is none.
    pub outcome: Result<Translation, WalkFault>,
    /// The number of entries read from memory.
    pub reads: u64,
}

fn rights_of(entry: u64) -> Rights {
    Rights {
        write: entry & WRITABLE != 0,
        user: entry & USER != 0,
        execute: entry & NO_EXECUTE == 0,
    }
}

fn leaf_size(level: u8) -> PageSize {
    match level {
        1 => PageSize::Size4K,
        2 => PageSize::Size2M,
        _ => PageSize::Size1G,
    }
}

fn index(level: u8, page: u64) -> usize {
    ((page >> (9 * (u32::from(level) - 1))) & 511) as usize
}

/// Returns the frame to which an entry points, if the machine has it.
fn target(memory: &Memory, address: u64) -> Option<Frame> {
    let number = u32::try_from(address >> 12).ok()?;
    memory.has(Frame::new(number)).then(|| Frame::new(number))
}

/// Translates `page` by a walk from `root`, as the hardware of one CPU does. Starts from the paging-structure caches in
/// `tlb`, and caches the upper-level entries that it reads. Sets the accessed bit in every entry that it uses, and for
/// a store also the dirty bit in the leaf, with one atomic exchange per entry. If an entry changed since it was read,
/// the walk starts again.
///
/// The leaf itself is not cached: the caller does that with the returned translation.
pub fn walk(memory: &Memory, root: Frame, page: u64, intent: Intent, tlb: &mut Tlb) -> Walk {
    let mut reads = 0;
    'again: loop {
        let (mut level, mut table, mut rights) = match tlb.find_directory(page) {
            Some((level, cached)) => (level - 1, cached.table, cached.rights),
            None => (4, root, Rights::ALL),
        };
        loop {
            let word = memory.word(table, index(level, page));
            let entry = word.load(Ordering::SeqCst);
            reads += 1;
            if entry & PRESENT == 0 {
                return Walk {
                    outcome: Err(WalkFault::NotPresent),
                    reads,
                };
            }
            let rights_here = rights.and(rights_of(entry));
            if level == 1 || entry & LEAF != 0 {
                let outcome = leaf(memory, level, entry, rights_here, page);
                let translation = match outcome {
                    Ok(translation) if intent.permitted(translation.rights) => translation,
                    Ok(_) => {
                        return Walk {
                            outcome: Err(WalkFault::Forbidden),
                            reads,
                        };
                    }
                    Err(fault) => {
                        return Walk {
                            outcome: Err(fault),
                            reads,
                        };
                    }
                };
                let set = if intent == Intent::Write {
                    ACCESSED | DIRTY
                } else {
                    ACCESSED
                };
                if entry & set != set
                    && word
                        .compare_exchange(entry, entry | set, Ordering::SeqCst, Ordering::SeqCst)
                        .is_err()
                {
                    continue 'again;
                }
                let dirty = (entry | set) & DIRTY != 0;
                return Walk {
                    outcome: Ok(Translation {
                        dirty,
                        ..translation
                    }),
                    reads,
                };
            }
            let Some(next) = target(memory, entry & ADDRESS) else {
                return Walk {
                    outcome: Err(WalkFault::Reserved),
                    reads,
                };
            };
            if entry & ACCESSED == 0
                && word
                    .compare_exchange(entry, entry | ACCESSED, Ordering::SeqCst, Ordering::SeqCst)
                    .is_err()
            {
                continue 'again;
            }
            tlb.insert_directory(
                Directory::of(level, page),
                CachedDirectory {
                    table: next,
                    rights: rights_here,
                },
            );
            (level, table, rights) = (level - 1, next, rights_here);
        }
    }
}

/// Returns the translation of a leaf entry of `level`, without checking the rights against an access.
fn leaf(
    memory: &Memory,
    level: u8,
    entry: u64,
    rights: Rights,
    page: u64,
) -> Result<Translation, WalkFault> {
    if level == 4 {
        // There are no leaves of 512 GiB: the page-size bit is reserved at that level.
        return Err(WalkFault::Reserved);
    }
    let size = leaf_size(level);
    let address = if level == 1 {
        entry & ADDRESS
    } else {
        entry & ADDRESS & !LEAF_MEMORY_TYPE
    };
    if address & (size.bytes() - 1) != 0 {
        return Err(WalkFault::Reserved);
    }
    let first = target(memory, address).ok_or(WalkFault::Reserved)?;
    let last = address + size.bytes() - 4096;
    target(memory, last).ok_or(WalkFault::Reserved)?;
    Ok(Translation {
        page: page & !(size.pages() - 1),
        size,
        frame: first,
        rights,
        dirty: entry & DIRTY != 0,
        pat: pat_index(level, entry),
    })
}

/// Returns the index in the page attribute table that a leaf entry of `level` selects.
fn pat_index(level: u8, entry: u64) -> u8 {
    let high = if level == 1 {
        SMALL_MEMORY_TYPE
    } else {
        LEAF_MEMORY_TYPE
    };
    let bit = |mask, value| if entry & mask != 0 { value } else { 0 };
    bit(WRITE_THROUGH, 1) | bit(CACHE_DISABLE, 2) | bit(high, 4)
}

/// Returns the current translation of `page` in the tables without side effects: sets no accessed bit, and neither
/// reads nor fills a cache. Returns `None` if an entry of the walk is not present.
///
/// This is the reference for what a TLB may hold.
#[must_use]
pub fn look(memory: &Memory, root: Frame, page: u64) -> Option<Result<Translation, WalkFault>> {
    let (mut level, mut table, mut rights) = (4, root, Rights::ALL);
    loop {
        let entry = memory
            .word(table, index(level, page))
            .load(Ordering::SeqCst);
        if entry & PRESENT == 0 {
            return None;
        }
        rights = rights.and(rights_of(entry));
        if level == 1 || entry & LEAF != 0 {
            return Some(leaf(memory, level, entry, rights, page));
        }
        match target(memory, entry & ADDRESS) {
            Some(next) => (level, table) = (level - 1, next),
            None => return Some(Err(WalkFault::Reserved)),
        }
    }
}

/// Returns the table to which the entry of `directory` points now, and the combined rights down to that level. Returns
/// `None` if the entry is not present or is a leaf.
#[must_use]
pub fn look_directory(
    memory: &Memory,
    root: Frame,
    directory: Directory,
) -> Option<CachedDirectory> {
    let page = directory.prefix << (9 * (u32::from(directory.level) - 1));
    let (mut level, mut table, mut rights) = (4, root, Rights::ALL);
    loop {
        let entry = memory
            .word(table, index(level, page))
            .load(Ordering::SeqCst);
        if entry & PRESENT == 0 || entry & LEAF != 0 {
            return None;
        }
        rights = rights.and(rights_of(entry));
        table = target(memory, entry & ADDRESS)?;
        if level == directory.level {
            return Some(CachedDirectory { table, rights });
        }
        level -= 1;
    }
}

/// Returns a page of the user half that a speculative walk from `root` could translate. `choose(n)` returns a number
/// below `n`, which selects one of `n` present entries. Returns `None` if this leads to a table without present
/// entries. The page may no longer be present when the caller walks to it.
#[must_use]
pub fn any_reachable(
    memory: &Memory,
    root: Frame,
    mut choose: impl FnMut(usize) -> usize,
) -> Option<u64> {
    let (mut level, mut table, mut page) = (4u8, root, 0u64);
    loop {
        // The upper half of the root belongs to the kernel.
        let slots = if level == 4 { 256 } else { 512 };
        let present: Vec<usize> = (0..slots)
            .filter(|&slot| memory.word(table, slot).load(Ordering::SeqCst) & PRESENT != 0)
            .collect();
        if present.is_empty() {
            return None;
        }
        let slot = present[choose(present.len())];
        let entry = memory.word(table, slot).load(Ordering::SeqCst);
        page |= (slot as u64) << (9 * (u32::from(level) - 1));
        if level == 1 || entry & LEAF != 0 {
            return Some(page);
        }
        table = target(memory, entry & ADDRESS)?;
        level -= 1;
    }
}

/// Calls `visit` with every present leaf of the user half.
pub fn for_each_leaf(memory: &Memory, root: Frame, visit: &mut impl FnMut(Translation)) {
    descend(memory, root, 4, 0, Rights::ALL, visit);
}

fn descend(
    memory: &Memory,
    table: Frame,
    level: u8,
    base: u64,
    rights: Rights,
    visit: &mut impl FnMut(Translation),
) {
    let slots = if level == 4 { 256 } else { 512 };
    for slot in 0..slots {
        let entry = memory.word(table, slot).load(Ordering::SeqCst);
        if entry & PRESENT == 0 {
            continue;
        }
        let page = base | (slot as u64) << (9 * (u32::from(level) - 1));
        let rights = rights.and(rights_of(entry));
        if level == 1 || entry & LEAF != 0 {
            if let Ok(translation) = leaf(memory, level, entry, rights, page) {
                visit(translation);
            }
        } else if let Some(next) = target(memory, entry & ADDRESS) {
            descend(memory, next, level - 1, page, rights, visit);
        }
    }
}
