//! Tests of swap readahead for pages of shared memory, and of the reclaim of pages that no process maps.

use std::sync::Arc;

use memwright::object::{Cluster, Leaving, Object, ObjectError, ObjectIdentity, Shmem};
use memwright::{Effort, Memcg, ObjectPlace};
use memwright::{FaultError, FaultKind, Row, SharedMode, SharedSetting};
use memwright_table::FrameKind;

use crate::swap::{Swapping, page_out};
use crate::swap_shared::{Memory, byte, filled, places};
use crate::world::{PAGE, R, RW, rows};

const IN: FaultKind = FaultKind::SwapIn;

const AROUND: [Row; 4] = [
    Row::SwapIn,
    Row::SwapAround,
    Row::SwapAroundHit,
    Row::SwapAroundWasted,
];

/// Creates a world with swap readahead.
fn around(slots: u32) -> Swapping {
    let swapping = Swapping::with_slots(slots);
    let policy = swapping.world.memory.policy();
    policy.set("swapin-around", "on").unwrap();
    swapping
}

/// Creates an object that no process maps. Each of its pages contains the page's number plus one.
fn unmapped(swapping: &Swapping, pages: u64) -> Arc<Memory> {
    let object = swapping.world.shmem(pages);
    for index in 0..pages {
        let bytes = [index as u8 + 1; PAGE as usize];
        object.write_at(index * PAGE, &bytes).unwrap();
    }
    object
}

/// Scans at most `look` pages of objects. Returns the number of pages reclaimed, and whether the pass is complete.
fn look(swapping: &Swapping, place: &mut ObjectPlace, look: u64) -> (u64, bool) {
    let mut effort = Effort {
        look,
        wanted: 1000,
        charged: false,
    };
    let memory = &swapping.world.memory;
    let is_over = memory.reclaim_objects(place, None, &mut effort);
    (1000 - effort.wanted, is_over)
}

/// Makes one pass over all pages of objects. Returns the number of pages reclaimed.
fn round(swapping: &Swapping) -> u64 {
    let mut place = ObjectPlace::default();
    let (left, is_over) = look(swapping, &mut place, 10_000);
    assert!(is_over && place == ObjectPlace::default());
    left
}

#[test]
fn who_goes_through_a_mapping_gets_several_pages_at_a_time() {
    let swapping = around(256);
    let (mut process, object) = filled(&swapping, 200);
    page_out(&process, 0, 200);
    assert_eq!(places(&object), (0, 200));
    let mut major = 0;
    let account = swapping.world.counted(|| {
        for index in 0..200 {
            let (found, kinds) = process.load_with(index).unwrap();
            assert_eq!(found, index as u8 + 1);
            major += kinds.iter().filter(|kind| **kind == IN).count();
        }
    });
    // The first fault reads 8 pages. Each of the other faults reads 16.
    assert_eq!(major, 13);
    assert_eq!(rows(&account, &AROUND), [200, 187, 172, 0]);
    assert_eq!((places(&object), swapping.slots()), ((200, 0), 0));
    // Stores swap pages in too, and each store faults. The first store reads 4 pages, because no page of the last
    // readahead was used. The next ones read 8 and then 16.
    page_out(&process, 0, 200);
    let mut major = 0;
    for index in 0..200 {
        let kinds = process.store(index, 7).unwrap();
        major += kinds.iter().filter(|kind| **kind == IN).count();
    }
    assert_eq!(major, 14);
    // Readahead stops at the end of the area, although more consecutive slots follow.
    page_out(&process, 0, 200);
    process.unmap(10, 190);
    process.load(9);
    assert_eq!(places(&object).0, 1);
    process.check();
}

#[test]
fn who_jumps_about_gets_few_pages_that_he_does_not_use() {
    let swapping = around(256);
    let (mut process, object) = filled(&swapping, 200);
    page_out(&process, 0, 200);
    swapping
        .world
        .memory
        .policy()
        .set("fault-around", "1")
        .unwrap();
    let account = swapping.world.counted(|| {
        for index in [150, 20, 100, 60, 180, 5] {
            assert_eq!(process.load_with(index), Ok((index as u8 + 1, vec![IN])));
        }
    });
    assert_eq!(rows(&account, &AROUND), [14, 8, 0, 8]);
    // Any use of a page that was read ahead counts as a hit, including a use by a system call.
    let mut bytes = [0; 7 * PAGE as usize];
    page_out(&process, 0, 200);
    let other = swapping.world.process();
    other.map_object(0, 200, R, &object, true);
    let window = |first| {
        let before = object.resident();
        process.load_with(first).map(|_| object.resident() - before)
    };
    let mut window = window;
    assert_eq!(window(40), Ok(1));
    assert_eq!(window(41), Ok(2));
    object.read_at(42 * PAGE, &mut bytes[..1]).unwrap();
    assert_eq!(window(120), Ok(4));
}

