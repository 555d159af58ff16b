//! Failed allocations with hugetlb pages: reservations, faults, copies, and truncation and growth of a hugetlbfs file.

use std::ops::Range;
use std::sync::Arc;

use memwright::error::FillError;
use memwright::object::{HUGE_BYTES, HugeFile, Object, ObjectIdentity, PrivateHuge};
use memwright::uffd::{Fill, Watch, WatchEvents, WatchModes, Watcher};
use memwright::{Advice, MapRequest, Placement};
use memwright_sim::SimulatedMachine;

use crate::support::{FIRST, READ, READ_WRITE, at, bytes};
use crate::trial::{Program, Trial, machine, run};

const HEAD: u64 = 2;
const HUGE: u64 = 512;

fn file(trial: &Trial, pages: u64) -> Arc<HugeFile<SimulatedMachine>> {
    let memory = trial.host.memory().clone();
    Arc::new(HugeFile::new(
        memory,
        pages * HUGE_BYTES,
        ObjectIdentity::default(),
        "",
    ))
}

fn map_private(trial: &Trial, program: &Program, page: u64, range: Range<u64>) {
    let file = file(trial, range.end);
    let memory = trial.host.memory();
    let shown = trial.step("promise", || {
        PrivateHuge::new(memory.clone(), file.clone(), range.clone())
    });
    let shown: Arc<dyn Object<SimulatedMachine>> = Arc::new(shown);
    let length = (range.end - range.start) * HUGE_BYTES;
    let request = MapRequest::object(shown, range.start * HUGE_BYTES, length, READ_WRITE, false)
        .at(Placement::Fixed(at(page)));
    trial.on("map", program, |space| space.map(&request));
}

#[test]
fn private_pages() {
    run(&machine(8192), 2, 1, |trial| {
        trial.host.frames().resize_pool(6);
        let program = trial.program();
        trial.begin();
        map_private(trial, &program, HEAD, 0..3);
        trial.write(&program, HEAD, 1);
        trial.read(&program, HEAD + HUGE);
        let child = trial.fork(&program);
        trial.write(&program, HEAD + 5, 2);
        trial.write(&child, HEAD + HUGE, 3);
        trial.on("mprotect", &program, |space| {
            space.protect(at(HEAD), bytes(HUGE), READ)
        });
        trial.on("madvise", &program, |space| {
            space.advise(at(HEAD + HUGE), bytes(HUGE), Advice::DontNeed)
        });
        trial.on("munmap", &program, |space| {
            space.unmap(at(HEAD + 2 * HUGE), bytes(HUGE))
        });
    });
}

#[test]
fn shared_pages() {
    run(&machine(8192), 2, 1, |trial| {
        trial.host.frames().resize_pool(6);
        let program = trial.program();
        let file = file(trial, 4);
        trial.begin();
        trial.step("promise", || file.reserve(0..3));
        let request = MapRequest::object(file.clone(), 0, 3 * HUGE_BYTES, READ_WRITE, true)
            .at(Placement::Fixed(at(HEAD)));
        trial.on("map", &program, |space| space.map(&request));
        trial.write(&program, HEAD + 1, 1);
        trial.step("allocate", || file.allocate(HUGE_BYTES, 4 * HUGE_BYTES));
        let child = trial.fork(&program);
        trial.write(&child, HEAD + HUGE + 7, 2);
        trial.expect(&program, HEAD + HUGE + 7, 2);
        let watch = trial.step("watch", || {
            Watch::try_new(Watcher {
                number: 1,
                asynchronous: false,
                unpopulated: true,
                counts_accesses: false.into(),
                events: WatchEvents::empty(),
            })
        });
        file.punch(0, HUGE_BYTES);
        trial.forget(&program, HEAD..HEAD + HUGE);
        trial.forget(&child, HEAD..HEAD + HUGE);
        trial.on("register", &program, |space| {
            let modes = WatchModes::MISSING | WatchModes::WRITE_PROTECT;
            space.uffd().watch(at(HEAD), bytes(HUGE), &watch, modes)
        });
        trial.on("fill", &program, |space| {
            space
                .uffd()
                .fill_hugetlb::<FillError>(at(HEAD).page(), false, &mut |_, _| Ok(()))
        });
        trial.on("poison", &program, |space| {
            match space.uffd().fill(at(HEAD).page(), Fill::Poison, false) {
                Err(FillError::Exists) => Ok(()),
                other => other,
            }
        });
        trial.on("protect", &program, |space| {
            space.uffd().write_protect(at(HEAD), bytes(HUGE), true)
        });
        trial.on("unregister", &program, |space| {
            space.uffd().unwatch(at(HEAD), bytes(HUGE), &watch)
        });
        trial.step("read", || {
            let frames = trial.host.frames();
            let _running = trial.host.machine().run_on(FIRST);
            file.frame_at(3)
                .map(|frame| drop(frames.adopt(frame.expect("filled"))))
        });
        file.set_size(HUGE_BYTES);
        trial.forget(&program, 0..4096);
        trial.forget(&child, 0..4096);
    });
}
