//! Builds C programs on the user's machine and stores them in the cache.

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

/// The time limit for compiling one of these small programs.
const LIMIT: Duration = Duration::from_secs(600);

/// An installed C compiler.
#[derive(Debug, Clone)]
pub struct Compiler {
    name: &'static str,
    version: String,
}

/// The name and the contents of a source file.
pub type Source = (&'static str, &'static str);

impl Compiler {
    /// Returns the first of these compilers that is installed and prints its version.
    ///
    /// # Errors
    /// One line if none of them works.
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

    /// Returns the command name of the compiler.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the folder in the cache that is named after the hash of these sources and the compiler. A program is
    /// therefore built once and always has the same path. A program's own path is in its memory, so another path could
    /// change counts.
    ///
    /// # Errors
    /// If no folder for a cache can be determined, or if the folder cannot be created.
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

    /// Builds `folder`/`name` from the sources whose names end in `.c`, unless the file exists.
    ///
    /// # Errors
    /// If the compiler rejects a source, or I/O errors of writing files.
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
        // Several commands can build at the same time. Each uses a private folder, and the last one to rename its file
        // wins.
        let work = PrivateFolder::within(folder)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        for (name, text) in sources {
            let path = work.path().join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let names = sources.iter().map(|(name, _)| name);
        let units = names.filter(|name| name.ends_with(".c"));
        // The names are relative, so that the binary does not contain the path of the folder.
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

/// Returns the version text of a compiler, or `None` if it is not installed.
fn version(compiler: &str) -> Option<String> {
    let output = bounded::output(Command::new(compiler).arg("--version"), PATIENCE).ok()?;
    let text = || String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(text)
}
