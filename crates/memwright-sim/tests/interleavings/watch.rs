//! Tests of userfaultfd: ranges are write-protected, unprotected, scanned and filled while other CPUs store.

use std::sync::atomic::Ordering;

use memwright::MapRequest;
use memwright::error::FillError;
use memwright::track::{Categories, Scan, Share, Take};
use memwright::uffd::{Fill, WatchModes};
use memwright_sim::programs::Space;
use memwright_table::{CpuId, PAGE_SIZE, PageRange};
use memwright_testkit::process::Signal;

use crate::fork::fork;
use crate::support::{FIRST, READ_WRITE, SECOND, at, bytes, map, read, unmap, write};
use crate::world::{World, explore};

const WRITES: WatchModes = WatchModes::WRITE_PROTECT;

/// Creates a page that every CPU has written and cached, and registers it for write protection.
fn watched(asynchronous: bool) -> World {
    World::written(2, 1).watched(1, asynchronous, WRITES)
}

/// Returns a scan for written pages, which write-protects them again if `protect` is true.
fn written(protect: bool) -> Scan {
    Scan::written(protect)
}

/// Returns whether the page counts as written. Write-protects it again if `protect` is true.
fn scan(world: &World, cpu: CpuId, protect: bool) -> bool {
    world.matches(cpu, at(0).page(), &written(protect))
}

/// Write-protects the page. This is the first thread of the cases that protect.
fn arm(world: &World) {
    world.write_protect(FIRST, true);
    world.over();
}

fn two_stores(world: &World) {
    world.try_write(0, 2);
    world.try_write(0, 3);
}

/// A page is write-protected while another CPU stores to it: no store that began after the protection succeeds, and no
/// successful store is lost.
#[test]
fn protect_and_write() {
    explore(&|| watched(false), &[arm, two_stores], |world| {
        world.none_after(Signal::Bus);
        assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(1)));
        assert_eq!(write(world.process(), SECOND, 0, 9), Err(Signal::Bus));
        world.end()
    });
}

/// A page is write-protected in asynchronous mode while another CPU stores to it: every store succeeds, and a store
/// that began after the protection marks the page as written.
#[test]
fn arm_and_write() {
    explore(&|| watched(true), &[arm, two_stores], |world| {
        let after = world.seen.lock().unwrap()[1].0;
        assert_eq!(read(world.process(), FIRST, 0), Ok(3));
        assert!(!after || scan(&world, FIRST, false), "not told");
        world.end()
    });
}

/// Like `arm_and_write`, for a page of a file that is notified of first stores: the fault handler calls the file
/// between its two reads of the entry.
#[test]
fn arm_and_write_of_a_file() {
    let begin = || {
        let world = World::of_file();
        world.file().clean();
        world.watched(1, true, WRITES)
    };
    let arm = |world: &World| {
        scan(world, FIRST, true);
        world.over();
    };
    explore(&begin, &[arm, two_stores], |world| {
        let after = world.seen.lock().unwrap()[1].0;
        assert_eq!(read(world.process(), FIRST, 0), Ok(3));
        assert!(!after || scan(&world, FIRST, false), "not told");
        world.end()
    });
}

/// Like `arm_and_write`, for a page that is not populated yet.
#[test]
fn arm_and_fault() {
    let begin = || World::fresh(1).watched(1, true, WRITES);
    explore(&begin, &[arm, |world| world.try_write(0, 2)], |world| {
        let after = world.seen.lock().unwrap()[0].0;
        assert_eq!(read(world.process(), FIRST, 0), Ok(2));
        assert!(!after || scan(&world, FIRST, false), "not told");
        world.end()
    });
}

/// An unpopulated page is write-protected in synchronous mode: a store is refused, or succeeds before the protection.
#[test]
fn protect_and_fault() {
    let begin = || World::fresh(1).watched(1, false, WRITES);
    explore(&begin, &[arm, two_stores], |world| {
        world.none_after(Signal::Bus);
        assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(0)));
        assert_eq!(write(world.process(), SECOND, 0, 9), Err(Signal::Bus));
        world.end()
    });
}

