//! Tests of device memory: which calls map it, what each operation does with it, and that the memory manager counts,
//! frees and accesses no frame of it.

use memwright::track::{Categories, Scan};
use memwright::uffd::WatchModes;
use memwright::{
    Advice, AdviseError, Advised, AreaFlags, Effort, FaultError, FolioSplit, Forget, LockFuture,
    MapError, MapRequest, Placement, ProtectError, RemapError, RemapRequest, Rights, Row,
    SyncFlags, Unmoved,
};
use memwright_sim::{Arch, MachineOptions, MemoryType};
use memwright_table::{
    Architecture, CacheMode, Entry, Frame, FrameKind, NodeChoice, NodeSet, Page, PageRange,
    PageSize, PhysAddr, Present,
};

use crate::world::{NONE, PAGE, Process, R, RW, World, page, watch};

/// The index of the first page that is aligned to 2 MiB, counted from the address at which scenarios map.
const FIRST: u64 = 4;
/// The number of 4 KiB pages in 2 MiB.
const HUGE: u64 = 512;
/// The number of frames of ordinary memory. Device memory begins after them, aligned to 2 MiB.
const FRAMES: u32 = 8192;
/// The number of frames of device memory.
const DEVICE: u32 = 4096;

fn world() -> World {
    world_with(true)
}

fn world_with(write_combining: bool) -> World {
    World::with_options(MachineOptions {
        frames: FRAMES,
        device: DEVICE,
        write_combining,
        ..MachineOptions::default()
    })
}

/// Returns the physical address of page `index` of device memory.
fn device(index: u64) -> PhysAddr {
    PhysAddr::new((u64::from(FRAMES) + index) * PAGE)
}

/// Returns a request that maps `pages` pages of device memory, from its page `first` on, at page `index` of the
/// process.
fn request(
    index: u64,
    first: u64,
    pages: u64,
    rights: Rights,
    cache: CacheMode,
) -> MapRequest<crate::world::Machine> {
    MapRequest::physical(device(first), pages * PAGE, rights, cache)
        .at(Placement::Fixed(page(index)))
}

fn map(process: &Process<'_>, index: u64, first: u64, pages: u64) {
    let request = request(index, first, pages, RW, CacheMode::Uncached);
    assert_eq!(process.space.map(&request), Ok(page(index)));
}

fn present(process: &Process<'_>, index: u64) -> Present {
    process.space.entry(page(index)).present().unwrap()
}

/// Returns the number of the page of device memory that is mapped at page `index`.
fn shown(process: &Process<'_>, index: u64) -> u64 {
    let page = page(index).page();
    let frame = present(process, index).frame_of(page);
    u64::from(frame.number() - FRAMES)
}

/// Returns the sizes of the entries of `pages` pages from `index` on, one letter for each entry.
fn sizes(process: &Process<'_>, index: u64, pages: u64) -> String {
    let (mut at, mut row) = (index, String::new());
    while at < index + pages {
        let (letter, size) = match process.space.entry(page(at)) {
            Entry::Present(page) if page.size == PageSize::Size2M => ('H', HUGE),
            Entry::Present(_) => ('s', 1),
            _ => ('.', 1),
        };
        if !(letter == 's' && row.ends_with('s')) {
            row.push(letter);
        }
        at += size;
    }
    row
}

fn type_at(process: &mut Process<'_>, index: u64) -> Option<MemoryType> {
    process.run();
    let machine = &process.world.machine;
    machine
        .on(memwright_table::CpuId::new(0))
        .memory_type(page(index))
}

