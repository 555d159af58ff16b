//! Generates random scripts. A seed gives the same script on every platform.

use alloc::vec;
use alloc::vec::Vec;

use crate::chance::Chance;
use crate::script::{Action, Range, Script, Step, Watcher, What};
use crate::terms::{Advice, Rights};

/// Generates a script that begins with two mappings. One of them covers the range that most steps use, so that most
/// steps act on mapped memory.
pub fn script(chance: &mut Chance, steps: usize) -> Script {
    let most = Range { at: 8, pages: 16 };
    let mut all = Vec::new();
    for range in [most, range(chance)] {
        let map = Action::Map(range, Rights::READ_WRITE, what(chance), false);
        all.push(first(map));
    }
    // Some actions consist of several steps, so fewer actions are generated than `steps`.
    let most = (steps * 3 / 4).max(2);
    for _ in 0..1 + chance.below(most - 1) {
        let (process, cpu) = (chance.draw() as u8, chance.from(0..4));
        let step = |action| Step {
            process,
            cpu,
            action,
        };
        all.extend(actions(chance).into_iter().map(step));
    }
    Script(all)
}

/// Generates a script that first collapses small pages into a huge page, if places are large enough.
pub fn collapsing(chance: &mut Chance, steps: usize) -> Script {
    let beginning = vec![
        Action::Write(9, 0, 1),
        Action::Collapse(Range { at: 8, pages: 8 }),
    ];
    begin(script(chance, steps), beginning)
}

/// Generates a script that begins with a split folio, one page of which may have been swapped out before.
pub fn splitting(chance: &mut Chance, steps: usize) -> Script {
    let at = chance.from(9..15);
    let mut beginning = vec![Action::Write(at, 0, value(chance))];
    if chance.flip() {
        let range = Range { at, pages: 1 };
        beginning.push(Action::Advise(range, Advice::PageOut));
    }
    beginning.push(split(chance));
    begin(script(chance, steps), beginning)
}

/// Generates a script that begins with pages that may be discarded (`MADV_FREE`). One of the pages is then written.
pub fn freeing(chance: &mut Chance, steps: usize) -> Script {
    let (at, value, again) = (chance.from(9..20), value(chance), chance.from(0..3));
    let range = Range { at, pages: 3 };
    let beginning = vec![
        Action::Write(at, 0, value),
        Action::Write(at + 1, 0, value),
        Action::Write(at + 2, 0, value),
        Action::Advise(range, Advice::Free),
        Action::Write(at + again, 8, value),
        Action::Advise(range, Advice::PageOut),
    ];
    begin(script(chance, steps), beginning)
}

fn first(action: Action) -> Step {
    Step {
        process: 0,
        cpu: 0,
        action,
    }
}

/// Inserts steps right after the first mapping.
fn begin(mut script: Script, beginning: Vec<Action>) -> Script {
    script.0.splice(1..1, beginning.into_iter().map(first));
    script
}

fn rights(chance: &mut Chance) -> Rights {
    match chance.below(15) {
        0 => Rights::NONE,
        1..4 => Rights::READ,
        4..12 => Rights::READ_WRITE,
        12..14 => Rights::READ_EXECUTE,
        _ => Rights {
            read: false,
            write: true,
            execute: false,
        },
    }
}

/// Generates a range. Most are near the boundary between page tables, so that ranges overlap often.
fn range(chance: &mut Chance) -> Range {
    let at = match chance.below(4) {
        0..3 => chance.from(9..23),
        _ => chance.from(0..32),
    };
    let pages = chance.from(1..9);
    Range { at, pages }
}

/// Generates a range that is small enough to be registered with a userfaultfd as a whole.
fn narrow(chance: &mut Chance) -> Range {
    let at = chance.from(9..23);
    let pages = chance.from(1..4);
    Range { at, pages }
}

fn page(chance: &mut Chance) -> u8 {
    match chance.below(6) {
        0..5 => chance.from(9..23),
        _ => chance.from(0..32),
    }
}

