//! Tests of swap devices with asynchronous transfers. A fault that waits for the device holds no lock, so other CPUs
//! can meanwhile change the memory to which the page belongs. The device asserts that no lock is held.

mod support;

use std::sync::Arc;

use memwright::error::FillError;
use memwright::object::{ObjectIdentity, Shmem};
use memwright::uffd::{Fill, Watch, WatchEvents, WatchModes, Watcher};
use memwright::{Access, Advice, FaultError, FaultKind, MapRequest, RemapRequest, Rights, Row};
use memwright_sim::process::{Host, Process, Signal, Space};
use memwright_sim::{HostSwap, SimulatedMachine};
use memwright_table::{Bits, CpuId, Entry, FrameKind, Page, PageRange};
use support::{
    FIRST, READ_WRITE, SECOND, assert_coherent, at, boot, bytes, fork, map, program, protect, read,
    unmap, write,
};

/// The number of pages of the program. The first two are in one page table, the others in the next one.
const PAGES: u64 = 6;

/// A page far from the pages of the program.
const ELSEWHERE: u64 = 100;

const LOAD: Access = Access {
    write: false,
    fetch: false,
    user: true,
};

/// A machine whose swap device has asynchronous transfers, and a program whose pages are all in swap. Each page
/// contains its number plus ten.
struct Waiting {
    host: Arc<Host>,
    device: Arc<HostSwap>,
    process: Arc<Process>,
    /// The number of frames in use before the program was created.
    used: u64,
}

impl Waiting {
    fn new(readahead: &str) -> Self {
        let host = boot();
        let device = Arc::new(HostSwap::new(32));
        assert_eq!(host.memory().add_swap(device.clone(), 0), Ok(Some(0)));
        let policy = host.memory().policy();
        policy.set("swapin-around", readahead).expect("known");
        let used = host.frames().used();
        let process = Arc::new(program(&host, PAGES, READ_WRITE));
        for page in 0..PAGES {
            write(&process, FIRST, page, page as u8 + 10).expect("writable");
        }
        page_out(&process);
        device.defer(32);
        Self {
            host,
            device,
            process,
            used,
        }
    }

    fn slots(&self) -> u64 {
        self.host.memory().swap().totals().1
    }

    /// Calls `action` on another thread while a fault waits for the device.
    fn meanwhile(&self, action: impl FnOnce(&Process) + Send + Clone + 'static) {
        let process = Arc::downgrade(&self.process);
        self.device.while_reading(move || {
            let process = process.upgrade().expect("it waits");
            let action = action.clone();
            let other = std::thread::spawn(move || action(&process));
            other.join().expect("the action ends");
        });
    }

    /// Checks that the program's frames and swap slots are freed.
    fn end(self) {
        assert_eq!(self.process.space().audit(), Ok(()));
        assert_coherent(&self.host);
        drop(self.process);
        assert_eq!(self.host.memory().swap().totals().1, 0, "a slot is left");
        assert_eq!(self.device.kept(), 0, "a page is left on the device");
        assert_eq!(self.host.memory().swap().cached_pages(), 0);
        assert_eq!(self.host.frames().used(), self.used, "a frame is left");
    }
}

/// Runs `case` without and with readahead.
fn both_ways(case: fn(Waiting)) {
    for readahead in ["off", "on"] {
        println!("readahead {readahead}");
        case(Waiting::new(readahead));
    }
}

fn page_out(process: &Process) {
    let out = |space: &Space| space.advise(at(0), bytes(PAGES), Advice::PageOut);
    process.on(FIRST, out).expect("mapped");
    assert_eq!(process.space().audit(), Ok(()));
}

fn fault_once(process: &Process, cpu: CpuId, page: u64) -> Result<FaultKind, FaultError> {
    process.on(cpu, |space| space.fault(at(page), LOAD))
}

/// Checks that all pages from `first` on have their contents.
fn check_contents(process: &Process, cpu: CpuId, first: u64) {
    for page in first..PAGES {
        assert_eq!(read(process, cpu, page), Ok(page as u8 + 10), "page {page}");
    }
}

#[test]
fn a_page_comes_back_from_a_device_that_takes_time() {
    both_ways(|waiting| {
        for page in 0..PAGES {
            if page % 2 == 0 {
                write(&waiting.process, FIRST, page, page as u8 + 10).expect("writable");
            }
            assert_eq!(read(&waiting.process, SECOND, page), Ok(page as u8 + 10));
        }
        waiting.end();
    });
}

