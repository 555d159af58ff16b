//! Tests that compare each row of the account with numbers known in advance, in tiny scenarios.

use std::sync::Arc;

use memwright::object::{HUGE_BYTES, HugeFile, ObjectIdentity};
use memwright::{
    Access, Account, Advice, AreaFlags, FaultError, FaultKind, HugeMode, ROWS, Row, Source,
};
use memwright_sim::Arch;
use memwright_table::{Architecture, Bits, CpuId, Loaded, Page, PageRange};
use memwright_testkit::HostSwap;

use crate::world::{PAGE, Process, R, RW, World, page};

/// The index of the first page that is aligned to 2 MiB, counted from the address at which scenarios map.
const FIRST: u64 = 4;
/// The number of 4 KiB pages in 2 MiB.
const HUGE: u64 = 512;

/// The counts that a scenario has added to the account, and the expected counts of some rows.
type Checked = (Account, Vec<(Row, u64)>);
type Scenario = fn() -> Checked;

fn stored(world: &World, pages: u64) -> Process<'_> {
    let mut process = world.process();
    process.map(0, pages, RW);
    for index in 0..pages {
        process.store(index, 1).unwrap();
    }
    process
}

fn advise(process: &Process<'_>, first: u64, pages: u64, advice: Advice) {
    let (address, length) = (page(first), pages * PAGE);
    process.space.advise(address, length, advice).unwrap();
}

fn first_touch() -> Checked {
    let world = World::new();
    let account = world.counted(|| {
        let mut process = world.process();
        process.map(0, 4, RW);
        process.store(0, 1).unwrap();
        process.store(1, 1).unwrap();
        process.load(2);
        process.store(2, 1).unwrap();
        process.load(3);
    });
    let expected = vec![
        (Row::FaultDemandZero, 2),
        (Row::FaultZeroPage, 2),
        (Row::FaultCopy, 1),
        (Row::FramesZeroed, 3),
        (Row::FramesCopied, 0),
        (Row::EntriesMoved, 1),
        (Row::EntriesFilled, 4),
        // The exit of the process frees the four entries.
        (Row::EntriesFreed, 4),
        (Row::EntriesChanged, 9),
    ];
    (account, expected)
}

fn frames_in_use() -> Checked {
    let world = World::new();
    let mut process = stored(&world, 4);
    process.unmap(1, 3);
    // The expected frames are the zero frame, one page, and one page table of each level.
    let tables = u64::from(Arch::LEVELS) * u64::from(Arch::TABLE_FRAMES);
    let expected = vec![
        (Row::FramesInUse, 2 + tables),
        (Row::FramesPeak, 5 + tables),
        (Row::TableFrames, tables),
        (Row::TableFramesPeak, tables),
    ];
    process.load(0);
    (world.account(), expected)
}

fn page_tables_that_went() -> Checked {
    let world = World::new();
    drop(stored(&world, 4));
    // The peak includes one more root, because the CPU loaded the root of another address space before the page tables
    // were freed.
    let peak = u64::from(Arch::LEVELS + 1) * u64::from(Arch::TABLE_FRAMES);
    let expected = vec![(Row::TableFrames, 0), (Row::TableFramesPeak, peak)];
    (world.account(), expected)
}

fn many_pages_protected() -> Checked {
    let world = World::new();
    let process = stored(&world, 40);
    let account = world.counted(|| {
        process.protect(0, 40, R);
        process.protect(0, 40, RW);
    });
    let expected = vec![
        (Row::EntriesShrank, 40),
        (Row::EntriesGrew, 40),
        (Row::WriteFaultsAvoided, 40),
        (Row::FlushLocal, 1),
        (Row::FlushLocalFull, 1),
        (Row::FlushLocalPages, 0),
        (Row::FlushDropped, 40),
        (Row::FlushElidedGrew, 1),
        (Row::FlushElidedNotAccessed, 0),
        (Row::FlushRemote, 0),
        (Row::FlushCpusInterrupted, 0),
    ];
    (account, expected)
}

fn few_pages_protected() -> Checked {
    let world = World::new();
    let process = stored(&world, 40);
    let account = world.counted(|| {
        process.protect(0, 3, R);
        process.protect(0, 3, RW);
    });
    let expected = vec![
        (Row::AreasSplit, 1),
        (Row::AreasMerged, 1),
        (Row::FlushLocal, 2),
        (Row::FlushLocalFull, 0),
        (Row::FlushLocalPages, 6),
        (Row::FlushDropped, 0),
        (Row::FlushElidedGrew, 0),
    ];
    (account, expected)
}

