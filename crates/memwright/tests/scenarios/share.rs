//! Tests of page tables that a fork shares with the child instead of copying their entries.

use std::sync::Arc;

use memwright::uffd::WatchModes;
use memwright::{Advice, AreaFlags, FaultKind, Row, Sight};
use memwright_table::{Bits, Entry, PageRange};
use memwright_testkit::HostSwap;

use crate::world::{PAGE, Process, R, RW, World, page, rows, watch};

/// The rows that count page tables: tables that forks shared, tables that were copied, and tables that were taken over.
const TABLES: [Row; 3] = [Row::TablesShared, Row::TablesCopied, Row::TablesTaken];

/// The number of pages that a last-level table maps.
const TABLE: u64 = 512;

/// The first page after the end of the table that contains the page with index 0.
const START: u64 = 4;

/// Creates a world in which forks share tables with at least `least` entries.
fn world(least: &str) -> World {
    let world = World::new();
    world.memory.policy().set("fork", least).unwrap();
    world
}

/// Returns a process with `pages` written pages from page `first` on.
fn written(world: &World, first: u64, pages: u64) -> Process<'_> {
    let mut process = world.process();
    process.map(first, pages, RW);
    for index in first..first + pages {
        process.store(index, 1).unwrap();
    }
    process
}

#[test]
fn a_table_is_copied_at_the_first_store_and_taken_over_at_the_last() {
    let world = world("1");
    let mut parent = written(&world, 0, 4);
    let mut child = None;
    let account = world.counted(|| child = Some(parent.fork()));
    assert_eq!(rows(&account, &TABLES), [1, 0, 0]);
    assert_eq!(
        rows(&account, &[Row::ForkCopied, Row::FramesCopied]),
        [0, 0]
    );
    let mut child = child.unwrap();
    assert_eq!(child.space.usage().resident_pages(), 4);
    assert_eq!((child.load(0), parent.load(0)), (1, 1));

    let account = world.counted(|| {
        assert_eq!(parent.store(0, 2), Ok(vec![FaultKind::Copy]));
        assert_eq!(parent.store(1, 2), Ok(vec![FaultKind::Copy]));
    });
    assert_eq!(rows(&account, &TABLES), [0, 1, 0]);
    let account = world.counted(|| {
        assert_eq!(child.store(0, 3), Ok(vec![FaultKind::WriteOnly]));
        assert_eq!(child.store(2, 3), Ok(vec![FaultKind::Copy]));
    });
    assert_eq!(rows(&account, &TABLES), [0, 0, 1]);
    let all = |process: &mut Process<'_>| [0, 1, 2, 3].map(|index| process.load(index));
    assert_eq!(all(&mut parent), [2, 2, 1, 1]);
    assert_eq!(all(&mut child), [3, 1, 3, 1]);
}

#[test]
fn after_the_child_is_gone_one_fault_takes_back_the_whole_table() {
    let world = world("1");
    let mut parent = written(&world, 0, 4);
    drop(parent.fork());
    assert_eq!(parent.store(0, 2), Ok(vec![FaultKind::Spurious]));
    for index in 1..4 {
        assert_eq!(parent.store(index, 2), Ok(vec![]));
    }
}

#[test]
fn a_protection_change_takes_back_the_table_before_the_store() {
    let world = world("1");
    let mut parent = written(&world, 0, 4);
    drop(parent.fork());
    parent.protect(0, 4, R);
    parent.protect(0, 4, RW);
    for index in 0..4 {
        assert_eq!(parent.store(index, 2), Ok(vec![]));
    }
}

