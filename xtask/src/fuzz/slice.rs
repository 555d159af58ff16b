//! The part of the random programs that every change must pass: the same scripts each time.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::script::Abilities;
use super::{Against, Settings, model, replay, search, seeds};
use crate::shell;
use crate::tier::Tier;

/// Operations on the memory manager and the model.
const ON_MODEL: usize = 60_000;
/// Operations on the memory manager and the model in the full tier.
const ALL_ON_MODEL: usize = 1_000_000;
/// Operations on the host's Linux and on Memwright.
const ON_LINUX: usize = 20_000;
/// The reference Linux, by version and release: the rules state its differences. Another version may differ in more
/// ways, which is of interest but no reason to reject a change.
const KNOWN: (u32, u32) = (6, 18);
/// The newer Linux, which has read-write protection by userfaultfd.
const NEWER: &str = "debian:trixie-backports";
/// The features that the kernel of the reference Linux must have, by the interpreter's names. Protection keys depend on the processor.
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

/// How the comparison ended.
pub enum Outcome {
    /// Nothing differs.
    Same,
    /// The host's Linux could not be used, for this reason.
    Skipped(String),
}

/// Compares with the model, over as many operations as the tier has.
///
/// # Errors
/// A difference, or a failed build.
pub fn run_on_model(tier: Tier) -> Result<()> {
    match tier {
        // An optimised build would halve the run, but take longer to build than all of it.
        Tier::Test | Tier::Ci => model::run_built(&Settings::of(Against::Model, ON_MODEL), &[]),
        // New seeds each time, which are printed.
        Tier::Full => model::run(&Settings {
            seeds: seeds::parse("random:20")?,
            ..Settings::of(Against::Model, ALL_ON_MODEL)
        }),
    }
}

/// If the host runs the reference Linux, replays the saved scripts and generates more, on it and on Memwright. The full
/// tier also generates scripts for the newer Linux, if that was added.
///
/// # Errors
/// A difference, a guest that failed, or a failed build.
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

/// Compares with the newer Linux, from a new seed, which is printed.
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

/// Returns why this Linux is not used.
fn refusal(release: &str, abilities: &Abilities) -> Option<String> {
    if version(release) != Some(KNOWN) {
        let (major, minor) = KNOWN;
        return Some(format!("the host runs {release}, not {major}.{minor}"));
    }
    let lacks = NEEDED.iter().find(|name| !abilities.has(name))?;
    Some(format!("the host lacks: {lacks}"))
}

/// Returns the first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns the saved scripts that once found a difference, by name.
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
