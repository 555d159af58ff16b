//! `memwright bench`: runs experiments, workloads or the user's own program on Memwright and on Linux kernels in the
//! same QEMU, and prints one table for each experiment, workload or program.

mod cells;
mod chosen;
mod column;
mod compile;
mod experiments;
mod own;
mod workloads;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, anyhow};

use self::cells::Job;
use self::chosen::Chosen;
use self::column::Column;
pub use self::compile::recipes;
use self::experiments::{Experiment, Run};
use crate::cmd::args::BenchArgs;
use crate::cmd::results::present;
use crate::host::host_file::{self, LARGEST_IMAGE};
use crate::host::progress::Stage;
use crate::host::taken::Taken;
use crate::host::{bounded, output};
use crate::lab::columns;
use crate::lab::input::Input;
use crate::lab::run::Ready;
use crate::model::bench::{Document, Figures, KIND, Measured, MeasuredRun, SCHEMA};
use crate::model::cell_plan::{Cell, Experiments, Work};
use crate::model::cell_result::Found;
use crate::model::failure::Failure;
use crate::model::hash::hexadecimal_hash;
use crate::model::kernel_run::Qemu;
use crate::model::machine::Machine;
use crate::model::records;
use crate::qemu::runs::Runs;
use crate::qemu::version::{self, Version};
use crate::render::outputs::Outputs;

/// Runs the selected experiments or workloads, or the user's own program, and prints the results. Returns the exit
/// code.
///
/// # Errors
/// If the usage is wrong, if a tool is missing, or if a run gave no figures. The error of a run names the experiment
/// and the column.
pub fn bench(args: &BenchArgs) -> Result<u8, Failure> {
    if !args.program.is_empty() {
        return own::bench(args);
    }
    let chosen = match args.names.is_empty() {
        true => Chosen::all(),
        false => Chosen::of(&args.names).map_err(|unknown| Failure::Usage(unknown.into()))?,
    };
    if args.list {
        print(&chosen.list())?;
        return Ok(0);
    }
    if !args.names.is_empty() && !chosen.workloads.is_empty() {
        check_workloads(args, &chosen).map_err(Failure::Usage)?;
        return own::bench_workloads(args, &chosen.workloads);
    }
    present::refuse_rows(&args.shown)?;
    bench_experiments(args, &chosen.experiments)
}

