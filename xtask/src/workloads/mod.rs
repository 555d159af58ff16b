//! Runs whole programs on Memwright and on Linux, and writes `docs/programs.md`.

mod measure;
mod page;
mod script;

use anyhow::{Result, ensure};

use crate::command::{self, Profile};
use crate::install;

/// Runs all scripts, or the named ones. With `--install`, installs their packages first.
///
/// # Errors
/// If a script failed. The other scripts have run, and their rows have been written.
pub fn run(words: &[&str]) -> Result<()> {
    let install = words.contains(&"--install");
    let names: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| *word != "--install")
        .collect();
    let scripts = script::read(&names)?;
    if install {
        let packages = scripts.iter().flat_map(|script| &script.packages);
        install::install_named(&packages.map(String::as_str).collect::<Vec<_>>())?;
        for script in &scripts {
            script.install_python_packages()?;
        }
    }
    let command = command::built(Profile::Release)?;
    let mut failed = 0;
    for script in scripts {
        let versions = match script.versions() {
            Ok(versions) => versions,
            Err(package) => {
                println!("SKIPPED {}: no package {package}", script.name);
                continue;
            }
        };
        match measure::measure(&command, &script) {
            Ok(measured) => {
                println!(
                    "{}: kernel instructions {} on Memwright, {} on Linux",
                    script.name, measured.memwright, measured.linux
                );
                // Write each row at once, because a run of all scripts takes most of an hour.
                page::write(&script, &versions, &measured)?;
            }
            Err(error) => {
                println!("FAILED {}: {error:#}", script.name);
                failed += 1;
            }
        }
    }
    ensure!(failed == 0, "{failed} programs failed");
    Ok(())
}
