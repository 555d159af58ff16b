//! Tests of copy-on-write: after a fork, the writes of one process are not visible to the other. The tests vary the
//! order in which the processes change rights and write, and the translations that the CPUs have cached.

mod support;

use memwright::{FaultKind, Row};
use memwright_sim::programs::{self, Host, Process};
use memwright_sim::{Adversary, MachineOptions, RightsMiss};
use memwright_table::{Bits, CpuId};
use support::{
    FIRST, READ, READ_WRITE, SECOND, assert_coherent, at, boot, fork, program, protect, read,
    unmap, write,
};

/// Writes through a pin must reach the parent's page, so fork copies the page for the child at once.
#[test]
fn a_pinned_page_stays_its_owners() {
    let host = boot();
    let parent = program(&host, 1, READ_WRITE);
    write(&parent, FIRST, 0, 1).expect("writable");
    let page = at(0).page();
    let look = |process: &Process| {
        let range = memwright_table::PageRange::single(page);
        let entry = process.space().table().cursor(range).peek();
        match entry {
            memwright_table::Entry::Present(page) => page,
            other => panic!("{other:?}"),
        }
    };
    let pinned = look(&parent);
    host.frames().pin(pinned.frame);
    let child = fork(&parent, FIRST);
    assert_eq!(look(&parent), pinned);
    assert_ne!(look(&child).frame, pinned.frame);
    assert_eq!(read(&child, SECOND, 0), Ok(1));
    host.frames().unpin(pinned.frame);
}

/// A moved page keeps its dirty and accessed bits.
#[test]
fn a_moved_page_is_as_dirty_as_it_was() {
    let host = boot();
    let process = program(&host, 1, READ_WRITE);
    write(&process, FIRST, 0, 1).expect("writable");
    let request = memwright::RemapRequest {
        old: at(0),
        old_length: support::bytes(1),
        new_length: support::bytes(1),
        may_move: true,
        fixed: Some(at(6)),
        dont_unmap: false,
    };
    process
        .on(FIRST, |space| space.remap(request))
        .expect("room");
    let range = memwright_table::PageRange::single(at(6).page());
    let entry = process.space().table().cursor(range).peek();
    let memwright_table::Entry::Present(page) = entry else {
        panic!("{entry:?}");
    };
    assert!(page.bits.contains(Bits::DIRTY | Bits::SOFT_DIRTY));
}

/// Performs one of the three steps of a process: write-protects the pages, restores the right to write, or writes
/// `value`.
fn act(process: &Process, step: usize, cpu: CpuId, value: u8) {
    match step {
        0 => protect(process, cpu, 0, 4, READ),
        1 => protect(process, cpu, 0, 4, READ_WRITE),
        _ => {
            for page in 0..4 {
                write(process, cpu, page, value).expect("writable again");
            }
        }
    }
}

/// Returns all orders in which parent and child can perform three steps each. `true` stands for a step of the parent.
fn orders() -> Vec<Vec<bool>> {
    (0..64u32)
        .filter(|order| order.count_ones() == 3)
        .map(|order| (0..6).map(|step| order & 1 << step != 0).collect())
        .collect()
}

/// The state of the pages before the fork.
#[derive(Clone, Copy, Debug)]
enum Before {
    Untouched,
    Read,
    Written,
    /// Written, then made read-only before the fork.
    Protected,
}

fn check_order(host: &std::sync::Arc<Host>, before: Before, order: &[bool], what: &str) {
    let parent = program(host, 4, READ_WRITE);
    let old = match before {
        Before::Untouched => 0,
        Before::Read => {
            for cpu in [FIRST, SECOND] {
                read(&parent, cpu, 1).expect("readable");
            }
            0
        }
        Before::Written | Before::Protected => {
            for cpu in [FIRST, SECOND] {
                for page in 0..4 {
                    write(&parent, cpu, page, 1).expect("writable");
                }
            }
            1
        }
    };
    if matches!(before, Before::Protected) {
        protect(&parent, SECOND, 0, 4, READ);
    }
    let child = fork(&parent, FIRST);
    let (mut of_parent, mut of_child) = (0, 0);
    for (index, &parents_turn) in order.iter().enumerate() {
        // The steps alternate between the CPUs, so that translations go stale on both.
        let cpu = if index % 2 == 0 { FIRST } else { SECOND };
        if parents_turn {
            act(&parent, of_parent, cpu, 2);
            of_parent += 1;
        } else {
            act(&child, of_child, cpu, 3);
            of_child += 1;
        }
        let expected = |done: usize, value| if done == 3 { value } else { old };
        for cpu in [SECOND, FIRST] {
            for page in 0..4 {
                assert_eq!(
                    read(&parent, cpu, page),
                    Ok(expected(of_parent, 2)),
                    "{what}"
                );
                assert_eq!(read(&child, cpu, page), Ok(expected(of_child, 3)), "{what}");
            }
        }
        assert_coherent(host);
    }
}

