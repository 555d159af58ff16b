//! Runs `memwright run` twice for each guest, and compares the two runs.

use crate::{prepare, tier};
use libtest_mimic::Failed;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The time limit of a run, in host seconds.
const TIMEOUT: &str = "600";

/// A run of a program in a guest.
#[derive(Clone)]
pub struct Guest {
    options: Vec<OsString>,
    command: Vec<OsString>,
    input: Input,
    embedded_kernel: bool,
    traced: bool,
    parallel: bool,
    qemu: Option<&'static str>,
}

/// The source of the program's standard input.
#[derive(Clone)]
enum Input {
    Nothing,
    Pipe(Vec<u8>),
    File(PathBuf),
}

/// The outcome of a run.
pub struct Ending {
    /// The exit code of the command.
    pub code: Option<i32>,
    /// The program's standard output.
    pub stdout: Vec<u8>,
    /// The program's standard error, messages of the command, and the account.
    pub stderr: String,
    /// The account as JSON; `None` if the program did not run.
    pub json: Option<String>,
}

impl Ending {
    /// Returns the program's standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the account.
    pub fn account(&self) -> Result<Value, Failed> {
        let text = self.json.as_deref().unwrap_or_default();
        if text.is_empty() {
            return Err(format!("the run wrote no account: {}", self.report()).into());
        }
        serde_json::from_str(text)
            .map_err(|error| format!("the account is no JSON: {error}").into())
    }

    /// Returns the output and the account as a message about a failed run.
    pub fn report(&self) -> String {
        let tail = |text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(60)..].join("\n")
        };
        // After a panic, hundreds of lines about the state of the kernel follow.
        let panic: Vec<&str> = self
            .stderr
            .lines()
            .skip_while(|line| !line.contains("kernel panicked:"))
            .take(30)
            .collect();
        format!(
            "exit code {:?}\n--- standard output (its end)\n{}\n--- standard error (its end)\n{}\n{}",
            self.code,
            tail(&self.text()),
            tail(&self.stderr),
            panic.join("\n"),
        )
    }

    /// Returns an error unless the command exited with `code`.
    pub fn expect_code(&self, code: i32) -> Result<(), Failed> {
        if self.code == Some(code) {
            return Ok(());
        }
        Err(format!("expected exit code {code}, got {}", self.report()).into())
    }

    /// Returns an error unless the program's output is exactly `expected`.
    pub fn expect_output(&self, expected: &[u8]) -> Result<(), Failed> {
        if self.stdout == expected {
            return Ok(());
        }
        let at = self
            .stdout
            .iter()
            .zip(expected)
            .take_while(|(seen, wanted)| seen == wanted)
            .count();
        let around = |bytes: &[u8]| {
            let start = at.saturating_sub(80).min(bytes.len());
            let end = (at + 80).min(bytes.len());
            String::from_utf8_lossy(&bytes[start..end]).into_owned()
        };
        Err(format!(
            "output differs at byte {at} of {} (expected {}):\n--- seen\n{}\n--- expected\n{}\n{}",
            self.stdout.len(),
            expected.len(),
            around(&self.stdout),
            around(expected),
            self.report()
        )
        .into())
    }

    /// Returns an error if no line of standard error contains all of `words`, or if the output reports a panic.
    pub fn expect_line(&self, words: &[&str]) -> Result<(), Failed> {
        let told = |line: &str| words.iter().all(|word| line.contains(word));
        if !self.stderr.lines().any(told) {
            return Err(format!("no line says {words:?}: {}", self.report()).into());
        }
        if self.stderr.contains("panicked at") {
            return Err(format!("something panicked: {}", self.report()).into());
        }
        Ok(())
    }
}

impl Guest {
    /// Returns a run of a program with arguments.
    pub fn new(program: impl AsRef<OsStr>, arguments: &[&str]) -> Guest {
        let mut command = vec![program.as_ref().to_owned()];
        command.extend(arguments.iter().map(OsString::from));
        Guest {
            options: Vec::new(),
            command,
            input: Input::Nothing,
            embedded_kernel: false,
            traced: true,
            parallel: false,
            qemu: None,
        }
    }

    /// Returns a run of a script in busybox's shell.
    pub fn shell(script: &str) -> Guest {
        Guest::new(prepare::busybox(), &["sh", "-c", script])
    }

