//! Tests of state that one part of the memory manager must keep for another part: pins, copies in swap, locks,
//! userfaultfd contexts, and the one dirty bit that has several readers.

use std::sync::Arc;

use memwright::track::Scan;
use memwright::uffd::{Watch, WatchModes};
use memwright::{Advice, AdviseError, AreaFlags, Effort, HugeMode, RemapRequest};
use memwright_table::{Bits, Frame, PageRange, Present};
use memwright_testkit::HostSwap;

use crate::world::{PAGE, Process, RW, World, page, watch};

/// The number of 4 KiB pages in 2 MiB, and also the index of the first page that is aligned to 2 MiB.
const HUGE: u64 = 512;
const FIRST: u64 = 4;

/// Creates a machine with a swap device and without swap readahead.
fn swapping() -> (World, Arc<HostSwap>) {
    let world = World::new();
    let device = Arc::new(HostSwap::new(64));
    assert_eq!(world.memory.add_swap(device.clone(), 0), Ok(Some(0)));
    world.memory.policy().set("swapin-around", "off").unwrap();
    (world, device)
}

fn advise(process: &Process<'_>, pages: u64, advice: Advice) {
    process.space.advise(page(0), pages * PAGE, advice).unwrap();
    process.check();
}

/// Registers the first `pages` pages with a userfaultfd and write-protects them.
pub fn protected(process: &Process<'_>, pages: u64, asynchronous: bool) -> Watch {
    let watch = watch(asynchronous, true);
    let (space, length) = (&process.space, pages * PAGE);
    let modes = WatchModes::WRITE_PROTECT;
    space.uffd().watch(page(0), length, &watch, modes).unwrap();
    space.uffd().write_protect(page(0), length, true).unwrap();
    watch
}

/// Returns how many of the first `pages` pages were written, and write-protects them again.
fn written(process: &Process<'_>, pages: u64) -> u64 {
    let scan = Scan::written(true);
    let range = PageRange::new(page(0).page(), page(pages).page());
    process.matching(range, &scan).len() as u64
}

fn shown(process: &Process<'_>, index: u64) -> Option<Present> {
    process.space.entry(page(index)).present()
}

fn frame(process: &Process<'_>, index: u64) -> Frame {
    shown(process, index).unwrap().frame_of(page(index).page())
}

#[test]
fn who_protects_a_written_page_leaves_it_soft_dirty() {
    for policy in ["dirty-bit", "fault"] {
        let world = World::new();
        world.memory.policy().set("track", policy).unwrap();
        let mut process = world.process();
        process.map(0, 2, RW);
        process.store(0, 1).unwrap();
        process.store(1, 1).unwrap();
        process.space.tracking().clear_soft_dirty();
        process.store(1, 2).unwrap();
        let _watch = protected(&process, 2, true);
        let marked = [0, 1].map(|index| shown(&process, index).unwrap().bits);
        let marked = marked.map(|bits| bits.contains(Bits::SOFT_DIRTY));
        assert_eq!(marked, [false, true], "{policy}");
    }
}

#[test]
fn who_clears_soft_dirty_leaves_the_copy_in_swap_out_of_date() {
    let (world, _device) = swapping();
    world.memory.policy().set("track", "dirty-bit").unwrap();
    let mut process = world.process();
    process.map(0, 1, RW);
    process.store(0, 1).unwrap();
    advise(&process, 1, Advice::PageOut);
    assert_eq!(process.load(0), 1);
    process.store(0, 2).unwrap();
    process.space.tracking().clear_soft_dirty();
    advise(&process, 1, Advice::PageOut);
    assert_eq!(shown(&process, 0), None);
    assert_eq!(process.load(0), 2);
}

