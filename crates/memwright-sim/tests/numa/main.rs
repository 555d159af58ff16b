//! Tests with several NUMA nodes: on which node pages are allocated, and pages that migrate while other CPUs use them.

mod relatives;
#[path = "../support/mod.rs"]
mod support;
mod together;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use memwright::{Advice, BindError, Moved, Moving, PlaceMode, PlacePolicy, Rights, Row, Unmoved};
use memwright_sim::MachineOptions;
use memwright_sim::programs::{self, Host, Process, Space};
use memwright_sim::schedule::{self, Case};
use memwright_table::{Bits, CpuId, Entry, FrameKind, NodeChoice, NodeSet, PageRange};
use support::{FIRST, READ, READ_WRITE, SECOND, START, at, bytes, program, protect, read, write};

/// Boots a machine with two nodes, each with one CPU.
fn two_nodes(frames: u32) -> Arc<Host> {
    programs::boot(MachineOptions {
        frames,
        nodes: 2,
        ..MachineOptions::default()
    })
}

fn migrate(process: &Process, cpu: CpuId, page: u64, node: u8) -> Result<Moved, Unmoved> {
    migrate_as(process, cpu, page, node, Moving::Own)
}

/// Migrates a page to `node`. `moving` determines whether a page that several processes map migrates.
fn migrate_as(
    process: &Process,
    cpu: CpuId,
    page: u64,
    node: u8,
    moving: Moving,
) -> Result<Moved, Unmoved> {
    process.on(cpu, |space| {
        space
            .numa()
            .migrate(START.add(page), NodeChoice::only(node), moving)
    })
}

fn node_of(process: &Process, page: u64) -> Result<u8, Unmoved> {
    process.on(FIRST, |space| space.numa().node_of(START.add(page)))
}

/// Returns the bits of the entry of a page.
fn bits_of(process: &Process, page: u64) -> Bits {
    process.on(FIRST, |space| {
        let cursor = space.table().cursor(PageRange::single(START.add(page)));
        match cursor.entry().entry {
            Entry::Present(page) => page.bits,
            Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => {
                panic!("no page")
            }
        }
    })
}

#[test]
fn equal_pages_of_two_nodes_are_merged_only_where_they_may() {
    for across in [true, false] {
        let host = two_nodes(256);
        let process = program(&host, 4, READ_WRITE);
        let merging = host.memory().merging();
        let setting = &merging.settings().across_nodes;
        setting.store(across, Ordering::Relaxed);
        for (page, cpu) in [(0, FIRST), (1, FIRST), (2, SECOND), (3, SECOND)] {
            write(&process, cpu, page, 7).expect("writable");
        }
        let advise = |space: &Space| space.advise(at(0), bytes(4), Advice::Mergeable);
        process.on(FIRST, advise).expect("mapped");
        process.on(FIRST, |_| {
            for _ in 0..3 {
                while !host.memory().merge_pages(100) {}
            }
        });
        let nodes = [0, 1, 2, 3].map(|page| node_of(&process, page).expect("there"));
        assert_eq!(process.space().ksm().merged_pages().merged, 4);
        let frames = merging.counts(host.memory()).shared;
        if across {
            assert_eq!((frames, nodes), (1, [nodes[0]; 4]));
        } else {
            assert_eq!((frames, nodes), (2, [0, 0, 1, 1]));
        }
    }
}

#[test]
fn a_page_comes_from_the_node_that_touches_it_first() {
    let host = two_nodes(256);
    let process = program(&host, 4, READ_WRITE);
    for (page, cpu, node) in [(0, FIRST, 0), (1, SECOND, 1), (2, SECOND, 1), (3, FIRST, 0)] {
        write(&process, cpu, page, 1).expect("writable");
        assert_eq!(node_of(&process, page), Ok(node), "page {page}");
    }
    // Freed pages return to their node, whichever CPU frees them.
    let before = host.frames().node_usage(1).1;
    support::unmap(&process, FIRST, 1, 2);
    assert_eq!(host.frames().node_usage(1).1, before + 2);
}

