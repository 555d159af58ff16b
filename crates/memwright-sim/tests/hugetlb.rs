//! Tests of hugetlb pages on two CPUs that keep stale translations: no process writes to a page of another process, and
//! all reservations are released.

mod support;

use std::sync::Arc;

use memwright::object::{HUGE_BYTES, HugeFile, Object, ObjectIdentity, PrivateHuge};
use memwright::uffd::{Watch, WatchEvents, WatchModes, Watcher};
use memwright::{Advice, MapRequest};
use memwright_sim::process::{Host, Process, Signal};
use memwright_sim::{MachineOptions, SimulatedMachine};
use memwright_table::FrameKind;
use support::{
    FIRST, READ, READ_WRITE, SECOND, assert_coherent, at, fork, map, protect, read, unmap, write,
};

/// The number of 4 KiB pages in a huge page.
const HUGE: u64 = 512;

/// Returns the page, counted from `START`, at which huge page `number` begins.
fn huge(number: u64) -> u64 {
    2 + number * HUGE
}

/// Creates a machine with a hugetlb pool of `pages` huge pages.
fn pooled(pages: u64) -> Arc<Host> {
    let host = Host::boot(MachineOptions {
        frames: 8192,
        ..MachineOptions::default()
    });
    host.memory().frames().resize_pool(pages);
    host
}

fn file(host: &Host, pages: u64) -> Arc<HugeFile<SimulatedMachine>> {
    let memory = host.memory().clone();
    let identity = ObjectIdentity::default();
    Arc::new(HugeFile::new(memory, pages * HUGE_BYTES, identity, ""))
}

/// Creates a program with a private mapping of `pages` huge pages, which the pool reserves for it.
fn private(host: &Arc<Host>, pages: u64) -> Process {
    let process = Process::new(host);
    let memory = host.memory().clone();
    let shown = PrivateHuge::new(memory, file(host, pages), 0..pages).expect("pages in the pool");
    let object: Arc<dyn Object<SimulatedMachine>> = Arc::new(shown);
    let request = MapRequest::object(object, 0, pages * HUGE_BYTES, READ_WRITE, false);
    map(&process, request, huge(0));
    process
}

fn shared(host: &Arc<Host>, file: &Arc<HugeFile<SimulatedMachine>>, pages: u64) -> Process {
    let process = Process::new(host);
    file.reserve(0..pages).expect("pages in the pool");
    let request = MapRequest::object(file.clone(), 0, pages * HUGE_BYTES, READ_WRITE, true);
    map(&process, request, huge(0));
    process
}

/// If there is no memory to add a page to the page cache of its file, the page is freed, but the reservation of the
/// file stays.
#[test]
fn what_could_not_be_entered_is_still_promised() {
    let host = pooled(1);
    let file = file(&host, 1);
    let process = shared(&host, &file, 1);
    let frames = host.frames();
    let running = host.machine().run_on(FIRST);
    let mut hoard = Vec::new();
    while let Ok(frame) = frames.allocate(0, FrameKind::Slab) {
        hoard.push(frame);
    }
    drop(running);
    let refused = write(&process, FIRST, huge(0), 1);
    assert_eq!(refused, Err(Signal::OutOfMemory));
    assert_eq!(frames.pool().reserved, 1);
    let running = host.machine().run_on(FIRST);
    assert!(file.allocate(0, HUGE_BYTES).is_err());
    assert_eq!(frames.pool().reserved, 1);
    drop(hoard);
    drop(running);
    write(&process, FIRST, huge(0), 1).expect("promised");
    assert_eq!(frames.pool().reserved, 0);
}

#[test]
fn neither_side_of_a_fork_sees_the_others_write() {
    let host = pooled(4);
    for parent_first in [true, false] {
        let parent = private(&host, 1);
        write(&parent, FIRST, huge(0) + 9, 1).expect("a page of the pool");
        write(&parent, SECOND, huge(0) + 10, 2).expect("writable");
        let child = fork(&parent, FIRST);
        assert_eq!(read(&child, SECOND, huge(0) + 9), Ok(1));
        let (one, other) = if parent_first {
            (&parent, &child)
        } else {
            (&child, &parent)
        };
        write(one, FIRST, huge(0) + 9, 3).expect("a page of the pool");
        assert_eq!(read(one, FIRST, huge(0) + 10), Ok(2));
        assert_eq!(read(other, SECOND, huge(0) + 9), Ok(1));
        write(other, SECOND, huge(0) + 9, 4).expect("its own again");
        assert_eq!(read(one, FIRST, huge(0) + 9), Ok(3));
        // After the right to write was removed and restored, each process still writes to its own page.
        for (process, value) in [(one, 3), (other, 4)] {
            protect(process, FIRST, huge(0), HUGE, READ);
            protect(process, FIRST, huge(0), HUGE, READ_WRITE);
            assert_eq!(read(process, SECOND, huge(0) + 9), Ok(value));
            write(process, SECOND, huge(0) + 11, value).expect("writable at once");
        }
        assert_eq!(read(one, FIRST, huge(0) + 11), Ok(3));
        assert_eq!(parent.space().audit(), Ok(()));
        assert_eq!(child.space().audit(), Ok(()));
        assert_coherent(&host);
    }
}