/// A full local flush also drops translations that the operation did not change. Here these are the translations of ten
/// pages that map the zero page.
fn many_pages_unmapped() -> Checked {
    let world = World::new();
    let mut process = stored(&world, 40);
    process.map(100, 10, RW);
    for index in 100..110 {
        process.load(index);
    }
    let account = world.counted(|| process.unmap(0, 40));
    let expected = vec![
        (Row::EntriesFreed, 40),
        (Row::FlushLocalFull, 1),
        (Row::FlushDropped, 50),
    ];
    (account, expected)
}

fn not_loaded() -> Checked {
    let world = World::new();
    let process = world.process();
    process.map(0, 4, RW);
    for index in 0..4 {
        let fault = process.space.fault(page(index), Access::WRITE);
        assert_eq!(fault, Ok(FaultKind::DemandZero));
    }
    let account = world.counted(|| process.protect(0, 4, R));
    let expected = vec![
        (Row::FlushElidedNotLoaded, 1),
        (Row::FlushElidedNotAccessed, 0),
        (Row::FlushLocal, 0),
    ];
    (account, expected)
}

fn more_than_a_flush_holds_back() -> Checked {
    let world = World::new();
    let process = stored(&world, 5000);
    let account = world.counted(|| process.unmap(0, 5000));
    (account, vec![(Row::FlushEarly, 1), (Row::FlushLocal, 2)])
}

fn two_cpus() -> Checked {
    let world = World::new();
    let mut process = stored(&world, 2);
    let second = CpuId::new(1);
    let on_second = world.machine.run_on(second);
    let loaded = Loaded::new(process.space.clone());
    world.machine.on(second).write(page(0), &[2]).unwrap();
    drop(on_second);
    let account = world.counted(|| {
        // Protecting sends a shootdown, and restoring the rights elides one. The write fault sends another.
        process.protect(0, 1, R);
        process.load(0);
        process.protect(0, 1, RW);
        let child = process.fork();
        drop(child);
        process.store(0, 3).unwrap();
    });
    let on_second = world.machine.run_on(second);
    let idle = world.process();
    let (idle, _) = loaded.switch(&idle.space);
    idle.stop();
    drop(on_second);
    let expected = vec![
        (Row::FlushRemote, 2),
        (Row::FlushCpusInterrupted, 2),
        (Row::FlushElidedGrew, 2),
        (Row::FaultWriteOnly, 1),
        (Row::Forks, 1),
        (Row::ForkCopied, 2),
    ];
    (account, expected)
}

fn refused_and_failed() -> Checked {
    let world = World::new();
    let object = world.shmem(1);
    let mut process = world.process();
    process.map_object(0, 2, R, &object, true);
    let account = world.counted(|| {
        assert_eq!(process.load_with(1), Err(FaultError::BeyondObject));
        assert_eq!(process.load_with(50), Err(FaultError::NoArea));
        assert_eq!(process.store(0, 1), Err(FaultError::Denied));
        process.load(0);
        // `populate` faults twice on the page that fails, unless it is the first page of the call.
        assert!(
            process
                .space
                .residency()
                .populate(page(0), 2 * PAGE, false)
                .is_err()
        );
        assert!(
            process
                .space
                .residency()
                .populate(page(1), PAGE, false)
                .is_err()
        );
    });
    let expected = vec![
        (Row::FaultFailed, 1 + 2 + 1),
        (Row::FaultRefused, 2),
        (Row::FaultFile, 1),
    ];
    (account, expected)
}

fn without_a_trap() -> Checked {
    let world = World::new();
    let process = world.process();
    process.map(0, 8, RW);
    let account = world.counted(|| {
        advise(&process, 0, 4, Advice::PopulateRead);
        advise(&process, 0, 4, Advice::PopulateWrite);
        process.space.write(page(5), &[1]).unwrap();
        process.space.read(page(5), &mut [0]).unwrap();
    });
    let expected = vec![
        (Row::FaultGup, 9),
        (Row::FaultGupMajor, 0),
        (Row::FaultDemandZero, 0),
        (Row::FaultZeroPage, 0),
    ];
    (account, expected)
}

