//! Generates three parts of the page about the releases of Linux. From the figures of the page, it generates the table
//! of all operations, with the change from each kernel to the next, and the list of the largest changes, each with the
//! functions that changed. From the counts of [`crate::workloads`], it generates the table of whole programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::figures::{Figures, Table};
use super::page::{Page, hash_of};
use crate::block::Block;
use crate::number::grouped;
use crate::shell;

/// The name of the page.
pub const NAME: &str = "releases";
pub const PAGE: &str = "docs/experiments/releases.md";
/// The statistic in the table.
const STATISTIC: &str = "median";
/// The number of changes for which the functions that caused them are determined, and the minimum size of such a
/// change, as a fraction.
const JUMPS: usize = 10;
const SMALLEST: f64 = 0.1;
/// The number of functions that are named for each change.
const FUNCTIONS: usize = 3;
/// The exit codes of `memwright compare` that report a result: no difference, or a difference in the counts, in the
/// output of the program, or in the state at a mark. The output of the program contains its figures, so it usually
/// differs.
const DIFFERS: [i32; 4] = [0, 1, 6, 7];
/// The machine of the experiment: the options of its runs.
const MACHINE: [&str; 4] = ["--memory", "2G", "--swap", "zram:256M"];
/// The path of the program in the guest, which is the same as in a bench.
const PLACE: &str = "/tmp/experiment/operations";
/// The number of pages in an operation whose figure is per page. It equals `PAGES` in the program.
const PAGES: f64 = 512.0;

/// A kernel of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The column of its figures.
    column: usize,
    /// The name of the column, which is that of the kernel in `memwright kernels`.
    pub name: String,
    /// The version of Debian's source package, without its revision.
    pub version: String,
    /// The SHA-256 of the image.
    pub sha256: String,
}

/// An operation whose figure differs between a kernel and the one before it.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    measure: String,
    /// The indexes of the two kernels in the list of releases.
    from: usize,
    to: usize,
    before: f64,
    after: f64,
}

impl Change {
    /// Returns the change as a fraction of the smaller figure, so that doubling and halving have the same size.
    fn size(&self) -> f64 {
        (self.after - self.before).abs() / self.after.min(self.before).max(1.0)
    }
}

/// Returns the kernels of Linux in the order of the columns.
///
/// # Errors
/// If a note lacks the version of a kernel.
pub fn releases(figures: &Figures) -> Result<Vec<Release>> {
    let columns = figures.columns().into_iter().enumerate();
    let linux = columns.filter(|(_, name)| *name != "memwright");
    linux
        .map(|(column, name)| {
            let notes = figures.notes_of(&format!("{name}: "));
            let note = notes.first().copied().unwrap_or_default();
            let version = note.split_once(" Debian ").map(|(_, rest)| rest);
            let version = version.and_then(|rest| rest.split('-').next());
            let version = version.with_context(|| format!("{PAGE}: the version of {name}"))?;
            let sha256 = hash_of(figures, name);
            let sha256 = sha256.with_context(|| format!("{PAGE}: the SHA-256 of {name}"))?;
            Ok(Release {
                column,
                name: name.to_owned(),
                version: version.to_owned(),
                sha256: sha256.to_owned(),
            })
        })
        .collect()
}

/// Returns the kernels of Linux that the page compares.
///
/// # Errors
/// Those of [`releases`], or if the page cannot be read.
pub fn published() -> Result<Vec<Release>> {
    releases(&Page::read(NAME)?.figures()?)
}

/// Returns the only table of the page.
pub fn only(figures: &Figures) -> Result<&Table> {
    let [table] = figures.tables.as_slice() else {
        anyhow::bail!("{PAGE}: one table was expected");
    };
    Ok(table)
}

/// Returns the measures of the table, each with its medians: one for each kernel of Linux, and Memwright's.
///
/// # Errors
/// If a cell is not a number, or was not measured.
pub fn medians(figures: &Figures) -> Result<Vec<(String, Vec<f64>, f64)>> {
    let releases = releases(figures)?;
    let table = only(figures)?;
    let own = table.column("memwright").context("no column memwright")?;
    let rows = table.rows.iter();
    rows.filter(|row| row.name.statistic == STATISTIC)
        .map(|row| {
            let measure = &row.name.measure;
            let value = |column| {
                let value = row.value(column)?;
                value.with_context(|| format!("{PAGE}: {measure} was not measured"))
            };
            let linux = releases.iter().map(|release| value(release.column));
            Ok((measure.clone(), linux.collect::<Result<_>>()?, value(own)?))
        })
        .collect()
}

