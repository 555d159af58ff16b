//! Tests with host threads as CPUs, whose TLBs keep their entries. Once a call that removes a right has returned, each
//! access that another CPU begins and that needs the right fails. In addition, several CPUs make random calls at once.
//! Tests with planted mistakes prove that such violations are detected.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use memwright::{Advice, MapRequest, Placement, RemapRequest, Rights};
use memwright_sim::programs::{self, Host, Process};
use memwright_sim::{MachineOptions, Mistake};
use memwright_table::{CpuId, FrameKind};
use memwright_testkit::chance::Chance;
use memwright_testkit::process::Signal;
use support::{FIRST, READ, READ_WRITE, at, bytes, program};

/// The numbers of pages that a call affects: few enough to be invalidated one by one, and so many that the complete TLB
/// is flushed.
const FEW: u64 = 3;
const MANY: u64 = 40;

fn boot(cpus: usize) -> Arc<Host> {
    programs::boot(MachineOptions {
        frames: 1024,
        cpus,
        ..MachineOptions::default()
    })
}

/// A call that removes the right to write.
type Call = fn(&Process, u64) -> Option<Process>;

fn protect(process: &Process, pages: u64) -> Option<Process> {
    support::protect(process, FIRST, 0, pages, READ);
    None
}

fn forbid(process: &Process, pages: u64) -> Option<Process> {
    support::protect(process, FIRST, 0, pages, Rights::empty());
    None
}

fn unmap(process: &Process, pages: u64) -> Option<Process> {
    support::unmap(process, FIRST, 0, pages);
    None
}

fn drop_pages(process: &Process, pages: u64) -> Option<Process> {
    process
        .on(FIRST, |space| {
            space.advise(at(0), bytes(pages), Advice::DontNeed)
        })
        .expect("mapped");
    None
}

fn map_over(process: &Process, pages: u64) -> Option<Process> {
    support::map(process, MapRequest::anonymous(bytes(pages), READ_WRITE), 0);
    None
}

fn guard(process: &Process, pages: u64) -> Option<Process> {
    process
        .on(FIRST, |space| {
            space.advise(at(0), bytes(pages), Advice::GuardInstall)
        })
        .expect("mapped");
    None
}

fn fork(process: &Process, _: u64) -> Option<Process> {
    Some(support::fork(process, FIRST))
}

const CALLS: [(&str, Call); 7] = [
    ("mprotect to read", protect),
    ("mprotect to none", forbid),
    ("munmap", unmap),
    ("MADV_DONTNEED", drop_pages),
    ("mmap over it", map_over),
    ("MADV_GUARD_INSTALL", guard),
    ("fork", fork),
];

/// Makes one call on the first CPU. Meanwhile the other CPUs write to its pages as fast as they can through their
/// cached translations, without resolving faults. Returns the number of successful writes that began after the call
/// returned.
fn late_writes(cpus: usize, pages: u64, mistake: Option<Mistake>, call: Call) -> usize {
    let host = boot(cpus);
    let process = program(&host, pages, READ_WRITE);
    let over = AtomicBool::new(false);
    let late = AtomicUsize::new(0);
    let ready = Barrier::new(cpus);
    for page in 0..pages {
        process.write(FIRST, at(page), &[1]).expect("writable");
    }
    host.machine().set_mistake(mistake);
    std::thread::scope(|scope| {
        for cpu in 1..cpus {
            let (host, process, over, late, ready) = (&host, &process, &over, &late, &ready);
            scope.spawn(move || {
                let cpu = CpuId::new(cpu as u16);
                for page in 0..pages {
                    process.write(cpu, at(page), &[2]).expect("writable");
                }
                ready.wait();
                for page in (0..pages).cycle() {
                    let began_after = over.load(Ordering::SeqCst);
                    let through = host.machine().on(cpu).write(at(page), &[3]).is_ok();
                    if through && began_after {
                        late.fetch_add(1, Ordering::SeqCst);
                    }
                    if began_after && page == pages - 1 {
                        return;
                    }
                }
            });
        }
        ready.wait();
        let child = call(&process, pages);
        over.store(true, Ordering::SeqCst);
        child
    });
    let late = late.load(Ordering::SeqCst);
    host.machine().set_mistake(None);
    if mistake.is_none() {
        support::assert_coherent(&host);
        assert_eq!(process.space().audit(), Ok(()));
    }
    late
}

#[test]
fn when_a_call_returns_no_write_gets_through() {
    for (name, call) in CALLS {
        for round in 0..40 {
            let (cpus, pages) = (2 + round % 3, if round % 2 == 0 { FEW } else { MANY });
            assert_eq!(late_writes(cpus, pages, None, call), 0, "{name}");
        }
    }
}

