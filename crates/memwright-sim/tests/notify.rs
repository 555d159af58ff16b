//! Tests of rule clean-writable-is-private: an object that must be notified of the first write to a clean page gets
//! exactly one notification for each such write, however the rights of its mappings change.

mod support;

use std::sync::Arc;

use memwright::{Advice, MapRequest};
use memwright_sim::SimulatedMachine;
use memwright_sim::programs::{Host, Process, Space};
use memwright_testkit::noted_file::NotedFile;
use support::{
    FIRST, READ, READ_WRITE, SECOND, assert_coherent, boot, bytes, fork, map, protect, read, write,
};

struct Bench {
    host: Arc<Host>,
    file: Arc<NotedFile<SimulatedMachine>>,
    process: Process,
}

/// Maps four pages of a file at `START`.
fn bench(shared: bool) -> Bench {
    let host = boot();
    let file = Arc::new(NotedFile::new(host.memory().clone(), 4));
    let process = Process::new(&host);
    map(
        &process,
        MapRequest::object(file.clone(), 0, bytes(4), READ_WRITE, shared),
        0,
    );
    Bench {
        host,
        file,
        process,
    }
}

#[test]
fn the_first_write_is_announced_and_the_next_ones_cost_nothing() {
    let Bench {
        host,
        file,
        process,
    } = bench(true);
    assert_eq!(read(&process, FIRST, 1), Ok(0));
    assert_eq!(file.dirty(), [0u64; 0], "a read makes nothing dirty");
    write(&process, FIRST, 1, 1).expect("writable");
    assert_eq!(file.dirty(), [1]);
    let faults = host.machine().cost(FIRST).faults;
    write(&process, FIRST, 1, 2).expect("writable");
    assert_eq!(host.machine().cost(FIRST).faults, faults);
}

#[test]
fn after_cleaning_the_next_write_of_any_cpu_is_announced() {
    let Bench {
        host,
        file,
        process,
    } = bench(true);
    for round in 1..5 {
        for cpu in [FIRST, SECOND] {
            for page in [0, 3] {
                write(&process, cpu, page, round).expect("writable");
            }
            assert_eq!(file.dirty(), [0, 3]);
            assert_eq!(file.clean(), 2);
            assert_coherent(&host);
            assert_eq!(file.check(), None);
        }
    }
}

#[test]
fn read_only_and_back_does_not_pass_over_the_announcement() {
    let Bench {
        host,
        file,
        process,
    } = bench(true);
    write(&process, FIRST, 0, 1).expect("writable");
    assert_eq!(file.clean(), 1);
    read(&process, SECOND, 0).expect("readable");
    protect(&process, FIRST, 0, 4, READ);
    protect(&process, FIRST, 0, 4, READ_WRITE);
    write(&process, SECOND, 0, 2).expect("writable");
    assert_eq!(file.dirty(), [0]);
    assert_eq!(file.check(), None);
    assert_coherent(&host);
}

#[test]
fn every_mapping_is_cleaned_and_each_ones_write_announced() {
    let Bench {
        host,
        file,
        process,
    } = bench(true);
    let child = fork(&process, FIRST);
    let other = Process::new(&host);
    map(
        &other,
        MapRequest::object(file.clone(), 0, bytes(4), READ_WRITE, true),
        8,
    );
    for (writer, page) in [(&process, 2), (&child, 2), (&other, 10)] {
        for reader in [&process, &child] {
            read(reader, FIRST, 2).expect("readable");
        }
        write(writer, SECOND, page, 5).expect("writable");
        assert_eq!(file.dirty(), [2]);
        assert_eq!(file.clean(), 1);
        assert_coherent(&host);
    }
}

/// Fork copies the entries of a shared mapping if it has guard pages, and otherwise leaves them to faults. A copied
/// entry must not be clean and writable.
#[test]
fn a_copied_entry_is_not_clean_and_writable() {
    let Bench {
        host,
        file,
        process,
    } = bench(true);
    let guard = |space: &Space| space.advise(support::at(3), bytes(1), Advice::GuardInstall);
    process.on(FIRST, guard).expect("mapped");
    write(&process, FIRST, 2, 1).expect("writable");
    let child = fork(&process, FIRST);
    child
        .space()
        .audit()
        .expect("clean-writable-is-private holds in the child");
    assert_eq!(file.clean(), 1);
    write(&child, SECOND, 2, 2).expect("writable");
    assert_eq!(file.dirty(), [2]);
    assert_coherent(&host);
}

#[test]
fn private_copies_are_not_the_objects_business() {
    let Bench {
        host,
        file,
        process,
    } = bench(false);
    write(&process, FIRST, 0, 1).expect("writable");
    assert_eq!(file.dirty(), [0u64; 0]);
    file.write_at(0, &[9]).expect("memory");
    assert_eq!(read(&process, SECOND, 0), Ok(1), "the copy stays");
    assert_eq!(file.clean(), 1);
    write(&process, SECOND, 0, 2).expect("still its own");
    assert_eq!(file.dirty(), [0u64; 0]);
    assert_coherent(&host);
}
