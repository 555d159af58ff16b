//! Tests of pages that are swapped out and in: how many faults a load and a store take, to which process the pages are
//! exclusive, and how they are tracked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memwright::uffd::{WatchModes, WatchedFault};
use memwright::{
    Advice, Advised, AreaFlags, Effort, FaultError, FaultKind, Policy, RemapRequest, Row,
};
#[cfg(debug_assertions)]
use memwright::{DeviceError, Submission, SwapDevice, Ticket, Transfer};
use memwright_table::{Bits, CpuId, Entry, Loaded, Page};
#[cfg(debug_assertions)]
use memwright_table::{Frames, Machine};
use memwright_testkit::HostSwap;

use crate::world::{PAGE, Process, R, RW, World, page, watch};

const IN: FaultKind = FaultKind::SwapIn;
const CACHED: FaultKind = FaultKind::SwapCached;

/// A world with a swap device. When it is dropped, all slots of the device must be free.
pub struct Swapping {
    pub world: World,
    pub device: Arc<HostSwap>,
}

impl Swapping {
    pub fn new() -> Self {
        Self::with_slots(64)
    }

    pub fn with_slots(slots: u32) -> Self {
        let world = World::new();
        let device = Arc::new(HostSwap::new(slots));
        assert_eq!(world.memory.add_swap(device.clone(), 0), Ok(Some(0)));
        // Readahead is off, except in scenarios that test it.
        world.memory.policy().set("swapin-around", "off").unwrap();
        Self { world, device }
    }

    pub fn slots(&self) -> u64 {
        self.world.memory.swap().totals().1
    }

    fn cached(&self) -> u64 {
        self.world.memory.swap().cached_pages()
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!((self.slots(), self.device.kept()), (0, 0), "slots leaked");
            assert_eq!(self.cached(), 0, "copies in memory are miscounted");
        }
    }
}

/// Creates a process with `pages` pages, each containing its number plus one.
fn filled(swapping: &Swapping, pages: u64) -> Process<'_> {
    let mut process = swapping.world.process();
    process.map(0, pages, RW);
    for index in 0..pages {
        process.store(index, index as u8 + 1).unwrap();
    }
    process
}

pub fn page_out(process: &Process<'_>, first: u64, pages: u64) {
    let advised = process
        .space
        .advise(page(first), pages * PAGE, Advice::PageOut);
    advised.unwrap();
    process.check();
}

#[test]
fn a_page_read_back_is_written_without_a_fault_and_goes_out_again_for_nothing() {
    let swapping = Swapping::new();
    let mut process = filled(&swapping, 8);
    page_out(&process, 0, 8);
    assert_eq!(
        (process.resident(), process.space.usage().swapped_pages()),
        (0, 8)
    );
    for index in 0..8 {
        let byte = index as u8 + 1;
        assert_eq!(process.load_with(index), Ok((byte, vec![IN])));
    }
    assert_eq!(process.space.usage().swapped_pages(), 0);
    assert_eq!(swapping.cached(), 8);
    process.check();
    for index in 0..4 {
        assert_eq!(process.store(index, 100), Ok(vec![]));
    }
    let account = swapping.world.counted(|| page_out(&process, 0, 8));
    let rows = [Row::SwapOut, Row::SwapWritten].map(|row| account.count(row));
    assert_eq!(rows, [8, 4], "what nobody wrote is there already");
    assert_eq!((swapping.slots(), swapping.cached()), (8, 0));
    for index in 0..8 {
        let byte = if index < 4 { 100 } else { index as u8 + 1 };
        assert_eq!(process.load(index), byte);
    }
}

#[test]
fn a_store_brings_a_page_back_and_frees_its_slot() {
    let swapping = Swapping::new();
    let mut process = filled(&swapping, 4);
    page_out(&process, 0, 4);
    assert_eq!(process.store(1, 9), Ok(vec![IN]));
    assert_eq!(swapping.slots(), 3);
    assert_eq!(process.load_with(1), Ok((9, vec![])));
    // Pages in swap that are unmapped, discarded or replaced free their slots.
    process.unmap(0, 1);
    assert_eq!(swapping.slots(), 2);
    let drop = Advice::DontNeed;
    process.space.advise(page(2), PAGE, drop).unwrap();
    assert_eq!((swapping.slots(), process.load(2)), (1, 0));
}