/// Formats the change from one figure to another in per cent; a change of at least a tenth is bold.
fn percent(before: f64, after: f64) -> String {
    let change = 100.0 * (after - before) / before.max(1.0);
    let text = format!("{change:+.0} %");
    match text.as_str() {
        "+0 %" | "-0 %" => "0 %".to_owned(),
        _ if change.abs() >= 100.0 * SMALLEST => format!("**{text}**"),
        _ => text,
    }
}

/// Formats a figure of at least 0. A small figure has one decimal, unless the decimal is 0.
fn figure(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        None if value < 1000.0 => text,
        _ => grouped(value.round() as u64),
    }
}

/// Formats a change of a figure.
fn signed(change: f64) -> String {
    let sign = if change < 0.0 { '-' } else { '+' };
    format!("{sign}{}", figure(change.abs()))
}

/// Returns the first two lines of a table with a row for each operation or program, and columns for all kernels.
pub fn head(what: &str, releases: &[Release]) -> String {
    let mut head = format!("| {what} |");
    let mut rule = String::from("|---|");
    for (at, release) in releases.iter().enumerate() {
        head.push_str(&format!(" {} |", release.version));
        rule.push_str("---:|");
        if at > 0 {
            head.push_str(" change |");
            rule.push_str("---:|");
        }
    }
    format!("{head} Memwright |\n{rule}---:|\n")
}

/// Returns a row of a table that begins with [`head`]. `linux` has, for each kernel of Linux, the value and the text of
/// its cell. `own` is the text of Memwright's cell.
pub fn row(name: &str, linux: &[(f64, String)], own: &str) -> String {
    let mut line = format!("| {name} |");
    for (at, (value, text)) in linux.iter().enumerate() {
        line.push_str(&format!(" {text} |"));
        if at > 0 {
            line.push_str(&format!(" {} |", percent(linux[at - 1].0, *value)));
        }
    }
    line.push_str(&format!(" {own} |\n"));
    line
}

/// Returns the table of all operations.
fn table(figures: &Figures) -> Result<String> {
    let mut text = String::from("\n");
    text.push_str(&head("instructions per operation", &releases(figures)?));
    for (measure, linux, own) in medians(figures)? {
        let linux = linux.into_iter().map(|value| (value, figure(value)));
        text.push_str(&row(&measure, &linux.collect::<Vec<_>>(), &figure(own)));
    }
    text.push('\n');
    Ok(text)
}

/// Returns the largest changes from one release to the next, the largest first.
fn jumps(figures: &Figures) -> Result<Vec<Change>> {
    let mut found = Vec::new();
    for (measure, linux, _) in medians(figures)? {
        for (at, pair) in linux.windows(2).enumerate() {
            let &[before, after] = pair else { continue };
            found.push(Change {
                measure: measure.clone(),
                from: at,
                to: at + 1,
                before,
                after,
            });
        }
    }
    found.retain(|change| change.size() >= SMALLEST);
    found.sort_by(|one, other| other.size().total_cmp(&one.size()));
    found.truncate(JUMPS);
    Ok(found)
}

/// Returns the functions whose instructions per operation changed most between two columns, largest change first, from
/// the CSV of a comparison.
fn functions(csv: &str, measure: &str) -> Result<Vec<(String, f64)>> {
    let mut passes = 0.0;
    let mut sides: Vec<(String, [Option<f64>; 2])> = Vec::new();
    for line in csv.lines() {
        let Some((name, rest)) = line.split_once(',') else {
            continue;
        };
        let value = rest
            .rsplit_once(',')
            .and_then(|(_, value)| value.parse().ok());
        if name == "region.1.passes" {
            passes = value.unwrap_or(passes);
        }
        let Some(function) = name.strip_prefix("functions.self.") else {
            continue;
        };
        match sides.last_mut() {
            Some((last, [_, after])) if last == function => *after = value,
            _ => sides.push((function.to_owned(), [value, None])),
        }
    }
    ensure!(passes > 0.0, "a comparison without passes of region 1");
    let parts = if measure.contains("per page") {
        PAGES
    } else {
        1.0
    };
    let is_function = |name: &str| name != "(total)" && name != "(others)";
    let mut changes: Vec<(String, f64)> = sides
        .into_iter()
        .filter(|(name, _)| is_function(name))
        .map(|(name, [before, after])| {
            let change = after.unwrap_or_default() - before.unwrap_or_default();
            (name, change / passes / parts)
        })
        .collect();
    changes.sort_by(|one, other| other.1.abs().total_cmp(&one.1.abs()));
    Ok(changes)
}

