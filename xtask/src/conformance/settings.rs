//! The options of `cargo xtask conformance`.

use crate::tier::Tier;
use anyhow::{Context, Result, bail, ensure};
use std::path::PathBuf;

/// The default suites of Debian's archive in which the sources are searched for.
const SUITES: &str = "unstable,testing,trixie-backports";

/// The kernel series whose tests are in the lists, and whose column is the reference.
pub const VERSION: &str = "7.3";

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The names of the suites of the archive.
    pub suites: Vec<String>,
    /// The kernel series of the sources, which is the first two numbers of the version; `None` for [`VERSION`].
    pub version: Option<String>,
    /// The Linux kernel whose column is written, with `--reference`.
    pub reference: Option<String>,
    /// The two columns that are compared, with `--against`.
    pub against: Option<(String, String)>,
    /// The archive of kernel sources that is used instead of a package.
    pub source: Option<PathBuf>,
    /// Whether the archive is searched for a newer package even if the cache has one.
    pub newest: bool,
    /// The tier whose tests run: all, or with `--slice` those of CI.
    pub tier: Tier,
    /// Whether the output of the tests is printed.
    pub verbose: bool,
    /// The policies of Memwright with which all tests run.
    pub policies: Vec<String>,
    /// The names of the tests to run; empty for the default.
    pub tests: Vec<String>,
}

impl Settings {
    /// Parses the arguments. `variable` returns the value of an environment variable. Arguments override environment
    /// variables.
    ///
    /// # Errors
    /// If an option is unknown or lacks its value.
    pub fn parse(arguments: &[&str], variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut suites = variable("MEMWRIGHT_LINUX_SUITES").unwrap_or_else(|| SUITES.to_owned());
        let mut settings = Self {
            suites: Vec::new(),
            version: variable("MEMWRIGHT_LINUX_VERSION"),
            reference: None,
            against: None,
            source: variable("MEMWRIGHT_LINUX_SOURCE").map(PathBuf::from),
            newest: false,
            tier: Tier::Full,
            verbose: false,
            policies: Vec::new(),
            tests: Vec::new(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next().copied();
                value.with_context(|| format!("{word} needs a value"))
            };
            match *word {
                "--suites" => suites = value()?.to_owned(),
                "--version" => settings.version = Some(value()?.to_owned()),
                "--reference" => settings.reference = Some(value()?.to_owned()),
                "--against" => settings.against = Some(pair(value()?)?),
                "--source" => settings.source = Some(value()?.into()),
                "--newest" => settings.newest = true,
                "--slice" => settings.tier = Tier::Ci,
                "--verbose" => settings.verbose = true,
                "--policy" => settings.policies.push(value()?.to_owned()),
                option if option.starts_with('-') => bail!("conformance has no option {option}"),
                test => settings.tests.push(test.to_owned()),
            }
        }
        settings.suites = suites.split(',').map(str::to_owned).collect();
        ensure!(
            settings.reference.is_none() || settings.policies.is_empty(),
            "--reference: Linux has no --policy"
        );
        ensure!(
            settings.against.is_none() || arguments.len() == 2,
            "--against goes with no other option and no test"
        );
        Ok(settings)
    }

    /// Returns the kernel series of the sources.
    pub fn series(&self) -> &str {
        self.version.as_deref().unwrap_or(VERSION)
    }
}

/// Splits the argument of `--against` into the names of two columns.
fn pair(text: &str) -> Result<(String, String)> {
    let pair = text.split_once(',').filter(|(_, b)| !b.contains(','));
    let (a, b) = pair.with_context(|| format!("--against A,B, not {text}"))?;
    Ok((a.to_owned(), b.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_outdo_the_environment() {
        let environment = |name: &str| match name {
            "MEMWRIGHT_LINUX_SUITES" => Some("sid".to_owned()),
            "MEMWRIGHT_LINUX_VERSION" => Some("6.12".to_owned()),
            _ => None,
        };
        let settings = Settings::parse(&["cow", "--version", "7.2"], environment).unwrap();
        assert_eq!(settings.suites, ["sid"]);
        assert_eq!(settings.series(), "7.2");
        assert_eq!(settings.tests, ["cow"]);
        let settings = Settings::parse(&["--suites", "a,b", "--newest"], environment).unwrap();
        assert_eq!(settings.suites, ["a", "b"]);
        assert_eq!(settings.series(), "6.12");
        assert!(settings.newest && settings.tier == Tier::Full);
        let policies = ["--policy", "track=fault", "--policy", "flush=full"];
        let settings = Settings::parse(&policies, environment).unwrap();
        assert_eq!(settings.policies, ["track=fault", "flush=full"]);
    }

    #[test]
    fn a_kernel_or_two_columns_may_be_named() {
        let parse = |words: &[&str]| Settings::parse(words, |_| None).unwrap();
        let settings = parse(&["--reference", "debian:unstable", "cow"]);
        assert_eq!(settings.reference.as_deref(), Some("debian:unstable"));
        assert_eq!(settings.tests, ["cow"]);
        let settings = parse(&["--against", "7.2,memwright"]);
        let columns = ("7.2".to_owned(), "memwright".to_owned());
        assert_eq!(settings.against, Some(columns));
        assert_eq!(parse(&[]).series(), VERSION);
    }

    #[test]
    fn wrong_options_are_refused() {
        for words in [
            &["--what"][..],
            &["--suites"],
            &["--reference"],
            &["--reference", "x", "--policy", "track=fault"],
            &["--against", "7.2"],
            &["--against", "7.2,7.3,memwright"],
            &["--against", "7.2,7.3", "cow"],
        ] {
            assert!(Settings::parse(words, |_| None).is_err(), "{words:?}");
        }
    }
}