#[test]
fn who_calls_gets_several_pages_at_a_time() {
    let swapping = around(256);
    let (process, object) = filled(&swapping, 100);
    page_out(&process, 0, 100);
    let mut resident = Vec::new();
    let account = swapping.world.counted(|| {
        for index in 0..100 {
            assert_eq!(byte(&object, index), Ok(index as u8 + 1));
            resident.push(object.resident());
        }
    });
    resident.dedup();
    assert_eq!(resident, [8, 24, 40, 56, 72, 88, 100]);
    assert_eq!(rows(&account, &AROUND), [100, 93, 82, 0]);
    page_out(&process, 0, 100);
    // A page that a system call swapped in is not mapped, and is reclaimed like other pages that no process maps.
    assert_eq!(places(&object), (100, 0));
    assert_eq!((round(&swapping), round(&swapping)), (0, 100));
    let account = swapping.world.counted(|| {
        for index in [90, 10, 50, 30] {
            object.write_at(index * PAGE, &[9]).unwrap();
        }
    });
    let [read, ahead, hit, wasted] = rows(&account, &AROUND)[..] else {
        unreachable!()
    };
    // The pages of the last readahead were reclaimed before they were used, so they count as wasted.
    assert_eq!((read - ahead, hit, wasted), (4, 0, 11 + 3));
    swapping
        .world
        .memory
        .policy()
        .set("swapin-around", "off")
        .unwrap();
    let before = object.resident();
    assert_eq!(byte(&object, 60), Ok(61));
    assert_eq!(object.resident(), before + 1);
}

#[test]
fn a_neighbour_that_cannot_be_read_stays_out_and_hinders_nobody() {
    let swapping = around(64);
    let (mut process, object) = filled(&swapping, 8);
    page_out(&process, 0, 8);
    // Every second read fails, but the read of the page that faulted succeeds.
    swapping.device.fail_each(2);
    let account = swapping.world.counted(|| {
        assert_eq!(process.load_with(0), Ok((1, vec![IN])));
    });
    swapping.device.fail_each(0);
    assert_eq!(places(&object), (4, 4));
    assert_eq!(rows(&account, &[Row::SwapFailed, Row::SwapIn]), [4, 4]);
    page_out(&process, 0, 8);
    for index in 0..8 {
        assert_eq!(process.load(index), index as u8 + 1);
    }
    page_out(&process, 0, 8);
    // A thread that accesses a page that cannot be read gets an error, even if other pages of the same readahead were
    // read.
    swapping.device.fail_each(1);
    assert_eq!(process.load_with(3), Err(FaultError::Io));
    assert_eq!(byte(&object, 3), Err(ObjectError::Io));
    swapping.device.fail_each(0);
    assert_eq!((places(&object), swapping.slots()), ((0, 8), 8));
    // If few frames are free, fewer pages are read.
    let frames = &swapping.world.frames;
    frames.fail_after(Some(2));
    assert_eq!(object.bring_in(&swapping.world.memory, 1, 3), Ok(2));
    frames.fail_after(Some(0));
    let failed = object.bring_in(&swapping.world.memory, 5, 3);
    assert_eq!(failed, Err(ObjectError::OutOfMemory));
    frames.fail_after(None);
    assert_eq!((places(&object), swapping.slots()), ((2, 6), 6));
}

#[test]
fn a_slot_that_is_read_unasked_is_given_to_no_other_page() {
    let swapping = around(2);
    let (process, object) = filled(&swapping, 2);
    page_out(&process, 0, 2);
    assert_eq!(swapping.slots(), 2);
    // After the device has read the first page and before it reads the second, the second page is punched out and
    // written again. The new page cannot be swapped out, because the read still uses the slot of the old page.
    let (other, memory) = (object.clone(), swapping.world.memory.clone());
    swapping.device.after_read(move || {
        other.punch(PAGE, 2 * PAGE).unwrap();
        other.write_at(PAGE, &[77]).unwrap();
        let mut pages = Cluster::default();
        pages.insert(1);
        let leaving = Leaving {
            pages,
            unused: false,
            memcg: Memcg::NOBODY,
        };
        let left = other.send_out(&memory, &leaving);
        assert!(left.pages == 0 && left.is_full, "{left:?}");
    });
    assert_eq!(byte(&object, 0), Ok(1));
    assert_eq!(byte(&object, 1), Ok(77));
    assert_eq!((places(&object), swapping.slots()), ((2, 0), 0));
}

