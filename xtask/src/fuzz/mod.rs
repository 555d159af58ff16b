//! `cargo xtask fuzz`: checks that random programs of memory operations have the same results on the memory manager and
//! on the model, or on Linux and on Memwright.

pub mod coverage;
mod history;
mod model;
mod older;
mod random;
mod report;
mod rules;
mod script;
mod seeds;
mod sequences;
mod shrink;
mod sides;
pub mod slice;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::random::Random;
use self::report::{Outcome, Verdict};
use self::rules::Rule;
use self::script::{Abilities, Script};
use self::sides::Sides;
use crate::shell;
use crate::suite::Shard;

/// The default duration in minutes, if neither minutes nor operations are given.
const MINUTES: f64 = 1.0;
/// The number of scripts that one guest runs.
const BATCH: usize = 400;
/// The approximate number of operations of a script.
const LENGTH: u64 = 40;
/// The maximum number of attempts to shrink one script. Each boots a guest.
const TRIES: u32 = 150;
/// The default number of differences that are shrunk and printed. All differences are counted.
const SHOWN: usize = 5;

/// The two sides of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Against {
    /// The memory manager on the simulated machine, and the model.
    Model,
    /// The host's Linux on both sides, to measure how many of its results are the same in two runs.
    Host,
    /// The host's Linux, and Memwright under QEMU.
    HostAndGuest,
    /// A Linux kernel, by its name in `memwright kernels`, and Memwright, both under QEMU.
    Linux(String),
}

impl Against {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "model" => Self::Model,
            "host" => Self::Host,
            "host-and-guest" => Self::HostAndGuest,
            _ => match text.strip_prefix("linux=") {
                Some(kernel) => Self::Linux(kernel.to_owned()),
                None => bail!("--against model|host|host-and-guest|linux=NAME, not {text}"),
            },
        })
    }
}

struct Settings {
    against: Against,
    minutes: Option<f64>,
    /// The number of operations after which the search ends; `None` for no limit.
    operations: Option<usize>,
    seed: u64,
    /// The seeds of the searches against the model, which run one after another. They replace `seed`.
    seeds: Vec<u64>,
    /// The number of seeds of the complete search. `seeds` can be a part of them.
    all_seeds: usize,
    /// The CPUs, the memory and the number of calls for the target `sequences`.
    guest: sequences::Guest,
    shown: usize,
    folder: PathBuf,
    replay: Vec<PathBuf>,
    /// A fuzzing target that runs instead of a comparison.
    target: Option<String>,
}

impl Settings {
    /// Returns settings for a comparison over `operations` operations, with scripts from seed 1.
    fn of(against: Against, operations: usize) -> Self {
        Self {
            against,
            minutes: None,
            operations: Some(operations),
            seed: 1,
            seeds: Vec::new(),
            all_seeds: 0,
            guest: sequences::Guest::default(),
            shown: SHOWN,
            folder: shell::target_folder().join("fuzz"),
            replay: Vec::new(),
            target: None,
        }
    }

    fn parse(arguments: &[&str]) -> Result<Self> {
        let mut settings = Self {
            operations: None,
            ..Self::of(Against::HostAndGuest, 0)
        };
        let (mut seeds, mut shard) = (None, None);
        let mut rest = arguments.iter();
        while let Some(&option) = rest.next() {
            let mut value = || {
                rest.next()
                    .copied()
                    .with_context(|| format!("{option} needs a value"))
            };
            match option {
                "--against" => {
                    settings.against = Against::parse(value()?)?;
                }
                "--minutes" => settings.minutes = Some(value()?.parse().context("--minutes")?),
                "--operations" => {
                    settings.operations = Some(value()?.parse().context("--operations")?);
                }
                "--seed" => settings.seed = value()?.parse().context("--seed")?,
                "--seeds" => seeds = Some(value()?),
                "--shard" => {
                    let text = value()?;
                    let part = Shard::parse(text);
                    shard =
                        Some(part.with_context(|| {
                            format!("--shard I/N, with I from 1 to N, not {text}")
                        })?);
                }
                "--cpus" => settings.guest.cpus = value()?.parse().context("--cpus")?,
                "--memory" => settings.guest.memory = value()?.to_owned(),
                "--calls" => settings.guest.calls = value()?.parse().context("--calls")?,
                "--show" => settings.shown = value()?.parse().context("--show")?,
                "--target" => settings.target = Some(value()?.to_owned()),
                "--keep" => settings.folder = value()?.into(),
                _ if option.starts_with('-') => bail!("no such option: {option}"),
                path => settings.replay.push(path.into()),
            }
        }
        settings.take_seeds(seeds, shard)?;
        Ok(settings)
    }

