//! Tests of objects that share a size limit, like the files of a mounted tmpfs: how many pages they can have, which
//! folios they get, and which operations make space below the limit again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use memwright::object::{CollapseError, CollapseLimits, Object, ObjectError, Room};
use memwright::object::{ObjectIdentity, Put, Shmem};
use memwright::{Advice, FaultError, FaultKind, Row, SharedMode, SharedSetting};
use memwright_table::{FOLIO_ORDER, Frame, FrameKind, PageSize};

use crate::swap::{Swapping, page_out};
use crate::world::{Machine, PAGE, Process, RW, World, page, rows};

/// The index of the first page that is aligned to 2 MiB, counted from the address at which scenarios map.
const FIRST: u64 = 4;
/// The number of 4 KiB pages in 2 MiB.
const HUGE: u64 = 512;

const FILE: FaultKind = FaultKind::File;
const FOLIO: FaultKind = FaultKind::Folio;

type Memory = Arc<Shmem<Machine>>;

fn room(world: &World, most: Option<u64>, mode: SharedMode) -> Arc<Room> {
    Arc::new(Room::new(world.memory.huge(), most, mode))
}

fn object(world: &World, room: &Arc<Room>, pages: u64) -> Memory {
    let identity = ObjectIdentity::default();
    let object = Shmem::in_room(world.memory.clone(), pages * PAGE, identity, room.clone());
    Arc::new(object.unwrap())
}

fn showing<'w>(world: &'w World, object: &Memory) -> Process<'w> {
    let process = world.process();
    let pages = object.size().div_ceil(PAGE);
    process.map_object(FIRST, pages, RW, object, true);
    process
}

fn frame(world: &World) -> Frame {
    let frame = world.frames.allocate_zeroed(0, FrameKind::Object);
    frame.unwrap().into_raw()
}

/// Returns the number of pages that an object has in memory and in swap.
fn pages(object: &Memory) -> u64 {
    object.resident() + object.pages_in_swap()
}

fn size(process: &Process<'_>, index: u64) -> Option<PageSize> {
    let entry = process.space.entry(page(index));
    entry.present().map(|present| present.size)
}

fn order(process: &Process<'_>, index: u64) -> u8 {
    let present = process.space.entry(page(index)).present().unwrap();
    process.world.frames.folio_order(present.frame)
}

/// Returns the number of folios of order `order` that were allocated for shared memory.
fn given(world: &World, order: u8) -> u64 {
    let counts = world.memory.huge().sizes.counts(order);
    counts.shared_filled.load(Ordering::Relaxed)
}

#[test]
fn each_page_counts_once_whoever_makes_and_shows_it() {
    let world = World::new();
    let room = room(&world, Some(6), SharedMode::Never);
    let (one, two) = (object(&world, &room, 8), object(&world, &room, 8));
    let (mut first, mut second) = (showing(&world, &one), showing(&world, &one));
    assert_eq!(first.store(FIRST, 1), Ok(vec![FILE]));
    assert_eq!(second.load(FIRST), 1);
    let mut child = first.fork();
    assert_eq!(child.load(FIRST), 1);
    assert_eq!(room.used(), 1);
    assert_eq!(
        two.write_at(0, &[2; 2 * PAGE as usize]),
        Ok(2 * PAGE as usize)
    );
    one.allocate(0, 2 * PAGE).unwrap();
    assert_eq!(
        two.put(&world.memory, 5, frame(&world), &mut || true),
        Ok(Put::Stored)
    );
    assert_eq!((room.used(), pages(&one), pages(&two)), (5, 2, 3));
    // A private copy belongs to the process and does not count towards the limit.
    let mut private = world.process();
    private.map_object(FIRST, 8, RW, &one, false);
    assert_eq!(private.store(FIRST, 9), Ok(vec![FaultKind::Copy]));
    assert_eq!(room.used(), 5);
    // This access allocates the last page that the limit allows. Afterwards, any access that needs another page fails.
    assert_eq!(first.load_with(FIRST + 7), Ok((0, vec![FILE])));
    assert_eq!(room.used(), 6);
    assert_eq!(first.store(FIRST + 6, 1), Err(FaultError::BeyondObject));
    assert_eq!(child.load_with(FIRST + 6), Err(FaultError::BeyondObject));
    assert_eq!(private.store(FIRST + 6, 1), Err(FaultError::BeyondObject));
    assert_eq!(two.write_at(7 * PAGE, &[1]), Err(ObjectError::NoRoom));
    assert_eq!(two.frame_for(7, true), Err(ObjectError::NoRoom));
    let frame = frame(&world);
    let refused = two.put(&world.memory, 7, frame, &mut || true);
    assert_eq!(refused, Err(ObjectError::NoRoom));
    drop(world.frames.adopt(frame));
    // A write to present pages succeeds, and ends at the first page that the limit does not allow.
    assert_eq!(
        two.write_at(PAGE, &[3; 2 * PAGE as usize]),
        Ok(PAGE as usize)
    );
    assert_eq!(one.allocate(0, 8 * PAGE), Err(ObjectError::NoRoom));
    assert_eq!(room.used(), pages(&one) + pages(&two));
    first.check();
    second.check();
}

