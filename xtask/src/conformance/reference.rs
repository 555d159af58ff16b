//! `--reference KERNEL`: runs the tests on a Linux kernel, and writes the column of the kernel.

use super::column::{self, Column};
use super::list::Test;
use super::run::{self, Kernel, Output};
use super::settings::Settings;
use super::tap::{self, Ending, Subtest};
use super::{FOLDER, build, folder, named, source};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

/// Runs the tests on a kernel, one after another, and writes the column of the kernel's series after each test.
///
/// # Errors
/// If there is no kernel of this name or no source of its series, if a test cannot be started, or if only some tests
/// are chosen and the existing column is of another kernel.
pub fn run(command: &Path, kernel: &str, all: &[Test], settings: &Settings) -> Result<()> {
    let uname = run::uname(command, kernel)?;
    let series = series(&uname).with_context(|| format!("not a version of Linux: {uname}"))?;
    let source = source::obtain(&Settings {
        version: settings.version.clone().or_else(|| Some(series.clone())),
        ..settings.clone()
    })?;
    let heading = format!("{uname}; tests of {}", source.version);
    println!("{heading}");
    let chosen = choose(all, settings)?;
    let programs = build::build(&source, &chosen)?;
    let path = folder().join(column::file(&series));
    let mut column = begin(&path, heading, chosen.len() < all.len())?;
    let names: Vec<&str> = all.iter().map(|test| test.name.as_str()).collect();
    column
        .entries
        .retain(|(test, _)| names.contains(&test.as_str()));
    for test in chosen {
        let output = run::run(command, test, &programs, Kernel::Linux(kernel))?;
        if settings.verbose {
            print!("{}", output.text);
        }
        if let Some(end) = &output.bad_end {
            eprintln!("{}: {end}", test.name);
        }
        let subtests = subtests(&output);
        println!("{:<40} {}", test.name, counts(subtests.iter()));
        column.replace(&test.name, subtests, &names);
        fs::write(&path, column.text())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let all = counts(column.entries.iter().map(|(_, subtest)| subtest));
    println!("{FOLDER}/{}: {all}", column::file(&series));
    Ok(())
}

/// Returns the named tests. If no test is named, returns all tests, or those of the slice.
fn choose<'a>(all: &'a [Test], settings: &Settings) -> Result<Vec<&'a Test>> {
    if !settings.tests.is_empty() {
        return named(all, &settings.tests);
    }
    let wanted = |test: &&Test| test.tier <= settings.tier;
    Ok(all.iter().filter(wanted).collect())
}

/// Returns the column to which results are added: the existing column if it is of the same kernel and the same version
/// of the tests, otherwise an empty column. `is_part` means that only some tests will run. The function then fails
/// instead of returning an empty column, which would stay incomplete.
fn begin(path: &Path, kernel: String, is_part: bool) -> Result<Column> {
    if path.exists() {
        let context = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(context)?;
        let column = Column::read(&text).with_context(context)?;
        if column.kernel == kernel {
            return Ok(column);
        }
        ensure!(
            !is_part,
            "{} is of {}: run all tests to replace it",
            path.display(),
            column.kernel
        );
    }
    Ok(Column {
        kernel,
        entries: Vec::new(),
    })
}

/// Returns the series of a kernel, which is the first two numbers of its release, from the output of `uname -srv`.
fn series(uname: &str) -> Option<String> {
    let release = uname.strip_prefix("Linux ")?;
    let (major, rest) = release.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    let numbers = [major, minor];
    let are_numbers = numbers.iter().all(|number| number.parse::<u32>().is_ok());
    are_numbers.then(|| numbers.join("."))
}

/// Returns the subtests of one run. If the program did not exit by itself, appends a failed subtest whose name is the
/// reason for the end.
fn subtests(output: &Output) -> Vec<Subtest> {
    let Some(end) = &output.bad_end else {
        return tap::read(&output.text, output.code);
    };
    let mut subtests = tap::printed(&output.text);
    subtests.push(Subtest {
        number: subtests.iter().map(|one| one.number).max().unwrap_or(0) + 1,
        name: end.clone(),
        ending: Ending::Failed,
    });
    subtests
}

/// Returns a line of text with the number of subtests for each ending.
fn counts<'a>(subtests: impl Iterator<Item = &'a Subtest>) -> String {
    let mut counts = [0; Ending::ALL.len()];
    for subtest in subtests {
        counts[subtest.ending as usize] += 1;
    }
    let words = Ending::ALL.map(|ending| format!("{} {}", counts[ending as usize], ending.word()));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_belongs_to_a_series() {
        for (uname, expected) in [
            ("Linux 7.3.4+deb13-cloud-amd64 #1 SMP", Some("7.3")),
            ("Linux 7.3.0-rc1 #2", Some("7.3")),
            ("Linux 7.10-x #2", Some("7.10")),
            ("Linux seven.3", None),
            ("Linux 7", None),
            ("memwright 7.3", None),
        ] {
            assert_eq!(series(uname).as_deref(), expected, "{uname}");
        }
    }

    #[test]
    fn a_bad_end_is_a_failed_subtest() {
        let output = |text: &str, bad_end: Option<&str>| Output {
            text: text.to_owned(),
            code: Some(0),
            bad_end: bad_end.map(str::to_owned),
        };
        for (text, bad_end, expected) in [
            ("", None, "1 pass, 0 xfail, 0 skip, 0 fail"),
            ("", Some("out of time"), "0 pass, 0 xfail, 0 skip, 1 fail"),
            (
                "ok 1 a\nok 2 b # SKIP\n",
                None,
                "1 pass, 0 xfail, 1 skip, 0 fail",
            ),
            (
                "ok 1 a\nnot ok 2 b # XFAIL\n",
                Some("killed by signal 9"),
                "1 pass, 1 xfail, 0 skip, 1 fail",
            ),
        ] {
            let subtests = subtests(&output(text, bad_end));
            assert_eq!(counts(subtests.iter()), expected, "{text}");
            if let Some(end) = bad_end {
                let last = subtests.last().unwrap();
                assert_eq!(
                    (last.number as usize, last.name.as_str()),
                    (subtests.len(), end)
                );
            }
        }
    }

    #[test]
    fn a_part_of_the_tests_goes_into_a_column_of_the_same_kernel() {
        let folder = std::env::temp_dir().join(format!("memwright-column-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("column");
        let begun = |kernel: &str, is_part| begin(&path, kernel.to_owned(), is_part);
        assert_eq!(begun("Linux 7.3.4", true).unwrap().entries, []);
        let text = "# Linux 7.3.4\ntest\tnumber\tresult\tname\na\t1\tpass\t\n";
        fs::write(&path, text).unwrap();
        assert_eq!(begun("Linux 7.3.4", true).unwrap().entries.len(), 1);
        assert_eq!(begun("Linux 7.3.5", false).unwrap().entries, []);
        let error = begun("Linux 7.3.5", true).unwrap_err().to_string();
        assert!(
            error.contains("is of Linux 7.3.4: run all tests"),
            "{error}"
        );
        fs::remove_dir_all(folder).unwrap();
    }
}