#[test]
fn device_memory_is_mapped_at_once_and_never_counted() {
    let world = world();
    let mut process = world.process();
    let used = world.frames.used_by(FrameKind::Table);
    let account = world.counted(|| {
        // Two huge pages, with small pages before and after them.
        map(&process, FIRST - 2, HUGE - 2, 2 * HUGE + 5);
        assert_eq!(sizes(&process, FIRST - 2, 2 * HUGE + 5), "sHHs");
        assert_eq!(process.store(FIRST + 7, 9), Ok(vec![]));
        assert_eq!(process.store(FIRST - 1, 8), Ok(vec![]));
        assert_eq!(process.load(FIRST + 7), 9);
    });
    assert_eq!(account.count(Row::FramesZeroed), 0);
    // Each byte is in the page of device memory that is mapped at the byte's address.
    let byte = |index: u64| {
        let frame = device(index).frame();
        let byte = world.machine.memory().byte(frame, 0);
        byte.load(std::sync::atomic::Ordering::Relaxed)
    };
    assert_eq!((byte(HUGE + 7), byte(HUGE - 1)), (9, 8));
    assert_eq!(shown(&process, FIRST + 7), HUGE + 7);
    let totals = process.space.usage().totals();
    assert_eq!(totals.mapped, 2 * HUGE + 5);
    let resident = [
        totals.resident,
        totals.resident_file,
        totals.resident_shared,
    ];
    assert_eq!(resident, [0; 3]);
    let (mut flags, mut name) = (None, String::new());
    process.space.areas(&mut |area| {
        flags = Some(area.flags());
        let object = area.object().unwrap();
        object.describe(&mut name).unwrap();
    });
    assert_eq!(name, "/dev/mem");
    let expected = AreaFlags::PHYSICAL | AreaFlags::SHARED | AreaFlags::DONTDUMP;
    assert!(flags.unwrap().contains(expected));
    process.check();
    process.unmap(FIRST - 2, 2 * HUGE + 5);
    assert_eq!(process.areas(), "");
    process.check();
    drop(process);
    assert_eq!(
        world.frames.used_by(FrameKind::Table),
        used - u64::from(Arch::TABLE_FRAMES)
    );
    assert_eq!((byte(HUGE + 7), byte(HUGE - 1)), (9, 8));
}

#[test]
fn the_entry_selects_the_memory_type() {
    use CacheMode::*;
    for (combining, cache, expected) in [
        (true, WriteBack, MemoryType::WriteBack),
        (true, WriteCombining, MemoryType::WriteCombining),
        (true, Uncached, MemoryType::Uncached),
        (false, WriteBack, MemoryType::WriteBack),
        // Without write combining, the mode becomes uncached, as on Linux without a page attribute table.
        (false, WriteCombining, MemoryType::Uncached),
        (false, Uncached, MemoryType::Uncached),
    ] {
        let world = world_with(combining);
        let mut process = world.process();
        let request = request(FIRST, 0, HUGE + 1, RW, cache);
        process.space.map(&request).unwrap();
        assert_eq!(sizes(&process, FIRST, HUGE + 1), "Hs");
        for index in [FIRST, FIRST + HUGE] {
            assert_eq!(type_at(&mut process, index), Some(expected), "{cache:?}");
            process.store(index, 1).unwrap();
        }
        // Neither a change of rights nor a split changes the memory type.
        process.protect(FIRST + 5, HUGE - 5, NONE);
        assert_eq!(process.load_with(FIRST + 9), Err(FaultError::Denied));
        process.protect(FIRST, HUGE + 1, R);
        process.protect(FIRST + 2, HUGE - 2, RW);
        for index in [FIRST, FIRST + 5, FIRST + 9, FIRST + HUGE] {
            assert_eq!(type_at(&mut process, index), Some(expected), "{cache:?}");
            process.load(index);
        }
        assert_eq!(process.store(FIRST + 9, 1), Ok(vec![]));
        assert_eq!(process.store(FIRST, 1), Err(FaultError::Denied));
        assert_eq!(shown(&process, FIRST + 9), 9);
        process.check();
    }
}

#[test]
fn only_device_memory_can_be_mapped_as_such() {
    let world = world();
    let process = world.process();
    let map = |start: u64, pages: u64| {
        let start = PhysAddr::new(start);
        let cache = CacheMode::WriteBack;
        process
            .space
            .map(&MapRequest::physical(start, pages * PAGE, RW, cache))
    };
    let end = device(u64::from(DEVICE)).as_u64();
    let refused = |start: u64| Err(MapError::NotDevice(PhysAddr::new(start)));
    // The rows are frames that the allocator manages, completely or in part; frames beyond the machine; and numbers
    // that a frame cannot have.
    for (start, pages) in [
        (PAGE, 1),
        (0, 1),
        (device(0).as_u64() - PAGE, 2),
        (end - PAGE, 2),
        (end, 1),
        (1 << 43, 1),
        ((u64::from(u32::MAX) - 1) * PAGE, 4),
        (1 << 44, 1),
        (1 << 52, 1),
        (u64::MAX - PAGE + 1, 1),
    ] {
        assert_eq!(map(start, pages), refused(start), "{start:#x}");
    }
    assert_eq!(map(device(0).as_u64() + 1, 1), Err(MapError::Misaligned));
    assert_eq!(map(device(0).as_u64(), 0), Err(MapError::NoLength));
    assert_eq!(map(device(0).as_u64(), 1 << 40), Err(MapError::OutOfRange));
    assert_eq!(process.areas(), "");
    assert!(map(end - PAGE, 1).is_ok());
}

