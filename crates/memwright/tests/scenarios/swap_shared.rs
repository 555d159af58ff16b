//! Tests of pages of shared memory that are swapped out and in while processes map them, read them by system calls,
//! truncate them, or track them by userfaultfd.

use std::sync::Arc;

use memwright::object::{
    Cluster, CollapseLimits, Leaving, Object, ObjectError, ObjectIdentity, Shmem,
};
use memwright::uffd::{Fill, FillError, WatchModes, WatchedFault};
use memwright::{Advice, AreaFlags, FaultError, FaultKind, Row, SharedMode, SharedSetting};
use memwright::{Memcg, ObjectPlace};
use memwright_table::{Bits, CpuId, FrameKind, Loaded, PageRange};

use crate::swap::{Swapping, page_out};
use crate::world::{Machine, PAGE, Process, R, RW, page, watch};

pub type Memory = Shmem<Machine>;

const IN: FaultKind = FaultKind::SwapIn;
const FILE: FaultKind = FaultKind::File;

/// Creates a process that maps an object with `pages` pages, each containing its number plus one.
pub fn filled(swapping: &Swapping, pages: u64) -> (Process<'_>, Arc<Memory>) {
    let object = swapping.world.shmem(pages);
    let mut process = swapping.world.process();
    process.map_object(0, pages, RW, &object, true);
    for index in 0..pages {
        process.store(index, index as u8 + 1).unwrap();
    }
    (process, object)
}

/// Returns the first byte of a page, as a system call reads it.
pub fn byte(object: &Memory, index: u64) -> Result<u8, ObjectError> {
    let mut byte = [0];
    object.read_at(index * PAGE, &mut byte)?;
    Ok(byte[0])
}

pub fn places(object: &Memory) -> (u64, u64) {
    (object.resident(), object.pages_in_swap())
}

#[test]
fn a_page_goes_and_comes_back_by_a_fault_or_a_call() {
    let swapping = Swapping::new();
    let (mut process, object) = filled(&swapping, 8);
    let account = swapping.world.counted(|| page_out(&process, 0, 8));
    let rows = [Row::SwapOut, Row::SwapWritten].map(|row| account.count(row));
    assert_eq!(rows, [8, 8]);
    assert_eq!((places(&object), swapping.slots()), ((0, 8), 8));
    assert_eq!(swapping.world.frames.used_by(FrameKind::Object), 0);
    // The pages in swap belong to the object, not to the process.
    assert_eq!(
        (process.resident(), process.space.usage().swapped_pages()),
        (0, 0)
    );
    assert_eq!(object.swapped(2, 4), 4);
    let mut told = Vec::new();
    let tell = &mut |_, there| told.push(there);
    process
        .space
        .residency()
        .resident(page(0), 2 * PAGE, tell)
        .unwrap();
    assert_eq!(told, [false, false]);
    assert_eq!(process.load_with(0), Ok((1, vec![IN])));
    assert_eq!(process.store(1, 20), Ok(vec![IN]));
    // A page that was swapped in no longer has a slot. One fault also maps those of its neighbours that are in memory,
    // but none that are in swap.
    assert_eq!((places(&object), swapping.slots()), ((2, 6), 6));
    assert_eq!(byte(&object, 2), Ok(3));
    object.write_at(3 * PAGE + 1, &[9]).unwrap();
    assert_eq!(process.load_with(3), Ok((4, vec![FILE])));
    assert_eq!(process.load_with(2), Ok((3, vec![])), "by the fault before");
    let held = object.frame_for(4, false).unwrap().unwrap();
    drop(swapping.world.frames.adopt(held));
    assert_eq!(places(&object), (5, 3));
    // `allocate` creates the missing pages in memory. Pages in swap stay in swap.
    object.allocate(0, 8 * PAGE).unwrap();
    assert_eq!(places(&object), (5, 3));
    assert_eq!(object.seek(5 * PAGE, false), Some(5 * PAGE));
    assert_eq!(object.seek(0, true), Some(8 * PAGE));
    let found: Vec<u8> = (0..8).map(|index| process.load(index)).collect();
    assert_eq!(found, [1, 20, 3, 4, 5, 6, 7, 8]);
    process.check();
}

