//! The columns of a table: Memwright with its policies, and Linux kernels.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use super::compile::Workshop;
use super::document::hash;
use super::experiments::Run;
use super::linux::Guest;
use super::records::{self, Record};
use crate::kernels;
use crate::lab::image::Image;
use crate::qemu::machine::Machine;
use crate::qemu::version;

/// A kernel that the experiments run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// The kernel of this command, with these policies.
    Memwright {
        /// As for `--policy`; may be empty.
        policies: String,
    },
    /// A Linux kernel image.
    Linux {
        /// What the column is called.
        name: String,
        /// The bzImage.
        image: PathBuf,
    },
}

impl Column {
    /// Reads `[NAME=]IMAGE`, a path or a name of `memwright kernels`.
    ///
    /// # Errors
    /// A file that is no kernel image.
    pub fn of_image(text: &str) -> anyhow::Result<Self> {
        let image = Image::open(text)?;
        Ok(Self::Linux {
            name: image.name,
            image: image.path,
        })
    }

    /// What stands above it.
    pub fn title(&self) -> String {
        match self {
            Self::Memwright { policies } if policies.is_empty() => "memwright".to_owned(),
            Self::Memwright { policies } => format!("memwright {policies}"),
            Self::Linux { name, .. } => name.clone(),
        }
    }

    /// The hash of its kernel image.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn hash(&self) -> anyhow::Result<String> {
        let image = match self {
            Self::Memwright { .. } => crate::kernel::image()?.into_owned(),
            Self::Linux { image, .. } => std::fs::read(image)?,
        };
        Ok(hash(&image))
    }

    /// Runs a program on it.
    ///
    /// # Errors
    /// When the guest does not boot, or the program fails.
    pub fn run(
        &self,
        workshop: &Workshop,
        program: &Path,
        run: &Run,
        machine: &Machine,
        limit: Duration,
    ) -> anyhow::Result<Vec<Record>> {
        let output = match self {
            Self::Memwright { policies } => run_memwright(program, run, machine, policies, limit)?,
            Self::Linux { image, .. } => {
                let modules = if run.swap.is_empty() {
                    Vec::new()
                } else {
                    kernels::modules(image)?
                };
                let guest = Guest {
                    image,
                    modules,
                    init: &workshop.linux_init()?,
                    program,
                    arguments: run.arguments,
                    machine,
                    limit,
                };
                guest.run(&version::program(machine)?)?
            }
        };
        records::parse(&output)
    }
}

/// Runs this command itself: what is measured is what its users run.
fn run_memwright(
    program: &Path,
    run: &Run,
    machine: &Machine,
    policies: &str,
    limit: Duration,
) -> anyhow::Result<String> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("run")
        .args(["--memory", &machine.memory.to_string()])
        .args(["--cpus", &machine.cpus.to_string()])
        .args(["--timeout", &limit.as_secs().to_string()]);
    if !run.swap.is_empty() {
        command.args(["--swap", run.swap]);
    }
    if !policies.is_empty() {
        command.args(["--policy", policies]);
    }
    let output = command
        .arg(program)
        .args(run.arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot start the command again")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().take(20).collect();
        bail!("the run failed: {}", lines.join("\n  "));
    }
    String::from_utf8(output.stdout).context("the program printed no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("vmlinuz-6");
        let mut bytes = vec![0; 0x300];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        std::fs::write(&image, &bytes).unwrap();
        let title = |text: String| Column::of_image(&text).unwrap().title();
        assert_eq!(title(image.display().to_string()), "vmlinuz-6");
        assert_eq!(title(format!("old={}", image.display())), "old");
        std::fs::write(&image, "text").unwrap();
        let error = Column::of_image(&image.display().to_string()).unwrap_err();
        assert!(error.to_string().contains("not a Linux kernel image"));
        assert!(Column::of_image("x=/no/such/image").is_err());
    }
}
