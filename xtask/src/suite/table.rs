//! Assigns tests to tiers.
//!
//! A test that no rule matches is in every tier, so that new tests run at once. Of several matching rules, the first
//! applies.

use crate::tier::Tier;

/// A rule that assigns tests of a binary to tiers.
pub struct Rule {
    /// The test binary.
    binary: &'static str,
    /// The prefixes of the names of the tests. If there are several, tests whose names differ only in the prefix are
    /// the same test on several machines or builds. A tier runs some of these alternatives. The rest of the name
    /// determines which ones.
    beginnings: &'static [&'static str],
    /// The number of alternatives. With several prefixes, it is the number of prefixes. With one prefix, it is the
    /// number of parts into which the tests are divided by their names.
    of: usize,
    /// The numbers of alternatives that `cargo xtask test` and `cargo xtask ci` run. The full tier runs all.
    runs: [usize; 2],
    /// The description of these tests in the documentation.
    what: &'static str,
}

const QEMU: &str = "memwright-cli/qemu";
const LAB: &str = "memwright-cli/lab";

#[rustfmt::skip]
pub const RULES: &[Rule] = &[
    Rule {
        binary: QEMU,
        beginnings: &["programs::musl-static::fork=1::on_4::"],
        of: 1,
        runs: [0, 1],
        what: "C programs whose forks share page tables, on four CPUs",
    },
    Rule {
        binary: QEMU,
        beginnings: &["swap::musl-static::fork=1::"],
        of: 1,
        runs: [0, 1],
        what: "C programs whose forks share page tables, with swap",
    },
    Rule {
        binary: QEMU,
        beginnings: &["programs::musl-static::fork=1::"],
        of: 1,
        runs: [0, 1],
        what: "C programs whose forks share page tables",
    },
    Rule {
        binary: QEMU,
        beginnings: &["programs::glibc-static::", "programs::musl-static::", "programs::static-pie::", "programs::dynamic::"],
        of: 4,
        runs: [1, 1],
        what: "C programs on one CPU, each linked in four ways",
    },
    Rule {
        binary: QEMU,
        beginnings: &["cpus::musl-static::on_2::", "cpus::glibc-static::on_4::", "cpus::musl-static::parallel_on_4::"],
        of: 3,
        runs: [1, 2],
        what: "C programs on several CPUs: two or four that take turns, four in parallel",
    },
    Rule {
        binary: QEMU,
        beginnings: &["rounds::offset_0::", "rounds::offset_1::", "rounds::offset_23::", "rounds::offset_1009::"],
        of: 4,
        runs: [0, 1],
        what: "10,000 rounds of racing threads, at four offsets",
    },
    Rule {
        binary: QEMU,
        beginnings: &["rounds::musl-static::parallel_on_4::"],
        of: 1,
        runs: [0, 1],
        what: "rounds on parallel CPUs",
    },
    Rule {
        binary: QEMU,
        beginnings: &["rounds::nodes::musl-static::parallel_on_4::"],
        of: 1,
        runs: [0, 0],
        what: "rounds with page migration, on parallel CPUs",
    },
    Rule {
        binary: QEMU,
        beginnings: &["pressure::musl-static::on_4::swap_during"],
        of: 1,
        runs: [0, 0],
        what: "racing swap-ins on four CPUs; on two CPUs, every tier tests them",
    },
    Rule {
        binary: QEMU,
        beginnings: &["groups::musl-static::on_4"],
        of: 1,
        runs: [0, 1],
        what: "limits of memory cgroups on four CPUs; on one CPU, every tier tests them",
    },
    Rule {
        binary: QEMU,
        beginnings: &["pressure::musl-static::on_4::"],
        of: 1,
        runs: [0, 0],
        what: "more memory in use than the machine has, on four CPUs",
    },
    Rule {
        binary: QEMU,
        beginnings: &["pressure::musl-static::on_1::swap_calls"],
        of: 1,
        runs: [1, 1],
        what: "the test of the next group that the first tier does not run on a swap disk",
    },
    Rule {
        binary: QEMU,
        beginnings: &["pressure::musl-static::on_1::"],
        of: 1,
        runs: [0, 1],
        what: "more memory in use than the machine has, on one CPU",
    },
    Rule {
        binary: QEMU,
        beginnings: &["kernel::tests_itself_in_parallel_on_2", "kernel::tests_itself_in_parallel_on_4", "kernel::tests_itself_in_parallel_on_8"],
        of: 3,
        runs: [1, 2],
        what: "the kernel's self-tests on parallel CPUs",
    },
    Rule {
        binary: QEMU,
        beginnings: &["disk::musl-static::swap_calls"],
        of: 1,
        runs: [0, 1],
        what: "on a swap disk, the test that the first tier runs on compressed swap",
    },
    Rule {
        binary: "xtask",
        beginnings: &["example::tests::"],
        of: 1,
        runs: [0, 1],
        what: "the example kernel and the kernel that runs the test kit, built for bare metal and booted",
    },
    Rule {
        binary: LAB,
        beginnings: &["linux_7_3_swaps_in_no_less_from_zram"],
        of: 1,
        runs: [0, 1],
        what: "pages that are swapped in at random accesses, beside Linux, in compressed memory",
    },
    Rule {
        binary: LAB,
        beginnings: &["linux_7_3_swaps_in_no_less_from_a_disk"],
        of: 1,
        runs: [0, 0],
        what: "pages that are swapped in at random accesses, beside Linux, from a disk",
    },
    Rule {
        binary: QEMU,
        beginnings: &["busybox::md5sum"],
        of: 1,
        runs: [0, 1],
        what: "MD5 sums of 16 MiB",
    },
    Rule {
        binary: QEMU,
        beginnings: &["programs::fork_storm"],
        of: 1,
        runs: [0, 0],
        what: "hundreds of processes that need more memory than the machine has",
    },
    Rule {
        binary: QEMU,
        beginnings: &["programs::swap_for_a_minute"],
        of: 1,
        runs: [0, 0],
        what: "a minute of swapping on parallel CPUs",
    },
    Rule {
        binary: QEMU,
        beginnings: &["installed::works_outside_the_checkout"],
        of: 1,
        runs: [0, 0],
        what: "`cargo install`, which builds the command again; CI tests the package instead",
    },
    Rule {
        binary: QEMU,
        beginnings: &["bench::figures_once_reached_hold"],
        of: 1,
        runs: [0, 1],
        what: "two dozen experiments whose figures must not increase",
    },
    Rule {
        binary: QEMU,
        beginnings: &["bench::hint_faults_are_the_only_ones"],
        of: 1,
        runs: [0, 1],
        what: "a NUMA experiment in which every fault is a hint fault",
    },
    Rule {
        binary: QEMU,
        beginnings: &["bench::policies_are_columns"],
        of: 1,
        runs: [0, 1],
        what: "an experiment with each value of some policies",
    },
    Rule {
        binary: QEMU,
        beginnings: &["bench::child_that_is_gone"],
        of: 1,
        runs: [0, 1],
        what: "first stores after the child of a fork has exited",
    },
    Rule {
        binary: QEMU,
        beginnings: &["crowd::parallel_cpus_halt"],
        of: 1,
        runs: [0, 1],
        what: "eight parallel CPUs that wait for locks",
    },
    Rule {
        binary: QEMU,
        beginnings: &["filling::musl-static::on_4"],
        of: 1,
        runs: [0, 1],
        what: "all memory filled from four CPUs; on one CPU, every tier tests it",
    },
    Rule {
        binary: QEMU,
        beginnings: &["languages::python"],
        of: 1,
        runs: [0, 1],
        what: "Debian's Python",
    },
    Rule {
        binary: QEMU,
        beginnings: &["stretches::"],
        of: 1,
        runs: [0, 1],
        what: "long operations, checked for scheduling points",
    },
    Rule {
        binary: QEMU,
        beginnings: &["sequences::as_shipped::"],
        of: 1,
        runs: [0, 1],
        what: "sequences of calls, checked for scheduling points",
    },
    Rule {
        binary: QEMU,
        beginnings: &["kernel::tests_itself_as_embedded"],
        of: 1,
        runs: [0, 1],
        what: "the self-tests of the kernel in the command, which the first tier builds without one",
    },
    Rule {
        binary: QEMU,
        beginnings: &["kernel::tests_itself_on_8_as_embedded"],
        of: 1,
        runs: [0, 1],
        what: "the self-tests of the kernel in the command, on eight CPUs",
    },
    Rule {
        binary: QEMU,
        beginnings: &["installed::embedded_kernel_repeats"],
        of: 1,
        runs: [0, 1],
        what: "two runs on the kernel in the command",
    },
    Rule {
        binary: QEMU,
        beginnings: &["kernel::tests_itself_on_64"],
        of: 1,
        runs: [0, 1],
        what: "the kernel's self-tests on 64 CPUs",
    },
    Rule {
        binary: QEMU,
        beginnings: &["errors::as_linux"],
        of: 1,
        runs: [0, 1],
        what: "each error of the memory calls, compared with Linux",
    },
    Rule {
        binary: QEMU,
        beginnings: &["languages::go"],
        of: 1,
        runs: [0, 1],
        what: "Debian's Go",
    },
    Rule {
        binary: QEMU,
        beginnings: &["languages::perl"],
        of: 1,
        runs: [0, 1],
        what: "Debian's Perl",
    },
    Rule {
        binary: QEMU,
        beginnings: &["bench::memory_follows_its_threads"],
        of: 1,
        runs: [0, 1],
        what: "a NUMA experiment in which pages follow their threads",
    },
    Rule {
        binary: QEMU,
        beginnings: &["places::a_folder_may_be_deep"],
        of: 1,
        runs: [0, 1],
        what: "a deep folder of the host in the guest",
    },
    Rule {
        binary: QEMU,
        beginnings: &["policies::each_value_starts_a_program"],
        of: 1,
        runs: [0, 1],
        what: "each value of each policy",
    },
    Rule {
        binary: QEMU,
        beginnings: &["disk-errors::"],
        of: 1,
        runs: [0, 1],
        what: "a swap disk whose transfers fail",
    },
    Rule {
        binary: LAB,
        beginnings: &["the_account_is_the_same_from_elsewhere"],
        of: 1,
        runs: [0, 1],
        what: "the account of a command that runs from another folder, with other files",
    },
    Rule {
        binary: LAB,
        beginnings: &["debians_kernel_is_counted_on_several_nodes"],
        of: 1,
        runs: [0, 1],
        what: "counts on several NUMA nodes",
    },
    Rule {
        binary: "memwright-cli/own_kernel",
        beginnings: &["a_program_is_swept_over_its_parameters"],
        of: 1,
        runs: [0, 1],
        what: "a sweep over parameters of a program",
    },
    Rule {
        binary: LAB,
        beginnings: &["without_a_compiler_the_rows_of_the_plugin_are_not_measured"],
        of: 1,
        runs: [0, 1],
        what: "a machine without a compiler",
    },
    Rule {
        binary: "memwright-cli/functions",
        beginnings: &["profiles_of_linux_add_up_and_change_no_count"],
        of: 1,
        runs: [0, 1],
        what: "profiles of Debian's kernel",
    },
    Rule {
        binary: "memwright-cli/same_state",
        beginnings: &["the_state_is_what_the_program_has_mapped_at_the_marks"],
        of: 1,
        runs: [0, 1],
        what: "the page tables at marks, of every kind of memory",
    },
    Rule {
        binary: "memwright-sim/numa",
        beginnings: &["together::"],
        of: 1,
        runs: [0, 1],
        what: "migration of pages with several owners, in all interleavings",
    },
    Rule {
        binary: "memwright-cli/one_instruction",
        beginnings: &[""],
        of: 1,
        runs: [0, 1],
        what: "two of Debian's kernels, one of which executes one more instruction",
    },
    Rule {
        binary: "memwright-cli/exact",
        beginnings: &["linux_"],
        of: 1,
        runs: [0, 1],
        what: "counts on Debian's kernel, compared with counts made by hand",
    },
    Rule {
        binary: "memwright-cli/exact",
        beginnings: &["memwright_counts_the_same_from_outside"],
        of: 1,
        runs: [0, 1],
        what: "counts of the kernel in the command, compared with counts made by hand",
    },
    Rule {
        binary: "memwright-cli/exact",
        beginnings: &["the_kernels_instructions_are_what_the_clock_counts"],
        of: 1,
        runs: [0, 1],
        what: "instructions of the kernel in the command, counted in two ways",
    },
    Rule {
        binary: "memwright-cli/exact",
        beginnings: &["ticks_on_memwright_are_apart"],
        of: 1,
        runs: [0, 1],
        what: "ticks on the kernel in the command",
    },
    Rule {
        binary: "memwright-cli/exact",
        beginnings: &["ticks_on_linux"],
        of: 1,
        runs: [0, 1],
        what: "ticks on Debian's kernel, compared with ticks counted by hand",
    },
    Rule {
        binary: "memwright-cli/several_cpus",
        beginnings: &[""],
        of: 1,
        runs: [0, 1],
        what: "counts of two CPUs, compared with counts made by hand",
    },
    Rule {
        binary: "memwright-cli/faults_by",
        beginnings: &[""],
        of: 1,
        runs: [0, 1],
        what: "causes of page faults, on Memwright and on Debian's kernel",
    },
    Rule {
        binary: "memwright-cli/settings",
        beginnings: &["linux_"],
        of: 1,
        runs: [0, 1],
        what: "settings of runs on Debian's kernel",
    },
    Rule {
        binary: "memwright-cli/states",
        beginnings: &["linux_7_3_counts_the_same_from_a_saved_state", "where_no_state_can_be_kept_the_guest_boots"],
        of: 2,
        runs: [2, 2],
        what: "counts of a guest that starts from a saved state, and of one that cannot",
    },
    Rule {
        binary: "memwright-cli/states",
        beginnings: &[""],
        of: 1,
        runs: [0, 1],
        what: "counts of the other guests that start from a saved state",
    },
    Rule {
        binary: "memwright-cli/tutorial",
        beginnings: &[""],
        of: 1,
        runs: [0, 1],
        what: "every command of the tutorial",
    },
    Rule {
        binary: "memwright-cli/slurm",
        beginnings: &[""],
        of: 1,
        runs: [0, 1],
        what: "a bench that an array of Slurm shares",
    },
    Rule {
        binary: "memwright-cli/alone",
        beginnings: &[""],
        of: 1,
        runs: [0, 1],
        what: "a kernel that is not Linux, compared with counts made by hand",
    },
    Rule {
        binary: "memwright-cli/workflow",
        beginnings: &[""],
        of: 1,
        runs: [0, 1],
        what: "every step of the workflow of docs/ci.md",
    },
    Rule {
        binary: "memwright-cli/workloads",
        beginnings: &[
            "cpython-mmap",
            "perl-text",
            "python-fork",
            "python-objects",
            "sqlite-wal",
        ],
        of: 5,
        runs: [0, 5],
        what: "a part of the whole programs, whose output is compared with that on Debian's kernel",
    },
    Rule {
        binary: "memwright-cli/workloads",
        beginnings: &[""],
        of: 1,
        runs: [0, 0],
        what: "the other whole programs",
    },
    Rule {
        binary: "memwright-cli/columns",
        beginnings: &["one_kernel_is_compared_in_several_settings"],
        of: 1,
        runs: [0, 1],
        what: "one kernel in several settings side by side",
    },
    Rule {
        binary: "memwright-sim/interleavings",
        beginnings: &["huge::collapse_of_shared_memory_and_fault"],
        of: 1,
        runs: [0, 1],
        what: "all interleavings of the case that has most of them",
    },
    Rule {
        binary: "memwright-sim/interleavings",
        beginnings: &[""],
        of: 6,
        runs: [1, 6],
        what: "cases of which all interleavings are tried",
    },
];

