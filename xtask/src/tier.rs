//! The three tiers of the tests, with the stages of each and the time budget of each stage.
//!
//! `cargo xtask test` is the first tier, `cargo xtask ci` the second, and `cargo xtask test --full` the last. Each tier
//! contains the tests of the previous one. `suite/table.rs` assigns tests to tiers.

use std::time::Duration;

/// A tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    Test,
    Ci,
    Full,
}

impl Tier {
    /// Returns the environment variables that determine how much a long test runs. `MEMWRIGHT_TIER` is the name of the
    /// tier. `MEMWRIGHT_GROWN` is the number of inputs that `memwright-linux-sim/corpus` derives, and the seed for
    /// them.
    pub fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Tier::Test => &[("MEMWRIGHT_TIER", "test"), ("MEMWRIGHT_GROWN", "150,1")],
            Tier::Ci => &[("MEMWRIGHT_TIER", "ci"), ("MEMWRIGHT_GROWN", "1500,1")],
            Tier::Full => &[("MEMWRIGHT_TIER", "full")],
        }
    }

    /// Returns the environment variables for the builds of this tier, which disable incremental builds. A tier builds
    /// everything, and in a fresh clone the data for incremental builds takes a third of the build time. Each crate is
    /// one codegen unit, because several units duplicate code, and the builds of other crates keep the processors busy.
    pub fn build_environment(self) -> &'static [(&'static str, &'static str)] {
        const WITHOUT_KERNEL: &[(&str, &str)] = &[
            ("MEMWRIGHT_BUILD_KERNEL", "0"),
            ("CARGO_INCREMENTAL", "0"),
            ("CARGO_PROFILE_DEV_CODEGEN_UNITS", "1"),
            ("CARGO_PROFILE_CHECKED_CODEGEN_UNITS", "1"),
        ];
        if self.has_released_kernel() {
            &WITHOUT_KERNEL[1..]
        } else {
            WITHOUT_KERNEL
        }
    }

    /// Returns whether the command of this tier contains the kernel that users get, whose build takes longer than any
    /// other. If it does not, all guests of the tier boot the kernel with debug assertions.
    pub fn has_released_kernel(self) -> bool {
        match self {
            Tier::Test => false,
            Tier::Ci | Tier::Full => true,
        }
    }

    /// Returns the command that runs this tier.
    pub fn command(self) -> &'static str {
        match self {
            Tier::Test => "cargo xtask test",
            Tier::Ci => "cargo xtask ci",
            Tier::Full => "cargo xtask test --full",
        }
    }

    /// Returns the time budget of the tier on two idle cores; `None` if it has none.
    pub fn budget(self) -> Option<Duration> {
        match self {
            Tier::Test => Some(minutes(15)),
            Tier::Ci => Some(minutes(50)),
            Tier::Full => None,
        }
    }
}

/// The time limit of `cargo xtask ci` on any machine.
pub const HARD_LIMIT: Duration = minutes(85);

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

/// A step of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Install,
    Format,
    HostLints,
    KernelLints,
    Documentation,
    Build,
    Tests,
    DocumentationTests,
    Unsafe,
    Arrows,
    Walks,
    House,
    Size,
    Features,
    Prose,
    Miri,
    FuzzTargets,
    ModelSlice,
    LinuxSlice,
    Architectures,
    Mistakes,
    Selftests,
    SelftestsByFaults,
    Figures,
    Package,
    OldestCompiler,
}

/// How a stage ended.
pub enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// A stage, its name, and its time budget in seconds for each tier, on two idle cores. A tier with `None` omits the
/// stage. A budget of 0 means that the tier runs the stage without a budget.
pub struct Row {
    pub stage: Stage,
    pub name: &'static str,
    seconds: [Option<u64>; 3],
}

impl Row {
    /// Returns whether the tier has this stage.
    pub fn is_in(&self, tier: Tier) -> bool {
        self.seconds[tier as usize].is_some()
    }