#[test]
fn a_strict_policy_looks_at_every_page_up_to_the_last() {
    let host = two_nodes(256);
    let process = program(&host, 4, READ_WRITE);
    for page in 0..3 {
        write(&process, FIRST, page, 1).expect("writable");
    }
    let bind = |node, pages| {
        let policy = PlacePolicy {
            mode: PlaceMode::Bind,
            nodes: NodeSet::single(node),
            named: None,
            flags: 0,
            home: None,
        };
        process.on(FIRST, |space| {
            space
                .numa()
                .bind(at(0), support::bytes(pages), Some(policy), true)
        })
    };
    // The range ends inside the area, right after a present page.
    assert_eq!(bind(0, 3), Ok(()));
    assert_eq!(bind(1, 3), Err(BindError::Misplaced(at(0))));
}

#[test]
fn a_full_node_is_helped_by_the_next() {
    let host = two_nodes(256);
    let process = program(&host, 200, READ_WRITE);
    let mut nodes = [0; 2];
    for page in 0..180 {
        write(&process, SECOND, page, 1).expect("writable");
        nodes[usize::from(node_of(&process, page).unwrap())] += 1;
    }
    assert!(nodes[1] > 100 && nodes[0] > 30, "{nodes:?}");
    let (first, second) = (host.frames().node_counts(0), host.frames().node_counts(1));
    assert_eq!((first.miss, second.foreign), (nodes[0], nodes[0]));
    support::assert_coherent(&host);
}

#[test]
fn what_is_chosen_for_a_folio_holds_for_the_pages_that_come_instead() {
    let host = two_nodes(256);
    let frames = host.frames();
    frames.choose_next(NodeChoice::only(1));
    let pages: Vec<_> = frames
        .allocate_pages(2, FrameKind::Anonymous)
        .expect("free")
        .map(|page| frames.node_of(page.frame()))
        .collect();
    assert_eq!(pages, [1; 4]);
    // Allocates every block of the node except for a single frame.
    let mut taken = vec![frames.allocate_on(0, FrameKind::Anonymous, NodeChoice::only(1))];
    for order in (1..=8).rev() {
        while let Ok(block) = frames.allocate_on(order, FrameKind::Kernel, NodeChoice::only(1)) {
            taken.push(Ok(block));
        }
    }
    frames.choose_next(NodeChoice::only(1));
    for order in [4, 2] {
        assert!(frames.allocate_pages(order, FrameKind::Anonymous).is_err());
    }
    let single = frames
        .allocate(0, FrameKind::Anonymous)
        .expect("one is left");
    assert_eq!(frames.node_of(single.frame()), 1);
    frames.choose_next(NodeChoice::only(1));
    assert!(frames.allocate(0, FrameKind::Anonymous).is_err());
}

#[test]
fn a_page_that_moved_is_as_it_was() {
    let host = two_nodes(256);
    let process = program(&host, 1, READ_WRITE);
    write(&process, FIRST, 0, 7).expect("writable");
    let before = bits_of(&process, 0);
    assert_eq!(migrate(&process, FIRST, 0, 1), Ok(Moved::To(1)));
    assert_eq!(migrate(&process, FIRST, 0, 1), Ok(Moved::Stays(1)));
    assert_eq!(bits_of(&process, 0), before);
    assert_eq!(read(&process, SECOND, 0), Ok(7));
    // The write does not fault: the migration has restored the entry as writable.
    let faults = host.memory().account().faults();
    write(&process, SECOND, 0, 8).expect("writable");
    write(&process, FIRST, 0, 9).expect("writable");
    let account = host.memory().account();
    assert_eq!(account.faults(), faults);
    assert_eq!(account.count(Row::PagesMigrated), 1);
    support::assert_coherent(&host);
    assert_eq!(process.space().audit(), Ok(()));
}