#[test]
fn neighbours_come_back_with_the_page_as_if_they_had_been_loaded() {
    let swapping = Swapping::new();
    let policy: &Policy = swapping.world.memory.policy();
    policy.set("swapin-around", "on").unwrap();
    let mut process = filled(&swapping, 40);
    page_out(&process, 0, 40);
    let mut major = 0;
    for index in 0..40 {
        let (byte, kinds) = process.load_with(index).unwrap();
        assert_eq!(byte, index as u8 + 1);
        major += kinds.len();
    }
    // There are four faults. Readahead first reads 4 pages, up to the end of a page table, then 16, 16 and the
    // remaining ones.
    assert_eq!(major, 4);
    for index in 0..40 {
        assert_eq!(process.store(index, 1), Ok(vec![]));
    }
    // Readahead reads only pages with consecutive slots, so each page is swapped in alone here.
    page_out(&process, 4, 1);
    page_out(&process, 6, 1);
    page_out(&process, 5, 1);
    process.load(4);
    assert_eq!(process.load_with(5), Ok((1, vec![IN])));
}

#[test]
fn the_older_way_leaves_the_store_a_fault() {
    let swapping = Swapping::new();
    let policy: &Policy = swapping.world.memory.policy();
    policy.set("swapin-reuse", "write-only").unwrap();
    let mut process = filled(&swapping, 2);
    page_out(&process, 0, 2);
    assert_eq!(process.load_with(0), Ok((1, vec![IN])));
    assert_eq!(process.store(0, 5), Ok(vec![FaultKind::WriteOnly]));
    assert_eq!(process.store(1, 6), Ok(vec![IN]));
}

#[test]
fn rights_are_those_of_the_area_when_the_page_comes_back() {
    let swapping = Swapping::new();
    let mut process = filled(&swapping, 3);
    page_out(&process, 0, 3);
    process.protect(0, 2, R);
    assert_eq!(process.store(0, 5), Err(FaultError::Denied));
    assert_eq!(process.load_with(0), Ok((1, vec![IN])));
    assert_eq!(process.store(0, 5), Err(FaultError::Denied));
    process.protect(0, 3, RW);
    assert_eq!(process.store(0, 5), Ok(vec![]));
    assert_eq!(process.store(1, 5), Ok(vec![IN]));
}

#[test]
fn a_page_shared_by_fork_comes_back_once_and_is_nobodys_own() {
    let swapping = Swapping::new();
    let mut parent = filled(&swapping, 3);
    page_out(&parent, 0, 3);
    let slot = |process: &Process<'_>, index| match process.space.entry(page(index)) {
        Entry::Swapped(swapped) => swapped.slot,
        other => panic!("{other:?} is not in swap"),
    };
    let share = |slot| swapping.world.memory.swap().shares(slot, 1, 4096);
    let first = slot(&parent, 0);
    assert_eq!(share(first), 4096);
    let mut child = parent.fork();
    assert_eq!(
        (child.space.usage().swapped_pages(), swapping.slots()),
        (3, 3)
    );
    assert_eq!((share(first), swapping.cached()), (2048, 0));
    assert_eq!(parent.load_with(0), Ok((1, vec![IN])));
    assert_eq!((share(first), swapping.cached()), (4096, 1));
    assert_eq!(child.load_with(0), Ok((1, vec![CACHED])));
    assert_eq!(child.store(0, 7), Ok(vec![FaultKind::Copy]));
    assert_eq!(parent.load(0), 1);
    assert_eq!(parent.store(0, 8), Ok(vec![FaultKind::WriteOnly]));
    // The child's store swaps in a private copy. Afterwards only the parent's entry names the slot.
    assert_eq!(child.store(1, 9), Ok(vec![IN]));
    assert_eq!(parent.load_with(1), Ok((2, vec![IN])));
    assert_eq!(parent.store(1, 3), Ok(vec![]));
    assert_eq!((parent.load(1), child.load(1)), (3, 9));
    // The child's store finds the page in the swap cache, because the parent maps it.
    assert_eq!(parent.load_with(2), Ok((3, vec![IN])));
    assert_eq!(child.store(2, 4), Ok(vec![CACHED]));
    assert_eq!((parent.load(2), child.load(2)), (3, 4));
    parent.check();
    child.check();
}

