//! `memwright bench`: the experiments, on Memwright and on Linux kernels in the same QEMU, one table each.

mod column;
mod compile;
pub mod document;
mod experiments;
mod records;
pub mod table;

use std::path::Path;
use std::thread;

use anyhow::{Context, anyhow};

use self::column::Column;
use self::compile::Workshop;
use self::document::{Document, Measured, MeasuredRun};
use self::experiments::{Experiment, Run};
use crate::args::BenchArgs;
use crate::children::Children;
use crate::failure::{DIFFERENCE, Failure};
use crate::lab::document::Qemu;
use crate::output::{self, Taken};
use crate::outputs::{Outputs, progress};
use crate::qemu::machine::Machine;
use crate::qemu::version;
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
    if let Some(label) = experiments::unknown_label(&chosen, &args.labels) {
        return Err(Failure::Usage(anyhow!("no run has the label {label:?}")));
    }
    let columns = columns(args).map_err(Failure::Usage)?;
    let workshop = Workshop::open().map_err(Failure::Environment)?;
    let children = Children::watch().context("cannot receive signals")?;
    if args.dry_run {
        return lines(&workshop, &chosen, &columns, args, &children);
    }
    let mut taken = Taken::default();
    for column in &columns {
        if let Column::Linux { image, .. } = column {
            taken.read_path("a kernel image", &image.path);
        }
    }
    let outputs = Outputs::open(args.json.as_deref(), &args.formats, &mut taken)?;
    let mut document = Document::new(&columns)?;
    let mut sheets = Vec::new();
    let has_runs = |one: &&Experiment| !one.runs_of(&args.labels).is_empty();
    for experiment in chosen.into_iter().filter(has_runs) {
        let measured = measure(&workshop, experiment, &columns, args, &children)?;
        let mut sheet = table::sheet(&measured, &document.columns);
        if !outputs.on_output() {
            print(&sheet::text(&sheet, true))?;
        }
        sheet
            .notes
            .extend(table::origins(&measured, &document.columns));
        sheets.push(sheet);
        document.experiments.push(measured);
    }
    outputs.write("memwright bench", &sheets, true, &document)?;
    Ok(if document.differs() { DIFFERENCE } else { 0 })
}

/// Prints the QEMU line of every run.
fn lines(
    workshop: &Workshop,
    chosen: &[&'static Experiment],
    columns: &[Column],
    args: &BenchArgs,
    children: &Children,
) -> Result<u8, Failure> {
    for experiment in chosen {
        let program = workshop
            .experiment(experiment)
            .map_err(Failure::Environment)?;
        for run in experiment.runs_of(&args.labels) {
            let machine = Machine::of_bench(run.cpus, run.nodes, run.memory);
            for column in columns {
                print(&column.line(&program, run, &machine, children)?)?;
            }
        }
    }
    Ok(0)
}

/// Memwright as it is and with each set of policies; each kernel image as it is and with each addition to its command line.
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
                Column::Memwright { policies } => anyhow!("--policy {policies} is there twice"),
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
    workshop: &Workshop,
    experiment: &'static Experiment,
    columns: &[Column],
    args: &BenchArgs,
    children: &Children,
) -> Result<Measured, Failure> {
    let program = workshop
        .experiment(experiment)
        .map_err(Failure::Environment)?;
    let mut runs = Vec::new();
    for run in experiment.runs_of(&args.labels) {
        runs.push(measure_run(
            experiment, &program, run, columns, args, children,
        )?);
    }
    Ok(Measured {
        experiment: experiment.name.to_owned(),
        question: experiment.question.to_owned(),
        program_sha256: document::hash_file(&program)?,
        runs,
    })
}

/// Makes one run in every column, twice at the same time unless that was not wanted.
fn measure_run(
    experiment: &Experiment,
    program: &Path,
    run: &Run,
    columns: &[Column],
    args: &BenchArgs,
    children: &Children,
) -> Result<MeasuredRun, Failure> {
    let machine = Machine::of_bench(run.cpus, run.nodes, run.memory);
    let (mut records, mut differs) = (Vec::new(), Vec::new());
    for column in columns {
        let title = column.title();
        progress(&format!("{} on {title} {}", experiment.name, run.label));
        let once = || {
            let records = column.run(program, run, &machine, args, children);
            // After a signal, what a run says of its end is no news.
            children.check()?;
            records
                .with_context(|| format!("{} on {title}", experiment.name))
                .map_err(Failure::Guest)
        };
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
        if let Some(again) = again {
            let lines = records::differences(&found, &again?);
            differs.extend(lines.into_iter().map(|line| format!("{title}: {line}")));
        }
        records.push((title, found));
    }
    let qemu = version::program(&machine, args.timeout).map_err(Failure::Environment)?;
    let known = version::check_for(&qemu, &machine, args.timeout).map_err(Failure::Environment)?;
    Ok(MeasuredRun {
        label: run.label.to_owned(),
        arguments: run
            .arguments
            .iter()
            .map(|word| (*word).to_owned())
            .collect(),
        cpus: run.cpus,
        nodes: run.nodes,
        memory: machine.memory.bytes(),
        swap: run.swap.to_owned(),
        qemu: Qemu {
            version: known.to_string(),
            sha256: version::hash(&qemu),
        },
        repeats: (!args.no_verify).then_some(differs.is_empty()),
        differs,
        records,
    })
}

fn list(chosen: &[&Experiment]) -> anyhow::Result<u8> {
    let width = chosen.iter().map(|one| one.name.len()).max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    for one in chosen {
        text.push_str(&format!("{:width$}  {}\n", one.name, one.question));
    }
    print(&text)?;
    Ok(0)
}

fn print(text: &str) -> anyhow::Result<()> {
    output::print(text.as_bytes())
}
