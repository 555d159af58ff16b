//! Tests of folios that are mapped by pages: allocation, partial freeing, and splits.

use std::vec::Vec;

use super::machine::{TestMachine, frames};
use crate::*;

fn orders(frames: &Frames<TestMachine>, first: Frame, count: u32) -> Vec<u8> {
    let order = |number| frames.folio_order(Frame::new(first.number() + number));
    (0..count).map(order).collect()
}

#[test]
fn a_folio_is_one_until_a_page_of_it_goes() {
    let frames = frames(4096);
    let before = frames.used();
    for order in 1..=FOLIO_ORDER {
        let pages = frames.allocate_pages(order, FrameKind::Anonymous).unwrap();
        let (first, count) = (pages.first(), 1 << order);
        assert_eq!(first.number() % count, 0);
        assert_eq!(pages.len(), count as usize);
        let mut pages: Vec<_> = pages.collect();
        assert_eq!(frames.used(), before + u64::from(count));
        assert!(orders(&frames, first, count).iter().all(|o| *o == order));
        // A second reference to a page does not change the folio. When the last reference to a page is dropped, the
        // folio no longer exists.
        drop(frames.share(first));
        assert_eq!(frames.folio_order(first), order);
        drop(pages.pop());
        assert_eq!(frames.used(), before + u64::from(count) - 1);
        assert!(orders(&frames, first, count - 1).iter().all(|o| *o == 0));
        // A page that is allocated in the freed frame is not part of the folio.
        let single = frames.allocate(0, FrameKind::Anonymous).unwrap();
        assert_eq!(frames.folio_order(single.frame()), 0);
        assert!(orders(&frames, first, count - 1).iter().all(|o| *o == 0));
        drop((single, pages));
        assert_eq!(frames.used(), before);
    }
}

#[test]
fn pages_that_nobody_takes_are_free() {
    let frames = frames(4096);
    let before = frames.used();
    let mut pages = frames.allocate_pages(4, FrameKind::Object).unwrap();
    let taken = pages.next();
    drop(pages);
    assert_eq!(frames.used(), before + 1);
    drop(taken);
    assert_eq!(frames.used(), before);
    assert_eq!(frames.audit().of(FrameKind::Object), 0);
}

#[test]
fn a_split_makes_smaller_folios_and_no_larger_ones() {
    let frames = frames(4096);
    let pages = frames.allocate_pages(6, FrameKind::Anonymous).unwrap();
    let first = pages.first();
    let at = |number| Frame::new(first.number() + number);
    let _pages: Vec<_> = pages.collect();
    frames.split_folios(at(32), at(64), 3);
    assert_eq!(orders(&frames, at(32), 32), [3; 32]);
    // The first half was not split, but its pages no longer belong to a complete folio.
    assert_eq!(orders(&frames, first, 32), [0; 32]);
    frames.split_folios(first, at(32), 5);
    assert_eq!(orders(&frames, first, 32), [5; 32]);
    frames.split_folios(first, at(64), 4);
    assert_eq!(orders(&frames, first, 32), [4; 32]);
    assert_eq!(orders(&frames, at(32), 32), [3; 32]);
    frames.split_folios(first, at(64), 0);
    assert_eq!(orders(&frames, first, 64), [0; 64]);
}

#[test]
fn what_is_something_else_by_now_is_no_page_of_a_folio() {
    let frames = frames(4096);
    let mut pages = frames.allocate_pages(2, FrameKind::Anonymous).unwrap();
    let (first, end) = (pages.first(), Frame::new(pages.first().number() + 4));
    drop(pages.next());
    let rest: Vec<_> = pages.collect();
    frames.split_folios(first, end, 1);
    drop(rest);
    assert_eq!(orders(&frames, first, 4), [0; 4]);
    // If a free frame still recorded the order of a folio, it would not merge with its buddies.
    let whole = frames.allocate_pages(2, FrameKind::Anonymous).unwrap();
    assert_eq!(frames.folio_order(whole.first()), 2);
}

#[test]
fn the_orders_of_a_run_are_those_of_its_frames() {
    let frames = frames(4096);
    let mut kept = Vec::new();
    for (order, split) in [(3, None), (4, Some(2)), (9, None), (5, Some(0)), (6, None)] {
        let pages = frames.allocate_pages(order, FrameKind::Anonymous).unwrap();
        let (first, end) = (pages.first(), pages.first().number() + (1 << order));
        if let Some(split) = split {
            frames.split_folios(first, Frame::new(end), split);
        }
        kept.extend(pages);
    }
    // A folio that has lost a page.
    let broken = frames.allocate_pages(7, FrameKind::Object).unwrap();
    kept.extend(broken.skip(1));
    let mut run = std::vec![1; 5000];
    frames.folio_orders(0, &mut run);
    for (number, order) in run.iter().enumerate().take(frames.end() as usize) {
        assert_eq!(
            frames.folio_order(Frame::new(number as u32)),
            *order,
            "{number}"
        );
    }
    assert!(run[frames.end() as usize..].iter().all(|order| *order == 0));
    for order in [2, 3, 6, 9] {
        assert!(run.contains(&order), "{order}");
    }
    assert!(!run.contains(&7));
}

#[test]
fn a_folio_mapped_whole_is_one_by_its_pages_too() {
    let frames = frames(4096);
    let folio = frames.allocate(FOLIO_ORDER, FrameKind::Anonymous).unwrap();
    let head = folio.into_raw();
    let last = Frame::new(head.number() + FOLIO_FRAMES - 1);
    assert_eq!(frames.folio_order(last), FOLIO_ORDER);
    frames.part(head);
    assert!(!frames.is_in_folio(head));
    assert_eq!(frames.folio_order(last), FOLIO_ORDER);
    drop(frames.adopt(head));
    assert_eq!(frames.folio_order(last), 0);
    for number in 1..FOLIO_FRAMES {
        drop(frames.adopt(Frame::new(head.number() + number)));
    }
    assert_eq!(frames.used_by(FrameKind::Anonymous), 0);
}

#[test]
fn there_may_be_no_such_block() {
    let frames = frames(2048);
    frames.fail_after(Some(0));
    assert_eq!(
        frames.allocate_pages(2, FrameKind::Anonymous).err(),
        Some(OutOfFrames)
    );
    frames.low_water(u64::MAX >> 1);
    assert_eq!(
        frames.allocate_pages(2, FrameKind::Anonymous).err(),
        Some(OutOfFrames)
    );
}
