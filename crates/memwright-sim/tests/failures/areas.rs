//! Failed allocations in operations on many areas. Some of these operations leave a part of the areas changed when they
//! fail.

use std::sync::Arc;

use memwright::{Advice, AreaName, MapRequest, Placement, RemapRequest};

use crate::support::{READ, READ_WRITE, at, bytes};
use crate::trial::{Trial, machine, run};

const fn remap(page: u64, pages: u64, to: Option<u64>, new: u64) -> (u64, u64, Option<u64>, u64) {
    (page, pages, to, new)
}

fn request((page, pages, to, new): (u64, u64, Option<u64>, u64)) -> RemapRequest {
    RemapRequest {
        old: at(page),
        old_length: bytes(pages),
        new_length: bytes(new),
        may_move: true,
        fixed: to.map(at),
        dont_unmap: false,
    }
}

fn fill(trial: &Trial) -> crate::trial::Program {
    let program = trial.program();
    let file = trial.shmem(64);
    trial.begin();
    for (page, pages, rights) in [(0, 8, READ_WRITE), (8, 8, READ), (16, 8, READ_WRITE)] {
        let own = MapRequest::anonymous(bytes(pages), rights).at(Placement::Fixed(at(page)));
        trial.on("map", &program, |space| space.map(&own));
    }
    for (page, shared) in [(24, true), (32, false)] {
        let shown =
            MapRequest::object(file.clone(), bytes(page - 24), bytes(8), READ_WRITE, shared)
                .at(Placement::Fixed(at(page)));
        trial.on("map", &program, |space| space.map(&shown));
    }
    for page in [0, 1, 7, 17, 23, 24, 33] {
        trial.write(&program, page, page as u8 + 1);
    }
    program
}

#[test]
fn changes_across_areas() {
    run(&machine(512), 8, 6, |trial| {
        let program = fill(trial);
        trial.on("mprotect", &program, |space| {
            space.protect(at(4), bytes(26), READ)
        });
        trial.on("mprotect", &program, |space| {
            space.protect(at(2), bytes(34), READ_WRITE)
        });
        for advice in [Advice::DontFork, Advice::DoFork, Advice::GuardInstall] {
            trial.on("madvise", &program, |space| {
                space.advise(at(2), bytes(4), advice)
            });
        }
        for name in [Some(b"name".to_vec()), None] {
            let name = name.map(|bytes| Arc::new(AreaName::new(bytes)));
            trial.on("prctl", &program, |space| {
                space.name_memory(at(1), bytes(9), name.as_ref())
            });
        }
        trial.on("munmap", &program, |space| space.unmap(at(3), bytes(2)));
        trial.on("munmap", &program, |space| space.unmap(at(18), bytes(4)));
        // This mapping replaces several areas.
        let over = MapRequest::anonymous(bytes(6), READ_WRITE).at(Placement::Fixed(at(15)));
        trial.on("map", &program, |space| space.map(&over));
        trial.forget(&program, 15..21);
        trial.write(&program, 15, 9);
    });
}

#[test]
fn moves_and_growth() {
    run(&machine(512), 8, 4, |trial| {
        let program = fill(trial);
        trial.on("mremap", &program, |space| {
            space.remap(request(remap(0, 8, Some(700), 8)))
        });
        for page in [0, 1, 7] {
            trial.expect(&program, 700 + page, page as u8 + 1);
        }
        trial.forget(&program, 0..8);
        trial.on("mremap", &program, |space| {
            space.remap(request(remap(700, 8, Some(1400), 20)))
        });
        for page in [0, 1, 7] {
            trial.expect(&program, 1400 + page, page as u8 + 1);
        }
        trial.forget(&program, 700..708);
        trial.on("mremap", &program, |space| {
            space.remap(request(remap(1402, 18, None, 3)))
        });
        trial.forget(&program, 1405..1420);
        trial.on("mremap", &program, |space| {
            space.remap(RemapRequest {
                dont_unmap: true,
                ..request(remap(16, 8, Some(2000), 8))
            })
        });
        for page in [17, 23] {
            trial.expect(&program, 1984 + page, page as u8 + 1);
            trial.expect(&program, page, 0);
        }
        trial.write(&program, 2005, 3);
        let child = trial.fork(&program);
        trial.write(&child, 2001, 4);
        trial.write(&program, 1401, 5);
    });
}