#[test]
fn what_several_show_stays_until_nobody_uses_it() {
    let swapping = Swapping::new();
    let (mut one, object) = filled(&swapping, 4);
    let mut two = swapping.world.process();
    two.map_object(100, 4, RW, &object, true);
    two.load(101);
    assert_eq!(two.resident(), 4, "around the fault");
    page_out(&one, 0, 4);
    assert_eq!(places(&object), (4, 0), "the other may need them");
    let look = |process: &Process<'_>| {
        let mut effort = memwright::Effort {
            look: 100,
            wanted: 100,
            charged: false,
        };
        let end = process.space.reclaim(page(0).page(), &mut effort);
        assert_eq!(end, None);
        100 - effort.wanted
    };
    assert_eq!(look(&two), 0, "the other used what this one did not");
    // The scan of the second process has cleared the accessed bits in the entries of both processes. Only page 1 is
    // accessed again.
    two.load(101);
    assert_eq!(look(&one), 3);
    assert_eq!(
        (places(&object), one.resident(), two.resident()),
        ((1, 3), 1, 1)
    );
    assert_eq!(two.store(100, 7), Ok(vec![IN]));
    assert_eq!(one.load_with(0), Ok((7, vec![FILE])));
    assert_eq!(swapping.world.frames.used_by(FrameKind::Object), 2);
    one.check();
    two.check();
}

#[test]
fn the_scan_of_one_process_ages_the_entries_of_all() {
    let swapping = Swapping::new();
    let (one, object) = filled(&swapping, 4);
    let mut others = [swapping.world.process(), swapping.world.process()];
    for (number, other) in others.iter_mut().enumerate() {
        other.map_object(100 * (number as u64 + 1), 4, RW, &object, true);
        for index in 0..4 {
            other.load(100 * (number as u64 + 1) + index);
        }
    }
    // The first scan finds the accesses by this process, and the second scan those by the others. The third scan finds
    // none, so it reclaims.
    for _ in 0..3 {
        assert_eq!(places(&object), (4, 0));
        let mut effort = memwright::Effort {
            look: 100,
            wanted: 100,
            charged: false,
        };
        let end = one.space.reclaim(page(0).page(), &mut effort);
        assert_eq!(end, None);
    }
    assert_eq!(places(&object), (0, 4));
}

#[test]
fn pages_that_are_used_are_passed_over() {
    let swapping = Swapping::new();
    let (mut process, object) = filled(&swapping, 6);
    let mut effort = memwright::Effort {
        look: 100,
        wanted: 100,
        charged: false,
    };
    let space = &process.space;
    assert_eq!(space.reclaim(page(0).page(), &mut effort), None);
    assert_eq!((effort.look, effort.wanted), (94, 100));
    process.load(3);
    let space = &process.space;
    assert_eq!(space.reclaim(page(0).page(), &mut effort), None);
    assert_eq!((effort.look, effort.wanted), (88, 95));
    assert_eq!(places(&object), (1, 5));
    // When the scan budget is used up, the scan returns the page at which to continue.
    for index in 0..6 {
        process.load(index);
    }
    let mut effort = memwright::Effort {
        look: 4,
        wanted: 100,
        charged: false,
    };
    let space = &process.space;
    let next = space.reclaim(page(0).page(), &mut effort);
    assert_eq!(next, Some(page(4).page()));
}