/// Compares the functions of two kernels for one operation. Returns the comparison as CSV.
fn compare(
    memwright: &Path,
    program: &Path,
    kernels: [&str; 2],
    operation: &str,
) -> Result<String> {
    let mut file = program.as_os_str().to_owned();
    file.push(":");
    file.push(PLACE);
    let mut command = Command::new(memwright);
    command.arg("compare");
    for kernel in kernels {
        command.args(["--kernel", kernel]);
    }
    command
        .args(MACHINE)
        .args(["--functions", "--region", "1", "--no-verify", "--csv", "-"])
        .arg("--file")
        .arg(&file)
        .args([PLACE, operation])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let line = shell::line(&command);
    shell::step(&line);
    let output = command.output().context("cannot start the command")?;
    let code = output.status.code();
    ensure!(
        code.is_some_and(|code| DIFFERS.contains(&code)),
        "`{line}` ended with {}",
        output.status
    );
    String::from_utf8(output.stdout).context("the comparison printed no text")
}

/// Builds the program of the experiment, and returns its path.
fn program(memwright: &Path) -> Result<PathBuf> {
    let folder = shell::target_folder().join("releases");
    fs::create_dir_all(&folder).context("cannot create a folder for the program")?;
    let mut build = Command::new(memwright);
    build.arg("prebuild").arg(&folder);
    let built = shell::output(&mut build).context("the programs do not build")?;
    let paths = built.lines().map(PathBuf::from);
    let mut paths = paths.filter(|path| path.ends_with("operations"));
    paths.next().context("no program operations")
}

/// Returns the table of the largest changes, with their functions.
fn jumps_with_functions(memwright: &Path, figures: &Figures) -> Result<String> {
    let releases = releases(figures)?;
    let program = program(memwright)?;
    let mut text = String::from(
        "\n| operation | from | to | instructions | change | where, in instructions per operation |\n\
         |---|---|---|---:|---:|---|\n",
    );
    for change in jumps(figures)? {
        let [from, to] = [change.from, change.to].map(|at| &releases[at]);
        let kernels = [from, to].map(|release| release.name.as_str());
        let (_, operation) = change.measure.split_once(": ").context("a case")?;
        let csv = compare(memwright, &program, kernels, operation)?;
        let named = functions(&csv, &change.measure)?;
        let named: Vec<String> = named
            .iter()
            .take(FUNCTIONS)
            .map(|(name, change)| format!("`{name}` {}", signed(*change)))
            .collect();
        text.push_str(&format!(
            "| {} | {} | {} | {} to {} | {} | {} |\n",
            change.measure,
            from.version,
            to.version,
            figure(change.before),
            figure(change.after),
            percent(change.before, change.after),
            named.join(", ")
        ));
    }
    text.push('\n');
    Ok(text)
}

/// Returns the text of the page with a block replaced.
pub fn with_block(page: &str, name: &'static str, text: String) -> Result<String> {
    let block = Block {
        page: PAGE,
        name,
        text,
    };
    block
        .put(page)
        .with_context(|| format!("{PAGE}: no block {name}"))
}

/// Writes the table from the figures of the page.
///
/// # Errors
/// If a figure is missing, or if there is an I/O error.
pub fn write() -> Result<()> {
    put("releases", table(&Page::read(NAME)?.figures()?)?)
}

/// For each of the largest changes, compares the functions of its two kernels. Writes the list of these changes.
///
/// # Errors
/// If a comparison fails, or if there is an I/O error.
pub fn write_jumps(memwright: &Path) -> Result<()> {
    let figures = Page::read(NAME)?.figures()?;
    put("jumps", jumps_with_functions(memwright, &figures)?)
}

