//! The two sides of the comparison. The referee is a Linux, on the host or under QEMU. The other side is Memwright
//! under QEMU.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::report::{self, Outcome};
use super::script::{Abilities, Script};
use crate::command::{self, Profile};
use crate::shell;

/// The memory of the guest. Scripts need little memory, and the report of a batch needs a few MiB.
const MEMORY: &str = "512M";
/// The time limit of a batch, in seconds on the host. It is far more than a batch needs.
const LIMIT: &str = "600";

/// The interpreter of scripts, and the command that runs it in a guest.
pub struct Sides {
    interpreter: PathBuf,
    /// The Linux kernel of the referee, by its name in `memwright kernels`; `None` for the host's kernel.
    kernel: Option<String>,
    command: PathBuf,
    folder: PathBuf,
}

impl Sides {
    /// Builds the interpreter and the command. Scripts and saved files are written to `folder`. The referee is the
    /// Linux kernel `kernel`, or the host's if it is `None`.
    ///
    /// # Errors
    /// If a build fails.
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

    /// Returns whether two runs on the referee may differ. Runs in a guest do not differ, because the guest's clock
    /// counts instructions.
    pub fn varies(&self) -> bool {
        self.kernel.is_none()
    }

    /// Returns whether the kernel of the referee is in the cache of `memwright kernels`.
    pub fn has_kernel(&self) -> bool {
        let mut command = Command::new(&self.command);
        let list = shell::output(command.args(["kernels", "list"])).unwrap_or_default();
        let mut names = list.lines().filter_map(|line| line.split(' ').next());
        names.any(|name| self.kernel.as_deref() == Some(name))
    }

    /// Returns the optional features that the referee has.
    ///
    /// # Errors
    /// If the interpreter fails.
    pub fn referee_abilities(&self) -> Result<Abilities> {
        abilities(&mut self.of_referee(&[]))
    }

    /// Returns the command that runs the interpreter on the referee. `options` are used only if the referee is a guest.
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
    /// If the guest fails.
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
    /// If the interpreter fails. A script that fails is part of the outcomes.
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
    /// If the guest fails: if it panics or hangs, or if its audit has findings.
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
    // The command prints the account of a run, with the findings of the audit at the end, on standard error.
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