#[test]
fn locked_and_pinned_memory_stays() {
    let swapping = Swapping::new();
    let (one, object) = filled(&swapping, 3);
    let two = swapping.world.process();
    two.map_object(50, 1, R, &object, true);
    two.space.residency().lock(page(50), PAGE, true).unwrap();
    assert_eq!(two.resident(), 0, "on fault alone");
    let pinned = one.space.pin(page(1)).unwrap().into_raw();
    page_out(&one, 0, 3);
    assert_eq!(places(&object), (2, 1));
    swapping.world.frames.unpin(pinned);
    drop(swapping.world.frames.adopt(pinned));
    page_out(&one, 0, 3);
    assert_eq!(places(&object), (1, 2));
    let identity = ObjectIdentity::default();
    let memory = swapping.world.memory.clone();
    let staying = Arc::new(Shmem::new(memory, PAGE, identity).unwrap().staying());
    let mut process = swapping.world.process();
    process.map_object(0, 1, RW, &staying, true);
    process.store(0, 1).unwrap();
    page_out(&process, 0, 1);
    assert_eq!(places(&staying), (1, 0));
    let locked = process.space.residency().lock(page(0), PAGE, false);
    locked.unwrap();
    assert!(
        process
            .space
            .advise(page(0), PAGE, Advice::PageOut)
            .is_err()
    );
}

#[test]
fn what_is_cut_off_takes_its_slot_along() {
    let swapping = Swapping::new();
    let (mut process, object) = filled(&swapping, 8);
    object.write_at(2 * PAGE + 2000, &[9; 100]).unwrap();
    object.write_at(6 * PAGE + 10, &[9; 100]).unwrap();
    page_out(&process, 0, 8);
    object.punch(3 * PAGE, 5 * PAGE).unwrap();
    assert_eq!((places(&object), swapping.slots()), ((0, 6), 6));
    // The pages at the edges of the hole are zeroed in part, so they are swapped in first.
    object.punch(2 * PAGE + 1000, 6 * PAGE + 50).unwrap();
    assert_eq!((places(&object), swapping.slots()), ((2, 3), 3));
    let mut bytes = [1; 2];
    object.read_at(2 * PAGE + 2000, &mut bytes).unwrap();
    assert_eq!((byte(&object, 2), bytes), (Ok(3), [0, 0]));
    object.read_at(6 * PAGE + 49, &mut bytes).unwrap();
    assert_eq!((byte(&object, 6), bytes), (Ok(0), [0, 9]));
    assert_eq!(process.load(5), 0);
    page_out(&process, 0, 8);
    object.set_size(PAGE + 1).unwrap();
    assert_eq!((places(&object), swapping.slots()), ((1, 1), 1));
    object.set_size(8 * PAGE).unwrap();
    let mut bytes = [1; 2];
    object.read_at(PAGE, &mut bytes).unwrap();
    assert_eq!(bytes, [2, 0]);
    assert_eq!((process.load(0), process.load(6)), (1, 0));
    page_out(&process, 0, 8);
    assert_ne!(swapping.slots(), 0);
    drop(process);
    drop(object);
    assert_eq!(swapping.slots(), 0);
}

#[test]
fn a_device_that_fails_loses_no_page_and_tells_who_needs_it() {
    let swapping = Swapping::new();
    let (mut process, object) = filled(&swapping, 8);
    swapping.device.fail_each(4);
    let account = swapping.world.counted(|| page_out(&process, 0, 8));
    let rows = [Row::SwapOut, Row::SwapRefused].map(|row| account.count(row));
    assert_eq!((rows, places(&object)), ([6, 2], (2, 6)));
    swapping.device.fail_each(1);
    assert_eq!(process.load_with(0), Err(FaultError::Io));
    assert_eq!(byte(&object, 0), Err(ObjectError::Io));
    assert_eq!(object.write_at(1, &[1]), Err(ObjectError::Io));
    assert_eq!(object.set_size(1), Err(ObjectError::Io));
    assert_eq!(object.punch(1, 2), Err(ObjectError::Io));
    assert_eq!(object.size(), 8 * PAGE);
    // A punched page is zero and need not be read from the device. The read failures therefore do not affect it.
    object.punch(0, PAGE).unwrap();
    assert_eq!(process.load(0), 0);
    swapping.device.fail_each(0);
    for index in 1..8 {
        assert_eq!(process.load(index), index as u8 + 1);
    }
    // If no frame is free, the page stays in swap.
    page_out(&process, 0, 8);
    let frames = &swapping.world.frames;
    frames.fail_after(Some(0));
    assert_eq!(process.load_with(1), Err(FaultError::OutOfMemory));
    frames.fail_after(Some(0));
    assert_eq!(byte(&object, 2), Err(ObjectError::OutOfMemory));
    frames.fail_after(None);
    assert_eq!((process.load(1), byte(&object, 2)), (2, Ok(3)));
}

