//! Huge pages that are made and split while they are used: one deviation, since each run has hundreds of steps.

use std::sync::Arc;

use memwright::{Advice, MapRequest};
use memwright_sim::process::{Host, Process, Signal};

use crate::support::{FIRST, READ, READ_WRITE, SECOND, at, bytes, map, protect, read, write};
use crate::world::{World, explore_with};

/// Pages of a huge page.
const HUGE: u64 = 512;
/// The first page of one, from `START`.
const BEGIN: u64 = 2;

/// Memory for one huge page, whose first and last page hold 1.
fn small(advice: Advice) -> World {
    World::with_frames(2048, 2, 0, |host: &Arc<Host>| {
        let process = Process::new(host);
        map(
            &process,
            MapRequest::anonymous(bytes(HUGE), READ_WRITE),
            BEGIN,
        );
        let advise = |advice| {
            process
                .on(FIRST, |space| space.advise(at(BEGIN), bytes(HUGE), advice))
                .expect("mapped")
        };
        advise(advice);
        for cpu in [FIRST, SECOND] {
            for page in [BEGIN, BEGIN + HUGE - 1] {
                write(&process, cpu, page, 1).expect("writable");
            }
        }
        process
    })
}

fn try_writes(world: &World) {
    world.try_write(BEGIN, 2);
    world.try_write(BEGIN + HUGE - 1, 3);
}

/// Each store is in the huge page, or it was not made.
#[test]
fn collapse_and_fault() {
    explore_with(
        1,
        &|| small(Advice::NotHuge),
        &[
            |world| {
                for advice in [Advice::Huge, Advice::Collapse] {
                    // A fault that comes between may make it give up, as on Linux.
                    let _ = world
                        .process()
                        .on(FIRST, |space| space.advise(at(BEGIN), bytes(HUGE), advice));
                }
            },
            try_writes,
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, BEGIN), Ok(2));
            assert_eq!(read(world.process(), FIRST, BEGIN + HUGE - 1), Ok(3));
            assert_eq!(read(world.process(), FIRST, BEGIN + 9), Ok(0));
            world.end()
        },
    );
}

/// A page in the middle loses its right, and with it the huge page falls apart: what lies beside stays writable.
#[test]
fn split_and_protect() {
    explore_with(
        1,
        &|| small(Advice::Huge),
        &[
            |world| {
                protect(world.process(), FIRST, BEGIN + 9, 1, READ);
                world.over();
            },
            |world| {
                try_writes(world);
                let after = world.over.load(std::sync::atomic::Ordering::SeqCst);
                let refused = write(world.process(), SECOND, BEGIN + 9, 4);
                assert!(!after || refused == Err(Signal::Forbidden), "{refused:?}");
            },
        ],
        |world| {
            let seen = world.seen.lock().unwrap().clone();
            assert!(seen.iter().all(|(_, outcome)| outcome.is_ok()), "{seen:?}");
            assert_eq!(read(world.process(), FIRST, BEGIN), Ok(2));
            assert_eq!(read(world.process(), FIRST, BEGIN + HUGE - 1), Ok(3));
            assert!(write(world.process(), SECOND, BEGIN + 9, 5).is_err());
            world.end()
        },
    );
}