#[test]
fn each_fault_that_waited_is_a_major_one() {
    let waiting = Waiting::new("off");
    for page in 0..PAGES {
        let kind = fault_once(&waiting.process, FIRST, page);
        assert_eq!(kind, Ok(FaultKind::SwapIn));
    }
    let count = |row| waiting.host.memory().account().count(row);
    assert_eq!(count(Row::FaultSwapIn), PAGES);
    assert_eq!(count(Row::SwapIn), PAGES);
    waiting.end();
}

#[test]
fn pages_that_were_unmapped_meanwhile_are_dropped() {
    both_ways(|waiting| {
        waiting.meanwhile(|process| unmap(process, SECOND, 0, 3));
        assert_eq!(read(&waiting.process, FIRST, 0), Err(Signal::Unmapped));
        assert_eq!(waiting.slots(), PAGES - 3);
        check_contents(&waiting.process, FIRST, 3);
        waiting.end();
    });
}

#[test]
fn the_memory_of_a_killed_process_is_freed_although_a_fault_waits() {
    both_ways(|waiting| {
        waiting.meanwhile(|process| unmap(process, SECOND, 0, PAGES));
        assert_eq!(write_one(&waiting), Err(Signal::Unmapped));
        assert_eq!((waiting.slots(), waiting.device.kept()), (0, 0));
        waiting.end();
    });
}

fn write_one(waiting: &Waiting) -> Result<(), Signal> {
    write(&waiting.process, FIRST, 2, 1)
}

#[test]
fn pages_that_were_discarded_meanwhile_are_zero() {
    both_ways(|waiting| {
        waiting.meanwhile(|process| {
            let discard = |space: &Space| space.advise(at(2), bytes(2), Advice::DontNeed);
            process.on(SECOND, discard).expect("mapped");
            // By the time the read is over, the entry maps another page.
            write(process, SECOND, 2, 77).expect("writable");
        });
        assert_eq!(read(&waiting.process, FIRST, 2), Ok(77));
        assert_eq!(read(&waiting.process, FIRST, 3), Ok(0));
        check_contents(&waiting.process, FIRST, 4);
        waiting.end();
    });
}

#[test]
fn a_page_that_was_swapped_out_anew_meanwhile_is_read_from_its_new_slot() {
    both_ways(|waiting| {
        waiting.meanwhile(|process| {
            let discard = |space: &Space| space.advise(at(2), bytes(1), Advice::DontNeed);
            process.on(SECOND, discard).expect("mapped");
            write(process, SECOND, 2, 77).expect("writable");
            let out = |space: &Space| space.advise(at(2), bytes(1), Advice::PageOut);
            process.on(SECOND, out).expect("mapped");
        });
        assert_eq!(read(&waiting.process, FIRST, 2), Ok(77));
        check_contents(&waiting.process, FIRST, 3);
        waiting.end();
    });
}

#[test]
fn rights_that_were_removed_meanwhile_deny_the_access() {
    both_ways(|waiting| {
        waiting.meanwhile(|process| protect(process, SECOND, 0, PAGES, Rights::empty()));
        assert_eq!(read(&waiting.process, FIRST, 2), Err(Signal::Forbidden));
        protect(&waiting.process, FIRST, 0, PAGES, READ_WRITE);
        check_contents(&waiting.process, FIRST, 0);
        waiting.meanwhile(|process| protect(process, SECOND, 0, PAGES, Rights::READ));
        page_out_now(&waiting);
        assert_eq!(write(&waiting.process, FIRST, 2, 1), Err(Signal::Forbidden));
        check_contents(&waiting.process, SECOND, 0);
        waiting.end();
    });
}

/// Swaps all pages out again, with synchronous transfers.
fn page_out_now(waiting: &Waiting) {
    waiting.device.defer(0);
    page_out(&waiting.process);
    waiting.device.defer(32);
}