#[test]
fn a_full_device_takes_no_more() {
    let swapping = Swapping::with_slots(3);
    let (mut process, object) = filled(&swapping, 8);
    page_out(&process, 0, 8);
    assert_eq!(places(&object), (5, 3));
    for index in 0..8 {
        assert_eq!(process.load(index), index as u8 + 1);
    }
}

#[test]
fn transfers_end_in_any_order() {
    let swapping = Swapping::with_slots(128);
    for depth in [1, 3, 64] {
        swapping.device.defer(depth);
        let (mut process, object) = filled(&swapping, 70);
        page_out(&process, 0, 70);
        assert_eq!(places(&object), (0, 70));
        for index in 0..70 {
            assert_eq!(process.load(index), index as u8 + 1);
        }
    }
}

#[test]
fn a_page_that_somebody_asks_for_while_it_is_written_stays() {
    let swapping = Swapping::new();
    let (mut process, object) = filled(&swapping, 4);
    let write = object.clone();
    // A page is stored to while it is written to the device. The device then has the old contents, and the newer page
    // stays in memory.
    swapping.device.before_write(move || {
        write.write_at(2 * PAGE, &[50]).unwrap();
    });
    page_out(&process, 0, 4);
    swapping.device.before_write(|| {});
    assert_eq!((places(&object), swapping.slots()), ((1, 3), 3));
    assert_eq!((process.load(2), process.load(3)), (50, 4));
    // A page also stays while a caller holds a reference to its frame.
    let held = object.frame_for(2, false).unwrap().unwrap();
    let held = swapping.world.frames.adopt(held);
    page_out(&process, 2, 1);
    drop(held);
    assert_eq!(object.pages_in_swap(), 2);
    page_out(&process, 0, 4);
    assert_eq!(places(&object), (0, 4));
    // A page that is truncated while it is written to swap is freed.
    process.load(2);
    let cut = object.clone();
    swapping.device.before_write(move || {
        cut.punch(2 * PAGE, 3 * PAGE).unwrap();
    });
    page_out(&process, 2, 1);
    swapping.device.before_write(|| {});
    assert_eq!((process.load(2), process.load(1)), (0, 2));
}

#[test]
fn who_reads_a_page_that_another_read_meanwhile_has_the_same_frame() {
    let swapping = Swapping::new();
    let (mut process, object) = filled(&swapping, 2);
    page_out(&process, 0, 2);
    // A second CPU swaps the page in and writes to it before the first CPU has completed its read.
    let other = object.clone();
    swapping.device.after_read(move || {
        other.write_at(0, &[77]).unwrap();
    });
    assert_eq!(process.load_with(0), Ok((77, vec![IN])));
    assert_eq!(swapping.world.frames.used_by(FrameKind::Object), 1);
    assert_eq!(swapping.slots(), 1);
    // The page is truncated before the first CPU has completed its read, and the page's slot is allocated for another
    // page.
    let (second, also) = filled(&swapping, 1);
    let cut = object.clone();
    let free = move || cut.punch(PAGE, 2 * PAGE).unwrap();
    swapping.device.after_read(free);
    assert_eq!(byte(&object, 1), Ok(0));
    page_out(&second, 0, 1);
    assert_eq!(byte(&also, 0), Ok(1));
    assert_eq!(process.load(1), 0);
}

