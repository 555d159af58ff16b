//! Tests of huge pages of shared memory: the first access, complete and partial mappings, holes, and collapse.

use std::sync::Arc;

use memwright::object::{ObjectIdentity, Shmem};
use memwright::{
    Advice, AdviseError, FaultKind, HugeRefusal, MapRequest, Row, SharedMode, SharedSetting,
    SharedSizeMode,
};
use memwright_table::{Page, PageSize};

use crate::world::{Machine, PAGE, Process, R, RW, World, page, rows};

/// The index of the first page that is aligned to 2 MiB, counted from the address at which scenarios map.
const FIRST: u64 = 4;
/// The number of 4 KiB pages in 2 MiB.
const HUGE: u64 = 512;
const BYTES: u64 = HUGE * PAGE;

fn world() -> World {
    let world = World::with_frames(16384);
    world.memory.huge().set_shared_mode(SharedMode::Always);
    world
}

fn shared(world: &World, pages: u64) -> Arc<Shmem<Machine>> {
    let identity = ObjectIdentity {
        device: 1,
        inode: 7,
    };
    let object = Shmem::new(world.memory.clone(), pages * PAGE, identity).unwrap();
    Arc::new(object.with_huge_pages(SharedSetting::File))
}

fn size(process: &Process<'_>, index: u64) -> Option<PageSize> {
    let entry = process.space.entry(page(index));
    entry.present().map(|present| present.size)
}

fn byte(object: &Shmem<Machine>, offset: u64) -> u8 {
    let mut byte = [0];
    assert_eq!(object.read_at(offset, &mut byte), Ok(1));
    byte[0]
}

const WHOLE: Option<PageSize> = Some(PageSize::Size2M);
const SMALL: Option<PageSize> = Some(PageSize::Size4K);

#[test]
fn the_first_touch_makes_a_huge_page_that_others_map_whole() {
    let world = world();
    let object = shared(&world, 2 * HUGE);
    let (mut one, mut two) = (world.process(), world.process());
    one.map_object(FIRST, 2 * HUGE, RW, &object, true);
    two.map_object(FIRST, 2 * HUGE, R, &object, true);
    let account = world.counted(|| {
        assert_eq!(one.store(FIRST + 9, 7), Ok(vec![FaultKind::Huge]));
        assert_eq!(one.store(FIRST + 500, 8), Ok(vec![]));
        assert_eq!(two.load_with(FIRST + 9), Ok((7, vec![FaultKind::Huge])));
        assert_eq!(two.load_with(FIRST + 500), Ok((8, vec![])));
    });
    assert_eq!(
        rows(&account, &[Row::FaultHuge, Row::FramesZeroed]),
        [2, 512]
    );
    assert_eq!((one.resident(), object.resident()), (HUGE, HUGE));
    assert_eq!(world.frames.object_folios(), (1, 1));
    assert_eq!(byte(&object, 9 * PAGE), 7);
    // A write to the file is visible through the mappings.
    object.write_at(500 * PAGE, &[9]).unwrap();
    assert_eq!((one.load(FIRST + 500), two.load(FIRST + 500)), (9, 9));
    one.check();
    two.check();
    drop(one);
    drop(two);
    assert_eq!(world.frames.object_folios(), (1, 0));
    drop(object);
    assert_eq!(world.frames.object_folios(), (0, 0));
}

#[test]
fn who_shows_a_part_shows_it_in_small_pages() {
    let world = world();
    let object = shared(&world, HUGE);
    let (mut whole, mut part) = (world.process(), world.process());
    whole.map_object(FIRST, HUGE, RW, &object, true);
    // The second mapping is not aligned to 2 MiB, so small entries map the huge page in it.
    part.map_object(FIRST + 1, HUGE, RW, &object, true);
    assert_eq!(whole.store(FIRST, 1), Ok(vec![FaultKind::Huge]));
    assert_eq!(part.store(FIRST + 1 + 30, 2), Ok(vec![FaultKind::File]));
    assert_eq!(part.load_with(FIRST + 1), Ok((1, vec![FaultKind::File])));
    assert_eq!(size(&part, FIRST + 1), SMALL);
    assert_eq!(whole.load_with(FIRST + 30), Ok((2, vec![])));
    whole.check();
    part.check();
    // The mappings and the object are dropped in this order: the huge mapping, then the small ones, then the object.
    drop(whole);
    assert_eq!(part.load(FIRST + 31), 2);
    part.unmap(FIRST + 1, HUGE);
    drop(object);
    assert_eq!(world.frames.object_folios(), (0, 0));
}

