//! `memwright bench -- PROGRAM`: runs the user's own program on each kernel, counted by QEMU, once for each combination
//! of its parameters' values. A bench of workloads is a sweep with one parameter: the name of the workload.

use std::collections::BTreeMap;
use std::ffi::OsString;

use anyhow::{Context, anyhow};

use crate::cmd::args::BenchArgs;
use crate::cmd::bench::cells::Job;
use crate::cmd::bench::workloads::{self, Packed, Workload};
use crate::cmd::results::present;
use crate::compare::names;
use crate::guestfs::prepare::{KernelOptions, Prepared, prepare};
use crate::host::output::{print, show};
use crate::host::taken::Taken;
use crate::host::{bounded, host_file};
use crate::lab::column::Column;
use crate::lab::columns::{self, Groups};
use crate::lab::input::Input;
use crate::model::cell_plan::{self, Cell, Needs, Program, Work};
use crate::model::cell_result::Found;
use crate::model::change::Key;
use crate::model::failure::Failure;
use crate::model::hash::hexadecimal_hash;
use crate::model::image::{MEMWRIGHT, System};
use crate::model::machine::{Clock, Machine};
use crate::model::parameter::Parameter;
use crate::model::plan::{Care, ImagePlan, Measure, Setup};
use crate::model::sweep::{Document, KIND, Point, SCHEMA};
use crate::model::{parameter, region_names};
use crate::qemu::runs::Runs;
use crate::qemu::version;
use crate::render::outputs::Outputs;

/// A program that is swept over parameters.
struct Subject<'a> {
    command: &'a [OsString],
    parameters: &'a [Parameter],
    input: Input,
    /// Returns the guest that runs a command. The second argument is the index of the command's point in the sweep.
    guest: &'a dyn Fn(Vec<OsString>, usize) -> Setup,
}

impl Subject<'_> {
    /// Returns the plan of the runs at the point with the index `point`.
    fn plan(&self, args: &BenchArgs, values: &[String], point: usize) -> ImagePlan {
        let command = parameter::command(self.command, self.parameters, values);
        ImagePlan {
            setup: (self.guest)(command, point),
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
}

/// Runs the user's program at every point of the sweep on every kernel, and prints the rows that differ between points
/// or kernels. Returns the exit code.
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

/// Runs workloads on every kernel, and prints the rows that differ between workloads or kernels. Returns the exit code.
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
/// kernels. Returns the exit code.
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
    if let Some(job) = Job::of(args)? {
        let work = work(args, subject, &columns, document)?;
        let points = parameter::points(parameters);
        let mut measure = |cell: &Cell, runs: &Runs| {
            let values = &points[cell.run];
            let column = std::slice::from_ref(&columns[cell.column]);
            let plan = subject.plan(args, values, cell.run);
            let groups = Groups::of(column, &plan).map_err(Failure::Usage)?;
            let laboratories = groups.open(&subject.input, false)?;
            let measured = columns::measure(&groups.guests(column, &laboratories), runs)?;
            let document = measured
                .into_iter()
                .next()
                .context("no run was made")?
                .document;
            columns::say_ending(&document, &parameter::title(parameters, values));
            Ok(Found::Counts(Box::new(document)))
        };
        return job.run(args, Work::Program(work), &outputs, &mut measure);
    }
    let mut patterns = Vec::new();
    let mut runs = None;
    for (point, values) in parameter::points(parameters).into_iter().enumerate() {
        let plan = subject.plan(args, &values, point);
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
    present::program(&document, &patterns, args.shown.all, &outputs)
}

/// Returns what a bench with kept results runs: the sweep, and the hashes of everything on which its counts depend.
fn work(
    args: &BenchArgs,
    subject: &Subject<'_>,
    columns: &[Column],
    document: Document,
) -> Result<Program, Failure> {
    if subject.command.iter().any(|word| word.to_str().is_none()) {
        let why = "--results: a word of the command is not UTF-8";
        return Err(Failure::Usage(anyhow!(why)));
    }
    let mut work = Program {
        columns: columns.iter().map(described).collect(),
        qemu: Vec::new(),
        stdin_sha256: String::new(),
        programs: BTreeMap::new(),
        files: Vec::new(),
        document,
    };
    let mut hashes: BTreeMap<OsString, String> = BTreeMap::new();
    for (index, values) in work.points().iter().enumerate() {
        let common = subject.plan(args, values, index);
        for (column, about) in columns.iter().zip(&work.columns) {
            let name = work.program(about, values);
            let is_known = work.programs.contains_key(&name);
            let brings_files = !common.setup.files.is_empty() && work.files.len() == index;
            if is_known && !brings_files && work.qemu.len() == columns.len() {
                continue;
            }
            let plan = column.plan(&common).map_err(Failure::Usage)?;
            if work.qemu.len() < columns.len() {
                let machine = Machine::of(&plan.setup, Clock::Instructions);
                let patience = bounded::patience(Some(args.timeout));
                let missing = Failure::Environment;
                let qemu = version::program(&machine, patience).map_err(missing)?;
                let version = version::check_for(&qemu, &machine, patience).map_err(missing)?;
                let sha256 = hashes.entry(qemu).or_insert_with_key(version::hash);
                work.qemu.push(format!("{version} {sha256}"));
                let input = subject.input.read(plan.setup.memory(), args.timeout)?;
                work.stdin_sha256 = hexadecimal_hash(&input);
            }
            let prepared = prepare(&plan.setup, &KernelOptions::default())?;
            if brings_files {
                work.files.push(prepared.files.clone());
            }
            work.programs.insert(name, needs(&prepared));
        }
    }
    Ok(work)
}

/// Returns the folder and the files that a program needs to start.
fn needs(prepared: &Prepared) -> Needs {
    let companions = prepared.program.companions.iter();
    let companions = companions.map(|path| host_file::hashed_file(path));
    Needs {
        folder: prepared.folder.to_string_lossy().into_owned(),
        files: [prepared.program.hashed()]
            .into_iter()
            .chain(companions)
            .collect(),
    }
}

/// Returns the entry of a column in the plan of the results.
fn described(column: &Column) -> cell_plan::Column {
    let image = &column.image;
    let mut programs = column
        .changes
        .iter()
        .filter(|change| change.key == Key::Program);
    cell_plan::Column {
        name: image.name.clone(),
        sha256: image.sha256.clone(),
        version: image.version.clone(),
        config_sha256: image.config_sha256.clone(),
        changes: column.changes.iter().map(ToString::to_string).collect(),
        program: programs.next_back().map(|change| change.value.clone()),
    }
}

/// Returns an error if the options are invalid. Called before the first run, so that wrong usage is reported at once.
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

/// Returns the columns. Each --kernel has a column and, if it is Linux, one more for each --append. Memwright's kernel
/// has a column and one more for each --policy, if there is a --policy or no --kernel.
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