    /// Adds an argument to the program.
    pub fn argument(mut self, word: &str) -> Guest {
        self.command.push(word.into());
        self
    }

    /// Adds an option of `memwright run` with its value.
    pub fn option(mut self, name: &str, value: impl AsRef<OsStr>) -> Guest {
        self.options.push(name.into());
        self.options.push(value.as_ref().to_owned());
        self
    }

    /// Sets the number of CPUs, which take turns under the instruction clock.
    pub fn cpus(self, count: u8) -> Guest {
        self.option("--cpus", count.to_string())
    }

    /// Makes the CPUs run in parallel. [`Guest::run`] then makes one run, and does not repeat it.
    pub fn parallel(mut self) -> Guest {
        self.options.push("--parallel".into());
        self.parallel = true;
        self
    }

    /// Adds a word to the command line, before the program.
    pub fn word(mut self, word: &str) -> Guest {
        self.options.push(word.into());
        self
    }

    /// Adds a file of the host at a path in the guest.
    pub fn file(self, host: &Path, guest: &str) -> Guest {
        let mut value = host.as_os_str().to_owned();
        value.push(":");
        value.push(guest);
        self.option("--file", value)
    }

    /// Makes standard input a pipe that contains `bytes`.
    pub fn pipe(mut self, bytes: &[u8]) -> Guest {
        self.input = Input::Pipe(bytes.to_vec());
        self
    }

    /// Makes standard input a file.
    pub fn input_file(mut self, path: &Path) -> Guest {
        self.input = Input::File(path.to_owned());
        self
    }

    /// Uses the kernel that the command embeds.
    pub fn embedded_kernel(mut self) -> Guest {
        self.embedded_kernel = true;
        self
    }

    /// Prints the kernel's log to standard error.
    pub fn verbose(mut self) -> Guest {
        self.options.push("--verbose".into());
        self
    }

    /// Omits the traces of the two runs, for programs with a large number of events. If the runs differ, they are
    /// repeated with traces.
    pub fn untraced(mut self) -> Guest {
        self.traced = false;
        self
    }

    /// Selects the QEMU `name` instead of the one in PATH. `name` has the syntax of `MEMWRIGHT_QEMU`.
    pub fn qemu(mut self, name: &'static str) -> Guest {
        self.qemu = Some(name);
        self
    }

    /// Returns the command, which the caller can start.
    pub fn command(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command
            .arg("run")
            .args(["--full", "--timeout", TIMEOUT])
            .args(&self.options)
            .args(&self.command)
            .env_remove("MEMWRIGHT_KERNEL");
        if !self.embedded_kernel {
            command.env("MEMWRIGHT_KERNEL", prepare::kernel());
        }
        if let Some(name) = self.qemu {
            command.env("MEMWRIGHT_QEMU", name);
        }
        command
    }

    /// Makes a single run.
    fn once(&self, trace: Option<&Path>) -> Result<Ending, Failed> {
        let folder = tempfile::tempdir()?;
        let json = folder.path().join("account.json");
        let mut guest = self.clone().option("--json", &json);
        if let Some(trace) = trace {
            guest = guest.option("--trace", trace);
        }
        let output = guest.start(Path::new(env!("CARGO_BIN_EXE_memwright")))?;
        Ok(Ending {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            json: fs::read_to_string(json).ok(),
        })
    }

