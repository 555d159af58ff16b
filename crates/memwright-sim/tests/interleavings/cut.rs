//! Tests of whole page tables that are unmapped with their entries while another CPU uses the pages.

use std::sync::atomic::Ordering;

use memwright::MapRequest;
use memwright_table::{FrameKind, PageSize};
use memwright_testkit::process::Signal;

use crate::support::{self, FIRST, READ_WRITE, SECOND, at, bytes, map, program, read, write};
use crate::world::{THIRD, World, explore, explore_with};

/// Unmaps the pages of the table that contains the first page.
fn unmap_table(world: &World) {
    let pages = PageSize::Size2M.pages();
    let start = memwright_table::Page::new(at(0).page().number() / pages * pages);
    world
        .process()
        .on(FIRST, |space| space.unmap(start.address(), bytes(pages)))
        .expect("mapped");
}

/// No frame is free until one CPU unmaps all pages of a table. A second CPU allocates a frame of a page or of the table
/// at once, while a third CPU still writes to an unmapped page: the write does not reach the other process.
#[test]
fn cut_and_allocate() {
    let begin = || {
        let world = World::written(3, 1);
        let other = program(&world.host, 1, READ_WRITE);
        // This access populates the page tables, so that the next access allocates only the page.
        map(&other, MapRequest::anonymous(bytes(1), READ_WRITE), 1);
        write(&other, SECOND, 1, 5).expect("writable");
        let frames = world.host.frames();
        let mut hoard = world.hoard.lock().unwrap();
        let _running = world.host.machine().run_on(SECOND);
        while let Ok(frame) = frames.allocate(0, FrameKind::Kernel) {
            hoard.push(frame.into_raw());
        }
        drop(hoard);
        *world.other.lock().unwrap() = Some(other);
        world
    };
    explore(
        &begin,
        &[
            unmap_table,
            |world| {
                let got = world.with_other(|other| write(other, SECOND, 0, 2));
                assert!(matches!(got, Ok(()) | Err(Signal::OutOfMemory)), "{got:?}");
                if got.is_ok() {
                    world.count.fetch_add(1, Ordering::SeqCst);
                }
            },
            |world| {
                let _ = write(world.process(), THIRD, 0, 9);
            },
        ],
        |world| {
            if world.count.load(Ordering::SeqCst) > 0 {
                assert_eq!(world.with_other(|other| read(other, SECOND, 0)), Ok(2));
            }
            world.end()
        },
    );
}

/// Parent and child, which map the same pages through tables of their own, exit at the same time on two CPUs. One of them
/// frees the pages.
#[test]
fn exit_and_exit_of_copies() {
    let begin = || {
        let world = World::written(2, 2);
        *world.other.lock().unwrap() = Some(support::fork(world.process(), SECOND));
        world
    };
    explore_with(
        1,
        &begin,
        &[
            |world| drop(world.other.lock().unwrap().take()),
            |world| world.process().on(FIRST, |space| space.clear()),
        ],
        World::end,
    );
}
