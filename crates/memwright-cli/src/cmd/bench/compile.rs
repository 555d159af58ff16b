//! Builds the experiments on the user's machine: every column runs the same binary.

use std::path::PathBuf;

use crate::cmd::bench::experiments::{EXPERIMENTS, Experiment, HEADERS};
use crate::host::compile::{Compiler, Source};

/// Compilers in the order of preference: the smaller library starts with fewer faults of its own.
pub const COMPILERS: &[&str] = &["musl-gcc", "cc"];
/// How programs of a guest are built.
pub const FLAGS: &[&str] = &["-std=gnu11", "-O2", "-static", "-pthread"];

/// The folder of the programs.
#[derive(Debug)]
pub struct Workshop {
    folder: PathBuf,
    compiler: Compiler,
}

impl Workshop {
    /// Finds a compiler and makes the folder.
    ///
    /// # Errors
    /// One line when there is no C compiler or no home for a cache; those of writing files.
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
    /// When the compiler refuses it.
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
