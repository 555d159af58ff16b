//! Random scripts, and what they come to.

use std::collections::BTreeMap;
use std::sync::Arc;

use memwright_sim::MachineOptions;
use memwright_sim::lockstep::{Difference, Lockstep};
use memwright_sim::model::{Advice, Rights};
use memwright_sim::script::{Action, Range, Script, Step, Watcher, What};
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::select;
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

/// Little enough to be watched as a whole.
fn narrow() -> impl Strategy<Value = Range> {
    (9..23u8, 1..4u8).prop_map(|(at, pages)| Range { at, pages })
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
        Advice::WantHuge,
        Advice::RefuseHuge,
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
        10 => tracking(),
    ]
}

fn tracking() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (range(), watcher()).prop_map(|(range, watcher)| Action::Watch(range, watcher)),
        1 => (range(), watcher()).prop_map(|(range, watcher)| Action::Unwatch(range, watcher)),
        6 => (narrow(), watcher(), any::<bool>())
            .prop_map(|(range, watcher, on)| Action::WriteProtect(range, watcher, on)),
        2 => (range(), any::<bool>()).prop_map(|(range, protect)| Action::Scan(range, protect)),
        1 => Just(Action::ClearSoftDirty),
        1 => range().prop_map(Action::Collapse),
    ]
}

fn watcher() -> impl Strategy<Value = Watcher> {
    select(vec![Watcher::Waits, Watcher::Notes, Watcher::Notes])
}

/// Scripts that begin with two mappings, so that the first steps have something to work on.
pub fn script(steps: usize) -> impl Strategy<Value = Script> {
    let step = (any::<u8>(), 0..4u8, action()).prop_map(|(process, cpu, action)| Step {
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

pub fn machine() -> MachineOptions {
    MachineOptions {
        frames: 512,
        ..MachineOptions::default()
    }
}

/// Runs a script. A panic of the memory manager is a difference like any other, and can be shrunk.
pub fn judge(
    start: impl Fn() -> Lockstep,
    script: &Script,
) -> Result<BTreeMap<&'static str, u64>, Difference> {
    let run = || {
        let lockstep = start();
        let frames = Arc::downgrade(lockstep.host().frames());
        let successes = lockstep.run(script)?;
        match frames.strong_count() {
            0 => Ok(successes),
            left => Err(Difference::Disagreement(format!(
                "{left} holders of all frames are left"
            ))),
        }
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("without a message");
        Err(Difference::Disagreement(format!("panic: {text}")))
    })
}