#[test]
fn a_free_range_is_chosen_so_that_huge_entries_fit() {
    let world = world();
    let process = world.process();
    let cache = CacheMode::WriteCombining;
    let request = MapRequest::physical(device(3), 2 * HUGE * PAGE, RW, cache);
    let start = process.space.map(&request).unwrap().page();
    assert_eq!(start.number() % HUGE, 3);
    let index = (start.address().as_u64().wrapping_sub(page(0).as_u64())) / PAGE;
    assert_eq!(sizes(&process, index, 2 * HUGE), "sHs");
    // The virtual and the physical address are not congruent modulo 2 MiB, so small entries map the memory.
    map(&process, FIRST, 3, HUGE);
    assert_eq!(sizes(&process, FIRST, HUGE), "s");
    assert_eq!(shown(&process, FIRST + 5), 8);
}

#[test]
fn a_part_can_be_unmapped_replaced_and_protected() {
    let world = world();
    let mut process = world.process();
    map(&process, FIRST, 0, 2 * HUGE);
    process.store(FIRST + 20, 1).unwrap();
    process.unmap(FIRST + 10, 5);
    assert_eq!(process.areas(), "10rw . 1009rw");
    assert_eq!(sizes(&process, FIRST, 2 * HUGE), "s.....sH");
    assert_eq!(
        (shown(&process, FIRST + 9), shown(&process, FIRST + 15)),
        (9, 15)
    );
    assert_eq!(process.load(FIRST + 20), 1);
    // Neighbours never merge, even after they have equal rights again.
    process.protect(FIRST + HUGE + 4, 4, R);
    assert_eq!(process.areas(), "10rw . 501rw 4r 504rw");
    process.protect(FIRST + HUGE + 4, 4, RW);
    assert_eq!(process.areas(), "10rw . 501rw 4rw 504rw");
    // Other memory replaces a part, and device memory replaces other memory.
    process.map(FIRST + 30, 2, RW);
    process.store(FIRST + 30, 3).unwrap();
    assert_eq!(process.resident(), 1);
    map(&process, FIRST + 30, 100, 1);
    assert_eq!((process.resident(), shown(&process, FIRST + 30)), (0, 100));
    map(&process, FIRST, 2 * HUGE, HUGE);
    assert_eq!(sizes(&process, FIRST, HUGE), "H");
    assert_eq!(shown(&process, FIRST + 3), 2 * HUGE + 3);
    process.check();
}

#[test]
fn rights_apply_as_to_other_memory() {
    let world = world();
    let mut process = world.process();
    let fixed = MapRequest {
        max_rights: R,
        ..request(FIRST, 0, 4, R, CacheMode::Uncached)
    };
    process.space.map(&fixed).unwrap();
    assert_eq!(process.store(FIRST, 1), Err(FaultError::Denied));
    let refused = process.space.protect(page(FIRST), PAGE, RW);
    assert_eq!(refused, Err(ProtectError::Denied(page(FIRST))));
    process.space.seal(page(FIRST), 4 * PAGE).unwrap();
    assert!(process.space.unmap(page(FIRST), PAGE).is_err());
    assert_eq!(process.load(FIRST), 0);
}

