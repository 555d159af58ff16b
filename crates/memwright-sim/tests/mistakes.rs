//! Tests that the simulated machine detects mistakes. In each run, the machine omits a part of the invalidations that
//! the memory manager requests, and the run must end with a stale translation or a wrong byte.

mod support;

use std::panic::catch_unwind;
use std::sync::Arc;

use memwright_sim::programs;
use memwright_sim::{MachineOptions, Mistake, SimulatedMachine};
use memwright_testkit::lockstep::Difference;
use memwright_testkit::script::{Action, Range, Script, Step, What};
use memwright_testkit::terms::Rights;
use support::{FIRST, READ, READ_WRITE, SECOND, boot, fork, program, protect, read, unmap, write};

const ALL: Range = Range { at: 12, pages: 8 };

fn step(cpu: u8, action: Action) -> Step {
    Step {
        process: 0,
        cpu,
        action,
    }
}

/// Returns a script in which both CPUs write to the first and the last page, and the first CPU then performs `last`.
fn script(last: Action) -> Script {
    let mut steps = vec![step(
        0,
        Action::Map(ALL, Rights::READ_WRITE, What::Anonymous, false),
    )];
    for cpu in [0, 1] {
        steps.push(step(cpu, Action::Write(12, 0, 1)));
        steps.push(step(cpu, Action::Write(19, 0, 1)));
    }
    steps.push(step(0, last));
    Script(steps)
}

fn run(mistake: Option<Mistake>, script: &Script) -> Result<(), Difference> {
    let lockstep = programs::lockstep(
        MachineOptions {
            frames: 512,
            ..MachineOptions::default()
        },
        None,
    );
    lockstep.host().machine().set_mistake(mistake);
    lockstep.run(script).map(|_| ())
}

/// The panic of a program whose access never succeeds. A CPU that keeps what it has cached after a fault needs the
/// invalidation at the end of the fault, which the machine omits too.
const LASTING: &str = "an access still faults";

/// Returns how a run with this mistake failed, if it did.
fn found(mistake: Mistake, script: &Script) -> Option<String> {
    match catch_unwind(|| run(Some(mistake), script)) {
        Ok(Ok(())) => None,
        Ok(Err(Difference::Disagreement(text))) => Some(text),
        Ok(Err(other)) => Some(format!("{other:?}")),
        Err(panic) => panic.downcast_ref::<String>().cloned(),
    }
}

#[test]
fn a_flush_that_is_left_out_is_seen() {
    let operations = [
        Action::Unmap(ALL),
        Action::Protect(ALL, Rights::READ),
        Action::Protect(ALL, Rights::NONE),
        Action::Move(Range { at: 12, pages: 8 }, 20, false),
        Action::Advise(ALL, memwright_testkit::terms::Advice::Drop),
        Action::Map(ALL, Rights::READ_WRITE, What::Anonymous, false),
        Action::Fork,
    ];
    for operation in operations {
        let script = script(operation);
        assert_eq!(run(None, &script), Ok(()), "{operation:?}");
        for mistake in [Mistake::NoLocal, Mistake::NoRemote] {
            let text = found(mistake, &script)
                .unwrap_or_else(|| panic!("{operation:?} with {mistake:?} went unnoticed"));
            assert!(
                text.contains("stale translation") || text.contains(LASTING),
                "{operation:?}, {mistake:?}: {text}"
            );
        }
    }
}

#[test]
fn a_range_that_is_one_page_short_is_seen() {
    for rights in [Rights::READ, Rights::NONE] {
        let script = script(Action::Protect(ALL, rights));
        assert!(found(Mistake::OnePageShort, &script).is_some());
    }
}

/// The write-protected range has too many pages to invalidate them one by one: no stale translation may remain.
#[test]
fn many_pages_are_forgotten_together() {
    const MANY: u64 = 60;
    let host = boot();
    let process = program(&host, MANY, READ_WRITE);
    for cpu in [FIRST, SECOND] {
        for page in 0..MANY {
            write(&process, cpu, page, 1).expect("writable");
        }
    }
    protect(&process, FIRST, 0, MANY, READ);
    support::assert_coherent(&host);
}

