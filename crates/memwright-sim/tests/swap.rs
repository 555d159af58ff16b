//! Tests of swap: no store is lost while a page is swapped out and in, and the state of the page's entry is restored
//! before any CPU can use the entry.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use memwright::Advice;
use memwright::uffd::{Watch, WatchEvents, WatchModes, Watcher};
use memwright_sim::HostSwap;
use memwright_sim::process::{Host, Process, Signal};
use memwright_table::{CpuId, Entry, FrameKind, PageRange};
use support::{
    FIRST, READ_WRITE, SECOND, assert_coherent, at, boot, bytes, fork, program, read, write,
};

const PAGES: u64 = 4;

/// Creates a machine with swap, and a program whose pages contain their number plus ten.
fn swapping() -> (Arc<Host>, Arc<HostSwap>, Process) {
    let host = boot();
    let device = Arc::new(HostSwap::new(16));
    let added = host.memory().add_swap(device.clone(), 0);
    assert_eq!(added, Ok(Some(0)));
    let process = program(&host, PAGES, READ_WRITE);
    for page in 0..PAGES {
        write(&process, FIRST, page, page as u8 + 10).expect("writable");
    }
    (host, device, process)
}

fn page_out(process: &Process, cpu: CpuId) {
    process
        .on(cpu, |space| {
            space.advise(at(0), bytes(PAGES), Advice::PageOut)
        })
        .expect("mapped");
    assert_eq!(process.space().audit(), Ok(()));
}

fn slots(host: &Host) -> u64 {
    host.memory().swap().totals().1
}

#[test]
fn what_another_cpu_stores_until_the_flush_goes_out_too() {
    let (host, device, process) = swapping();
    for page in 0..PAGES {
        write(&process, SECOND, page, 50).expect("writable");
    }
    // Before the device writes a page, the other CPU tries to store to all pages. A store succeeds if its page is not
    // being swapped out yet: the pages of the second page table are swapped out after those of the first.
    let expected: Arc<[AtomicU8; PAGES as usize]> = Arc::new([const { AtomicU8::new(50) }; 4]);
    let (machine, stored) = (host.machine().clone(), expected.clone());
    device.before_write(move || {
        for page in 0..PAGES {
            let value = stored[page as usize].load(Ordering::Relaxed) + 1;
            if machine.on(SECOND).write(at(page), &[value]).is_ok() {
                stored[page as usize].store(value, Ordering::Relaxed);
            }
        }
    });
    page_out(&process, FIRST);
    for page in 0..PAGES {
        let last = expected[page as usize].load(Ordering::Relaxed);
        assert_eq!(read(&process, FIRST, page), Ok(last));
    }
    assert_coherent(&host);
}

#[test]
fn a_page_in_swap_that_a_fork_shares_is_nobodys_alone() {
    let (host, _, parent) = swapping();
    page_out(&parent, FIRST);
    let child = fork(&parent, FIRST);
    for page in 0..PAGES {
        assert_eq!(read(&parent, FIRST, page), Ok(page as u8 + 10));
        assert_eq!(read(&child, SECOND, page), Ok(page as u8 + 10));
        write(&parent, FIRST, page, 1).expect("writable");
        assert_eq!(read(&child, SECOND, page), Ok(page as u8 + 10));
        write(&child, SECOND, page, 2).expect("writable");
        assert_eq!(read(&parent, FIRST, page), Ok(1));
    }
    assert_eq!(parent.space().audit(), Ok(()));
    assert_eq!(child.space().audit(), Ok(()));
    drop((parent, child));
    assert_eq!(slots(&host), 0);
}

#[test]
fn two_owners_that_read_one_page_at_a_time_find_it_in_one_frame() {
    let (host, device, parent) = swapping();
    page_out(&parent, FIRST);
    let child = Arc::new(fork(&parent, FIRST));
    let frames = host.frames().used_by(FrameKind::Anonymous);
    // The hook runs after the page has been read for the parent, and before the page is mapped.
    let other = child.clone();
    device.after_read(move || {
        let other = other.clone();
        let reads = std::thread::spawn(move || read(&other, SECOND, 0));
        assert_eq!(reads.join().expect("the read ends"), Ok(10));
    });
    assert_eq!(read(&parent, FIRST, 0), Ok(10));
    assert_eq!(host.frames().used_by(FrameKind::Anonymous), frames + 1);
    write(&parent, FIRST, 0, 1).expect("writable");
    assert_eq!(read(&child, SECOND, 0), Ok(10));
    assert_eq!(parent.space().audit(), Ok(()));
    assert_eq!(child.space().audit(), Ok(()));
    drop((parent, child));
    assert_eq!(slots(&host), 0);
}

#[test]
fn a_clean_page_goes_out_again_as_it_was() {
    let (host, _, process) = swapping();
    for round in 0..3 {
        page_out(&process, FIRST);
        for page in 0..PAGES {
            assert_eq!(read(&process, FIRST, page), Ok(page as u8 + 10), "{round}");
        }
        // Clean pages keep their slots.
        assert_eq!(slots(&host), PAGES);
        let other = program(&host, PAGES, READ_WRITE);
        for page in 0..PAGES {
            write(&other, SECOND, page, 99).expect("writable");
        }
        page_out(&other, SECOND);
    }
}

#[test]
fn a_protected_page_comes_back_protected() {
    let (_host, _, process) = swapping();
    let watch = Watch::try_new(Watcher {
        number: 1,
        asynchronous: true,
        unpopulated: false,
        counts_accesses: false.into(),
        events: WatchEvents::empty(),
    })
    .expect("heap");
    process.on(FIRST, |space| {
        // The first store to a protected page must fault.
        space
            .memory()
            .policy()
            .set("track", "fault")
            .expect("known");
        let modes = WatchModes::WRITE_PROTECT;
        space
            .uffd()
            .watch(at(0), bytes(PAGES), &watch, modes)
            .expect("mapped");
        space
            .uffd()
            .write_protect(at(0), bytes(PAGES), true)
            .expect("watched");
    });
    page_out(&process, FIRST);
    for page in 0..PAGES {
        assert_eq!(read(&process, FIRST, page), Ok(page as u8 + 10));
        let range = PageRange::single(at(page).page());
        let entry = process.space().table().cursor(range).peek();
        let Entry::Present(present) = entry else {
            panic!("{entry:?}");
        };
        let bits = present.bits;
        assert!(bits.contains(memwright_table::Bits::UFFD_WP), "{bits:?}");
        assert!(!bits.contains(memwright_table::Bits::WRITE), "{bits:?}");
    }
    assert_eq!(process.space().audit(), Ok(()));
}

#[test]
fn a_device_that_cannot_read_is_a_bus_error_for_who_needed_the_page() {
    let (_host, device, process) = swapping();
    page_out(&process, FIRST);
    device.fail_each(1);
    assert!(matches!(read(&process, FIRST, 0), Err(Signal::Bus)));
    device.fail_each(0);
    assert_eq!(read(&process, FIRST, 0), Ok(10));
}
