//! Failed allocations while the kernel accesses a program's memory: copies, pins, locks, protection keys, and accesses
//! by other programs.

use memwright::LockFuture;
use memwright::{Advice, MapRequest, Placement, Rights, SyncFlags};
use memwright_sim::SimulatedMachine;
use memwright_table::{PAGE_SIZE, Pinned};

use crate::support::{FIRST, READ, READ_WRITE, at, bytes};
use crate::trial::{Program, Trial, machine, run};

fn map(trial: &Trial, program: &Program, page: u64, request: MapRequest<SimulatedMachine>) {
    let request = request.at(Placement::Fixed(at(page)));
    trial.on("map", program, |space| space.map(&request));
}

#[test]
fn copies_by_the_kernel() {
    run(&machine(512), 8, 0, |trial| {
        let program = trial.program();
        let other = trial.program();
        let file = trial.shmem(8);
        trial.begin();
        let own = || MapRequest::anonymous(bytes(8), READ_WRITE);
        map(trial, &program, 0, own());
        map(trial, &other, 0, own());
        let private = MapRequest::object(file.clone(), 0, bytes(8), READ, false);
        map(trial, &program, 8, private);
        let text = [7; 2 * PAGE_SIZE];
        trial.on("write", &program, |space| space.write(at(1), &text));
        trial.expect(&program, 1, 7);
        trial.expect(&program, 2, 7);
        // One program writes to the memory of another program, as `process_vm_writev` does.
        let mut taken = [0; 2 * PAGE_SIZE];
        trial.on("read", &program, |space| space.read(at(1), &mut taken));
        assert_eq!(taken, text);
        trial.on("write", &other, |space| space.write(at(2), &taken));
        trial.expect(&other, 2, 7);
        trial.on("read", &other, |space| space.read(at(5), &mut taken));
        // A debugger writes to memory for which the program has no write permission.
        trial.on("force", &program, |space| space.write_forced(at(9), &[8]));
        trial.expect(&program, 9, 8);
        trial.step("file", || file.write_at(bytes(4), &[9; 2 * PAGE_SIZE]));
        trial.expect(&program, 12, 9);
        trial.read(&program, 12);
    });
}

/// Pins a page, calls `then`, and unpins the page.
fn with_pin(trial: &Trial, program: &Program, page: u64, then: impl FnOnce()) {
    let space = program.process.space();
    trial.lent.set(true);
    let pin: Pinned<'_, _> =
        trial.step("pin", || program.process.on(FIRST, |_| space.pin(at(page))));
    then();
    drop(pin);
    trial.lent.set(false);
}

#[test]
fn pins_and_loans() {
    run(&machine(512), 6, 0, |trial| {
        let program = trial.program();
        trial.begin();
        let own = || MapRequest::anonymous(bytes(8), READ_WRITE);
        map(trial, &program, 0, own());
        with_pin(trial, &program, 1, || {
            trial.write(&program, 1, 5);
            trial.write(&program, 2, 6);
            // A fork copies a pinned page for the child at once.
            let child = trial.fork(&program);
            trial.write(&program, 1, 7);
            trial.write(&child, 2, 8);
        });
        let space = program.process.space();
        trial.lent.set(true);
        let loan = trial.step("lend", || program.process.on(FIRST, |_| space.lend(at(3))));
        trial.write(&program, 3, 9);
        drop(loan);
        trial.lent.set(false);
    });
}

#[test]
fn locked_memory() {
    run(&machine(512), 8, 2, |trial| {
        let program = trial.program();
        let file = trial.shmem(8);
        trial.begin();
        let own = || MapRequest::anonymous(bytes(12), READ_WRITE);
        map(trial, &program, 0, own());
        let shared = MapRequest::object(file.clone(), 0, bytes(8), READ_WRITE, true);
        map(trial, &program, 16, shared);
        trial.on("mlock", &program, |space| {
            space.residency().lock(at(1), bytes(4), false)
        });
        trial.on("mlock2", &program, |space| {
            space.residency().lock(at(3), bytes(4), true)
        });
        trial.write(&program, 6, 1);
        trial.on("munlock", &program, |space| {
            space.residency().unlock(at(2), bytes(1))
        });
        trial.on("mlockall", &program, |space| {
            let all = space
                .residency()
                .lock_all(true, LockFuture::Populated, false);
            all.map(|rest| space.residency().populate_now(rest))
        });
        map(trial, &program, 32, own());
        trial.write(&program, 33, 2);
        trial.on("msync", &program, |space| {
            space.sync(at(16), bytes(8), SyncFlags::WAIT)
        });
        trial.on("munlockall", &program, |space| {
            space.residency().unlock_all()
        });
    });
}

#[test]
fn keys_and_populated_memory() {
    run(&machine(512), 8, 2, |trial| {
        let program = trial.program();
        trial.begin();
        let own = || MapRequest::anonymous(bytes(16), READ_WRITE);
        map(trial, &program, 0, own());
        trial.on("populate", &program, |space| {
            space.residency().populate(at(1), bytes(4), true)
        });
        trial.on("populate", &program, |space| {
            space.residency().populate(at(6), bytes(2), false)
        });
        trial.write(&program, 2, 3);
        let key = program
            .process
            .on(FIRST, |space| space.protection_keys().allocate());
        let key = key.expect("a key");
        trial.on("pkey_mprotect", &program, |space| {
            space.protection_keys().protect(at(2), bytes(3), READ, key)
        });
        trial.on("pkey_mprotect", &program, |space| {
            space
                .protection_keys()
                .protect_execute_only(at(6), bytes(3), key)
        });
        trial.on("mprotect", &program, |space| {
            space.protect(at(3), bytes(5), Rights::empty())
        });
        trial.on("mprotect", &program, |space| {
            space.protect(at(0), bytes(16), READ_WRITE)
        });
        for advice in [
            Advice::Cold,
            Advice::DontDump,
            Advice::WipeOnFork,
            Advice::NotHuge,
            Advice::DoDump,
            Advice::KeepOnFork,
        ] {
            trial.on("madvise", &program, |space| {
                space.advise(at(4), bytes(3), advice)
            });
        }
        trial.on("mseal", &program, |space| space.seal(at(12), bytes(2)));
        trial.write(&program, 13, 4);
    });
}
