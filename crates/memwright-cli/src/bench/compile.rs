//! Builds the experiments on the user's machine: every column runs the same binary.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, anyhow, bail};
use sha2::{Digest, Sha256};

use super::experiments::{EXPERIMENTS, Experiment, HEADERS, LINUX_INIT};
use crate::cache;

/// Compilers in the order of preference: the smaller library starts with fewer faults of its own.
const COMPILERS: &[&str] = &["musl-gcc", "cc"];
const FLAGS: &[&str] = &["-std=gnu11", "-O2", "-static", "-pthread"];

/// A folder of programs. Its name comes from the sources and the compiler, so that equal ones are built once, and lie
/// at the same path each time: a program's own path is in its memory.
#[derive(Debug)]
pub struct Workshop {
    folder: PathBuf,
    compiler: &'static str,
}

impl Workshop {
    /// Finds a compiler and lays the headers out.
    ///
    /// # Errors
    /// One line when there is no C compiler or no home for a cache; those of writing files.
    pub fn open() -> anyhow::Result<Self> {
        let (compiler, version) = COMPILERS
            .iter()
            .find_map(|compiler| Some((*compiler, version(compiler)?)))
            .ok_or_else(|| {
                anyhow!("a C compiler is missing (on Debian: apt install musl-tools gcc)")
            })?;
        let sources = EXPERIMENTS.iter().map(|one| one.source);
        let parts = HEADERS.iter().map(|(_, text)| *text).chain(sources);
        let mut hash = Sha256::new();
        for part in parts.chain([LINUX_INIT, compiler, &version]) {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let name: String = hash.finalize()[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let folder = cache::folder()?.join("experiments").join(name);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self { folder, compiler })
    }

    /// Builds the program of an experiment.
    ///
    /// # Errors
    /// When the compiler refuses it.
    pub fn experiment(&self, experiment: &Experiment) -> anyhow::Result<PathBuf> {
        self.build(experiment.name, experiment.source)
    }

    /// Builds the first process of a Linux guest.
    ///
    /// # Errors
    /// When the compiler refuses it.
    pub fn linux_init(&self) -> anyhow::Result<PathBuf> {
        self.build("linux-init", LINUX_INIT)
    }

    fn build(&self, name: &str, source: &str) -> anyhow::Result<PathBuf> {
        let program = self.folder.join(name);
        if program.exists() {
            return Ok(program);
        }
        // Another command may build at the same time: each works in a folder of its own, the last rename stands.
        let work = tempfile::tempdir_in(&self.folder)
            .with_context(|| format!("cannot write to {}", self.folder.display()))?;
        for (name, text) in HEADERS.iter().chain(&[("main.c", source)]) {
            let path = work.path().join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        // With relative names, so that the binary does not name the folder.
        let output = Command::new(self.compiler)
            .args(FLAGS)
            .args(["-o", "program", "main.c"])
            .current_dir(work.path())
            .output()
            .with_context(|| format!("cannot start {}", self.compiler))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{} cannot build {name}: {}", self.compiler, said.trim());
        }
        fs::rename(work.path().join("program"), &program)
            .with_context(|| format!("cannot write {}", program.display()))?;
        Ok(program)
    }
}

/// What the compiler says of itself, if it is there.
fn version(compiler: &str) -> Option<String> {
    let output = Command::new(compiler).arg("--version").output().ok()?;
    let text = || String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(text)
}