#[test]
fn the_last_owner_of_a_page_has_it_alone_again() {
    let swapping = Swapping::new();
    let mut parent = filled(&swapping, 2);
    page_out(&parent, 0, 2);
    let mut child = parent.fork();
    assert_eq!(child.load_with(0), Ok((1, vec![IN])));
    drop(child);
    assert_eq!(parent.load_with(0), Ok((1, vec![CACHED])));
    assert_eq!(parent.store(0, 2), Ok(vec![]));
    assert_eq!(parent.load_with(1), Ok((2, vec![IN])));
    assert_eq!(parent.store(1, 3), Ok(vec![]));
    drop(parent);
    assert_eq!(swapping.slots(), 0);
}

#[test]
fn a_page_that_several_show_stays() {
    let swapping = Swapping::new();
    let mut parent = filled(&swapping, 2);
    let child = parent.fork();
    page_out(&parent, 0, 2);
    assert_eq!(swapping.slots(), 0);
    drop(child);
    page_out(&parent, 0, 2);
    assert_eq!(swapping.slots(), 2);
    assert_eq!(parent.load(1), 2);
}

#[test]
fn protection_goes_out_and_comes_back_with_the_page() {
    const REFUSED: FaultError = FaultError::Watched(WatchedFault::WriteProtected);
    let swapping = Swapping::new();
    let mut process = filled(&swapping, 5);
    let watch = watch(false, false);
    let modes = WatchModes::WRITE_PROTECT;
    process
        .space
        .uffd()
        .watch(page(0), 5 * PAGE, &watch, modes)
        .unwrap();
    let protect = |process: &Process<'_>, first, pages, on| {
        let space = &process.space;
        space.uffd().write_protect(page(first), pages * PAGE, on)
    };
    protect(&process, 0, 2, true).unwrap();
    page_out(&process, 0, 5);
    // While the pages are in swap, write protection is added to two of them and removed from another.
    protect(&process, 2, 2, true).unwrap();
    protect(&process, 1, 1, false).unwrap();
    assert_eq!(process.load_with(0), Ok((1, vec![IN])));
    assert_eq!(process.store(0, 9), Err(REFUSED));
    assert_eq!(process.load_with(1), Ok((2, vec![IN])));
    assert_eq!(process.store(1, 9), Ok(vec![]));
    assert_eq!(process.store(2, 9), Err(REFUSED), "and it is in memory now");
    assert_eq!(process.load_with(2), Ok((3, vec![])));
    assert_eq!(process.load_with(3), Ok((4, vec![IN])));
    assert_eq!(process.store(3, 9), Err(REFUSED));
    assert_eq!(process.store(4, 9), Ok(vec![IN]));
    protect(&process, 0, 5, false).unwrap();
    assert_eq!(process.store(0, 9), Ok(vec![]));
}

#[cfg(feature = "tracking")]
#[test]
fn what_was_written_is_known_over_swap() {
    for (track, faults) in [("dirty-bit", 0), ("fault", 1)] {
        let swapping = Swapping::new();
        swapping.world.memory.policy().set("track", track).unwrap();
        let mut process = filled(&swapping, 4);
        process.space.tracking().clear_soft_dirty();
        process.store(1, 9).unwrap();
        page_out(&process, 0, 4);
        let soft = |process: &Process<'_>, index| {
            let bits = match process.space.entry(page(index)) {
                Entry::Present(page) => page.bits,
                Entry::Swapped(page) => page.bits,
                Entry::Empty | Entry::Marker(_) | Entry::Migrating(_) => Bits::empty(),
            };
            let found = process
                .space
                .find(page(index), |area| area.is_soft_dirty(bits));
            found.unwrap_or_default()
        };
        assert_eq!([0, 1].map(|index| soft(&process, index)), [false, true]);
        process.load(0);
        process.load(1);
        assert_eq!([0, 1].map(|index| soft(&process, index)), [false, true]);
        assert_eq!(process.store(0, 3).unwrap().len(), faults, "{track}");
        assert_eq!(process.store(1, 3), Ok(vec![]));
        assert!(soft(&process, 0));
        // Soft-dirty is cleared while the pages are in swap.
        page_out(&process, 0, 2);
        process.space.tracking().clear_soft_dirty();
        process.load(0);
        assert!(!soft(&process, 0));
        assert_eq!(process.store(2, 3), Ok(vec![IN]));
        assert!(soft(&process, 2));
    }
}

