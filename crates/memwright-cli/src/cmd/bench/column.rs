//! The columns of a table: Memwright's kernel with its policies, and Linux kernels.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail};
use memwright_linux_abi::channel::Outcome;

use super::experiments::Run;
use crate::lab::column::Column as Named;
use crate::lab::run::Ready;
use crate::memwright::kernel;
use crate::model::bench::Kernel;
use crate::model::failure::Failure;
use crate::model::hash::hexadecimal_hash;
use crate::model::image::{Image, System};
use crate::model::nodes::Nodes;
use crate::model::plan::{Care, ImagePlan, Measure, OwnPlan, Plan, Setup};
use crate::model::records::{self, Record};
use crate::model::size::parse_swap;
use crate::model::words;
use crate::qemu::runs::Runs;

/// The folder of an experiment's program in its guest. The path is in the program's memory and in /proc, so its length
/// changes the counts. A path in this machine's cache would make the counts differ between users.
const PLACE: &str = "/tmp/experiment";

/// A kernel on which the experiments run.
#[derive(Debug, Clone)]
pub enum Column {
    /// Memwright's kernel, with these policies.
    Memwright {
        /// The policies in the syntax of `--policy`; may be empty.
        policies: String,
    },
    /// A Linux kernel image.
    Linux {
        /// The kernel image, and its name in tables.
        image: Image,
        /// Words that are appended to the kernel's command line; may be empty.
        append: String,
    },
}

impl Column {
    /// Parses `[NAME=]IMAGE[,append=WORDS]...`, where IMAGE is a path or a name of `memwright kernels`.
    ///
    /// # Errors
    /// If there is no such image, if it is not an image of Linux or Memwright's kernel, or if the column has a key that
    /// is not `append`. Other keys are not accepted, because each experiment determines its machine itself.
    pub fn of_image(text: &str) -> anyhow::Result<Self> {
        let named = Named::open(text)?;
        if named.image.system == System::Alone {
            bail!("--kernel {text}: a kernel that is not Linux runs no experiment");
        }
        let append = named.appended();
        Ok(Self::Linux {
            append: append.ok_or_else(|| {
                anyhow!("--kernel {text}: an experiment chooses its machine: a column of bench has append alone")
            })?,
            image: named.image,
        })
    }

    /// Returns this kernel with words added to its command line. Memwright's kernel has no command line and is returned
    /// unchanged.
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

    /// Returns the heading of the column.
    pub fn title(&self) -> String {
        match self {
            Self::Memwright { policies } if policies.is_empty() => "memwright".to_owned(),
            Self::Memwright { policies } => format!("memwright {policies}"),
            Self::Linux { image, .. } => image.name.clone(),
        }
    }

    /// Returns the policies in the syntax of `--policy`; empty for a Linux kernel.
    pub fn policies(&self) -> String {
        match self {
            Self::Memwright { policies } => policies.clone(),
            Self::Linux { .. } => String::new(),
        }
    }

    /// Returns the kernel's entry in the JSON document: its name, hash and version.
    ///
    /// # Errors
    /// I/O errors of reading the image.
    pub fn kernel(&self) -> anyhow::Result<Kernel> {
        let name = self.title();
        Ok(match self {
            Self::Memwright { .. } => Kernel {
                name,
                sha256: hexadecimal_hash(&kernel::image()?),
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

    /// Returns the plan of a program's run on this kernel. The program measures itself, so QEMU counts nothing.
    ///
    /// # Errors
    /// If the run's `swap` is not valid as a value of `--swap`.
    pub fn plan(
        &self,
        program: &Path,
        run: &Run,
        limit: Duration,
        cold: bool,
    ) -> anyhow::Result<Plan> {
        let swap = (!run.swap.is_empty()).then(|| parse_swap(run.swap));
        let swap = swap
            .transpose()
            .map_err(|why| anyhow!("{}: {why}", run.swap))?;
        let words = run.arguments.iter().map(OsString::from);
        let place = Path::new(PLACE).join(program.file_name().unwrap_or_default());
        let mut file = program.as_os_str().to_owned();
        file.push(":");
        file.push(&place);
        let mut setup = Setup {
            memory: run.memory,
            cpus: run.cpus,
            swap: swap.into_iter().collect(),
            numa: Nodes::even(run.nodes),
            files: vec![file],
            ..Setup::of([place.into()].into_iter().chain(words).collect())
        };
        let care = Care {
            timeout: Some(limit),
            keep: None,
            verbose: false,
        };
        Ok(match self {
            Self::Memwright { policies } => {
                let policies = policies.split(',').filter(|one| !one.is_empty());
                setup.policies = policies.map(str::to_owned).collect();
                Plan::Own(OwnPlan::new(setup, care))
            }
            Self::Linux { image, append } => {
                setup.append = [append]
                    .into_iter()
                    .filter(|one| !one.is_empty())
                    .cloned()
                    .collect();
                let plan = ImagePlan {
                    setup,
                    care,
                    measure: Measure::Nothing,
                    verify: false,
                    cold,
                };
                Plan::Image(plan, image.clone())
            }
        })
    }
}

/// Runs a program that measures itself, and returns the records that it printed.
///
/// # Errors
/// If the guest does not boot, or if the program's output contains no valid records. Also if the program fails; the
/// error then includes what the program wrote to standard error.
pub fn records(ready: &Ready<'_>, runs: &Runs) -> Result<Vec<Record>, Failure> {
    let answer = ready.run(runs)?;
    let output = || {
        if answer.outcome != Outcome::Exited(0) {
            let said = String::from_utf8_lossy(&answer.errors);
            let ending = words::ending(answer.document.behaviour().outcome);
            let lines: Vec<&str> = said.lines().take(20).collect();
            bail!("the program {}: {}", ending, lines.join("\n  "));
        }
        records::parse(std::str::from_utf8(&answer.output)?)
    };
    output().map_err(Failure::Guest)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cmd::bench::experiments::EXPERIMENTS;
    use crate::guestfs::initrd;
    use crate::guestfs::prepare::{KernelOptions, prepare};
    use crate::model::code::Code;

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

    #[test]
    fn the_guest_does_not_depend_on_where_the_program_is() {
        let folder = tempfile::tempdir().unwrap();
        let run = EXPERIMENTS[0].runs[0];
        let image = Image {
            system: System::Linux,
            name: "k".to_owned(),
            path: "/k".into(),
            sha256: String::new(),
            config_sha256: None,
            version: String::new(),
            code: Code::default(),
        };
        let columns = [
            Column::Memwright {
                policies: String::new(),
            },
            Column::Linux {
                image,
                append: String::new(),
            },
        ];
        for column in columns {
            let archive = |cache: &str| {
                let program = folder.path().join(cache).join("program");
                fs::create_dir_all(program.parent().unwrap()).unwrap();
                fs::write(&program, "#!/bin/sh\n").unwrap();
                fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
                let plan = column.plan(&program, &run, Duration::from_secs(1), false);
                let setup = match plan.unwrap() {
                    Plan::Own(plan) => plan.setup,
                    Plan::Image(plan, _) => plan.setup,
                };
                let prepared = prepare(&setup, &KernelOptions::default()).unwrap();
                assert_eq!(prepared.program.path, Path::new("/tmp/experiment/program"));
                let place = folder.path().join("archive");
                initrd::write(&place, &prepared.manifest, &prepared.tree).unwrap();
                fs::read(&place).unwrap()
            };
            assert_eq!(archive("a"), archive("another/folder:with/a/longer path"));
        }
    }
}