#[test]
fn neither_side_sees_the_others_write_in_any_order() {
    for upgrade in ["off", "dirty", "on"] {
        for rights_miss in [RightsMiss::Faults, RightsMiss::Walks] {
            let host = programs::boot(MachineOptions {
                frames: 512,
                rights_miss,
                ..MachineOptions::default()
            });
            host.memory()
                .policy()
                .set("write-upgrade", upgrade)
                .expect("a known policy");
            for before in [
                Before::Untouched,
                Before::Read,
                Before::Written,
                Before::Protected,
            ] {
                for order in orders() {
                    let what = format!("{upgrade}, {rights_miss:?}, {before:?}, {order:?}");
                    check_order(&host, before, &order, &what);
                }
            }
        }
    }
}

#[test]
fn nor_while_the_hardware_caches_what_it_may() {
    let host = boot();
    for (seed, order) in orders().iter().enumerate() {
        host.machine()
            .set_adversary(Some(Adversary::new(seed as u64)));
        check_order(&host, Before::Written, order, "with an adversary");
    }
}

#[test]
fn a_grandchild_is_nobody_elses_either() {
    let host = boot();
    let parent = program(&host, 4, READ_WRITE);
    write(&parent, FIRST, 0, 1).expect("writable");
    let child = fork(&parent, FIRST);
    let grandchild = fork(&child, SECOND);
    for (process, value) in [(&child, 2), (&grandchild, 3), (&parent, 4)] {
        protect(process, SECOND, 0, 4, READ);
        protect(process, FIRST, 0, 4, READ_WRITE);
        write(process, SECOND, 0, value).expect("writable");
    }
    assert_eq!(
        [&parent, &child, &grandchild].map(|process| read(process, FIRST, 0)),
        [Ok(4), Ok(2), Ok(3)]
    );
}

#[test]
fn the_last_owner_writes_in_place() {
    let host = boot();
    let parent = program(&host, 1, READ_WRITE);
    write(&parent, FIRST, 0, 1).expect("writable");
    let child = fork(&parent, FIRST);
    let frame = |process: &Process| {
        process
            .space()
            .entry(at(0))
            .present()
            .expect("present")
            .frame
    };
    let shared = frame(&parent);
    write(&child, SECOND, 0, 2).expect("copied");
    assert_ne!(frame(&child), shared);
    let copies = host.memory().account().count(Row::FaultCopy);
    write(&parent, FIRST, 0, 3).expect("its own again");
    assert_eq!(frame(&parent), shared, "no third frame");
    assert_eq!(
        host.memory().account().count(Row::FaultCopy),
        copies,
        "no copy"
    );
    let bits = parent.space().entry(at(0)).present().expect("present").bits;
    assert!(bits.contains(Bits::EXCLUSIVE | Bits::WRITE));
    assert_eq!(read(&child, FIRST, 0), Ok(2));
}

/// Tests that exclusive pages to which the right to write is restored can be written at once, without faults.
#[test]
fn after_read_only_and_back_an_exclusive_page_is_written_without_a_fault() {
    let host = boot();
    let process = program(&host, 8, READ_WRITE);
    for page in 0..8 {
        write(&process, FIRST, page, 1).expect("writable");
    }
    protect(&process, FIRST, 0, 8, READ);
    for page in 0..8 {
        read(&process, FIRST, page).expect("readable");
    }
    let before = host.machine().cost(FIRST);
    protect(&process, FIRST, 0, 8, READ_WRITE);
    for page in 0..8 {
        write(&process, FIRST, page, 2).expect("writable");
    }
    let spent = host.machine().cost(FIRST).since(&before);
    assert_eq!((spent.faults, spent.interrupts_sent), (0, 0));
}

#[test]
fn what_a_stale_right_refuses_is_spurious_and_free_of_signals() {
    let host = boot();
    let process = program(&host, 1, READ_WRITE);
    write(&process, FIRST, 0, 1).expect("writable");
    protect(&process, FIRST, 0, 1, READ);
    read(&process, SECOND, 0).expect("readable");
    protect(&process, FIRST, 0, 1, READ_WRITE);
    let faults = host.memory().account().count(FaultKind::Spurious.row());
    let stale = host.machine().cost(SECOND).stale_faults;
    write(&process, SECOND, 0, 2).expect("writable in the table");
    assert_eq!(host.machine().cost(SECOND).stale_faults, stale + 1);
    assert_eq!(
        host.memory().account().count(FaultKind::Spurious.row()),
        faults + 1
    );
}

#[test]
fn a_freed_page_never_shows_up_in_the_next_ones() {
    let host = boot();
    for round in 0..40u8 {
        let one = program(&host, 8, READ_WRITE);
        for page in 0..8 {
            write(&one, FIRST, page, round | 1).expect("writable");
            read(&one, SECOND, page).expect("readable");
        }
        let two = program(&host, 8, READ_WRITE);
        unmap(&one, SECOND, 0, 8);
        for page in 0..8 {
            assert_eq!(read(&two, FIRST, page), Ok(0));
            write(&two, FIRST, page, 0xff).expect("writable");
            assert!(read(&one, FIRST, page).is_err());
            assert!(read(&one, SECOND, page).is_err());
        }
        assert_coherent(&host);
    }
}