#[test]
fn a_page_without_the_right_to_write_moves_without_it() {
    let host = two_nodes(256);
    let process = program(&host, 1, READ_WRITE);
    write(&process, FIRST, 0, 7).expect("writable");
    protect(&process, FIRST, 0, 1, READ);
    assert_eq!(migrate(&process, FIRST, 0, 1), Ok(Moved::To(1)));
    assert!(write(&process, SECOND, 0, 8).is_err());
    protect(&process, FIRST, 0, 1, Rights::empty());
    assert_eq!(migrate(&process, FIRST, 0, 0), Ok(Moved::To(0)));
    assert!(read(&process, SECOND, 0).is_err());
    protect(&process, FIRST, 0, 1, READ_WRITE);
    assert_eq!(read(&process, SECOND, 0), Ok(7));
}

#[test]
fn what_is_pinned_shared_or_without_room_stays() {
    let host = two_nodes(256);
    let process = program(&host, 2, READ_WRITE);
    write(&process, FIRST, 0, 7).expect("writable");
    let frame = {
        let pins = process.on(FIRST, |space| space.numa().node_of(START));
        assert_eq!(pins, Ok(0));
        process.on(FIRST, |space| {
            let cursor = space.table().cursor(PageRange::single(START));
            cursor.entry().entry.present().expect("a page").frame
        })
    };
    host.frames().pin(frame);
    assert_eq!(migrate(&process, FIRST, 0, 1), Err(Unmoved::Busy));
    host.frames().unpin(frame);

    let child = support::fork(&process, FIRST);
    assert_eq!(migrate(&process, FIRST, 0, 1), Err(Unmoved::Shared(frame)));
    drop(child);
    write(&process, FIRST, 0, 8).expect("writable");
    assert_eq!(migrate(&process, FIRST, 1, 1), Err(Unmoved::Absent));

    let mut hoard = Vec::new();
    while let Ok(taken) = host
        .frames()
        .allocate_on(0, FrameKind::Anonymous, NodeChoice::only(1))
    {
        hoard.push(taken);
    }
    assert_eq!(migrate(&process, FIRST, 0, 1), Err(Unmoved::NoFrame));
    drop(hoard);
    host.frames().fail_after(Some(0));
    assert_eq!(migrate(&process, FIRST, 0, 1), Err(Unmoved::NoFrame));
    // The page is still writable: the write does not fault.
    let faults = host.memory().account().faults();
    write(&process, SECOND, 0, 9).expect("writable");
    assert_eq!(host.memory().account().faults(), faults);
    assert_eq!(migrate(&process, FIRST, 0, 1), Ok(Moved::To(1)));
    assert_eq!(read(&process, FIRST, 0), Ok(9));
}

fn scan(process: &Process) {
    let mut budget = u64::MAX / 2;
    let end = process.on(FIRST, |space| {
        space
            .numa()
            .scan_for_hints(memwright_table::Page::new(0), &mut budget)
    });
    assert_eq!(end, None);
}

/// Returns three counts: NUMA hint faults on pages of the CPU's own node, NUMA hint faults on pages of another node,
/// and write faults that only made an entry writable.
fn hints(host: &Host) -> (u64, u64, u64) {
    let account = host.memory().account();
    (
        account.count(Row::HintLocal),
        account.count(Row::HintRemote),
        account.count(Row::FaultWriteOnly),
    )
}