/// Two scans report written pages and protect them again. At least one scan reports the store. If the store began after
/// the first scan, the second scan reports it.
#[test]
fn scan_and_protect_again_and_write() {
    let begin = || {
        let world = watched(true);
        world.write_protect(FIRST, true);
        world
    };
    explore(
        &begin,
        &[
            |world| {
                let found = scan(world, FIRST, true);
                world.count.store(u64::from(found), Ordering::SeqCst);
                world.over();
            },
            |world| world.try_write(0, 2),
        ],
        |world| {
            let after = world.seen.lock().unwrap()[0].0;
            let (first, second) = (
                world.count.load(Ordering::SeqCst) != 0,
                scan(&world, FIRST, true),
            );
            assert!(first || second, "a store that nobody was told of");
            assert!(
                !after || second,
                "a store that only the scan before it told of"
            );
            assert!(!scan(&world, FIRST, false));
            assert_eq!(read(world.process(), FIRST, 0), Ok(2));
            world.end()
        },
    );
}

/// Whether a scan has reported page 2. `room` sets no limit, so the scan protects several pages before it reports them.
struct Reported(bool);

impl Take for Reported {
    fn take(&mut self, run: PageRange, _categories: Categories, _share: Share) -> u64 {
        self.0 |= run.contains(at(2).page());
        run.len()
    }

    fn room(&self) -> u64 {
        u64::MAX
    }
}

/// Scans pages 1 and 2, which are in two page tables, and write-protects them again. Returns whether page 2 counts as
/// written.
fn scan_two_tables(world: &World) -> bool {
    let mut reported = Reported(false);
    let range = PageRange::new(at(1).page(), at(3).page());
    let outcome = world.process().on(FIRST, |space| {
        space.tracking().scan(range, &written(true), &mut reported)
    });
    outcome.expect("watched");
    reported.0
}

/// Like `scan_and_protect_again_and_write`, for a page whose entry is in the second of the two page tables of the
/// range. A page of the first table is written too, so that the scan edits the entries of the second table together.
#[test]
fn scan_two_tables_and_write() {
    let begin = || {
        let world = World::written(2, 3).watched(3, true, WRITES);
        let arm = |space: &Space| space.uffd().write_protect(at(0), bytes(3), true);
        world.process().on(FIRST, arm).expect("watched");
        write(world.process(), FIRST, 1, 2).expect("writable");
        write(world.process(), SECOND, 2, 2).expect("writable");
        world
    };
    explore(
        &begin,
        &[
            |world| {
                assert!(scan_two_tables(world));
                world.over();
            },
            |world| world.try_write(2, 3),
        ],
        |world| {
            let after = world.seen.lock().unwrap()[0].0;
            let second = scan_two_tables(&world);
            assert!(!after || second, "a store that no scan reports");
            assert!(!scan_two_tables(&world));
            assert_eq!(read(world.process(), FIRST, 2), Ok(3));
            world.end()
        },
    );
}

/// Write protection is removed while another CPU stores: a store that began after the removal is not refused.
#[test]
fn unprotect_and_write() {
    let begin = || {
        let world = watched(false);
        world.write_protect(FIRST, true);
        world
    };
    explore(
        &begin,
        &[
            |world| {
                world.write_protect(FIRST, false);
                world.over();
            },
            two_stores,
        ],
        |world| {
            for (after, outcome) in world.seen.lock().unwrap().iter() {
                assert!(outcome.is_ok() || !after, "{outcome:?} afterwards");
            }
            assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(1)));
            world.end()
        },
    );
}

/// A thread faults on a missing page: the access is refused, or finds the complete contents that the handler filled in.
#[test]
fn copy_and_fault() {
    let begin = || World::fresh(1).watched(1, false, WatchModes::MISSING);
    explore(
        &begin,
        &[
            |world| {
                let filled = world.process().on(FIRST, |space| {
                    space
                        .uffd()
                        .fill(at(0).page(), Fill::Bytes(&[7; PAGE_SIZE]), false)
                });
                filled.expect("nothing there");
                world.over();
            },
            |world| {
                let after = world.over.load(Ordering::SeqCst);
                let found = read(world.process(), SECOND, 0);
                assert!(
                    found == Ok(7) || found == Err(Signal::Bus) && !after,
                    "{found:?}"
                );
                world.try_write(0, 8);
            },
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(7)));
            world.end()
        },
    );
}