#[test]
fn a_mapping_moves_and_shrinks_but_does_not_grow() {
    let world = world();
    let mut process = world.process();
    map(&process, FIRST, 0, HUGE + 4);
    process.store(FIRST + 1, 5).unwrap();
    let remap = |process: &Process<'_>, at, old, new, to: Option<u64>| {
        process.space.remap(RemapRequest {
            old: page(at),
            old_length: old * PAGE,
            new_length: new * PAGE,
            may_move: true,
            fixed: to.map(page),
            dont_unmap: false,
        })
    };
    let grows = Err(RemapError::NoArea(page(FIRST)));
    assert_eq!(remap(&process, FIRST, HUGE + 4, HUGE + 5, None), grows);
    assert_eq!(remap(&process, FIRST, 0, 1, None), grows);
    let kept = process.space.remap(RemapRequest {
        old: page(FIRST),
        old_length: PAGE,
        new_length: PAGE,
        may_move: true,
        fixed: None,
        dont_unmap: true,
    });
    assert_eq!(kept, Err(RemapError::NotApplicable(page(FIRST))));
    let to = FIRST + 4 * HUGE;
    assert_eq!(
        remap(&process, FIRST, HUGE + 4, HUGE + 2, Some(to)),
        Ok(page(to))
    );
    assert_eq!(sizes(&process, to, HUGE + 2), "Hs");
    assert_eq!(
        (process.load(to + 1), shown(&process, to + HUGE + 1)),
        (5, HUGE + 1)
    );
    // The virtual and the physical address are not congruent modulo 2 MiB, so small entries map the memory.
    let to = FIRST + 8 * HUGE + 1;
    let from = FIRST + 4 * HUGE;
    assert_eq!(
        remap(&process, from, HUGE + 2, HUGE + 2, Some(to)),
        Ok(page(to))
    );
    assert_eq!(sizes(&process, to, HUGE + 2), "s");
    assert_eq!(
        (process.load(to + 1), shown(&process, to + HUGE + 1)),
        (5, HUGE + 1)
    );
    assert_eq!(type_at(&mut process, to + 3), Some(MemoryType::Uncached));
    assert_eq!(remap(&process, to, HUGE + 2, 3, None), Ok(page(to)));
    assert_eq!(process.areas(), "3rw");
    process.check();
}

#[test]
fn what_each_advice_does() {
    let world = world();
    let mut process = world.process();
    map(&process, FIRST, 0, HUGE);
    process.store(FIRST, 7).unwrap();
    let refused = Err(AdviseError::NotApplicable(page(FIRST)));
    let (done, only) = (Ok(Advised::Done), Ok(Advised::AdvisedOnly));
    #[rustfmt::skip]
    let rows = [
        (Advice::DontNeed,       refused),
        (Advice::DontNeedLocked, refused),
        (Advice::Free,           refused),
        (Advice::Remove,         refused),
        (Advice::Cold,           refused),
        (Advice::PageOut,        refused),
        (Advice::PopulateRead,   refused),
        (Advice::PopulateWrite,  refused),
        (Advice::GuardInstall,   refused),
        (Advice::GuardRemove,    refused),
        (Advice::Collapse,       refused),
        (Advice::DoFork,         refused),
        (Advice::DoDump,         refused),
        (Advice::WipeOnFork,     refused),
        (Advice::KeepOnFork,     done),
        (Advice::DontDump,       done),
        (Advice::Huge,           done),
        (Advice::NotHuge,        done),
        (Advice::Mergeable,      done),
        (Advice::Unmergeable,    done),
        (Advice::Normal,         only),
        (Advice::Random,         only),
        (Advice::Sequential,     only),
        (Advice::Hint,           only),
        (Advice::DontFork,       done),
    ];
    for (advice, expected) in rows {
        let advised = process.space.advise(page(FIRST), HUGE * PAGE, advice);
        assert_eq!(advised, expected, "{advice:?}");
        assert_eq!(process.load(FIRST), 7, "{advice:?}");
    }
    let child = process.fork();
    assert_eq!(child.areas(), "");
    process.check();
}

#[test]
fn a_child_has_the_same_memory() {
    let world = world();
    let mut process = world.process();
    map(&process, FIRST - 1, HUGE - 1, HUGE + 3);
    process.map(0, 1, RW);
    process.store(0, 1).unwrap();
    let account = world.counted(|| {
        let mut child = process.fork();
        assert_eq!(sizes(&child, FIRST - 1, HUGE + 3), "sHs");
        assert_eq!(child.resident(), 1);
        // Parent and child write to the same memory, without a fault.
        assert_eq!(child.store(FIRST + 3, 4), Ok(vec![]));
        assert_eq!(process.store(FIRST - 1, 5), Ok(vec![]));
        assert_eq!((process.load(FIRST + 3), child.load(FIRST - 1)), (4, 5));
        assert_eq!(type_at(&mut child, FIRST + 3), Some(MemoryType::Uncached));
        child.check();
        let mut grandchild = child.fork();
        drop(child);
        assert_eq!(grandchild.load(FIRST + 3), 4);
    });
    assert_eq!(account.count(Row::FramesCopied), 0);
    process.check();
}

