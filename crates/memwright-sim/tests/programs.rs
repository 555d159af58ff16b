//! Random programs on the memory manager and on the model, compared after every step.
//!
//! A failure prints the shortest script that still fails. Cases and seeds are fixed, so a run that
//! passed passes again; to search further, give the environment variable `MEMWRIGHT_SEED` (0 to 255) and
//! run with `MEMWRIGHT_CASES` times as many scripts.

use std::collections::BTreeMap;
use std::sync::Arc;

use memwright_sim::lockstep::{Difference, Lockstep};
use memwright_sim::model::{Advice, Rights};
use memwright_sim::script::{Action, Range, Script, Step, What};
use memwright_sim::{Adversary, MachineOptions, RightsMiss};
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use proptest::{collection, prop_oneof};

fn rights() -> impl Strategy<Value = Rights> {
    prop_oneof![
        1 => Just(Rights::NONE),
        3 => Just(Rights::READ),
        8 => Just(Rights::READ_WRITE),
        2 => Just(Rights::READ_EXECUTE),
        1 => Just(Rights { read: false, write: true, execute: false }),
    ]
}

fn range() -> impl Strategy<Value = Range> {
    // Mostly about the boundary of the tables, so that ranges meet each other often.
    (prop_oneof![3 => 9..23u8, 1 => 0..32u8], 1..9u8).prop_map(|(at, pages)| Range { at, pages })
}

fn page() -> impl Strategy<Value = u8> {
    prop_oneof![5 => 9..23u8, 1 => 0..32u8]
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        4 => Just(What::Anonymous),
        1 => Just(What::SharedAnonymous),
        2 => (0..2u8, 0..12u8).prop_map(|(file, index)| What::PrivateFile(file, index)),
        2 => (0..2u8, 0..12u8).prop_map(|(file, index)| What::SharedFile(file, index)),
    ]
}

fn advice() -> impl Strategy<Value = Advice> {
    select(vec![
        Advice::Drop,
        Advice::Drop,
        Advice::Free,
        Advice::PopulateRead,
        Advice::PopulateWrite,
        Advice::OmitOnFork,
        Advice::InheritOnFork,
        Advice::WipeOnFork,
        Advice::KeepOnFork,
        Advice::InstallGuard,
        Advice::RemoveGuard,
    ])
}

fn offset() -> impl Strategy<Value = u16> {
    select(vec![0u16, 0, 8, 2048, 4088, 4092])
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (range(), rights(), what(), any::<bool>())
            .prop_map(|(range, rights, what, populate)| Action::Map(range, rights, what, populate)),
        2 => range().prop_map(Action::Unmap),
        1 => range().prop_map(Action::Seal),
        6 => (range(), rights()).prop_map(|(range, rights)| Action::Protect(range, rights)),
        2 => (range(), 1..16u8).prop_map(|(range, pages)| Action::Resize(range, pages)),
        3 => (range(), 0..32u8, any::<bool>())
            .prop_map(|(range, to, keep)| Action::Move(range, to, keep)),
        4 => (range(), advice()).prop_map(|(range, advice)| Action::Advise(range, advice)),
        4 => Just(Action::Fork),
        2 => Just(Action::Exit),
        6 => (page(), offset()).prop_map(|(page, offset)| Action::Read(page, offset)),
        14 => (page(), offset(), 1..=255u8)
            .prop_map(|(page, offset, value)| Action::Write(page, offset, value)),
        2 => page().prop_map(Action::Fetch),
        1 => (0..2u8, 0..12u8).prop_map(|(file, index)| Action::ReadFile(file, index)),
        2 => (0..2u8, 0..12u8, 1..=255u8)
            .prop_map(|(file, index, value)| Action::WriteFile(file, index, value)),
        1 => (0..2u8, 0..=12u8).prop_map(|(file, pages)| Action::Truncate(file, pages)),
        1 => (0..2u8, 0..12u8, 1..6u8)
            .prop_map(|(file, index, pages)| Action::Punch(file, index, pages)),
        1 => (0..2u8).prop_map(Action::Clean),
    ]
}

/// Scripts that begin with two mappings, so that the first steps have something to work on.
fn script(steps: usize) -> impl Strategy<Value = Script> {
    let step = (any::<u8>(), 0..2u8, action()).prop_map(|(process, cpu, action)| Step {
        process,
        cpu,
        action,
    });
    let first = (range(), what()).prop_map(|(range, what)| Step {
        process: 0,
        cpu: 0,
        action: Action::Map(Range { pages: 9, ..range }, Rights::READ_WRITE, what, false),
    });
    (collection::vec(first, 2), collection::vec(step, 1..steps)).prop_map(|(mut all, steps)| {
        all.extend(steps);
        Script(all)
    })
}

fn machine() -> MachineOptions {
    MachineOptions {
        frames: 512,
        ..MachineOptions::default()
    }
}