/// Unmapped pages are subtracted from the committed memory, which is back at its initial value after both processes
/// exit.
#[test]
fn what_was_promised_is_taken_back() {
    let host = boot();
    let committed = || host.memory().commit().committed();
    let before = committed();
    let process = program(&host, 4, READ_WRITE);
    let child = fork(&process, FIRST);
    unmap(&child, FIRST, 1, 2);
    assert_eq!(committed(), before + 6);
    drop((process, child));
    assert_eq!(committed(), before);
}

#[test]
fn a_freed_table_that_is_flushed_as_leaves_is_seen() {
    let found = run(Some(Mistake::NoTables), &script(Action::Unmap(ALL)));
    let Err(Difference::Disagreement(text)) = found else {
        panic!("went unnoticed");
    };
    assert!(text.contains("Table("), "{text}");
}

/// The audit detects a missing interrupt, and a program observes its effect too.
#[test]
fn without_the_interrupt_a_child_sees_what_its_parent_writes() {
    let seen = |mistake| {
        let host = boot();
        let parent = program(&host, 1, READ_WRITE);
        write(&parent, FIRST, 0, 1).expect("writable");
        write(&parent, SECOND, 0, 1).expect("writable");
        host.machine().set_mistake(mistake);
        let child = fork(&parent, FIRST);
        write(&parent, SECOND, 0, 2).expect("writable");
        read(&child, FIRST, 0)
    };
    assert_eq!(seen(None), Ok(1));
    assert_eq!(seen(Some(Mistake::NoRemote)), Ok(2));
}

#[test]
fn without_the_interrupt_freed_memory_is_read_by_its_old_owner() {
    let seen = |mistake| {
        let host = boot();
        let old = program(&host, 1, READ_WRITE);
        write(&old, FIRST, 0, 1).expect("writable");
        write(&old, SECOND, 0, 1).expect("writable");
        host.machine().set_mistake(mistake);
        unmap(&old, FIRST, 0, 1);
        read(&old, SECOND, 0).is_ok()
    };
    assert!(!seen(None));
    assert!(seen(Some(Mistake::NoRemote)));
}

/// No mistake is planted. The other CPU writes at the last moment of the fork, before it handles the shootdown: parent
/// and child both have the value. A write after the fork is visible only to the parent.
#[test]
fn a_write_during_the_fork_is_over_before_the_fork_is() {
    let host = boot();
    let parent = program(&host, 1, READ_WRITE);
    write(&parent, FIRST, 0, 1).expect("writable");
    write(&parent, SECOND, 0, 1).expect("writable");
    host.machine()
        .set_window(Some(Arc::new(|machine: &SimulatedMachine, cpu| {
            machine
                .on(cpu)
                .write(support::at(0), &[7])
                .expect("still cached");
        })));
    let child = fork(&parent, FIRST);
    host.machine().set_window(None);
    assert_eq!(
        (read(&parent, SECOND, 0), read(&child, FIRST, 0)),
        (Ok(7), Ok(7))
    );
    write(&parent, SECOND, 0, 8).expect("copied");
    assert_eq!(
        (read(&parent, SECOND, 0), read(&child, FIRST, 0)),
        (Ok(8), Ok(7))
    );
    support::assert_coherent(&host);
}

#[test]
fn a_protection_change_waits_for_the_last_late_write() {
    let host = boot();
    let process = program(&host, 1, READ_WRITE);
    write(&process, FIRST, 0, 1).expect("writable");
    write(&process, SECOND, 0, 1).expect("writable");
    host.machine()
        .set_window(Some(Arc::new(|machine: &SimulatedMachine, cpu| {
            machine
                .on(cpu)
                .write(support::at(0), &[7])
                .expect("still cached");
        })));
    protect(&process, FIRST, 0, 1, READ);
    host.machine().set_window(None);
    assert_eq!(read(&process, FIRST, 0), Ok(7));
    assert!(write(&process, SECOND, 0, 9).is_err());
    assert_eq!(read(&process, FIRST, 0), Ok(7));
}
