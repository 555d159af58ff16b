//! Tests of CPUs with address-space tags, which keep translations of roots that are not loaded. A CPU that has not
//! loaded the root is not interrupted: its cached translations become stale, and it drops them when it loads the root
//! again.

mod support;

use std::sync::Arc;

use memwright::{Advice, Rights};
use memwright_sim::programs::{self, Host, Process};
use memwright_sim::{MachineOptions, Mistake, SimulatedMachine};
use memwright_table::{
    Bits, Entry, FrameKind, Invalidation, Loaded, Machine, Page, PageRange, Table,
};
use memwright_testkit::process::Signal;
use support::{FIRST, READ, READ_WRITE, SECOND, at, bytes, program, read, write};

fn boot(tags: usize) -> Arc<Host> {
    programs::boot(MachineOptions {
        frames: 512,
        tags,
        ..MachineOptions::default()
    })
}

/// Returns the number of page walks of the second CPU during `act`.
fn walks(host: &Host, act: impl FnOnce()) -> u64 {
    let before = host.machine().cost(SECOND);
    act();
    host.machine().cost(SECOND).since(&before).walks
}

#[test]
fn translations_survive_a_switch_there_and_back() {
    for (tags, expected) in [(0, 1), (1, 1), (2, 0)] {
        let host = boot(tags);
        let (one, other) = (program(&host, 1, READ_WRITE), program(&host, 1, READ_WRITE));
        write(&one, SECOND, 0, 1).expect("writable");
        write(&other, SECOND, 0, 2).expect("writable");
        let made = walks(&host, || assert_eq!(read(&one, SECOND, 0), Ok(1)));
        assert_eq!(made, expected, "{tags} tags");
        assert_eq!(read(&other, SECOND, 0), Ok(2), "never the other's");
        support::assert_coherent(&host);
    }
}

#[test]
fn a_tag_that_is_needed_for_another_root_is_empty_then() {
    let host = boot(2);
    let programs = [1, 2, 3].map(|value| {
        let process = program(&host, 1, READ_WRITE);
        write(&process, SECOND, 0, value).expect("writable");
        process
    });
    // The CPU has tags for two of the three roots. Before each read the CPU loads a root whose tag another root has
    // taken over since, so the CPU walks the tables again.
    for (process, value) in programs.iter().zip([1, 2, 3]) {
        let made = walks(&host, || assert_eq!(read(process, SECOND, 0), Ok(value)));
        assert_eq!(made, 1);
    }
}

/// The second CPU caches a translation of a page and switches to another process. Then the first CPU performs `act`.
/// Returns the result of a write by the second CPU to the page, and the number of interrupts sent.
fn seen_after(mistake: Option<Mistake>, act: impl FnOnce(&Process)) -> (Result<(), Signal>, u64) {
    let host = boot(4);
    let process = program(&host, 1, READ_WRITE);
    let other = program(&host, 1, READ_WRITE);
    write(&process, SECOND, 0, 7).expect("writable");
    write(&other, SECOND, 0, 8).expect("writable");
    write(&process, FIRST, 0, 7).expect("writable");
    host.machine().set_mistake(mistake);
    act(&process);
    let seen = write(&process, SECOND, 0, 9);
    (seen, host.machine().total_cost().interrupts_sent)
}

#[test]
fn a_gather_reaches_what_a_cpu_keeps_without_interrupting_it() {
    let protect = |rights| move |process: &Process| support::protect(process, FIRST, 0, 1, rights);
    let unmap = |process: &Process| support::unmap(process, FIRST, 0, 1);
    let forbidden = (Err(Signal::Forbidden), 0);
    assert_eq!(seen_after(None, protect(READ)), forbidden);
    assert_eq!(seen_after(None, protect(Rights::empty())), forbidden);
    assert_eq!(seen_after(None, unmap), (Err(Signal::Unmapped), 0));

    let mistake = Some(Mistake::KeptForever);
    assert_eq!(seen_after(mistake, protect(READ)), (Ok(()), 0));
    assert_eq!(seen_after(mistake, unmap), (Ok(()), 0));
}

#[test]
fn a_new_page_is_seen_by_a_cpu_that_kept_the_old_one() {
    let seen = |mistake| {
        let host = boot(4);
        let process = program(&host, 1, READ_WRITE);
        write(&process, SECOND, 0, 7).expect("writable");
        let other = program(&host, 2, READ_WRITE);
        write(&other, SECOND, 0, 8).expect("writable");
        host.machine().set_mistake(mistake);
        process
            .on(FIRST, |space| {
                space.advise(at(0), bytes(1), Advice::DontNeed)
            })
            .expect("mapped");
        // The other process allocates the freed frame, so the page gets a new frame.
        write(&other, FIRST, 1, 8).expect("writable");
        write(&process, FIRST, 0, 9).expect("writable");
        read(&process, SECOND, 0)
    };
    assert_eq!(seen(None), Ok(9));
    assert_eq!(seen(Some(Mistake::KeptForever)), Ok(8));
}

