//! Tests of the frame allocator: exact counts, determinism, and detection of misuse.

use std::vec::Vec;

use proptest::prelude::*;

use super::machine::{TestMachine, frames, frames_with};
use crate::{FOLIO_ORDER, Frame, FrameKind, FrameRange, Frames, OutOfFrames, Region};

#[test]
fn every_frame_can_be_allocated_once() {
    let frames = frames(300);
    let total = frames.total();
    assert_eq!(total, 300 - 5);
    let mut held: Vec<_> = (0..total)
        .map(|_| frames.allocate(0, FrameKind::Anonymous).unwrap())
        .collect();
    assert_eq!(
        frames.allocate(0, FrameKind::Kernel).unwrap_err(),
        OutOfFrames
    );
    assert_eq!((frames.free(), frames.peak_used()), (0, total));
    held.sort_by_key(|block| block.frame());
    held.dedup_by_key(|block| block.frame());
    assert_eq!(held.len() as u64, total);
    drop(held);
    assert_eq!(frames.free(), total);
    assert_eq!(frames.audit().of(FrameKind::Free), total);
    assert_eq!(frames.peak_by(FrameKind::Anonymous), total);
}

#[test]
fn caches_of_other_cpus_are_drained_before_anybody_is_refused() {
    let frames = frames_with(200, 2);
    let machine = frames.machine().clone();
    let first = frames.allocate(0, FrameKind::Object).unwrap();
    machine.run_on(1);
    let rest: Vec<_> = core::iter::from_fn(|| frames.allocate(0, FrameKind::Object).ok()).collect();
    assert_eq!(rest.len() as u64 + 1, frames.total());
    drop(first);
    drop(rest);
    assert!(
        frames.allocate(6, FrameKind::Object).is_ok(),
        "joined again"
    );
}

#[test]
fn the_reserve_is_kept_for_the_kernel() {
    let frames = frames(500);
    frames.low_water(64);
    let user: Vec<_> =
        core::iter::from_fn(|| frames.allocate(0, FrameKind::Anonymous).ok()).collect();
    assert_eq!(frames.free(), 64);
    assert!(frames.allocate(3, FrameKind::Object).is_err());
    let kernel: Vec<_> = core::iter::from_fn(|| frames.allocate(0, FrameKind::Slab).ok()).collect();
    assert_eq!(kernel.len(), 64);
    drop(user);
}

#[test]
fn users_do_not_get_the_reserve_through_caches() {
    for cpus in [1, 4] {
        let frames = frames_with(500 + 300 * (cpus as u32 - 1), cpus);
        let machine = frames.machine().clone();
        frames.low_water(64);
        let mut users = Vec::new();
        for round in 0..200 {
            machine.run_on((round % cpus) as u16);
            // Allocate kernel frames from the reserve and free them again, like a process that starts and exits.
            let kernel: Vec<_> = (0..8)
                .map(|_| frames.allocate(0, FrameKind::Slab).unwrap())
                .collect();
            users.extend(core::iter::from_fn(|| {
                frames.allocate(0, FrameKind::Anonymous).ok()
            }));
            drop(kernel);
            users.extend(core::iter::from_fn(|| {
                frames.allocate(0, FrameKind::Anonymous).ok()
            }));
            assert_eq!(frames.free(), 64, "{cpus} CPUs, round {round}");
        }
        // When frames beyond the reserve are free, the caches keep freed frames again.
        users.truncate(users.len() - 200);
        drop(frames.allocate(0, FrameKind::Anonymous).unwrap());
        assert_eq!(frames.free(), 264);
        drop(users);
        assert_eq!(frames.free(), frames.total());
    }
}

#[test]
fn a_peak_is_no_more_than_there_is() {
    let frames = frames_with(400, 2);
    let machine = frames.machine().clone();
    // One CPU frees the frames that the other allocates, so the sum of the two CPUs' peaks is far above the real peak.
    for _ in 0..10 {
        machine.run_on(0);
        let held: Vec<_> = (0..100)
            .map(|_| frames.allocate(0, FrameKind::Anonymous).unwrap())
            .collect();
        machine.run_on(1);
        drop(held);
    }
    assert_eq!(frames.peak_used(), frames.total());
    assert_eq!(frames.usage().used_peak, frames.total());
}