fn what(chance: &mut Chance) -> What {
    let (file, index) = (file(chance), index(chance));
    match chance.below(9) {
        0..4 => What::Anonymous,
        4 => What::SharedAnonymous,
        5..7 => What::PrivateFile(file, index),
        _ => What::SharedFile(file, index),
    }
}

fn advice(chance: &mut Chance) -> Advice {
    match chance.below(9) {
        0 => Advice::Drop,
        _ => chance.one(&Advice::ALL),
    }
}

/// Generates a value to write. Values are often equal, so that some pages can be merged.
fn value(chance: &mut Chance) -> u8 {
    match chance.below(3) {
        0..2 => chance.from(1..3),
        _ => chance.from(1..255),
    }
}

fn offset(chance: &mut Chance) -> u16 {
    chance.one(&[0, 0, 8, 2048, 4088, 4092])
}

fn file(chance: &mut Chance) -> u8 {
    chance.from(0..2)
}

fn index(chance: &mut Chance) -> u8 {
    chance.from(0..12)
}

fn action(chance: &mut Chance) -> Action {
    match chance.below(90) {
        0..6 => Action::Map(range(chance), rights(chance), what(chance), chance.flip()),
        6..8 => Action::Unmap(range(chance)),
        8 => Action::Seal(range(chance)),
        9..15 => Action::Protect(range(chance), rights(chance)),
        15..17 => Action::Resize(range(chance), chance.from(1..16)),
        17..20 => Action::Move(range(chance), chance.from(0..32), chance.flip()),
        20..24 => Action::Advise(range(chance), advice(chance)),
        24..28 => Action::Fork,
        28..30 => Action::Exit,
        30..36 => Action::Read(page(chance), offset(chance)),
        36..50 => Action::Write(page(chance), offset(chance), value(chance)),
        50..56 => Action::Fetch(page(chance)),
        56 => Action::ReadFile(file(chance), index(chance)),
        57..59 => Action::WriteFile(file(chance), index(chance), chance.from(1..255)),
        59 => Action::Truncate(file(chance), chance.from(0..13)),
        60 => Action::Punch(file(chance), index(chance), chance.from(1..6)),
        61 => Action::Clean(file(chance)),
        62..72 => tracking(chance),
        72..84 => beneath(chance),
        _ => copying(chance),
    }
}

fn tracking(chance: &mut Chance) -> Action {
    match chance.below(20) {
        0..4 => Action::Watch(range(chance), watcher(chance)),
        4 => Action::Unwatch(range(chance), watcher(chance)),
        5..11 => Action::WriteProtect(narrow(chance), watcher(chance), chance.flip()),
        11..13 => Action::Scan(range(chance), chance.flip()),
        13 => Action::ClearSoftDirty,
        _ => accesses(chance),
    }
}

/// Generates an action for read-write protection.
fn accesses(chance: &mut Chance) -> Action {
    match chance.below(16) {
        0..4 => Action::Watch(range(chance), Watcher::Accesses),
        4 => Action::Unwatch(range(chance), Watcher::Accesses),
        5..13 => Action::ReadWriteProtect(narrow(chance), chance.one(&[true, true, false])),
        13..15 => Action::CountAccesses(chance.flip()),
        _ => Action::ScanAccessed(range(chance)),
    }
}

fn watcher(chance: &mut Chance) -> Watcher {
    chance.one(&[
        Watcher::Waits,
        Watcher::Notes,
        Watcher::Notes,
        Watcher::Fills,
    ])
}

/// Generates an action whose effect programs cannot observe: it changes where pages are, or which pages share a frame.
fn beneath(chance: &mut Chance) -> Action {
    let advised = [Advice::PageOut, Advice::PageOut, Advice::Mergeable];
    match chance.below(18) {
        0..4 => Action::Advise(range(chance), chance.one(&advised)),
        4..6 => Action::Reclaim,
        6..9 => Action::Swap(chance.one(&[true, true, false])),
        9..11 => Action::Merge,
        11 => Action::Bind(range(chance), chance.from(0..4)),
        12..14 => Action::Migrate(range(chance), chance.from(0..4)),
        14..16 => Action::Hint,
        16 => Action::Collapse(range(chance)),
        _ => split(chance),
    }
}