/// Runs experiments and prints their results. Returns the exit code.
fn bench_experiments(args: &BenchArgs, chosen: &[&'static Experiment]) -> Result<u8, Failure> {
    if let Some(label) = experiments::unknown_label(chosen, &args.labels) {
        return Err(Failure::Usage(anyhow!("no run has the label {label:?}")));
    }
    columns::fetch(&args.kernels, args.dry_run)?;
    let columns = columns(args).map_err(Failure::Usage)?;
    let has_runs = |one: &&&'static Experiment| !one.runs_of(&args.labels).is_empty();
    // All programs are built before the first run, so that a program that does not build ends the command at once.
    let chosen = chosen.iter().filter(has_runs);
    let programs = chosen.map(|one| anyhow::Ok((*one, compile::experiment(one).obtain()?)));
    let programs: anyhow::Result<Vec<(&'static Experiment, PathBuf)>> = programs.collect();
    let programs = programs.map_err(Failure::Environment)?;
    if args.dry_run {
        return lines(&programs, &columns, args);
    }
    let mut taken = Taken::default();
    for column in &columns {
        if let Column::Linux { image, .. } = column {
            taken.read_path("a kernel image", &image.path);
        }
    }
    let outputs = Outputs::open(args.json.as_deref(), &args.formats, &mut taken)?;
    let job = Job::of(args)?;
    let selection = Selection::new(programs, args);
    let mut document = selection.document(&columns)?;
    if let Some(job) = job {
        let policies = columns.iter().map(Column::policies).collect();
        let work = Work::Experiments(Experiments { policies, document });
        let mut measure = |cell: &Cell, runs: &Runs| {
            let run = &selection.runs[cell.run];
            measure_run(run, &columns[cell.column], args, runs).map(Found::Figures)
        };
        return job.run(args, work, &outputs, &mut measure);
    }
    let runs = Runs::start(args.timeout).context("cannot receive signals")?;
    let mut sheets = Vec::new();
    let mut left = selection.runs.iter();
    for measured in &mut document.experiments {
        for (into, run) in measured.runs.iter_mut().zip(left.by_ref()) {
            for column in &columns {
                into.add(&column.title(), measure_run(run, column, args, &runs)?);
            }
        }
        sheets.push(present::experiment(measured, &document.columns, &outputs)?);
    }
    present::experiments(&document, &sheets, &outputs)
}

/// Prints the QEMU command line of every run. Returns the exit code.
fn lines(
    programs: &[(&'static Experiment, PathBuf)],
    columns: &[Column],
    args: &BenchArgs,
) -> Result<u8, Failure> {
    for (experiment, program) in programs {
        for run in experiment.runs_of(&args.labels) {
            for column in columns {
                let plan = column.plan(program, run, args.timeout, args.cold)?;
                let line = Ready::open(&plan, &Input::none(), true)?.line()?;
                print(&format!("{line}\n"))?;
            }
        }
    }
    Ok(0)
}

/// Returns the columns: Memwright's kernel with its default policies and with each `--policy`, and each kernel image as
/// given and with each `--append`.
fn columns(args: &BenchArgs) -> anyhow::Result<Vec<Column>> {
    let policies = std::iter::once(String::new()).chain(args.policies.iter().cloned());
    let mut columns: Vec<Column> = policies
        .map(|policies| Column::Memwright { policies })
        .collect();
    for text in &args.kernels {
        let column = Column::of_image(text)?;
        let variants = args.append.iter().map(|words| column.with(words));
        let variants: Vec<Column> = variants.collect();
        columns.push(column);
        columns.extend(variants);
    }
    for (index, column) in columns.iter().enumerate() {
        let title = column.title();
        if columns[..index].iter().any(|other| other.title() == title) {
            return Err(match column {
                Column::Memwright { policies } => anyhow!("--policy {policies} is given twice"),
                Column::Linux { .. } => {
                    anyhow!("two columns are called {title}; name one: --kernel NAME=IMAGE")
                }
            });
        }
    }
    Ok(columns)
}

/// The runs of the selected experiments.
struct Selection<'a> {
    args: &'a BenchArgs,
    experiments: Vec<(&'static Experiment, PathBuf)>,
    runs: Vec<Selected>,
}

/// A run of an experiment's program.
struct Selected {
    experiment: &'static Experiment,
    program: PathBuf,
    run: &'static Run,
}

impl<'a> Selection<'a> {
    /// Returns the selected runs of the experiments. Each experiment is given with the path of its built program.
    fn new(experiments: Vec<(&'static Experiment, PathBuf)>, args: &'a BenchArgs) -> Self {
        let mut runs = Vec::new();
        for (experiment, program) in &experiments {
            let of_it = experiment.runs_of(&args.labels).into_iter();
            runs.extend(of_it.map(|run| Selected {
                experiment,
                program: program.clone(),
                run,
            }));
        }
        Self {
            args,
            experiments,
            runs,
        }
    }

    /// Returns the document of the bench without results. A QEMU that must be downloaded is downloaded now, while
    /// signals still end the command at once.
    fn document(&self, columns: &[Column]) -> Result<Document, Failure> {
        let kernels = columns.iter().map(Column::kernel);
        let mut hashes: BTreeMap<OsString, String> = BTreeMap::new();
        let mut experiments = Vec::new();
        for (experiment, program) in &self.experiments {
            let mut measured = Measured {
                experiment: experiment.name.to_owned(),
                question: experiment.question.to_owned(),
                program_sha256: hash(program)?,
                runs: Vec::new(),
            };
            for run in experiment.runs_of(&self.args.labels) {
                let (qemu, version) = qemu(run, self.args)?;
                let sha256 = hashes.entry(qemu).or_insert_with_key(version::hash);
                measured.runs.push(without_results(
                    run,
                    Qemu {
                        version: version.to_string(),
                        sha256: sha256.clone(),
                    },
                ));
            }
            experiments.push(measured);
        }
        Ok(Document {
            schema: SCHEMA,
            kind: KIND.to_owned(),
            columns: kernels.collect::<anyhow::Result<_>>()?,
            experiments,
        })
    }
}

/// Returns the entry of a run in the document, without results.
fn without_results(run: &Run, qemu: Qemu) -> MeasuredRun {
    let words = run.arguments.iter().map(|word| (*word).to_owned());
    MeasuredRun {
        label: run.label.to_owned(),
        arguments: words.collect(),
        cpus: run.cpus,
        nodes: run.nodes,
        memory: run.memory.bytes(),
        swap: run.swap.to_owned(),
        qemu,
        repeats: None,
        differs: Vec::new(),
        records: Vec::new(),
    }
}

/// Makes one run in one column. Unless `--no-verify` is set, the column runs it twice, in parallel.
fn measure_run(
    selected: &Selected,
    column: &Column,
    args: &BenchArgs,
    runs: &Runs,
) -> Result<Figures, Failure> {
    let Selected {
        experiment,
        program,
        run,
    } = selected;
    let title = column.title();
    let stage = format!("{} on {title} {}", experiment.name, run.label);
    let stage = Stage::begin(stage.trim_end());
    let named = |failure: Failure| match failure {
        Failure::Guest(error) => {
            Failure::Guest(error.context(format!("{} on {title}", experiment.name)))
        }
        other => other,
    };
    let plan = column.plan(program, run, args.timeout, args.cold)?;
    let input = Input::none();
    let ready = Ready::open(&plan, &input, false)?;
    runs.renew();
    let once = || column::records(&ready, runs).map_err(named);
    let (found, again) = thread::scope(|scope| {
        let second = (!args.no_verify).then(|| scope.spawn(once));
        let first = once();
        let second = second.map(|thread| {
            let panicked = |_| Err(anyhow!("a run panicked").into());
            thread.join().unwrap_or_else(panicked)
        });
        (first, second)
    });
    let found = found?;
    stage.done();
    let again = again.transpose()?;
    Ok(Figures {
        differs: again.map(|again| records::differences(&found, &again)),
        records: found,
    })
}

/// Returns the QEMU for a run, downloading it if necessary, and its version.
fn qemu(run: &Run, args: &BenchArgs) -> Result<(OsString, Version), Failure> {
    let machine = Machine::of_bench(run.cpus, run.nodes, run.memory);
    let patience = bounded::patience(Some(args.timeout));
    let qemu = version::program(&machine, patience).map_err(Failure::Environment)?;
    let version = version::check_for(&qemu, &machine, patience).map_err(Failure::Environment)?;
    Ok((qemu, version))
}

/// Returns the SHA-256 of a file.
fn hash(path: &Path) -> anyhow::Result<String> {
    let bytes = host_file::read(path, LARGEST_IMAGE)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hexadecimal_hash(&bytes))
}

/// Returns an error for options that a bench of workloads does not support.
fn check_workloads(args: &BenchArgs, chosen: &Chosen) -> anyhow::Result<()> {
    if let (Some(experiment), Some(workload)) =
        (chosen.experiments.first(), chosen.workloads.first())
    {
        return Err(anyhow!(
            "{} is an experiment and {} a workload: a bench is of one kind",
            experiment.name,
            workload.name
        ));
    }
    match args.labels.first() {
        Some(label) => Err(anyhow!(
            "--run {label}: a workload has one run, without a label"
        )),
        None => Ok(()),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    output::print(text.as_bytes())
}
