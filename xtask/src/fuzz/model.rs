//! Compares the memory manager on the simulated machine with the model: runs a test of `memwright-sim` for a given
//! time.

use std::process::Command;

use anyhow::{Result, bail};

use super::Settings;
use crate::shell;

/// Runs a search from each seed in turn, or the named scripts, in an optimised build.
///
/// # Errors
/// If there is a difference, or if the build fails.
pub fn run(settings: &Settings) -> Result<()> {
    run_built(settings, &["--release"])
}

/// Like [`run`], but builds with `options`, which are options of cargo. Without options, runs the binary that the tests
/// use.
pub(super) fn run_built(settings: &Settings, options: &[&str]) -> Result<()> {
    std::fs::create_dir_all(&settings.folder)?;
    for script in &settings.replay {
        let mut command = command(settings, options)?;
        shell::run(command.env("MEMWRIGHT_SCRIPT", std::path::absolute(script)?))?;
    }
    if !settings.replay.is_empty() {
        return Ok(());
    }
    if settings.all_seeds == 0 {
        return search(settings, options, settings.seed, 1);
    }
    let seeds: Vec<String> = settings.seeds.iter().map(u64::to_string).collect();
    println!("seeds: {}", seeds.join(","));
    let mut failed = Vec::new();
    for seed in &settings.seeds {
        println!("seed {seed}");
        // Continue with the other seeds, to report all differences.
        if let Err(error) = search(settings, options, *seed, settings.all_seeds) {
            println!("{error:#}");
            failed.push(seed.to_string());
        }
    }
    if !failed.is_empty() {
        bail!("differences from the seeds {}", failed.join(","));
    }
    Ok(())
}

/// Runs a search from `seed`. `seeds` is the number of all seeds, each of which gets an equal share of the operations
/// and the minutes.
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
