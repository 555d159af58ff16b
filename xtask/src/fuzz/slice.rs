//! Runs the random programs that every change must pass. Except in the full tier, they are the same in every run.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::script::Abilities;
use super::{Against, Settings, model, replay, search, seeds};
use crate::shell;
use crate::tier::Tier;

/// The number of operations on the memory manager and the model, except in the full tier.
const ON_MODEL: usize = 60_000;
/// The number of operations on the memory manager and the model in the full tier.
const ALL_ON_MODEL: usize = 1_000_000;
/// The number of operations on Linux and on Memwright.
const ON_LINUX: usize = 20_000;
/// The major and minor version of the reference Linux. The rules predict its differences. Another version may have more
/// differences, which are no reason to reject a change.
const KNOWN: (u32, u32) = (6, 18);
/// The name of the newer Linux, which supports read-write protection by userfaultfd.
const NEWER: &str = "debian:trixie-backports";
/// The features that the reference Linux must have, as the interpreter names them. Protection keys are not among them,
/// because they depend on the processor.
const NEEDED: [&str; 10] = [
    "events",
    "guard",
    "minor",
    "move",
    "poison",
    "scan",
    "seal",
    "watch",
    "watch-async",
    "watch-unpopulated",
];

/// The outcome of the comparison.
pub enum Outcome {
    /// There is no difference.
    Same,
    /// The host's Linux is not a suitable referee, for this reason.
    Skipped(String),
}

/// Compares the memory manager with the model, over the number of operations for the tier.
///
/// # Errors
/// If there is a difference, or if the build fails.
pub fn run_on_model(tier: Tier) -> Result<()> {
    match tier {
        // An optimised build would halve the time of the run, but would itself take longer than the whole run.
        Tier::Test | Tier::Ci => model::run_built(&Settings::of(Against::Model, ON_MODEL), &[]),
        // The seeds are new each time, and are printed.
        Tier::Full => {
            let mut settings = Settings::of(Against::Model, ALL_ON_MODEL);
            settings.take_seeds(Some("random:20"), None)?;
            model::run(&settings)
        }
    }
}

/// If the host runs the reference Linux, runs the saved scripts and generated ones on that Linux and on Memwright. In
/// the full tier, also compares with the newer Linux, if its kernel was added.
///
/// # Errors
/// If there is a difference, if a guest fails, or if the build fails.
pub fn run_on_linux(tier: Tier) -> Result<Outcome> {
    if tier == Tier::Full {
        run_on_newer()?;
    }
    let settings = Settings::of(Against::HostAndGuest, ON_LINUX);
    let sides = settings.sides()?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if let Some(why) = refusal(release.trim(), &sides.referee_abilities()?) {
        return Ok(Outcome::Skipped(format!("with Linux: {why}")));
    }
    replay(&sides, &kept()?)?;
    search(&sides, &settings)?;
    Ok(Outcome::Same)
}

/// Compares Memwright with the newer Linux. The seed is new each time, and is printed.
fn run_on_newer() -> Result<()> {
    let against = Against::Linux(NEWER.to_owned());
    let mut settings = Settings::of(against, ON_LINUX);
    let sides = settings.sides()?;
    if !sides.has_kernel() {
        println!("SKIPPED random programs on {NEWER}: it was not added");
        return Ok(());
    }
    settings.seed = seeds::parse("random:1")?[0];
    println!("seed {}", settings.seed);
    search(&sides, &settings)
}

/// Returns the reason why this Linux cannot be the referee; `None` if it can.
fn refusal(release: &str, abilities: &Abilities) -> Option<String> {
    if version(release) != Some(KNOWN) {
        let (major, minor) = KNOWN;
        return Some(format!("the host runs {release}, not {major}.{minor}"));
    }
    let lacks = NEEDED.iter().find(|name| !abilities.has(name))?;
    Some(format!("the host lacks: {lacks}"))
}

/// Returns the first two numbers of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns the paths of the saved scripts, each of which once found a difference, in the order of their names.
fn kept() -> Result<Vec<PathBuf>> {
    let folder = shell::root().join("programs/fuzz/scripts");
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::script::Script;

    #[test]
    fn only_a_linux_that_is_known_is_asked() {
        let all = Abilities::parse(&NEEDED.join("\n"));
        let fewer = Abilities::parse(&NEEDED[1..].join("\n"));
        for (release, abilities, asked) in [
            ("6.18.44-fc", &all, true),
            ("6.18-rc1", &all, true),
            ("7.2.0", &all, false),
            ("6.17.9", &all, false),
            ("5.19.0", &all, false),
            ("6.18.44", &fewer, false),
            ("", &all, false),
        ] {
            assert_eq!(refusal(release, abilities).is_none(), asked, "{release}");
        }
    }

    #[test]
    fn scripts_that_are_kept_say_what_they_show() {
        let paths = kept().unwrap();
        assert!(!paths.is_empty());
        for path in paths {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("# "), "{}", path.display());
            let script = Script::parse(&text);
            let whole = script.without(0, 0).is_some_and(|same| same == script);
            assert!(whole && !script.lines.is_empty(), "{}", path.display());
        }
    }
}
