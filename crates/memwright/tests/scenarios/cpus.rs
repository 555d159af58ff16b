//! Tests of two CPUs in one address space: which CPU an operation interrupts, and which events are traced.

use std::sync::{Arc, Mutex};

use memwright::{AddressSpace, Event, FaultKind, Row, TraceSink};
use memwright_table::{CpuId, Loaded};

use crate::world::{Machine, NONE, R, RW, World, page, rows};

const SECOND: CpuId = CpuId::new(1);

#[test]
fn rights_that_grow_interrupt_nobody_and_rights_that_shrink_interrupt_once() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 16, RW);
    for index in 0..16 {
        process.store(index, 1).unwrap();
    }
    let on_second = world.machine.run_on(SECOND);
    let loaded = Loaded::new(process.space.clone());
    for index in 0..16 {
        world.machine.on(SECOND).write(page(index), &[2]).unwrap();
    }
    drop(on_second);
    let remote = [Row::FlushRemote, Row::FlushCpusInterrupted];
    let account = world.counted(|| process.protect(0, 16, R));
    assert_eq!(rows(&account, &remote), [1, 1]);
    assert!(world.machine.on(SECOND).write(page(3), &[3]).is_err());
    for index in 0..8 {
        process.load(index);
    }
    let account = world.counted(|| process.protect(0, 16, RW));
    assert_eq!(rows(&account, &remote), [0, 0]);
    // This CPU flushes the old translations that it used. The shootdown to the other CPU is elided.
    let elided = [Row::FlushElidedGrew, Row::FlushElidedNotAccessed];
    assert_eq!(rows(&account, &elided), [1, 0]);

    // The second CPU may still cache a translation with the old rights. A store on it then takes one spurious fault,
    // and no signal.
    let on_second = world.machine.run_on(SECOND);
    let fault = world.machine.on(SECOND).write(page(3), &[4]).err();
    if let Some(fault) = fault {
        let access = memwright::Access::WRITE;
        assert_eq!(
            process.space.fault(fault.address, access),
            Ok(FaultKind::Spurious)
        );
        world.machine.on(SECOND).write(page(3), &[4]).unwrap();
    }
    drop(on_second);
    assert_eq!(process.load(3), 4);
    let account = world.counted(|| process.protect(0, 16, NONE));
    assert_eq!(rows(&account, &remote), [1, 1]);
    leave(&world, loaded);
}

#[test]
fn each_policy_interrupts_as_often_as_it_says() {
    // Columns: the policy, and for each of four calls the number of flushes that it sends to the other CPU. The other
    // CPU accesses the four pages. Then come mprotect(R) and mprotect(RW) of them, and the same two calls again,
    // without an access in between.
    let rows_wanted = [
        ("immediate", [4, 4, 4, 4]),
        ("gather", [1, 1, 1, 1]),
        ("elide", [1, 1, 1, 1]),
        ("elide+grow", [1, 0, 0, 0]),
    ];
    for (value, wanted) in rows_wanted {
        let world = World::new();
        world.memory.policy().set("tlb", value).unwrap();
        let mut process = world.process();
        process.map(0, 4, RW);
        let on_second = world.machine.run_on(SECOND);
        let loaded = Loaded::new(process.space.clone());
        drop(on_second);
        for index in 0..4 {
            process.store(index, 1).unwrap();
            world.machine.on(SECOND).write(page(index), &[2]).unwrap();
        }
        let sent = [R, RW, R, RW].map(|rights| {
            let account = world.counted(|| process.protect(0, 4, rights));
            account.count(Row::FlushRemote)
        });
        assert_eq!(sent, wanted, "{value}");
        leave(&world, loaded);
    }
}

#[test]
fn unmapping_interrupts_once_for_pages_and_tables_together() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 600, RW);
    for index in 0..600 {
        process.store(index, 1).unwrap();
    }
    let on_second = world.machine.run_on(SECOND);
    let loaded = Loaded::new(process.space.clone());
    world.machine.on(SECOND).write(page(5), &[2]).unwrap();
    drop(on_second);
    let account = world.counted(|| process.unmap(0, 600));
    assert_eq!(rows(&account, &[Row::FlushRemote, Row::FlushLocal]), [1, 1]);
    assert!(world.machine.on(SECOND).read(page(5), &mut [0]).is_err());
    leave(&world, loaded);
}

#[test]
fn what_nobody_used_is_protected_and_unmapped_in_silence() {
    let world = World::new();
    let object = world.shmem(16);
    object.write_at(0, &[1; 16 * 4096]).unwrap();
    let mut process = world.process();
    process.map_object(4, 16, RW, &object, true);
    process.load(4);
    process.run();
    // Fault-around maps the sixteen pages around the one that was accessed.
    assert_eq!(process.resident(), 16);
    let account = world.counted(|| process.protect(5, 15, R));
    assert_eq!(
        rows(&account, &[Row::FlushLocal, Row::FlushElidedNotAccessed]),
        [0, 1]
    );
}

/// Makes the second CPU load another page table, so that it stops using the one that it has loaded.
fn leave(world: &World, loaded: Loaded<Arc<AddressSpace<Machine>>>) {
    let _on_second = world.machine.run_on(SECOND);
    let idle = world.process();
    let (idle, _) = loaded.switch(&idle.space);
    idle.stop();
}

#[test]
fn events_are_sent_while_somebody_listens() {
    struct Sink(Mutex<Vec<String>>);
    impl TraceSink for Sink {
        fn event(&self, event: &Event) {
            let mut text = String::new();
            event.write_json(&mut text).unwrap();
            let name = text.split('"').nth(3).unwrap().to_string();
            self.0.lock().unwrap().push(name);
        }
    }
    static SINK: Sink = Sink(Mutex::new(Vec::new()));

    let world = World::new();
    let mut process = world.process();
    process.map(0, 2, RW);
    world.memory.set_trace(Some(&SINK));
    process.store(0, 1).unwrap();
    process.protect(0, 2, R);
    drop(process.fork());
    process.unmap(0, 2);
    process.map(0, 2, RW);
    world.memory.set_trace(None);
    process.store(0, 1).unwrap();
    let seen = SINK.0.lock().unwrap();
    let expected = ["fault", "flush", "protect", "fork", "flush", "unmap", "map"];
    assert_eq!(*seen, expected);
}