#[test]
fn a_slot_that_is_read_is_given_to_no_other_page() {
    let swapping = Swapping::with_slots(1);
    let (process, object) = filled(&swapping, 1);
    page_out(&process, 0, 1);
    // A concurrent truncation frees the page during the read. The page that replaces it is swapped out before the read
    // has ended.
    let (other, memory) = (object.clone(), swapping.world.memory.clone());
    swapping.device.after_read(move || {
        other.punch(0, PAGE).unwrap();
        other.write_at(0, &[77]).unwrap();
        let mut pages = Cluster::default();
        pages.insert(0);
        let leaving = Leaving {
            pages,
            unused: false,
            memcg: Memcg::NOBODY,
        };
        let left = other.send_out(&memory, &leaving);
        assert!(left.pages == 0 && left.is_full, "{left:?}");
    });
    assert_eq!(byte(&object, 0), Ok(77));
    assert_eq!((places(&object), swapping.slots()), ((1, 0), 0));
}

#[test]
fn protection_outlives_the_page() {
    const REFUSED: FaultError = FaultError::Watched(WatchedFault::WriteProtected);
    let swapping = Swapping::new();
    let (mut process, object) = filled(&swapping, 4);
    let mut other = swapping.world.process();
    let watch = watch(false, false);
    let modes = WatchModes::WRITE_PROTECT;
    let space = &process.space;
    space
        .uffd()
        .watch(page(0), 4 * PAGE, &watch, modes)
        .unwrap();
    space.uffd().write_protect(page(0), 2 * PAGE, true).unwrap();
    page_out(&process, 0, 4);
    assert_eq!(places(&object), (0, 4));
    let space = &process.space;
    space.uffd().write_protect(page(2), PAGE, true).unwrap();
    space.uffd().write_protect(page(1), PAGE, false).unwrap();
    assert_eq!(process.load_with(0), Ok((1, vec![IN])));
    assert_eq!(process.store(0, 9), Err(REFUSED));
    assert_eq!(process.store(1, 9), Ok(vec![IN]));
    // The page is swapped in before the userfaultfd is notified of the fault.
    assert_eq!(process.store(2, 9), Err(REFUSED));
    assert_eq!(places(&object), (3, 1));
    assert_eq!(process.store(3, 9), Ok(vec![IN]));
    // A process that maps the page without a userfaultfd can store to it.
    other.map_object(0, 4, RW, &object, true);
    assert_eq!(other.store(2, 8), Ok(vec![FILE]));
    let space = &process.space;
    space
        .uffd()
        .write_protect(page(0), 4 * PAGE, false)
        .unwrap();
    assert_eq!(process.load(2), 8);
    process.check();
}

/// Only the entry records that the page was stored to since soft-dirty was cleared. The page is therefore not reclaimed
/// before soft-dirty is cleared again.
#[cfg(feature = "tracking")]
#[test]
fn what_counts_as_soft_dirty_stays() {
    let swapping = Swapping::new();
    let (mut process, object) = filled(&swapping, 4);
    let soft_dirty = |process: &Process<'_>, index| {
        let entry = process.space.table().look(page_range(index)).entry().entry;
        let bits = entry.present().map(|shown| shown.bits);
        bits.is_some_and(|bits| bits.contains(Bits::SOFT_DIRTY))
    };
    process.space.tracking().clear_soft_dirty();
    process.store(1, 9).unwrap();
    page_out(&process, 0, 4);
    assert_eq!(places(&object), (1, 3));
    assert!(soft_dirty(&process, 1));
    process.space.tracking().clear_soft_dirty();
    page_out(&process, 0, 4);
    assert_eq!(places(&object), (0, 4));
    assert_eq!(process.load_with(1), Ok((9, vec![IN])));
    assert!(!soft_dirty(&process, 1));
    assert_eq!(process.store(1, 10), Ok(vec![FaultKind::WriteOnly]));
    assert!(soft_dirty(&process, 1));
}

fn page_range(index: u64) -> PageRange {
    PageRange::single(page(index).page())
}

