//! Failed allocations in userfaultfd and write tracking: registration, protection of unpopulated pages, fills, moves,
//! and scans.

use memwright::error::FillError;
use memwright::track::{Categories, Scan, Share};
use memwright::uffd::{Fill, Relocation, Watch, WatchEvents, WatchModes, Watcher};
use memwright::{MapRequest, Placement, RemapRequest};
use memwright_table::{PAGE_SIZE, PageRange};

use crate::support::{FIRST, READ_WRITE, at, bytes};
use crate::trial::{Program, Trial, machine, run};

fn watch(trial: &Trial, asynchronous: bool) -> Watch {
    trial.step("userfaultfd", || {
        Watch::try_new(Watcher {
            number: 1,
            asynchronous,
            unpopulated: true,
            counts_accesses: false.into(),
            events: WatchEvents::REMAP,
        })
    })
}

fn map(trial: &Trial, program: &Program, page: u64, pages: u64) {
    let own = MapRequest::anonymous(bytes(pages), READ_WRITE).at(Placement::Fixed(at(page)));
    trial.on("map", program, |space| space.map(&own));
}

fn protect(trial: &Trial, program: &Program, page: u64, pages: u64, on: bool) {
    trial.on("protect", program, |space| {
        space.uffd().write_protect(at(page), bytes(pages), on)
    });
}

#[test]
fn protection_and_its_end() {
    run(&machine(2048), 10, 2, |trial| {
        let program = trial.program();
        let file = trial.shmem(16);
        trial.begin();
        // The area crosses the end of a page table, and most of its pages are never accessed.
        map(trial, &program, 0, 1200);
        let shared = MapRequest::object(file.clone(), 0, bytes(16), READ_WRITE, true)
            .at(Placement::Fixed(at(1300)));
        trial.on("map", &program, |space| space.map(&shared));
        for page in [0, 1, 5, 600, 1300] {
            trial.write(&program, page, 1);
        }
        let watch = watch(trial, false);
        for (page, pages) in [(0, 1000), (1300, 8)] {
            trial.on("register", &program, |space| {
                space
                    .uffd()
                    .watch(at(page), bytes(pages), &watch, WatchModes::WRITE_PROTECT)
            });
        }
        protect(trial, &program, 0, 1000, true);
        protect(trial, &program, 1302, 4, true);
        trial.read(&program, 700);
        protect(trial, &program, 3, 100, false);
        trial.write(&program, 4, 2);
        protect(trial, &program, 1302, 2, false);
        trial.write(&program, 1302, 3);
        // The child's memory has no userfaultfd.
        let child = trial.fork(&program);
        trial.write(&child, 0, 4);
        trial.write(&child, 999, 5);
        trial.on("mremap", &program, |space| {
            space.remap(RemapRequest {
                old: at(590),
                old_length: bytes(20),
                new_length: bytes(20),
                may_move: true,
                fixed: Some(at(3000)),
                dont_unmap: false,
            })
        });
        trial.forget(&program, 590..610);
        trial.expect(&program, 3010, 1);
        trial.on("munmap", &program, |space| space.unmap(at(200), bytes(3)));
        trial.on("unregister", &program, |space| {
            space.uffd().unwatch(at(0), bytes(150), &watch)
        });
        trial.on("unregister", &program, |space| {
            space.uffd().unwatch(at(1300), bytes(8), &watch)
        });
        trial.write(&program, 1304, 6);
        let space = program.process.space();
        program
            .process
            .on(FIRST, |_| space.uffd().forget_watch(&watch));
        trial.write(&program, 3010, 7);
    });
}