fn split(chance: &mut Chance) -> Action {
    Action::Split(range(chance), chance.from(0..3))
}

/// Generates an action by which the kernel or a userfaultfd handler reads or writes memory of a process.
fn copying(chance: &mut Chance) -> Action {
    match chance.below(11) {
        0 => Action::KernelRead(page(chance), offset(chance)),
        1..3 => Action::KernelWrite(page(chance), offset(chance), value(chance)),
        3 => Action::Transfer(page(chance), page(chance), chance.draw() as u8),
        4..8 => Action::Fill(page(chance), chance.from(0..4), chance.flip()),
        _ => Action::Relocate(narrow(chance), page(chance)),
    }
}

/// Generates the next steps of one process: mostly one step, and sometimes a sequence of steps that has an effect only
/// in this order.
fn actions(chance: &mut Chance) -> Vec<Action> {
    let at = chance.from(9..22);
    let small = Range {
        at,
        pages: chance.from(2..4),
    };
    let mapped = Action::Map(small, Rights::READ_WRITE, What::Anonymous, false);
    match chance.below(37) {
        0..24 => vec![action(chance)],
        // Equal values are written to pages, and the pages are merged.
        24 => {
            let value = value(chance);
            vec![
                Action::Write(at, 0, value),
                Action::Write(at + 1, 0, value),
                Action::Advise(small, Advice::Mergeable),
                Action::Merge,
            ]
        }
        // A page is swapped out after it was written, and is then accessed.
        25..27 => vec![
            Action::Write(at, 0, value(chance)),
            Action::Advise(small, Advice::PageOut),
            action(chance),
            Action::Read(at + 1, 0),
        ],
        // Pages with `Advice::Free` are discarded unless they are written first.
        27 => vec![
            Action::Advise(small, Advice::Free),
            action(chance),
            Action::Advise(small, Advice::PageOut),
        ],
        // Missing pages are filled, before or after the program accesses them.
        28..30 => vec![
            mapped,
            Action::Watch(small, Watcher::Fills),
            Action::Fill(at, chance.from(0..4), chance.flip()),
            Action::Read(at + 1, 0),
        ],
        30 => vec![
            mapped,
            Action::Watch(small, Watcher::Fills),
            Action::Relocate(
                Range {
                    at: page(chance),
                    ..small
                },
                at,
            ),
        ],
        31..34 => accessed(chance, small),
        34 | 35 => large(chance),
        _ => {
            let node = chance.from(0..2);
            vec![
                Action::Write(at, 0, 1),
                Action::Migrate(small, node),
                Action::Migrate(small, node + 1),
            ]
        }
    }
}

/// Generates steps that access or move read-write-protected pages, and then access the pages again.
fn accessed(chance: &mut Chance, range: Range) -> Vec<Action> {
    let counts = chance.flip();
    vec![
        Action::Watch(range, Watcher::Accesses),
        Action::CountAccesses(counts),
        Action::ReadWriteProtect(range, true),
        action(chance),
        Action::Read(range.at, 0),
        Action::ScanAccessed(range),
        action(chance),
        Action::ReadWriteProtect(Range { pages: 1, ..range }, false),
        Action::CountAccesses(!counts),
    ]
}

/// Generates steps that collapse small pages into a huge page, if places are large enough, or steps that allocate a
/// folio and split it.
fn large(chance: &mut Chance) -> Vec<Action> {
    let at = chance.one(&[8, 16]);
    let range = Range { at, pages: 8 };
    if chance.flip() {
        return vec![
            Action::Write(at + 1, 0, value(chance)),
            Action::Collapse(range),
            Action::Write(at + 2, 0, value(chance)),
        ];
    }
    vec![
        Action::Map(range, Rights::READ_WRITE, What::Anonymous, false),
        Action::Write(at + 1, 0, value(chance)),
        action(chance),
        split(chance),
    ]
}
