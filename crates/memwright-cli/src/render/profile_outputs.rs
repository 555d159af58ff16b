//! The additional outputs of profiles: files for other tools.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::host::output::write_fully;
use crate::host::taken::Taken;
use crate::model::failure::Failure;
use crate::model::faults::Stacks;
use crate::model::profile::Profile;
use crate::render::{callgrind, flamegraph, folded, pprof};

/// The unit of the counts of profiles.
const INSTRUCTIONS: &str = "instructions";

/// The output files of profiles.
#[derive(Debug, Clone, Args)]
pub struct ProfileFormats {
    /// With --functions or --faults-by: write folded stacks, one call chain per line; compare writes the counts of the
    /// first and the last kernel.
    #[arg(long, value_name = "PATH", requires = "profiled")]
    pub folded: Option<PathBuf>,

    /// With --functions or --faults-by: write a flame graph (SVG); compare writes a differential one, of the last
    /// kernel against the first.
    #[arg(long, value_name = "PATH", requires = "profiled")]
    pub flamegraph: Option<PathBuf>,

    /// With --functions: write a profile for callgrind_annotate and KCachegrind.
    #[arg(long, value_name = "PATH", requires = "functions")]
    pub callgrind: Option<PathBuf>,

    /// With --functions: write a profile for `go tool pprof`.
    #[arg(long, value_name = "PATH", requires = "functions")]
    pub pprof: Option<PathBuf>,
}

/// The output files, which are opened before a program runs.
#[derive(Debug)]
pub struct ProfileOutputs {
    folded: Option<File>,
    flamegraph: Option<File>,
    callgrind: Option<File>,
    pprof: Option<File>,
}

impl ProfileOutputs {
    /// Opens the files.
    ///
    /// # Errors
    /// If a file cannot be written, or if the command also uses it for another purpose.
    pub fn open(formats: &ProfileFormats, taken: &mut Taken) -> Result<Self, Failure> {
        let mut open = |option: &str, path: Option<&Path>| {
            let file = path.map(|path| taken.create(&format!("the file of {option}"), path));
            file.transpose().map_err(Failure::Usage)
        };
        Ok(Self {
            folded: open("--folded", formats.folded.as_deref())?,
            flamegraph: open("--flamegraph", formats.flamegraph.as_deref())?,
            callgrind: open("--callgrind", formats.callgrind.as_deref())?,
            pprof: open("--pprof", formats.pprof.as_deref())?,
        })
    }

    /// Writes one profile. `kernel` is the name of its kernel, and `command` the command that ran.
    ///
    /// # Errors
    /// I/O errors of writing, and an error for a flame graph of a profile without instructions.
    pub fn write(&self, profile: &Profile, kernel: &str, command: &str) -> anyhow::Result<()> {
        let lines = folded::lines(profile);
        put(self.folded.as_ref(), || Ok(text_of(&lines)))?;
        put(self.flamegraph.as_ref(), || {
            flamegraph::svg(
                &lines,
                &format!("Kernel instructions, {kernel}"),
                command,
                INSTRUCTIONS,
            )
        })?;
        put(self.callgrind.as_ref(), || {
            Ok(callgrind::text(profile, command).into_bytes())
        })?;
        put(self.pprof.as_ref(), || Ok(pprof::bytes(profile)))
    }

    /// Writes page faults by stack. `kernel` is the name of the kernel, and `command` the command that ran.
    ///
    /// # Errors
    /// I/O errors of writing, and an error for a flame graph without faults.
    pub fn write_faults(&self, stacks: &Stacks, kernel: &str, command: &str) -> anyhow::Result<()> {
        let lines = folded::lines_of_faults(stacks);
        put(self.folded.as_ref(), || Ok(text_of(&lines)))?;
        put(self.flamegraph.as_ref(), || {
            let title = format!("Page faults, {kernel}");
            flamegraph::svg(&lines, &title, command, "faults")
        })
    }

    /// Writes the comparison of the page faults of two kernels. `kernels` contains their names.
    ///
    /// # Errors
    /// The errors of [`Self::write_faults`].
    pub fn write_two_faults(
        &self,
        stacks: [&Stacks; 2],
        kernels: [&str; 2],
        command: &str,
    ) -> anyhow::Result<()> {
        let lines = folded::lines_of_two_faults(stacks);
        put(self.folded.as_ref(), || Ok(text_of(&lines)))?;
        put(self.flamegraph.as_ref(), || {
            let title = format!("Page faults, {} against {}", kernels[1], kernels[0]);
            flamegraph::svg(&lines, &title, command, "faults")
        })
    }

    /// Writes the comparison of two kernels. `kernels` contains their names.
    ///
    /// # Errors
    /// The errors of [`Self::write`].
    pub fn write_two(
        &self,
        [before, after]: [&Profile; 2],
        kernels: [&str; 2],
        command: &str,
    ) -> anyhow::Result<()> {
        let lines = folded::lines_of_two(before, after);
        put(self.folded.as_ref(), || Ok(text_of(&lines)))?;
        put(self.flamegraph.as_ref(), || {
            let title = format!("Kernel instructions, {} against {}", kernels[1], kernels[0]);
            flamegraph::svg(&lines, &title, command, INSTRUCTIONS)
        })
    }
}

fn text_of(lines: &[String]) -> Vec<u8> {
    let lines = lines.iter().map(|line| format!("{line}\n"));
    lines.collect::<String>().into_bytes()
}

fn put(file: Option<&File>, make: impl FnOnce() -> anyhow::Result<Vec<u8>>) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    write_fully(file.as_fd(), &make()?).context("cannot write a profile")
}