#[test]
fn a_page_in_swap_is_not_missing() {
    let swapping = Swapping::new();
    let object = swapping.world.shmem(4);
    object.write_at(0, &[1; 2 * PAGE as usize]).unwrap();
    let mut process = swapping.world.process();
    process.map_object(0, 4, RW, &object, true);
    process.load(0);
    process.load(1);
    let watch = watch(false, false);
    let both = WatchModes::MISSING;
    let space = &process.space;
    space.uffd().watch(page(0), 4 * PAGE, &watch, both).unwrap();
    page_out(&process, 0, 4);
    assert_eq!(places(&object), (0, 2));
    assert_eq!(process.load_with(0), Ok((1, vec![IN])));
    let missing = FaultError::Watched(WatchedFault::Missing);
    assert_eq!(process.load_with(2), Err(missing));
    let bytes = [5; PAGE as usize];
    let fill = |process: &Process<'_>, index, fill: Fill<'_>| {
        process.space.uffd().fill(page(index).page(), fill, false)
    };
    assert_eq!(
        fill(&process, 1, Fill::Bytes(&bytes)),
        Err(FillError::Exists)
    );
    process
        .space
        .uffd()
        .unwatch(page(0), 4 * PAGE, &watch)
        .unwrap();
    let minor = WatchModes::MINOR;
    let space = &process.space;
    space
        .uffd()
        .watch(page(0), 4 * PAGE, &watch, minor)
        .unwrap();
    let told = FaultError::Watched(WatchedFault::Minor);
    assert_eq!(process.load_with(1), Err(told));
    assert_eq!(fill(&process, 1, Fill::Object), Ok(()));
    assert_eq!(process.load_with(1), Ok((1, vec![])));
    assert_eq!(fill(&process, 3, Fill::Object), Err(FillError::NotThere));
    page_out(&process, 1, 1);
    swapping.device.fail_each(1);
    assert_eq!(fill(&process, 1, Fill::Object), Err(FillError::Unavailable));
    swapping.device.fail_each(0);
}

#[test]
fn private_copies_are_made_of_pages_that_come_back() {
    let swapping = Swapping::new();
    let (mut process, object) = filled(&swapping, 3);
    let mut private = swapping.world.process();
    private.map_object(0, 3, RW, &object, false);
    page_out(&process, 0, 3);
    assert_eq!(private.store(0, 9), Ok(vec![IN]));
    assert_eq!(private.load_with(1), Ok((2, vec![IN])));
    let mut child = private.fork();
    assert_eq!(private.store(1, 8), Ok(vec![FaultKind::Copy]));
    assert_eq!((private.load(0), private.load(1)), (9, 8));
    assert_eq!((process.load(0), process.load(1)), (1, 2));
    assert_eq!((child.load(0), child.load(1), child.load(2)), (9, 2, 3));
    // The private copy is swapped out as a page of the process, and the original page as a page of the object.
    page_out(&private, 0, 3);
    assert_eq!(private.space.usage().swapped_pages(), 1);
    assert_eq!(
        (private.load(0), private.load(1), private.load(2)),
        (9, 8, 3)
    );
}

#[test]
fn a_huge_page_goes_in_parts() {
    const HUGE: u64 = 512;
    // The index of the first page that is aligned to 2 MiB.
    const FIRST: u64 = 4;
    let swapping = Swapping::with_slots(600);
    let world = &swapping.world;
    world.memory.huge().set_shared_mode(SharedMode::Always);
    let object = Shmem::new(world.memory.clone(), HUGE * PAGE, ObjectIdentity::default());
    let object = Arc::new(object.unwrap().with_huge_pages(SharedSetting::File));
    let mut process = world.process();
    process.map_object(FIRST, HUGE, RW, &object, true);
    for index in [0, 1, 99, 100, 511] {
        process.store(FIRST + index, index as u8).unwrap();
    }
    assert_eq!(world.frames.object_folios(), (1, 1));
    page_out(&process, FIRST, 100);
    assert_eq!((places(&object), swapping.slots()), ((412, 100), 100));
    assert_eq!(world.frames.object_folios(), (0, 0));
    page_out(&process, FIRST, HUGE);
    assert_eq!(places(&object), (0, 512));
    for index in [0, 1, 99, 100, 511] {
        assert_eq!(process.load(FIRST + index), index as u8);
    }
    // A collapse swaps in all pages that are in swap, unless their number exceeds the limit.
    let limits = |swapped| CollapseLimits {
        missing: 0,
        swapped,
    };
    let refused = memwright::object::CollapseError::NotEligible;
    assert_eq!(object.collapse(0, limits(64)), Err(refused));
    swapping.device.fail_each(1);
    assert_eq!(object.collapse(0, limits(HUGE)), Err(refused));
    swapping.device.fail_each(0);
    assert_eq!(object.collapse(0, limits(HUGE)), Ok(()));
    assert_eq!((places(&object), swapping.slots()), ((512, 0), 0));
    for index in [0, 1, 99, 100, 511] {
        assert_eq!(process.load(FIRST + index), index as u8);
    }
    assert_eq!(world.frames.object_folios().0, 1);
    process.check();
}

