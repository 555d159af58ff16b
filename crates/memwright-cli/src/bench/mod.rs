//! `memwright bench`: the experiments, on Memwright and on Linux kernels in the same QEMU, one table each.

mod column;
mod compile;
mod document;
mod experiments;
mod linux;
mod records;
mod table;

use std::io;
use std::os::fd::AsFd;

use anyhow::{Context, anyhow};

use self::column::Column;
use self::compile::Workshop;
use self::document::{Document, Measured, MeasuredRun};
use self::experiments::Experiment;
use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::lab::output::{Outputs, progress};
use crate::qemu::machine::Machine;
use crate::session::write_fully;
use crate::sheet;

/// Runs the experiments that were asked for, and prints what they found.
///
/// # Errors
/// Usage; a run that gave no figures, with its experiment and column.
pub fn bench(args: &BenchArgs) -> Result<u8, Failure> {
    let chosen =
        experiments::select(&args.experiments).map_err(|line| Failure::Usage(anyhow!(line)))?;
    if args.list {
        return Ok(list(&chosen)?);
    }
    let columns = columns(args).map_err(Failure::Usage)?;
    let outputs = Outputs::open(args.json.as_deref(), &args.formats)?;
    let workshop = Workshop::open().map_err(Failure::Environment)?;
    let mut document = Document::new(&columns)?;
    let mut sheets = Vec::new();
    for experiment in chosen {
        let measured = measure(&workshop, experiment, &columns, args)?;
        let sheet = table::sheet(&measured, &columns);
        if !outputs.on_output() {
            print(&sheet::text(&sheet))?;
        }
        sheets.push(sheet);
        document.experiments.push(measured);
    }
    outputs.write("memwright bench", &sheets, &document)?;
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
) -> Result<Measured, Failure> {
    let program = workshop
        .experiment(experiment)
        .map_err(Failure::Environment)?;
    let mut runs = Vec::new();
    for run in experiment.runs {
        let machine = Machine::of_bench(run.cpus, run.memory);
        let mut records = Vec::new();
        for column in columns {
            let title = column.title();
            progress(&format!("{} on {title} {}", experiment.name, run.label));
            let found = column
                .run(workshop, &program, run, &machine, args.timeout)
                .with_context(|| format!("{} on {title}", experiment.name))
                .map_err(Failure::Guest)?;
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
