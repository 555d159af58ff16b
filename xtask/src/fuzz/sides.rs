//! The two sides of the comparison: a Linux, of the host or under QEMU, and Memwright under QEMU.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::report::{self, Outcome};
use super::script::{Abilities, Script};
use crate::command::{self, Profile};
use crate::shell;

/// Guest memory: scripts need little, and the report of a batch a few MiB.
const MEMORY: &str = "512M";
/// Host seconds for a batch, far more than it takes.
const LIMIT: &str = "600";

/// The interpreter, and the command that runs it in a guest.
pub struct Sides {
    interpreter: PathBuf,
    /// The Linux kernel that is the referee, a name of `memwright kernels`; `None` for the host's.
    kernel: Option<String>,
    command: PathBuf,
    folder: PathBuf,
}

impl Sides {
    /// Builds both. Scripts and saved files go to `folder`. The referee is the host's Linux, or this kernel.
    ///
    /// # Errors
    /// Failed builds.
    pub fn prepare(folder: &Path, kernel: Option<&str>) -> Result<Self> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let interpreter = folder.join("interpret");
        let source = shell::root().join("programs/fuzz/interpret.c");
        let mut compile = Command::new("musl-gcc");
        compile
            .args([
                "-std=gnu11",
                "-O2",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-static",
                "-o",
            ])
            .args([&interpreter, &source]);
        shell::run(&mut compile)?;
        Ok(Self {
            interpreter,
            kernel: kernel.map(str::to_owned),
            command: command::built(Profile::Release)?,
            folder: folder.to_owned(),
        })
    }

    /// Returns whether two runs of the referee may differ: a guest's clock counts instructions.
    pub fn varies(&self) -> bool {
        self.kernel.is_none()
    }

    /// Returns whether the kernel that is the referee was added.
    pub fn has_kernel(&self) -> bool {
        let mut command = Command::new(&self.command);
        let list = shell::output(command.args(["kernels", "list"])).unwrap_or_default();
        let mut names = list.lines().filter_map(|line| line.split(' ').next());
        names.any(|name| self.kernel.as_deref() == Some(name))
    }

    /// Returns the optional features that the referee has.
    ///
    /// # Errors
    /// When the interpreter fails.
    pub fn referee_abilities(&self) -> Result<Abilities> {
        abilities(&mut self.of_referee(&[]))
    }

    /// Returns the command that runs the interpreter on the referee, with these options of a guest.
    fn of_referee(&self, options: &[&str]) -> Command {
        let Some(kernel) = &self.kernel else {
            return Command::new(&self.interpreter);
        };
        let mut command = Command::new(&self.command);
        command
            .args(["run", "--no-count", "--no-verify", "--timeout", LIMIT])
            .args(["--kernel", kernel])
            .args(options)
            .arg(&self.interpreter);
        command
    }

    /// Returns the optional features that Memwright has.
    ///
    /// # Errors
    /// When the guest fails.
    pub fn guest_abilities(&self) -> Result<Abilities> {
        let mut command = Command::new(&self.command);
        abilities(
            command
                .args(["run", "--timeout", LIMIT])
                .arg(&self.interpreter),
        )
    }

    /// Runs scripts on the referee.
    ///
    /// # Errors
    /// When the interpreter fails as a whole.
    pub fn on_referee(&self, scripts: &[Script]) -> Result<Vec<Outcome>> {
        let file = self.write(scripts, "referee.scripts")?;
        let name = file.to_string_lossy();
        let mut command = self.of_referee(&["--memory", MEMORY, "--file", &name]);
        let mut outcomes = run(command.arg(&file), scripts.len())?;
        for outcome in &mut outcomes {
            outcome.older = self.kernel.is_none();
        }
        Ok(outcomes)
    }

    /// Runs scripts on Memwright, all in one guest.
    ///
    /// # Errors
    /// When the guest fails as a whole: a panic, a hang, an audit's finding.
    pub fn on_guest(&self, scripts: &[Script]) -> Result<Vec<Outcome>> {
        let file = self.write(scripts, "guest.scripts")?;
        let mut command = Command::new(&self.command);
        command
            .args([
                "run",
                "--full",
                "--memory",
                MEMORY,
                "--timeout",
                LIMIT,
                "--file",
            ])
            .arg(&file)
            .arg(&self.interpreter)
            .arg(&file);
        run(&mut command, scripts.len())
    }

    fn write(&self, scripts: &[Script], name: &str) -> Result<PathBuf> {
        let mut text = String::new();
        for (number, script) in scripts.iter().enumerate() {
            script.write(number, &mut text);
        }
        let path = self.folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

fn abilities(command: &mut Command) -> Result<Abilities> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    ensure!(
        output.status.success(),
        "the interpreter failed: {output:?}"
    );
    Ok(Abilities::parse(&String::from_utf8_lossy(&output.stdout)))
}

fn run(command: &mut Command, scripts: usize) -> Result<Vec<Outcome>> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{:?} failed: {}\n{errors}",
        command.get_program(),
        output.status
    );
    // The account of a run is on standard error, with the findings of the audit at its end.
    let findings = errors.lines().find(|line| line.ends_with("audit findings"));
    if let Some(line) = findings.filter(|line| !line.trim_start().starts_with("0 ")) {
        bail!("the guest's audit found something: {line}\n{errors}");
    }
    let outcomes = report::parse(&String::from_utf8_lossy(&output.stdout));
    ensure!(
        outcomes.len() == scripts,
        "{} of {scripts} scripts were reported",
        outcomes.len()
    );
    Ok(outcomes)
}
