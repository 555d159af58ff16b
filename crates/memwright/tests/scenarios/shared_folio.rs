//! Tests of folios of 16 KiB to 1 MiB that fill holes of shared memory: where a folio fits, which processes map it, and
//! how it is split.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use memwright::object::{ObjectIdentity, Shmem};
use memwright::uffd::WatchModes;
use memwright::{
    Advice, FaultError, FaultKind, HugeRefusal, MapRequest, Row, SharedMode, SharedSetting,
    SharedSizeMode,
};
use memwright_table::{Bits, FOLIO_ORDER};

use crate::swap::{Swapping, page_out};
use crate::world::{Machine, PAGE, Process, R, RW, World, page, rows, watch};

/// The index of the first page that is aligned to 2 MiB, counted from the address at which scenarios map.
const FIRST: u64 = 4;

const FOLIO: FaultKind = FaultKind::Folio;
const FILE: FaultKind = FaultKind::File;

/// Enables folios of `orders` for shared anonymous memory.
fn allow(world: &World, orders: &[u8]) {
    for order in orders {
        let settings = world.memory.huge();
        settings.set_shared_size(*order, SharedSizeMode::Always);
    }
}

fn world(orders: &[u8]) -> World {
    let world = World::new();
    allow(&world, orders);
    world
}

fn memory_of(world: &World, pages: u64, setting: SharedSetting) -> Arc<Shmem<Machine>> {
    let identity = ObjectIdentity::default();
    let object = Shmem::new(world.memory.clone(), pages * PAGE, identity).unwrap();
    Arc::new(object.with_huge_pages(setting))
}

fn anonymous(world: &World, pages: u64) -> Arc<Shmem<Machine>> {
    memory_of(world, pages, SharedSetting::Anonymous)
}

/// Creates a process that maps all of an object from [`FIRST`] on.
fn showing<'w>(world: &'w World, object: &Arc<Shmem<Machine>>) -> Process<'w> {
    let process = world.process();
    let pages = object.size().div_ceil(PAGE);
    process.map_object(FIRST, pages, RW, object, true);
    process
}

/// Returns the order of the folio that is mapped at `index`.
fn order(process: &Process<'_>, index: u64) -> u8 {
    let present = process.space.entry(page(index)).present().unwrap();
    process.world.frames.folio_order(present.frame)
}

/// Returns the number of folios of order `order` that were allocated for shared memory, and the number of such
/// allocations that failed.
fn counts(world: &World, order: u8) -> (u64, u64) {
    let counts = world.memory.huge().sizes.counts(order);
    let filled = counts.shared_filled.load(Ordering::Relaxed);
    (filled, counts.shared_refused.load(Ordering::Relaxed))
}

#[test]
fn the_first_store_fills_a_folio_and_maps_all_of_it() {
    for allowed in [2, 4, 8] {
        let world = world(&[allowed]);
        let pages = 1 << allowed;
        let object = anonymous(&world, 512);
        let (mut one, mut two) = (showing(&world, &object), showing(&world, &object));
        let account = world.counted(|| {
            assert_eq!(one.store(FIRST + pages + 3, 7), Ok(vec![FOLIO]));
            for index in pages..2 * pages {
                assert_eq!(one.store(FIRST + index, index as u8), Ok(vec![]));
            }
        });
        let counted = [Row::FaultFolio, Row::FramesZeroed, Row::FolioFallbacks];
        assert_eq!(rows(&account, &counted), [1, pages, 0]);
        assert_eq!((one.resident(), object.resident()), (pages, pages));
        assert_eq!(order(&one, FIRST + pages), allowed);
        assert_eq!(counts(&world, allowed), (1, 0));
        // A store by a second process to the folio maps the complete folio too. A load by a third process maps only the
        // pages around the fault.
        assert_eq!(two.store(FIRST + pages, 9), Ok(vec![FILE]));
        assert_eq!(two.resident(), pages);
        assert_eq!(one.load_with(FIRST + pages), Ok((9, vec![])));
        assert_eq!(
            two.load_with(FIRST + pages + 1),
            Ok((pages as u8 + 1, vec![]))
        );
        let mut three = showing(&world, &object);
        assert_eq!(three.load_with(FIRST + pages), Ok((9, vec![FILE])));
        assert_eq!(three.resident(), pages.min(16));
        for process in [&one, &two, &three] {
            process.check();
        }
    }
}

