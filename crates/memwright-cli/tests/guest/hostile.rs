//! Tests unusual inputs, outputs and environments. In each of them, the command must give a message and an exit code,
//! and must not hang.

use crate::support::{
    described, ends, first_line, has_ended, run, run_true, start, within, within_to,
};
use libtest_mimic::Trial;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Returns every test of this file.
pub fn trials() -> Vec<Trial> {
    crate::trials![
        no_input_is_a_pipe_or_a_device,
        a_baseline_of_another_shape_is_refused,
        an_endless_standard_input_is_bounded,
        a_qemu_that_does_not_answer_is_given_up,
        a_full_standard_output_is_a_failure,
        a_closed_standard_output_ends_every_command_quietly,
        no_file_is_written_over,
        what_a_killed_command_left_goes_with_the_next,
        commands_side_by_side_leave_nothing,
        a_check_ends_by_signals,
        a_bench_ends_by_signals,
        an_ignored_interrupt_stays_ignored,
        surroundings_that_are_missing_are_named,
        values_without_sense_are_refused,
        files_that_no_guest_can_have_are_refused,
        what_has_no_room_is_refused_before_it_boots,
        an_output_that_is_not_read_holds_no_command_up,
    ]
}

/// Returns a `memwright` command with this subcommand and these arguments. Each guest that the command starts hangs.
fn memwright(words: &[&str]) -> Command {
    let mut command = run("hang");
    let mut other = Command::new(command.get_program());
    for (name, value) in command.get_envs() {
        other.env(name, value.unwrap_or_default());
    }
    command = other;
    command.args(words).stdin(Stdio::null());
    command
}

