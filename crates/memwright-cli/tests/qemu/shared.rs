//! Boots that run several programs in sequence, with one test for each program.

use crate::guest::{Ending, Guest};
use crate::prepare::{later_qemu, program};
use crate::tier;
use libtest_mimic::{Completion, Failed, Trial};
use std::sync::{Arc, OnceLock};

/// A boot that runs several programs. The first of its tests boots the guest, and all of its tests examine the same
/// output. The boot is repeated and the two runs are compared, unless the CPUs run in parallel. The runs are not
/// traced, because some programs fork thousands of times.
pub struct Boot {
    label: String,
    guest: Guest,
    content: Content,
    /// Checks in the boot's output whether the program with the given name passed.
    judge: Judge,
    /// Whether the boot needs the later QEMU.
    later: bool,
}

/// The contents of a boot.
enum Content {
    /// The variant in which the programs are linked, and the programs with their arguments. Programs whose tests are
    /// not selected are omitted.
    Programs(String, Vec<&'static str>),
    /// A run with a fixed command line, and the names whose results its output contains.
    Fixed(Vec<&'static str>),
}

type Judge = fn(&Ending, &str) -> Result<(), Failed>;

impl Boot {
    /// Returns a boot with one CPU that runs `programs`, each with its arguments. The tests have the names
    /// `GROUP::VARIANT::PROGRAM`.
    pub fn of(group: &str, variant: &str, programs: &[&'static str]) -> Boot {
        Boot {
            label: format!("{group}::{variant}"),
            guest: boot(variant, &[]).untraced(),
            content: Content::Programs(variant.to_owned(), programs.to_vec()),
            judge: passed,
            later: false,
        }
    }

    /// Returns a boot that makes the run `guest`, whose output contains a result for each of `names`. The tests have
    /// the names `LABEL::NAME`.
    pub fn custom(label: &str, guest: Guest, names: Vec<&'static str>, judge: Judge) -> Boot {
        Boot {
            label: label.to_owned(),
            guest,
            content: Content::Fixed(names),
            judge,
            later: false,
        }
    }

    /// Runs the boot on `count` CPUs that take turns. The tests have the names `GROUP::VARIANT::on_N::PROGRAM`.
    pub fn cpus(mut self, count: u8) -> Boot {
        self.label.push_str(&format!("::on_{count}"));
        self.guest = self.guest.cpus(count);
        self.later |= count > 1;
        self
    }

    /// Runs the boot on `count` parallel CPUs. The tests have the names `GROUP::VARIANT::parallel_on_N::PROGRAM`.
    pub fn parallel(mut self, count: u8) -> Boot {
        self.label.push_str(&format!("::parallel_on_{count}"));
        self.guest = self.guest.parallel().cpus(count);
        self
    }

    /// Runs the boot under a policy. The tests have the names `GROUP::VARIANT::POLICY::PROGRAM`.
    pub fn policy(mut self, policy: &str) -> Boot {
        self.label.push_str(&format!("::{policy}"));
        self.option("--policy", policy)
    }

    /// Adds an option of `memwright run` with its value.
    pub fn option(mut self, name: &str, value: &str) -> Boot {
        self.guest = self.guest.option(name, value);
        self
    }

    /// Returns one test for each program.
    pub fn trials(self) -> Vec<Trial> {
        let made: Arc<OnceLock<Result<Ending, Failed>>> = Arc::default();
        let (later, judge, label) = (self.later, self.judge, self.label);
        let chosen = tier::chosen();
        let is_chosen = |name: &str| {
            let name = format!("{label}::{name}");
            let listed = |chosen: &Vec<String>| chosen.contains(&name);
            chosen.as_ref().is_none_or(listed)
        };
        let (guest, names) = match self.content {
            Content::Fixed(names) => (self.guest, names),
            Content::Programs(variant, mut programs) => {
                programs.retain(|words| is_chosen(name_of(words)));
                let guest = with_programs(self.guest, &variant, &programs);
                (guest, programs.iter().map(|words| name_of(words)).collect())
            }
        };
        let trial = |name: &'static str| {
            let (made, guest) = (made.clone(), guest.clone());
            let test = move || {
                if later && !later_qemu() {
                    return Ok(Completion::ignored_with("no later QEMU"));
                }
                let ending = made.get_or_init(|| guest.run()).as_ref();
                judge(ending.map_err(Clone::clone)?, name).map(|()| Completion::Completed)
            };
            // `cargo xtask` recognises by the kind which tests share a boot, and runs the tests of one boot in one
            // process.
            Trial::ignorable_test(format!("{label}::{name}"), test).with_kind("boot")
        };
        names.into_iter().map(trial).collect()
    }
}

/// Returns the tests of `boots`, one of each boot in turn. Tests that run at the same time then wait for different
/// boots.
pub fn interleaved(boots: Vec<Boot>) -> Vec<Trial> {
    let mut lists: Vec<_> = boots
        .into_iter()
        .map(|boot| boot.trials().into_iter())
        .collect();
    let mut trials = Vec::new();
    loop {
        let before = trials.len();
        trials.extend(lists.iter_mut().filter_map(Iterator::next));
        if trials.len() == before {
            return trials;
        }
    }
}

fn name_of(words: &str) -> &str {
    words.split(' ').next().unwrap_or(words)
}

/// Returns a run of `programs` in sequence, each with its arguments.
pub fn boot(variant: &str, programs: &[&str]) -> Guest {
    with_programs(
        Guest::new(program(variant, "suite"), &[]),
        variant,
        programs,
    )
}

/// Adds `programs` to the programs that `suite` starts in a run.
fn with_programs(mut guest: Guest, variant: &str, programs: &[&str]) -> Guest {
    for words in programs {
        let name = name_of(words);
        guest = guest
            .argument(&format!("/programs/{words}"))
            .file(&program(variant, name), &format!("/programs/{name}"));
    }
    guest
}

/// Returns the output from the line `# begin NAME` to the next `# begin` line.
pub fn part_of(ending: &Ending, name: &str) -> Result<String, Failed> {
    let text = ending.text();
    let begin = format!("# begin {name}\n");
    let Some((_, rest)) = text.split_once(&begin) else {
        return Err(format!("{name} was not started: {}", ending.report()).into());
    };
    Ok(rest.split("# begin ").next().unwrap_or(rest).to_owned())
}

/// Checks in the boot's output that the C program `name` passed.
fn passed(ending: &Ending, name: &str) -> Result<(), Failed> {
    let own = part_of(ending, name)?;
    if own.lines().any(|line| line == format!("ok {name}")) {
        return Ok(());
    }
    let last = own.lines().any(|line| line.starts_with("not ok "));
    let more = if last { String::new() } else { ending.report() };
    Err(format!("{own}{more}").into())
}
