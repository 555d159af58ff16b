//! `memwright check`: compares a program's counts with those of an earlier run, or with limits.

use crate::compare::comparison;
use crate::host::host_file;
use crate::model::words;
use crate::{guestfs, render};
use std::path::Path;

use anyhow::{Context, anyhow};

use crate::cmd::args::{CheckArgs, FailOn};
use crate::cmd::{bisect, rerun};
use crate::compare::identity::{self, Vary};
use crate::compare::limit::{Judged, Judgement, Limit, judge};
use crate::compare::verdict::{self, Kind};
use crate::compare::{names, rows, side_by_side};
use crate::guestfs::{given, program};
use crate::host::output::{print, say};
use crate::host::taken::Taken;
use crate::lab::column::other_program;
use crate::model::failure::Failure;
use crate::model::memwright_run::Ending;
use crate::model::region_names::{self, RegionNames};
use crate::model::saved::Saved;
use crate::render::outputs::Outputs;
use crate::sheet::{Limited, Sheet, Verdict, VerdictKind};

/// Runs the program, and judges its counts by the baseline or by limits. Returns the exit code, which depends on the
/// kinds of differences.
///
/// # Errors
/// If the usage is wrong, if a tool is missing, if a guest gives no result, or if counts cannot be compared.
pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let baseline = args.baseline.as_deref().map(baseline).transpose();
    let baseline = baseline.map_err(Failure::Usage)?;
    check_usage(args, baseline.as_ref()).map_err(Failure::Usage)?;
    let (rows, limits) = numbered(args).map_err(Failure::Usage)?;
    let mut taken = Taken::default();
    if let Some(path) = &args.baseline {
        taken.read_path("the baseline", path);
    }
    let program = args.run.setup.command.first().map(Path::new);
    taken.read_path("the program", program.unwrap_or(Path::new("")));
    let outputs = Outputs::open(args.run.json.as_deref(), &args.run.formats, &mut taken)?;
    let now = rerun::run(&args.run, baseline.as_ref())?;
    let columns: Vec<(String, &Saved)> = baseline
        .iter()
        .map(|saved| (BASELINE.to_owned(), saved))
        .chain([(NOW.to_owned(), &now)])
        .collect();
    let complete = comparison::sheet(&columns).context("the baseline is of another kind")?;
    let judged = judge(&limits, &complete);
    let limited = judged.iter().map(|one| one.limited(&complete)).collect();
    let mut sheet = complete
        .select(&rows)
        .map_err(|unknown| Failure::Usage(anyhow!("--rows: {unknown}")))?;
    let claimed = claim(args, baseline.as_ref(), &now);
    if claimed.is_ok() && !outputs.on_output() {
        print_text(args, &sheet, &judged)?;
    }
    let decided = claimed.and_then(|()| decide(args, &judged, &sheet, &columns));
    sheet.verdict = Some(reported(&decided, limited));
    let sheets = std::slice::from_ref(&sheet);
    outputs.write("memwright check", sheets, args.shown.all, &now)?;
    let Decision { code, lines } = decided?;
    // In a bisection, standard output already has a line for each limit, with the reason.
    for line in lines.iter().filter(|_| !args.bisect) {
        say(line);
    }
    Ok(code)
}

/// The exit code of a check, and one line for each reason why it is not 0.
struct Decision {
    code: u8,
    lines: Vec<String>,
}

/// Prints the rows and the judgement on each limit.
fn print_text(args: &CheckArgs, sheet: &Sheet, judged: &[Judged]) -> anyhow::Result<()> {
    if args.limits.is_empty() || !args.bisect {
        print(render::text(sheet, args.shown.all).as_bytes())?;
    }
    for one in judged {
        print(format!("{one}\n").as_bytes())?;
    }
    Ok(())
}

/// Decides whether the run passes.
///
/// # Errors
/// If no verdict is possible.
fn decide(
    args: &CheckArgs,
    judged: &[Judged],
    sheet: &Sheet,
    columns: &[(String, &Saved)],
) -> Result<Decision, Failure> {
    let (kinds, lines) = if args.limits.is_empty() {
        differences(sheet, args.fail_on, columns)
    } else {
        exceeded(judged, columns)
    };
    let code = match args.bisect {
        true => bisect::verdict(judged)?,
        false => verdict::code(&kinds),
    };
    Ok(Decision { code, lines })
}

/// Returns the verdict for the reports.
fn reported(decided: &Result<Decision, Failure>, limited: Vec<Limited>) -> Verdict {
    let (kind, reasons) = match decided {
        Ok(Decision { code: 0, .. }) => (VerdictKind::Passed, Vec::new()),
        Ok(Decision { lines, .. }) => (VerdictKind::Failed, lines.clone()),
        Err(failure) => (VerdictKind::Unknown, vec![failure.to_string()]),
    };
    Verdict {
        kind,
        reasons,
        limited,
    }
}

const BASELINE: &str = "baseline";
const NOW: &str = "now";