#[test]
fn a_load_fills_a_folio_that_stores_then_find() {
    let world = world(&[5]);
    let object = anonymous(&world, 64);
    let mut process = showing(&world, &object);
    assert_eq!(process.load_with(FIRST + 40), Ok((0, vec![FOLIO])));
    assert_eq!((process.resident(), object.resident()), (32, 32));
    let bits = |index| process.space.entry(page(index)).present().unwrap().bits;
    assert!(!bits(FIRST + 63).contains(Bits::DIRTY));
    for index in 32..64 {
        assert_eq!(process.store(FIRST + index, 1), Ok(vec![]));
    }
    // A store that allocates a folio makes all entries of the folio dirty, as on Linux.
    assert_eq!(process.store(FIRST, 1), Ok(vec![FOLIO]));
    let bits = |index| process.space.entry(page(index)).present().unwrap().bits;
    assert!(bits(FIRST + 31).contains(Bits::DIRTY | Bits::SOFT_DIRTY));
}

#[test]
fn a_folio_fills_the_largest_hole_and_nothing_that_is_there() {
    let world = world(&[2, 4]);
    let object = anonymous(&world, 64);
    object.write_at(5 * PAGE, &[55]).unwrap();
    let mut process = showing(&world, &object);
    // Page 5, which the object already has, prevents folios of both orders around page 6, and the larger one around
    // page 9.
    assert_eq!(process.store(FIRST + 6, 1), Ok(vec![FILE]));
    assert_eq!(process.store(FIRST + 9, 1), Ok(vec![FOLIO]));
    assert_eq!((object.resident(), order(&process, FIRST + 11)), (6, 2));
    assert_eq!(process.store(FIRST + 30, 1), Ok(vec![FOLIO]));
    assert_eq!((object.resident(), order(&process, FIRST + 16)), (22, 4));
    assert_eq!(process.load(FIRST + 5), 55);
    assert_eq!((counts(&world, 2), counts(&world, 4)), ((1, 0), (1, 0)));
}

#[test]
fn a_folio_leaves_what_is_in_swap_alone() {
    let swapping = Swapping::with_slots(64);
    let world = &swapping.world;
    let object = anonymous(world, 32);
    let mut process = showing(world, &object);
    process.store(FIRST + 5, 55).unwrap();
    page_out(&process, FIRST + 5, 1);
    assert_eq!((object.resident(), object.pages_in_swap()), (0, 1));
    allow(world, &[2, 4]);
    assert_eq!(process.store(FIRST + 6, 1), Ok(vec![FILE]));
    assert_eq!(process.store(FIRST + 2, 1), Ok(vec![FOLIO]));
    assert_eq!((object.resident(), object.pages_in_swap()), (5, 1));
    assert_eq!(
        process.load_with(FIRST + 5),
        Ok((55, vec![FaultKind::SwapIn]))
    );
    // The pages of a folio are swapped out and in separately.
    for index in 16..32 {
        process.store(FIRST + index, index as u8).unwrap();
    }
    page_out(&process, FIRST + 16, 3);
    page_out(&process, FIRST + 20, 12);
    assert_eq!((object.resident(), object.pages_in_swap()), (7, 15));
    assert_eq!(order(&process, FIRST + 19), 0);
    for index in 16..32 {
        assert_eq!(process.load(FIRST + index), index as u8);
    }
    process.check();
}

#[test]
fn a_folio_ends_with_its_object_and_its_area() {
    let world = world(&[2, 4]);
    let object = anonymous(&world, 10);
    let mut process = world.process();
    process.map_object(FIRST, 32, RW, &object, true);
    // The last page of the object is only partly in it, but counts as a page.
    object.set_size(10 * PAGE - 1).unwrap();
    assert_eq!(process.store(FIRST + 9, 1), Ok(vec![FILE]));
    assert_eq!(process.store(FIRST + 5, 1), Ok(vec![FOLIO]));
    assert_eq!((object.resident(), process.resident()), (5, 5));
    drop(process);
    // No folio fits at the end of the area. Below it a folio of 16 KiB fits, and then one of 64 KiB.
    let object = anonymous(&world, 64);
    let mut process = world.process();
    process.map_object(FIRST, 22, RW, &object, true);
    assert_eq!(process.store(FIRST + 21, 1), Ok(vec![FILE]));
    assert_eq!(process.store(FIRST + 17, 1), Ok(vec![FOLIO]));
    assert_eq!(process.store(FIRST + 1, 1), Ok(vec![FOLIO]));
    assert_eq!(object.resident(), 1 + 4 + 16);
    // If an area contains only a part of a present folio, a fault maps single pages of it.
    let mut part = world.process();
    part.map_object(FIRST, 9, RW, &object, true);
    assert_eq!(part.store(FIRST + 1, 2), Ok(vec![FILE]));
    assert_eq!(part.resident(), 1);
    part.check();
    // If area and object are aligned differently, no folio is allocated.
    let object = anonymous(&world, 64);
    let mut apart = world.process();
    apart.map_object(FIRST + 2, 64, RW, &object, true);
    assert_eq!(apart.store(FIRST + 20, 1), Ok(vec![FILE]));
    let mut whole = showing(&world, &object);
    assert_eq!(whole.store(FIRST + 40, 1), Ok(vec![FOLIO]));
    // A folio that is present already is mapped completely, however it is aligned in the area.
    assert_eq!(apart.store(FIRST + 2 + 40, 2), Ok(vec![FILE]));
    assert_eq!((apart.resident(), object.resident()), (17, 17));
    apart.check();
}

