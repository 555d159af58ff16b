//! The options of the task.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// The suites of Debian's archive that may have the sources, unless other ones are given.
const SUITES: &str = "unstable,testing,stable-backports";

/// The kernel version of which the newest package is used.
const VERSION: &str = "7.2";

/// The settings of one run.
#[derive(Debug, PartialEq, Eq)]
pub struct Settings {
    /// Suites of the archive, by name.
    pub suites: Vec<String>,
    /// The first two parts of the kernel's version.
    pub version: String,
    /// An unpacked kernel source to use instead of a package.
    pub source: Option<PathBuf>,
    /// Search the archive for a newer package even if the cache has one.
    pub newest: bool,
    /// Run only the bounded part.
    pub slice: bool,
    /// Print what the tests print.
    pub verbose: bool,
    /// Policies of Memwright that all tests run with.
    pub policies: Vec<String>,
    /// The tests that were named.
    pub tests: Vec<String>,
}

impl Settings {
    /// Parses the arguments. `variable` looks up the environment, over which they take precedence.
    ///
    /// # Errors
    /// An unknown option, or one without its value.
    pub fn parse(arguments: &[&str], variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut suites = variable("MEMWRIGHT_LINUX_SUITES").unwrap_or_else(|| SUITES.to_owned());
        let mut settings = Self {
            suites: Vec::new(),
            version: variable("MEMWRIGHT_LINUX_VERSION").unwrap_or_else(|| VERSION.to_owned()),
            source: variable("MEMWRIGHT_LINUX_SOURCE").map(PathBuf::from),
            newest: false,
            slice: false,
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
                "--version" => settings.version = value()?.to_owned(),
                "--source" => settings.source = Some(value()?.into()),
                "--newest" => settings.newest = true,
                "--slice" => settings.slice = true,
                "--verbose" => settings.verbose = true,
                "--policy" => settings.policies.push(value()?.to_owned()),
                option if option.starts_with('-') => bail!("conformance has no option {option}"),
                test => settings.tests.push(test.to_owned()),
            }
        }
        settings.suites = suites.split(',').map(str::to_owned).collect();
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_outdo_the_environment() {
        let environment = |name: &str| match name {
            "MEMWRIGHT_LINUX_SUITES" => Some("sid".to_owned()),
            "MEMWRIGHT_LINUX_VERSION" => Some("7.3".to_owned()),
            _ => None,
        };
        let settings = Settings::parse(&["cow", "--version", "7.2"], environment).unwrap();
        assert_eq!(settings.suites, ["sid"]);
        assert_eq!(settings.version, "7.2");
        assert_eq!(settings.tests, ["cow"]);
        let settings = Settings::parse(&["--suites", "a,b", "--newest"], environment).unwrap();
        assert_eq!(settings.suites, ["a", "b"]);
        assert!(settings.newest && !settings.slice);
        let policies = ["--policy", "track=fault", "--policy", "flush=full"];
        let settings = Settings::parse(&policies, environment).unwrap();
        assert_eq!(settings.policies, ["track=fault", "flush=full"]);
    }

    #[test]
    fn wrong_options_are_refused() {
        assert!(Settings::parse(&["--what"], |_| None).is_err());
        assert!(Settings::parse(&["--suites"], |_| None).is_err());
    }
}