#[test]
fn what_was_kept_of_a_table_is_not_used_for_the_next_one_in_its_frame() {
    let seen = |mistake| {
        let host = boot(4);
        let process = program(&host, 1, READ_WRITE);
        write(&process, SECOND, 0, 7).expect("writable");
        let root = process.space().table().root();
        drop(process);
        host.machine().set_mistake(mistake);
        // The frame of the freed root is reused soon. Create processes until one of them has this frame as its root.
        let mut others = Vec::new();
        while others
            .last()
            .is_none_or(|last: &Process| last.space().table().root() != root)
        {
            others.push(program(&host, 1, READ_WRITE));
            assert!(others.len() < 40, "the frame of the root never comes back");
        }
        let last = others.last().expect("one at least");
        let seen = read(last, SECOND, 0);
        host.machine().set_mistake(None);
        seen
    };
    assert_eq!(seen(None), Ok(0));
    // The old frame is free, poisoned or used for another page, so a stale translation does not read 0.
    assert_ne!(seen(Some(Mistake::KeptForever)), Ok(0));
}

const PAGE: Page = Page::new(0x1234);

/// Creates a table that the second CPU has loaded, with one page whose translation the CPU has cached.
fn loaded(machine: &SimulatedMachine) -> Loaded<Arc<Table<SimulatedMachine>>> {
    let frames = machine.frames();
    let table = Arc::new(Table::new(frames.clone()).expect("memory"));
    let frame = frames.allocate_zeroed(0, FrameKind::Anonymous);
    let entry = Entry::page(frame.expect("memory").into_raw(), Bits::READ | Bits::WRITE);
    let range = PageRange::single(PAGE);
    table.cursor(range).fill(entry).expect("memory");
    let _running = machine.run_on(SECOND);
    let loaded = Loaded::new(table);
    machine
        .on(SECOND)
        .write(PAGE.address(), b"x")
        .expect("mapped");
    loaded
}

/// An interrupt for a root that the CPU no longer has loaded must drop the translations that the CPU has kept for that
/// root.
#[test]
fn an_interrupt_drops_what_is_kept_of_a_root_that_was_left_meanwhile() {
    let machine = SimulatedMachine::new(MachineOptions {
        tags: 4,
        ..MachineOptions::default()
    });
    let loaded = loaded(&machine);
    let table = loaded.get().clone();
    let idle = Table::new(table.frames().clone()).expect("memory");
    let loaded_idle = {
        let _running = machine.run_on(SECOND);
        Loaded::new(&idle)
    };
    // The CPU has switched away, but has not recorded that yet, so it is interrupted.
    let mut gather = table.gather();
    table
        .cursor(PageRange::single(PAGE))
        .remove_all(&mut gather);
    assert_eq!(gather.finish().interrupted, 1);
    let _running = machine.run_on(SECOND);
    loaded.stop();
    let loaded = Loaded::new(table);
    loaded_idle.stop();
    assert!(machine.on(SECOND).read(PAGE.address(), &mut [0]).is_err());
    loaded.leave(idle.root());
}

#[test]
fn the_machine_keeps_apart_what_it_keeps() {
    let machine = SimulatedMachine::new(MachineOptions {
        tags: 2,
        ..MachineOptions::default()
    });
    let loaded = loaded(&machine);
    let table = loaded.get().clone();
    let idle = Table::new(table.frames().clone()).expect("memory");
    let _running = machine.run_on(SECOND);
    machine.load_root(idle.root());
    // A local invalidation applies to the loaded root.
    machine.invalidate_local(&Invalidation::AllAndTables);
    assert!(machine.on(SECOND).read(PAGE.address(), &mut [0]).is_err());
    let hits = machine.cost(SECOND).hits;
    machine.load_kept_root(table.root());
    assert!(machine.on(SECOND).read(PAGE.address(), &mut [0]).is_ok());
    assert_eq!(machine.cost(SECOND).hits, hits + 1);
    assert_eq!(machine.cost(SECOND).kept_loads, 1);
    // `load_root` must not use the cached translations, so the read walks the tables.
    machine.load_root(idle.root());
    machine.load_root(table.root());
    let walks = machine.cost(SECOND).walks;
    assert!(machine.on(SECOND).read(PAGE.address(), &mut [0]).is_ok());
    assert_eq!(machine.cost(SECOND).walks, walks + 1);
    loaded.stop();
}
