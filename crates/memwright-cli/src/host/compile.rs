//! Finds the C programs that commands need: in the folder of an installed package, or built on this machine and stored
//! in the cache.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
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
/// The folder of the package's programs, relative to the folder of the command: `/usr/lib/memwright` for
/// `/usr/bin/memwright`.
const PACKAGED: &str = "../lib/memwright";

/// An installed C compiler.
#[derive(Debug, Clone)]
pub struct Compiler {
    name: &'static str,
    version: String,
}

/// The name and the contents of a source file.
pub type Source = (&'static str, &'static str);

/// How a C program is built.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The name of the folder for programs of this kind.
    pub kind: &'static str,
    /// The file name of the program.
    pub name: &'static str,
    /// The compilers, in the order of preference.
    pub compilers: &'static [&'static str],
    /// The compiler's flags.
    pub flags: Vec<String>,
    /// The source files. Those whose names end in `.c` are compiled.
    pub sources: Vec<Source>,
}

impl Recipe {
    /// Returns the path of the program. A program of the installed package is used if it was built from the same
    /// sources with the same flags. Otherwise the program is built into the cache, if it is not there yet.
    ///
    /// # Errors
    /// If there is no compiler, if it rejects a source, or I/O errors of writing files.
    pub fn obtain(&self) -> anyhow::Result<PathBuf> {
        if let Some(program) = packaged_folder().and_then(|folder| self.packaged(&folder)) {
            return Ok(program);
        }
        let compiler = Compiler::first_of(self.compilers)?;
        let folder = cache::folder()?.join(self.folder(Some(&compiler)));
        self.build(&compiler, &folder)
    }

    /// Builds the program for a package, in `folder`. Returns its path.
    ///
    /// # Errors
    /// If there is no compiler, if it rejects a source, or I/O errors of writing files.
    pub fn build_for_package(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let compiler = Compiler::first_of(self.compilers)?;
        self.build(&compiler, &folder.join(self.folder(None)))
    }

    /// Returns the path of the program in the folder of a package; `None` if the package does not contain it.
    fn packaged(&self, folder: &Path) -> Option<PathBuf> {
        let program = folder.join(self.folder(None)).join(self.name);
        program.is_file().then_some(program)
    }

    /// Returns the folder of the program, which is named after the hash of its sources, its flags and its compiler. For
    /// a package, `compiler` is `None`: an installed command must find the folder without a compiler.
    fn folder(&self, compiler: Option<&Compiler>) -> PathBuf {
        let mut hash = Sha256::new();
        let flags = self.flags.iter().map(String::as_str);
        let sources = self.sources.iter().flat_map(|(name, text)| [*name, *text]);
        let compiler = compiler.iter().flat_map(|one| [one.name, &*one.version]);
        for part in flags.chain(sources).chain(compiler) {
            hash_part(&mut hash, part.as_bytes());
        }
        let name: String = hash.finalize()[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Path::new(self.kind).join(name)
    }

    /// Builds the program in `folder`, unless it exists there.
    fn build(&self, compiler: &Compiler, folder: &Path) -> anyhow::Result<PathBuf> {
        let program = folder.join(self.name);
        if program.exists() {
            return Ok(program);
        }
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        // Several commands can build at the same time. Each builds in a private folder, and the file of the last
        // command that renames its file remains.
        let work = PrivateFolder::within(folder)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        for (name, text) in &self.sources {
            let path = work.path().join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let names = self.sources.iter().map(|(name, _)| name);
        let units = names.filter(|name| name.ends_with(".c"));
        // The names are relative, so that the binary does not contain the path of the folder.
        let mut command = Command::new(compiler.name);
        command
            .args(&self.flags)
            .args(["-o", "program"])
            .args(units)
            .current_dir(work.path());
        let name = self.name;
        let output = bounded::output(&mut command, LIMIT)
            .with_context(|| format!("{} cannot build {name}", compiler.name))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{} cannot build {name}: {}", compiler.name, said.trim());
        }
        let built = work.path().join("program");
        // The guest's copy has the permissions of this file, which must not depend on the user's umask.
        fs::set_permissions(&built, Permissions::from_mode(0o755))
            .with_context(|| format!("cannot write {}", built.display()))?;
        fs::rename(built, &program)
            .with_context(|| format!("cannot write {}", program.display()))?;
        Ok(program)
    }
}

/// Returns the folder of the package to which this command belongs; `None` if it was not installed from a package.
pub fn packaged_folder() -> Option<PathBuf> {
    let command = std::env::current_exe().ok()?;
    let folder = fs::canonicalize(command.parent()?.join(PACKAGED)).ok()?;
    folder.is_dir().then_some(folder)
}

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
}

/// Returns the version text of a compiler, or `None` if it is not installed.
fn version(compiler: &str) -> Option<String> {
    let output = bounded::output(Command::new(compiler).arg("--version"), PATIENCE).ok()?;
    let text = || String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(flag: &str, text: &'static str) -> Recipe {
        Recipe {
            kind: "kind",
            name: "program",
            compilers: &["cc"],
            flags: vec![flag.to_owned()],
            sources: vec![("main.c", text)],
        }
    }

    #[test]
    fn sources_flags_and_compilers_have_folders_of_their_own() {
        let compiler = |version: &str| Compiler {
            name: "cc",
            version: version.to_owned(),
        };
        let folders = [
            recipe("-O2", "a").folder(None),
            recipe("-O2", "b").folder(None),
            recipe("-O1", "a").folder(None),
            recipe("-O2", "a").folder(Some(&compiler("12"))),
            recipe("-O2", "a").folder(Some(&compiler("13"))),
        ];
        for (index, folder) in folders.iter().enumerate() {
            assert!(folder.starts_with("kind"), "{folder:?}");
            assert!(!folders[..index].contains(folder), "{folder:?}");
        }
    }

    #[test]
    fn a_package_has_the_program_of_the_same_sources_only() {
        let package = tempfile::tempdir().unwrap();
        let (same, other) = (recipe("-O2", "a"), recipe("-O2", "b"));
        assert_eq!(same.packaged(package.path()), None);
        let folder = package.path().join(same.folder(None));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("program"), "").unwrap();
        assert_eq!(same.packaged(package.path()), Some(folder.join("program")));
        assert_eq!(other.packaged(package.path()), None);
    }
}