/// An execute fault is rare, because entries get all rights of their area at once. The scenario therefore removes the
/// right from one entry.
fn execute_permission() -> Checked {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 1, R | memwright::Rights::EXECUTE);
    process.load(0);
    let mut gather = process.space.table().gather();
    let mut cursor = process
        .space
        .table()
        .cursor(PageRange::single(page(0).page()));
    cursor.edit(Bits::empty(), Bits::EXECUTE, &mut gather);
    drop(cursor);
    let _ = gather.finish();
    let account = world.counted(|| {
        let fetch = Access {
            write: false,
            fetch: true,
            user: true,
        };
        let kind = process.space.fault(page(0), fetch);
        assert_eq!(kind, Ok(FaultKind::ReadExec));
    });
    (
        account,
        vec![(Row::FaultReadExec, 1), (Row::FaultWriteOnly, 0)],
    )
}

fn stack() -> Checked {
    let world = World::new();
    let mut process = world.process();
    process.map_with(600, 2, RW, AreaFlags::GROWSDOWN | AreaFlags::STACK);
    let account = world.counted(|| {
        process.store(598, 1).unwrap();
    });
    (
        account,
        vec![(Row::StackGrowth, 1), (Row::FaultDemandZero, 1)],
    )
}

fn file_mapped_around() -> Checked {
    let world = World::new();
    let object = world.shmem(16);
    object.write_at(0, &[1; 16 * 4096]).unwrap();
    let mut process = world.process();
    process.map_object(4, 16, RW, &object, true);
    let account = world.counted(|| {
        for index in 4..20 {
            process.load(index);
        }
    });
    (account, vec![(Row::FaultFile, 1), (Row::FaultAround, 15)])
}

fn huge_page() -> Checked {
    let world = World::with_frames(16384);
    world.memory.policy().set_huge(HugeMode::Always);
    let process = world.process();
    process.map(FIRST, 2 * HUGE, RW);
    let mut process = process;
    let account = world.counted(|| {
        process.store(FIRST, 1).unwrap();
        process.load(FIRST + HUGE);
        process.unmap(FIRST, 1);
    });
    let expected = vec![
        (Row::FaultHuge, 1),
        (Row::FaultHugeZeroPage, 1),
        (Row::HugeSplitsUnmap, 1),
        (Row::EntriesMoved, 1),
    ];
    (account, expected)
}

fn swapping(world: &World) -> Arc<HostSwap> {
    let device = Arc::new(HostSwap::new(1024));
    assert_eq!(world.memory.add_swap(device.clone(), 0), Ok(Some(0)));
    world.memory.policy().set("swapin-around", "off").unwrap();
    device
}

fn swap() -> Checked {
    let world = World::new();
    let _device = swapping(&world);
    let mut process = stored(&world, 8);
    let account = world.counted(|| {
        advise(&process, 0, 8, Advice::PageOut);
        process.load(0);
        let mut child = process.fork();
        process.load(1);
        child.load(1);
        drop(child);
        advise(&process, 2, 2, Advice::PopulateRead);
    });
    let expected = vec![
        (Row::SwapOut, 8),
        (Row::SwapWritten, 8),
        (Row::SwapIn, 4),
        (Row::FaultSwapIn, 2),
        (Row::FaultSwapCached, 1),
        (Row::FaultGup, 2),
        (Row::FaultGupMajor, 2),
    ];
    (account, expected)
}

fn swap_slots() -> Checked {
    let world = World::new();
    let _device = swapping(&world);
    let mut process = stored(&world, 8);
    advise(&process, 0, 8, Advice::PageOut);
    let account = world.counted(|| {
        process.load(0);
        // The load has swapped in the page and mapped it writable, so the first store does not fault.
        assert_eq!(process.store(0, 1), Ok(vec![]));
        process.unmap(1, 3);
    });
    // The store made the copy in the slot of page 0 out of date. The slot may or may not have been freed already.
    let slots = world.memory.swap().totals().1;
    assert!(slots == 4 || slots == 5, "{slots}");
    (account, vec![(Row::SwapSlots, slots), (Row::SwapReused, 1)])
}

fn swapped_huge_page() -> Checked {
    let world = World::with_frames(16384);
    world.memory.policy().set_huge(HugeMode::Always);
    let _device = swapping(&world);
    let mut process = world.process();
    process.map(FIRST, HUGE, RW);
    process.store(FIRST, 1).unwrap();
    let account = world.counted(|| advise(&process, FIRST, HUGE, Advice::PageOut));
    (
        account,
        vec![(Row::HugeSplitsSwap, 1), (Row::SwapOut, HUGE)],
    )
}