#[test]
fn a_table_is_shared_only_if_all_its_areas_permit_it() {
    // Each row: the flags of the second area of the table, and the number of tables that the fork shares.
    let rows_of = [
        (AreaFlags::empty(), 1),
        (AreaFlags::DONTFORK, 0),
        (AreaFlags::WIPEONFORK, 0),
        (AreaFlags::LOCKED, 1),
    ];
    for (flags, shared) in rows_of {
        let world = world("1");
        let mut parent = written(&world, 0, 2);
        parent.map_with(3, 1, RW, flags);
        parent.store(3, 1).unwrap();
        let mut child = None;
        let account = world.counted(|| child = Some(parent.fork()));
        assert_eq!(rows(&account, &TABLES), [shared, 0, 0], "{flags:?}");
    }
    let world = world("1");
    let mut parent = written(&world, 0, 2);
    parent.map_object(3, 1, RW, &world.shmem(1), false);
    parent.store(3, 1).unwrap();
    let account = world.counted(|| drop(parent.fork()));
    assert_eq!(rows(&account, &TABLES), [0, 0, 0]);
    assert_eq!(account.count(Row::ForkCopied), 3);
}

/// A fork that copies entries gives the child none for memory that was only read. A table with such entries is
/// therefore copied.
#[test]
fn a_table_with_entries_that_a_fork_omits_is_copied() {
    // The areas that were never written: their first pages, whether their first page was read, and whether the table is
    // shared.
    type Unwritten = (u64, bool);
    let rows_of: [(&[Unwritten], bool); 7] = [
        (&[(0, false)], true),
        (&[(0, true)], false),
        (&[(20, false)], true),
        (&[(20, true)], false),
        (&[(0, false), (20, false)], true),
        (&[(0, true), (3, false)], false),
        (&[(20, false), (23, true)], false),
    ];
    for (unwritten, shared) in rows_of {
        let world = world("1");
        let mut parent = written(&world, START + 10, 4);
        for (first, read) in unwritten {
            parent.map(START + first, 2, RW);
            if *read {
                assert_eq!(parent.load(START + first), 0);
            }
        }
        let mut child = None;
        let account = world.counted(|| child = Some(parent.fork()));
        let tables = u64::from(shared);
        assert_eq!(rows(&account, &TABLES), [tables, 0, 0], "{unwritten:?}");
        for (first, _) in unwritten {
            let omitted = child.as_ref().map(|child| entry(child, START + first));
            assert_eq!(omitted, Some(Entry::Empty), "{unwritten:?}");
        }
    }
}

fn entry(process: &Process<'_>, index: u64) -> Entry {
    let (_, entry) = process.space.table().entry_of(page(index).page());
    entry
}

#[test]
fn a_pinned_page_prevents_sharing() {
    let world = world("1");
    let parent = written(&world, 0, 2);
    let pinned = parent.space.pin(page(0)).unwrap();
    let mut child = None;
    let account = world.counted(|| child = Some(parent.fork()));
    assert_eq!(rows(&account, &TABLES), [0, 0, 0]);
    assert_eq!(account.count(Row::FramesCopied), 1);
    drop(pinned);
    let account = world.counted(|| child = Some(parent.fork()));
    assert_eq!(account.count(Row::FramesCopied), 0, "the pin has ended");
}

/// The parent lends a page, as `vmsplice` does, and unmaps the page after a fork. A later store of the child does not
/// reach the lent frame.
#[test]
fn a_store_after_a_fork_does_not_reach_a_lent_page() {
    let world = world("1");
    let parent = written(&world, 0, 2);
    let mut before = [0];
    parent.space.read(page(0), &mut before).unwrap();
    let lent = parent.space.lend(page(0)).unwrap();
    let child = parent.fork();
    // The range has all pages of the table, so that the parent leaves the table unchanged.
    let start = memwright_table::VirtAddr::new(page(0).as_u64() >> 21 << 21);
    parent.space.unmap(start, 2 << 20).unwrap();
    child.space.write(page(0), &[before[0] + 1]).unwrap();
    let mut read = [0];
    world.frames.read(lent.frame(), 0, &mut read);
    assert_eq!(read, before);
}

/// After a fork, while both processes share its table, one of them lends a page and then unmaps it. A later store of
/// the other process does not change the lent frame.
#[test]
fn a_store_does_not_reach_a_page_that_was_lent_from_a_shared_table() {
    for parent_lends in [true, false] {
        let world = world("1");
        let parent = written(&world, 0, 2);
        let child = parent.fork();
        let (lender, other) = if parent_lends {
            (parent, child)
        } else {
            (child, parent)
        };
        let mut before = [0];
        other.space.read(page(0), &mut before).unwrap();
        let lent = lender.space.lend(page(0)).unwrap();
        let start = memwright_table::VirtAddr::new(page(0).as_u64() >> 21 << 21);
        lender.space.unmap(start, 2 << 20).unwrap();
        other.space.write(page(0), &[before[0] + 1]).unwrap();
        let mut read = [0];
        world.frames.read(lent.frame(), 0, &mut read);
        assert_eq!(read, before, "{parent_lends}");
    }
}