    /// Starts the command with its input, and waits until it exits.
    fn start(&self, binary: &Path) -> Result<Output, Failed> {
        let mut command = self.command(binary);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        match &self.input {
            Input::Nothing => command.stdin(Stdio::null()),
            Input::Pipe(_) => command.stdin(Stdio::piped()),
            Input::File(path) => command.stdin(fs::File::open(path)?),
        };
        let mut child = command.spawn()?;
        if let (Input::Pipe(bytes), Some(mut pipe)) = (&self.input, child.stdin.take()) {
            let bytes = bytes.clone();
            // It is not a failure if the program exits before it has read its input.
            std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        Ok(child.wait_with_output()?)
    }

    /// Makes a single run with `binary` as the command. The run is not repeated, and [`Ending::json`] is `None`.
    pub fn run_once(&self, binary: &Path) -> Result<Ending, Failed> {
        let output = self.start(binary)?;
        Ok(Ending {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            json: None,
        })
    }

    /// Returns the words of the command line. Paths are reduced to file names, because the paths of temporary folders
    /// differ.
    fn words(&self) -> Vec<String> {
        let words = self.options.iter().chain(&self.command);
        let name = |word: &OsString| match Path::new(word).file_name() {
            Some(name) => name.to_string_lossy().into_owned(),
            None => word.to_string_lossy().into_owned(),
        };
        words.map(name).collect()
    }

    /// Runs the guest twice, compares the runs, checks the audit, and returns the first run. A guest runs only once if
    /// its CPUs are parallel, or if the tier does not repeat its run.
    ///
    /// # Errors
    /// An error with the first event that differs, if the runs differ; an error if the audit found a leak or a
    /// contradiction.
    pub fn run(&self) -> Result<Ending, Failed> {
        if self.parallel || !tier::repeats(&self.words()) {
            let ending = self.once(None)?;
            clean_audit(&ending)?;
            return Ok(ending);
        }
        self.run_beside(self)
    }

    /// Runs this guest and the guest `other`, whose results must be the same. Checks the audit of the first run, and
    /// returns that run.
    ///
    /// # Errors
    /// The errors of [`Guest::run`].
    pub fn run_beside(&self, other: &Guest) -> Result<Ending, Failed> {
        let folder = tempfile::tempdir()?;
        let traces = [folder.path().join("first"), folder.path().join("second")];
        let trace = |run: usize| self.traced.then_some(traces[run].as_path());
        let (first, second) = (self.once(trace(0))?, other.once(trace(1))?);
        if let Some(difference) = self.difference(&first, &second) {
            // Runs without a trace are repeated with one, to find the event that differs.
            if !self.traced {
                self.once(Some(&traces[0]))?;
                other.once(Some(&traces[1]))?;
            }
            return Err(format!(
                "two runs differ: {difference}\n{}\n{}",
                first_difference(&traces[0], &traces[1]),
                first.report()
            )
            .into());
        }
        if self.traced && fs::read(&traces[0]).ok() != fs::read(&traces[1]).ok() {
            let event = first_difference(&traces[0], &traces[1]);
            return Err(
                format!("two runs gave the same account, but not the same trace: {event}").into(),
            );
        }
        clean_audit(&first)?;
        Ok(first)
    }

    /// Returns the first difference between two runs; `None` if they are equal.
    fn difference(&self, first: &Ending, second: &Ending) -> Option<String> {
        if first.code != second.code {
            return Some(format!("exit codes {:?} and {:?}", first.code, second.code));
        }
        let texts = [
            ("the account", first.json.as_deref(), second.json.as_deref()),
            (
                "standard output",
                Some(&*first.text()),
                Some(&*second.text()),
            ),
            (
                "standard error",
                Some(&*first.stderr),
                Some(&*second.stderr),
            ),
        ]
        .map(|(what, one, other)| (what, one.map(str::to_owned), other.map(str::to_owned)));
        for (what, one, other) in texts {
            if one != other {
                let (one, other) = (one.unwrap_or_default(), other.unwrap_or_default());
                let line = one.lines().zip(other.lines()).find(|(a, b)| a != b);
                return Some(match line {
                    Some((a, b)) => format!("{what}:\n  first:  {a}\n  second: {b}"),
                    None => format!("{what}, in length"),
                });
            }
        }
        None
    }
}

/// Returns the first event that differs between two traces.
fn first_difference(first: &Path, second: &Path) -> String {
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let (one, other) = (lines(first), lines(second));
    if one.is_empty() && other.is_empty() {
        return "(no trace was written)".to_owned();
    }
    let mut number = 0;
    let (mut ones, mut others) = (one.lines(), other.lines());
    loop {
        number += 1;
        match (ones.next(), others.next()) {
            (None, None) => return format!("the traces are equal ({} events)", number - 1),
            (a, b) if a == b => {}
            (a, b) => {
                return format!(
                    "first differing trace event, number {number}:\n  first:  {}\n  second: {}",
                    a.unwrap_or("(end)"),
                    b.unwrap_or("(end)")
                );
            }
        }
    }
}

/// Returns an error if the kernel's audit at the end of the run found a leak or a contradiction.
fn clean_audit(ending: &Ending) -> Result<(), Failed> {
    if ending.json.is_none() {
        return Ok(());
    }
    let account = ending.account()?;
    let findings = &account["account"]["audit_findings"];
    if *findings == 0 {
        return Ok(());
    }
    Err(format!("the audit at the end found {findings}: {}", ending.report()).into())
}
