//! The tests of the workspace: built once, run as separate processes, and counted.
//!
//! A process runs one test, or the tests that share a boot of the guest. The time of each process is therefore known, a
//! test does not depend on state that another test left in its process, and all processors are busy until the end.

mod binaries;
mod folders;
mod jobs;
mod outcome;
mod table;

use crate::clock::Took;
use crate::tier::Tier;
use crate::{command, guest, programs, shell};
use anyhow::{Context, Result, anyhow, bail};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use binaries::{Binary, Built, Listed};
pub use folders::run as run_near;
use jobs::{Job, Machine};
use outcome::Outcome;
pub use outcome::Totals;
pub use table::markdown;

/// The number of the slowest processes that are printed.
const SLOWEST: usize = 10;

/// The Linux kernel that several tests of the command boot, by its name in `memwright kernels`.
const IMAGE: &str = "debian:trixie";

/// The part of the full tier that one machine runs. `1/2` is the first of two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: u64,
    count: u64,
}

impl Shard {
    /// The complete tier.
    pub const WHOLE: Shard = Shard {
        number: 1,
        count: 1,
    };

    /// Parses `I/N`.
    pub fn parse(text: &str) -> Option<Shard> {
        let (number, count) = text.split_once('/')?;
        let (number, count) = (number.parse().ok()?, count.parse().ok()?);
        (1..=count)
            .contains(&number)
            .then_some(Shard { number, count })
    }

    /// Returns whether the test or stage with this name belongs to this part.
    pub fn has(self, name: &str) -> bool {
        table::hash(name) % self.count == self.number - 1
    }

    /// Returns the elements of a list that belong to this part. The sizes of the parts differ by at most one.
    pub fn share<T>(self, list: Vec<T>) -> Vec<T> {
        let [skip, step] =
            [self.number - 1, self.count].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        list.into_iter().skip(skip).step_by(step).collect()
    }
}

/// The built tests, ready to run.
pub struct Suite {
    built: Built,
}

impl Suite {
    /// Builds the kernel with debug assertions, and every test.
    ///
    /// # Errors
    /// If the kernel or a test does not build.
    pub fn build(tier: Tier) -> Result<Suite> {
        // Each crate of the kernel depends on the previous one, so the build of the kernel leaves processors idle. The
        // build of the tests uses them at the same time.
        let (kernel, built) = std::thread::scope(|scope| {
            let kernel = scope.spawn(guest::build_kernel);
            let built = binaries::build();
            (kernel.join(), built)
        });
        let kernel = kernel.map_err(|_| anyhow!("the build of the kernel panicked"))??;
        let built = built?;
        let kernel = (!tier.has_released_kernel()).then_some(kernel);
        command::of_tests(built.memwright.clone(), kernel);
        Ok(Suite { built })
    }

    /// Runs the tests of a tier, or of one shard of the tier, and adds their outcomes to the totals. Returns the
    /// slowest processes.
    ///
    /// # Errors
    /// If tests cannot be listed or started, or if a program of `programs/` does not build. Failed tests are part of the
    /// totals.
    pub fn run(
        &self,
        tier: Tier,
        shard: Shard,
        until: Instant,
        totals: &mut Totals,
    ) -> Result<Vec<Slow>> {
        let mut jobs: Vec<Job<'_>> = Vec::new();
        for binary in &self.built.tests {
            let listed = binary.list()?;
            everything_is_first_somewhere(&binary.name, &listed)?;
            for test in listed {
                let of = table::tier(&binary.name, &test.name);
                if of > tier {
                    let outcome = Outcome::Later(of);
                    println!("test {} {} ... {}", binary.name, test.name, outcome.words());
                    totals.add("", &outcome);
                } else {
                    add(&mut jobs, binary, test);
                }
            }
        }
        jobs.retain(|job| shard.has(&job.name()));
        // Start the longest processes first, so that none of them runs alone at the end: first boots of many programs,
        // then other tests of the command.
        jobs.sort_by_key(|job| {
            let of_command = job.binary.name.starts_with("memwright-cli/");
            (Reverse(job.tests.len()), Reverse(of_command))
        });
        let names = jobs.iter().flat_map(|job| &job.tests);
        programs::build_for(names.map(String::as_str))?;
        self.fetch_image()?;
        let mut slow = Vec::new();
        let variables = tier.environment().iter();
        let mut machine = Machine {
            environment: variables
                .map(|(name, value)| (*name, OsStr::new(*value)))
                .collect(),
            until,
        };
        machine.environment.extend([
            ("MEMWRIGHT_PREPARED", OsStr::new("yes")),
            ("MEMWRIGHT_LATER_QEMU", OsStr::new(self.later_qemu()?)),
        ]);
        let kernel = command::kernel();
        machine
            .environment
            .extend(kernel.map(|(name, path)| (name, path.as_os_str())));
        jobs::run_all(&jobs, &machine, |job, done| {
            for (test, outcome) in job.tests.iter().zip(&done.outcomes) {
                let name = format!("{} {test}", job.binary.name);
                println!("test {name} ... {}", outcome.words());
                totals.add(&name, outcome);
            }
            if done.outcomes.contains(&Outcome::Failed) {
                println!("---- {} ----\n{}", job.name(), done.printed);
            }
            slow.push(Slow {
                name: job.name(),
                tests: job.tests.len(),
                took: done.took,
            });
        })?;
        slow.sort_by_key(|slow| Reverse(slow.took.processor));
        slow.truncate(SLOWEST);
        Ok(slow)
    }