#[test]
fn a_page_moves_while_it_is_out() {
    let swapping = Swapping::new();
    let mut process = filled(&swapping, 2);
    page_out(&process, 0, 2);
    let request = RemapRequest {
        old: page(0),
        old_length: 2 * PAGE,
        new_length: 2 * PAGE,
        may_move: true,
        fixed: Some(page(600)),
        dont_unmap: false,
    };
    process.space.remap(request).unwrap();
    assert_eq!(process.load_with(601), Ok((2, vec![IN])));
    assert_eq!(process.store(600, 4), Ok(vec![IN]));
}

#[test]
fn a_device_that_fails_loses_no_page() {
    let swapping = Swapping::new();
    let mut process = filled(&swapping, 8);
    swapping.device.fail_each(3);
    let account = swapping.world.counted(|| page_out(&process, 0, 8));
    let rows = [Row::SwapOut, Row::SwapRefused].map(|row| account.count(row));
    assert_eq!((rows, process.resident()), ([6, 2], 2));
    swapping.device.fail_each(2);
    let mut failed = 0;
    for index in 0..8 {
        match process.load_with(index) {
            Ok((byte, _)) => assert_eq!(byte, index as u8 + 1),
            Err(error) => {
                assert_eq!(error, FaultError::Io);
                failed += 1;
            }
        }
    }
    assert_eq!(failed, 3);
    swapping.device.fail_each(0);
    for index in 0..8 {
        assert_eq!(process.load(index), index as u8 + 1);
    }
}

#[test]
fn transfers_end_in_any_order_and_wait_for_room() {
    for depth in [1, 3, 64] {
        let swapping = Swapping::new();
        swapping.device.defer(depth);
        let policy = swapping.world.memory.policy();
        policy.set("swapin-around", "on").unwrap();
        let mut process = filled(&swapping, 40);
        swapping.device.fail_each(7);
        let account = swapping.world.counted(|| page_out(&process, 0, 40));
        let rows = [Row::SwapOut, Row::SwapWritten, Row::SwapRefused];
        assert_eq!(rows.map(|row| account.count(row)), [35, 35, 5]);
        let mut failed = 0;
        let account = swapping.world.counted(|| {
            for index in 0..40 {
                match process.load_with(index) {
                    Ok((byte, _)) => assert_eq!(byte, index as u8 + 1),
                    Err(error) => {
                        assert_eq!(error, FaultError::Io);
                        failed += 1;
                    }
                }
            }
        });
        // Reads of readahead fail too. These failures are counted, but not reported to the program.
        let rows = [Row::SwapIn, Row::SwapFailed].map(|row| account.count(row));
        // If a device takes only one transfer at a time, no pages are read ahead.
        let ahead = u64::from(depth > 1);
        assert!(
            rows[0] > 10 && rows[1] >= failed + ahead,
            "{rows:?} {failed}"
        );
        swapping.device.fail_each(0);
        for index in 0..40 {
            assert_eq!(process.load(index), index as u8 + 1);
        }
        process.check();
    }
}

#[test]
fn a_full_device_takes_no_more() {
    let swapping = Swapping::with_slots(3);
    let mut process = filled(&swapping, 8);
    page_out(&process, 0, 8);
    assert_eq!((swapping.slots(), process.resident()), (3, 5));
    for index in 0..8 {
        assert_eq!(process.load(index), index as u8 + 1);
    }
}

#[test]
fn locked_memory_stays() {
    let swapping = Swapping::new();
    let mut process = swapping.world.process();
    process.map_with(0, 2, RW, AreaFlags::LOCKED);
    process.store(0, 1).unwrap();
    let out = process.space.advise(page(0), 2 * PAGE, Advice::PageOut);
    assert!(out.is_err());
    assert_eq!(swapping.slots(), 0);
}