#[test]
fn where_somebody_watches_pages_are_mapped_one_by_one() {
    let world = world(&[4]);
    let object = anonymous(&world, 32);
    let mut process = showing(&world, &object);
    let watch = watch(false, true);
    let modes = WatchModes::WRITE_PROTECT;
    let watched = process
        .space
        .uffd()
        .watch(page(FIRST), 16 * PAGE, &watch, modes);
    watched.unwrap();
    assert_eq!(process.store(FIRST + 3, 1), Ok(vec![FOLIO]));
    assert_eq!((process.resident(), object.resident()), (1, 16));
    assert_eq!(process.store(FIRST + 4, 1), Ok(vec![FILE]));
    assert_eq!(process.resident(), 2);
    // Outside the registered range, a fault maps all pages of the folio.
    assert_eq!(process.store(FIRST + 20, 1), Ok(vec![FOLIO]));
    assert_eq!((process.resident(), object.resident()), (18, 32));
    process.check();
}

#[test]
fn what_stands_in_the_area_stays() {
    let world = world(&[4]);
    let object = anonymous(&world, 32);
    let mut process = showing(&world, &object);
    process
        .space
        .advise(page(FIRST + 7), PAGE, Advice::GuardInstall)
        .unwrap();
    assert_eq!(process.store(FIRST + 3, 1), Ok(vec![FOLIO]));
    assert_eq!((process.resident(), object.resident()), (15, 16));
    assert!(process.store(FIRST + 7, 1).is_err());
    process.check();
}

#[test]
fn where_no_block_is_free_a_smaller_one_or_a_page_is_taken() {
    let world = world(&[2, 4]);
    let object = anonymous(&world, 64);
    let mut process = showing(&world, &object);
    process.store(FIRST, 1).unwrap();
    let mut refuse = |index: u64| {
        world.frames.fail_after(Some(0));
        let account = world.counted(|| {
            assert_eq!(process.store(FIRST + index, 1), Ok(vec![FOLIO]));
        });
        world.frames.fail_after(None);
        rows(&account, &[Row::FolioFallbacks])
    };
    assert_eq!(refuse(20), [1]);
    assert_eq!((counts(&world, 4), counts(&world, 2)), ((1, 1), (1, 0)));
    assert_eq!(object.resident(), 16 + 4);
    // Every second frame stays allocated, so only single frames are free.
    let mut taken = Vec::new();
    while let Ok(frame) = world
        .frames
        .allocate(0, memwright_table::FrameKind::Anonymous)
    {
        taken.push(frame);
    }
    taken.sort_by_key(|frame| frame.frame().number());
    let mut index = 0;
    taken.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    assert_eq!(process.store(FIRST + 40, 4), Ok(vec![FILE]));
    assert_eq!((counts(&world, 4), counts(&world, 2)), ((1, 2), (1, 1)));
    assert_eq!((object.resident(), process.load(FIRST + 40)), (21, 4));
}

#[test]
fn a_hole_or_an_end_within_a_folio_takes_its_pages_and_no_others() {
    let world = world(&[2, 4]);
    let object = anonymous(&world, 32);
    let (mut one, mut two) = (showing(&world, &object), showing(&world, &object));
    for index in 0..32 {
        one.store(FIRST + index, index as u8 + 1).unwrap();
    }
    two.load(FIRST);
    let used = world.frames.used();
    object.punch(4 * PAGE, 9 * PAGE).unwrap();
    assert_eq!((used - world.frames.used(), object.resident()), (5, 27));
    assert_eq!(order(&one, FIRST), 0);
    for process in [&mut one, &mut two] {
        for index in [0, 3, 9, 15] {
            assert_eq!(process.load(FIRST + index), index as u8 + 1);
        }
        process.check();
    }
    // A store fills the hole again with the largest folio that fits.
    assert_eq!(one.store(FIRST + 7, 77), Ok(vec![FOLIO]));
    assert_eq!(two.load(FIRST + 7), 77);
    assert_eq!(one.load_with(FIRST + 8), Ok((0, vec![FILE])));
    assert_eq!(object.resident(), 32);
    // The new end of the object splits the second folio.
    object.set_size(20 * PAGE + 1).unwrap();
    assert_eq!(object.resident(), 21);
    assert_eq!((one.load(FIRST + 19), one.load(FIRST + 20)), (20, 21));
    let beyond = Err(FaultError::BeyondObject);
    assert_eq!(one.store(FIRST + 21, 1), beyond);
    object.set_size(32 * PAGE).unwrap();
    assert_eq!(one.load(FIRST + 21), 0);
    assert_eq!(object.resident(), 22);
    two.check();
    one.check();
}