/// Returns the first tier that runs a test.
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
    /// Returns the first tier that runs the test whose prefix has the index `at` and whose name continues with `rest`.
    fn tier(&self, at: usize, rest: &str) -> Tier {
        let first = (hash(rest) % self.of as u64) as usize;
        let turn = (at + self.of - first) % self.of;
        match self.runs {
            [test, _] if turn < test => Tier::Test,
            [_, ci] if turn < ci => Tier::Ci,
            [_, _] => Tier::Full,
        }
    }
}

/// Returns the FNV-1a hash of a text. It is the same in every build, so that a tier runs the same tests on every
/// machine.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the table of tests and tiers for `docs/correctness.md`.
pub fn markdown() -> String {
    let mut text =
        "| tests | `cargo xtask test` | `cargo xtask ci` | `--full` |\n|---|---|---|---|\n"
            .to_owned();
    for rule in RULES {
        let share = |runs: usize| match (runs, rule.of) {
            (0, _) => "none".to_owned(),
            (runs, of) if runs >= of => "all".to_owned(),
            (runs, of) => format!("{runs} of {of}"),
        };
        let name = |beginning: &&str| match beginning.is_empty() {
            true => format!("`{}`", rule.binary),
            false => format!("`{beginning}`"),
        };
        let names: Vec<String> = rule.beginnings.iter().map(name).collect();
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
            assert!(rule.beginnings.len() == rule.of || rule.beginnings.len() == 1);
            for rest in ["cow", "huge", "a", ""] {
                if rule.beginnings.len() < rule.of {
                    continue;
                }
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
    fn tests_with_one_beginning_are_divided_by_their_names() {
        let rule = Rule {
            binary: QEMU,
            beginnings: &[""],
            of: 3,
            runs: [1, 3],
            what: "cases",
        };
        let names = (0..300).map(|number| format!("case {number}"));
        let first = names.filter(|name| rule.tier(0, name) == Tier::Test);
        assert!((80..120).contains(&first.count()));
        assert!((0..300).all(|number| rule.tier(0, &format!("case {number}")) < Tier::Full));
    }

    #[test]
    fn a_test_without_a_rule_is_in_every_tier() {
        assert_eq!(tier(QEMU, "codes::exit_0"), Tier::Test);
        assert_eq!(tier("memwright", "programs::dynamic::cow"), Tier::Test);
    }
}