#[test]
fn a_hole_frees_what_it_takes_and_leaves_the_rest() {
    let world = world();
    let object = shared(&world, HUGE);
    let (mut one, mut two) = (world.process(), world.process());
    one.map_object(FIRST, HUGE, RW, &object, true);
    two.map_object(FIRST, HUGE, RW, &object, true);
    for index in [0, 99, 100, 149, 150, 511] {
        one.store(FIRST + index, index as u8).unwrap();
    }
    two.load(FIRST);
    let used = world.frames.used();
    object.punch(100 * PAGE, 150 * PAGE).unwrap();
    // The split has freed 50 frames and allocated none: each process used its deposited page table.
    assert_eq!(used - world.frames.used(), 50);
    assert_eq!(object.resident(), HUGE - 50);
    for process in [&mut one, &mut two] {
        for index in [0, 99, 150, 511] {
            assert_eq!(process.load(FIRST + index), index as u8);
        }
        process.check();
    }
    assert_eq!(one.load(FIRST + 120), 0);
    one.store(FIRST + 120, 5).unwrap();
    assert_eq!(two.load(FIRST + 120), 5);
    // Truncation removes all pages beyond the new end.
    object.set_size(PAGE).unwrap();
    assert_eq!(object.resident(), 1);
    assert_eq!(one.load(FIRST), 0);
    one.check();
}

#[test]
fn a_part_that_changes_splits_the_entry_and_not_the_object() {
    let world = world();
    let object = shared(&world, HUGE);
    let mut process = world.process();
    process.map_object(FIRST, HUGE, RW, &object, true);
    process.store(FIRST + 5, 5).unwrap();
    process.protect(FIRST + 4, 2, R);
    assert_eq!(size(&process, FIRST + 5), SMALL);
    process.unmap(FIRST + 100, 1);
    process.protect(FIRST + 4, 2, RW);
    assert_eq!(process.store(FIRST + 5, 6), Ok(vec![]));
    process.check();
    // The split changed only the entry of the first process. A process that maps the object later maps the huge page by
    // one entry.
    let mut later = world.process();
    later.map_object(FIRST, HUGE, RW, &object, true);
    assert_eq!(later.load_with(FIRST + 5), Ok((6, vec![FaultKind::Huge])));
    later.check();
}

#[test]
fn a_private_store_copies_one_page() {
    let world = world();
    let object = shared(&world, HUGE);
    object.write_at(0, &[1]).unwrap();
    let writer = world.process();
    writer.map_object(FIRST + HUGE, HUGE, RW, &object, true);
    writer
        .space
        .advise(page(FIRST + HUGE), BYTES, Advice::Collapse)
        .unwrap();
    let mut process = world.process();
    process.map_object(FIRST, HUGE, RW, &object, false);
    assert_eq!(process.load_with(FIRST), Ok((1, vec![FaultKind::Huge])));
    let account = world.counted(|| {
        assert_eq!(process.store(FIRST, 2), Ok(vec![FaultKind::Copy]));
    });
    assert_eq!(rows(&account, &[Row::FramesCopied]), [1]);
    assert_eq!((process.load(FIRST), byte(&object, 0)), (2, 1));
    let mut child = process.fork();
    child.store(FIRST, 3).unwrap();
    child.store(FIRST + 1, 3).unwrap();
    assert_eq!((process.load(FIRST), process.load(FIRST + 1)), (2, 0));
    process.check();
    child.check();
}

#[test]
fn the_setting_decides_and_so_does_the_area() {
    let world = world();
    let settings = world.memory.huge();
    settings.set_shared_mode(SharedMode::Advised);
    let object = shared(&world, 4 * HUGE);
    let mut process = world.process();
    process.map_object(FIRST, 4 * HUGE, RW, &object, true);
    assert_eq!(process.store(FIRST, 1), Ok(vec![FaultKind::File]));
    let advise = |huge: u64, advice| {
        let at = page(FIRST + huge * HUGE);
        process.space.advise(at, BYTES, advice).unwrap();
    };
    advise(1, Advice::Huge);
    advise(2, Advice::NotHuge);
    assert_eq!(process.store(FIRST + HUGE, 1), Ok(vec![FaultKind::Huge]));
    settings.set_shared_mode(SharedMode::Force);
    assert_eq!(
        process.store(FIRST + 2 * HUGE, 1),
        Ok(vec![FaultKind::File])
    );
    process.space.huge_pages().refuse(HugeRefusal::Everywhere);
    assert_eq!(
        process.store(FIRST + 3 * HUGE, 1),
        Ok(vec![FaultKind::File])
    );
    // Shared anonymous memory follows the setting of the folio size, not the mode for all sizes.
    settings.set_shared_mode(SharedMode::Never);
    settings.set_shared_size(memwright_table::FOLIO_ORDER, SharedSizeMode::Always);
    let identity = ObjectIdentity::default();
    let anonymous = Shmem::new(world.memory.clone(), BYTES, identity).unwrap();
    let anonymous = Arc::new(anonymous.with_huge_pages(SharedSetting::Anonymous));
    let mut other = world.process();
    other.map_object(FIRST, HUGE, RW, &anonymous, true);
    assert_eq!(other.store(FIRST, 1), Ok(vec![FaultKind::Huge]));
}