#[test]
fn a_cpu_that_was_not_told_is_noticed() {
    for (name, call) in CALLS {
        for mistake in [Mistake::NoRemote, Mistake::OneCpuShort, Mistake::Late] {
            for pages in [FEW, MANY] {
                let late = late_writes(3, pages, Some(mistake), call);
                assert!(late > 0, "{name} with {mistake:?} and {pages} pages");
            }
        }
    }
}

/// The number of pages, from `START` on, that random calls use, and the number of CPUs that make the calls.
const PAGES: usize = 24;
const CPUS: usize = 4;

/// Accepts either outcome: a concurrent call of another CPU may have taken effect first.
fn tolerate(result: Result<(), Signal>) {
    match result {
        Ok(()) | Err(Signal::Unmapped | Signal::Forbidden) => {}
        Err(other) => panic!("{other:?}"),
    }
}

/// Makes one call on `cpu` that `chance` selects.
fn random_call(process: &Process, cpu: CpuId, chance: &mut Chance) {
    let first = chance.below(PAGES) as u64;
    let pages = 1 + chance.below(PAGES - first as usize) as u64;
    let length = bytes(pages);
    let place = at(first);
    match chance.below(16) {
        0..5 => tolerate(process.write(cpu, place, &[cpu.index() as u8])),
        5..8 => tolerate(process.read(cpu, place, &mut [0])),
        8 | 9 => {
            let rights = [READ, READ_WRITE, READ_WRITE, Rights::empty()][chance.below(4)];
            let _ = process.on(cpu, |space| space.protect(place, length, rights));
        }
        10 | 11 => {
            let _ = process.on(cpu, |space| space.advise(place, length, Advice::DontNeed));
        }
        12 => {
            let request = MapRequest::anonymous(length, READ_WRITE).at(Placement::Fixed(place));
            process.on(cpu, |space| space.map(&request)).expect("room");
        }
        13 => process
            .on(cpu, |space| space.unmap(place, length))
            .expect("room"),
        14 => {
            // Moves the pages to an address range that only this CPU uses, and back.
            let away = at(1024 * (cpu.index() as u64 + 1));
            for (from, to) in [(place, away), (away, place)] {
                let request = RemapRequest {
                    old: from,
                    old_length: length,
                    new_length: length,
                    may_move: true,
                    fixed: Some(to),
                    dont_unmap: false,
                };
                let _ = process.on(cpu, |space| space.remap(request));
            }
        }
        _ => {
            let Ok(child) = process.fork(cpu) else { return };
            tolerate(child.write(cpu, place, &[0xff]));
            tolerate(child.read(cpu, place, &mut [0]));
        }
    }
}

/// Makes random calls on all CPUs at once. Returns the violations that the machine reported, and the stale translations
/// that the audit found afterwards.
fn random_calls(seed: u64, calls: usize, mistake: Option<Mistake>, tags: usize) -> Vec<String> {
    let host = programs::boot(MachineOptions {
        frames: 2048,
        cpus: CPUS,
        tags,
        ..MachineOptions::default()
    });
    let before = host.frames().used();
    let process = program(&host, PAGES as u64, READ_WRITE);
    host.machine().set_mistake(mistake);
    std::thread::scope(|scope| {
        for cpu in host.machine().cpus() {
            let process = &process;
            scope.spawn(move || {
                let mut chance = Chance::new(seed * CPUS as u64 + cpu.index() as u64);
                for _ in 0..calls {
                    random_call(process, cpu, &mut chance);
                }
            });
        }
    });
    let stale = host.machine().audit();
    let mut found: Vec<String> = stale.iter().map(|stale| format!("{stale:?}")).collect();
    found.extend(host.machine().take_violations());
    host.machine().set_mistake(None);
    assert_eq!(process.space().audit(), Ok(()));
    drop(process);
    assert_eq!(host.frames().used(), before, "all of it is back");
    assert_eq!(host.frames().used_by(FrameKind::Anonymous), 0);
    found
}

#[test]
fn random_calls_of_several_cpus_leave_nothing_stale_and_nothing_behind() {
    for seed in 0..8 {
        for tags in [0, 3] {
            assert_eq!(random_calls(seed, 400, None, tags), Vec::<String>::new());
        }
    }
}

#[test]
fn random_calls_notice_every_mistake() {
    for mistake in [
        Mistake::NoLocal,
        Mistake::NoRemote,
        Mistake::OneCpuShort,
        Mistake::Late,
    ] {
        // A debug build panics when a free frame is written. Such a panic counts as detection too.
        let noticed = (0..10).any(|seed| {
            let run = || random_calls(seed, 400, Some(mistake), 0);
            std::panic::catch_unwind(run).map_or(true, |found| !found.is_empty())
        });
        assert!(noticed, "{mistake:?}");
    }
}
