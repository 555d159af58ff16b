//! Runs whole programs on Memwright and on Linux, and writes their counts into `docs/programs.md` and
//! `docs/experiments/releases.md`.

mod count;
mod measure;
mod page;
mod releases;
mod script;

use anyhow::{Result, bail, ensure};

use crate::command::{self, Profile};
use crate::experiments::releases::{Release, published};
use crate::install;

/// The task that the arguments select.
#[derive(Debug, Default, PartialEq, Eq)]
struct Task<'a> {
    /// Whether to install the packages of the scripts first.
    install: bool,
    /// Whether to measure only Memwright's columns, and keep those of Linux.
    memwright: bool,
    /// Whether to run only the scripts that run on all releases of Linux.
    releases: bool,
    /// The names of the scripts; none for all.
    names: Vec<&'a str>,
}

fn parse<'a>(words: &[&'a str]) -> Result<Task<'a>> {
    let mut task = Task::default();
    for word in words {
        match *word {
            "--install" => task.install = true,
            "--memwright" => task.memwright = true,
            "--releases" => task.releases = true,
            option if option.starts_with('-') => {
                bail!("workloads [--install] [--memwright] [--releases] [NAME]...")
            }
            name => task.names.push(name),
        }
    }
    Ok(task)
}

/// Runs all scripts, or the chosen ones.
///
/// # Errors
/// If an option is unknown, or if a script failed. The other scripts have run, and their rows have been written.
pub fn run(words: &[&str]) -> Result<()> {
    let task = parse(words)?;
    let mut scripts = script::read(&task.names)?;
    let is_in_table = |name: &str| releases::PROGRAMS.contains(&name);
    scripts.retain(|script| !task.releases || is_in_table(&script.name));
    if task.install {
        let packages = scripts.iter().flat_map(|script| &script.packages);
        install::install_named(&packages.map(String::as_str).collect::<Vec<_>>())?;
        for script in &scripts {
            script.install_python_packages()?;
        }
    }
    let command = command::built(Profile::Release)?;
    let published = published()?;
    let mut failed = 0;
    for script in scripts {
        let versions = match script.versions() {
            Ok(versions) => versions,
            Err(package) => {
                println!("SKIPPED {}: no package {package}", script.name);
                continue;
            }
        };
        let table = is_in_table(&script.name).then_some(published.as_slice());
        let linux = kernels(task.memwright, table);
        let measured = measure::measure(&command, &script, &linux).and_then(|measured| {
            // Write each row at once, because a run of all scripts takes hours.
            page::write(&script, &versions, &measured)?;
            if let Some(releases) = table {
                releases::write(&script.name, &measured, releases)?;
            }
            Ok(measured)
        });
        match measured {
            Ok(measured) => println!("{}", measured.line(&script.name)),
            Err(error) => {
                println!("FAILED {}: {error:#}", script.name);
                failed += 1;
            }
        }
    }
    ensure!(failed == 0, "{failed} programs failed");
    Ok(())
}

/// Returns the kernels of Linux on which a script runs; none if only Memwright is measured. `table` has the kernels of
/// the page about releases, or is `None` if the script has no row in that page.
fn kernels(memwright: bool, table: Option<&[Release]>) -> Vec<&str> {
    match table {
        _ if memwright => Vec::new(),
        None => vec![page::LINUX],
        Some(releases) => releases.iter().map(|one| one.name.as_str()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_choose_scripts_and_columns() {
        let task = parse(&["--releases", "x", "--memwright", "y"]).unwrap();
        let expected = Task {
            install: false,
            memwright: true,
            releases: true,
            names: vec!["x", "y"],
        };
        assert_eq!(task, expected);
        assert_eq!(parse(&[]).unwrap(), Task::default());
        assert!(parse(&["--check"]).is_err());
    }

    #[test]
    fn a_script_runs_on_the_kernels_of_its_tables() {
        let releases = published().unwrap();
        assert_eq!(kernels(false, None), [page::LINUX]);
        assert!(kernels(false, Some(&releases)).contains(&page::LINUX));
        assert_eq!(kernels(true, Some(&releases)), [""; 0]);
    }
}