#[test]
fn a_right_is_lost_on_every_cpu_for_every_page() {
    let host = pooled(3);
    let process = private(&host, 3);
    for number in 0..3 {
        write(&process, SECOND, huge(number) + 5, 1).expect("a page of the pool");
    }
    protect(&process, FIRST, huge(0), 3 * HUGE, READ);
    for number in 0..3 {
        assert_eq!(
            write(&process, SECOND, huge(number) + 5, 2),
            Err(Signal::Forbidden)
        );
    }
    unmap(&process, FIRST, huge(1), 2 * HUGE);
    assert_eq!(read(&process, SECOND, huge(2) + 5), Err(Signal::Unmapped));
    assert_eq!(read(&process, SECOND, huge(0) + 5), Ok(1));
    assert_coherent(&host);
}

#[test]
fn what_is_promised_is_given_back() {
    let host = pooled(4);
    let pool = || host.memory().frames().pool();
    let process = private(&host, 4);
    write(&process, FIRST, huge(1), 1).expect("a page of the pool");
    assert_eq!((pool().free, pool().reserved), (3, 3));
    unmap(&process, FIRST, huge(0), 2 * HUGE);
    assert_eq!((pool().free, pool().reserved), (4, 2));
    drop(process);
    assert_eq!((pool().free, pool().reserved), (4, 0));
    let file = file(&host, 2);
    let process = shared(&host, &file, 2);
    write(&process, FIRST, huge(0), 1).expect("a page of the pool");
    drop(process);
    assert_eq!((pool().free, pool().reserved), (3, 1));
    drop(file);
    assert_eq!((pool().free, pool().reserved), (4, 0));
}

#[test]
fn the_owner_takes_pages_back_from_a_child_on_another_cpu() {
    let host = pooled(1);
    let parent = private(&host, 1);
    write(&parent, FIRST, huge(0), 1).expect("promised");
    let child = fork(&parent, FIRST);
    assert_eq!(read(&child, SECOND, huge(0)), Ok(1));
    assert_eq!(write(&child, SECOND, huge(0), 2), Err(Signal::Bus));
    write(&parent, FIRST, huge(0), 3).expect("its own");
    assert_eq!(read(&child, SECOND, huge(0)), Err(Signal::Bus));
    assert_coherent(&host);
}

#[test]
fn a_hole_takes_the_page_from_every_cpu() {
    let host = pooled(2);
    let file = file(&host, 2);
    let process = shared(&host, &file, 2);
    let other = shared(&host, &file, 2);
    for number in 0..2 {
        write(&process, FIRST, huge(number), 7).expect("a page of the pool");
        assert_eq!(read(&other, SECOND, huge(number)), Ok(7));
    }
    file.punch(0, HUGE_BYTES);
    assert_eq!(read(&other, SECOND, huge(0)), Ok(0));
    assert_eq!(read(&process, FIRST, huge(0)), Ok(0));
    assert_eq!(read(&process, FIRST, huge(1)), Ok(7));
    file.set_size(0);
    assert_eq!(read(&other, SECOND, huge(1)), Err(Signal::Bus));
    assert_coherent(&host);
}

#[test]
fn a_watched_page_is_filled_and_protected_whole() {
    let host = pooled(2);
    let process = private(&host, 2);
    let watch = Watch::try_new(Watcher {
        number: 1,
        asynchronous: false,
        unpopulated: false,
        counts_accesses: false.into(),
        events: WatchEvents::empty(),
    })
    .expect("heap");
    let space = process.space();
    let modes = WatchModes::MISSING | WatchModes::WRITE_PROTECT;
    let (start, length) = (at(huge(0)), 2 * HUGE_BYTES);
    assert!(
        space
            .uffd()
            .watch(at(huge(0) + 1), HUGE_BYTES, &watch, modes)
            .is_err()
    );
    assert_eq!(space.uffd().watch(start, length, &watch, modes), Ok(()));
    assert_eq!(read(&process, SECOND, huge(0)), Err(Signal::Bus));
    let frames = host.memory().frames();
    let mut fill = |frame, part: u64| {
        frames.write(frame, 0, &[part as u8]);
        Ok::<(), memwright::uffd::FillError>(())
    };
    let page = start.page();
    assert_eq!(space.uffd().fill_hugetlb(page, true, &mut fill), Ok(()));
    assert!(space.uffd().fill_hugetlb(page, true, &mut fill).is_err());
    assert_eq!(read(&process, SECOND, huge(0) + 77), Ok(77));
    assert_eq!(write(&process, SECOND, huge(0) + 77, 1), Err(Signal::Bus));
    assert!(space.uffd().write_protect(start, 4096, false).is_err());
    assert_eq!(space.uffd().write_protect(start, HUGE_BYTES, false), Ok(()));
    write(&process, SECOND, huge(0) + 77, 1).expect("no longer protected");
    assert_eq!(space.uffd().write_protect(start, HUGE_BYTES, true), Ok(()));
    assert_eq!(write(&process, SECOND, huge(0) + 78, 1), Err(Signal::Bus));
    process
        .on(FIRST, |space| {
            space.advise(start, HUGE_BYTES, Advice::DontNeed)
        })
        .expect("mapped");
    assert_eq!(read(&process, SECOND, huge(0) + 77), Err(Signal::Bus));
    assert_eq!(process.space().audit(), Ok(()));
    assert_coherent(&host);
}
