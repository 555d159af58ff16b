//! Builds C programs on the user's machine, once each, in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use sha2::{Digest, Sha256};

use crate::host::bounded::{self, PATIENCE};
use crate::host::cache;
use crate::host::folder::PrivateFolder;
use crate::model::hash::hash_part;

/// How long a compiler may take for one of the small programs here.
const LIMIT: Duration = Duration::from_secs(600);

/// A C compiler that is there.
#[derive(Debug, Clone)]
pub struct Compiler {
    name: &'static str,
    version: String,
}

/// A name and contents of a source.
pub type Source = (&'static str, &'static str);

impl Compiler {
    /// The first of these that answers.
    ///
    /// # Errors
    /// One line when none does.
    pub fn first_of(names: &[&'static str]) -> anyhow::Result<Self> {
        names
            .iter()
            .find_map(|name| {
                Some(Self {
                    name,
                    version: version(name)?,
                })
            })
            .ok_or_else(|| {
                anyhow!("a C compiler is missing (on Debian: apt install musl-tools gcc)")
            })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The folder in the cache whose name comes from these sources and the compiler, so that equal ones are built once, and
    /// lie at the same path each time: a program's own path is in its memory.
    ///
    /// # Errors
    /// When there is no home for a cache, or the folder cannot be made.
    pub fn folder(&self, kind: &str, parts: &[&str]) -> anyhow::Result<PathBuf> {
        let mut hash = Sha256::new();
        for part in parts.iter().chain(&[self.name, &*self.version]) {
            hash_part(&mut hash, part.as_bytes());
        }
        let name: String = hash.finalize()[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let folder = cache::folder()?.join(kind).join(name);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    /// Builds `folder`/`name` from the sources whose names end in `.c`, unless it is there.
    ///
    /// # Errors
    /// When the compiler refuses it; those of writing files.
    pub fn build(
        &self,
        folder: &Path,
        name: &str,
        flags: &[&str],
        sources: &[Source],
    ) -> anyhow::Result<PathBuf> {
        let program = folder.join(name);
        if program.exists() {
            return Ok(program);
        }
        // Another command may build at the same time: each works in a folder of its own, the last rename stands.
        let work = PrivateFolder::within(folder)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        for (name, text) in sources {
            let path = work.path().join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let names = sources.iter().map(|(name, _)| name);
        let units = names.filter(|name| name.ends_with(".c"));
        // With relative names, so that the binary does not name the folder.
        let mut command = Command::new(self.name);
        command
            .args(flags)
            .args(["-o", "program"])
            .args(units)
            .current_dir(work.path());
        let output = bounded::output(&mut command, LIMIT)
            .with_context(|| format!("{} cannot build {name}", self.name))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{} cannot build {name}: {}", self.name, said.trim());
        }
        fs::rename(work.path().join("program"), &program)
            .with_context(|| format!("cannot write {}", program.display()))?;
        Ok(program)
    }
}

/// What the compiler says of itself, if it is there.
fn version(compiler: &str) -> Option<String> {
    let output = bounded::output(Command::new(compiler).arg("--version"), PATIENCE).ok()?;
    let text = || String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(text)
}