    /// Sets the seeds that `--seeds` names, or the part of them that `--shard` selects.
    fn take_seeds(&mut self, seeds: Option<&str>, shard: Option<Shard>) -> Result<()> {
        if shard.is_some() {
            ensure!(
                self.against == Against::Model && self.target.is_none() && self.replay.is_empty(),
                "--shard divides the seeds of a search with --against model"
            );
            let text = seeds.context("--shard needs --seeds, which it divides")?;
            ensure!(
                !seeds::are_random(text),
                "--shard: every part would draw other seeds; name them: --seeds 1-100"
            );
        }
        if let Some(text) = seeds {
            let all = seeds::parse(text)?;
            self.all_seeds = all.len();
            self.seeds = shard.unwrap_or(Shard::WHOLE).share(all);
        }
        Ok(())
    }

    /// Builds the programs that the comparison runs.
    fn sides(&self) -> Result<Sides> {
        let kernel = match &self.against {
            Against::Linux(kernel) => Some(kernel.as_str()),
            Against::Model | Against::Host | Against::HostAndGuest => None,
        };
        Sides::prepare(&self.folder, kernel)
    }

    /// Returns the deadline, or `None` if only a number of operations is given.
    fn end(&self) -> Option<Instant> {
        let given = match self.operations {
            Some(_) => self.minutes,
            None => Some(self.minutes.unwrap_or(MINUTES)),
        };
        given.map(|minutes| Instant::now() + Duration::from_secs_f64(minutes * 60.0))
    }
}

/// Runs generated scripts, or the scripts that `arguments` names, on both sides, and compares the results.
///
/// # Errors
/// If there is a difference, if a guest fails, or if the arguments are invalid.
pub fn run(arguments: &[&str]) -> Result<()> {
    let settings = Settings::parse(arguments)?;
    if settings.target.as_deref() == Some("sequences") {
        return sequences::run(&settings.guest, settings.seed);
    }
    if let Some(target) = &settings.target {
        return coverage::run(&settings, target);
    }
    if settings.against == Against::Model {
        return model::run(&settings);
    }
    let sides = settings.sides()?;
    if settings.replay.is_empty() {
        search(&sides, &settings)
    } else {
        replay(&sides, &settings.replay)
    }
}

/// Generates scripts until the limit is reached, and compares their results on both sides.
fn search(sides: &Sides, settings: &Settings) -> Result<()> {
    let (referee, guest) = (sides.referee_abilities()?, sides.guest_abilities()?);
    let abilities = Abilities(referee.0.intersection(&guest.0).cloned().collect());
    let clock = Clock::start();
    let end = settings.end();
    let mut random = Random::new(settings.seed);
    let mut summary = Summary::default();
    loop {
        let scripts: Vec<Script> = (0..BATCH)
            .map(|_| Script::random(&mut random, LENGTH, &abilities))
            .collect();
        round(sides, &scripts, settings, &mut summary)?;
        println!(
            "{} scripts, {} operations, {} results by a rule, {} unstable, {} differences",
            summary.scripts,
            summary.operations,
            summary.stated.values().sum::<usize>(),
            summary.unstable,
            summary.differences
        );
        let enough = settings.operations;
        if end.is_some_and(|end| Instant::now() >= end)
            || enough.is_some_and(|enough| summary.operations >= enough)
        {
            break;
        }
    }
    summary.print(&settings.against);
    println!("{clock}");
    let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    let lacks = guest.0.difference(&referee.0).cloned().collect();
    println!("both have: {}", list(&abilities.0));
    println!("not compared, because Linux lacks it: {}", list(&lacks));
    if summary.differences > 0 {
        bail!("{} scripts came to something else", summary.differences);
    }
    Ok(())
}