#[test]
fn locking_changes_nothing_and_every_page_is_in_memory() {
    let world = world();
    let process = world.process();
    map(&process, FIRST, 0, HUGE + 4);
    process
        .space
        .residency()
        .lock(page(FIRST), (HUGE + 4) * PAGE, false)
        .unwrap();
    let all = process
        .space
        .residency()
        .lock_all(true, LockFuture::Populated, false);
    assert_eq!(
        process.space.residency().populate_locked(&mut all.unwrap()),
        Ok(())
    );
    map(&process, 0, 0, 2);
    assert_eq!(process.space.usage().totals().locked, 0);
    process.space.residency().unlock_all().unwrap();
    let mut here = 0;
    let visitor = &mut |_, resident| here += u64::from(resident);
    process
        .space
        .residency()
        .resident(page(FIRST), (HUGE + 4) * PAGE, visitor)
        .unwrap();
    assert_eq!(here, HUGE + 4);
    let flags = SyncFlags::WAIT | SyncFlags::INVALIDATE;
    assert_eq!(process.space.sync(page(FIRST), PAGE, flags), Ok(()));
    // Population skips device memory, because it is mapped already.
    let populating = MapRequest {
        populate: true,
        ..request(0, 8, 2, RW, CacheMode::WriteBack)
    };
    assert_eq!(process.space.map(&populating), Ok(page(0)));
}

#[test]
fn the_kernel_does_not_access_device_memory() {
    let world = world();
    let process = world.process();
    map(&process, FIRST, 0, HUGE);
    let (space, at) = (&process.space, page(FIRST + 3));
    let denied = Err((FaultError::Denied, 0));
    assert_eq!(space.read(at, &mut [0; 8]), denied);
    assert_eq!(space.write(at, &[1; 8]), denied);
    assert_eq!(space.read_forced(at, &mut [0; 8]), denied);
    assert_eq!(space.write_forced(at, &[1; 8]), denied);
    assert_eq!(space.lend(at).err(), Some(FaultError::Denied));
    assert_eq!(space.pin(at).err(), Some(FaultError::Denied));
}

#[test]
fn a_missing_entry_is_beyond_the_object() {
    // The memory manager removes no entry of device memory. If an entry is missing nevertheless, a fault maps no other
    // page in its place.
    let world = world();
    let mut process = world.process();
    map(&process, FIRST, 0, 2);
    let range = PageRange::single(page(FIRST).page());
    let mut gather = process.space.table().gather();
    process.space.table().cursor(range).remove(&mut gather);
    let _ = gather.finish();
    assert_eq!(process.load_with(FIRST), Err(FaultError::BeyondObject));
    assert_eq!(process.store(FIRST, 1), Err(FaultError::BeyondObject));
    assert_eq!(process.load(FIRST + 1), 0);
    assert!(process.space.audit().is_err());
    process.unmap(FIRST, 2);
}

#[test]
fn writes_are_not_tracked() {
    let world = world();
    let mut process = world.process();
    map(&process, FIRST, 0, HUGE);
    for asynchronous in [false, true] {
        let watch = watch(asynchronous, true);
        for modes in [
            WatchModes::MISSING,
            WatchModes::MINOR,
            WatchModes::WRITE_PROTECT,
        ] {
            let watched = process
                .space
                .uffd()
                .watch(page(FIRST), HUGE * PAGE, &watch, modes);
            assert!(watched.is_err(), "{modes:?}");
        }
    }
    let all = Scan {
        inverted: Categories::empty(),
        all: Categories::empty(),
        any: Categories::PRESENT,
        protect: false,
        only_tracked: false,
    };
    let first = page(FIRST).page();
    let range = PageRange::new(first, first.add(HUGE));
    assert_eq!(process.matching(range, &all), Vec::<u64>::new());
    process.store(FIRST, 1).unwrap();
    let before = present(&process, FIRST).bits;
    process.space.tracking().clear_soft_dirty();
    process.space.tracking().forget_accesses(Forget::All);
    assert_eq!(present(&process, FIRST).bits, before);
    let mut flags = AreaFlags::empty();
    process.space.areas(&mut |area| flags = area.flags());
    assert!(!flags.intersects(AreaFlags::SOFT_DIRTY | AreaFlags::WATCH_STORES));
    // Stores still take no fault, even after a change of rights.
    process.protect(FIRST, HUGE, R);
    process.protect(FIRST, HUGE, RW);
    assert_eq!(process.store(FIRST + 1, 1), Ok(vec![]));
}

