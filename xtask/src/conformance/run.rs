//! Runs a test on Memwright, or on a Linux kernel in the same virtual machine.

use super::list::Test;
use crate::{command, parallel, shell};
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The output of a test, and how it ended.
pub struct Output {
    /// The standard output.
    pub text: String,
    /// The exit code of `memwright run`; `None` if a signal killed the command.
    pub code: Option<i32>,
    /// The reason for the end, if the test did not exit by itself.
    pub bad_end: Option<String>,
}

/// The kernel on which a test runs.
#[derive(Clone, Copy)]
pub enum Kernel<'a> {
    /// Memwright, with these policies.
    Memwright(&'a [String]),
    /// The Linux kernel with this name or path.
    Linux(&'a str),
}

/// The factor by which the time limit of a test is multiplied on Linux, because the Linux kernel executes more
/// instructions than Memwright's.
const LONGER_ON_LINUX: u32 = 5;

/// The shell commands that mount the file systems that tests need on Linux: a tmpfs for POSIX shared memory, and
/// debugfs.
const PREPARE: &str =
    "mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; mount -t debugfs debug /sys/kernel/debug; ";

/// The boot option that permits a process to write to its own memory through `/proc/self/mem` regardless of the
/// protection. Tests do this, and Debian's kernels deny it by default.
const WRITE_ANY_MEMORY: &str = "proc_mem.force_override=always";

/// The shell commands that end the use of the disk as swap, create a file system on it, and mount it on the folder in
/// which tests create their files.
const PREPARE_DISK: &str =
    "swapoff /dev/vda; /usr/sbin/mkfs.ext4 -q /dev/vda; mount -t ext4 /dev/vda /tmp; cd /tmp; ";

/// The options that give a guest with Linux a disk, as swap, and the program that creates a file system on it.
const DISK: [&str; 4] = ["--swap", "disk:600M", "--file", "/usr/sbin/mkfs.ext4"];

/// Runs a test in the way that its line in the list specifies.
///
/// # Errors
/// If the command cannot be started.
pub fn run(memwright: &Path, test: &Test, programs: &Path, kernel: Kernel<'_>) -> Result<Output> {
    let mut command = command::start(memwright);
    let program = programs.join(&test.program);
    command.args(machine(test, kernel, &program));
    command.args(command_line(test, kernel, &program)?);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", memwright.display()))?;
    let code = output.status.code();
    let errors = String::from_utf8_lossy(&output.stderr);
    Ok(Output {
        text: String::from_utf8_lossy(&output.stdout).into_owned(),
        code,
        bad_end: bad_end(code, &errors),
    })
}

/// Runs each test as [`run()`] does, and as many tests at a time as there are processors. Calls `report` with each test
/// and its output, in the order of the tests.
///
/// # Errors
/// As for [`run()`]. The tests after the one that failed are not reported.
pub fn all<'a>(
    memwright: &Path,
    tests: &[&'a Test],
    programs: &Path,
    kernel: Kernel<'_>,
    mut report: impl FnMut(&'a Test, Output),
) -> Result<()> {
    let run_one = |test: &&'a Test| run(memwright, test, programs, kernel);
    parallel::each(tests, run_one, |test, output| {
        report(test, output?);
        Ok(())
    })
}

/// Returns the name, release and version of a Linux kernel, as printed by `uname -srv`.
///
/// # Errors
/// If there is no such kernel, or if it does not boot.
pub fn uname(memwright: &Path, kernel: &str) -> Result<String> {
    let mut command = command::start(memwright);
    command.args(["run", "--kernel", kernel, "--no-verify", "--no-count"]);
    command.arg(busybox()?).args(["uname", "-srv"]);
    let output = command.stdin(Stdio::null()).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{kernel}: {}", errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the options of `memwright run` for the kernel and the machine. With a Linux kernel, the CPUs always take
/// turns, because the command does not support parallel CPUs there.
fn machine(test: &Test, kernel: Kernel<'_>, program: &Path) -> Vec<String> {
    let mut words = vec!["run".to_owned()];
    let mut add = |option: &str, value: &str| words.extend([option.to_owned(), value.to_owned()]);
    add("--memory", &test.memory);
    add("--cpus", &test.cpus.to_string());
    let longer = match kernel {
        Kernel::Memwright(_) => 1,
        Kernel::Linux(_) => LONGER_ON_LINUX,
    };
    add("--timeout", &(test.seconds * longer).to_string());
    let path = program.to_string_lossy();
    let options = test.options.iter();
    let mut options: Vec<String> = options
        .map(|option| option.replace("{program}", &path))
        .collect();
    match kernel {
        Kernel::Memwright(policies) => {
            for policy in policies {
                add("--policy", policy);
            }
        }
        Kernel::Linux(kernel) => {
            add("--kernel", kernel);
            options.retain(|option| option != "--parallel");
            add("--append", WRITE_ANY_MEMORY);
            options.extend(["--no-verify", "--no-count"].map(str::to_owned));
            if test.disk {
                options.extend(DISK.map(str::to_owned));
            }
        }
    }
    words.extend(options);
    words
}

/// Returns the options for additional files of the guest, and the command line that starts the program in the guest.
fn command_line(test: &Test, kernel: Kernel<'_>, program: &Path) -> Result<Vec<OsString>> {
    let mut words: Vec<OsString> = Vec::new();
    let mut start: Vec<OsString> = Vec::new();
    let script = script(test, kernel);
    if test.user != 0 {
        ensure!(test.user == NOBODY, "{PASSWD} has no user {}", test.user);
        let passwd = super::folder().join(PASSWD);
        words.extend(["--file".into(), with_place(&passwd, "/etc/passwd")]);
        start.push(busybox()?.into());
        // busybox switches to the user ID and the group ID in this text. It searches /etc/passwd for the user.
        let user = format!("{0}:{0}", test.user);
        let switch = ["start-stop-daemon", "-S", "-c", &user, "-x"];
        start.extend(switch.map(OsString::from));
    }
    if matches!(kernel, Kernel::Linux(_)) {
        words.extend(["--file".into(), with_place(&busybox()?, "/bin/sh")]);
    }
    if !script.is_empty() || test.user != 0 {
        words.extend(["--file".into(), program.into()]);
    }
    if !script.is_empty() {
        words.push(busybox()?.into());
        words.extend(["sh", "-c", &script].map(OsString::from));
    }
    words.append(&mut start);
    words.push(program.into());
    if test.user != 0 {
        words.push("--".into());
    }
    words.extend(test.arguments.iter().map(OsString::from));
    Ok(words)
}

/// Returns the shell commands that start the program in the guest; empty if no shell is needed.
fn script(test: &Test, kernel: Kernel<'_>) -> String {
    let mut script = match (kernel, test.disk) {
        (Kernel::Memwright(_), _) => String::new(),
        (Kernel::Linux(_), false) => PREPARE.to_owned(),
        (Kernel::Linux(_), true) => format!("{PREPARE}{PREPARE_DISK}"),
    };
    if test.children {
        // `cat` reads the output until the last child process of the program has ended.
        script.push_str("set -o pipefail; \"$0\" \"$@\" | cat");
    } else if !script.is_empty() {
        script.push_str("exec \"$0\" \"$@\"");
    }
    script
}

fn busybox() -> Result<PathBuf> {
    shell::which("busybox").context("busybox is not in PATH")
}

/// The ID of the only user in `PASSWD` besides root.
const NOBODY: u32 = 65_534;
/// The file name of the guests' /etc/passwd, in the folder `conformance`.
const PASSWD: &str = "passwd";

fn with_place(file: &Path, place: &str) -> OsString {
    let mut argument = file.as_os_str().to_owned();
    argument.push(":");
    argument.push(place);
    argument
}

/// Returns the reason for the end of a test that did not exit by itself, from the exit code of `memwright run`; `None`
/// if the test exited by itself.
fn bad_end(code: Option<i32>, errors: &str) -> Option<String> {
    match code {
        Some(124) => Some("out of time".to_owned()),
        Some(125..=127) | None => {
            let line = errors.lines().find(|line| line.starts_with("memwright:"));
            Some(line.unwrap_or("no result").to_owned())
        }
        Some(code @ 129..=192) => Some(format!("killed by signal {}", code - 128)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(options: &str) -> Test {
        let line = format!("h\nt\tp\t-\t0\t3G\t2\t100\tci\t{options}\n");
        Test::read(&line).unwrap().remove(0)
    }

    #[test]
    fn each_kernel_has_its_own_options() {
        let policies = ["track=fault".to_owned()];
        let (ours, linux) = (Kernel::Memwright(&policies), Kernel::Linux("debian:x"));
        let start = "run --memory 3G --cpus 2 --timeout";
        let options = "--numa 2 --parallel --file {program}:/x";
        let further = "--numa 2 --file /b/p:/x --no-verify --no-count";
        let append = "--append proc_mem.force_override=always";
        let disk = "--no-verify --no-count --swap disk:600M --file /usr/sbin/mkfs.ext4";
        for (options, kernel, expected) in [
            ("-", ours, format!("{start} 100 --policy track=fault")),
            (
                options,
                ours,
                format!("{start} 100 --policy track=fault --numa 2 --parallel --file /b/p:/x"),
            ),
            (
                options,
                linux,
                format!("{start} 500 --kernel debian:x {append} {further}"),
            ),
            ("--disk", ours, format!("{start} 100 --policy track=fault")),
            (
                "--disk",
                linux,
                format!("{start} 500 --kernel debian:x {append} {disk}"),
            ),
        ] {
            let words = machine(&test(options), kernel, Path::new("/b/p"));
            assert_eq!(words.join(" "), expected);
        }
    }

    #[test]
    fn a_shell_prepares_linux_and_waits_for_children() {
        let (ours, linux) = (Kernel::Memwright(&[]), Kernel::Linux("debian:x"));
        let (start, wait) = ("exec \"$0\" \"$@\"", "set -o pipefail; \"$0\" \"$@\" | cat");
        for (options, kernel, expected) in [
            ("-", ours, String::new()),
            ("--disk", ours, String::new()),
            ("--children", ours, wait.to_owned()),
            ("-", linux, format!("{PREPARE}{start}")),
            ("--children", linux, format!("{PREPARE}{wait}")),
            ("--disk", linux, format!("{PREPARE}{PREPARE_DISK}{start}")),
        ] {
            assert_eq!(script(&test(options), kernel), expected, "{options}");
        }
    }

    #[test]
    fn codes_that_are_no_result_are_told() {
        for (code, expected) in [
            (Some(0), None),
            (Some(4), None),
            (Some(124), Some("out of time")),
            (Some(125), Some("memwright: QEMU is missing")),
            (Some(139), Some("killed by signal 11")),
            (None, Some("memwright: QEMU is missing")),
        ] {
            let seen = bad_end(code, "a\nmemwright: QEMU is missing\n");
            assert_eq!(seen.as_deref(), expected, "{code:?}");
        }
    }
}