    /// Returns the time budget of the stage in this tier; `None` if it has none.
    pub fn budget(&self, tier: Tier) -> Option<Duration> {
        self.seconds[tier as usize]
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs)
    }
}

const fn row(stage: Stage, name: &'static str, seconds: [Option<u64>; 3]) -> Row {
    Row {
        stage,
        name,
        seconds,
    }
}

/// The stages in the order in which they run.
#[rustfmt::skip]
pub const STAGES: &[Row] = &[
    //                                                               test       ci          full
    row(Stage::Install,            "install",                       [Some(10),  Some(40),   Some(0)]),
    row(Stage::Format,             "format",                        [None,      Some(5),    None]),
    row(Stage::HostLints,          "lints, host",                   [None,      Some(210),  None]),
    row(Stage::KernelLints,        "lints, kernel",                 [None,      Some(30),   None]),
    row(Stage::Documentation,      "documentation",                 [None,      Some(35),   None]),
    row(Stage::Build,              "build",                         [Some(320), Some(260),  Some(0)]),
    row(Stage::Tests,              "tests, host and QEMU",          [Some(460), Some(1100), Some(0)]),
    row(Stage::DocumentationTests, "examples in the documentation", [Some(20),  Some(20),   Some(0)]),
    row(Stage::Unsafe,             "unsafe code",                   [None,      Some(5),    Some(0)]),
    row(Stage::Arrows,             "arrows between folders",        [None,      Some(100),  Some(0)]),
    row(Stage::Walks,              "files that operations pass",   [None,      Some(85),   Some(0)]),
    row(Stage::House,              "figures that may only fall",    [None,      Some(5),    Some(0)]),
    row(Stage::Size,               "size",                          [None,      Some(0),    Some(0)]),
    row(Stage::Features,           "choices of features",           [None,      Some(0),    Some(0)]),
    row(Stage::Prose,              "prose",                         [None,      Some(15),   Some(0)]),
    row(Stage::ModelSlice,         "random programs, model",        [None,      Some(60),   Some(0)]),
    row(Stage::Selftests,          "selftests, a slice",            [Some(60),  Some(80),   Some(0)]),
    row(Stage::SelftestsByFaults,  "selftests, by faults",          [None,      Some(70),   Some(0)]),
    row(Stage::LinuxSlice,         "random programs, Linux",        [None,      Some(60),   Some(0)]),
    row(Stage::Miri,               "undefined behaviour",           [None,      Some(310),  Some(0)]),
    row(Stage::FuzzTargets,        "targets of the fuzzer",         [None,      Some(150),  Some(0)]),
    row(Stage::Architectures,      "other architectures",           [None,      Some(0),    Some(0)]),
    row(Stage::Mistakes,           "planted mistakes",              [None,      Some(190),  Some(0)]),
    row(Stage::Figures,            "published figures",             [None,      Some(40),   Some(0)]),
    row(Stage::Package,            "package",                       [None,      Some(100),  Some(0)]),
    row(Stage::OldestCompiler,     "oldest compiler",               [None,      Some(30),   None]),
];

#[cfg(test)]
mod tests {
    use super::*;

    const TIERS: [Tier; 3] = [Tier::Test, Tier::Ci, Tier::Full];

    #[test]
    fn budgets_of_stages_fit_into_that_of_the_tier() {
        for tier in TIERS {
            let Some(budget) = tier.budget() else {
                continue;
            };
            let stages: Duration = STAGES.iter().filter_map(|row| row.budget(tier)).sum();
            assert!(stages <= budget, "{}: {stages:?}", tier.command());
            assert!(budget < HARD_LIMIT);
        }
    }

    #[test]
    fn a_stage_of_the_first_tier_is_in_the_others() {
        for row in STAGES {
            assert!(row.is_in(Tier::Ci), "{}", row.name);
            assert!(
                !row.is_in(Tier::Test) || row.is_in(Tier::Full),
                "{}",
                row.name
            );
        }
    }
}
