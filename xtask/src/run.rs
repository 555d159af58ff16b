//! Runs the stages of a tier, continues after a failed stage, and prints the time of each stage next to its budget.

use crate::clock::{Begun, Took};
use crate::suite::{self, Shard, Suite, Totals};
use crate::tier::{HARD_LIMIT, Outcome, Row, STAGES, Stage, Tier};
use crate::{
    architectures, arrows, cases, checks, conformance, dist, experiments, fuzz, house, install,
    miri, mutants, prose, room, shell, size, unsafe_code, walk,
};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

/// A finished stage.
struct Done {
    row: &'static Row,
    took: Took,
    outcome: Outcome,
}

/// The state that a stage passes to later stages.
struct State {
    tier: Tier,
    shard: Shard,
    deadline: Instant,
    suite: Option<Suite>,
    totals: Totals,
    slow: Vec<suite::Slow>,
}

/// Runs every stage of a tier, or of one shard of the full tier.
///
/// # Errors
/// If a stage fails, or if `cargo xtask ci` exceeds its hard time limit.
pub fn run(tier: Tier, shard: Shard) -> Result<()> {
    let begun = Begun::now();
    shell::set_for_cargo(tier.build_environment());
    let mut state = State {
        tier,
        shard,
        deadline: Instant::now() + limit(tier),
        suite: None,
        totals: Totals::default(),
        slow: Vec::new(),
    };
    let mut report = Vec::new();
    for row in STAGES.iter().filter(|row| row.is_in(tier)) {
        // Every shard runs the installation, the build, and its share of the tests. Each other stage belongs to one
        // shard.
        let everywhere = matches!(row.stage, Stage::Install | Stage::Build | Stage::Tests);
        if everywhere || shard.has(row.name) {
            report.push(stage(row, &mut state));
        }
    }
    summary(&report, begun.took(), &state)
}

/// Returns the time limit of a tier: [`HARD_LIMIT`], or eight times this limit for the full tier.
fn limit(tier: Tier) -> Duration {
    match tier {
        Tier::Test | Tier::Ci => HARD_LIMIT,
        Tier::Full => HARD_LIMIT * 8,
    }
}

fn stage(row: &'static Row, state: &mut State) -> Done {
    eprintln!("\n### {}", row.name);
    let begun = Begun::now();
    let outcome =
        work(row.stage, state).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
    let took = begun.took();
    if let Outcome::Failed(why) = &outcome {
        eprintln!("### {} failed: {why}", row.name);
    }
    let seconds = took.clock.as_secs_f64();
    eprintln!("### {}: {seconds:.1} s", row.name);
    if let Some(budget) = row.budget(state.tier).filter(|budget| took.clock > *budget) {
        let budget = budget.as_secs();
        eprintln!(
            "### {} is over its budget: {seconds:.0} s of {budget}",
            row.name
        );
    }
    Done { row, took, outcome }
}

fn work(stage: Stage, state: &mut State) -> Result<Outcome> {
    let (tier, deadline) = (state.tier, state.deadline);
    match stage {
        Stage::Install => {
            room::check()?;
            install::install()?;
            if tier != Tier::Test {
                install::install_packages(&[install::CHROMIUM, install::MANPAGES, install::MAN])?;
                install::install_packages(install::SLURM)?;
                install::install_packages(install::QEMU_ARM)?;
                install::rust_target(install::ARM_TARGET)?;
                install::install_packages(install::QEMU_RISCV)?;
                install::rust_target(install::RISCV_TARGET)?;
            }
            Ok(Outcome::Passed)
        }
        Stage::Format => checks::format(deadline),
        Stage::HostLints => checks::host_lints(deadline),
        Stage::KernelLints => checks::kernel_lints(deadline),
        Stage::Documentation => checks::documentation(deadline),
        Stage::OldestCompiler => checks::oldest_compiler(deadline),
        Stage::Build => {
            state.suite = Some(Suite::build(tier)?);
            Ok(Outcome::Passed)
        }
        Stage::Tests => tests(state),
        Stage::DocumentationTests => {
            let before = state.totals.failed;
            suite::run_examples(&mut state.totals)?;
            Ok(failures(&state.totals, before))
        }
        Stage::Unsafe => unsafe_code::run().map(|()| Outcome::Passed),
        Stage::Arrows => arrows::run(&[]).map(|()| Outcome::Passed),
        Stage::Walks => walk::run(&[]).map(|()| Outcome::Passed),
        Stage::Prose => prose::run(),
        Stage::House => house::run(&[]).map(|()| Outcome::Passed),
        Stage::Size => size::run(&[]).map(|()| Outcome::Passed),
        Stage::Features => size::matrix::run(&[]).map(|()| Outcome::Passed),
        Stage::Miri => Ok(match miri::run()? {
            miri::Outcome::Passed => Outcome::Passed,
            miri::Outcome::Skipped(why) => Outcome::Skipped(why.to_owned()),
        }),
        Stage::FuzzTargets => {
            let folder = shell::target_folder().join("fuzz");
            Ok(match fuzz::coverage::run_kept(&folder)? {
                fuzz::coverage::Outcome::Clean => Outcome::Passed,
                fuzz::coverage::Outcome::Skipped(why) => Outcome::Skipped(why.to_owned()),
            })
        }
        Stage::ModelSlice => fuzz::slice::run_on_model(tier).map(|()| Outcome::Passed),
        Stage::LinuxSlice => Ok(match fuzz::slice::run_on_linux(tier)? {
            fuzz::slice::Outcome::Same => Outcome::Passed,
            fuzz::slice::Outcome::Skipped(why) => Outcome::Skipped(why),
        }),
        Stage::Architectures => match tier {
            Tier::Test | Tier::Ci => architectures::run(&[]),
            Tier::Full => architectures::run(&["--all"]),
        }
        .map(|()| Outcome::Passed),
        Stage::Mistakes => mutants::run(&[]).map(|()| Outcome::Passed),
        Stage::Selftests => selftests(tier, &[]),
        Stage::SelftestsByFaults => selftests(tier, &["track=fault"]),
        Stage::Package => dist::stage(),
        Stage::Figures => figures(tier),
    }
}

