//! Failed allocations in a script of the model. Every step is compared with the model, including the failed one.

use memwright_sim::lockstep::Lockstep;
use memwright_sim::script::{Action, Range, Script, Step, What};
use memwright_sim::terms::{Advice, Rights};
use memwright_sim::{Arch, MachineOptions};
use memwright_table::Architecture;
use memwright_table::handle::{fail_heap_after, heap_failure_pending};

const fn range(at: u8, pages: u8) -> Range {
    Range { at, pages }
}

/// Returns the actions that the first process performs before the second one exists. The ranges cross the boundary
/// between places 15 and 16, where page tables of two levels end.
fn of_the_first() -> Vec<Action> {
    vec![
        Action::Map(range(12, 8), Rights::READ_WRITE, What::Anonymous, false),
        Action::Read(13, 0),
        Action::Write(15, 0, 1),
        Action::Write(16, 0, 2),
        Action::Write(13, 8, 3),
        Action::Map(
            range(22, 4),
            Rights::READ_WRITE,
            What::PrivateFile(0, 0),
            false,
        ),
        Action::WriteFile(0, 1, 4),
        Action::Read(23, 0),
        Action::Write(23, 0, 5),
        Action::Map(
            range(26, 4),
            Rights::READ_WRITE,
            What::SharedFile(1, 0),
            false,
        ),
        Action::Write(26, 0, 6),
        Action::Write(28, 0, 7),
        Action::Clean(1),
        Action::Write(26, 8, 8),
        Action::Map(range(2, 4), Rights::READ_WRITE, What::SharedAnonymous, true),
        Action::Write(3, 0, 9),
        Action::Protect(range(13, 5), Rights::READ),
        Action::Protect(range(14, 2), Rights::NONE),
        Action::Protect(range(12, 8), Rights::READ_WRITE),
        Action::Advise(range(12, 2), Advice::Drop),
        Action::Advise(range(12, 4), Advice::PopulateWrite),
        Action::Advise(range(22, 4), Advice::PopulateRead),
        Action::Advise(range(13, 1), Advice::WipeOnFork),
        Action::Advise(range(18, 1), Advice::OmitOnFork),
        Action::Advise(range(12, 1), Advice::Free),
        Action::Advise(range(19, 2), Advice::InstallGuard),
        Action::Advise(range(0, 2), Advice::InstallGuard),
        Action::Map(
            range(9, 2),
            Rights::READ_EXECUTE,
            What::PrivateFile(0, 4),
            false,
        ),
        Action::Fetch(9),
        Action::ReadFile(0, 1),
        Action::Fork,
    ]
}

/// Returns the actions that both processes perform.
fn of_both() -> Vec<Action> {
    vec![
        Action::Write(15, 0, 10),
        Action::Write(16, 0, 11),
        Action::Write(23, 8, 12),
        Action::Write(26, 16, 13),
        Action::Move(range(14, 3), 6, false),
        Action::Write(7, 0, 14),
        Action::Move(range(6, 3), 29, true),
        Action::Resize(range(22, 4), 9),
        Action::Resize(range(2, 4), 2),
        Action::Unmap(range(27, 1)),
        Action::Truncate(1, 3),
        Action::Truncate(1, 12),
        Action::Punch(0, 1, 2),
        Action::Write(28, 0, 15),
        Action::Fork,
        Action::Write(12, 0, 16),
        Action::Advise(range(19, 1), Advice::RemoveGuard),
        Action::Seal(range(9, 1)),
        Action::Exit,
    ]
}

fn script() -> Script {
    let step = |process, cpu, action| Step {
        process,
        cpu,
        action,
    };
    let mut steps: Vec<Step> = of_the_first()
        .into_iter()
        .map(|action| step(0, 0, action))
        .collect();
    for (index, action) in of_both().into_iter().enumerate() {
        steps.push(step(0, (index % 2) as u8, action));
        steps.push(step(1, (index % 2) as u8, action));
    }
    Script(steps)
}

fn lockstep() -> Lockstep {
    Lockstep::new(
        MachineOptions {
            frames: 512,
            ..MachineOptions::default()
        },
        None,
    )
}

#[test]
fn whichever_allocation_fails_nothing_is_half_done_and_nothing_leaks() {
    let script = script();
    let (mut frames, mut heap) = (0, 0);

    let clean = lockstep();
    let host = clean.host().clone();
    let before = host.frames().allocations();
    clean
        .run(&script)
        .unwrap_or_else(|difference| panic!("{difference}\n{script:?}"));
    let allocations = host.frames().allocations() - before;
    for nth in 0..allocations {
        let lockstep = lockstep();
        let host = lockstep.host().clone();
        host.frames().fail_after(Some(nth));
        frames += lockstep
            .run_failing(&script, &|| host.frames().fail_after(None))
            .unwrap_or_else(|difference| panic!("frame {nth} fails: {difference}\n{script:?}"));
    }

    for nth in 0.. {
        let lockstep = lockstep();
        fail_heap_after(Some(nth));
        let enough = std::cell::Cell::new(false);
        heap += lockstep
            .run_failing(&script, &|| {
                enough.set(heap_failure_pending());
                fail_heap_after(None);
            })
            .unwrap_or_else(|difference| panic!("heap {nth} fails: {difference}\n{script:?}"));
        if enough.get() {
            break;
        }
    }
    // Only failures of `MAP_POPULATE` go unreported, because it is best effort.
    assert!(
        allocations > 15 * u64::from(Arch::LEVELS) && frames > allocations * 3 / 4,
        "{frames} of {allocations}"
    );
    assert!(heap > 20, "{heap}");
}