#[test]
fn a_private_mapping_reads_the_folio_and_copies_single_pages() {
    let world = world(&[4]);
    let object = anonymous(&world, 32);
    let mut process = world.process();
    process.map_object(FIRST, 32, RW, &object, false);
    let account = world.counted(|| {
        assert_eq!(process.store(FIRST + 3, 3), Ok(vec![FaultKind::Copy]));
    });
    assert_eq!(rows(&account, &[Row::FramesCopied]), [1]);
    assert_eq!((process.resident(), object.resident()), (1, 16));
    assert_eq!(process.load_with(FIRST + 20), Ok((0, vec![FOLIO])));
    assert_eq!((process.resident(), object.resident()), (17, 32));
    assert_eq!(process.store(FIRST + 21, 3), Ok(vec![FaultKind::Copy]));
    let mut other = showing(&world, &object);
    assert_eq!((other.load(FIRST + 3), other.load(FIRST + 21)), (0, 0));
    process.check();
}

#[test]
fn a_file_asks_the_setting_of_every_size_and_2_mib_come_first() {
    let world = World::with_frames(16384);
    let settings = world.memory.huge();
    settings.set_shared_mode(SharedMode::Advised);
    let object = memory_of(&world, 1024 + 256, SharedSetting::File);
    let mut process = showing(&world, &object);
    assert_eq!(process.store(FIRST, 1), Ok(vec![FILE]));
    let everything = (1024 + 256) * PAGE;
    process
        .space
        .advise(page(FIRST), everything, Advice::Huge)
        .unwrap();
    assert_eq!(process.store(FIRST + 512, 1), Ok(vec![FaultKind::Huge]));
    assert_eq!(counts(&world, FOLIO_ORDER), (1, 0));
    assert_eq!(process.store(FIRST + 3, 1), Ok(vec![FILE]));
    assert_eq!(process.store(FIRST + 5, 1), Ok(vec![FOLIO]));
    assert_eq!(order(&process, FIRST + 4), 2);
    assert_eq!(process.store(FIRST + 1024, 1), Ok(vec![FOLIO]));
    assert_eq!(order(&process, FIRST + 1024), 8);
    // A process that disables huge pages gets no folios either. While the mode forces huge pages of 2 MiB, no process
    // gets smaller folios.
    process.space.huge_pages().refuse(HugeRefusal::Everywhere);
    assert_eq!(process.store(FIRST + 128, 1), Ok(vec![FILE]));
    process.space.huge_pages().refuse(HugeRefusal::Nothing);
    settings.set_shared_mode(SharedMode::Force);
    assert_eq!(process.store(FIRST + 160, 1), Ok(vec![FILE]));
    settings.set_shared_mode(SharedMode::Always);
    assert_eq!(process.store(FIRST + 200, 1), Ok(vec![FOLIO]));
    let mut reader = world.process();
    reader.map_object(FIRST, 512, R, &object, true);
    assert_eq!(reader.load(FIRST + 200), 1);
    reader.check();
}

#[test]
fn shared_memory_goes_where_its_largest_folios_fit() {
    let world = world(&[2, 5]);
    let object = anonymous(&world, 256);
    let process = world.process();
    let map = |offset: u64, pages: u64| {
        let request = MapRequest::object(object.clone(), offset * PAGE, pages * PAGE, RW, true);
        process.space.map(&request).unwrap().page().number()
    };
    for (offset, pages) in [(0, 32), (3, 33), (37, 41), (0, 200)] {
        assert_eq!(
            map(offset, pages) % 32,
            offset % 32,
            "{pages} from {offset}"
        );
    }
    // Two kinds of mappings are placed at the highest free address: mappings that are smaller than the largest folio,
    // and mappings of objects whose huge pages no setting controls.
    let last = map(0, 31);
    assert_eq!(map(0, 31), last - 31);
    let plain = world.shmem(64);
    let request = MapRequest::object(plain, 0, 64 * PAGE, RW, true);
    let start = process.space.map(&request).unwrap().page().number();
    assert_eq!(start, last - 31 - 64);
}