#[test]
fn what_another_cpu_stores_until_the_flush_goes_out_too() {
    let swapping = Swapping::new();
    let mut process = filled(&swapping, 4);
    let world = &swapping.world;
    let second = CpuId::new(1);
    let on_second = world.machine.run_on(second);
    let loaded = Loaded::new(process.space.clone());
    for index in 0..4 {
        world.machine.on(second).write(page(index), &[50]).unwrap();
    }
    drop(on_second);
    // Before each write of a page by the device, the other CPU tries to store to all pages.
    let (stored, machine) = (Arc::new(AtomicU64::new(0)), world.machine.clone());
    let count = stored.clone();
    swapping.device.before_write(move || {
        for index in 0..4 {
            let done = machine.on(second).write(page(index), &[51]).is_ok();
            count.fetch_add(u64::from(done), Ordering::Relaxed);
        }
    });
    page_out(&process, 0, 4);
    assert_eq!(
        stored.load(Ordering::Relaxed),
        0,
        "a store to a page that left"
    );
    for index in 0..4 {
        assert_eq!(process.load(index), 50);
    }
    let idle = swapping.world.process();
    let on_second = world.machine.run_on(second);
    let (idle, _) = loaded.switch(&idle.space);
    idle.stop();
    drop(on_second);
}

#[test]
fn contents_that_may_be_lost_go_unless_they_are_written_again() {
    let swapping = Swapping::new();
    let mut process = filled(&swapping, 6);
    page_out(&process, 5, 1);
    process
        .space
        .advise(page(0), 6 * PAGE, Advice::Free)
        .unwrap();
    assert_eq!(swapping.slots(), 0, "what is in swap goes at once");
    assert_eq!(process.load(1), 2);
    assert_eq!(process.store(2, 9), Ok(vec![]));
    let child = process.fork();
    drop(child);
    assert_eq!(process.store(3, 9), Ok(vec![FaultKind::WriteOnly]));
    let account = swapping.world.counted(|| page_out(&process, 0, 6));
    let rows = [Row::SwapOut, Row::LazyDropped].map(|row| account.count(row));
    assert_eq!(rows, [2, 3]);
    let found: Vec<u8> = (0..6).map(|index| process.load(index)).collect();
    assert_eq!(found, [0, 0, 9, 9, 0, 0]);
}

#[test]
fn a_store_after_madv_free_is_kept_by_parent_and_child() {
    let swapping = Swapping::new();
    let written = || {
        let process = filled(&swapping, 3);
        let freed = process.space.advise(page(0), 3 * PAGE, Advice::Free);
        freed.unwrap();
        process
    };
    // The frame stays in the swap cache while the child maps it. The parent then maps it again by a clean entry. But
    // page 1 was written, so it must not be discarded.
    let mut parent = written();
    assert_eq!(parent.store(1, 9), Ok(vec![]));
    let child = parent.fork();
    reclaim_unused(&parent);
    drop(child);
    assert_eq!(parent.load_with(1), Ok((9, vec![CACHED])));
    page_out(&parent, 0, 3);
    assert_eq!(parent.load(1), 9);
    // The parent exits before the reclaim, so the child is the last process that maps the frame.
    let mut parent = written();
    assert_eq!(parent.store(1, 9), Ok(vec![]));
    let mut child = parent.fork();
    drop(parent);
    page_out(&child, 0, 3);
    assert_eq!([0, 1, 2].map(|index| child.load(index)), [0, 9, 0]);
}

#[test]
fn what_is_watched_may_be_lost_too_and_its_protection_with_it() {
    const REFUSED: FaultError = FaultError::Watched(WatchedFault::WriteProtected);
    let swapping = Swapping::new();
    let mut process = filled(&swapping, 3);
    page_out(&process, 2, 1);
    let watch = watch(false, false);
    let modes = WatchModes::WRITE_PROTECT;
    process
        .space
        .uffd()
        .watch(page(0), 3 * PAGE, &watch, modes)
        .unwrap();
    let protected = process.space.uffd().write_protect(page(0), 3 * PAGE, true);
    protected.unwrap();
    let freed = process.space.advise(page(1), 2 * PAGE, Advice::Free);
    freed.unwrap();
    assert_eq!(swapping.slots(), 0, "what is in swap goes at once");
    assert_eq!(
        process.store(1, 9).err(),
        Some(REFUSED),
        "it is there still"
    );
    page_out(&process, 1, 1);
    assert_eq!(process.load(1), 0);
    assert_eq!(process.store(0, 9).err(), Some(REFUSED));
    for index in 1..3 {
        assert!(process.store(index, 9).is_ok(), "{index}");
    }
}

