//! The columns of a table: Memwright with its policies, and Linux kernels.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, anyhow, bail};
use rustix::process::Signal;

use super::document::{Kernel, hash};
use super::experiments::Run;
use super::records::{self, Record};
use crate::args::BenchArgs;
use crate::children::Children;
use crate::lab::column::Column as Named;
use crate::lab::image::Image;
use crate::qemu::launch;
use crate::qemu::machine::Machine;

/// A kernel that the experiments run on.
#[derive(Debug, Clone)]
pub enum Column {
    /// The kernel of this command, with these policies.
    Memwright {
        /// As for `--policy`; may be empty.
        policies: String,
    },
    /// A Linux kernel image.
    Linux {
        /// The image.
        image: Image,
        /// What is added to its command line; may be empty.
        append: String,
    },
}

impl Column {
    /// Reads `[NAME=]IMAGE[,append=WORDS]...`, where IMAGE is a path or a name of `memwright kernels`.
    ///
    /// # Errors
    /// A file that is no kernel image; a change of the machine, which each experiment chooses.
    pub fn of_image(text: &str) -> anyhow::Result<Self> {
        let named = Named::open(text)?;
        let append = named.appended();
        Ok(Self::Linux {
            append: append.ok_or_else(|| {
                anyhow!("--kernel {text}: an experiment chooses its machine: a column of bench has append alone")
            })?,
            image: named.image,
        })
    }

    /// This kernel with these words on its command line. Memwright's kernel has no command line.
    #[must_use]
    pub fn with(&self, words: &str) -> Self {
        match self {
            Self::Linux { image, append } => Self::Linux {
                image: Image {
                    name: format!("{} {words}", image.name),
                    ..image.clone()
                },
                append: format!("{append} {words}").trim_start().to_owned(),
            },
            Self::Memwright { .. } => self.clone(),
        }
    }

    /// What stands above it.
    pub fn title(&self) -> String {
        match self {
            Self::Memwright { policies } if policies.is_empty() => "memwright".to_owned(),
            Self::Memwright { policies } => format!("memwright {policies}"),
            Self::Linux { image, .. } => image.name.clone(),
        }
    }

    /// What is known of its kernel.
    ///
    /// # Errors
    /// Those of reading the image.
    pub fn kernel(&self) -> anyhow::Result<Kernel> {
        let name = self.title();
        Ok(match self {
            Self::Memwright { .. } => Kernel {
                name,
                sha256: hash(&crate::kernel::image()?),
                version: concat!("memwright ", env!("CARGO_PKG_VERSION")).to_owned(),
                append: String::new(),
                config_sha256: None,
            },
            Self::Linux { image, append } => Kernel {
                name,
                sha256: image.sha256.clone(),
                version: image.version.clone(),
                append: append.clone(),
                config_sha256: image.config_sha256.clone(),
            },
        })
    }

    /// Runs a program on it, as these options of the bench say.
    ///
    /// # Errors
    /// When the guest does not boot, or the program fails.
    pub fn run(
        &self,
        program: &Path,
        run: &Run,
        machine: &Machine,
        args: &BenchArgs,
        children: &Children,
    ) -> anyhow::Result<Vec<Record>> {
        let limit = args.timeout.as_secs_f64().to_string();
        let mut options = vec!["--timeout", &limit];
        if args.cold && matches!(self, Self::Linux { .. }) {
            options.push("--cold");
        }
        records::parse(&self.itself(program, run, machine, &options, children)?)
    }

    /// The QEMU line of such a run.
    ///
    /// # Errors
    /// When it cannot be said.
    pub fn line(
        &self,
        program: &Path,
        run: &Run,
        machine: &Machine,
        children: &Children,
    ) -> anyhow::Result<String> {
        self.itself(program, run, machine, &["--dry-run"], children)
    }

    /// Runs this command itself: what is measured is what its users run.
    fn itself(
        &self,
        program: &Path,
        run: &Run,
        machine: &Machine,
        options: &[&str],
        children: &Children,
    ) -> anyhow::Result<String> {
        let mut command = launch::command(Signal::TERM);
        command
            .args(["/proc/self/exe", "run"])
            .args(["--memory", &machine.memory.to_string()])
            .args(["--cpus", &machine.cpus.to_string()])
            .args(options);
        if run.nodes > 1 {
            command.args(["--numa", &run.nodes.to_string()]);
        }
        if !run.swap.is_empty() {
            command.args(["--swap", run.swap]);
        }
        match self {
            Self::Memwright { policies } if policies.is_empty() => {}
            Self::Memwright { policies } => drop(command.args(["--policy", policies])),
            // The program itself measures, and this command compares.
            Self::Linux { image, append } => {
                let options = ["--no-count", "--no-verify", "--kernel"];
                command.args(options).arg(&image.path);
                if !append.is_empty() {
                    command.args(["--append", append]);
                }
            }
        }
        command
            .arg(program)
            .args(run.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = children
            .output(&mut command)
            .map_err(|failure| anyhow!("{failure}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = said.lines().take(20).collect();
            bail!("the run failed: {}", lines.join("\n  "));
        }
        String::from_utf8(output.stdout).context("the program printed no text")
    }
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
        let old = Column::of_image(&format!("old={}", image.display())).unwrap();
        assert_eq!(old.with("audit=0").title(), "old audit=0");
        assert_eq!(old.with("audit=0").kernel().unwrap().append, "audit=0");
        std::fs::write(&image, "text").unwrap();
        let error = Column::of_image(&image.display().to_string()).unwrap_err();
        assert!(error.to_string().contains("not a Linux kernel image"));
        assert!(Column::of_image("x=/no/such/image").is_err());
    }
}
