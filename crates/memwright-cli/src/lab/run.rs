//! Runs a plan, and returns its document.

use memwright_linux_abi::channel::Outcome;

use crate::lab::input::Input;
use crate::lab::laboratory::Laboratory;
use crate::lab::own_run;
use crate::memwright::run::Run;
use crate::model::failure::Failure;
use crate::model::image::Image;
use crate::model::plan::Plan;
use crate::model::saved::Saved;
use crate::qemu::runs::Runs;

/// A plan that is ready to run.
pub enum Ready<'a> {
    /// A run on Memwright's kernel, which reports its own counts.
    Own(Box<Run<'a>>, &'a Input),
    /// A run on a kernel image, with counts measured by QEMU.
    Image(Box<Laboratory<'a>>, &'a Image),
}

/// The result of a run.
pub struct Answer {
    /// The document with the counts.
    pub document: Saved,
    /// How the program ended.
    pub outcome: Outcome,
    /// The program's standard output.
    pub output: Vec<u8>,
    /// The program's standard error.
    pub errors: Vec<u8>,
}

impl<'a> Ready<'a> {
    /// Finds the program and its dependencies, and prepares the run. A `dry_run` packs nothing unless `--keep` is set.
    ///
    /// # Errors
    /// If the program does not exist or cannot be executed, or if a required tool is missing.
    pub fn open(plan: &'a Plan, input: &'a Input, dry_run: bool) -> Result<Self, Failure> {
        Ok(match plan {
            Plan::Own(plan) => Self::Own(Box::new(Run::open(plan)?), input),
            Plan::Image(plan, image) => {
                let laboratory = Laboratory::open(plan, input, image.system, dry_run)?;
                Self::Image(Box::new(laboratory), image)
            }
        })
    }

    /// Returns the QEMU command line, quoted for a shell.
    ///
    /// # Errors
    /// If the command line cannot be determined, for example because QEMU is missing.
    pub fn line(&self) -> anyhow::Result<String> {
        match self {
            Self::Own(run, _) => run.line(),
            Self::Image(laboratory, image) => Ok(laboratory.line(image)),
        }
    }

    /// Runs the plan and captures the program's output.
    ///
    /// # Errors
    /// If a guest gives no result.
    pub fn run(&self, runs: &Runs) -> Result<Answer, Failure> {
        match self {
            Self::Own(run, input) => own(run, input, runs),
            Self::Image(laboratory, image) => {
                let measured = laboratory.measure(image, runs)?;
                Ok(Answer {
                    document: Saved::Kernel(Box::new(measured.document)),
                    outcome: measured.said.outcome,
                    output: measured.said.output,
                    errors: measured.said.errors,
                })
            }
        }
    }
}

fn own(run: &Run<'_>, input: &Input, runs: &Runs) -> Result<Answer, Failure> {
    let (finished, (outcome, _)) = own_run::run(run, input, runs)?;
    Ok(Answer {
        document: Saved::Memwright(Box::new(finished.document)),
        outcome,
        output: finished.report.output,
        errors: finished.report.errors,
    })
}