    /// Fetches the image of Debian's kernel that some tests boot, unless it is in the cache. If the image is not
    /// available, these tests report that they are skipped.
    fn fetch_image(&self) -> Result<()> {
        let mut list = Command::new(&self.built.memwright);
        let kept = shell::output(list.args(["kernels", "list"]));
        if !kept.is_some_and(|kept| kept.contains(&format!("{IMAGE} "))) {
            let mut command = Command::new(&self.built.memwright);
            shell::status(command.args(["kernels", "add", IMAGE]))?;
        }
        Ok(())
    }

    /// Returns `yes` if the later QEMU of Debian's backports is available, otherwise `no`. Called once, and the result
    /// is passed to all test processes.
    fn later_qemu(&self) -> Result<&'static str> {
        let busybox = shell::which("busybox").context("busybox is missing")?;
        let mut command = command::start(&self.built.memwright);
        command.args(["run", "--timeout", "60"]).arg(busybox);
        command.arg("true").env("MEMWRIGHT_QEMU", "backports");
        let output = command.stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok("yes");
        }
        let reason = String::from_utf8_lossy(&output.stderr);
        shell::step(&format!("no later QEMU: {}", reason.trim()));
        Ok("no")
    }
}

/// Checks that the first tier runs every program that shares a boot with others in at least one test.
fn everything_is_first_somewhere(binary: &str, listed: &[Listed]) -> Result<()> {
    let shared = listed.iter().filter(|test| test.group.is_some());
    let mut earliest: BTreeMap<&str, Tier> = BTreeMap::new();
    for test in shared {
        let program = test.name.rsplit("::").next().unwrap_or(&test.name);
        let tier = table::tier(binary, &test.name);
        let known = earliest.entry(program).or_insert(tier);
        *known = tier.min(*known);
    }
    let later = earliest.iter().filter(|(_, tier)| **tier > Tier::Test);
    let missing: Vec<&str> = later.map(|(program, _)| *program).collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!("no test of the first tier runs {}", missing.join(", "))
}

/// A slow process, for the closing report.
pub struct Slow {
    name: String,
    tests: usize,
    took: Took,
}

impl Slow {
    /// Returns a line of the closing report.
    pub fn line(&self) -> String {
        let Slow { name, tests, took } = self;
        let tests = match tests {
            1 => String::new(),
            count => format!(", {count} tests"),
        };
        format!(
            "{:>8.1} {:>10.1}  {name}{tests}",
            took.clock.as_secs_f64(),
            took.processor.as_secs_f64()
        )
    }
}

/// Adds a test to the process of its group, or to a new one.
fn add<'a>(jobs: &mut Vec<Job<'a>>, binary: &'a Binary, test: Listed) {
    let same = |job: &&mut Job<'a>| job.binary == binary && job.group == test.group;
    let shared = test.group.is_some();
    match jobs.iter_mut().filter(|_| shared).find(same) {
        Some(job) => job.tests.push(test.name),
        None => jobs.push(Job {
            binary,
            tests: vec![test.name],
            group: test.group,
        }),
    }
}

/// Runs the examples of the documentation and counts them.
///
/// # Errors
/// If cargo cannot be started. Failed examples are part of the totals.
pub fn run_examples(totals: &mut Totals) -> Result<()> {
    let mut command: Command = shell::cargo(["test", "--doc", "--no-fail-fast"]);
    shell::step(&shell::line(&command));
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let reader = BufReader::new(child.stdout.take().context("cargo has no output")?);
    let mut output = std::io::stdout().lock();
    let before = totals.failed;
    for line in reader.split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        if let Some((name, ending)) = outcome::line(&line) {
            totals.add(name, &ending);
        }
        // Replace `test result:`, because only the closing line of the whole run may begin with it.
        writeln!(
            output,
            "{}",
            line.replacen("test result:", "    subtotal:", 1)
        )?;
    }
    let status = child.wait()?;
    if !status.success() && totals.failed == before {
        // An example did not build, or a process ended before its last line.
        totals.failed += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_only_later_tiers_run_is_named() {
        let test = |name: &str| Listed {
            name: name.to_owned(),
            group: Some("a boot".to_owned()),
        };
        let binary = "memwright-cli/qemu";
        let parallel = test("rounds::musl-static::parallel_on_4::races");
        assert!(everything_is_first_somewhere(binary, std::slice::from_ref(&parallel)).is_err());
        let both = [parallel, test("races")];
        assert!(everything_is_first_somewhere(binary, &both).is_ok());
    }

    #[test]
    fn shards_are_read_and_cover_everything_once() {
        for (text, expected) in [
            ("1/1", Some((1, 1))),
            ("2/3", Some((2, 3))),
            ("0/3", None),
            ("4/3", None),
            ("1", None),
            ("a/b", None),
        ] {
            let expected = expected.map(|(number, count)| Shard { number, count });
            assert_eq!(Shard::parse(text), expected, "{text}");
        }
        for name in ["a", "b", "cow", "huge"] {
            let has = |number: &u64| {
                let shard = Shard {
                    number: *number,
                    count: 3,
                };
                shard.has(name)
            };
            assert_eq!((1..=3).filter(has).count(), 1, "{name}");
        }
        let parts = (1..=3).map(|number| Shard { number, count: 3 }.share(vec![5, 6, 7, 8]));
        assert_eq!(parts.collect::<Vec<_>>(), [vec![5, 8], vec![6], vec![7]]);
    }
}
