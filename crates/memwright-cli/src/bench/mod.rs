//! `memwright bench`: the experiments, on Memwright and on Linux kernels in the same QEMU, one table each.

mod column;
mod compile;
mod document;
mod experiments;
mod linux;
mod records;
mod table;

use std::fs;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, anyhow};

use self::column::Column;
use self::compile::Workshop;
use self::document::{Document, Measured, MeasuredRun};
use self::experiments::Experiment;
use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::qemu::machine::Machine;
use crate::session::{say, write_fully};

/// Runs the experiments that were asked for, and prints what they found.
///
/// # Errors
/// Usage; a run that gave no figures, with its experiment and column.
pub fn bench(args: &BenchArgs) -> Result<u8, Failure> {
    let chosen = experiments::select(&args.experiments).map_err(|line| anyhow!(line))?;
    if args.list {
        return Ok(list(&chosen)?);
    }
    let columns = columns(args)?;
    let json = args.json.as_deref().map(open_json).transpose()?;
    let workshop = Workshop::open()?;
    let mut document = Document::new(&columns)?;
    let on_output = json.as_ref().is_none_or(|target| target.is_some());
    for experiment in chosen {
        let measured = measure(&workshop, experiment, &columns, args)?;
        if on_output {
            print(&table::render(&measured, &columns))?;
        }
        document.experiments.push(measured);
    }
    match json {
        None => {}
        Some(Some(file)) => {
            write_fully(file.as_fd(), document.text()?.as_bytes())
                .context("cannot write the JSON")?;
        }
        Some(None) => print(&document.text()?)?,
    }
    Ok(0)
}

/// Memwright as it is, with each set of policies, and each kernel image.
fn columns(args: &BenchArgs) -> anyhow::Result<Vec<Column>> {
    let policies = std::iter::once(String::new()).chain(args.policies.iter().cloned());
    let mut columns: Vec<Column> = policies
        .map(|policies| Column::Memwright { policies })
        .collect();
    for text in &args.kernels {
        columns.push(Column::of_image(text)?);
    }
    for (index, column) in columns.iter().enumerate() {
        let title = column.title();
        if columns[..index].iter().any(|other| other.title() == title) {
            return Err(anyhow!(
                "two columns are called {title}; name one: --kernel NAME=IMAGE"
            ));
        }
    }
    Ok(columns)
}

/// Runs one experiment in every column.
fn measure(
    workshop: &Workshop,
    experiment: &'static Experiment,
    columns: &[Column],
    args: &BenchArgs,
) -> anyhow::Result<Measured> {
    let program = workshop.experiment(experiment)?;
    let mut runs = Vec::new();
    for run in experiment.runs {
        let machine = Machine::of_bench(run.cpus, run.memory);
        let mut records = Vec::new();
        for column in columns {
            let title = column.title();
            if io::stderr().is_terminal() {
                say(&format!("{} on {title} {}", experiment.name, run.label));
            }
            let found = column
                .run(workshop, &program, run, &machine, args.timeout)
                .with_context(|| format!("{} on {title}", experiment.name))?;
            records.push((title, found));
        }
        runs.push(MeasuredRun {
            label: run.label,
            arguments: run.arguments,
            cpus: run.cpus,
            memory: machine.memory.bytes(),
            records,
        });
    }
    Ok(Measured {
        experiment: experiment.name,
        question: experiment.question,
        program_sha256: document::hash_file(&program)?,
        runs,
    })
}

/// Opens the file before anything runs; `None` is standard output.
fn open_json(path: &Path) -> anyhow::Result<Option<fs::File>> {
    if path == Path::new("-") {
        return Ok(None);
    }
    fs::File::create(path)
        .map(Some)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn list(chosen: &[&Experiment]) -> anyhow::Result<u8> {
    let mut text = String::new();
    for one in chosen {
        text.push_str(&format!("{:20} {}\n", one.name, one.question));
    }
    print(&text)?;
    Ok(0)
}

fn print(text: &str) -> anyhow::Result<()> {
    write_fully(io::stdout().as_fd(), text.as_bytes()).context("cannot write to standard output")
}
