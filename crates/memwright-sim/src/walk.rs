//! The page walk of hardware.

use std::sync::atomic::{AtomicU64, Ordering};

use memwright_table::{Frame, PageSize};

use crate::format::{self, LEVELS, PRESENT};
use crate::machine::Memory;
use crate::tlb::{CachedDirectory, Directory, Rights, Tlb, Translation};

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

/// Returns the table to which a present entry of `level` points. Returns `None` if a reserved bit is set, if the entry
/// is in a last-level table, or if the machine has no such frame.
fn table_below(memory: &Memory, level: u8, entry: u64) -> Option<Frame> {
    if level == 1 {
        return None;
    }
    target(memory, format::table(entry)?)
}

/// Translates `page` by a walk from `root`, as the hardware of one CPU does. Starts from the paging-structure caches in
/// `tlb`, and caches the entries that it reads and that point to tables. Records the access in each entry in which the
/// processors record accesses, and a store in the leaf. Each of these changes is one atomic exchange. If an entry
/// changed since it was read, the walk starts again.
///
/// The leaf itself is not cached: the caller caches the returned translation. For a program, no address of the upper
/// half and no non-canonical address is present.
pub fn walk(memory: &Memory, root: Frame, page: u64, intent: Intent, tlb: &mut Tlb) -> Walk {
    let mut reads = 0;
    loop {
        if let Some(outcome) = walk_once(memory, root, (page, intent), tlb, &mut reads) {
            return Walk { outcome, reads };
        }
    }
}

/// Performs one walk. Returns `None` if an entry changed after it was read.
fn walk_once(
    memory: &Memory,
    root: Frame,
    (page, intent): (u64, Intent),
    tlb: &mut Tlb,
    reads: &mut u64,
) -> Option<Result<Translation, WalkFault>> {
    if page >> (9 * u32::from(LEVELS) - 1) != 0 {
        return Some(Err(WalkFault::NotPresent));
    }
    let (mut level, mut table, mut rights) = match tlb.find_directory(page) {
        Some((level, cached)) => (level - 1, cached.table, cached.rights),
        None => (LEVELS, root, Rights::ALL),
    };
    loop {
        let word = memory.word(table, index(level, page));
        let entry = word.load(Ordering::SeqCst);
        *reads += 1;
        if entry & PRESENT == 0 {
            return Some(Err(WalkFault::NotPresent));
        }
        rights = rights.and(format::rights(level, entry));
        if format::is_leaf(level, entry) {
            let translation = match leaf(memory, level, entry, rights, page) {
                Ok(translation) if intent.permitted(translation.rights) => translation,
                Ok(_) => return Some(Err(WalkFault::Forbidden)),
                Err(fault) => return Some(Err(fault)),
            };
            let used = format::used(entry, intent == Intent::Write);
            if !format::RECORDS && used != entry {
                return Some(Err(WalkFault::Forbidden));
            }
            exchange(word, entry, used)?;
            return Some(Ok(Translation {
                dirty: format::is_dirty(used),
                ..translation
            }));
        }
        let Some(next) = table_below(memory, level, entry) else {
            return Some(Err(WalkFault::Reserved));
        };
        exchange(word, entry, format::used_table(entry))?;
        tlb.insert_directory(
            Directory::of(level, page),
            CachedDirectory {
                table: next,
                rights,
            },
        );
        (level, table) = (level - 1, next);
    }
}

/// Replaces `old` by `new`, if they differ. Returns `None` if the entry is no longer `old`.
fn exchange(word: &AtomicU64, old: u64, new: u64) -> Option<()> {
    let order = Ordering::SeqCst;
    (old == new || word.compare_exchange(old, new, order, order).is_ok()).then_some(())
}

/// Returns the translation of a leaf entry of `level`, without checking the rights against an access.
fn leaf(
    memory: &Memory,
    level: u8,
    entry: u64,
    rights: Rights,
    page: u64,
) -> Result<Translation, WalkFault> {
    let format::Leaf { address, pat } = format::leaf(level, entry).ok_or(WalkFault::Reserved)?;
    let size = leaf_size(level);
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
        dirty: format::is_dirty(entry),
        pat,
    })
}

/// Returns the current translation of `page` in the tables without side effects: sets no accessed bit, and neither
/// reads nor fills a cache. Returns `None` if an entry of the walk is not present.
///
/// This is the reference for what a TLB may hold.
#[must_use]
pub fn look(memory: &Memory, root: Frame, page: u64) -> Option<Result<Translation, WalkFault>> {
    let (mut level, mut table, mut rights) = (LEVELS, root, Rights::ALL);
    loop {
        let entry = memory
            .word(table, index(level, page))
            .load(Ordering::SeqCst);
        if entry & PRESENT == 0 {
            return None;
        }
        rights = rights.and(format::rights(level, entry));
        if format::is_leaf(level, entry) {
            return Some(leaf(memory, level, entry, rights, page));
        }
        match table_below(memory, level, entry) {
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
    let (mut level, mut table, mut rights) = (LEVELS, root, Rights::ALL);
    loop {
        let entry = memory
            .word(table, index(level, page))
            .load(Ordering::SeqCst);
        if entry & PRESENT == 0 || format::is_leaf(level, entry) {
            return None;
        }
        rights = rights.and(format::rights(level, entry));
        table = table_below(memory, level, entry)?;
        if level == directory.level {
            return Some(CachedDirectory { table, rights });
        }
        level -= 1;
    }
}

/// Returns a page of the user half that a speculative walk from `root` could translate. `choose(n)` returns a number
/// below `n`, which selects one of `n` present entries. Returns `None` if the choices lead to a table without present
/// entries. The page may no longer be present when the caller walks to it.
#[must_use]
pub fn any_reachable(
    memory: &Memory,
    root: Frame,
    mut choose: impl FnMut(usize) -> usize,
) -> Option<u64> {
    let (mut level, mut table, mut page) = (LEVELS, root, 0u64);
    loop {
        // The upper half of the root belongs to the kernel.
        let slots = if level == LEVELS { 256 } else { 512 };
        let present: Vec<usize> = (0..slots)
            .filter(|&slot| memory.word(table, slot).load(Ordering::SeqCst) & PRESENT != 0)
            .collect();
        if present.is_empty() {
            return None;
        }
        let slot = present[choose(present.len())];
        let entry = memory.word(table, slot).load(Ordering::SeqCst);
        page |= (slot as u64) << (9 * (u32::from(level) - 1));
        if format::is_leaf(level, entry) {
            return Some(page);
        }
        table = table_below(memory, level, entry)?;
        level -= 1;
    }
}

/// Calls `visit` with every present leaf of the user half.
pub fn for_each_leaf(memory: &Memory, root: Frame, visit: &mut impl FnMut(Translation)) {
    descend(memory, root, LEVELS, 0, Rights::ALL, visit);
}

fn descend(
    memory: &Memory,
    table: Frame,
    level: u8,
    base: u64,
    rights: Rights,
    visit: &mut impl FnMut(Translation),
) {
    let slots = if level == LEVELS { 256 } else { 512 };
    for slot in 0..slots {
        let entry = memory.word(table, slot).load(Ordering::SeqCst);
        if entry & PRESENT == 0 {
            continue;
        }
        let page = base | (slot as u64) << (9 * (u32::from(level) - 1));
        let rights = rights.and(format::rights(level, entry));
        if format::is_leaf(level, entry) {
            if let Ok(translation) = leaf(memory, level, entry, rights, page) {
                visit(translation);
            }
        } else if let Some(next) = table_below(memory, level, entry) {
            descend(memory, next, level - 1, page, rights, visit);
        }
    }
}
