//! Tests with host threads as CPUs: real races between faults, forks and protection changes. The host schedules the
//! threads, and the result must not depend on the order in which they run.

mod support;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use memwright::{Access, MapRequest, Placement};
use memwright_sim::MachineOptions;
use memwright_sim::programs::{self, Host, Process};
use memwright_table::CpuId;
use memwright_testkit::Trap;
use memwright_testkit::process::Signal;
use support::{READ, READ_WRITE, assert_coherent, at, fork, program, protect, read};

const CPUS: usize = 3;
const ROUNDS: u64 = 1000;

fn boot() -> std::sync::Arc<Host> {
    programs::boot(MachineOptions {
        frames: 512,
        cpus: CPUS,
        ..MachineOptions::default()
    })
}

/// Adds 1 to the word at the start of a page. Retries while the page is read-only.
fn add_one(process: &Process, cpu: CpuId, page: u64) {
    loop {
        let added = process.access(cpu, at(page), Access::WRITE, |machine, _| {
            let added = machine.on(cpu).fetch_add(at(page), 1);
            added.map_err(Trap::from)
        });
        match added {
            Ok(_) => return,
            Err(Signal::Forbidden) => std::thread::yield_now(),
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Checks that no addition is lost when two CPUs add to the same words while a third CPU performs `meanwhile`.
fn no_addition_is_lost(meanwhile: impl Fn(&Process, CpuId) + Sync) {
    let host = boot();
    let process = program(&host, 4, READ_WRITE);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                meanwhile(&process, CpuId::new(2));
            }
        });
        let adders: Vec<_> = [0, 1]
            .map(|cpu| {
                let process = &process;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        add_one(process, CpuId::new(cpu), round % 4);
                    }
                })
            })
            .into();
        let outcomes: Vec<_> = adders
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        over.store(true, Ordering::SeqCst);
        assert!(outcomes.iter().all(Result::is_ok));
    });
    let mut sum = 0;
    for page in 0..4 {
        let mut word = [0; 8];
        process
            .read(CpuId::new(0), at(page), &mut word)
            .expect("readable");
        sum += u64::from_le_bytes(word);
    }
    assert_eq!(sum, 2 * ROUNDS);
    assert_coherent(&host);
    assert_eq!(process.space().audit(), Ok(()));
}

#[test]
fn additions_survive_protection_changes() {
    no_addition_is_lost(|process, cpu| {
        protect(process, cpu, 0, 4, READ);
        protect(process, cpu, 0, 4, READ_WRITE);
    });
}

#[test]
fn additions_survive_forks() {
    no_addition_is_lost(|process, cpu| drop(fork(process, cpu)));
}

#[test]
fn additions_survive_forks_whose_child_writes_too() {
    no_addition_is_lost(|process, cpu| {
        let child = fork(process, cpu);
        for page in 0..4 {
            child.write(cpu, at(page), &[0xff; 8]).expect("its own");
        }
    });
}

#[test]
fn a_child_is_a_picture_of_one_moment() {
    no_addition_is_lost(|process, cpu| {
        let child = fork(process, cpu);
        let look = || [0, 1, 2, 3].map(|page| read(&child, cpu, page).expect("readable"));
        let first = look();
        std::thread::yield_now();
        assert_eq!(look(), first, "the parent's additions show in the child");
    });
}

#[test]
fn cpus_that_touch_new_pages_at_once_agree_on_one_frame_each() {
    let host = boot();
    let process = program(&host, 32, READ_WRITE);
    let start = Barrier::new(CPUS);
    std::thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (process, start) = (&process, &start);
            scope.spawn(move || {
                let id = CpuId::new(cpu as u16);
                start.wait();
                for page in 0..32 {
                    let address = at(page).checked_add(cpu as u64).expect("in user memory");
                    process
                        .write(id, address, &[cpu as u8 + 1])
                        .expect("writable");
                }
            });
        }
    });
    for page in 0..32 {
        let mut bytes = [0; CPUS];
        process
            .read(CpuId::new(0), at(page), &mut bytes)
            .expect("readable");
        assert_eq!(bytes, [1, 2, 3], "page {page}");
    }
    assert_eq!(process.space().usage().resident_pages(), 32);
    assert_eq!(process.space().audit(), Ok(()));
    assert_coherent(&host);
}

#[test]
fn processes_that_come_and_go_on_every_cpu_leave_nothing() {
    let host = boot();
    let parent = program(&host, 8, READ_WRITE);
    for page in 0..8 {
        parent
            .write(CpuId::new(0), at(page), &[7])
            .expect("writable");
    }
    let before = host.frames().used();
    std::thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (host, parent) = (&host, &parent);
            scope.spawn(move || {
                let id = CpuId::new(cpu as u16);
                for round in 0..40 {
                    let child = fork(parent, id);
                    for page in 0..8 {
                        assert_eq!(read(&child, id, page), Ok(7));
                        child.write(id, at(page), &[round + 8]).expect("writable");
                    }
                    let other = Process::new(host);
                    let request = MapRequest::anonymous(support::bytes(4), READ_WRITE);
                    let request = request.at(Placement::Fixed(at(0)));
                    other
                        .on(id, |space| space.map(&request))
                        .expect("room to map");
                    assert_eq!(read(&other, id, 0), Ok(0));
                }
            });
        }
    });
    assert_eq!(host.frames().used(), before);
    for page in 0..8 {
        assert_eq!(read(&parent, CpuId::new(1), page), Ok(7));
    }
    assert_coherent(&host);
}