#[test]
fn a_frame_of_an_object_is_mapped_while_it_has_a_second_reference() {
    let frames = frames(100);
    let held = frames.allocate(0, FrameKind::Object).unwrap();
    let other = frames.allocate(0, FrameKind::Object).unwrap();
    let _anonymous = frames.allocate(0, FrameKind::Anonymous).unwrap();
    assert_eq!(frames.mapped_objects(), 0);
    let entry = frames.share(held.frame());
    let second = frames.share(held.frame());
    assert_eq!(
        (frames.mapped_objects(), frames.sharers(held.frame())),
        (1, 2)
    );
    let third = frames.share(other.frame());
    assert_eq!(frames.mapped_objects(), 2);
    drop((entry, third));
    assert_eq!(frames.mapped_objects(), 1);
    drop(second);
    assert_eq!(frames.mapped_objects(), 0);
}

#[test]
fn mapped_frames_of_folios_are_counted_like_others() {
    let frames = frames_with(4096, 2);
    let machine = frames.machine().clone();
    let check = |step: &str| {
        let is_mapped = |number: &u32| {
            let frame = Frame::new(*number);
            frames.kind_at(*number) == Some(FrameKind::Object) && frames.sharers(frame) > 0
        };
        let mapped = (0..frames.end()).filter(is_mapped).count() as u64;
        assert_eq!(frames.mapped_objects(), mapped, "{step}");
        assert!(frames.are_mapped_objects_counted(), "{step}");
        mapped
    };
    let object = frames.allocate(FOLIO_ORDER, FrameKind::Object).unwrap();
    let head = object.frame();
    let at = |index: u32| Frame::new(head.number() + index);
    assert_eq!(check("a new folio"), 0);
    let whole = frames.share(head);
    assert_eq!(check("a huge entry"), 512);
    machine.run_on(1);
    let part = frames.for_entry(frames.share(at(7)));
    let other = frames.for_entry(frames.share(at(9)));
    assert_eq!(check("a huge entry and two small ones"), 512);
    drop(whole);
    assert_eq!(check("two small entries"), 2);
    let whole = frames.share(head);
    let _ = whole.into_raw();
    frames.part(head);
    assert_eq!(check("a split huge entry and two small ones"), 512);
    machine.run_on(0);
    for index in 0..512 {
        drop(frames.adopt_part(at(index)));
    }
    assert_eq!(check("two small entries again"), 2);
    drop(other);
    assert_eq!(check("one small entry"), 1);
    let _ = object.into_raw();
    frames.part(head);
    assert_eq!(check("single frames of the object"), 1);
    drop(part);
    assert_eq!(check("nothing mapped"), 0);
    for index in 0..512 {
        drop(frames.adopt_part(at(index)));
    }
    assert_eq!((check("no object"), frames.object_folios()), (0, (0, 0)));
    assert_eq!(frames.free(), frames.total());
}

#[test]
fn an_injected_failure_happens_once() {
    let frames = frames(100);
    frames.fail_after(Some(2));
    let outcomes: Vec<_> = (0..5)
        .map(|_| frames.allocate(0, FrameKind::Kernel).is_ok())
        .collect();
    assert_eq!(outcomes, [true, true, false, true, true]);
    assert_eq!(frames.allocations(), 4);
}

#[test]
#[cfg(debug_assertions)]
fn a_write_to_a_free_frame_is_found() {
    let frames = frames(64);
    let frame = frames.allocate(0, FrameKind::Anonymous).unwrap().frame();
    frames.machine().scribble(frame, 0x123);
    let panic = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        let _again = frames.allocate(0, FrameKind::Anonymous);
    }))
    .unwrap_err();
    let text = panic.downcast_ref::<std::string::String>().unwrap();
    assert!(text.contains("was written to while free"), "{text}");
    assert!(text.contains("at offset 0x120"), "{text}");
}