fn baseline(path: &Path) -> anyhow::Result<Saved> {
    let parse = |value| Saved::parse(value).with_context(|| path.display().to_string());
    let parsed = host_file::read_json(path).and_then(parse);
    parsed.map_err(|error| anyhow!("--baseline {error:#}"))
}

/// Returns an error if the options are invalid. Called before the first run, so that wrong usage is reported at once.
fn check_usage(args: &CheckArgs, baseline: Option<&Saved>) -> anyhow::Result<()> {
    if let Some(limit) = args.limits.iter().find(|limit| limit.is_relative())
        && baseline.is_none()
    {
        return Err(anyhow!(
            "--limit {}: a percentage needs --baseline",
            limit.row
        ));
    }
    let is_kernel = !args.run.kernel.is_empty();
    let known = |name: &str| match is_kernel {
        true => names::check(name),
        false => rows::check(name),
    };
    for pattern in &args.shown.rows {
        known(pattern).map_err(|unknown| anyhow!("--rows: {unknown}"))?;
    }
    for Limit { row, .. } in &args.limits {
        let exact = known(row).map_err(|unknown| anyhow!("--limit: {unknown}"));
        exact.and_then(|()| match is_name(row) {
            true => Ok(()),
            false => Err(anyhow!("--limit {row}: a limit is of one row, by its name")),
        })?;
    }
    Ok(())
}

/// Returns the patterns of `--rows`, and the limits. In both, the names that the program gives its regions are replaced
/// by the regions' numbers.
fn numbered(args: &CheckArgs) -> anyhow::Result<(Vec<String>, Vec<Limit>)> {
    let limits = args.limits.iter().map(|limit| &limit.row);
    let mut rows = args.shown.rows.iter().chain(limits);
    let by_name = rows.any(|row| region_names::named(row).is_some());
    let other = args.run.kernel.last().and_then(|text| other_program(text));
    let program = other.or_else(|| args.run.setup.command.first().cloned());
    let path = std::env::var_os("PATH");
    // A program that does not exist gives no names. The run reports that error later.
    let files = &args.run.setup.files;
    let path = program.filter(|_| by_name).and_then(|name| {
        let given = given::file_at(files, Path::new(&name));
        given.or_else(|| program::locate(&name, path.as_deref()).ok())
    });
    let names = path.map(|path| {
        guestfs::region_names::read(&path).map_err(|error| anyhow!("{}: {error}", path.display()))
    });
    let names: Vec<RegionNames> = names.into_iter().collect::<Result<_, _>>()?;
    let number = |row: &String, option: &str| {
        let row = region_names::numbered(row, &names);
        row.map_err(|unknown| anyhow!("{option}: {unknown}"))
    };
    let rows = args.shown.rows.iter().map(|row| number(row, "--rows"));
    let limits = args.limits.iter().map(|limit| {
        let mut limit = limit.clone();
        limit.row = number(&limit.row, "--limit")?;
        Ok(limit)
    });
    Ok((
        rows.collect::<anyhow::Result<_>>()?,
        limits.collect::<anyhow::Result<_>>()?,
    ))
}

/// Returns whether the text is the name of a row, and not a pattern or a group. The name of a group begins with a
/// capital letter.
fn is_name(text: &str) -> bool {
    !text.contains('*') && text.starts_with(|letter: char| letter.is_ascii_lowercase())
}

/// Returns an error if no verdict is possible. The runs must be comparable and must repeat. In a bisection, the program
/// must also have ended as [`other_ending`] expects.
fn claim(args: &CheckArgs, baseline: Option<&Saved>, now: &Saved) -> Result<(), Failure> {
    let json = |saved: &Saved| serde_json::to_value(saved).context("cannot write JSON");
    let mut vary = args.vary.clone();
    // In a bisection, the kernel may differ from the baseline's.
    vary.extend(args.bisect.then_some(Vary::Kernel));
    if let Some(baseline) = baseline {
        let differing = identity::differing(&json(baseline)?, &json(now)?, &vary);
        if !differing.is_empty() {
            return Err(Failure::Skipped(format!(
                "no claim is possible: the baseline was made with another {} (--vary says what may differ)",
                differing.join(", another ")
            )));
        }
    }
    for (which, saved) in [("the baseline", baseline), ("this run", Some(now))] {
        if saved.and_then(|saved| saved.behaviour().repeats) == Some(false) {
            return Err(Failure::Skipped(format!(
                "no claim is possible: {which} does not repeat"
            )));
        }
    }
    let ending = |saved: &Saved| saved.behaviour().outcome;
    let ended = other_ending(baseline.map(ending), ending(now));
    match ended.filter(|_| args.bisect) {
        Some(line) => Err(Failure::Skipped(format!("no claim is possible: {line}"))),
        None => Ok(()),
    }
}

/// Returns a line if the program ended differently than in the baseline. Without a baseline, returns a line if the
/// program did not exit by itself. The counts of such a run do not describe the same work.
fn other_ending(before: Option<Option<Ending>>, now: Option<Ending>) -> Option<String> {
    let text = words::ending;
    match (before, now) {
        (Some(before), now) => (before != now)
            .then(|| format!("the program: {} before, {} now", text(before), text(now))),
        (None, Some(Ending::Exited(_))) => None,
        (None, Some(Ending::Killed(_) | Ending::NotStarted(_) | Ending::TripleFault {}) | None) => {
            Some(format!("the program: {}", text(now)))
        }
    }
}

