//! The memory manager on the simulated machine against the model: runs a test of `memwright-sim` for a given time.

use std::process::Command;

use anyhow::{Result, bail};

use super::Settings;
use crate::shell;

/// Runs the search from each seed in turn, or the named scripts, in an optimised build.
///
/// # Errors
/// A difference, or a failed build.
pub fn run(settings: &Settings) -> Result<()> {
    run_built(settings, &["--release"])
}

/// Like `run`, from a build with these options of cargo. Without options, runs the binary that the tests built.
pub(super) fn run_built(settings: &Settings, options: &[&str]) -> Result<()> {
    std::fs::create_dir_all(&settings.folder)?;
    for script in &settings.replay {
        let mut command = command(settings, options)?;
        shell::run(command.env("MEMWRIGHT_SCRIPT", std::path::absolute(script)?))?;
    }
    if !settings.replay.is_empty() {
        return Ok(());
    }
    if settings.seeds.is_empty() {
        return search(settings, options, settings.seed, 1);
    }
    let seeds: Vec<String> = settings.seeds.iter().map(u64::to_string).collect();
    println!("seeds: {}", seeds.join(","));
    let mut failed = Vec::new();
    for seed in &settings.seeds {
        println!("seed {seed}");
        // Continue with the other seeds: each difference is worth knowing.
        if let Err(error) = search(settings, options, *seed, settings.seeds.len()) {
            println!("{error:#}");
            failed.push(seed.to_string());
        }
    }
    if !failed.is_empty() {
        bail!("differences from the seeds {}", failed.join(","));
    }
    Ok(())
}

/// Searches from one of `seeds` seeds, which share the operations and the minutes.
fn search(settings: &Settings, options: &[&str], seed: u64, seeds: usize) -> Result<()> {
    let mut command = command(settings, options)?;
    command.env("MEMWRIGHT_SEED", seed.to_string());
    if let Some(operations) = settings.operations {
        let share = operations.div_ceil(seeds);
        command.env("MEMWRIGHT_OPERATIONS", share.to_string());
    }
    if let Some(minutes) = settings.minutes {
        command.env("MEMWRIGHT_MINUTES", (minutes / seeds as f64).to_string());
    }
    shell::run(&mut command)
}

fn command(settings: &Settings, options: &[&str]) -> Result<Command> {
    let mut command = shell::cargo(["test", "-q"]);
    command
        .args(options)
        .args(["-p", "memwright-sim", "--test", "programs", "--"])
        .args(["--ignored", "--exact", "--nocapture", "as_long_as_asked"])
        .env("MEMWRIGHT_FOLDER", std::path::absolute(&settings.folder)?);
    Ok(command)
}