fn equal_pages() -> Checked {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 6, RW);
    for index in 0..6 {
        let byte = if index < 4 { 7 } else { 0 };
        process.store(index, byte).unwrap();
    }
    let zero_pages = &world.memory.merging().settings().zero_pages;
    zero_pages.store(true, core::sync::atomic::Ordering::Relaxed);
    advise(&process, 0, 6, Advice::Mergeable);
    let account = world.counted(|| {
        for _ in 0..3 {
            while !world.memory.merge_pages(5) {}
        }
        process.store(0, 8).unwrap();
        advise(&process, 0, 4, Advice::Unmergeable);
    });
    let expected = vec![
        (Row::Merges, 4),
        (Row::MergesZero, 2),
        (Row::UnmergesWritten, 1),
        (Row::UnmergesAsked, 3),
        // Unmerging takes one fault for each page, as on Linux.
        (Row::FaultGup, 3),
    ];
    (account, expected)
}

fn hugetlb() -> Checked {
    let world = World::with_frames(16384);
    world.frames.resize_pool(1);
    let memory = world.memory.clone();
    let file = HugeFile::new(memory, HUGE_BYTES, ObjectIdentity::default(), "");
    let file: Arc<HugeFile<_>> = Arc::new(file);
    let mut process = world.process();
    file.reserve(0..1).unwrap();
    process.map_object(FIRST, HUGE, RW, &file, true);
    let account = world.counted(|| {
        process.store(FIRST, 1).unwrap();
        process.store(FIRST + 9, 1).unwrap();
        let private = HugeFile::new(
            world.memory.clone(),
            HUGE_BYTES,
            ObjectIdentity::default(),
            "",
        );
        process.map_object(FIRST + HUGE, HUGE, RW, &Arc::new(private), true);
        assert_eq!(process.store(FIRST + HUGE, 1), Err(FaultError::NoHugePage));
    });
    drop((process, file));
    world.frames.resize_pool(0);
    let expected = vec![
        (Row::FaultHugetlb, 1),
        (Row::FramesZeroed, HUGE),
        (Row::HugetlbExhausted, 1),
        (Row::FaultFailed, 1),
    ];
    (account, expected)
}

fn different_pages() -> Checked {
    let world = World::new();
    let process = stored(&world, 2);
    process.space.write(page(1), &[2]).unwrap();
    advise(&process, 0, 2, Advice::Mergeable);
    let account = world.counted(|| while !world.memory.merge_pages(5) {});
    (account, vec![(Row::MergeLooked, 2), (Row::Merges, 0)])
}

fn cold() -> Checked {
    let world = World::new();
    let process = stored(&world, 3);
    let account = world.counted(|| advise(&process, 0, 3, Advice::Cold));
    let expected = vec![
        (Row::EntriesLostCachedBit, 3),
        (Row::FlushLocal, 1),
        (Row::FlushLocalPages, 3),
    ];
    (account, expected)
}

fn never_accessed() -> Checked {
    let world = World::new();
    let object = world.shmem(16);
    object.write_at(0, &[1; 16 * 4096]).unwrap();
    let mut process = world.process();
    process.map_object(4, 16, RW, &object, true);
    process.load(4);
    let account = world.counted(|| process.protect(5, 15, R));
    let expected = vec![
        (Row::FlushElidedNotAccessed, 1),
        (Row::EntriesShrank, 15),
        (Row::FlushLocal, 0),
    ];
    (account, expected)
}

fn numa_hints() -> Checked {
    let world = World::new();
    let mut process = stored(&world, 4);
    let account = world.counted(|| {
        let mut budget = u64::MAX / 2;
        process
            .space
            .numa()
            .scan_for_hints(Page::new(0), &mut budget);
        process.store(0, 1).unwrap();
        process.load(1);
    });
    let expected = vec![
        (Row::EntriesHinted, 4),
        (Row::FaultHint, 2),
        (Row::HintLocal, 2),
        (Row::HintRemote, 0),
        (Row::FaultWriteOnly, 0),
        (Row::FaultReadExec, 0),
    ];
    (account, expected)
}