#[test]
fn pages_that_were_moved_meanwhile_keep_their_contents() {
    both_ways(|waiting| {
        waiting.meanwhile(|process| {
            let request = RemapRequest {
                old: at(2),
                old_length: bytes(2),
                new_length: bytes(2),
                may_move: true,
                fixed: Some(at(ELSEWHERE)),
                dont_unmap: false,
            };
            let moved = process.on(SECOND, |space| space.remap(request));
            moved.expect("mapped");
            // The slot of the page is being read.
            let page = fault_once(process, SECOND, ELSEWHERE);
            assert_eq!(page, Err(FaultError::WouldBlock));
        });
        assert_eq!(read(&waiting.process, FIRST, 2), Err(Signal::Unmapped));
        assert_eq!(read(&waiting.process, FIRST, ELSEWHERE), Ok(12));
        assert_eq!(read(&waiting.process, FIRST, ELSEWHERE + 1), Ok(13));
        waiting.end();
    });
}

#[test]
fn a_child_that_was_forked_meanwhile_has_the_pages_too() {
    both_ways(|waiting| {
        let (send, receive) = std::sync::mpsc::channel();
        waiting.meanwhile(move |process| {
            let child = fork(process, SECOND);
            let page = fault_once(&child, SECOND, 2);
            assert_eq!(page, Err(FaultError::WouldBlock), "the slot is being read");
            send.send(child).expect("received");
        });
        assert_eq!(read(&waiting.process, FIRST, 2), Ok(12));
        let child = receive.recv().expect("forked");
        write(&waiting.process, FIRST, 2, 1).expect("writable");
        check_contents(&child, SECOND, 0);
        write(&child, SECOND, 3, 2).expect("writable");
        check_contents(&waiting.process, FIRST, 3);
        assert_eq!(read(&waiting.process, FIRST, 2), Ok(1));
        assert_eq!(child.space().audit(), Ok(()));
        drop(child);
        waiting.end();
    });
}

#[test]
fn another_thread_that_faults_on_the_page_does_not_read_it_again() {
    let waiting = Waiting::new("off");
    let before = waiting.host.memory().account().count(Row::SwapIn);
    waiting.meanwhile(|process| {
        for _ in 0..3 {
            let page = fault_once(process, SECOND, 2);
            assert_eq!(page, Err(FaultError::WouldBlock));
        }
        assert_eq!(read(process, SECOND, 3), Ok(13), "other pages do not wait");
    });
    assert_eq!(read(&waiting.process, FIRST, 2), Ok(12));
    let reads = waiting.host.memory().account().count(Row::SwapIn) - before;
    assert_eq!(reads, 2);
    waiting.end();
}

#[test]
fn a_read_that_fails_leaves_the_page_in_swap() {
    both_ways(|waiting| {
        let device = waiting.device.clone();
        waiting.meanwhile(move |_| device.fail_each(1));
        assert_eq!(read(&waiting.process, FIRST, 2), Err(Signal::Bus));
        waiting.device.fail_each(0);
        assert_eq!(waiting.slots(), PAGES);
        check_contents(&waiting.process, FIRST, 0);
        waiting.end();
    });
}

#[test]
fn reclaim_meanwhile_leaves_the_page_that_is_being_read() {
    both_ways(|waiting| {
        let memory = waiting.host.memory().clone();
        waiting.meanwhile(move |_| {
            assert_eq!(memory.swap().shed_some(&memory, 100), 0);
        });
        assert_eq!(read(&waiting.process, FIRST, 2), Ok(12));
        check_contents(&waiting.process, FIRST, 0);
        waiting.end();
    });
}

#[test]
fn swapoff_meanwhile_does_not_take_the_slot_away() {
    both_ways(|waiting| {
        let memory = waiting.host.memory().clone();
        let bring_back = |process: &Process, cpu: CpuId| {
            let back = |space: &Space| space.bring_back(0, Page::new(0), u64::MAX);
            assert_eq!(process.on(cpu, back), Ok(None));
        };
        waiting.meanwhile(move |process| {
            assert!(memory.close_swap(0, true));
            bring_back(process, SECOND);
            assert!(!memory.remove_swap(0), "a slot is being read");
        });
        assert_eq!(read(&waiting.process, FIRST, 2), Ok(12));
        bring_back(&waiting.process, FIRST);
        assert!(waiting.host.memory().remove_swap(0));
        check_contents(&waiting.process, FIRST, 0);
        waiting.end();
    });
}