#[test]
fn what_is_not_used_between_two_looks_goes() {
    let swapping = Swapping::new();
    let mut process = filled(&swapping, 6);
    let reclaim = |process: &Process<'_>| {
        let mut effort = memwright::Effort {
            look: 100,
            wanted: 100,
            charged: false,
        };
        assert_eq!(process.space.reclaim(page(0).page(), &mut effort), None);
        process.check();
        100 - effort.wanted
    };
    assert_eq!(reclaim(&process), 0, "all were used a moment ago");
    process.load(1);
    process.store(4, 5).unwrap();
    assert_eq!(reclaim(&process), 4);
    let cold = Advice::Cold;
    process.space.advise(page(4), PAGE, cold).unwrap();
    process.load(1);
    assert_eq!(reclaim(&process), 1);
    assert_eq!(process.load_with(4), Ok((5, vec![IN])));
    assert_eq!(process.load_with(1), Ok((2, vec![])));
}

/// Reclaims with two scans, between which no page is accessed. Returns the number of pages reclaimed.
pub fn reclaim_unused(process: &Process<'_>) -> u64 {
    let mut effort = memwright::Effort {
        look: 1000,
        wanted: 1000,
        charged: false,
    };
    for _ in 0..2 {
        assert_eq!(process.space.reclaim(page(0).page(), &mut effort), None);
    }
    process.check();
    1000 - effort.wanted
}

#[test]
fn a_page_of_several_goes_owner_by_owner_and_is_nobodys_to_write_meanwhile() {
    let swapping = Swapping::new();
    let mut parent = filled(&swapping, 4);
    let mut child = parent.fork();
    let rows = [Row::SwapOut, Row::SwapWritten];
    let counted = |process: &Process<'_>, freed: u64| {
        let account = swapping.world.counted(|| {
            assert_eq!(reclaim_unused(process), freed);
        });
        rows.map(|row| account.count(row))
    };
    // While the child maps the frames, no page is written, because a write would free no frame.
    assert_eq!(counted(&parent, 0), [4, 0]);
    assert_eq!((parent.resident(), child.resident()), (0, 4));
    assert_eq!(swapping.slots(), 4);
    assert_eq!(child.store(0, 9), Ok(vec![FaultKind::Copy]));
    assert_eq!(parent.load_with(0), Ok((1, vec![CACHED])));
    assert_eq!(parent.store(1, 8), Ok(vec![CACHED]), "a copy");
    assert_eq!(child.load(1), 2);
    // The frame is freed when the last process that maps it swaps it out.
    let used = swapping.world.frames.used();
    assert_eq!(counted(&child, 4), [4, 4]);
    assert!(swapping.world.frames.used() < used);
    assert_eq!(child.load_with(2), Ok((3, vec![IN])));
    assert_eq!(parent.load_with(2), Ok((3, vec![CACHED])));
    assert_eq!(parent.store(2, 7), Ok(vec![FaultKind::Copy]));
    assert_eq!(child.store(2, 6), Ok(vec![FaultKind::WriteOnly]));
    let found = |process: &mut Process<'_>| [0, 1, 2, 3].map(|index| process.load(index));
    assert_eq!(found(&mut parent), [1, 8, 7, 4]);
    assert_eq!(found(&mut child), [9, 2, 6, 4]);
    parent.check();
    child.check();
}

#[test]
fn a_frame_that_only_its_slot_has_is_given_up_when_memory_is_short() {
    let swapping = Swapping::new();
    let mut parent = filled(&swapping, 4);
    let child = parent.fork();
    assert_eq!(reclaim_unused(&parent), 0);
    drop(child);
    let world = &swapping.world;
    let account = world.counted(|| {
        for (wanted, freed) in [(0, 0), (u64::MAX, 4), (u64::MAX, 0)] {
            let shed = world.memory.swap().shed_some(&world.memory, wanted);
            assert_eq!(shed, freed);
        }
    });
    assert_eq!(account.count(Row::SwapWritten), 4);
    assert_eq!(parent.load_with(3), Ok((4, vec![IN])));
    assert_eq!(parent.store(3, 1), Ok(vec![]));
}

