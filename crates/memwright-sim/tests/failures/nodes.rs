//! Failed allocations in NUMA policies, page migration, and NUMA hints.

use memwright::{Advice, MapRequest, Moved, Moving, PlaceMode, PlacePolicy, Placement, Unmoved};
use memwright_sim::MachineOptions;
use memwright_table::{NodeChoice, NodeSet};

use crate::support::{FIRST, READ_WRITE, at, bytes};
use crate::trial::run;

fn policy(mode: PlaceMode, nodes: u64) -> PlacePolicy {
    PlacePolicy {
        mode,
        nodes: NodeSet::from_bits(nodes),
        named: None,
        flags: 0,
        home: None,
    }
}

#[test]
fn policies_and_pages_that_move() {
    let options = MachineOptions {
        frames: 512,
        nodes: 2,
        ..MachineOptions::default()
    };
    run(&options, 8, 2, |trial| {
        let program = trial.program();
        trial.begin();
        let own = MapRequest::anonymous(bytes(12), READ_WRITE).at(Placement::Fixed(at(0)));
        trial.on("map", &program, |space| space.map(&own));
        trial.on("mbind", &program, |space| {
            let wanted = policy(PlaceMode::Bind, 2);
            space.numa().bind(at(2), bytes(4), Some(wanted), false)
        });
        trial.on("mbind", &program, |space| {
            let wanted = policy(PlaceMode::Interleave, 3);
            space.numa().bind(at(5), bytes(3), Some(wanted), false)
        });
        for page in 0..9 {
            trial.write(&program, page, page as u8 + 1);
        }
        trial.on("set_mempolicy_home_node", &program, |space| {
            space.numa().set_home_node(at(2), bytes(2), 1, |_| true)
        });
        trial.on("migrate", &program, |space| {
            let choice = NodeChoice::only(1);
            space
                .numa()
                .migrate(at(0).page(), choice, Moving::Own)
                .map(|moved| {
                    assert_eq!(moved, Moved::To(1));
                })
        });
        program.process.on(FIRST, |space| {
            let mut budget = 1000;
            space.numa().scan_for_hints(at(0).page(), &mut budget);
        });
        trial.read(&program, 1);
        trial.write(&program, 8, 20);
        trial.on("mbind", &program, |space| {
            space.numa().bind(at(3), bytes(2), None, false)
        });
    });
}

#[test]
fn pages_that_several_show_move() {
    let options = MachineOptions {
        frames: 512,
        nodes: 2,
        ..MachineOptions::default()
    };
    run(&options, 4, 9, |trial| {
        let program = trial.program();
        let object = trial.shmem(3);
        trial.begin();
        let own = MapRequest::anonymous(bytes(4), READ_WRITE).at(Placement::Fixed(at(0)));
        trial.on("map", &program, |space| space.map(&own));
        let shown = MapRequest::object(object, 0, bytes(3), READ_WRITE, true);
        let shown = shown.at(Placement::Fixed(at(8)));
        trial.on("map", &program, |space| space.map(&shown));
        for page in [0, 1, 2, 8, 9] {
            trial.write(&program, page, page as u8 % 2 + 1);
        }
        let child = trial.fork(&program);
        trial.read(&child, 8);
        let grandchild = trial.fork(&child);
        trial.on("madvise", &program, |space| {
            space.advise(at(1), bytes(2), Advice::Mergeable)
        });
        for (who, page, node) in [
            (&program, 0, 1),
            (&child, 8, 1),
            (&grandchild, 0, 0),
            (&program, 8, 0),
            (&child, 1, 1),
        ] {
            let choice = NodeChoice::only(node);
            trial.on("migrate", who, |space| {
                let moved = space.numa().migrate(at(page).page(), choice, Moving::All)?;
                assert_eq!(moved, Moved::To(node), "page {page}");
                Ok::<(), Unmoved>(())
            });
        }
        trial.write(&child, 0, 9);
        trial.read(&program, 0);
        trial.read(&grandchild, 0);
    });
}