#[test]
fn what_goes_gives_its_room_back() {
    let world = World::new();
    let room = room(&world, Some(16), SharedMode::Never);
    let object = object(&world, &room, 16);
    let process = showing(&world, &object);
    let fill = || {
        object.allocate(0, 16 * PAGE).unwrap();
        assert_eq!((room.used(), room.has(1)), (16, false));
    };
    fill();
    object.set_size(10 * PAGE + 1).unwrap();
    assert_eq!(room.used(), 11);
    object.set_size(16 * PAGE).unwrap();
    fill();
    object.punch(PAGE + 1, 5 * PAGE).unwrap();
    assert_eq!(room.used(), 13);
    fill();
    let advised = process
        .space
        .advise(page(FIRST + 2), 4 * PAGE, Advice::Remove);
    advised.unwrap();
    assert_eq!(room.used(), 12);
    // `MADV_DONTNEED` unmaps the pages and leaves them in the object. If `allocate` fails, it frees only those pages
    // that it has allocated beyond the size of the file.
    let advised = process
        .space
        .advise(page(FIRST), 16 * PAGE, Advice::DontNeed);
    advised.unwrap();
    assert_eq!(room.used(), 12);
    object.set_size(40 * PAGE).unwrap();
    assert_eq!(
        object.allocate(20 * PAGE, 40 * PAGE),
        Err(ObjectError::NoRoom)
    );
    assert_eq!(
        room.used(),
        12 + 4,
        "within the size others may have seen them"
    );
    object.set_size(16 * PAGE).unwrap();
    assert_eq!(
        object.allocate(16 * PAGE, 40 * PAGE),
        Err(ObjectError::NoRoom)
    );
    assert_eq!(room.used(), 12, "beyond it nobody has");
    // The file is freed when its last mapping is removed.
    drop(object);
    assert_eq!(room.used(), 12);
    drop(process);
    assert_eq!(room.used(), 0);
}

#[test]
fn a_page_in_swap_keeps_its_room() {
    let swapping = Swapping::new();
    let world = &swapping.world;
    let room = room(world, Some(8), SharedMode::Never);
    let object = object(world, &room, 8);
    let mut process = showing(world, &object);
    for index in 0..8 {
        process.store(FIRST + index, index as u8).unwrap();
    }
    page_out(&process, FIRST, 8);
    assert_eq!((object.resident(), object.pages_in_swap()), (0, 8));
    assert_eq!(room.used(), 8);
    // Swap-in and swap-out do not change the number of pages that count towards the limit, even if it is reached.
    assert_eq!(process.load(FIRST + 3), 3);
    assert_eq!(room.used(), 8);
    page_out(&process, FIRST + 3, 1);
    assert_eq!((object.pages_in_swap(), room.used()), (8, 8));
    object.punch(6 * PAGE, 8 * PAGE).unwrap();
    assert_eq!((room.used(), swapping.slots()), (6, 6));
    object.set_size(4 * PAGE).unwrap();
    assert_eq!((room.used(), swapping.slots()), (4, 4));
    drop((process, object));
    assert_eq!(room.used(), 0);
}

