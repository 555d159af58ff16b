//! `memwright bench -- PROGRAM`: runs the user's own program on each kernel, counted by QEMU, once for each combination
//! of its parameters' values. A bench of workloads is a sweep with one parameter: the name of the workload.

use std::ffi::OsString;

use anyhow::{Context, anyhow};

use crate::cmd::args::BenchArgs;
use crate::cmd::bench::workloads::{self, Packed, Workload};
use crate::compare::{names, sweep_sheet};
use crate::host::output::{print, show};
use crate::host::taken::Taken;
use crate::lab::column::Column;
use crate::lab::columns::{self, Groups};
use crate::lab::input::Input;
use crate::model::failure::{DIFFERENCE, Failure};
use crate::model::image::{MEMWRIGHT, System};
use crate::model::parameter::Parameter;
use crate::model::plan::{Care, ImagePlan, Measure, Setup};
use crate::model::sweep::{Document, KIND, Point, SCHEMA};
use crate::model::{parameter, region_names};
use crate::qemu::runs::Runs;
use crate::render;
use crate::render::outputs::Outputs;

/// A program that is swept over parameters.
struct Subject<'a> {
    command: &'a [OsString],
    parameters: &'a [Parameter],
    input: Input,
    /// Returns the guest that runs a command. The second argument is the index of the command's point in the sweep.
    guest: &'a dyn Fn(Vec<OsString>, usize) -> Setup,
}

/// Runs the user's program at every point of the sweep on every kernel, and prints the rows that differ between points
/// or kernels.
///
/// # Errors
/// If the usage is wrong, if a tool is missing, or if a guest gives no result.
pub fn bench(args: &BenchArgs) -> Result<u8, Failure> {
    check(args).map_err(Failure::Usage)?;
    let subject = Subject {
        command: &args.program,
        parameters: &args.parameters,
        input: Input::default(),
        guest: &|command, _| Setup::of(command),
    };
    sweep(args, &subject)
}

/// Runs workloads on every kernel, and prints the rows that differ between workloads or kernels.
///
/// # Errors
/// The errors of [`bench()`], and an error if a package is not installed. With `--dry-run`, packages are not checked.
pub fn bench_workloads(args: &BenchArgs, workloads: &[&Workload]) -> Result<u8, Failure> {
    check_rows(args).map_err(Failure::Usage)?;
    if !args.dry_run {
        for one in workloads {
            one.check_packages()?;
        }
    }
    let packed = workloads.iter().map(|one| one.pack());
    let packed: Vec<Packed> = packed.collect::<Result<_, _>>()?;
    let parameter = Parameter {
        name: "workload".to_owned(),
        values: workloads.iter().map(|one| one.name.to_owned()).collect(),
    };
    let subject = Subject {
        command: &workloads::command("{workload}"),
        parameters: &[parameter],
        input: Input::none(),
        guest: &|command, point| packed[point].guest(command),
    };
    sweep(args, &subject)
}