/// Replaces a block of the page.
///
/// # Errors
/// If the page has no such block, or if there is an I/O error.
pub fn put(name: &'static str, text: String) -> Result<()> {
    let path = shell::root().join(PAGE);
    let page = fs::read_to_string(&path).context(PAGE)?;
    fs::write(&path, with_block(&page, name, text)?).context(PAGE)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const EXAMPLE: &str = "\
### operations: What?

| | unit | statistic | memwright | a | b | c |
|---|---|---|---:|---:|---:|---:|
| call: x | instructions | minimum | 1 | 2 | 3 | 4 |
| call: x | instructions | median | 50 | 100 | 104 | 52 |
| per page: y | instructions | median | 1.25 | 10.5 | 10.5 | 1,234.6 |

- memwright: memwright 0.1.0 (sha256 aa)
- a: 6.1.0-50 (x) Debian 6.1.176-1 (sha256 bb)
- b: 6.12 (x) Debian 6.12.117-1 (sha256 bb)
- c: 7.3 (x) Debian 7.3.4-1~bpo13+1 (sha256 bb)
";

    /// Returns the kernels of the example.
    pub fn example() -> Vec<Release> {
        releases(&Figures::parse(EXAMPLE).unwrap()).unwrap()
    }

    #[test]
    fn the_table_has_the_change_from_each_release_to_the_next() {
        let figures = Figures::parse(EXAMPLE).unwrap();
        let expected = "
| instructions per operation | 6.1.176 | 6.12.117 | change | 7.3.4 | change | Memwright |
|---|---:|---:|---:|---:|---:|---:|
| call: x | 100 | 104 | +4 % | 52 | **-50 %** | 50 |
| per page: y | 10.5 | 10.5 | 0 % | 1,235 | **+11658 %** | 1.2 |

";
        assert_eq!(table(&figures).unwrap(), expected);
        let none = EXAMPLE.replace("1,234.6", "not measured");
        assert!(table(&Figures::parse(&none).unwrap()).is_err());
    }

    #[test]
    fn figures_are_short() {
        for (value, text) in [
            (0.0, "+0"),
            (16.04, "+16"),
            (-665.84, "-665.8"),
            (999.96, "+1,000"),
            (254_441.7, "+254,442"),
        ] {
            assert_eq!(signed(value), text);
        }
    }

    #[test]
    fn the_largest_changes_come_first_and_small_ones_not_at_all() {
        let figures = Figures::parse(EXAMPLE).unwrap();
        let jumps = jumps(&figures).unwrap();
        let named: Vec<(&str, usize)> = jumps
            .iter()
            .map(|one| (one.measure.as_str(), one.to))
            .collect();
        assert_eq!(named, [("per page: y", 2), ("call: x", 2)]);
    }

    #[test]
    fn functions_are_named_by_the_size_of_their_change() {
        let csv = "name,section,group,measure,unit,column,value\r\n\
            region.1.passes,region 1,Marks,passes,passes,a,10\r\n\
            region.1.passes,region 1,Marks,passes,passes,b,10\r\n\
            functions.self.f,x,self,f (with 2 more),instructions,a,100\r\n\
            functions.self.f,x,self,f (with 2 more),instructions,b,300\r\n\
            functions.self.g,x,self,g,instructions,a,900\r\n\
            functions.self.g,x,self,g,instructions,b,400\r\n\
            functions.self.(total),x,self,(total),instructions,a,1000\r\n\
            functions.self.(total),x,self,(total),instructions,b,700\r\n";
        let found = functions(csv, "call: x").unwrap();
        assert_eq!(found, [("g".to_owned(), -50.0), ("f".to_owned(), 20.0)]);
        let per_page = functions(csv, "per page: x").unwrap();
        assert_eq!(per_page[1].1, 20.0 / 512.0);
        assert!(functions("", "call: x").is_err());
    }

    #[test]
    fn the_page_has_the_table_of_its_figures() {
        let path = shell::root().join(PAGE);
        let page = fs::read_to_string(path).unwrap();
        let figures = Page::read(NAME).unwrap().figures().unwrap();
        let written = with_block(&page, "releases", table(&figures).unwrap()).unwrap();
        assert_eq!(page, written, "cargo xtask experiments --memwright {NAME}");
        assert!(with_block("no block", "releases", String::new()).is_err());
    }
}
