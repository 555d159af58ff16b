//! Tests of merging: pages with equal contents share a frame, and no store to one of them is visible in another.

mod support;

use std::sync::Arc;

use memwright::Advice;
use memwright_sim::process::{Host, Process};
use support::{
    FIRST, READ, READ_WRITE, SECOND, assert_coherent, at, boot, bytes, fork, program, protect,
    read, write,
};

const PAGES: u64 = 3;

/// Creates a program whose pages are mergeable and all hold 7.
fn equal_pages() -> (Arc<Host>, Process) {
    let host = boot();
    let process = program(&host, PAGES, READ_WRITE);
    for page in 0..PAGES {
        write(&process, FIRST, page, 7).expect("writable");
        write(&process, SECOND, page, 7).expect("writable");
    }
    let advised = process.on(FIRST, |space| {
        space.advise(at(0), bytes(PAGES), Advice::Mergeable)
    });
    advised.expect("mapped");
    (host, process)
}

/// Scans twice: pages that did not change in between are merged.
fn scan(host: &Host, process: &Process) {
    process.on(FIRST, |_| {
        for _ in 0..2 {
            while !host.memory().merge_pages(100) {}
        }
    });
}

#[test]
fn a_store_to_a_merged_page_is_seen_by_nobody_else() {
    let (host, process) = equal_pages();
    scan(&host, &process);
    assert_eq!(process.space().ksm().merged_pages().merged, PAGES);
    write(&process, SECOND, 0, 1).expect("writable");
    write(&process, FIRST, 1, 2).expect("writable");
    for cpu in [FIRST, SECOND] {
        let seen = [0, 1, 2].map(|page| read(&process, cpu, page));
        assert_eq!(seen, [Ok(1), Ok(2), Ok(7)]);
    }
    assert_coherent(&host);
}

#[test]
fn a_merged_page_is_exclusive_again_to_nobody() {
    let (host, process) = equal_pages();
    scan(&host, &process);
    protect(&process, FIRST, 0, PAGES, READ);
    protect(&process, FIRST, 0, PAGES, READ_WRITE);
    let child = fork(&process, FIRST);
    write(&child, SECOND, 0, 1).expect("writable");
    write(&process, FIRST, 1, 2).expect("writable");
    assert_eq!(read(&process, FIRST, 0), Ok(7));
    assert_eq!(
        [1, 2].map(|page| read(&child, SECOND, page)),
        [Ok(7), Ok(7)]
    );
    assert_eq!(process.space().audit(), Ok(()));
    assert_eq!(child.space().audit(), Ok(()));
}

#[test]
fn a_device_goes_on_writing_where_it_was_told() {
    let (host, process) = equal_pages();
    let pin = |space: &memwright::AddressSpace<_>| space.pin(at(0)).expect("mapped").into_raw();
    let pinned = process.on(FIRST, pin);
    scan(&host, &process);
    host.frames().write(pinned, 0, &[9]);
    assert_eq!(read(&process, FIRST, 0), Ok(9));
    assert_eq!(read(&process, FIRST, 1), Ok(7));
    host.frames().unpin(pinned);
    drop(host.frames().adopt(pinned));
}
