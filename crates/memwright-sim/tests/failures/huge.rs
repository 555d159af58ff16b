//! Failed allocations with huge pages: first access, splits, copies and collapse. If no huge page is available, small
//! pages are used.

use memwright::{Advice, HugeMode, MapRequest, Placement, RemapRequest};

use crate::support::{FIRST, READ, READ_WRITE, at, bytes};
use crate::trial::{Program, Trial, machine, run};

/// The first page that is aligned to 2 MiB.
const HEAD: u64 = 2;
const HUGE: u64 = 512;

fn mapped(trial: &Trial, count: u64) -> Program {
    let own = MapRequest::anonymous(bytes(count * HUGE), READ_WRITE).at(Placement::Fixed(at(HEAD)));
    let program = trial.program();
    trial.begin();
    trial.on("map", &program, |space| space.map(&own));
    program
}

#[test]
fn first_touch_split_and_fork() {
    run(&machine(8192), 3, 0, |trial| {
        trial.host.memory().policy().set_huge(HugeMode::Always);
        let program = mapped(trial, 3);
        trial.write(&program, HEAD + 77, 1);
        trial.read(&program, HEAD + HUGE);
        trial.write(&program, HEAD + HUGE + 1, 2);
        trial.on("mprotect", &program, |space| {
            space.protect(at(HEAD + 70), bytes(4), READ)
        });
        trial.on("madvise", &program, |space| {
            space.advise(at(HEAD + 100), bytes(3), Advice::DontNeed)
        });
        let child = trial.fork(&program);
        trial.write(&child, HEAD + HUGE + 1, 3);
        trial.write(&program, HEAD + HUGE + 2, 4);
        trial.on("munmap", &program, |space| {
            space.unmap(at(HEAD + HUGE + 100), bytes(100))
        });
        trial.write(&program, HEAD + 2 * HUGE, 5);
        trial.on("mremap", &program, |space| {
            space.remap(RemapRequest {
                old: at(HEAD + 2 * HUGE),
                old_length: bytes(HUGE),
                new_length: bytes(HUGE),
                may_move: true,
                fixed: Some(at(HEAD + 9 * HUGE + 3)),
                dont_unmap: false,
            })
        });
        trial.forget(&program, HEAD + 2 * HUGE..HEAD + 3 * HUGE);
        trial.expect(&program, HEAD + 9 * HUGE + 3, 5);
    });
}

#[test]
fn collapse() {
    run(&machine(8192), 6, 0, |trial| {
        trial.host.memory().policy().set_huge(HugeMode::Advised);
        let program = mapped(trial, 2);
        for page in [0, 1, 100, 511, HUGE + 5] {
            trial.write(&program, HEAD + page, (page % 200) as u8 + 1);
        }
        let before = program
            .process
            .on(FIRST, |space| space.usage().resident_pages());
        // Collapse may return an out-of-memory error, as on Linux. It has then changed nothing.
        trial.on("collapse", &program, |space| {
            let outcome = space.advise(at(HEAD), bytes(HUGE), Advice::Collapse);
            if outcome.is_err() {
                assert_eq!(space.usage().resident_pages(), before);
            }
            outcome
        });
        trial.write(&program, HEAD + 3, 7);
        trial.on("madvise", &program, |space| {
            space.advise(at(HEAD + HUGE), bytes(HUGE), Advice::Huge)
        });
        trial.step("scan", || {
            let mut budget = 4096;
            program.process.on(FIRST, |space| {
                space.huge_pages().scan(at(0).page(), &mut budget);
            });
            Ok::<_, memwright::ForkError>(())
        });
        trial.write(&program, HEAD + HUGE + 6, 8);
    });
}