#[test]
fn a_limit_that_changes_holds_from_then_on() {
    let world = World::new();
    let room = room(&world, Some(2), SharedMode::Never);
    let object = object(&world, &room, 8);
    object.allocate(0, 2 * PAGE).unwrap();
    assert_eq!(object.write_at(2 * PAGE, &[1]), Err(ObjectError::NoRoom));
    room.set_most(Some(3));
    assert_eq!(object.write_at(2 * PAGE, &[1]), Ok(1));
    assert_eq!(object.write_at(3 * PAGE, &[1]), Err(ObjectError::NoRoom));
    room.set_most(None);
    object.allocate(0, 8 * PAGE).unwrap();
    assert_eq!((room.used(), room.most()), (8, None));
}

#[test]
fn an_allocation_that_fails_takes_no_room() {
    for mode in [SharedMode::Never, SharedMode::Always] {
        let world = World::with_frames(4096);
        let room = room(&world, Some(HUGE + 64), mode);
        let before = world.frames.used_by(FrameKind::Object);
        for failing in 0..12 {
            let object = object(&world, &room, HUGE + 64);
            let mut process = showing(&world, &object);
            world.frames.fail_after(Some(failing));
            let _ = process.store(FIRST + HUGE + 3, 1);
            assert_eq!(room.used(), pages(&object), "{mode:?}, {failing}");
            let _ = process.store(FIRST + 3, 1);
            assert_eq!(room.used(), pages(&object), "{mode:?}, {failing}");
            let _ = object.allocate(0, (HUGE + 64) * PAGE);
            assert_eq!(room.used(), pages(&object), "{mode:?}, {failing}");
            world.frames.fail_after(None);
            object.allocate(0, (HUGE + 64) * PAGE).unwrap();
            assert_eq!((room.used(), pages(&object)), (HUGE + 64, HUGE + 64));
            process.check();
            drop((process, object));
            assert_eq!(room.used(), 0);
            assert_eq!(world.frames.used_by(FrameKind::Object), before);
        }
    }
}

#[test]
fn pages_come_together_as_the_room_says() {
    use SharedMode::*;
    const WHOLE: Option<PageSize> = Some(PageSize::Size2M);
    const SMALL: Option<PageSize> = Some(PageSize::Size4K);
    #[rustfmt::skip]
    let table = [
        // Columns: the mode for every size; the mode of the mount; the results, first without and then with
        // `MADV_HUGEPAGE`. A result is the page size with which the first 2 MiB are mapped, and the order of the folio
        // in the last 256 pages of the object.
        (Never, Always,     [(WHOLE, 8), (WHOLE, 8)]),
        (Never, WithinSize, [(WHOLE, 8), (WHOLE, 8)]),
        (Never, Advised,    [(SMALL, 0), (WHOLE, 8)]),
        (Never, Never,      [(SMALL, 0), (SMALL, 0)]),
        (Always, Never,     [(SMALL, 0), (SMALL, 0)]),
        (Deny,  Always,     [(SMALL, 0), (SMALL, 0)]),
        (Force, Never,      [(WHOLE, 0), (WHOLE, 0)]),
    ];
    for (all, mode, expected) in table {
        for (asks, (whole, rest)) in [false, true].into_iter().zip(expected) {
            let world = World::with_frames(16384);
            world.memory.huge().set_shared_mode(all);
            let room = room(&world, Some(4 * HUGE), mode);
            let object = object(&world, &room, HUGE + 256);
            let mut process = showing(&world, &object);
            if asks {
                let bytes = (HUGE + 256) * PAGE;
                process
                    .space
                    .advise(page(FIRST), bytes, Advice::Huge)
                    .unwrap();
            }
            process.store(FIRST + 9, 1).unwrap();
            process.store(FIRST + HUGE + 9, 1).unwrap();
            let found = (size(&process, FIRST + 9), order(&process, FIRST + HUGE + 9));
            assert_eq!(found, (whole, rest), "{all:?}, {mode:?}, {asks}");
            assert_eq!(room.used(), pages(&object));
            process.check();
        }
    }
}

