//! Builds the experiments' programs on the user's machine. Every column runs the same binary.

use std::path::PathBuf;

use crate::cmd::bench::experiments::{EXPERIMENTS, Experiment, HEADERS};
use crate::host::compile::{Compiler, Source};

/// The compilers in the order of preference. A program with musl, the smaller C library, takes fewer page faults at
/// startup.
pub const COMPILERS: &[&str] = &["musl-gcc", "cc"];
/// The compiler flags for programs of a guest.
pub const FLAGS: &[&str] = &["-std=gnu11", "-O2", "-static", "-pthread"];

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

/// Builds the program `mark` for the scripts of workloads, and returns its path.
///
/// # Errors
/// One line if there is no C compiler or no folder for a cache, or I/O errors of writing files.
pub fn mark() -> anyhow::Result<PathBuf> {
    let compiler = Compiler::first_of(COMPILERS)?;
    let parts: Vec<&str> = MARK.iter().map(|(_, text)| *text).collect();
    let folder = compiler.folder("workloads", &parts)?;
    compiler.build(&folder, "mark", FLAGS, MARK)
}

/// A C compiler, and the folder in the cache in which it builds the experiments' programs.
#[derive(Debug)]
pub struct Workshop {
    folder: PathBuf,
    compiler: Compiler,
}

impl Workshop {
    /// Finds a compiler and creates the folder.
    ///
    /// # Errors
    /// One line if there is no C compiler or no folder for a cache, or I/O errors of writing files.
    pub fn open() -> anyhow::Result<Self> {
        let compiler = Compiler::first_of(COMPILERS)?;
        let sources = EXPERIMENTS.iter().map(|one| one.source);
        let parts = HEADERS.iter().map(|(_, text)| *text).chain(sources);
        let parts: Vec<&str> = parts.collect();
        let folder = compiler.folder("experiments", &parts)?;
        Ok(Self { folder, compiler })
    }

    /// Builds the program of an experiment.
    ///
    /// # Errors
    /// If the compiler rejects the program.
    pub fn experiment(&self, experiment: &Experiment) -> anyhow::Result<PathBuf> {
        let sources: Vec<Source> = HEADERS
            .iter()
            .copied()
            .chain([("main.c", experiment.source)])
            .collect();
        self.compiler
            .build(&self.folder, experiment.name, FLAGS, &sources)
    }
}