/// Runs one batch of scripts on both sides.
fn round(
    sides: &Sides,
    scripts: &[Script],
    settings: &Settings,
    summary: &mut Summary,
) -> Result<()> {
    let referee = sides.on_referee(scripts)?;
    let again = if sides.varies() {
        sides.on_referee(scripts)?
    } else {
        referee.clone()
    };
    let guest = match settings.against {
        Against::HostAndGuest | Against::Linux(_) => sides.on_guest(scripts)?,
        Against::Host | Against::Model => again.clone(),
    };
    for (index, script) in scripts.iter().enumerate() {
        // Skip a script whose result differs when the host runs it again.
        if referee[index] != again[index] {
            summary.unstable += 1;
            continue;
        }
        // Linux 6.18 loops forever when it installs a guard on a page of a file that a userfaultfd has write-protected.
        if !referee[index].has_ended() {
            summary.endless += 1;
            continue;
        }
        summary.count(script, &referee[index], &guest[index]);
        if report::first_difference(&referee[index], &guest[index]).is_none() {
            continue;
        }
        summary.differences += 1;
        if summary.differences <= settings.shown {
            let name = format!("seed-{}-{}", settings.seed, summary.scripts);
            explain(sides, script, &settings.folder.join(name))?;
        }
    }
    Ok(())
}

/// Shrinks a script with a difference, saves it, and prints both results.
fn explain(sides: &Sides, script: &Script, path: &Path) -> Result<()> {
    let differs = |candidate: &Script| {
        let one = [candidate.clone()];
        let (referee, guest) = (sides.on_referee(&one)?, sides.on_guest(&one)?);
        // A shorter script that does not end on Linux is rejected, because its results are incomplete.
        let ended = referee[0].has_ended();
        Ok(ended && report::first_difference(&referee[0], &guest[0]).is_some())
    };
    let short = shrink::shrink(script, TRIES, differs)?;
    let one = [short.clone()];
    let (referee, guest) = (sides.on_referee(&one)?, sides.on_guest(&one)?);
    let path = path.with_extension("script");
    std::fs::write(&path, format!("{}\n", short.lines.join("\n")))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("difference, kept as {}:", path.display());
    show(&referee[0], &guest[0]);
    Ok(())
}

fn show(referee: &Outcome, guest: &Outcome) {
    for result in &referee.results {
        println!("    {result}");
        if report::first_difference(referee, guest).is_some_and(|(one, _)| one == Some(result)) {
            break;
        }
    }
    if let Some((one, other)) = report::first_difference(referee, guest) {
        println!("  linux:     {}", one.unwrap_or("nothing"));
        println!("  memwright: {}", other.unwrap_or("nothing"));
    }
}

/// Runs saved scripts. Skips those that need a feature that the referee lacks.
fn replay(sides: &Sides, paths: &[PathBuf]) -> Result<()> {
    let abilities = sides.referee_abilities()?;
    let mut failed = 0;
    for path in paths {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let one = [Script::parse(&text)];
        if let Some(missing) = one[0].lacks(&abilities) {
            println!("SKIPPED {}: Linux lacks: {missing}", path.display());
            continue;
        }
        let (referee, guest) = (sides.on_referee(&one)?, sides.on_guest(&one)?);
        let same = report::first_difference(&referee[0], &guest[0]).is_none();
        println!(
            "{}: {}",
            path.display(),
            if same { "same" } else { "different" }
        );
        if !same {
            failed += 1;
            show(&referee[0], &guest[0]);
        }
    }
    if failed > 0 {
        bail!("{failed} scripts came to something else");
    }
    Ok(())
}

/// The summary of the comparisons.
#[derive(Default)]
struct Summary {
    scripts: usize,
    operations: usize,
    /// The number of results that differ as a rule predicts, by rule.
    stated: BTreeMap<Rule, usize>,
    unstable: usize,
    endless: usize,
    differences: usize,
    /// The number of times that one operation directly followed another. The key contains the names of both operations.
    pairs: BTreeMap<(String, String), usize>,
}