#[test]
fn a_file_that_was_cut_has_what_fits_within_its_size() {
    let world = World::with_frames(16384);
    let room = room(&world, Some(4 * HUGE), SharedMode::WithinSize);
    let object = object(&world, &room, 2 * HUGE);
    let mut process = showing(&world, &object);
    assert_eq!(process.store(FIRST, 1), Ok(vec![FaultKind::Huge]));
    assert_eq!(process.store(FIRST + HUGE, 2), Ok(vec![FaultKind::Huge]));
    assert_eq!(room.used(), 2 * HUGE);
    // Truncation frees the pages of the second huge page that are beyond the new end.
    object.set_size((HUGE + 40) * PAGE).unwrap();
    assert_eq!((room.used(), pages(&object)), (HUGE + 40, HUGE + 40));
    assert_eq!(process.load(FIRST + HUGE), 2);
    assert_eq!(
        process.store(FIRST + HUGE + 40, 1),
        Err(FaultError::BeyondObject)
    );
    // The complete second huge page is freed. When the file has grown again, stores to the new range allocate folios
    // that end at or before the end of the file.
    object.set_size(HUGE * PAGE).unwrap();
    object.set_size((HUGE + 40) * PAGE).unwrap();
    assert_eq!(room.used(), HUGE);
    assert_eq!(process.store(FIRST + HUGE + 3, 3), Ok(vec![FOLIO]));
    assert_eq!(order(&process, FIRST + HUGE), 5);
    assert_eq!(process.store(FIRST + HUGE + 33, 3), Ok(vec![FOLIO]));
    assert_eq!(order(&process, FIRST + HUGE + 32), 3);
    assert_eq!((room.used(), pages(&object)), (HUGE + 40, HUGE + 40));
    // The new part of a file that has grown is zero. A huge page may be allocated only where the file has no page yet.
    object.set_size(3 * HUGE * PAGE).unwrap();
    let mut other = showing(&world, &object);
    assert_eq!(other.load(FIRST + HUGE + 40), 0);
    assert_eq!(other.store(FIRST + 2 * HUGE, 1), Ok(vec![FaultKind::Huge]));
    assert_eq!(room.used(), pages(&object));
    process.check();
    other.check();
}

#[test]
fn no_folio_is_larger_than_the_room_that_is_left() {
    let world = World::with_frames(16384);
    let room = room(&world, Some(40), SharedMode::Always);
    let object = object(&world, &room, 2 * HUGE);
    let mut process = showing(&world, &object);
    assert_eq!(process.store(FIRST + 9, 1), Ok(vec![FOLIO]));
    assert_eq!((order(&process, FIRST + 9), room.used()), (5, 32));
    assert_eq!(process.store(FIRST + HUGE, 1), Ok(vec![FOLIO]));
    assert_eq!((order(&process, FIRST + HUGE), room.used()), (3, 40));
    assert_eq!(process.store(FIRST + 40, 1), Err(FaultError::BeyondObject));
    // A collapse does not exceed the limit either.
    let limits = CollapseLimits {
        missing: HUGE,
        swapped: 0,
    };
    assert_eq!(object.collapse(0, limits), Err(CollapseError::NotEligible));
    assert_eq!((room.used(), pages(&object)), (40, 40));
    // With a higher limit the collapse succeeds, and the missing pages count towards the limit. Freeing a page lowers
    // the count again.
    room.set_most(Some(HUGE + 8));
    assert_eq!(object.collapse(0, limits), Ok(()));
    assert_eq!((room.used(), pages(&object)), (HUGE + 8, HUGE + 8));
    object.punch(5 * PAGE, 6 * PAGE).unwrap();
    assert_eq!(room.used(), HUGE + 7);
    object.set_size(0).unwrap();
    assert_eq!(room.used(), 0);
    process.check();
}