/// Returns, for each process, how many entries map page `index`, as the process counts them in a walk over its entries.
fn entries(world: &World, processes: &[&Process<'_>], index: u64) -> Vec<u32> {
    let range = PageRange::single(page(index).page());
    let count = |process: &&Process<'_>| {
        let mut count = 0;
        process.space.usage().survey(range, |sight| {
            if let Sight::Entry(_, extent, others) = sight {
                let page = extent.entry.present().expect("resident");
                count = world.frames.sharers(page.frame) + others;
            }
            true
        });
        count
    };
    processes.iter().map(count).collect()
}

/// Two of three processes share a table, and the third has a copy of the table. Each process counts three entries for
/// each page. A table stays shared if no other table maps its pages.
#[test]
fn each_entry_of_a_shared_table_is_counted() {
    let world = world("1");
    let mut parent = written(&world, 0, TABLE + START);
    let (one, other) = (parent.fork(), parent.fork());
    parent.store(0, 2).unwrap();
    let count = || world.memory.own_ambiguous_tables().unwrap();
    let account = world.counted(count);
    assert_eq!(rows(&account, &TABLES), [0, 1, 0]);
    let all = [&parent, &one, &other];
    assert_eq!(entries(&world, &all, 1), [3; 3]);
    assert_eq!(entries(&world, &all, 0), [1, 2, 2]);
    // The second table is still shared by all three.
    assert_eq!(entries(&world, &all, START), [3; 3]);
    let account = world.counted(count);
    assert_eq!(rows(&account, &TABLES), [0, 0, 0]);
    // The pages of this table had no other references. The copy adds some and so makes the table ambiguous.
    parent.store(START, 2).unwrap();
    let account = world.counted(count);
    assert_eq!(rows(&account, &TABLES), [0, 1, 0]);
    let all = [&parent, &one, &other];
    assert_eq!(entries(&world, &all, START + 1), [3; 3]);
}

#[test]
fn a_page_of_a_shared_table_is_nobodys_own() {
    let world = world("1");
    let parent = written(&world, 0, 1);
    let bits = |process: &Process<'_>| match process.space.entry(page(0)) {
        Entry::Present(present) => present.bits,
        other => panic!("{other:?}"),
    };
    assert!(bits(&parent).contains(Bits::EXCLUSIVE | Bits::WRITE));
    let child = parent.fork();
    for process in [&parent, &child] {
        assert!(!bits(process).intersects(Bits::EXCLUSIVE | Bits::WRITE));
    }
}

#[test]
fn a_child_that_touches_nothing_costs_no_frame_and_leaves_none() {
    let world = world("share");
    let parent = written(&world, START, 2 * TABLE);
    let used = world.frames.used();
    let child = parent.fork();
    let account = world.account();
    assert_eq!(rows(&account, &TABLES), [2, 0, 0]);
    assert_eq!(
        child.space.usage().totals().table_frames,
        parent.space.usage().totals().table_frames
    );
    // The child has upper tables of its own, and a frame is earmarked for each shared table.
    assert_eq!(
        (world.frames.used() - used, world.frames.earmarked()),
        (3, 2)
    );
    drop(child);
    assert_eq!((world.frames.used(), world.frames.earmarked()), (used, 0));
}

#[test]
fn a_table_with_few_entries_is_copied() {
    let world = world("share");
    let parent = written(&world, START, 63);
    let account = world.counted(|| drop(parent.fork()));
    assert_eq!(rows(&account, &TABLES), [0, 0, 0]);
    assert_eq!(account.count(Row::ForkCopied), 63);
}