/// Runs scripts of up to `steps` steps and returns how often each kind of step succeeded.
fn compare(
    seed: u8,
    cases: u32,
    steps: usize,
    start: impl Fn(&Script) -> Lockstep,
) -> BTreeMap<&'static str, u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u8>().ok())
    };
    let config = Config {
        cases: cases * u32::from(number("MEMWRIGHT_CASES").unwrap_or(1)),
        failure_persistence: None,
        max_shrink_iters: 4_000,
        ..Config::default()
    };
    let mut bytes = [seed; 32];
    bytes[0] = number("MEMWRIGHT_SEED").unwrap_or(0);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let successes = std::cell::RefCell::new(BTreeMap::new());
    let outcome = TestRunner::new_with_rng(config, rng).run(&script(steps), |script| {
        // A panic of the memory manager is a difference like any other, and can be shrunk.
        let run = || {
            let lockstep = start(&script);
            let frames = Arc::downgrade(lockstep.host().frames());
            let successes = lockstep.run(&script)?;
            match frames.strong_count() {
                0 => Ok(successes),
                left => Err(Difference::Disagreement(format!(
                    "{left} holders of all frames are left"
                ))),
            }
        };
        let found =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                let text = text.unwrap_or("without a message");
                Err(Difference::Disagreement(format!("panic: {text}")))
            });
        for (what, count) in
            found.map_err(|difference| TestCaseError::fail(difference.to_string()))?
        {
            *successes.borrow_mut().entry(what).or_default() += count;
        }
        Ok(())
    });
    match outcome {
        Ok(()) => successes.into_inner(),
        Err(TestError::Fail(reason, script)) => panic!("{reason}\n{script:?}"),
        Err(error @ TestError::Abort(_)) => panic!("{error}"),
    }
}

#[test]
fn programs_see_what_the_model_says() {
    let successes = compare(1, 500, 60, |_| Lockstep::new(machine(), None));
    for what in [
        "map",
        "unmap",
        "protect",
        "resize",
        "move",
        "advise",
        "fork",
        "exit",
        "read",
        "write",
        "fetch",
        "read file",
        "write file",
        "truncate",
        "punch",
        "clean",
    ] {
        assert!(
            successes.get(what).is_some_and(|&count| count >= 10),
            "{what}: {successes:?}"
        );
    }
}

#[test]
fn programs_see_it_while_the_hardware_caches_what_it_may() {
    compare(2, 100, 30, |script| {
        let adversary = Adversary::with_appetite(script.0.len() as u64, 1, 1);
        Lockstep::new(machine(), Some(adversary))
    });
}

#[test]
fn programs_see_it_where_a_rights_miss_walks_again() {
    let machine = MachineOptions {
        rights_miss: RightsMiss::Walks,
        ..machine()
    };
    compare(3, 150, 40, |script| {
        let lockstep = Lockstep::new(machine, None);
        let upgrade = ["off", "dirty", "on"][script.0.len() % 3];
        let policy = lockstep.host().memory().policy();
        policy
            .set("write-upgrade", upgrade)
            .expect("a known policy");
        lockstep
    });
}

/// Two areas of one kind, the second of which reaches beyond the range that is moved and stays.
#[test]
fn a_move_of_several_areas_that_stay_comes_to_an_end() {
    let everywhere = |at, pages| {
        Action::Map(
            Range { at, pages },
            Rights::READ_WRITE,
            What::Anonymous,
            false,
        )
    };
    let actions = [
        everywhere(4, 2),
        everywhere(20, 4),
        Action::Write(4, 0, 1),
        Action::Write(20, 0, 2),
        // What was written keeps where it came from: these two become neighbours, and not one area.
        Action::Move(Range { at: 4, pages: 2 }, 18, false),
        Action::Move(Range { at: 18, pages: 4 }, 8, true),
        Action::Write(8, 0, 3),
        Action::Write(10, 0, 4),
    ];
    let steps = actions.map(|action| Step {
        process: 0,
        cpu: 0,
        action,
    });
    let successes = Lockstep::new(machine(), None).run(&Script(steps.into()));
    let moves = successes.map(|successes| successes["move"]);
    assert_eq!(moves, Ok(2));
}

/// Whatever the object says, it is not asked.
#[test]
fn a_guard_stands_beyond_the_end_of_its_file() {
    let guarded = Range { at: 20, pages: 1 };
    let actions = [
        Action::Map(
            Range { at: 13, pages: 8 },
            Rights::READ,
            What::PrivateFile(1, 3),
            false,
        ),
        Action::Advise(guarded, Advice::InstallGuard),
        Action::Truncate(1, 0),
        Action::Read(20, 0),
        Action::Advise(guarded, Advice::RemoveGuard),
        Action::Read(20, 0),
    ];
    let steps = actions.map(|action| Step {
        process: 0,
        cpu: 0,
        action,
    });
    let outcome = Lockstep::new(machine(), None).run(&Script(steps.into()));
    assert_eq!(outcome.map(|_| ()), Ok(()));
}