#[test]
fn swapoff_waits_for_the_device_without_a_lock() {
    both_ways(|waiting| {
        let memory = waiting.host.memory().clone();
        assert!(memory.close_swap(0, true));
        waiting.meanwhile(|process| unmap(process, SECOND, 1, 1));
        let back = |space: &Space| space.bring_back(0, Page::new(0), u64::MAX);
        assert_eq!(waiting.process.on(FIRST, back), Ok(None));
        assert!(memory.remove_swap(0));
        assert_eq!(read(&waiting.process, FIRST, 1), Err(Signal::Unmapped));
        check_contents(&waiting.process, FIRST, 2);
        waiting.end();
    });
}

fn watch(asynchronous: bool) -> Arc<Watch> {
    let watch = Watch::try_new(Watcher {
        number: 1,
        asynchronous,
        unpopulated: false,
        counts_accesses: false.into(),
        events: WatchEvents::empty(),
    });
    Arc::new(watch.expect("heap"))
}

#[test]
fn the_present_bits_of_the_entry_count() {
    both_ways(|waiting| {
        let watch = watch(true);
        waiting.meanwhile(move |process| {
            process.on(SECOND, |space| {
                let modes = WatchModes::WRITE_PROTECT;
                let watched = space.uffd().watch(at(0), bytes(PAGES), &watch, modes);
                watched.expect("mapped");
                let protected = space.uffd().write_protect(at(0), bytes(PAGES), true);
                protected.expect("watched");
            });
        });
        assert_eq!(read(&waiting.process, FIRST, 2), Ok(12));
        let range = PageRange::single(at(2).page());
        let entry = waiting.process.space().table().cursor(range).peek();
        let Entry::Present(present) = entry else {
            panic!("{entry:?}");
        };
        let tracked = Bits::UFFD_WP | Bits::WATCHED;
        assert!(present.bits.intersects(tracked), "{present:?}");
        waiting.end();
    });
}

#[test]
fn the_kernel_and_a_debugger_wait_without_a_lock_too() {
    both_ways(|waiting| {
        let process = waiting.process.clone();
        waiting.meanwhile(|process| unmap(process, SECOND, 0, 1));
        let mut byte = [0];
        let read_by =
            |page: u64, byte: &mut [u8]| process.on(FIRST, |space| space.read(at(page), byte));
        assert_eq!(read_by(1, &mut byte), Ok(()));
        assert_eq!(byte, [11]);
        protect(&process, FIRST, 2, 2, Rights::empty());
        waiting.meanwhile(|process| unmap(process, SECOND, 5, 1));
        let written = process.on(FIRST, |space| space.write_forced(at(3), &[50]));
        assert_eq!(written, Ok(()));
        let found = process.on(FIRST, |space| space.read_forced(at(2), &mut byte));
        assert_eq!((found, byte), (Ok(()), [12]));
        protect(&process, FIRST, 2, 2, READ_WRITE);
        assert_eq!(read(&process, FIRST, 3), Ok(50));
        drop(process);
        waiting.end();
    });
}

#[test]
fn the_kernel_waits_for_a_page_that_another_thread_reads() {
    let waiting = Waiting::new("off");
    let process = waiting.process.clone();
    let (send, receive) = std::sync::mpsc::channel();
    waiting.device.while_reading(move || {
        let (process, send) = (process.clone(), send.clone());
        // Not joined here, because this access ends only after the read, which waits for the hook.
        std::thread::spawn(move || {
            let mut byte = [0];
            let found = process.on(SECOND, |space| space.read(at(2), &mut byte));
            drop(process);
            send.send((found, byte)).expect("received");
        });
    });
    assert_eq!(read(&waiting.process, FIRST, 2), Ok(12));
    assert_eq!(receive.recv(), Ok((Ok(()), [12])));
    waiting.end();
}

#[test]
fn populating_waits_without_a_lock() {
    both_ways(|waiting| {
        waiting.meanwhile(|process| {
            map(
                process,
                MapRequest::anonymous(bytes(1), READ_WRITE),
                ELSEWHERE,
            );
        });
        let populated = |space: &Space| space.residency().populate(at(0), bytes(PAGES), true);
        assert_eq!(waiting.process.on(FIRST, populated), Ok(()));
        assert_eq!(waiting.process.space().usage().swapped_pages(), 0);
        check_contents(&waiting.process, FIRST, 0);
        waiting.end();
    });
}