/// Creates a page of shared memory that is registered and not mapped. The object has the page if `there` is true.
fn watched_shared(modes: WatchModes, there: bool) -> World {
    let world = World::of_shared_memory(|_| ());
    unmap(world.process(), FIRST, 0, 1);
    if !there {
        punch(&world);
    }
    let object = world.shared.clone().expect("there");
    let request = MapRequest::object(object, 0, bytes(1), READ_WRITE, true);
    map(world.process(), request, 0);
    world.watched(1, false, modes)
}

fn fill(world: &World, fill: Fill<'_>) {
    let call = |space: &Space| space.uffd().fill(at(0).page(), fill, false);
    let filled = world.process().on(FIRST, call);
    assert!(matches!(filled, Ok(()) | Err(FillError::NotThere)));
}

fn punch(world: &World) {
    let _running = world.host.machine().run_on(SECOND);
    assert_eq!(world.shared().punch(0, bytes(1)), Ok(()));
}

/// Checks that the page is mapped only if the object has it.
fn check_shown(world: World) -> Result<(), String> {
    let call = |space: &Space| space.entry(at(0)).present().is_some();
    let is_shown = world.process().on(FIRST, call);
    assert!(u64::from(is_shown) <= world.shared().resident());
    world.end()
}

/// A handler maps a page of an object (`UFFDIO_CONTINUE`) while a hole is punched over it: a page that the object no
/// longer has is not mapped.
#[test]
fn show_and_punch() {
    explore(
        &|| watched_shared(WatchModes::MINOR, true),
        &[|world| fill(world, Fill::Object), punch],
        check_shown,
    );
}

/// Like `show_and_punch`, but the handler also adds the page to the object.
#[test]
fn copy_to_shared_memory_and_punch() {
    explore(
        &|| watched_shared(WatchModes::MISSING, false),
        &[|world| fill(world, Fill::Bytes(&[7; PAGE_SIZE])), punch],
        check_shown,
    );
}

/// A handler fills and write-protects a page of shared memory while another CPU stores to it: the fill succeeds, and no
/// store does. A store finds the page missing or write-protected.
#[test]
fn copy_to_shared_memory_and_write() {
    explore(
        &|| watched_shared(WatchModes::MISSING | WRITES, false),
        &[
            |world| {
                let bytes = Fill::Bytes(&[7; PAGE_SIZE]);
                let call = |space: &Space| space.uffd().fill(at(0).page(), bytes, true);
                assert_eq!(world.process().on(FIRST, call), Ok(()));
                world.over();
            },
            two_stores,
        ],
        |world| {
            let seen = world.seen.lock().unwrap().clone();
            assert!(seen.iter().all(|(_, outcome)| *outcome == Err(Signal::Bus)));
            assert_eq!(read(world.process(), FIRST, 0), Ok(7));
            world.end()
        },
    );
}

/// A thread that waits for a handler can continue after the range is unregistered.
#[test]
fn unregister_and_wait() {
    let begin = || {
        let world = watched(false);
        world.write_protect(FIRST, true);
        world
    };
    explore(
        &begin,
        &[
            |world| {
                let watch = world.watch.as_ref().expect("watched");
                let call = world
                    .process()
                    .on(FIRST, |space| space.uffd().unwatch(at(0), bytes(1), watch));
                call.expect("watched");
                world.over();
            },
            two_stores,
        ],
        |world| {
            for (after, outcome) in world.seen.lock().unwrap().iter() {
                assert!(outcome.is_ok() || !after, "{outcome:?} afterwards");
            }
            assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(1)));
            write(world.process(), SECOND, 0, 9).expect("nobody watches");
            world.end()
        },
    );
}

/// A page is write-protected during a fork: the parent's page stays protected, the child's page is not registered, and
/// neither process reads the stores of the other.
#[test]
fn fork_and_protect() {
    explore(
        &|| watched(false),
        &[fork, |world| world.write_protect(SECOND, true)],
        |world| {
            assert_eq!(write(world.process(), SECOND, 0, 9), Err(Signal::Bus));
            world.with_other(|child| {
                assert_eq!(read(child, FIRST, 0), Ok(1));
                write(child, FIRST, 0, 5).expect("not watched");
            });
            assert_eq!(read(world.process(), SECOND, 0), Ok(1));
            world.write_protect(FIRST, false);
            write(world.process(), SECOND, 0, 6).expect("no longer protected");
            assert_eq!(world.with_other(|child| read(child, FIRST, 0)), Ok(5));
            world.end()
        },
    );
}