#[test]
fn a_device_is_taken_away_when_what_objects_have_there_is_back() {
    let swapping = Swapping::new();
    let memory = &swapping.world.memory;
    let (one, first) = filled(&swapping, 5);
    let (two, second) = filled(&swapping, 5);
    let (three, gone) = filled(&swapping, 5);
    for process in [&one, &two, &three] {
        page_out(process, 0, 5);
    }
    drop(three);
    drop(gone);
    // No process maps the objects any more.
    drop(one);
    assert_eq!(swapping.slots(), 10);
    assert!(memory.close_swap(0, true));
    assert!(!memory.remove_swap(0));
    let mut place = ObjectPlace::default();
    assert_eq!(memory.bring_objects_back(0, &mut place, 3), Ok(false));
    assert_eq!((places(&first), places(&second)), ((3, 2), (0, 5)));
    assert_eq!(byte(&second, 0), Ok(1));
    // Two frames are free. They suffice for the first object, but not for the next page of the second object.
    swapping.world.frames.fail_after(Some(2));
    let failed = memory.bring_objects_back(0, &mut place, 100);
    assert_eq!(failed, Err(ObjectError::OutOfMemory));
    swapping.world.frames.fail_after(None);
    assert_eq!((places(&first), places(&second)), ((5, 0), (1, 4)));
    assert_eq!(
        memory.bring_objects_back(1, &mut place, 100),
        Ok(true),
        "of another"
    );
    let mut place = ObjectPlace::default();
    assert_eq!(memory.bring_objects_back(0, &mut place, 100), Ok(true));
    assert!(memory.remove_swap(0));
    for index in 0..5 {
        let expected = Ok(index as u8 + 1);
        assert_eq!(
            (byte(&first, index), byte(&second, index)),
            (expected, expected)
        );
    }
}

#[test]
fn another_cpu_that_shows_the_page_forgets_it_before_it_is_written() {
    let swapping = Swapping::new();
    let (mut process, object) = filled(&swapping, 4);
    let world = &swapping.world;
    let second = CpuId::new(1);
    let on_second = world.machine.run_on(second);
    let loaded = Loaded::new(process.space.clone());
    for index in 0..4 {
        world.machine.on(second).write(page(index), &[50]).unwrap();
    }
    drop(on_second);
    let machine = world.machine.clone();
    swapping.device.before_write(move || {
        for index in 0..4 {
            let stored = machine.on(second).write(page(index), &[51]);
            assert!(stored.is_err(), "a store to a page that left");
        }
    });
    page_out(&process, 0, 4);
    swapping.device.before_write(|| {});
    assert_eq!(places(&object), (0, 4));
    for index in 0..4 {
        assert_eq!(process.load(index), 50);
    }
    let idle = world.process();
    let on_second = world.machine.run_on(second);
    let (idle, _) = loaded.switch(&idle.space);
    idle.stop();
    drop(on_second);
}

#[test]
fn secret_memory_is_not_looked_at() {
    let swapping = Swapping::new();
    let (process, object) = filled(&swapping, 2);
    let secret = swapping.world.process();
    let request = memwright::MapRequest::object(object.clone(), 0, PAGE, RW, true)
        .at(memwright::Placement::Fixed(page(0)))
        .with(AreaFlags::SECRET);
    assert_eq!(secret.space.map(&request), Ok(page(0)));
    page_out(&process, 0, 2);
    assert_eq!(places(&object), (1, 1));
}