#[test]
fn a_pinned_page_counts_as_written_at_every_scan() {
    for policy in ["dirty-bit", "fault"] {
        let world = World::new();
        world.memory.policy().set("track", policy).unwrap();
        let mut process = world.process();
        process.map(0, 4, RW);
        for index in 0..4 {
            process.store(index, 1).unwrap();
        }
        let _watch = protected(&process, 4, true);
        assert_eq!(written(&process, 4), 0);
        let pinned = process.space.pin(page(2)).unwrap().into_raw();
        assert_eq!([1, 1], [(); 2].map(|()| written(&process, 4)), "{policy}");
        world.frames.unpin(pinned);
        drop(world.frames.adopt(pinned));
        assert_eq!([1, 0], [(); 2].map(|()| written(&process, 4)), "{policy}");
    }
}

#[test]
fn a_page_moves_without_its_protection_if_nobody_follows() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 1, RW);
    process.store(0, 1).unwrap();
    let _watch = protected(&process, 1, false);
    let request = RemapRequest {
        old: page(0),
        old_length: PAGE,
        new_length: PAGE,
        may_move: true,
        fixed: Some(page(8)),
        dont_unmap: false,
    };
    process.space.remap(request).unwrap();
    let bits = shown(&process, 8).unwrap().bits;
    assert!(!bits.intersects(Bits::UFFD_WP | Bits::WATCHED));
    assert!(process.store(8, 2).is_ok());
}

#[test]
fn what_is_pinned_stays_in_memory_and_in_its_frame() {
    let (world, _device) = swapping();
    let mut process = world.process();
    process.map(0, 2, RW);
    process.store(0, 1).unwrap();
    process.store(1, 1).unwrap();
    let pinned = frame(&process, 1);
    world.frames.pin(pinned);
    advise(&process, 2, Advice::PageOut);
    assert_eq!(shown(&process, 0), None);
    assert_eq!(frame(&process, 1), pinned);
    world.frames.unpin(pinned);
}

#[test]
fn a_collapse_refuses_a_pinned_page() {
    let world = World::with_frames(16384);
    world.memory.policy().set_huge(HugeMode::Never);
    let mut process = world.process();
    process.map(FIRST, HUGE, RW);
    process.store(FIRST, 1).unwrap();
    process.store(FIRST + 9, 1).unwrap();
    let pinned = frame(&process, FIRST + 9);
    world.frames.pin(pinned);
    let collapse = |process: &Process<'_>| {
        let (space, length) = (&process.space, HUGE * PAGE);
        space.advise(page(FIRST), length, Advice::Collapse)
    };
    assert_eq!(collapse(&process), Err(AdviseError::Busy(page(FIRST))));
    assert_eq!(frame(&process, FIRST + 9), pinned);
    world.frames.unpin(pinned);
    assert!(collapse(&process).is_ok());
}

#[test]
fn reclaim_passes_over_locked_memory() {
    let (world, device) = swapping();
    let mut process = world.process();
    process.map_with(0, 2, RW, AreaFlags::LOCKED);
    process.store(0, 1).unwrap();
    process.store(1, 1).unwrap();
    let mut effort = Effort {
        look: 1000,
        wanted: 1000,
        charged: false,
    };
    for _ in 0..3 {
        assert_eq!(process.space.reclaim(page(0).page(), &mut effort), None);
    }
    assert_eq!((effort.wanted, device.kept()), (1000, 0));
    assert_eq!(process.load_with(0), Ok((1, vec![])));
}

#[test]
fn contents_that_may_be_lost_need_no_slot() {
    let (world, _device) = swapping();
    let mut process = world.process();
    process.map(0, 1, RW);
    process.store(0, 1).unwrap();
    advise(&process, 1, Advice::PageOut);
    assert_eq!(process.load(0), 1);
    assert_eq!(world.memory.swap().totals().1, 1, "a copy that is good");
    advise(&process, 1, Advice::Free);
    assert_eq!(world.memory.swap().totals().1, 0);
}

#[test]
fn a_new_huge_page_is_full_of_zeroes() {
    let world = World::with_frames(4096);
    world.memory.policy().set_huge(HugeMode::Always);
    for byte in 1..=16 {
        let mut process = world.process();
        process.map(FIRST, HUGE, RW);
        process.store(FIRST, byte).unwrap();
        assert_eq!(process.load(FIRST + 7), 0);
        process.store(FIRST + 7, byte).unwrap();
    }
}