#[test]
fn what_nobody_shows_goes_when_nobody_asked_for_it_between_two_looks() {
    let swapping = Swapping::new();
    let object = unmapped(&swapping, 40);
    let bytes = &mut [0; 1];
    // All pages except the first ten are accessed after their creation. The first pass therefore reclaims only these
    // ten.
    for index in 10..40 {
        object.read_at(index * PAGE, bytes).unwrap();
    }
    assert_eq!(round(&swapping), 10);
    object.write_at(20 * PAGE + 1, &[9]).unwrap();
    assert_eq!(round(&swapping), 29);
    assert_eq!(places(&object), (1, 39));
    assert_eq!(round(&swapping), 1);
    let frames = &swapping.world.frames;
    assert_eq!(frames.used_by(FrameKind::Object), 0);
    for index in 0..40 {
        assert_eq!(byte(&object, index), Ok(index as u8 + 1));
    }
    // When the scan budget is used up, `place` is the position at which to continue, in this object or in the next.
    let second = unmapped(&swapping, 10);
    assert_eq!(round(&swapping), 10);
    for index in 0..10 {
        assert_eq!(byte(&second, index), Ok(index as u8 + 1));
    }
    let mut place = ObjectPlace::default();
    let steps = [
        (15, 15, false),
        (20, 20, false),
        (10, 5, false),
        (10, 0, true),
    ];
    for (looks, left, is_over) in steps {
        assert_eq!(
            look(&swapping, &mut place, looks),
            (left, is_over),
            "{looks}"
        );
    }
    assert_eq!((places(&object), places(&second)), ((0, 40), (10, 0)));
}

#[test]
fn what_somebody_shows_holds_or_keeps_stays() {
    let swapping = Swapping::new();
    let object = unmapped(&swapping, 6);
    let mut process = swapping.world.process();
    process.map_object(0, 3, RW, &object, true);
    swapping
        .world
        .memory
        .policy()
        .set("fault-around", "1")
        .unwrap();
    process.load(0);
    process.store(1, 20).unwrap();
    let held = object.frame_for(4, false).unwrap().unwrap();
    let held = swapping.world.frames.adopt(held);
    round(&swapping);
    assert_eq!(round(&swapping), 0);
    assert_eq!(places(&object), (3, 3));
    drop(held);
    // After the pages were unmapped, they are reclaimed like the others.
    process.unmap(0, 3);
    assert_eq!(round(&swapping), 3);
    assert_eq!((byte(&object, 1), byte(&object, 4)), (Ok(20), Ok(5)));
    let identity = ObjectIdentity::default();
    let memory = swapping.world.memory.clone();
    let staying = Shmem::new(memory, PAGE, identity).unwrap().staying();
    staying.write_at(0, &[1]).unwrap();
    round(&swapping);
    round(&swapping);
    assert_eq!(places(&staying), (1, 0));
}

#[test]
fn who_asks_for_a_page_again_while_it_is_written_keeps_it() {
    let swapping = Swapping::new();
    let object = unmapped(&swapping, 4);
    let mut process = swapping.world.process();
    process.map_object(0, 4, RW, &object, true);
    for index in 0..4 {
        process.load(index);
        // An access by a system call before the swap-out does not keep the page in memory.
        assert_eq!(byte(&object, index), Ok(index as u8 + 1));
    }
    let write = object.clone();
    swapping.device.before_write(move || {
        write.write_at(2 * PAGE, &[50]).unwrap();
    });
    page_out(&process, 0, 4);
    assert_eq!(places(&object), (1, 3));
    assert_eq!(process.load(2), 50);
    // An unmapped page that is accessed during the write stays, too. It stays even if the scan visits it again before
    // the write has ended.
    process.unmap(0, 4);
    for index in 0..4 {
        assert!(byte(&object, index).is_ok());
    }
    assert_eq!(round(&swapping), 0);
    let (write, memory) = (object.clone(), swapping.world.memory.clone());
    swapping.device.before_write(move || {
        write.write_at(2 * PAGE, &[60]).unwrap();
        let mut effort = Effort {
            look: 100,
            wanted: 100,
            charged: false,
        };
        let mut place = ObjectPlace::default();
        memory.reclaim_objects(&mut place, None, &mut effort);
    });
    assert_eq!(round(&swapping), 3);
    swapping.device.before_write(|| {});
    assert_eq!(byte(&object, 2), Ok(60));
}