/// Returns the differences from a baseline: their kinds, and one line for each.
fn differences(
    sheet: &Sheet,
    on: FailOn,
    columns: &[(String, &Saved)],
) -> (Vec<Kind>, Vec<String>) {
    let found = [
        (Kind::Counts, failing(sheet, on)),
        (Kind::State, side_by_side::differing_states(sheet)),
        (Kind::Program, verdict::other_programs(columns)),
    ];
    with_lines(found)
}

/// Returns the kinds of failures, and one line for each failure: for each limit that the run exceeds, or whose row does
/// not exist or was not measured, and for each difference in the behaviour of the program.
fn exceeded(judged: &[Judged], columns: &[(String, &Saved)]) -> (Vec<Kind>, Vec<String>) {
    let is_over = |one: &&Judged| match one.result {
        Judgement::Good { .. } => false,
        // A row that was not measured must not pass without a message.
        Judgement::Bad { .. } | Judgement::Absent | Judgement::NotMeasured => true,
    };
    let lines = judged.iter().filter(is_over);
    let lines = lines.map(|one| format!("the limit of {} does not hold", one.limit.given()));
    with_lines([
        (Kind::Counts, lines.collect()),
        (Kind::Program, verdict::other_programs(columns)),
    ])
}

fn with_lines(found: impl IntoIterator<Item = (Kind, Vec<String>)>) -> (Vec<Kind>, Vec<String>) {
    let found = found.into_iter().filter(|(_, lines)| !lines.is_empty());
    let (kinds, lines): (Vec<_>, Vec<_>) = found.unzip();
    (kinds, lines.concat())
}

/// Returns one line for each row that makes the check fail. A row that only the baseline or only this run measured is
/// included, because it must not pass without a message.
fn failing(sheet: &Sheet, on: FailOn) -> Vec<String> {
    let mut lines = Vec::new();
    for section in &sheet.sections {
        for row in &section.rows {
            let [before, now] = row.cells.as_slice() else {
                continue;
            };
            let fails = match (before, now, on) {
                (Some(before), Some(now), FailOn::Increase) => now.order(*before).is_gt(),
                (Some(before), Some(now), FailOn::Difference) => now.order(*before).is_ne(),
                (None, None, _) => false,
                (None, Some(_), _) | (Some(_), None, _) => true,
            };
            if fails {
                let place = match section.title.as_str() {
                    "" => String::new(),
                    title => format!("{title}: "),
                };
                lines.push(format!(
                    "{place}{}: {}: {} before, {} now",
                    row.group,
                    row.label(),
                    row.cell_text(*before),
                    row.cell_text(*now)
                ));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::counts;
    use crate::sheet::{Section, Sheet};

    #[test]
    fn a_program_that_ends_otherwise_is_noticed() {
        let exited = |code| Some(Ending::Exited(code));
        for (before, now, expected) in [
            (Some(exited(1)), exited(1), None),
            (
                Some(exited(0)),
                exited(1),
                Some("the program: exited with code 0 before, exited with code 1 now"),
            ),
            (
                Some(exited(0)),
                Some(Ending::Killed(6)),
                Some("the program: exited with code 0 before, killed by signal 6 now"),
            ),
            (None, exited(7), None),
            (
                None,
                Some(Ending::Killed(11)),
                Some("the program: killed by signal 11"),
            ),
            (None, None, Some("the program: no result")),
        ] {
            assert_eq!(other_ending(before, now).as_deref(), expected);
        }
    }

    #[test]
    fn only_what_was_asked_for_fails() {
        const LARGE: u64 = 1 << 60;
        for (before, now, increase, difference) in [
            (Some(1), Some(1), 0, 0),
            (Some(1), Some(2), 1, 1),
            (Some(2), Some(1), 0, 1),
            // These two counts differ by 1, although they would be equal as floating-point numbers.
            (Some(LARGE), Some(LARGE + 1), 1, 1),
            (Some(LARGE + 1), Some(LARGE), 0, 1),
            (Some(1), None, 1, 1),
            (None, Some(1), 1, 1),
            (None, None, 0, 0),
        ] {
            let sheet = Sheet {
                heading: String::new(),
                columns: vec![BASELINE.to_owned(), NOW.to_owned()],
                compares: true,
                sections: vec![Section {
                    title: String::new(),
                    remark: String::new(),
                    is_ranked: false,
                    rows: vec![counts("x", "x", &[before, now])],
                }],
                notes: Vec::new(),
                commands: Vec::new(),
                kernels: Vec::new(),
                verdict: None,
            };
            let failures = |on| failing(&sheet, on).len();
            assert_eq!(failures(FailOn::Increase), increase, "{before:?} {now:?}");
            assert_eq!(failures(FailOn::Difference), difference);
        }
    }
}