#[test]
fn references_free_the_block_at_zero() {
    let frames = frames(2048);
    let block = frames.allocate(8, FrameKind::Anonymous).unwrap();
    let inside = Frame::new(block.frame().number() + 77);
    let shared = frames.share(inside);
    assert_eq!((frames.references(inside), frames.order(inside)), (2, 8));
    let raw = block.into_raw();
    drop(shared);
    assert_eq!(frames.used_by(FrameKind::Anonymous), 256);
    drop(frames.adopt(raw));
    assert_eq!(frames.used(), 0);
}

#[test]
fn contents_are_reached_by_copies_and_words() {
    let frames = frames(64);
    let (a, b) = (
        frames.allocate_zeroed(0, FrameKind::Object).unwrap(),
        frames.allocate(0, FrameKind::Object).unwrap(),
    );
    frames.write(a.frame(), 4090, b"abcdef");
    frames
        .word64(a.frame(), 8)
        .store(0x0102_0304, core::sync::atomic::Ordering::Relaxed);
    frames.copy(a.frame(), b.frame());
    let mut bytes = [0; 6];
    frames.read(b.frame(), 4090, &mut bytes);
    assert_eq!(&bytes, b"abcdef");
    frames.read(b.frame(), 6, &mut bytes);
    assert_eq!(bytes, [0, 0, 4, 3, 2, 1]);
    frames.clear(b.frame());
    assert_eq!(
        frames
            .word32(b.frame(), 8)
            .load(core::sync::atomic::Ordering::Relaxed),
        0
    );
}

#[test]
#[should_panic(expected = "holds no data")]
fn contents_of_kernel_frames_are_out_of_reach() {
    let frames = frames(64);
    let kernel = frames.allocate(0, FrameKind::Kernel).unwrap();
    frames.clear(kernel.frame());
}

#[test]
fn holes_and_nodes_stay_apart() {
    let machine = TestMachine::new(4096, 1);
    let region = |start, count, node| Region {
        range: FrameRange {
            start: Frame::new(start),
            count,
        },
        node,
    };
    let frames = Frames::new(
        machine,
        &[
            region(1, 1023, 0),
            region(1024, 1024, 1),
            region(3000, 9, 0),
        ],
    )
    .unwrap();
    let held: Vec<_> = core::iter::from_fn(|| frames.allocate(0, FrameKind::Object).ok()).collect();
    assert!(
        held.iter()
            .all(|block| !(2048..3000).contains(&block.frame().number()))
    );
    drop(held);
    assert_eq!(
        frames.audit().of(FrameKind::Hole),
        3009 - 1 - 1023 - 1024 - 9
    );
    assert_eq!(frames.free(), frames.audit().free);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_never_overlap_and_join_again(
        requests in proptest::collection::vec((0u8..6, 0usize..64, any::<bool>()), 1..200),
        count in 200u32..1500,
    ) {
        let run = || {
            let frames = frames(count);
            let mut held = Vec::new();
            let mut given = Vec::new();
            let mut owner = std::vec![false; count as usize];
            for &(order, which, free) in &requests {
                if free && !held.is_empty() {
                    let (block, order): (crate::FrameRef<'_, _>, u8) =
                        held.swap_remove(which % held.len());
                    let start = block.frame().number() as usize;
                    owner[start..start + (1 << order)].fill(false);
                } else if let Ok(block) = frames.allocate(order, FrameKind::Object) {
                    let start = block.frame().number();
                    assert_eq!(start % (1 << order), 0);
                    for taken in &mut owner[start as usize..start as usize + (1 << order)] {
                        assert!(!core::mem::replace(taken, true), "given twice");
                    }
                    given.push(start);
                    held.push((block, order));
                }
                let used = owner.iter().filter(|taken| **taken).count() as u64;
                assert_eq!(frames.used(), used);
            }
            held.clear();
            assert_eq!(frames.free(), frames.total());
            // The frames that the metadata does not use contain an aligned block of at least a quarter of all frames.
            let largest = (count / 4).ilog2() as u8;
            assert!(frames.allocate(largest, FrameKind::Object).is_ok());
            given
        };
        prop_assert_eq!(run(), run());
    }
}
