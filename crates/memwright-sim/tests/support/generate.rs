//! Generates random scripts, and runs them.

use std::collections::BTreeMap;
use std::sync::Arc;

use memwright_sim::MachineOptions;
use memwright_sim::programs::Lockstep;
use memwright_testkit::lockstep::Difference;
use memwright_testkit::script::{Action, Range, Script, Step, Watcher, What};
use memwright_testkit::terms::{Advice, Rights};
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
    // Most ranges are near the boundary between page tables, so that ranges overlap often.
    (prop_oneof![3 => 9..23u8, 1 => 0..32u8], 1..9u8).prop_map(|(at, pages)| Range { at, pages })
}

/// Generates ranges that are small enough to be registered with a userfaultfd as a whole.
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
    prop_oneof![
        1 => Just(Advice::Drop),
        8 => select(Advice::ALL.to_vec()),
    ]
}

/// Generates values to write. They are often equal, so that some pages can be merged.
fn value() -> impl Strategy<Value = u8> {
    prop_oneof![2 => 1..=2u8, 1 => 1..=255u8]
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
        14 => (page(), offset(), value())
            .prop_map(|(page, offset, value)| Action::Write(page, offset, value)),
        6 => page().prop_map(Action::Fetch),
        1 => (0..2u8, 0..12u8).prop_map(|(file, index)| Action::ReadFile(file, index)),
        2 => (0..2u8, 0..12u8, 1..=255u8)
            .prop_map(|(file, index, value)| Action::WriteFile(file, index, value)),
        1 => (0..2u8, 0..=12u8).prop_map(|(file, pages)| Action::Truncate(file, pages)),
        1 => (0..2u8, 0..12u8, 1..6u8)
            .prop_map(|(file, index, pages)| Action::Punch(file, index, pages)),
        1 => (0..2u8).prop_map(Action::Clean),
        10 => tracking(),
        12 => beneath(),
        6 => copying(),
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
        6 => accesses(),
    ]
}

/// Generates actions for read-write protection.
fn accesses() -> impl Strategy<Value = Action> {
    let watcher = Watcher::Accesses;
    prop_oneof![
        4 => range().prop_map(move |range| Action::Watch(range, watcher)),
        1 => range().prop_map(move |range| Action::Unwatch(range, watcher)),
        8 => (narrow(), select(vec![true, true, false]))
            .prop_map(|(range, on)| Action::ReadWriteProtect(range, on)),
        2 => any::<bool>().prop_map(Action::CountAccesses),
        1 => range().prop_map(Action::ScanAccessed),
    ]
}

fn watcher() -> impl Strategy<Value = Watcher> {
    select(vec![
        Watcher::Waits,
        Watcher::Notes,
        Watcher::Notes,
        Watcher::Fills,
    ])
}

/// Generates actions whose effect programs cannot observe: they change where pages are, and which pages share a frame.
fn beneath() -> impl Strategy<Value = Action> {
    let advice = || select(vec![Advice::PageOut, Advice::PageOut, Advice::Mergeable]);
    prop_oneof![
        4 => (range(), advice()).prop_map(|(range, advice)| Action::Advise(range, advice)),
        2 => Just(Action::Reclaim),
        3 => select(vec![true, true, false]).prop_map(Action::Swap),
        2 => Just(Action::Merge),
        1 => (range(), 0..4u8).prop_map(|(range, node)| Action::Bind(range, node)),
        2 => (range(), 0..4u8).prop_map(|(range, node)| Action::Migrate(range, node)),
        2 => Just(Action::Hint),
        1 => range().prop_map(Action::Collapse),
        1 => split(),
    ]
}

fn split() -> impl Strategy<Value = Action> {
    (range(), 0..3u8).prop_map(|(range, order)| Action::Split(range, order))
}

/// Generates actions by which the kernel or a userfaultfd handler reads or writes memory of a process.
fn copying() -> impl Strategy<Value = Action> {
    prop_oneof![
        1 => (page(), offset()).prop_map(|(page, offset)| Action::KernelRead(page, offset)),
        2 => (page(), offset(), value())
            .prop_map(|(page, offset, value)| Action::KernelWrite(page, offset, value)),
        1 => (page(), page(), any::<u8>())
            .prop_map(|(from, to, other)| Action::Transfer(from, to, other)),
        4 => (page(), 0..4u8, any::<bool>())
            .prop_map(|(page, value, protect)| Action::Fill(page, value, protect)),
        3 => (narrow(), page()).prop_map(|(range, to)| Action::Relocate(range, to)),
    ]
}

