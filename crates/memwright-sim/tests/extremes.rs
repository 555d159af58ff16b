//! Tests of reservations larger than memory, and of memory that runs out.

mod support;

use memwright::{AreaFlags, MapRequest, Rights};
use memwright_sim::Arch;
use memwright_sim::programs::Process;
use memwright_table::{Architecture, FrameKind};
use memwright_testkit::process::Signal;
use support::{
    FIRST, READ_WRITE, SECOND, assert_coherent, at, boot, bytes, fork, map, program, protect,
};
use support::{read, unmap, write};

/// The number of pages in 512 GiB, or in half of user memory if that is less.
const HUGE: u64 = {
    let half = Arch::USER.end.number().div_ceil(2);
    if half < 512 << 18 { half } else { 512 << 18 }
};

#[test]
fn a_reservation_costs_what_is_touched_of_it() {
    let host = boot();
    let process = Process::new(&host);
    let tables = host.frames().used_by(FrameKind::Table);
    let request = MapRequest::anonymous(bytes(HUGE), Rights::empty()).with(AreaFlags::NORESERVE);
    map(&process, request, 0);
    assert_eq!(host.frames().used_by(FrameKind::Table), tables);
    assert_eq!(read(&process, FIRST, HUGE / 2), Err(Signal::Forbidden));
    protect(&process, FIRST, HUGE / 2, 1, READ_WRITE);
    write(&process, SECOND, HUGE / 2, 7).expect("writable");
    assert_eq!(read(&process, FIRST, HUGE / 2), Ok(7));
    assert_eq!(host.frames().used_by(FrameKind::Anonymous), 1);
    assert!(host.frames().used_by(FrameKind::Table) <= tables + 3 * u64::from(Arch::TABLE_FRAMES));
    let child = fork(&process, SECOND);
    assert_eq!(read(&child, FIRST, HUGE / 2), Ok(7));
    unmap(&process, FIRST, 0, HUGE);
    assert_eq!(read(&process, SECOND, HUGE / 2), Err(Signal::Unmapped));
    drop(child);
    assert_eq!(host.frames().used_by(FrameKind::Table), tables);
    assert_eq!(host.frames().used_by(FrameKind::Anonymous), 0);
    assert_coherent(&host);
}

#[test]
fn memory_that_ran_out_is_there_again_after_an_exit() {
    let host = boot();
    let hog = Process::new(&host);
    let request = MapRequest::anonymous(bytes(4096), READ_WRITE).with(AreaFlags::NORESERVE);
    map(&hog, request, 0);
    let written = (0..4096)
        .take_while(|&page| write(&hog, FIRST, page, 1).is_ok())
        .count() as u64;
    assert!(written > 300, "{written} of 512 frames");
    assert_eq!(write(&hog, SECOND, written, 1), Err(Signal::OutOfMemory));
    assert_eq!(
        read(&hog, SECOND, written - 1),
        Ok(1),
        "what is there stays usable"
    );
    assert_eq!(hog.space().audit(), Ok(()));
    drop(hog);
    assert_eq!(host.frames().used_by(FrameKind::Anonymous), 0);
    let next = program(&host, 8, READ_WRITE);
    for page in 0..8 {
        assert_eq!(read(&next, FIRST, page), Ok(0), "{:?}", at(page));
        write(&next, FIRST, page, 2).expect("memory again");
    }
    assert_coherent(&host);
}