#[test]
fn a_hint_fault_is_the_only_one() {
    let host = two_nodes(256);
    let process = program(&host, 1, READ_WRITE);
    write(&process, FIRST, 0, 7).expect("writable");
    let before = bits_of(&process, 0);
    scan(&process);
    assert!(bits_of(&process, 0).contains(Bits::HINT));
    assert_eq!(read(&process, SECOND, 0), Ok(7));
    assert_eq!(hints(&host), (0, 1, 0));
    // The load has restored write permission too.
    write(&process, SECOND, 0, 8).expect("writable");
    assert_eq!(hints(&host), (0, 1, 0));
    assert_eq!(bits_of(&process, 0), before);
    assert_eq!(node_of(&process, 0), Ok(0));
    // The second hint fault in a row migrates the page, and causes no further fault.
    scan(&process);
    write(&process, SECOND, 0, 9).expect("writable");
    write(&process, SECOND, 0, 10).expect("writable");
    assert_eq!(hints(&host), (0, 2, 0));
    assert_eq!(node_of(&process, 0), Ok(1));
    scan(&process);
    write(&process, SECOND, 0, 11).expect("writable");
    assert_eq!(hints(&host), (1, 2, 0));
    assert_eq!(host.memory().account().count(Row::PagesMigrated), 1);
    assert_eq!(read(&process, FIRST, 0), Ok(11));
    support::assert_coherent(&host);
}

#[test]
fn accesses_from_both_nodes_in_turn_move_nothing() {
    let host = two_nodes(256);
    let process = program(&host, 1, READ_WRITE);
    write(&process, FIRST, 0, 7).expect("writable");
    for _ in 0..3 {
        for cpu in [FIRST, SECOND] {
            scan(&process);
            write(&process, cpu, 0, 8).expect("writable");
        }
    }
    assert_eq!(hints(&host), (3, 3, 0));
    assert_eq!(node_of(&process, 0), Ok(0));
}

#[test]
fn where_migration_is_refused_the_hint_fault_is_the_only_one_too() {
    let host = two_nodes(256);
    let process = program(&host, 1, READ_WRITE);
    write(&process, FIRST, 0, 7).expect("writable");
    let mut hoard = Vec::new();
    while let Ok(taken) = host
        .frames()
        .allocate_on(0, FrameKind::Anonymous, NodeChoice::only(1))
    {
        hoard.push(taken);
    }
    for round in 1..=3 {
        scan(&process);
        assert_eq!(read(&process, SECOND, 0), Ok(7));
        write(&process, SECOND, 0, 7).expect("writable");
        assert_eq!(hints(&host), (0, round, 0));
    }
    let account = host.memory().account();
    assert_eq!(account.count(Row::PagesNotMigrated), 2);
    assert_eq!(node_of(&process, 0), Ok(0));
}

#[test]
fn a_hint_fault_grants_no_more_than_the_rule() {
    let host = two_nodes(256);
    let process = program(&host, 1, READ_WRITE);
    write(&process, FIRST, 0, 7).expect("writable");
    protect(&process, FIRST, 0, 1, READ);
    scan(&process);
    assert_eq!(read(&process, SECOND, 0), Ok(7));
    assert!(write(&process, SECOND, 0, 8).is_err());
    assert!(!bits_of(&process, 0).contains(Bits::WRITE));
}

#[test]
fn a_protection_change_ends_the_hint() {
    let host = two_nodes(256);
    let process = program(&host, 1, READ_WRITE);
    write(&process, FIRST, 0, 7).expect("writable");
    scan(&process);
    protect(&process, FIRST, 0, 1, READ);
    assert!(!bits_of(&process, 0).contains(Bits::HINT));
    assert_eq!(read(&process, SECOND, 0), Ok(7));
    scan(&process);
    protect(&process, FIRST, 0, 1, Rights::empty());
    assert!(read(&process, SECOND, 0).is_err());
    protect(&process, FIRST, 0, 1, READ_WRITE);
    write(&process, SECOND, 0, 8).expect("writable");
    assert_eq!(hints(&host), (0, 0, 0));
}

/// The state that the two threads of a case share.
struct World {
    host: Arc<Host>,
    process: Process,
    /// The value that the second thread wrote last.
    last: AtomicU8,
    used: u64,
    refused: Mutex<Vec<u8>>,
}

