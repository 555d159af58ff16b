//! Runs test processes, several at a time.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::binaries::Binary;
use super::outcome::{self, Outcome};
use crate::clock::{self, Took};

/// The environment variable with the path of a file that lists the tests of a process, one per line. It is used for
/// tests that share a boot.
const CHOSEN: &str = "MEMWRIGHT_TESTS";

/// The interval at which the end of a process is polled.
const PAUSE: Duration = Duration::from_millis(3);

/// The settings that all processes of a run share.
pub struct Machine {
    /// The environment variables to set.
    pub environment: Vec<(&'static str, &'static OsStr)>,
    /// The deadline. Processes that are still running then are killed.
    pub until: Instant,
}

/// A process that runs tests.
pub struct Job<'a> {
    pub binary: &'a Binary,
    /// The tests that the process runs: one test, or all tests of a group.
    pub tests: Vec<String>,
    /// The group of the tests; `None` for a single test without a group.
    pub group: Option<String>,
}

/// The result of a process.
pub struct Done {
    /// The outcome of each test, in the order of the tests.
    pub outcomes: Vec<Outcome>,
    pub took: Took,
    /// The output of the process.
    pub printed: String,
}

impl Job<'_> {
    /// Returns the name of the process for reports of its time.
    pub fn name(&self) -> String {
        let what = self.group.as_ref().or(self.tests.first());
        format!("{} {}", self.binary.name, what.map_or("", String::as_str))
    }

    /// Runs the process, and kills it at the deadline.
    fn run(&self, number: usize, machine: &Machine, folder: &Path) -> Result<Done> {
        let mut command = self.binary.command();
        // libtest prints the output of passed tests only with this option.
        command
            .arg("--show-output")
            .envs(machine.environment.iter().copied());
        match (&self.group, self.tests.as_slice()) {
            (None, [test]) => {
                command.args(["--exact", test]);
            }
            _ => {
                let list = folder.join(number.to_string());
                std::fs::write(&list, self.tests.join("\n"))?;
                command.args(["--test-threads", "1"]).env(CHOSEN, list);
            }
        }
        let start = Instant::now();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.path.display()))?;
        let readers = [
            reader(child.stdout.take().context("no output")?),
            reader(child.stderr.take().context("no error output")?),
        ];
        let ended = wait(&mut child, machine.until);
        let processor = clock::processor(&child.id().to_string()).unwrap_or_default();
        if !ended {
            child.kill()?;
        }
        child.wait()?;
        let mut printed = String::new();
        for reader in readers {
            printed.push_str(&reader.join().ok().context("cannot read the output")??);
        }
        if !ended {
            printed.push_str("\nended: out of time\n");
        }
        let names: Vec<&str> = self.tests.iter().map(String::as_str).collect();
        Ok(Done {
            outcomes: outcome::read(&printed, &names),
            took: Took {
                clock: start.elapsed(),
                processor,
            },
            printed,
        })
    }
}

/// Waits for the end of the process without reaping it, so that its times can still be read. Returns whether it ended
/// before the deadline.
fn wait(child: &mut Child, until: Instant) -> bool {
    while !clock::has_ended(child.id()) {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Starts a thread that reads all output of a process, so that a full pipe never blocks the process.
fn reader(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Result<String>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    })
}

/// Runs all processes, as many at a time as there are processors. Calls `report` for each process when it has ended.
///
/// # Errors
/// If a process cannot be started.
pub fn run_all(
    jobs: &[Job<'_>],
    machine: &Machine,
    report: impl FnMut(&Job<'_>, Done) + Send,
) -> Result<()> {
    let folder = crate::shell::target_folder().join("tests");
    std::fs::create_dir_all(&folder)?;
    let next = Mutex::new(jobs.iter().enumerate());
    let report = Mutex::new(report);
    let width = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let worker = || -> Result<()> {
        loop {
            let job = next.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, job)) = job else {
                return Ok(());
            };
            let done = job.run(number, machine, &folder)?;
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            (*report)(job, done);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..width).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            worker
                .join()
                .ok()
                .context("a thread of this task panicked")??;
        }
        Ok(())
    })
}