/// Creates a machine whose swap device has asynchronous transfers, and a program with shared memory whose pages are all
/// in swap. Each page contains its number plus ten.
fn sharing(readahead: &str) -> (Waiting, Arc<Shmem<SimulatedMachine>>) {
    let waiting = Waiting::new(readahead);
    waiting.device.defer(0);
    unmap(&waiting.process, FIRST, 0, PAGES);
    let memory = waiting.host.memory().clone();
    let object = Shmem::new(memory, bytes(PAGES), ObjectIdentity::default()).expect("heap");
    let object = Arc::new(object);
    let request = MapRequest::object(object.clone(), 0, bytes(PAGES), READ_WRITE, true);
    map(&waiting.process, request, 0);
    for page in 0..PAGES {
        write(&waiting.process, FIRST, page, page as u8 + 10).expect("writable");
    }
    page_out_now(&waiting);
    assert_eq!(waiting.slots(), PAGES);
    (waiting, object)
}

/// Ends the program, and checks that the frames and swap slots of its shared memory are freed.
fn end_sharing(waiting: Waiting, object: Arc<Shmem<SimulatedMachine>>) {
    let Waiting {
        host,
        device,
        process,
        ..
    } = waiting;
    assert_eq!(process.space().audit(), Ok(()));
    assert_coherent(&host);
    drop((process, object));
    assert_eq!(host.memory().swap().totals().1, 0, "a slot is left");
    assert_eq!(device.kept(), 0, "a page is left on the device");
    assert_eq!(
        host.frames().used_by(FrameKind::Object),
        0,
        "a frame is left"
    );
}

#[test]
fn shared_memory_comes_back_without_a_lock() {
    for readahead in ["off", "on"] {
        let (waiting, object) = sharing(readahead);
        waiting.meanwhile(|process| {
            map(
                process,
                MapRequest::anonymous(bytes(1), READ_WRITE),
                ELSEWHERE,
            );
            assert_eq!(read(process, SECOND, 4), Ok(14));
        });
        let kind = fault_once(&waiting.process, FIRST, 1);
        assert_eq!(kind, Ok(FaultKind::SwapIn));
        check_contents(&waiting.process, FIRST, 0);
        end_sharing(waiting, object);
    }
}

#[test]
fn shared_memory_that_was_unmapped_meanwhile_is_not_mapped() {
    for readahead in ["off", "on"] {
        let (waiting, object) = sharing(readahead);
        waiting.meanwhile(|process| unmap(process, SECOND, 0, 2));
        assert_eq!(read(&waiting.process, FIRST, 1), Err(Signal::Unmapped));
        check_contents(&waiting.process, FIRST, 2);
        end_sharing(waiting, object);
    }
}

#[test]
fn shared_memory_that_was_truncated_meanwhile_is_gone() {
    for readahead in ["off", "on"] {
        let (waiting, object) = sharing(readahead);
        let shown = object.clone();
        waiting.meanwhile(move |_| assert_eq!(shown.set_size(bytes(2)), Ok(())));
        assert_eq!(read(&waiting.process, FIRST, 4), Err(Signal::Bus));
        end_sharing(waiting, object);
    }
}

#[test]
fn shared_memory_whose_read_fails_stays_in_swap() {
    for readahead in ["off", "on"] {
        let (waiting, object) = sharing(readahead);
        let device = waiting.device.clone();
        waiting.meanwhile(move |_| device.fail_each(1));
        assert_eq!(read(&waiting.process, FIRST, 2), Err(Signal::Bus));
        waiting.device.fail_each(0);
        assert_eq!(waiting.slots(), PAGES);
        check_contents(&waiting.process, FIRST, 0);
        end_sharing(waiting, object);
    }
}

#[test]
fn shared_memory_is_shown_after_a_wait_without_a_lock() {
    let (waiting, object) = sharing("off");
    let watch = watch(false);
    let watched = |space: &Space| {
        space
            .uffd()
            .watch(at(0), bytes(PAGES), &watch, WatchModes::MINOR)
    };
    waiting.process.on(FIRST, watched).expect("mapped");
    let fill = |page: u64| {
        let fill = |space: &Space| space.uffd().fill(at(page).page(), Fill::Object, false);
        waiting.process.on(FIRST, fill)
    };
    waiting.meanwhile(|process| unmap(process, SECOND, 0, 1));
    assert_eq!(fill(2), Ok(()));
    assert_eq!(read(&waiting.process, FIRST, 2), Ok(12));
    waiting.meanwhile(|process| unmap(process, SECOND, 3, 1));
    assert_eq!(fill(3), Err(FillError::NotWatched));
    end_sharing(waiting, object);
}