/// Generates the next steps of one process: mostly one step, and sometimes a sequence of steps that has an effect only
/// in this order.
fn actions() -> impl Strategy<Value = Vec<Action>> {
    let small = || (9..22u8, 2..4u8).prop_map(|(at, pages)| Range { at, pages });
    prop_oneof![
        24 => action().prop_map(|action| vec![action]),
        // Equal values are written to pages, and the pages are merged.
        1 => (small(), value()).prop_map(|(range, value)| vec![
            Action::Write(range.at, 0, value),
            Action::Write(range.at + 1, 0, value),
            Action::Advise(range, Advice::Mergeable),
            Action::Merge,
        ]),
        // A page is swapped out after it was written, and is then accessed.
        2 => (small(), value(), action()).prop_map(|(range, value, next)| vec![
            Action::Write(range.at, 0, value),
            Action::Advise(range, Advice::PageOut),
            next,
            Action::Read(range.at + 1, 0),
        ]),
        // Pages with `Advice::Free` are discarded unless they are written first.
        1 => (small(), action()).prop_map(|(range, next)| vec![
            Action::Advise(range, Advice::Free),
            next,
            Action::Advise(range, Advice::PageOut),
        ]),
        // Missing pages are filled, before or after the program accesses them.
        2 => (small(), 0..4u8, any::<bool>()).prop_map(|(range, value, protect)| vec![
            Action::Map(range, Rights::READ_WRITE, What::Anonymous, false),
            Action::Watch(range, Watcher::Fills),
            Action::Fill(range.at, value, protect),
            Action::Read(range.at + 1, 0),
        ]),
        1 => (small(), page()).prop_map(|(range, from)| vec![
            Action::Map(range, Rights::READ_WRITE, What::Anonymous, false),
            Action::Watch(range, Watcher::Fills),
            Action::Relocate(Range { at: from, ..range }, range.at),
        ]),
        // Pages that are read-write-protected are accessed or moved, and are accessed afterwards.
        3 => (small(), any::<bool>(), action(), action()).prop_map(
            |(range, counts, one, other)| vec![
                Action::Watch(range, Watcher::Accesses),
                Action::CountAccesses(counts),
                Action::ReadWriteProtect(range, true),
                one,
                Action::Read(range.at, 0),
                Action::ScanAccessed(range),
                other,
                Action::ReadWriteProtect(Range { pages: 1, ..range }, false),
                Action::CountAccesses(!counts),
            ]
        ),
        // If places are large enough, small pages are collapsed into a huge page.
        1 => (select(vec![8, 16]), value()).prop_map(|(at, value)| {
            let range = Range { at, pages: 8 };
            vec![
                Action::Write(at + 1, 0, value),
                Action::Collapse(range),
                Action::Write(at + 2, 0, value),
            ]
        }),
        // A folio is allocated and then split.
        1 => (select(vec![8, 16]), value(), action(), split()).prop_map(
            |(at, value, next, split)| {
                let range = Range { at, pages: 8 };
                vec![
                    Action::Map(range, Rights::READ_WRITE, What::Anonymous, false),
                    Action::Write(at + 1, 0, value),
                    next,
                    split,
                ]
            }
        ),
        1 => (small(), 0..2u8).prop_map(|(range, node)| vec![
            Action::Write(range.at, 0, 1),
            Action::Migrate(range, node),
            Action::Migrate(range, node + 1),
        ]),
    ]
}

/// Generates scripts that begin with two mappings. One of them covers the range that most steps use, so that most steps
/// act on mapped memory.
pub fn script(steps: usize) -> impl Strategy<Value = Script> {
    let some = (any::<u8>(), 0..4u8, actions()).prop_map(|(process, cpu, actions)| {
        let step = |action| Step {
            process,
            cpu,
            action,
        };
        actions.into_iter().map(step).collect::<Vec<_>>()
    });
    let first = |range, what| Step {
        process: 0,
        cpu: 0,
        action: Action::Map(range, Rights::READ_WRITE, what, false),
    };
    // Some actions consist of several steps, so fewer actions are generated than `steps`.
    let steps = collection::vec(some, 1..steps * 3 / 4);
    ((range(), what()), what(), steps).prop_map(move |((second, other), what, steps)| {
        let most = Range { at: 8, pages: 16 };
        let mut all = vec![first(most, what), first(second, other)];
        all.extend(steps.into_iter().flatten());
        Script(all)
    })
}

/// Generates scripts with these steps right after the first mapping.
fn beginning(
    steps: usize,
    first: impl Strategy<Value = Vec<Action>>,
) -> impl Strategy<Value = Script> {
    (script(steps), first).prop_map(|(mut script, first)| {
        let step = |action| Step {
            process: 0,
            cpu: 0,
            action,
        };
        script.0.splice(1..1, first.into_iter().map(step));
        script
    })
}

/// Generates scripts that first collapse small pages into a huge page, if places are large enough.
pub fn collapsing(steps: usize) -> impl Strategy<Value = Script> {
    let first = vec![
        Action::Write(9, 0, 1),
        Action::Collapse(Range { at: 8, pages: 8 }),
    ];
    beginning(steps, Just(first))
}

/// Generates scripts that begin with a split folio, one page of which may have been swapped out before.
pub fn splitting(steps: usize) -> impl Strategy<Value = Script> {
    let first =
        (9..15u8, value(), split(), any::<bool>()).prop_map(|(at, value, split, leaves)| {
            let mut first = vec![Action::Write(at, 0, value), split];
            if leaves {
                let range = Range { at, pages: 1 };
                first.insert(1, Action::Advise(range, Advice::PageOut));
            }
            first
        });
    beginning(steps, first)
}

/// Generates scripts that begin with pages that may be discarded (`MADV_FREE`). One of the pages is then written.
pub fn freeing(steps: usize) -> impl Strategy<Value = Script> {
    let first = (9..20u8, value(), 0..3u8).prop_map(|(at, value, again)| {
        let range = Range { at, pages: 3 };
        vec![
            Action::Write(at, 0, value),
            Action::Write(at + 1, 0, value),
            Action::Write(at + 2, 0, value),
            Action::Advise(range, Advice::Free),
            Action::Write(at + again, 8, value),
            Action::Advise(range, Advice::PageOut),
        ]
    });
    beginning(steps, first)
}

pub fn machine() -> MachineOptions {
    MachineOptions {
        frames: 512,
        ..MachineOptions::default()
    }
}

/// Runs a script. A panic of the memory manager counts as a difference, so a script that causes one can be shrunk.
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