fn pipe(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    path
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns the path of a file that the command accepts as a kernel image.
fn image(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("image");
    let mut bytes = vec![0; 0x400];
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    fs::write(&path, bytes).unwrap();
    path
}

fn no_input_is_a_pipe_or_a_device() {
    let host = tempfile::tempdir().unwrap();
    let (pipe, cache) = (pipe(&host), host.path().to_str().unwrap());
    let pipe = pipe.to_str().unwrap();
    for (path, kind) in [(pipe, "a named pipe"), ("/dev/zero", "a device")] {
        let named = format!("x={path}");
        let bad: &[(&[&str], i32)] = &[
            (&["run", path], 126),
            (&["run", "--file", path, "/bin/true"], 125),
            (&["run", "--kernel", path, "/bin/true"], 125),
            (&["run", "--kernel", &named, "/bin/true"], 125),
            (&["check", "--baseline", path, "/bin/true"], 2),
            (
                &["compare", "--kernel", path, "--kernel", path, "/bin/true"],
                2,
            ),
            (&["bench", "basics", "--kernel", path], 2),
            (&["kernels", "add", path], 2),
            (&["kernels", "add", &named], 2),
        ];
        for (words, code) in bad {
            let (found, stdout, stderr) = within(memwright(words).env("XDG_CACHE_HOME", cache));
            assert_eq!((found, stdout.as_str()), (*code, ""), "{words:?}: {stderr}");
            // A kernel is looked up by name only if the argument is not a path.
            assert!(
                stderr.contains(path) && stderr.contains(kind),
                "{words:?}: {stderr}"
            );
        }
        let (code, _, stderr) = within(run_true("hang").env("MEMWRIGHT_KERNEL", path));
        assert_eq!(code, 125);
        assert!(stderr.contains(path) && stderr.contains(kind), "{stderr}");
    }
}

fn a_baseline_of_another_shape_is_refused() {
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("base.json");
    let deep =
        |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
    for text in [
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        "{\"schema\": 2}".to_owned(),
        "{\"schema\": 1, \"account\": {}}".to_owned(),
        "{\"schema\": 2, \"account\": []}".to_owned(),
        deep("[", "]"),
        deep("{\"a\":", "}"),
        "\u{feff}{}".to_owned(),
        "\0".repeat(1000),
    ] {
        fs::write(&path, &text).unwrap();
        let words = ["check", "--baseline", path.to_str().unwrap(), "/bin/true"];
        let (code, _, stderr) = within(&mut memwright(&words));
        let shown: String = text.chars().take(40).collect();
        assert_eq!(code, 2, "{shown}: {stderr}");
        assert!(
            stderr.contains("base.json") && stderr.lines().count() == 1,
            "{stderr}"
        );
    }
}

fn an_endless_standard_input_is_bounded() {
    let host = tempfile::tempdir().unwrap();
    let image = image(&host);
    let words = [
        "run",
        "--kernel",
        image.to_str().unwrap(),
        "--memory",
        "16M",
        "--timeout",
        "1",
    ];
    let mut endless = memwright(&words);
    endless
        .arg("/bin/true")
        .stdin(fs::File::open("/dev/zero").unwrap());
    let (code, _, stderr) = within(&mut endless);
    // The command rejects inputs that are too large. On a slow machine, the time limit of one second expires before
    // that.
    assert!(code == 125 || code == 124, "{stderr}");
    assert!(stderr.contains("standard input"), "{stderr}");
    let (_reader, writer) = std::io::pipe().unwrap();
    let mut silent = memwright(&words);
    silent.arg("/bin/true").stdin(_reader);
    let (code, _, stderr) = within(&mut silent);
    drop(writer);
    assert_eq!(code, 124, "{stderr}");
    assert!(stderr.contains("standard input has no end yet"), "{stderr}");
}

fn a_qemu_that_does_not_answer_is_given_up() {
    let host = tempfile::tempdir().unwrap();
    let qemu = host.path().join("qemu-system-x86_64");
    for (script, words) in [
        ("sleep 1000", "did not end within 1 s"),
        (
            "trap '' TERM; while :; do sleep 1000; done",
            "did not end within 1 s",
        ),
        ("exec yes", "--version does not stop printing"),
    ] {
        executable(&qemu, &format!("#!/bin/sh\n{script}\n"));
        let path = format!("{}:/usr/bin:/bin", host.path().display());
        for cpus in ["1", "2"] {
            let mut command = run("");
            command.env("PATH", &path).env_remove("MEMWRIGHT_QEMU");
            command.args(["--timeout", "1", "--cpus", cpus, "/bin/true"]);
            let (code, _, stderr) = within(&mut command);
            assert_eq!(code, 125, "{stderr}");
            assert!(stderr.contains(words), "{script}: {stderr}");
            assert!(stderr.contains("qemu-system-x86_64"), "{stderr}");
        }
    }
}

fn full() -> Stdio {
    fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

fn closed() -> Stdio {
    // The reading end is dropped at once, so that each write fails with EPIPE.
    std::io::pipe().unwrap().1.into()
}

/// Commands that print, each with its exit code if printing fails.
const PRINTING: &[(&[&str], i32)] = &[
    (&["--help"], 70),
    (&["--version"], 70),
    (&["run", "--help"], 125),
    (&["run", "--dry-run", "/bin/true"], 125),
    (&["bench", "--list"], 70),
    (&["completions", "bash"], 70),
    (&["doctor"], 70),
];

fn a_full_standard_output_is_a_failure() {
    let failed = |command: &mut Command, code: i32| {
        let (found, _, stderr) = within_to(command, full());
        assert_eq!(found, code, "{command:?}: {stderr}");
        let line = "cannot write to standard output: No space left on device";
        assert!(stderr.contains(line), "{command:?}: {stderr}");
    };
    failed(&mut run_true("stdout words\\n\nhang"), 125);
    failed(run("exited 0").args(["--json", "-", "/bin/true"]), 125);
    for (words, code) in PRINTING {
        failed(&mut memwright(words), *code);
    }
}

fn a_closed_standard_output_ends_every_command_quietly() {
    let quiet = |command: &mut Command| {
        let (found, _, stderr) = within_to(command, closed());
        assert_eq!((found, stderr.as_str()), (141, ""), "{command:?}");
    };
    quiet(&mut run_true("stdout words\\n\nhang"));
    for (words, _) in PRINTING {
        quiet(&mut memwright(words));
    }
    let mut command = run("exited 0");
    let (code, _, _) = within_to(command.args(["--json", "-", "/bin/true"]), closed());
    assert_eq!(code, 141);
}

fn no_file_is_written_over() {
    let host = tempfile::tempdir().unwrap();
    let at = |name: &str| host.path().join(name).to_str().unwrap().to_owned();
    fs::copy("/bin/true", at("kernel")).unwrap();
    fs::write(at("data"), "data").unwrap();
    fs::hard_link(at("data"), at("same")).unwrap();
    let before = fs::read(at("kernel")).unwrap();
    let keep = host.path().to_str().unwrap().to_owned();
    let (kernel, data, same, out) = (at("kernel"), at("data"), at("same"), at("out"));
    for options in [
        &["--json", &out, "--trace", &out][..],
        &["--json", &kernel],
        &["--trace", &kernel],
        &["--keep", &keep],
        &["--file", &data, "--json", &same],
    ] {
        let (code, _, stderr) = within(run("exited 0").args(options).arg(at("kernel")));
        assert_eq!(code, 125, "{options:?}: {stderr}");
        assert!(
            stderr.contains("cannot write") && stderr.contains(" too"),
            "{stderr}"
        );
    }
    assert_eq!(fs::read(at("kernel")).unwrap(), before);
    assert_eq!(fs::read_to_string(at("data")).unwrap(), "data");
    let base = at("data");
    let words = ["check", "--baseline", &base, "--json", &base, "/bin/true"];
    fs::write(&base, "{\"schema\": 2, \"account\": {}}").unwrap();
    let (code, _, stderr) = within(&mut memwright(&words));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("it is the baseline too"), "{stderr}");
    let words = [
        "check",
        "--baseline",
        &base,
        "--csv",
        "-",
        "--md",
        "-",
        "/bin/true",
    ];
    assert_eq!(within(&mut memwright(&words)).0, 2);
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn what_a_killed_command_left_goes_with_the_next() {
    let temporary = tempfile::tempdir_in("/tmp").unwrap();
    let left = || fs::read_dir(temporary.path()).unwrap().count();
    let mut killed = start(run_true("stdout ready\\n\nhang").env("TMPDIR", temporary.path()));
    assert_eq!(first_line(killed.stdout.as_mut().unwrap()), "ready");
    let mut living = start(run_true("stdout ready\\n\nhang").env("TMPDIR", temporary.path()));
    assert_eq!(first_line(living.stdout.as_mut().unwrap()), "ready");
    assert_eq!(left(), 2);
    signal(&killed, Signal::KILL);
    killed.wait().unwrap();
    assert_eq!(left(), 2);
    assert_eq!(
        ends(run_true("exited 0").env("TMPDIR", temporary.path())).0,
        0
    );
    assert_eq!(left(), 1, "the folder of the one that lives");
    signal(&living, Signal::TERM);
    assert_eq!(living.wait().unwrap().code(), Some(143));
    assert_eq!(left(), 0);
}

fn commands_side_by_side_leave_nothing() {
    let temporary = tempfile::tempdir_in("/tmp").unwrap();
    let children: Vec<Child> = (0..4)
        .map(|_| start(run_true("exited 3").env("TMPDIR", temporary.path())))
        .collect();
    for child in children {
        let (code, _, stderr) = described(child.wait_with_output().unwrap());
        assert_eq!(code, 3, "{stderr}");
    }
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

/// Starts a command whose guest hangs. `interrupt` determines whether SIGINT has its default action or is ignored. Also
/// returns the process ID of the command's QEMU.
fn hanging(words: &[&str], host: &TempDir, interrupt: &str) -> (Child, String) {
    let file = host.path().join("pid");
    let _ = fs::remove_file(&file);
    let inner = memwright(words);
    let mut command = Command::new("env");
    command
        .arg("--default-signal=HUP,TERM")
        .arg(format!("--{interrupt}-signal=INT"))
        .arg(inner.get_program());
    for (name, value) in inner.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command
        .args(inner.get_args())
        .env("STAND_IN", format!("pid {}\nhang", file.display()))
        .env("XDG_CACHE_HOME", host.path().join("cache"))
        .env("TMPDIR", host.path().join("tmp"))
        .stdin(Stdio::null());
    fs::create_dir_all(host.path().join("tmp")).unwrap();
    (start(&mut command), appearing(&file))
}

/// Waits until a file exists, and returns its text.
fn appearing(file: &Path) -> String {
    let patience = Instant::now() + Duration::from_secs(120);
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        if !text.is_empty() {
            return text;
        }
        assert!(Instant::now() < patience, "no guest was started");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Asserts that signals end a command and its guest, and that no file is left behind.
fn ends_by_signals(words: &[&str], host: &TempDir) {
    for (sent, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let (child, process) = hanging(words, host, "default");
        signal(&child, sent);
        let (found, _, stderr) = described(child.wait_with_output().unwrap());
        assert_eq!(found, code, "{stderr}");
        assert!(stderr.contains("ended by signal"), "{stderr}");
        let patience = Instant::now() + Duration::from_secs(20);
        while !has_ended(&process) {
            assert!(Instant::now() < patience, "QEMU still runs");
            std::thread::sleep(Duration::from_millis(5));
        }
        let left: Vec<_> = fs::read_dir(host.path().join("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn a_check_ends_by_signals() {
    let host = tempfile::tempdir_in("/tmp").unwrap();
    let base = host.path().join("base.json");
    fs::write(&base, "{\"schema\": 2, \"account\": {}}").unwrap();
    let words = ["check", "--baseline", base.to_str().unwrap(), "/bin/true"];
    ends_by_signals(&words, &host);
}

fn a_bench_ends_by_signals() {
    let host = tempfile::tempdir_in("/tmp").unwrap();
    ends_by_signals(&["bench", "basics"], &host);
}

fn an_ignored_interrupt_stays_ignored() {
    let host = tempfile::tempdir_in("/tmp").unwrap();
    for words in [
        &["run", "/bin/true"][..],
        &["bench", "basics", "--no-verify"],
    ] {
        let (mut child, process) = hanging(words, &host, "ignore");
        for _ in 0..2 {
            signal(&child, Signal::INT);
        }
        std::thread::sleep(Duration::from_millis(300));
        assert!(
            child.try_wait().unwrap().is_none() && !has_ended(&process),
            "{words:?}"
        );
        signal(&child, Signal::TERM);
        let (code, _, stderr) = described(child.wait_with_output().unwrap());
        assert_eq!(code, 143, "{stderr}");
    }
}

fn surroundings_that_are_missing_are_named() {
    let host = tempfile::tempdir().unwrap();
    let file = host.path().join("file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    // The command starts in a read-only folder, and HOME is not set.
    let mut command = run_true("exited 0");
    let (code, _, stderr) = within(command.current_dir("/proc").env_remove("HOME"));
    assert_eq!(code, 0, "{stderr}");
    for (name, value, words) in [
        (
            "TMPDIR",
            "/no/such/folder",
            &["/no/such/folder", "No such file"][..],
        ),
        ("TMPDIR", file, &[file, "Not a directory"]),
        ("TMPDIR", "/proc", &["/proc", "temporary folder"]),
        (
            "MEMWRIGHT_QEMU",
            "/no/such/qemu",
            &["QEMU is missing", "/no/such/qemu"],
        ),
        (
            "MEMWRIGHT_QEMU",
            "/etc",
            &["QEMU cannot be started", "/etc", "denied"],
        ),
        ("MEMWRIGHT_QEMU", "/bin/false", &["/bin/false is not QEMU"]),
        (
            "MEMWRIGHT_KERNEL",
            "/no/such/image",
            &["/no/such/image", "No such file"],
        ),
        ("MEMWRIGHT_KERNEL", "/etc", &["/etc", "is a folder"]),
    ] {
        let (code, _, stderr) = within(run_true("exited 0").env(name, value));
        assert_eq!(code, 125, "{name}={value}: {stderr}");
        for word in words {
            assert!(
                stderr.contains(word),
                "{name}={value}: {word} is not in {stderr}"
            );
        }
    }
    let mut command = memwright(&["kernels", "list"]);
    command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
    let (code, _, stderr) = within(&mut command);
    assert_eq!(code, 70, "{stderr}");
    assert!(stderr.contains("HOME"), "{stderr}");
}

fn values_without_sense_are_refused() {
    for value in [
        "",
        " ",
        "-1",
        "NaN",
        "inf",
        "1e999",
        "1e-300",
        "0x10",
        "99999999999999999999999",
        "18446744073709551615G",
        "٣",
        "∞",
        "🦀",
        "a:b:c",
        ":",
        "=",
    ] {
        for (option, before) in [
            ("--memory", ""),
            ("--cpus", ""),
            ("--timeout", ""),
            ("--numa", ""),
            ("--numa", "16M:"),
            ("--hugetlb", ""),
            ("--swap", ""),
            ("--swap", "zram:"),
            ("--swap", "disk:"),
            ("--thp", ""),
            ("--thp-size", ""),
            ("--thp-size", "64K:"),
            ("--policy", ""),
            ("--policy", "aslr="),
            ("--policy", "tlb="),
            ("--policy", "swap-errors="),
        ] {
            let given = format!("{option}={before}{value}");
            let (code, stdout, stderr) =
                within(run("hang").args(["--dry-run", &given, "/bin/true"]));
            assert_eq!((code, stdout.as_str()), (125, ""), "{given}: {stderr}");
            assert!(stderr.contains(option), "{given}: {stderr}");
            assert!(!stderr.contains("panicked"), "{given}: {stderr}");
        }
    }
}

fn files_that_no_guest_can_have_are_refused() {
    let host = tempfile::tempdir().unwrap();
    let file = host.path().join("file");
    fs::write(&file, "").unwrap();
    let file = file.display();
    let long = "n".repeat(256);
    for (files, words) in [
        (
            &[format!("{file}:/proc/y")][..],
            "the guest's kernel fills /proc itself",
        ),
        (
            &[format!("{file}:/sys/y")],
            "the guest's kernel fills /sys itself",
        ),
        (
            &[format!("{file}:/dev/y")],
            "the guest's kernel fills /dev itself",
        ),
        (
            &[format!("{file}:/.memwright/options")],
            "the guest's kernel fills /.memwright itself",
        ),
        (&[format!("{file}:/{long}")], "File name too long"),
        (
            &[format!("{file}:{}", "/p".repeat(2100))],
            "File name too long",
        ),
        (
            &[format!("{file}:/a/b"), format!("{file}:/a")],
            "both a folder and a file",
        ),
        (
            &[format!("{file}:/a"), format!("{file}:/a/b")],
            "/a is not a folder in the guest",
        ),
        (&[format!("{file}/x:/a")], "Not a directory"),
        (&["/proc/self/mem:/mem".to_owned()], "/proc/self/mem"),
    ] {
        let mut command = run("exited 0");
        for file in files {
            command.args(["--file", file]);
        }
        let (code, _, stderr) = within(command.arg("/bin/true"));
        assert_eq!(code, 125, "{files:?}: {stderr}");
        assert!(stderr.contains(words), "{files:?}: {stderr}");
    }
}

fn what_has_no_room_is_refused_before_it_boots() {
    let host = tempfile::tempdir().unwrap();
    let folder = host.path().join("many");
    fs::create_dir(&folder).unwrap();
    for number in 0..9000 {
        fs::write(folder.join(number.to_string()), "").unwrap();
    }
    let folder = folder.to_str().unwrap();
    let bad: &[&[&str]] = &[
        &["--cpus", "64", "--memory", "16M"],
        &["--swap", "zram:63G"],
        &["--swap", "zram:1G", "--memory", "16M"],
        &["--hugetlb", "500M"],
        &["--hugetlb", "1024G"],
        &["--hugetlb", "6M", "--memory", "16M", "--numa", "8"],
        &["--file", folder, "--memory", "64M"],
    ];
    for options in bad {
        let (code, stdout, stderr) = within(run("hang").args(*options).arg("/bin/true"));
        assert_eq!((code, stdout.as_str()), (125, ""), "{options:?}: {stderr}");
        assert!(stderr.contains("needs --memory "), "{options:?}: {stderr}");
    }
    let (code, _, stderr) = within(run("hang").args(["--swap=zram:16M"; 33]).arg("/bin/true"));
    assert_eq!(code, 125);
    assert!(
        stderr.contains("--swap: a guest has 32 devices at most"),
        "{stderr}"
    );
}

/// Checks that the time limit and signals end a command that is blocked in a write to a full pipe.
fn an_output_that_is_not_read_holds_no_command_up() {
    let flooding = |options: &[&str]| start(run("flood").args(options).arg("/bin/true"));
    let patient = |child: &mut Child| {
        let patience = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < patience, "it still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut timed = flooding(&["--timeout", "1"]);
    let mut ended = flooding(&[]);
    assert_eq!(first_line(ended.stdout.as_mut().unwrap()), "flood");
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..2 {
        signal(&ended, Signal::TERM);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(patient(&mut ended), Some(143));
    assert_eq!(patient(&mut timed), Some(124));
}
