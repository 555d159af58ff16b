//! Tests of whole page tables that are unmapped with their entries.

use std::sync::Arc;

use memwright::{Advice, FaultKind, Rights, Row};
use memwright_testkit::HostSwap;

use crate::world::{PAGE, Process, R, RW, World, page, rows};

/// The number of pages that a last-level table maps.
const TABLE: u64 = 512;

/// The first page after the end of the table that contains the page with index 0.
const START: u64 = 4;

fn store_all(process: &mut Process<'_>, pages: impl Iterator<Item = u64>, byte: u8) {
    for index in pages {
        process.store(index, byte).unwrap();
    }
}

#[test]
fn unmapping_a_table_drops_what_each_entry_holds() {
    let world = World::new();
    assert_eq!(
        world.memory.add_swap(Arc::new(HostSwap::new(16)), 0),
        Ok(Some(0))
    );
    let slots = || world.memory.swap().totals().1;
    let free = slots();
    let file = world.shmem(4);
    let mut process = world.process();
    let advise = |process: &Process<'_>, index: u64, advice| {
        process.space.advise(page(index), PAGE, advice).unwrap();
    };
    // This mapping keeps another table below the same upper table.
    process.map(START + 2 * TABLE, 1, RW);
    process.store(START + 2 * TABLE, 1).unwrap();

    let first = START;
    process.map(first, 100, RW);
    process.map_object(first + 100, 4, RW, &file, true);
    process.map(first + 104, TABLE - 104, RW);
    store_all(&mut process, first..first + 4, 1);
    // The table gets entries of several kinds: of the page of zeroes, of pages in swap and in the swap cache, of a page
    // without rights, and a marker.
    assert_eq!(process.load(first + 5), 0);
    for index in 200..300 {
        assert_eq!(process.load(first + index), 0);
    }
    process.store(first + 250, 1).unwrap();
    store_all(&mut process, first + 6..first + 8, 1);
    advise(&process, first + 6, Advice::PageOut);
    assert_eq!(process.load(first + 6), 1);
    advise(&process, first + 7, Advice::PageOut);
    process.store(first + 8, 1).unwrap();
    process.protect(first + 8, 1, Rights::empty());
    advise(&process, first + 9, Advice::GuardInstall);
    process.store(first + 100, 1).unwrap();
    assert_eq!(process.load(first + 101), 0);
    process.store(first + TABLE - 1, 1).unwrap();
    let mut child = process.fork();
    child.store(first + 1, 2).unwrap();
    child.unmap(first + 6, 2);

    assert_eq!(process.space.usage().swapped_pages(), 1);
    let account = world.counted(|| process.unmap(first, TABLE));
    assert_eq!(rows(&account, &[Row::EntriesFreed]), [109]);
    process.check();
    assert_eq!(
        (process.resident(), process.space.usage().swapped_pages()),
        (1, 0)
    );
    assert_eq!(slots(), free);
    assert!(world.frames.are_mapped_objects_counted());
    assert_eq!((child.load(first), child.load(first + 1)), (1, 2));
    // The child has the only reference to the page, so no copy is needed.
    assert_eq!(child.store(first + 2, 3), Ok(vec![FaultKind::WriteOnly]));
    assert_eq!(child.load(first + 100), 1);
}

#[test]
fn many_tables_are_unmapped_with_several_flushes() {
    let world = World::with_frames(16_384);
    let mut process = world.process();
    let (first, pages) = (START, 10 * TABLE);
    process.map(first, pages, RW);
    store_all(&mut process, first..first + pages, 1);
    process.map(first + pages, 1, R);
    let account = world.counted(|| process.unmap(first, pages));
    assert_eq!(rows(&account, &[Row::EntriesFreed]), [pages]);
    assert_eq!(process.resident(), 0);
    process.check();
}

#[cfg(all(
    feature = "share",
    not(any(simulated = "aarch64", simulated = "riscv64"))
))]
#[test]
fn the_last_address_space_that_leaves_a_table_drops_its_pages() {
    let world = World::new();
    world.memory.policy().set("fork", "1").unwrap();
    let mut parent = world.process();
    parent.map(START, TABLE, RW);
    store_all(&mut parent, START..START + TABLE, 1);
    let mut child = parent.fork();
    assert_eq!(child.load(START), 1);
    parent.store(START, 2).unwrap();
    let account = world.counted(|| child.unmap(START, TABLE));
    assert_eq!(
        rows(&account, &[Row::EntriesFreed, Row::TablesTaken]),
        [TABLE, 0]
    );
    assert_eq!(child.resident(), 0);
    assert_eq!(parent.resident(), TABLE);
    assert_eq!(parent.store(START + 1, 2), Ok(vec![FaultKind::WriteOnly]));
    assert_eq!(world.frames.earmarked(), 0);
}
