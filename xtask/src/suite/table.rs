//! Which test is in which tier.
//!
//! A test that no rule names is in every tier: what is added is run at once. The first rule that names a test holds.

use crate::tier::Tier;

/// Tests that do not run in every tier.
pub struct Rule {
    /// The test binary.
    binary: &'static str,
    /// Beginnings of the tests' names. Where there are several, tests that differ in nothing else ask the same question
    /// on several machines or of several builds, and a tier runs so many of them; which, depends on the test's name.
    beginnings: &'static [&'static str],
    /// How many of the alternatives `cargo xtask test` and `cargo xtask ci` run. The full tier runs all.
    runs: [usize; 2],
    /// What these tests are, for the documentation.
    what: &'static str,
}

const QEMU: &str = "memwright-cli/qemu";

#[rustfmt::skip]
pub const RULES: &[Rule] = &[
    Rule {
        binary: QEMU,
        beginnings: &["programs::glibc-static::", "programs::musl-static::", "programs::static-pie::", "programs::dynamic::"],
        runs: [1, 2],
        what: "C programs on one CPU, each linked in four ways",
    },
    Rule {
        binary: QEMU,
        beginnings: &["cpus::musl-static::on_2::", "cpus::glibc-static::on_4::", "cpus::musl-static::parallel_on_4::"],
        runs: [1, 2],
        what: "C programs on several CPUs: two or four that take turns, four in parallel",
    },
    Rule {
        binary: QEMU,
        beginnings: &["rounds::offset_0::", "rounds::offset_1::", "rounds::offset_23::", "rounds::offset_1009::"],
        runs: [1, 2],
        what: "10,000 rounds of threads against one another, at four offsets",
    },
    Rule {
        binary: QEMU,
        beginnings: &["rounds::musl-static::parallel_on_4::"],
        runs: [0, 1],
        what: "rounds on parallel CPUs",
    },
    Rule {
        binary: QEMU,
        beginnings: &["rounds::nodes::musl-static::parallel_on_4::"],
        runs: [0, 0],
        what: "rounds with pages that move, on parallel CPUs",
    },
    Rule {
        binary: QEMU,
        beginnings: &["pressure::musl-static::on_4::swap_during"],
        runs: [1, 1],
        what: "one of those that follow, which runs on four CPUs only",
    },
    Rule {
        binary: QEMU,
        beginnings: &["pressure::musl-static::on_1::", "pressure::musl-static::on_4::"],
        runs: [1, 2],
        what: "more memory in use than there is, on one CPU and on four",
    },
    Rule {
        binary: QEMU,
        beginnings: &["programs::swap_for_a_minute"],
        runs: [0, 1],
        what: "a minute of swapping on parallel CPUs",
    },
    Rule {
        binary: QEMU,
        beginnings: &["installed::works_outside_the_checkout"],
        runs: [0, 1],
        what: "`cargo install`, which builds the command once more",
    },
];

/// The first tier that runs a test.
pub fn tier(binary: &str, test: &str) -> Tier {
    let rules = RULES.iter().filter(|rule| rule.binary == binary);
    for rule in rules {
        let at = rule.beginnings.iter().position(|b| test.starts_with(b));
        if let Some(at) = at {
            return rule.tier(at, &test[rule.beginnings[at].len()..]);
        }
    }
    Tier::Test
}

impl Rule {
    /// The tier of the alternative `at` of what `rest` names.
    fn tier(&self, at: usize, rest: &str) -> Tier {
        let count = self.beginnings.len();
        let first = (hash(rest) % count as u64) as usize;
        let turn = (at + count - first) % count;
        match self.runs {
            [test, _] if turn < test => Tier::Test,
            [_, ci] if turn < ci => Tier::Ci,
            [_, _] => Tier::Full,
        }
    }
}

/// FNV-1a: the same in every build, so that a tier's choice is the same everywhere.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The table of `docs/correctness.md`.
pub fn markdown() -> String {
    let mut text =
        "| tests | `cargo xtask test` | `cargo xtask ci` | `--full` |\n|---|---|---|---|\n"
            .to_owned();
    for rule in RULES {
        let count = rule.beginnings.len();
        let share = |runs: usize| match (runs, count) {
            (0, _) => "none".to_owned(),
            (runs, count) if runs >= count => "all".to_owned(),
            (runs, count) => format!("{runs} of {count}"),
        };
        let names: Vec<String> = rule.beginnings.iter().map(|b| format!("`{b}`")).collect();
        let [test, ci] = rule.runs.map(share);
        text.push_str(&format!(
            "| {}: {} | {test} | {ci} | all |\n",
            rule.what,
            names.join(", ")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn of_several_alternatives_a_tier_runs_as_many_as_its_rule_says() {
        for rule in RULES {
            for rest in ["cow", "huge", "a", ""] {
                let mut tiers = BTreeMap::new();
                for beginning in rule.beginnings {
                    let tier = tier(rule.binary, &format!("{beginning}{rest}"));
                    *tiers.entry(tier).or_insert(0) += 1;
                }
                let [test, ci] = rule.runs;
                let of = |tier| tiers.get(&tier).copied().unwrap_or(0);
                assert_eq!([of(Tier::Test), of(Tier::Ci)], [test, ci - test]);
                assert_eq!(of(Tier::Full), rule.beginnings.len() - ci);
            }
        }
    }

    #[test]
    fn a_test_without_a_rule_is_in_every_tier() {
        assert_eq!(tier(QEMU, "codes::exit_0"), Tier::Test);
        assert_eq!(tier("memwright", "programs::dynamic::cow"), Tier::Test);
    }

    #[test]
    fn the_documentation_has_this_table() {
        let page = crate::shell::root().join("docs/correctness.md");
        let text = std::fs::read_to_string(page).unwrap();
        assert!(text.contains(&markdown()), "{}", markdown());
    }
}