#[test]
fn a_huge_page_that_nobody_shows_goes_in_parts() {
    const HUGE: u64 = 512;
    let swapping = Swapping::with_slots(600);
    let world = &swapping.world;
    world.memory.huge().set_shared_mode(SharedMode::Always);
    let object = Shmem::new(world.memory.clone(), HUGE * PAGE, ObjectIdentity::default());
    let object = Arc::new(object.unwrap().with_huge_pages(SharedSetting::File));
    let mut process = world.process();
    process.map_object(4, HUGE, RW, &object, true);
    for index in [0, 1, 99, 511] {
        process.store(4 + index, index as u8).unwrap();
    }
    assert_eq!(world.frames.object_folios(), (1, 1));
    assert_eq!(round(&swapping), 0);
    assert_eq!(world.frames.object_folios(), (1, 1), "shown as a whole");
    process.unmap(4, HUGE);
    round(&swapping);
    round(&swapping);
    assert_eq!(places(&object), (0, HUGE));
    assert_eq!(world.frames.object_folios(), (0, 0));
    for index in [0, 1, 99, 511] {
        assert_eq!(byte(&object, index), Ok(index as u8));
    }
}

#[test]
fn an_object_is_paid_for_by_whoever_came_first() {
    let swapping = Swapping::new();
    let swap = swapping.world.memory.swap();
    let above = swap.open_memcg(Memcg::NOBODY).unwrap();
    let memcgs = [(); 2].map(|()| swap.open_memcg(above).unwrap());
    let objects = memcgs.map(|memcg| {
        let object = unmapped(&swapping, 8);
        object.charge_to(memcg);
        object.charge_to(memcgs[1]);
        object
    });
    swap.limit_memcg(memcgs[0], 5);
    let reclaim = |memcg| {
        let mut effort = Effort {
            look: 100,
            wanted: 100,
            charged: false,
        };
        let mut place = ObjectPlace::default();
        let memory = &swapping.world.memory;
        assert!(memory.reclaim_objects(&mut place, Some(memcg), &mut effort));
        100 - effort.wanted
    };
    assert_eq!(reclaim(memcgs[0]), 5);
    assert_eq!(
        objects.each_ref().map(|object| places(object)),
        [(3, 5), (8, 0)]
    );
    assert_eq!(memcgs.map(|memcg| swap.paid_by(memcg)), [5, 0]);
    // A memcg that has reached its limit does not prevent the reclaim of objects of other memcgs.
    assert_eq!(round(&swapping), 8);
    assert_eq!(memcgs.map(|memcg| swap.paid_by(memcg)), [5, 8]);
    assert_eq!(swap.paid_by(above), 13);
    // A new memcg does not inherit the charges of a closed memcg. Those charges stay with the parent memcg.
    let frames = |memcg| {
        let mut frames = 0;
        let memory = &swapping.world.memory;
        memory.visit_objects(memcg, &mut |_| frames += 1);
        frames
    };
    assert_eq!(byte(&objects[1], 0), Ok(1));
    assert_eq!((memcgs.map(frames), frames(above)), ([3, 1], 4));
    swap.close_memcg(memcgs[1]);
    let new = swap.open_memcg(above).unwrap();
    assert_ne!(new, memcgs[1]);
    assert_eq!((reclaim(new), reclaim(new)), (0, 0));
    assert_eq!((frames(new), frames(above)), (0, 4));
    assert_eq!((swap.objects_of(new), swap.objects_of(above)), (0, 2));
    drop(objects);
    assert_eq!((swap.objects_of(above), swap.paid_by(above)), (0, 0));
    assert_eq!(swap.open_memcg(above), Ok(memcgs[1]));
}

#[test]
fn locked_pages_stay_in_memory_mapped_or_not() {
    let swapping = Swapping::with_slots(256);
    let object = unmapped(&swapping, 20);
    object.lock_pages(true);
    assert_eq!([round(&swapping), round(&swapping)], [0, 0]);
    assert_eq!(places(&object), (20, 0));
    let (process, mapped) = filled(&swapping, 20);
    mapped.lock_pages(true);
    page_out(&process, 0, 20);
    assert_eq!(places(&mapped), (20, 0));
    // After the object was unlocked, its pages are reclaimed like others.
    object.lock_pages(false);
    mapped.lock_pages(false);
    page_out(&process, 0, 20);
    assert_eq!(places(&mapped), (0, 20));
    assert_eq!(round(&swapping) + round(&swapping), 20);
    assert_eq!(places(&object), (0, 20));
}
