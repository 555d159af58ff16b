//! Tests of huge pages that are created and split while they are in use. Most cases lower the bound by one deviation,
//! because their runs have hundreds of steps.

use std::sync::Arc;

use memwright::FolioSplit;
use memwright::error::FillError;
use memwright::object::{HUGE_BYTES, HugeFile, ObjectIdentity, PrivateHuge, Shmem};
use memwright::track::Scan;
use memwright::uffd::{Watch, WatchEvents, WatchModes, Watcher};
use memwright::{Advice, HugeMode, MapRequest};
use memwright_sim::programs::{Host, Process, Space};
use memwright_table::PageRange;
use memwright_testkit::process::Signal;

use crate::support::{FIRST, READ, READ_WRITE, SECOND, at, bytes, map, protect, read, write};
use crate::world::{World, explore, explore_with};

/// The number of 4 KiB pages in a huge page.
const HUGE: u64 = 512;
/// The first page of the huge page, counted from `START`.
const BEGIN: u64 = 2;

/// Creates a process with memory for one huge page, whose first and last page hold 1.
fn small(advice: Advice) -> World {
    let world = fresh(advice);
    for cpu in [FIRST, SECOND] {
        for page in [BEGIN, BEGIN + HUGE - 1] {
            write(world.process(), cpu, page, 1).expect("writable");
        }
    }
    world
}

/// Creates a process with memory for one huge page that was never accessed.
fn fresh(advice: Advice) -> World {
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
        process
    })
}

fn try_writes(world: &World) {
    world.try_write(BEGIN, 2);
    world.try_write(BEGIN + HUGE - 1, 3);
}

