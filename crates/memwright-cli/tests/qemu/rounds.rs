//! Races of threads on four CPUs, repeated many times. Under the instruction clock, most programs run 2,500 rounds with
//! each of four offsets between the threads. Some programs also run on parallel CPUs, where every run differs.

use crate::shared::{Boot, interleaved};
use crate::tier::{Tier, tier};
use libtest_mimic::Trial;

/// The boots with their programs. Each program has a number of rounds and an offset, which shifts the threads relative
/// to one another, as arguments. Each boot is repeated and compared.
const BY_OFFSET: [(&str, &[&str]); 4] = [
    (
        "rounds::offset_0",
        &[
            "pthreads 2500 0",
            "races all 2500 0",
            "track_races all 2500 0 dirty-bit",
        ],
    ),
    (
        "rounds::offset_1",
        &[
            "pthreads 2500 1",
            "races all 2500 1",
            "track_races all 2500 1 dirty-bit",
        ],
    ),
    (
        "rounds::offset_23",
        &[
            "pthreads 2500 23",
            "races all 2500 23",
            "track_races all 2500 23 dirty-bit",
        ],
    ),
    (
        "rounds::offset_1009",
        &[
            "pthreads 2500 1009",
            "races all 2500 1009",
            "track_races all 2500 1009 dirty-bit",
        ],
    ),
];

/// Programs that run on parallel CPUs. Their numbers of rounds are small, because a round takes almost a second if the
/// guest has more CPUs than the host has cores.
const IN_PARALLEL: &[&str] = &[
    "pthreads 40",
    "races all 50",
    "track_races all 200 0 dirty-bit",
    "barriers 200",
];
/// Programs whose threads write to pages that are migrated within and between NUMA nodes, or merged.
const ON_NODES: &[&str] = &["page_races all 10000 0", "move_shared 1000"];
const ON_NODES_IN_CI: &[&str] = &["page_races all 4000 0", "move_shared 1000"];
const ON_NODES_FIRST_TIER: &[&str] = &["page_races all 1000 0", "move_shared 1000"];
const ON_NODES_IN_PARALLEL: &[&str] = &["page_races all 12 0", "move_shared 12"];
/// Programs that behave differently if a tracked store takes a fault.
const BY_FAULTS: &[&str] = &["track_races all 2500 7 faults"];

pub fn trials() -> Vec<Trial> {
    let turns = BY_OFFSET
        .iter()
        .map(|(group, programs)| Boot::of(group, "glibc-static", programs).cpus(4));
    let parallel = Boot::of("rounds", "musl-static", IN_PARALLEL).parallel(4);
    let by_faults = Boot::of("rounds", "musl-static", BY_FAULTS).cpus(4);
    let by_faults = by_faults.policy("track=fault");
    let programs = match tier() {
        Tier::Test => ON_NODES_FIRST_TIER,
        Tier::Ci => ON_NODES_IN_CI,
        Tier::Full => ON_NODES,
    };
    let on_nodes = Boot::of("rounds::nodes", "glibc-static", programs).cpus(4);
    let on_parallel_nodes =
        Boot::of("rounds::nodes", "musl-static", ON_NODES_IN_PARALLEL).parallel(4);
    let on_nodes = [on_nodes, on_parallel_nodes].map(|boot| boot.option("--numa", "2"));
    let others = [parallel, by_faults].into_iter().chain(on_nodes);
    interleaved(turns.chain(others).collect())
}