#[test]
fn fills_and_moves() {
    run(&machine(2048), 8, 1, |trial| {
        let program = trial.program();
        let file = trial.shmem(8);
        trial.begin();
        map(trial, &program, 0, 32);
        map(trial, &program, 600, 16);
        let shared = MapRequest::object(file.clone(), 0, bytes(8), READ_WRITE, true)
            .at(Placement::Fixed(at(1700)));
        trial.on("map", &program, |space| space.map(&shared));
        for page in [600, 601, 603] {
            trial.write(&program, page, page as u8);
        }
        trial.step("file", || file.write_at(bytes(2), &[9; PAGE_SIZE]));
        let watch = watch(trial, false);
        let modes = WatchModes::MISSING | WatchModes::WRITE_PROTECT;
        trial.on("register", &program, |space| {
            space.uffd().watch(at(0), bytes(32), &watch, modes)
        });
        trial.on("register", &program, |space| {
            space
                .uffd()
                .watch(at(1700), bytes(8), &watch, modes | WatchModes::MINOR)
        });
        let page = [5; PAGE_SIZE];
        for (index, fill, protect, value) in [
            (1, Fill::Bytes(&page), false, 5),
            (2, Fill::Bytes(&page), true, 5),
            (3, Fill::Zeroes, false, 0),
            (1700, Fill::Bytes(&page), false, 5),
            (1701, Fill::Zeroes, true, 0),
            (1702, Fill::Object, false, 9),
        ] {
            trial.on("fill", &program, |space| {
                space.uffd().fill(at(index).page(), fill, protect)
            });
            trial.expect(&program, index, value);
        }
        trial.on("poison", &program, |space| {
            space.uffd().fill(at(4).page(), Fill::Poison, false)
        });
        let again = program.process.on(FIRST, |space| {
            space.uffd().fill(at(1).page(), Fill::Zeroes, false)
        });
        assert_eq!(again, Err(FillError::Exists));
        let mut done = 0;
        trial.on("move", &program, |space| {
            let relocation = Relocation {
                from: at(600 + done).page(),
                to: at(10 + done).page(),
                pages: 4 - done,
                holes: true,
            };
            let (moved, outcome) = space.uffd().relocate(&relocation, &watch);
            done += moved;
            for page in (600..600 + done).filter(|page| *page != 602) {
                trial.forget(&program, page..page + 1);
                trial.expect(&program, page - 590, page as u8);
            }
            outcome
        });
        trial.forget(&program, 600..604);
        let child = trial.fork(&program);
        trial.write(&child, 3, 10);
        trial.on("unregister", &program, |space| {
            space.uffd().unwatch(at(0), bytes(32), &watch)
        });
        trial.on("unregister", &program, |space| {
            space.uffd().unwatch(at(1700), bytes(8), &watch)
        });
        trial.write(&program, 2, 11);
        trial.write(&program, 12, 12);
    });
}

/// Finds the written pages and write-protects them again.
fn scan(trial: &Trial, program: &Program) {
    let scan = Scan::written(true);
    let range = PageRange::new(at(0).page(), at(1000).page());
    trial.on("scan", program, |space| {
        space
            .tracking()
            .scan(
                range,
                &scan,
                &mut |run: PageRange, _: Categories, _: Share| run.len(),
            )
            .map(drop)
    });
}

#[test]
fn tracking() {
    for policy in ["dirty-bit", "fault"] {
        let subject: fn(&Trial) = match policy {
            "fault" => |trial| track(trial, "fault"),
            _ => |trial| track(trial, "dirty-bit"),
        };
        run(&machine(2048), 6, 2, subject);
    }
}

fn track(trial: &Trial, policy: &str) {
    let policies = trial.host.memory().policy();
    policies.set("track", policy).expect("a policy");
    let program = trial.program();
    trial.begin();
    map(trial, &program, 0, 1000);
    for page in [0, 1, 5, 600] {
        trial.write(&program, page, 1);
    }
    let watch = watch(trial, true);
    trial.on("register", &program, |space| {
        space
            .uffd()
            .watch(at(0), bytes(1000), &watch, WatchModes::WRITE_PROTECT)
    });
    protect(trial, &program, 0, 1000, true);
    trial.write(&program, 1, 2);
    trial.write(&program, 900, 2);
    scan(trial, &program);
    trial.write(&program, 5, 3);
    trial.write(&program, 300, 3);
    let child = trial.fork(&program);
    scan(trial, &program);
    trial.write(&program, 0, 4);
    trial.write(&child, 600, 5);
    program.process.on(FIRST, |space| {
        space.tracking().clear_soft_dirty();
    });
    trial.write(&program, 0, 6);
    trial.write(&program, 7, 6);
    scan(trial, &program);
    trial.on("unregister", &program, |space| {
        space.uffd().unwatch(at(0), bytes(1000), &watch)
    });
    trial.write(&program, 600, 7);
}
