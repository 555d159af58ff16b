//! Failed allocations while pages of one program, or of several, are swapped out and in.

use std::sync::Arc;

use memwright::{Advice, FaultError, MapRequest, ObjectError, Placement};
use memwright::{Effort, ObjectPlace};
use memwright_sim::HostSwap;

use crate::support::{FIRST, READ, READ_WRITE, at, bytes};
use crate::trial::{Program, Trial, machine, run};

fn filled(trial: &Trial) -> Program {
    let device = Arc::new(HostSwap::new(64));
    let added = trial.host.memory().add_swap(device, 0);
    assert_eq!(added, Ok(Some(0)));
    let program = trial.program();
    let own = MapRequest::anonymous(bytes(16), READ_WRITE).at(Placement::Fixed(at(0)));
    trial.on("map", &program, |space| space.map(&own));
    for page in 0..16 {
        trial.write(&program, page, page as u8 + 1);
    }
    trial.begin();
    program
}

fn page_out(trial: &Trial, program: &Program) {
    trial.on("pageout", program, |space| {
        space.advise(at(0), bytes(16), Advice::PageOut)
    });
}

#[test]
fn out_and_in() {
    run(&machine(512), 6, 0, |trial| {
        let program = filled(trial);
        page_out(trial, &program);
        trial.read(&program, 0);
        trial.write(&program, 0, 31);
        trial.write(&program, 12, 32);
        trial.on("mprotect", &program, |space| {
            space.protect(at(3), bytes(4), READ)
        });
        trial.read(&program, 4);
        trial.on("mprotect", &program, |space| {
            space.protect(at(3), bytes(4), READ_WRITE)
        });
        page_out(trial, &program);
        trial.on("willneed", &program, |space| {
            space.residency().populate(at(5), bytes(3), true)
        });
        trial.on("dontneed", &program, |space| {
            space.advise(at(8), bytes(2), Advice::DontNeed)
        });
        trial.forget(&program, 8..10);
        trial.on("free", &program, |space| {
            space.advise(at(6), bytes(2), Advice::Free)
        });
        trial.forget(&program, 6..8);
        page_out(trial, &program);
        trial.on("munmap", &program, |space| space.unmap(at(14), bytes(1)));
        trial.forget(&program, 14..15);
        trial.on("read", &program, |space| space.read(at(10), &mut [0; 5000]));
    });
}

#[test]
fn of_several_programs() {
    run(&machine(512), 6, 0, |trial| {
        let program = filled(trial);
        let child = trial.fork(&program);
        page_out(trial, &program);
        page_out(trial, &child);
        let grandchild = trial.fork(&child);
        trial.write(&program, 1, 21);
        trial.read(&child, 1);
        trial.write(&grandchild, 1, 22);
        trial.write(&child, 1, 23);
        trial.read(&grandchild, 2);
        page_out(trial, &grandchild);
    });
}

#[test]
fn a_device_is_taken_away() {
    run(&machine(512), 6, 0, |trial| {
        let program = filled(trial);
        let memory = trial.host.memory();
        trial.reclaim(&program);
        assert!(memory.swap().totals().1 > 0);
        assert!(memory.close_swap(0, true));
        trial.on("swapoff", &program, |space| {
            let mut next = Some(at(0).page());
            while let Some(page) = next {
                next = space.bring_back(0, page, 3)?;
            }
            Ok::<_, FaultError>(())
        });
        assert!(memory.remove_swap(0));
        assert_eq!(trial.count(memwright::Row::FaultSwapIn), 0);
    });
}

#[test]
fn of_shared_memory() {
    run(&machine(512), 6, 1, |trial| {
        let device = Arc::new(HostSwap::new(64));
        let added = trial.host.memory().add_swap(device, 0);
        assert_eq!(added, Ok(Some(0)));
        let program = trial.program();
        let file = trial.shmem(16);
        let shown = MapRequest::object(file.clone(), 0, bytes(16), READ_WRITE, true)
            .at(Placement::Fixed(at(0)));
        trial.on("map", &program, |space| space.map(&shown));
        for page in 0..16 {
            trial.write(&program, page, page as u8 + 1);
        }
        trial.begin();
        page_out(trial, &program);
        trial.read(&program, 0);
        trial.write(&program, 5, 31);
        let call = || {
            let _running = trial.host.machine().run_on(FIRST);
            file.write_at(bytes(12), &[32])
        };
        trial.forget(&program, 12..13);
        trial.step("write", call);
        trial.expect(&program, 12, 32);
        let child = trial.fork(&program);
        page_out(trial, &program);
        page_out(trial, &child);
        trial.forget(&program, 3..4);
        trial.write(&child, 3, 33);
        trial.expect(&program, 3, 33);
        for program in [&program, &child] {
            trial.forget(program, 7..9);
        }
        trial.step("punch", || {
            let _running = trial.host.machine().run_on(FIRST);
            file.punch(bytes(7) + 1, bytes(9))
        });
        let memory = trial.host.memory();
        assert!(memory.close_swap(0, true));
        let mut place = ObjectPlace::default();
        trial.step("swapoff", || {
            let _running = trial.host.machine().run_on(FIRST);
            while !memory.bring_objects_back(0, &mut place, 3)? {}
            Ok::<_, ObjectError>(())
        });
        assert!(memory.remove_swap(0));
    });
}

/// Swaps pages of an object out while no process maps them, and swaps them in several at a time, by faults and by
/// system calls.
#[test]
fn of_shared_memory_together() {
    // If no frames are available for a folio, smaller folios and single frames are used.
    run(&machine(512), 1, 0, |trial| {
        let device = Arc::new(HostSwap::new(64));
        let added = trial.host.memory().add_swap(device, 0);
        assert_eq!(added, Ok(Some(0)));
        let program = trial.program();
        let file = trial.shmem(40);
        let shown = MapRequest::object(file.clone(), 0, bytes(40), READ_WRITE, true)
            .at(Placement::Fixed(at(0)));
        trial.on("map", &program, |space| space.map(&shown));
        for page in 0..40 {
            trial.write(&program, page, page as u8 + 1);
        }
        trial.begin();
        let out = || {
            trial.on("pageout", &program, |space| {
                space.advise(at(0), bytes(40), Advice::PageOut)
            });
        };
        out();
        for page in 0..40 {
            trial.read(&program, page);
        }
        out();
        let byte = |page: u64| {
            let _running = trial.host.machine().run_on(FIRST);
            let mut found = [0];
            file.read_at(bytes(page), &mut found).map(|_| found[0])
        };
        for page in 0..40 {
            let found = trial.step("read", || byte(page));
            assert_eq!(found, page as u8 + 1);
        }
        for _ in 0..2 {
            let _running = trial.host.machine().run_on(FIRST);
            let mut effort = Effort {
                look: 1000,
                wanted: 1000,
                charged: false,
            };
            let mut place = ObjectPlace::default();
            let memory = trial.host.memory();
            assert!(memory.reclaim_objects(&mut place, None, &mut effort));
        }
        assert_eq!(file.pages_in_swap(), 40);
        trial.step("write", || {
            let _running = trial.host.machine().run_on(FIRST);
            file.write_at(bytes(20) + 1, &[9])
        });
        trial.step("truncate", || {
            let _running = trial.host.machine().run_on(FIRST);
            file.set_size(bytes(30) - 5)
        });
        for page in 0..29 {
            trial.read(&program, page);
        }
        trial.forget(&program, 30..40);
    });
}