/// Small pages are collapsed while another CPU stores to them: every completed store is in the huge page.
#[test]
fn collapse_and_fault() {
    explore_with(
        1,
        &|| small(Advice::NotHuge),
        &[
            |world| {
                for advice in [Advice::Huge, Advice::Collapse] {
                    // A concurrent fault can make the collapse fail, as on Linux.
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

/// Creates a process with a folio of four zeroed pages to which both CPUs can write without a fault.
fn zeroes() -> World {
    const PAGES: u64 = 4;
    let world = fresh(Advice::Huge);
    let host = &world.host;
    host.memory().policy().set_huge(HugeMode::Advised);
    write(world.process(), FIRST, BEGIN, 0).expect("writable");
    let split = |space: &Space| {
        let huge = PageRange::new(at(BEGIN).page(), at(BEGIN + HUGE).page());
        let order = PAGES.trailing_zeros();
        space
            .huge_pages()
            .split_folios(huge, FolioSplit { order, at: None })
    };
    assert_eq!(world.process().on(FIRST, split).split, 1);
    let rest = bytes(HUGE - PAGES);
    let drop = |space: &Space| space.advise(at(BEGIN + PAGES), rest, Advice::DontNeed);
    world.process().on(FIRST, drop).expect("mapped");
    for cpu in [FIRST, SECOND] {
        for page in BEGIN..BEGIN + PAGES {
            write(world.process(), cpu, page, 0).expect("writable");
        }
    }
    world
}

/// A store to a zero-filled page of a folio is not lost while the folio is split, and the zero frame is unchanged.
#[test]
fn split_of_zeroes_and_write() {
    explore(
        &zeroes,
        &[
            |world| {
                let page = PageRange::single(at(BEGIN).page());
                let split =
                    |space: &Space| space.huge_pages().split_folios(page, FolioSplit::SINGLE);
                assert_eq!(world.process().on(FIRST, split).split, 1);
            },
            |world| world.try_write(BEGIN, 2),
        ],
        |world| {
            let written = world.last_written(0);
            for cpu in [FIRST, SECOND] {
                assert_eq!(read(world.process(), cpu, BEGIN), Ok(written));
                assert_eq!(read(world.process(), cpu, BEGIN + 1), Ok(0));
            }
            world.end()
        },
    );
}

/// Creates a process that has privately mapped and written to the only page of a hugetlb pool.
fn of_pool() -> World {
    let world = World::with_frames(2048, 2, 0, |host: &Arc<Host>| {
        host.frames().resize_pool(1);
        let process = Process::new(host);
        let memory = || host.memory().clone();
        let identity = ObjectIdentity::default();
        let file = Arc::new(HugeFile::new(memory(), HUGE_BYTES, identity, ""));
        let shown = PrivateHuge::new(memory(), file, 0..1).expect("a page in the pool");
        let shown = Arc::new(shown);
        map(
            &process,
            MapRequest::object(shown, 0, HUGE_BYTES, READ_WRITE, false),
            BEGIN,
        );
        process
    });
    for cpu in [FIRST, SECOND] {
        write(world.process(), cpu, BEGIN, 1).expect("writable");
    }
    world
}

/// Another CPU writes while the only page of the pool is discarded. The write succeeds before the discard, or faults
/// and allocates the page again. No write fails for lack of a page.
#[test]
fn drop_and_fault_of_the_last_page_of_a_pool() {
    explore_with(
        1,
        &of_pool,
        &[
            |world| {
                let drop = |space: &Space| space.advise(at(BEGIN), HUGE_BYTES, Advice::DontNeed);
                world.process().on(FIRST, drop).expect("mapped");
                world.over();
            },
            try_writes,
        ],
        |mut world| {
            let seen = world.seen.lock().unwrap().clone();
            assert!(seen.iter().all(|(_, outcome)| outcome.is_ok()), "{seen:?}");
            let now = read(world.process(), FIRST, BEGIN + HUGE - 1);
            assert!(
                now == Ok(3) || now == Ok(0) && !seen[1].0,
                "{now:?}, {seen:?}"
            );
            // The page returns to the pool when the process exits, so the pool can shrink to 0.
            world.process = None;
            world.host.frames().resize_pool(0);
            world.end()
        },
    );
}

/// Creates a process with private hugetlb memory that is registered with a userfaultfd for missing pages. The pool has
/// two pages, and one of them is reserved for the process.
fn promised() -> World {
    let world = World::with_frames(2048, 2, 0, |host: &Arc<Host>| {
        host.frames().resize_pool(2);
        let process = Process::new(host);
        let memory = || host.memory().clone();
        let identity = ObjectIdentity::default();
        let file = Arc::new(HugeFile::new(memory(), HUGE_BYTES, identity, ""));
        let shown = PrivateHuge::new(memory(), file, 0..1).expect("a page in the pool");
        let request = MapRequest::object(Arc::new(shown), 0, HUGE_BYTES, READ_WRITE, false);
        map(&process, request, BEGIN);
        process
    });
    let watch = Watch::try_new(Watcher {
        number: 1,
        asynchronous: false,
        unpopulated: false,
        counts_accesses: false.into(),
        events: WatchEvents::empty(),
    });
    let watch = watch.expect("heap");
    let modes = WatchModes::MISSING;
    let call = |space: &Space| space.uffd().watch(at(BEGIN), HUGE_BYTES, &watch, modes);
    world.process().on(FIRST, call).expect("mapped");
    world
}

/// A fill takes the reserved page, fails and frees the page while another CPU discards the mapping: afterwards one page
/// is reserved, not two.
#[test]
fn fill_in_vain_and_drop() {
    explore_with(
        1,
        &promised,
        &[
            |world| {
                let refused = &mut |_, _| Err(FillError::NotApplicable);
                let fill =
                    |space: &Space| space.uffd().fill_hugetlb(at(BEGIN).page(), false, refused);
                assert_eq!(
                    world.process().on(FIRST, fill),
                    Err(FillError::NotApplicable)
                );
            },
            |world| {
                let drop = |space: &Space| space.advise(at(BEGIN), HUGE_BYTES, Advice::DontNeed);
                world.process().on(SECOND, drop).expect("mapped");
            },
        ],
        |mut world| {
            let frames = world.host.frames().clone();
            assert_eq!(frames.pool().reserved, 1);
            world.process = None;
            assert_eq!(frames.pool().reserved, 0);
            frames.resize_pool(0);
            world.end()
        },
    );
}

/// Creates a process with shared memory for one huge page, whose first and last page hold 1.
fn small_shared() -> World {
    let world = World::with_frames(2048, 2, 0, |host: &Arc<Host>| {
        let process = Process::new(host);
        let identity = ObjectIdentity::default();
        let object = Shmem::new(host.memory().clone(), bytes(HUGE), identity);
        let object = Arc::new(object.expect("heap"));
        map(
            &process,
            MapRequest::object(object, 0, bytes(HUGE), READ_WRITE, true),
            BEGIN,
        );
        process
    });
    for cpu in [FIRST, SECOND] {
        for page in [BEGIN, BEGIN + HUGE - 1] {
            write(world.process(), cpu, page, 1).expect("writable");
        }
    }
    world
}

/// Shared memory is collapsed while another CPU stores to it: no store is lost.
#[test]
fn collapse_of_shared_memory_and_fault() {
    explore_with(
        1,
        &small_shared,
        &[
            |world| {
                let _ = world.process().on(FIRST, |space| {
                    space.advise(at(BEGIN), bytes(HUGE), Advice::Collapse)
                });
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

/// A page in the middle of a huge page becomes read-only, which splits the huge page: the neighbouring pages stay
/// writable.
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

/// Write-protects the complete range of the huge page.
fn arm(world: &World) {
    let protected = world.process().on(FIRST, |space| {
        space.uffd().write_protect(at(BEGIN), bytes(HUGE), true)
    });
    protected.expect("watched");
    world.over();
}

/// Returns whether the page, counted from `START`, counts as written.
fn is_written(world: &World, page: u64) -> bool {
    let wanted = Scan::written(false);
    world.matches(FIRST, at(page).page(), &wanted)
}

/// The entry of a huge page gets asynchronous write protection, and the first store splits the huge page. All stores
/// succeed. A page counts as written if and only if a store to it began after the protection.
#[test]
fn arm_whole_and_write() {
    let begin = || small(Advice::Huge).watched(BEGIN + HUGE, true, WatchModes::WRITE_PROTECT);
    explore_with(1, &begin, &[arm, try_writes], |world| {
        let seen = world.seen.lock().unwrap().clone();
        for ((after, outcome), (page, value)) in
            seen.into_iter().zip([(BEGIN, 2), (BEGIN + HUGE - 1, 3)])
        {
            assert_eq!(outcome, Ok(value));
            assert_eq!(read(world.process(), FIRST, page), Ok(value));
            assert!(!after || is_written(&world, page), "not told");
        }
        assert!(!is_written(&world, BEGIN + 9), "told of no store");
        world.end()
    });
}

/// An unpopulated range is write-protected while its first access maps a huge page: the store is refused, or succeeds
/// before the protection.
#[test]
fn protect_whole_and_fault() {
    let begin = || fresh(Advice::Huge).watched(BEGIN + HUGE, false, WatchModes::WRITE_PROTECT);
    explore_with(1, &begin, &[arm, try_writes], |world| {
        world.none_after(Signal::Bus);
        for page in [BEGIN, BEGIN + 9, BEGIN + HUGE - 1] {
            assert_eq!(write(world.process(), SECOND, page, 9), Err(Signal::Bus));
        }
        let seen = world.seen.lock().unwrap().clone();
        for ((_, outcome), page) in seen.into_iter().zip([BEGIN, BEGIN + HUGE - 1]) {
            assert_eq!(read(world.process(), FIRST, page), Ok(outcome.unwrap_or(0)));
        }
        world.end()
    });
}