#[test]
fn many_generations_share_one_table() {
    let world = world("1");
    let mut processes = vec![written(&world, 0, 2)];
    for _ in 0..20 {
        let child = processes.last().unwrap().fork();
        processes.push(child);
    }
    assert_eq!(world.frames.earmarked(), 20);
    for (value, process) in (2..).zip(&mut processes) {
        assert_eq!(process.load(0), 1);
        process.store(0, value).unwrap();
        assert_eq!((process.load(0), process.load(1)), (value, 1));
    }
    assert_eq!(world.frames.earmarked(), 0);
}

#[test]
fn unmapping_a_part_keeps_the_rest() {
    let world = world("1");
    let mut parent = written(&world, 0, 4);
    let mut child = parent.fork();
    child.space.unmap(page(1), PAGE).unwrap();
    assert_eq!((child.load(0), child.load(2)), (1, 1));
    assert_eq!(child.space.usage().resident_pages(), 3);
    assert_eq!(parent.load(1), 1);
    assert_eq!(parent.space.usage().resident_pages(), 4);
}

#[test]
fn unmapping_all_leaves_the_table_to_the_others() {
    let world = world("1");
    let first = START;
    let mut parent = written(&world, first, TABLE);
    // The upper table stays, so only leaving the table can need a flush.
    parent.map(first + 2 * TABLE, 1, RW);
    parent.store(first + 2 * TABLE, 1).unwrap();
    let mut child = parent.fork();
    assert_eq!(child.load(first), 1);
    let account = world.counted(|| child.space.unmap(page(first), TABLE * PAGE).unwrap());
    assert_eq!(rows(&account, &TABLES), [0, 0, 0]);
    child.check();
    assert_eq!(child.space.usage().resident_pages(), 1);
    assert_eq!(child.space.entry(page(first)), Entry::Empty);
    assert_eq!(parent.load(first), 1);
    assert_eq!(parent.space.usage().resident_pages(), TABLE + 1);
}

#[test]
fn a_fork_that_runs_out_of_frames_leaves_the_parent_as_it_was() {
    let mut failures = 0;
    for failing in 0..8 {
        let world = world("1");
        let mut parent = written(&world, 0, 4);
        world.frames.fail_after(Some(failing));
        let child = parent.space.fork();
        world.frames.fail_after(None);
        failures += u32::from(child.is_err());
        drop(child);
        for index in 0..4 {
            parent.store(index, 2).unwrap();
            assert_eq!(parent.load(index), 2);
        }
        assert_eq!(world.frames.earmarked(), 0);
    }
    // Three allocations can fail: those of the root and of two upper tables of the child. An earmark that fails is
    // tried again for fewer frames.
    assert_eq!(failures, 3);
}

#[test]
fn a_watched_area_is_copied() {
    let world = world("1");
    let parent = written(&world, 0, 2);
    let modes = WatchModes::WRITE_PROTECT;
    let watched = parent
        .space
        .uffd()
        .watch(page(0), 2 * PAGE, &watch(true, false), modes);
    watched.unwrap();
    parent
        .space
        .uffd()
        .write_protect(page(0), PAGE, true)
        .unwrap();
    let account = world.counted(|| drop(parent.fork()));
    assert_eq!(rows(&account, &TABLES), [0, 0, 0]);
}

#[test]
fn a_swapped_page_of_a_shared_table_has_two_users_after_a_copy() {
    let world = world("1");
    let device = Arc::new(HostSwap::new(16));
    assert_eq!(world.memory.add_swap(device, 0), Ok(Some(0)));
    let mut parent = written(&world, 0, 2);
    parent.space.advise(page(0), PAGE, Advice::PageOut).unwrap();
    let mut child = parent.fork();
    assert_eq!(
        (
            child.space.usage().swapped_pages(),
            parent.space.usage().swapped_pages()
        ),
        (1, 1)
    );
    child.store(1, 2).unwrap();
    assert_eq!(world.memory.swap().totals().1, 1);
    assert_eq!((child.load(0), parent.load(0)), (1, 1));
    child.store(0, 3).unwrap();
    assert_eq!((child.load(0), parent.load(0)), (3, 1));
}