impl Summary {
    fn count(&mut self, script: &Script, referee: &Outcome, guest: &Outcome) {
        self.scripts += 1;
        self.operations += script.lines.len();
        let length = referee.results.len();
        for (index, other) in guest.results.iter().take(length).enumerate() {
            match report::compare(referee, index, other) {
                Verdict::Stated(rule) => {
                    *self.stated.entry(rule).or_default() += 1;
                    if rule.ends() {
                        break;
                    }
                }
                // Stop at the first difference, because later ones may result from it.
                Verdict::Different => break,
                Verdict::Same => {}
            }
        }
        let names: Vec<&str> = script
            .lines
            .iter()
            .filter_map(|line| line.split(' ').nth(1))
            .collect();
        for pair in names.windows(2) {
            let pair = (pair[0].to_owned(), pair[1].to_owned());
            *self.pairs.entry(pair).or_default() += 1;
        }
    }

    fn print(&self, against: &Against) {
        let names: BTreeSet<&String> = self
            .pairs
            .keys()
            .flat_map(|(one, other)| [one, other])
            .collect();
        let between = match against {
            Against::Model => "on the memory manager and the model",
            Against::Host => "on the host, twice",
            Against::HostAndGuest => "on the host's Linux and on Memwright",
            Against::Linux(kernel) => &format!("on {kernel} and on Memwright"),
        };
        println!(
            "{} scripts of {} operations {between}; left out: {} unstable on Linux, {} that it did not end",
            self.scripts, self.operations, self.unstable, self.endless
        );
        println!(
            "{} of {} pairs of {} operations came one after the other",
            self.pairs.len(),
            names.len() * names.len(),
            names.len(),
        );
        for rule in Rule::ALL {
            let results = self.stated.get(&rule).copied().unwrap_or_default();
            println!("{results:>8}  {}", rule.name());
        }
        println!("{:>8}  scripts differ otherwise", self.differences);
    }
}

/// Measures wall-clock and processor time.
struct Clock {
    start: Instant,
    ticks: u64,
}

impl Clock {
    fn start() -> Self {
        Self {
            start: Instant::now(),
            ticks: ticks(),
        }
    }
}

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.start.elapsed().as_secs_f64();
        let busy = (ticks() - self.ticks) as f64 / TICKS;
        write!(f, "{seconds:.0} seconds, {busy:.0} seconds of processors")
    }
}

/// The number of ticks per second in `/proc/self/stat` on x86-64 Linux.
const TICKS: f64 = 100.0;

/// Returns the user and system time, in ticks, of this process and of the children that it has waited for; 0 if
/// unknown.
fn ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let numbers = after_name.split_whitespace().skip(11).take(4);
    numbers
        .filter_map(|number| number.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> Result<Settings> {
        Settings::parse(&line.split(' ').collect::<Vec<_>>())
    }

    #[test]
    fn parts_share_the_seeds_and_the_operations() {
        let mut found = Vec::new();
        for part in ["1/3", "2/3", "3/3"] {
            let line = format!("--against model --seeds 1-4,9 --shard {part}");
            let one = settings(&line).unwrap();
            assert_eq!(one.all_seeds, 5);
            found.extend(one.seeds);
        }
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3, 4, 9]);
        let spare = settings("--against model --seeds 1,2 --shard 3/3").unwrap();
        assert_eq!((spare.seeds.len(), spare.all_seeds), (0, 2));
    }

    #[test]
    fn parts_that_cannot_be_are_refused() {
        for (line, part) in [
            ("--against model --shard 1/2", "needs --seeds"),
            (
                "--against model --seeds random:9 --shard 1/2",
                "would draw other seeds",
            ),
            ("--against model --seeds 1-9 --shard 0/0", "not 0/0"),
            ("--against model --seeds 1-9 --shard 5/3", "not 5/3"),
            ("--seeds 1-9 --shard 1/3", "--against model"),
            (
                "--against model --seeds 1-9 --shard 1/3 a.script",
                "--against model",
            ),
        ] {
            let error = settings(line).map(|_| ()).unwrap_err();
            assert!(format!("{error:#}").contains(part), "{line}: {error:#}");
        }
    }
}