#[test]
fn a_device_is_taken_away_when_everything_is_back() {
    let swapping = Swapping::new();
    let world = &swapping.world;
    let mut parent = filled(&swapping, 6);
    page_out(&parent, 0, 6);
    let mut child = parent.fork();
    // Page 0 is in swap for the parent, and in memory for the child. Page 1 is in memory only for the child, and its
    // slot keeps a copy until the page is written.
    assert_eq!(child.load(0), 1);
    assert_eq!(parent.store(1, 9), Ok(vec![IN]));
    assert_eq!(child.load_with(1), Ok((2, vec![IN])));
    assert!(!world.memory.close_swap(3, true));
    assert!(world.memory.close_swap(0, true));
    assert!(!world.memory.close_swap(0, true));
    // No page is swapped out to the closed device, and the device cannot be removed while its slots are in use.
    page_out(&child, 0, 2);
    assert_eq!(child.space.usage().swapped_pages(), 4);
    assert!(!world.memory.remove_swap(0));
    let start = page(0).page();
    // Swapoff can be done in steps. If memory runs out, the pages that were swapped in stay in memory.
    assert_eq!(
        parent.space.bring_back(0, start, 2),
        Ok(Some(page(3).page()))
    );
    assert_eq!(parent.space.usage().swapped_pages(), 3);
    world.frames.fail_after(Some(1));
    let failed = parent.space.bring_back(0, start, u64::MAX);
    assert_eq!(failed, Err(FaultError::OutOfMemory));
    world.frames.fail_after(None);
    assert_eq!(parent.space.usage().swapped_pages(), 2);
    assert!(world.memory.close_swap(0, false));
    assert!(world.memory.close_swap(0, true));
    for process in [&parent, &child] {
        assert_eq!(process.space.bring_back(0, start, u64::MAX), Ok(None));
        assert_eq!(process.space.usage().swapped_pages(), 0);
        process.check();
    }
    assert!(world.memory.remove_swap(0));
    assert_eq!(world.memory.swap().devices(), Ok(vec![]));
    let found = |process: &mut Process<'_>| [0, 1, 2, 5].map(|index| process.load(index));
    assert_eq!(found(&mut parent), [1, 9, 3, 6]);
    assert_eq!(found(&mut child), [1, 2, 3, 6]);
    assert_eq!(parent.store(2, 7), Ok(vec![FaultKind::Copy]));
    assert_eq!(child.load(2), 3);
}

/// A device that is always busy although it has no pending transfers.
#[cfg(debug_assertions)]
struct AlwaysBusy;

#[cfg(debug_assertions)]
impl<M: Machine> SwapDevice<M> for AlwaysBusy {
    fn slots(&self) -> u32 {
        4
    }

    fn most_pending(&self) -> usize {
        0
    }

    fn submit(&self, _: &Frames<M>, _: Transfer) -> Submission {
        Submission::Busy
    }

    fn complete(&self, _: &Frames<M>, _: Ticket) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, _: &Frames<M>, _: u32) {}
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "swap device 0 has `most_pending` 0, but returned Busy for slot 0")]
fn a_device_that_is_busy_with_nothing_pending_is_reported() {
    let world = World::new();
    assert_eq!(world.memory.add_swap(Arc::new(AlwaysBusy), 0), Ok(Some(0)));
    let mut process = world.process();
    process.map(0, 1, RW);
    process.store(0, 1).unwrap();
    let _ = process.space.advise(page(0), PAGE, Advice::PageOut);
}

#[test]
fn a_first_pass_of_reclaim_ages_and_a_second_one_frees() {
    let swapping = Swapping::new();
    let process = filled(&swapping, 3);
    let mut effort = Effort::new(1000, 2);
    assert_eq!(process.space.reclaim(Page::new(0), &mut effort), None);
    assert_eq!((effort.wanted, process.resident()), (2, 3));
    process.space.reclaim(Page::new(0), &mut effort);
    // Adjacent pages are reclaimed together, so one page more than `effort.wanted` is reclaimed.
    assert_eq!((effort.wanted, process.resident()), (0, 0));
}

#[test]
fn pages_that_find_no_slot_stay_without_an_error() {
    let swapping = Swapping::with_slots(1);
    let process = filled(&swapping, 3);
    let advised = process.space.advise(page(0), 3 * PAGE, Advice::PageOut);
    assert_eq!(advised, Ok(Advised::Done));
    let swapped = process.space.usage().swapped_pages();
    assert_eq!((process.resident(), swapped), (2, 1));
}