#[test]
fn no_scan_takes_device_memory() {
    let world = world();
    let mut process = world.process();
    map(&process, FIRST, 0, HUGE);
    process.store(FIRST, 1).unwrap();
    let space = &process.space;
    let mut effort = Effort {
        look: u64::MAX,
        wanted: u64::MAX,
        charged: false,
    };
    assert_eq!(space.reclaim(Page::new(0), &mut effort), None);
    space.huge_pages().scan(Page::new(0), &mut 4096);
    space.numa().scan_for_hints(Page::new(0), &mut 4096);
    space.ksm().merge_all(true).unwrap();
    for _ in 0..3 {
        world.memory.merge_pages(4096);
    }
    let range = PageRange::new(page(FIRST).page(), page(FIRST + HUGE).page());
    let splits = space.huge_pages().split_folios(range, FolioSplit::SINGLE);
    assert_eq!(splits.found, 0);
    assert_eq!(space.numa().node_of(range.start), Err(Unmoved::Unmovable));
    let choice = NodeChoice {
        near: 0,
        first: NodeSet::EMPTY,
        then: NodeSet::single(0),
        interleaved: false,
    };
    assert!(
        space
            .numa()
            .migrate(range.start, choice, memwright::Moving::All)
            .is_err()
    );
    assert_eq!(sizes(&process, FIRST, HUGE), "H");
    assert_eq!(process.load(FIRST), 1);
    process.check();
}

#[test]
fn a_mapping_without_frames_for_its_tables_leaves_nothing() {
    let world = world();
    let process = world.process();
    map(&process, 0, 0, 1);
    for failing in 0.. {
        world.frames.fail_after(Some(failing));
        let request = request(FIRST + 3, 7, 3 * HUGE, RW, CacheMode::WriteBack);
        let mapped = process.space.map(&request);
        world.frames.fail_after(None);
        process.check();
        if mapped.is_ok() {
            assert!(failing > 2, "no frame for a table was needed");
            break;
        }
        assert_eq!(mapped, Err(MapError::OutOfMemory));
        assert_eq!(process.areas(), "1rw");
        assert!(process.space.table().was_empty(PageRange::new(
            page(FIRST).page(),
            page(FIRST + 4 * HUGE).page()
        )));
    }
}

#[test]
fn frames_outside_of_the_regions_are_looked_up_without_a_panic() {
    let world = world();
    let frames = &world.frames;
    for number in [0, FRAMES, FRAMES + 5, FRAMES + DEVICE, u32::MAX] {
        let frame = Frame::new(number);
        assert!(!frames.manages(frame));
        assert_eq!(
            (frames.kind(frame), frames.kind_at(number)),
            (FrameKind::Hole, None)
        );
        assert_eq!((frames.references(frame), frames.pins(frame)), (0, 0));
        assert_eq!((frames.sharers(frame), frames.order(frame)), (0, 0));
        assert_eq!(
            (frames.folio_of(frame), frames.slot_of(frame)),
            (None, None)
        );
        assert!(!frames.is_lazy(frame) && !frames.is_sole_whole(frame));
        assert_eq!(
            (frames.folio_order(frame), frames.references_of_whole(frame)),
            (0, None)
        );
    }
    assert!(frames.manages(Frame::new(FRAMES - 1)));
    let misuse = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        frames.clear(Frame::new(FRAMES + 5));
    }));
    let message = misuse.unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert_eq!(message, "frame 0x2005 holds no data");
}
