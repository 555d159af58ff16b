//! The memory manager on the simulated machine against the model: a test of `memwright-sim` that takes as long as it
//! is told to.

use anyhow::Result;

use super::Settings;
use crate::shell;

/// Runs the search, or the scripts that are named, optimised.
///
/// # Errors
/// A difference, or a build that fails.
pub fn run(settings: &Settings) -> Result<()> {
    run_built(settings, &["--release"])
}

/// The same with these options of cargo. Without any, what the tests' build made is used.
pub(super) fn run_built(settings: &Settings, options: &[&str]) -> Result<()> {
    std::fs::create_dir_all(&settings.folder)?;
    let scripts: Vec<_> = settings.replay.iter().map(Some).collect();
    // Without scripts there is one run, which makes its own.
    let runs = if scripts.is_empty() {
        vec![None]
    } else {
        scripts
    };
    for script in runs {
        let mut command = shell::cargo(["test", "-q"]);
        command
            .args(options)
            .args(["-p", "memwright-sim", "--test", "programs", "--"])
            .args(["--ignored", "--exact", "--nocapture", "as_long_as_asked"]);
        command
            .env("MEMWRIGHT_SEED", settings.seed.to_string())
            .env("MEMWRIGHT_FOLDER", std::path::absolute(&settings.folder)?);
        if let Some(operations) = settings.operations {
            command.env("MEMWRIGHT_OPERATIONS", operations.to_string());
        }
        if let Some(minutes) = settings.minutes {
            command.env("MEMWRIGHT_MINUTES", minutes.to_string());
        }
        if let Some(path) = script {
            command.env("MEMWRIGHT_SCRIPT", std::path::absolute(path)?);
        }
        shell::run(&mut command)?;
    }
    Ok(())
}
