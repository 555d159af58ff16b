//! Builds the programs of experiments, and the program that executes the marks of workloads. Every column runs the same
//! binary.

use crate::cmd::bench::experiments::{EXPERIMENTS, Experiment, HEADERS};
use crate::host::compile::{Recipe, Source};

/// The compilers in the order of preference. A program with musl, the smaller C library, takes fewer page faults at
/// startup.
const COMPILERS: &[&str] = &["musl-gcc", "cc"];
/// The compiler flags for programs of a guest.
const FLAGS: &[&str] = &["-std=gnu11", "-O2", "-static", "-pthread"];

/// The sources of the program `mark`. A workload's script runs it to mark where a region begins and ends.
const MARK: &[Source] = &[
    (
        "mark.h",
        include_str!("../../../../../include/memwright/mark.h"),
    ),
    (
        "mark.c",
        include_str!("../../../../../programs/workloads/mark.c"),
    ),
];

/// Returns the recipe of the program `mark`, which the scripts of workloads run.
pub fn mark() -> Recipe {
    recipe("workloads", "mark", MARK.to_vec())
}

/// Returns the recipe of an experiment's program.
pub fn experiment(experiment: &Experiment) -> Recipe {
    let main = ("main.c", experiment.source);
    let sources = HEADERS.iter().copied().chain([main]).collect();
    recipe("experiments", experiment.name, sources)
}

/// Returns the recipes of all programs that a bench can need.
pub fn recipes() -> Vec<Recipe> {
    let experiments = EXPERIMENTS.iter().map(experiment);
    experiments.chain([mark()]).collect()
}

fn recipe(kind: &'static str, name: &'static str, sources: Vec<Source>) -> Recipe {
    Recipe {
        kind,
        name,
        compilers: COMPILERS,
        flags: FLAGS.iter().map(|flag| (*flag).to_owned()).collect(),
        sources,
    }
}
