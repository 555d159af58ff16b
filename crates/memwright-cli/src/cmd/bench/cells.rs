//! Runs the cells of a bench, or the part of them that belongs to this worker, and keeps each result in a folder.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use crate::cmd::args::BenchArgs;
use crate::cmd::results::{self, merge};
use crate::host::host_file::{self, LARGEST_IMAGE};
use crate::host::output::say;
use crate::host::results::{Listing, Results};
use crate::memwright::kernel;
use crate::model::cell_plan::{Cell, CellPlan, KIND, SCHEMA, Tool, Work};
use crate::model::cell_result::{CellResult, Found};
use crate::model::failure::{Failure, TIMEOUT};
use crate::model::hash::hexadecimal_hash;
use crate::model::shard::Shard;
use crate::qemu::runs::Runs;
use crate::render::outputs::Outputs;

/// The running executable.
const SELF: &str = "/proc/self/exe";

/// Where a bench keeps the results of its cells, and which of them it runs.
pub struct Job {
    results: PathBuf,
    /// The part of the cells that this worker runs; `None` if the bench runs every cell and prints the results.
    shard: Option<Shard>,
}

/// Runs a cell.
pub type Measure<'a> = dyn FnMut(&Cell, &Runs) -> Result<Found, Failure> + 'a;

impl Job {
    /// Returns the job that the options describe; `None` if results are not kept.
    ///
    /// # Errors
    /// If the environment does not name the part of this worker.
    pub fn of(args: &BenchArgs) -> Result<Option<Self>, Failure> {
        let Some(results) = &args.results else {
            return Ok(None);
        };
        let variable = |name: &str| {
            let value = env::var_os(name)?;
            Some(value.to_string_lossy().into_owned())
        };
        let shard = args.shard.map(|choice| choice.shard(variable));
        Ok(Some(Self {
            results: results.clone(),
            shard: shard
                .transpose()
                .map_err(|why| Failure::Usage(anyhow!(why)))?,
        }))
    }

    /// Runs the cells of this job that have no result yet. If the job is the complete bench, prints its results. A
    /// guest that gives no result does not end the job: the result of its cell is missing. Returns the exit code.
    ///
    /// # Errors
    /// If the folder cannot be used, or if a cell has no result.
    pub fn run(
        &self,
        args: &BenchArgs,
        work: Work,
        outputs: &Outputs,
        measure: &mut Measure<'_>,
    ) -> Result<u8, Failure> {
        let plan = plan(args, work)?;
        plan.check_size().map_err(Failure::Usage)?;
        let (folder, listing) = Results::create(&self.results).map_err(Failure::Usage)?;
        folder.write_plan(&plan.text().context("cannot write JSON")?)?;
        let runs = Runs::start(args.timeout).context("cannot receive signals")?;
        let mut worker = Worker {
            folder: &folder,
            listing: &listing,
            runs,
            begun: BTreeSet::new(),
            tally: Tally::default(),
        };
        let cells = plan.cells();
        let titles: Vec<&str> = cells.iter().map(|cell| &*cell.title).collect();
        for index in self.shard.unwrap_or(Shard::WHOLE).share(&titles) {
            worker.work_on(&cells[index], args, measure)?;
        }
        let tally = &worker.tally;
        if let Some(shard) = self.shard {
            say(&format!(
                "shard {shard}: {} of {} runs: {} made, {} there before, {} without a result",
                tally.made + tally.kept + tally.failed,
                cells.len(),
                tally.made,
                tally.kept,
                tally.failed
            ));
        }
        if tally.failed > 0 {
            let failed = tally.failed;
            return Err(Failure::Guest(anyhow!("{failed} runs gave no result")));
        }
        match self.shard {
            Some(_) => Ok(0),
            None => {
                let folders = [Results::open(&self.results)?];
                results::conclude(&plan, &folders, &args.shown, outputs)
            }
        }
    }
}

/// The numbers of cells that were run, that had a result already, and that gave no result.
#[derive(Debug, Default)]
struct Tally {
    made: usize,
    kept: usize,
    failed: usize,
}

/// A worker that runs cells.
struct Worker<'a> {
    folder: &'a Results,
    /// The files that the folder had when the worker began.
    listing: &'a Listing,
    runs: Runs,
    /// The addresses of the cells that this worker has begun. Two columns with the same kernel and options have cells
    /// with the same addresses, which run once.
    begun: BTreeSet<String>,
    tally: Tally,
}

impl Worker<'_> {
    /// Runs a cell, unless it has a result.
    fn work_on(
        &mut self,
        cell: &Cell,
        args: &BenchArgs,
        measure: &mut Measure<'_>,
    ) -> Result<(), Failure> {
        if !self.begun.insert(cell.address.clone()) || self.has(cell) {
            self.tally.kept += 1;
            return Ok(());
        }
        self.runs.renew();
        let failure = match measure(cell, &self.runs) {
            Ok(found) => {
                let result = CellResult::of(&cell.address, found);
                let text = serde_json::to_vec(&result).context("cannot write JSON")?;
                self.folder.write_result(&cell.address, &text)?;
                self.tally.made += 1;
                return Ok(());
            }
            Err(failure) => failure,
        };
        match &failure {
            Failure::Guest(_) => {}
            Failure::Ended(TIMEOUT, _) => {
                // After the time limit, `runs` ends every guest that is added to it, so the next cells need a new
                // `Runs`.
                self.runs = Runs::start(args.timeout).context("cannot receive signals")?;
            }
            Failure::Ended(..)
            | Failure::NotFound(_)
            | Failure::NotExecutable(_)
            | Failure::Usage(_)
            | Failure::NoImage(_)
            | Failure::Environment(_)
            | Failure::Skipped(_)
            | Failure::Broken(_) => return Err(failure),
        }
        say(&format!("{}: {failure}", cell.title));
        self.tally.failed += 1;
        Ok(())
    }

    /// Returns whether the folder has a complete result of a cell. Prints a message for each result that was cut short
    /// or is damaged.
    fn has(&self, cell: &Cell) -> bool {
        let hashes = self.listing.results.get(&cell.address);
        hashes.into_iter().flatten().any(|hash| {
            let found = merge::of_cell(self.folder, &cell.address, hash);
            if let Err(error) = &found {
                say(&format!("cut short or damaged, and not counted: {error:#}"));
            }
            found.is_ok()
        })
    }
}

/// Returns the plan of a bench.
fn plan(args: &BenchArgs, work: Work) -> anyhow::Result<CellPlan> {
    let tool = host_file::read(Path::new(SELF), LARGEST_IMAGE).context(SELF)?;
    // If there is no image, the plan contains the hash of an empty one. A run that needs the image fails later.
    let kernel = kernel::image().unwrap_or_default();
    Ok(CellPlan {
        schema: SCHEMA,
        kind: KIND.to_owned(),
        tool: Tool {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sha256: hexadecimal_hash(&tool),
            kernel_sha256: hexadecimal_hash(&kernel),
        },
        verify: !args.no_verify,
        all: args.shown.all,
        rows: args.shown.rows.clone(),
        work,
    })
}