#[test]
fn a_collapse_keeps_contents_and_those_who_show_them() {
    let world = world();
    world.memory.huge().set_shared_mode(SharedMode::Never);
    let object = shared(&world, HUGE);
    let (mut one, mut two) = (world.process(), world.process());
    one.map_object(FIRST, HUGE, RW, &object, true);
    two.map_object(FIRST, HUGE, RW, &object, true);
    for index in 0..HUGE {
        one.store(FIRST + index, index as u8).unwrap();
    }
    two.load(FIRST + 3);
    let account = world.counted(|| {
        one.space
            .advise(page(FIRST), BYTES, Advice::Collapse)
            .unwrap();
    });
    let counted = [Row::FramesCopied, Row::FramesZeroed, Row::HugeCollapses];
    assert_eq!(rows(&account, &counted), [512, 0, 1]);
    assert_eq!(size(&one, FIRST), WHOLE);
    assert_eq!(one.store(FIRST + 3, 77), Ok(vec![]));
    assert_eq!(two.load(FIRST + 3), 77);
    for index in 4..HUGE {
        assert_eq!(one.load(FIRST + index), index as u8);
    }
    one.check();
    two.check();
    assert_eq!((one.resident(), world.frames.object_folios().0), (HUGE, 1));
    // A second collapse of the range copies nothing and leaves the huge page as it is.
    let account = world.counted(|| {
        two.space
            .advise(page(FIRST), BYTES, Advice::Collapse)
            .unwrap();
    });
    assert_eq!(rows(&account, &counted), [0, 0, 0]);
    assert_eq!(size(&two, FIRST), WHOLE);
    two.check();
}

#[test]
fn a_collapse_refuses_pages_in_use() {
    let world = world();
    world.memory.huge().set_shared_mode(SharedMode::Never);
    let object = shared(&world, HUGE);
    let mut process = world.process();
    process.map_object(FIRST, HUGE, RW, &object, true);
    process.store(FIRST + 8, 8).unwrap();
    let collapse =
        |process: &Process<'_>| process.space.advise(page(FIRST), BYTES, Advice::Collapse);
    let held = object.frame_for(8, false).unwrap().unwrap();
    let outcome = collapse(&process);
    assert_eq!(outcome, Err(AdviseError::Busy(page(FIRST))));
    drop(world.frames.adopt(held));
    assert_eq!(process.load(FIRST + 8), 8);
    world.memory.huge().set_shared_mode(SharedMode::Deny);
    let outcome = collapse(&process);
    assert_eq!(outcome, Err(AdviseError::NotApplicable(page(FIRST))));
    world.memory.huge().set_shared_mode(SharedMode::Never);
    world.frames.fail_after(Some(0));
    assert!(collapse(&process).is_err());
    assert!(collapse(&process).is_ok());
    assert_eq!((size(&process, FIRST), process.load(FIRST + 8)), (WHOLE, 8));
    process.check();
}

#[test]
fn shared_memory_goes_where_its_pages_can_be_huge() {
    let world = world();
    let object = shared(&world, 4 * HUGE);
    let process = world.process();
    let map = |offset: u64, pages: u64| {
        let request = MapRequest::object(object.clone(), offset * PAGE, pages * PAGE, RW, true);
        process.space.map(&request).unwrap().page().number()
    };
    for (offset, pages) in [
        (0, HUGE),
        (3, HUGE),
        (HUGE + 511, 2 * HUGE),
        (0, 2 * HUGE + 1),
    ] {
        assert_eq!(map(offset, pages) % HUGE, offset % HUGE);
    }
    // Anonymous memory is aligned as well, if its length is a multiple of the huge page size.
    let anonymous = |pages: u64| {
        let request = MapRequest::anonymous(pages * PAGE, RW);
        process.space.map(&request).unwrap().page().number()
    };
    // Other mappings are placed at the highest free address.
    let highest = anonymous(HUGE + 1);
    assert_eq!(anonymous(3 * HUGE) % HUGE, 0);
    process
        .space
        .unmap(Page::new(highest).address(), (HUGE + 1) * PAGE)
        .unwrap();
    assert_eq!(anonymous(HUGE + 1), highest);
}

#[test]
fn a_scan_collapses_what_is_mapped_in_small_pages() {
    let world = world();
    world.memory.huge().set_shared_mode(SharedMode::Never);
    let object = shared(&world, 2 * HUGE);
    let mut process = world.process();
    process.map_object(FIRST, 2 * HUGE, RW, &object, true);
    for index in 0..HUGE {
        process.store(FIRST + index, 3).unwrap();
    }
    let scan = || {
        let mut budget = 100 * HUGE;
        let _ = process.space.huge_pages().scan(page(0).page(), &mut budget);
    };
    scan();
    assert_eq!(size(&process, FIRST), SMALL);
    world.memory.huge().set_shared_mode(SharedMode::Always);
    scan();
    // After the collapse, the next fault maps the huge page. The second 2 MiB are not collapsed, because the process
    // has never accessed them.
    assert_eq!(size(&process, FIRST), None);
    assert_eq!(object.resident(), HUGE);
    let mut other = process.fork();
    let collapse = process.space.advise(page(FIRST), BYTES, Advice::Collapse);
    assert!(collapse.is_ok());
    assert_eq!(size(&process, FIRST), WHOLE);
    let found = other.load_with(FIRST + 44);
    assert_eq!(found, Ok((3, vec![FaultKind::Huge])));
    other.check();
    process.check();
}