#[test]
fn rows_count_what_they_say() {
    let scenarios: &[(&str, Scenario)] = &[
        ("first touch", first_touch),
        ("frames in use", frames_in_use),
        ("page tables that went", page_tables_that_went),
        ("many pages protected", many_pages_protected),
        ("few pages protected", few_pages_protected),
        ("many pages unmapped", many_pages_unmapped),
        ("not loaded", not_loaded),
        ("more than a flush holds back", more_than_a_flush_holds_back),
        ("two CPUs", two_cpus),
        ("refused and failed", refused_and_failed),
        ("without a trap", without_a_trap),
        ("execute permission", execute_permission),
        ("a stack", stack),
        ("a file mapped around", file_mapped_around),
        ("a huge page", huge_page),
        ("swap", swap),
        ("swap slots", swap_slots),
        ("a swapped huge page", swapped_huge_page),
        ("equal pages", equal_pages),
        ("hugetlb", hugetlb),
        ("different pages", different_pages),
        ("cold pages", cold),
        ("never accessed", never_accessed),
        ("NUMA hints", numa_hints),
    ];
    let mut wrong = Vec::new();
    let mut checked = Vec::new();
    for (name, scenario) in scenarios {
        let (account, expected) = scenario();
        for (row, count) in expected {
            checked.extend((count > 0).then_some(row));
            let found = account.count(row);
            if found != count {
                wrong.push(format!("{name}: {row:?}: {found} instead of {count}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Every counted row must be checked here or be named in a test of another file.
    let elsewhere = concat!(
        include_str!("faults.rs"),
        include_str!("folios.rs"),
        include_str!("huge.rs"),
        include_str!("hugetlb.rs"),
        include_str!("remap.rs"),
        include_str!("share.rs"),
        include_str!("split.rs"),
        include_str!("swap.rs"),
        include_str!("swap_folio.rs"),
        include_str!("swap_objects.rs"),
        include_str!("swap_shared.rs"),
        include_str!("merge.rs"),
        include_str!("advise.rs"),
        include_str!("written_back.rs"),
        include_str!("../../../memwright-sim/tests/lock_statistics.rs"),
        include_str!("../../../memwright-sim/tests/numa/main.rs"),
        include_str!("../../../memwright-sim/tests/numa/together.rs"),
        include_str!("../../../memwright-sim/tests/swap.rs"),
    );
    let untested: Vec<Row> = ROWS
        .iter()
        .filter(|definition| definition.source != Source::NotObservable)
        .map(|definition| definition.row)
        .filter(|row| !checked.contains(row))
        .filter(|row| !is_named(elsewhere, *row))
        .collect();
    assert_eq!(untested, []);
}

/// Returns the number of flushes that a fixed sequence of operations performs under `policy`, and the number that it
/// elides. No page faults during the sequence.
fn flushes_under(policy: &str) -> (u64, u64) {
    let world = World::new();
    world.memory.policy().set("tlb", policy).unwrap();
    let process = stored(&world, 40);
    process.map(100, 4, RW);
    let second = CpuId::new(1);
    let on_second = world.machine.run_on(second);
    let loaded = Loaded::new(process.space.clone());
    drop(on_second);
    let account = world.counted(|| {
        for pages in [2, 40] {
            process.protect(0, pages, R);
            process.protect(0, pages, RW);
            // No CPU has accessed the pages since the two changes above.
            process.protect(0, pages, R);
            process.protect(0, pages, RW);
        }
        // No page is populated in this range, so its change needs no flush under any policy.
        process.protect(100, 4, R);
    });
    let on_second = world.machine.run_on(second);
    let idle = world.process();
    let (idle, _) = loaded.switch(&idle.space);
    idle.stop();
    drop(on_second);
    let sum = |rows: &[Row]| rows.iter().map(|row| account.count(*row)).sum();
    let elided = [
        Row::FlushElidedGrew,
        Row::FlushElidedNotAccessed,
        Row::FlushElidedNotLoaded,
    ];
    (sum(&[Row::FlushLocal, Row::FlushRemote]), sum(&elided))
}

#[test]
fn an_elided_flush_is_one_that_a_kernel_without_elision_makes() {
    // Eight changes, each with a local flush and a shootdown.
    assert_eq!(flushes_under("gather"), (16, 0));
    // Each changed entry is flushed separately, locally and by a shootdown.
    assert_eq!(flushes_under("immediate"), (2 * 4 * (2 + 40), 0));
    // The entries keep their accessed bits, so their translations could be in a TLB. No flush is therefore elided.
    assert_eq!(flushes_under("elide"), (16, 0));
    // The first change of each range clears the accessed bits, so the flushes of the other three changes are elided.
    assert_eq!(flushes_under("elide+grow"), (4, 12));
}

/// Returns whether the source text contains the name of the row. A longer name that begins with it does not count.
fn is_named(text: &str, row: Row) -> bool {
    let name = format!("Row::{row:?}");
    text.match_indices(&name).any(|(at, _)| {
        let next = text[at + name.len()..].chars().next();
        !next.is_some_and(char::is_alphanumeric)
    })
}
