//! Failed allocations while pages with equal contents are merged and unmerged.

use memwright::{Advice, MapRequest, Placement};

use crate::support::{FIRST, READ_WRITE, at, bytes};
use crate::trial::{Program, Trial, machine, run};

/// Scans all memory until every unchanged page is merged.
fn scan(trial: &Trial) {
    trial.step("scan", || {
        let _running = trial.host.machine().run_on(FIRST);
        for _ in 0..3 {
            while !trial.host.memory().merge_pages(5) {}
        }
        Ok::<_, memwright::ForkError>(())
    });
}

fn equal(trial: &Trial) -> Program {
    let program = trial.program();
    let own = MapRequest::anonymous(bytes(8), READ_WRITE).at(Placement::Fixed(at(0)));
    trial.begin();
    trial.on("map", &program, |space| space.map(&own));
    for page in 0..6 {
        trial.write(&program, page, 7);
    }
    program
}

#[test]
fn merged_by_advice() {
    run(&machine(512), 8, 2, |trial| {
        let program = equal(trial);
        trial.on("madvise", &program, |space| {
            space.advise(at(0), bytes(8), Advice::Mergeable)
        });
        scan(trial);
        trial.write(&program, 2, 8);
        let child = trial.fork(&program);
        scan(trial);
        trial.write(&child, 3, 9);
        trial.on("madvise", &program, |space| {
            space.advise(at(0), bytes(4), Advice::Unmergeable)
        });
        trial.write(&program, 1, 10);
    });
}

#[test]
fn merged_as_a_whole() {
    run(&machine(512), 8, 1, |trial| {
        let program = equal(trial);
        trial.on("prctl", &program, |space| space.ksm().merge_all(true));
        scan(trial);
        trial.write(&program, 4, 8);
        trial.on("prctl", &program, |space| space.ksm().merge_all(false));
        trial.on("madvise", &program, |space| {
            space.advise(at(0), bytes(8), Advice::Mergeable)
        });
        scan(trial);
        trial.step("unmerge", || {
            let _running = trial.host.machine().run_on(FIRST);
            trial.host.memory().unmerge_all()
        });
        trial.write(&program, 5, 9);
    });
}