fn tests(state: &mut State) -> Result<Outcome> {
    let suite = state.suite.as_ref().context("nothing was built")?;
    let before = state.totals.failed;
    let until = state.deadline;
    state.slow = suite.run(state.tier, state.shard, until, &mut state.totals)?;
    let outcome = failures(&state.totals, before);
    if state.tier == Tier::Ci
        && let Some((name, why)) = state.totals.skipped.iter().find(|(_, why)| installed(why))
    {
        return Ok(Outcome::Failed(format!(
            "{name} was skipped because something is missing that this task installs: {why}"
        )));
    }
    Ok(outcome)
}

/// Returns whether the reason for skipping a test names a tool or package that `cargo xtask ci` installs. In `cargo
/// xtask ci`, such a skip fails the stage of the tests.
fn installed(why: &str) -> bool {
    [
        "chromium",
        "busybox",
        "stress-ng",
        "a C compiler",
        "manpages-dev",
        "munge",
        "slurm",
        "qemu-system",
        "opensbi",
        "the Rust target",
    ]
    .iter()
    .any(|thing| why.contains(thing))
}

fn failures(totals: &Totals, before: u64) -> Outcome {
    match totals.failed - before {
        0 => Outcome::Passed,
        count => Outcome::Failed(format!("{count} failed")),
    }
}

/// Checks the published figures: all in the full tier, otherwise a slice that the commit selects.
fn figures(tier: Tier) -> Result<Outcome> {
    match tier {
        Tier::Test | Tier::Ci => {
            experiments::check(experiments::Part::Slice(experiments::head()))?;
        }
        Tier::Full => {
            experiments::check(experiments::Part::All)?;
            cases::run(&["--check"])?;
        }
    }
    Ok(Outcome::Passed)
}

/// Runs those of Linux's mm selftests that the tier contains, on Memwright with `policies`. Skips the tests if their
/// sources are not available.
fn selftests(tier: Tier, policies: &[&str]) -> Result<Outcome> {
    Ok(match conformance::run_in(tier, policies)? {
        conformance::Outcome::NoSource(why) => Outcome::Skipped(format!("no source: {why}")),
        conformance::Outcome::Ran(totals) => {
            println!("{}", totals.passes());
            println!("{}", totals.line());
            totals.complaint().map_or(Outcome::Passed, Outcome::Failed)
        }
    })
}

fn summary(report: &[Done], all: Took, state: &State) -> Result<()> {
    if !state.slow.is_empty() {
        println!("\nthe slowest tests");
        println!("{:>8} {:>10}", "seconds", "processor");
        for slow in &state.slow {
            println!("{}", slow.line());
        }
    }
    println!(
        "\n{:<30} {:>8} {:>8} {:>10}",
        "stage", "budget", "seconds", "processor"
    );
    let mut totals = state.totals.clone();
    let mut failed = Vec::new();
    for Done { row, took, outcome } in report {
        let budget = row.budget(state.tier);
        let mut words = match outcome {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Skipped(why) => {
                totals.skipped.push((row.name.to_owned(), why.clone()));
                format!("SKIPPED: {why}")
            }
            Outcome::Failed(why) => {
                failed.push(row.name);
                format!("FAILED: {why}")
            }
        };
        if budget.is_some_and(|budget| took.clock > budget) {
            words.push_str(", OVER ITS BUDGET");
        }
        println!("{}  {words}", line(row.name, budget, *took));
    }
    let budget = state.tier.budget();
    let over = budget.is_some_and(|budget| all.clock > budget);
    let words = if over { "  OVER THE BUDGET" } else { "" };
    println!("{}{words}\n", line("all", budget, all));
    print!("{}", totals.lines());
    if state.tier == Tier::Ci && all.clock > HARD_LIMIT {
        let minutes = HARD_LIMIT.as_secs() / 60;
        bail!(
            "took {:.0} minutes, more than {minutes}",
            all.clock.as_secs_f64() / 60.0
        );
    }
    if !failed.is_empty() {
        bail!("stages that failed: {}", failed.join("; "));
    }
    Ok(())
}

fn line(name: &str, budget: Option<Duration>, took: Took) -> String {
    let budget = budget.map_or("-".to_owned(), |budget| budget.as_secs().to_string());
    format!(
        "{name:<30} {budget:>8} {:>8.1} {:>10.1}",
        took.clock.as_secs_f64(),
        took.processor.as_secs_f64()
    )
}