impl World {
    /// Creates a page to which both CPUs have written.
    fn new() -> Self {
        let host = two_nodes(128);
        let used = host.frames().used();
        let process = program(&host, 1, READ_WRITE);
        for cpu in [FIRST, SECOND] {
            write(&process, cpu, 0, 1).expect("writable");
        }
        Self {
            host,
            process,
            last: AtomicU8::new(1),
            used,
            refused: Mutex::new(Vec::new()),
        }
    }

    /// Like `new`, but the entry of the page is a NUMA hint.
    fn hinted() -> Self {
        let world = Self::new();
        scan(&world.process);
        world
    }

    fn write(&self, value: u8) {
        match write(&self.process, SECOND, 0, value) {
            Ok(()) => self.last.store(value, Ordering::SeqCst),
            Err(_) => self.refused.lock().unwrap().push(value),
        }
    }

    fn end(self) -> Result<(), String> {
        let stale = self.host.machine().audit();
        if !stale.is_empty() {
            return Err(format!("stale: {stale:?}"));
        }
        let last = self.last.load(Ordering::SeqCst);
        for cpu in [FIRST, SECOND] {
            let seen = read(&self.process, cpu, 0);
            if seen != Ok(last) {
                return Err(format!("{seen:?}, not {last}"));
            }
        }
        let consistent = self.process.space().audit();
        consistent.map_err(|finding| format!("audit: {finding:?}"))?;
        drop(self.process);
        check_end(&self.host, self.used)
    }
}

impl Raced for World {
    fn host(&self) -> &Host {
        &self.host
    }
}

/// The state of a case whose threads run in every order.
trait Raced: Send + Sync + 'static {
    fn host(&self) -> &Host;
}

/// Makes the hardware of each CPU walk the page tables and cache a translation.
fn walks(world: &impl Raced) {
    for cpu in world.host().machine().cpus() {
        let _ = world.host().machine().on(cpu).read(at(0), &mut [0]);
    }
}

fn explore<W: Raced>(
    begin: &dyn Fn() -> W,
    threads: &[fn(&W)],
    check: fn(W) -> Result<(), String>,
) {
    let case = Case {
        begin,
        threads,
        hardware: walks,
        check,
    };
    match schedule::explore(&case, 2) {
        Ok(explored) => assert!(explored.schedules > 50, "{explored:?}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// Checks that no CPU used a frame after it was freed, and that the number of used frames is `used`, as before the
/// first process.
fn check_end(host: &Host, used: u64) -> Result<(), String> {
    let violations = host.machine().take_violations();
    if !violations.is_empty() {
        return Err(violations.join("; "));
    }
    let left = host.frames().used();
    if left == used {
        Ok(())
    } else {
        Err(format!("{left} frames used, not {used}"))
    }
}

/// A page migrates while another CPU stores to it: the store is in the final frame of the page.
#[test]
fn migration_and_write() {
    explore(
        &World::new,
        &[
            |world| {
                assert_eq!(migrate(&world.process, FIRST, 0, 1), Ok(Moved::To(1)));
            },
            |world| {
                world.write(2);
                world.write(3);
            },
        ],
        World::end,
    );
}

/// A page with a NUMA hint is migrated while another CPU writes to it and takes hint faults: the last write is not
/// lost.
#[test]
fn hint_faults_and_migration() {
    explore(
        &World::hinted,
        &[
            |world| {
                let _ = migrate(&world.process, FIRST, 0, 1);
            },
            |world| {
                world.write(2);
                world.write(3);
            },
        ],
        World::end,
    );
}

/// After a protection change has returned, no hint fault restores write permission.
#[test]
fn hint_fault_and_protect() {
    explore(
        &World::hinted,
        &[
            |world| protect(&world.process, FIRST, 0, 1, READ),
            |world| {
                world.write(2);
                world.write(3);
            },
        ],
        |world| {
            assert!(write(&world.process, SECOND, 0, 9).is_err());
            world.end()
        },
    );
}