#[test]
fn a_call_fills_folios_as_large_as_what_it_writes() {
    let world = World::with_frames(16384);
    let room = room(&world, None, SharedMode::WithinSize);
    let in_room = object(&world, &room, 0);
    let write = |object: &Memory, first: u64, count: u64| {
        let (mut at, end) = (first * PAGE, (first + count) * PAGE);
        let mut asked = Vec::new();
        while at < end {
            let next = object.prepare_write(at, end).min(end);
            asked.push((next - at) / PAGE);
            object.write_at(at, &vec![7; (next - at) as usize]).unwrap();
            at = next;
        }
        asked
    };
    // A folio may extend beyond the present end of the file, up to the end of the write. 8 KiB are written to two
    // single pages, because there is no folio of two pages.
    assert_eq!(write(&in_room, 0, 4 + HUGE), [512, 4]);
    assert_eq!(write(&in_room, 2 * HUGE - 6, 6 + 8), [1, 1, 4, 8]);
    assert_eq!(
        (
            given(&world, FOLIO_ORDER),
            given(&world, 2),
            given(&world, 3)
        ),
        (1, 2, 1)
    );
    let pages_written = HUGE + 4 + 14;
    assert_eq!(
        (room.used(), pages(&in_room)),
        (pages_written, pages_written)
    );
    // `prepare_write` does not replace present pages. It allocates no folio if the write covers only a part of a page.
    assert_eq!(in_room.prepare_write(0, HUGE * PAGE), PAGE);
    assert_eq!(
        in_room.prepare_write(4 * HUGE * PAGE, 4 * HUGE * PAGE + 100),
        (4 * HUGE + 1) * PAGE
    );
    assert_eq!(room.used(), pages_written);
    let account = world.counted(|| {
        in_room
            .allocate(8 * HUGE * PAGE, (9 * HUGE + 4) * PAGE)
            .unwrap();
    });
    assert_eq!(rows(&account, &[Row::FramesZeroed]), [HUGE + 4]);
    assert_eq!((given(&world, FOLIO_ORDER), given(&world, 2)), (2, 3));
    // A file that is on no mount follows the mode for every size.
    let file = Shmem::new(world.memory.clone(), 0, ObjectIdentity::default());
    let file = Arc::new(file.unwrap().with_huge_pages(SharedSetting::File));
    assert_eq!(write(&file, 0, HUGE).len(), 1, "once is enough");
    assert_eq!((given(&world, FOLIO_ORDER), pages(&file)), (2, HUGE));
    world.memory.huge().set_shared_mode(SharedMode::Advised);
    assert_eq!(file.prepare_write(HUGE * PAGE, 2 * HUGE * PAGE), u64::MAX);
    world.memory.huge().set_shared_mode(SharedMode::Always);
    assert_eq!(write(&file, HUGE, HUGE), [HUGE]);
    assert_eq!((given(&world, FOLIO_ORDER), pages(&file)), (3, 2 * HUGE));
    // The mode `Advised` never applies to a write by a system call, because it does not go through an area.
    let room = self::room(&world, None, SharedMode::Advised);
    let advised = object(&world, &room, 0);
    assert_eq!(advised.prepare_write(0, HUGE * PAGE), u64::MAX);
    // If the mode of the mount changes, the new mode also applies to existing objects.
    room.set_huge(world.memory.huge(), SharedMode::Always);
    assert_eq!(advised.prepare_write(0, HUGE * PAGE), HUGE * PAGE);
    assert_eq!((room.used(), pages(&advised)), (HUGE, HUGE));
}