/// Runs the subject at every point of the sweep on every kernel, and prints the rows that differ between points or
/// kernels.
fn sweep(args: &BenchArgs, subject: &Subject<'_>) -> Result<u8, Failure> {
    columns::fetch(&args.kernels, args.dry_run)?;
    let columns = columns(args).map_err(Failure::Usage)?;
    let parameters = subject.parameters;
    let mut taken = Taken::default();
    for column in &columns {
        taken.read_path("a kernel image", &column.image.path);
    }
    let outputs = Outputs::open(args.json.as_deref(), &args.formats, &mut taken)?;
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let mut document = Document {
        schema: SCHEMA,
        kind: KIND.to_owned(),
        command: subject.command.iter().map(text).collect(),
        parameters: parameters.to_vec(),
        points: Vec::new(),
    };
    let mut patterns = Vec::new();
    let mut runs = None;
    for (point, values) in parameter::points(parameters).into_iter().enumerate() {
        let command = parameter::command(subject.command, parameters, &values);
        let plan = plan(args, (subject.guest)(command, point));
        let groups = Groups::of(&columns, &plan).map_err(Failure::Usage)?;
        let laboratories = groups.open(&subject.input, args.dry_run)?;
        let guests = groups.guests(&columns, &laboratories);
        if args.dry_run {
            for (laboratory, image) in &guests {
                print(format!("{}\n", laboratory.line(image)).as_bytes())?;
            }
            continue;
        }
        if runs.is_none() {
            let programs: Vec<_> = laboratories.iter().map(|one| one.names().clone()).collect();
            let rows = region_names::all_numbered(&args.shown.rows, &programs);
            patterns = rows.map_err(|unknown| Failure::Usage(anyhow!("--rows: {unknown}")))?;
        }
        let runs = match &runs {
            Some(runs) => runs,
            None => runs.insert(Runs::start(args.timeout).context("cannot receive signals")?),
        };
        runs.renew();
        let place = parameter::title(parameters, &values);
        let measured = columns::measure(&guests, runs)?;
        let first = document.points.is_empty();
        for (index, one) in measured.iter().enumerate() {
            if first && index == 0 {
                show(&one.said.errors);
            }
            columns::say_ending(&one.document, &place);
        }
        document.points.push(Point {
            values,
            columns: measured.into_iter().map(|one| one.document).collect(),
        });
    }
    if args.dry_run {
        return Ok(0);
    }
    let unknown = |unknown| Failure::Usage(anyhow!("--rows: {unknown}"));
    let shown = sweep_sheet::sheet(&document, &patterns, args.shown.all).map_err(unknown)?;
    if !outputs.on_output() {
        print(render::text(&shown, true).as_bytes())?;
    }
    outputs.write("memwright bench", &[shown], true, &document)?;
    Ok(match document.repeats() {
        true => 0,
        false => DIFFERENCE,
    })
}

/// Checks the options before a program runs.
fn check(args: &BenchArgs) -> anyhow::Result<()> {
    if let Some(name) = args.names.first() {
        return Err(anyhow!(
            "{name}: a bench is of experiments, of workloads or of a program"
        ));
    }
    parameter::check(&args.parameters, &args.program).map_err(|why| anyhow!(why))?;
    check_rows(args)
}

/// Checks the patterns of rows.
fn check_rows(args: &BenchArgs) -> anyhow::Result<()> {
    for pattern in &args.shown.rows {
        names::check(pattern).map_err(|unknown| anyhow!("--rows: {unknown}"))?;
    }
    Ok(())
}

/// Returns the columns: those of --kernel with each --append, and Memwright's kernel with each --policy. Without any of
/// these options, the only column is Memwright's kernel.
fn columns(args: &BenchArgs) -> anyhow::Result<Vec<Column>> {
    let mut texts: Vec<String> = Vec::new();
    if args.kernels.is_empty() || !args.policies.is_empty() {
        texts.push(MEMWRIGHT.to_owned());
    }
    for policies in &args.policies {
        let keys = policies
            .split(',')
            .map(|policy| format!(",policy={policy}"));
        texts.push(format!("{MEMWRIGHT}{}", keys.collect::<String>()));
    }
    let mut columns: Vec<Column> = Vec::new();
    for text in texts.iter().chain(&args.kernels) {
        let column = Column::open(text)?;
        let variants = args
            .append
            .iter()
            .filter(|_| column.image.system == System::Linux);
        let variants: Vec<Column> = variants.map(|words| column.with(words)).collect();
        columns.push(column);
        columns.extend(variants);
    }
    columns::check_names(&columns)?;
    Ok(columns)
}

fn plan(args: &BenchArgs, setup: Setup) -> ImagePlan {
    ImagePlan {
        setup,
        care: Care {
            timeout: Some(args.timeout),
            keep: None,
            verbose: false,
        },
        measure: Measure::Events,
        verify: !args.no_verify,
        cold: args.cold,
    }
}
