//! `memwright bench`: runs experiments, workloads or the user's own program on Memwright and on Linux kernels in the
//! same QEMU, and prints one table for each experiment, workload or program.

mod chosen;
mod column;
mod compile;
mod experiments;
mod own;
mod workloads;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, anyhow};

use self::chosen::Chosen;
use self::column::Column;
pub use self::compile::recipes;
use self::experiments::{Experiment, Run};
use crate::cmd::args::BenchArgs;
use crate::compare::{bench_sheet, growth};
use crate::host::host_file::{self, LARGEST_IMAGE};
use crate::host::progress::Stage;
use crate::host::taken::Taken;
use crate::host::{bounded, output};
use crate::lab::columns;
use crate::lab::input::Input;
use crate::lab::run::Ready;
use crate::model::bench::{Document, KIND, Measured, MeasuredRun, SCHEMA};
use crate::model::failure::{DIFFERENCE, Failure};
use crate::model::hash::hexadecimal_hash;
use crate::model::kernel_run::Qemu;
use crate::model::machine::Machine;
use crate::model::records;
use crate::qemu::runs::Runs;
use crate::qemu::version::{self, Version};
use crate::render;
use crate::render::outputs::Outputs;

/// Runs the selected experiments or workloads, or the user's own program, and prints the results.
///
/// # Errors
/// If the usage is wrong, or if a run gave no figures. The error of a run names the experiment and the column.
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
    if args.shown.all || !args.shown.rows.is_empty() {
        return Err(Failure::Usage(anyhow!(
            "--all and --rows select rows of a workload or of a program, not of an experiment"
        )));
    }
    bench_experiments(args, chosen.experiments)
}

/// Runs experiments and prints their results.
fn bench_experiments(args: &BenchArgs, chosen: Vec<&'static Experiment>) -> Result<u8, Failure> {
    if let Some(label) = experiments::unknown_label(&chosen, &args.labels) {
        return Err(Failure::Usage(anyhow!("no run has the label {label:?}")));
    }
    columns::fetch(&args.kernels, args.dry_run)?;
    let columns = columns(args).map_err(Failure::Usage)?;
    let has_runs = |one: &&Experiment| !one.runs_of(&args.labels).is_empty();
    // All programs are built before the first run, so that one that does not build ends the command at once.
    let chosen = chosen.into_iter().filter(has_runs);
    let programs = chosen.map(|one| anyhow::Ok((one, compile::experiment(one).obtain()?)));
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
    let kernels = columns.iter().map(Column::kernel);
    let mut document = Document {
        schema: SCHEMA,
        kind: KIND.to_owned(),
        columns: kernels.collect::<anyhow::Result<_>>()?,
        experiments: Vec::new(),
    };
    for run in programs
        .iter()
        .flat_map(|(one, _)| one.runs_of(&args.labels))
    {
        // A QEMU that must be downloaded is downloaded now, while signals still end the command at once.
        qemu(run, args)?;
    }
    let runs = Runs::start(args.timeout).context("cannot receive signals")?;
    let mut sheets = Vec::new();
    for (experiment, program) in &programs {
        let measured = measure(experiment, program, &columns, args, &runs)?;
        let mut sheet = bench_sheet::sheet(&measured, &document.columns);
        if !outputs.on_output() {
            print(&render::text(&sheet, true))?;
            let marks = measured.runs.iter().map(|run| growth::marks(&run.records));
            for mark in marks.flatten() {
                print(&format!("  {mark}\n"))?;
            }
        }
        sheet
            .notes
            .extend(bench_sheet::origins(&measured, &document.columns));
        sheets.push(sheet);
        document.experiments.push(measured);
    }
    outputs.write("memwright bench", &sheets, true, &document)?;
    Ok(if document.differs() { DIFFERENCE } else { 0 })
}

/// Prints the QEMU command line of every run.
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

/// Runs one experiment in every column.
fn measure(
    experiment: &Experiment,
    program: &Path,
    columns: &[Column],
    args: &BenchArgs,
    runs: &Runs,
) -> Result<Measured, Failure> {
    let mut measured = Vec::new();
    for run in experiment.runs_of(&args.labels) {
        measured.push(measure_run(experiment, program, run, columns, args, runs)?);
    }
    Ok(Measured {
        experiment: experiment.name.to_owned(),
        question: experiment.question.to_owned(),
        program_sha256: hash(program)?,
        runs: measured,
    })
}

/// Makes one run in every column. Unless `--no-verify` is set, each column runs it twice, in parallel.
fn measure_run(
    experiment: &Experiment,
    program: &Path,
    run: &Run,
    columns: &[Column],
    args: &BenchArgs,
    runs: &Runs,
) -> Result<MeasuredRun, Failure> {
    let (mut records, mut differs) = (Vec::new(), Vec::new());
    for column in columns {
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
        if let Some(again) = again {
            let lines = records::differences(&found, &again?);
            differs.extend(lines.into_iter().map(|line| format!("{title}: {line}")));
        }
        records.push((title, found));
    }
    let (qemu, version) = qemu(run, args)?;
    Ok(MeasuredRun {
        label: run.label.to_owned(),
        arguments: run
            .arguments
            .iter()
            .map(|word| (*word).to_owned())
            .collect(),
        cpus: run.cpus,
        nodes: run.nodes,
        memory: run.memory.bytes(),
        swap: run.swap.to_owned(),
        qemu: Qemu {
            version: version.to_string(),
            sha256: version::hash(&qemu),
        },
        repeats: (!args.no_verify).then_some(differs.is_empty()),
        differs,
        records,
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
