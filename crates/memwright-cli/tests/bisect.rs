//! Tests `memwright check --bisect` under a real `git bisect run`, and each of its exit codes.

mod skipped;
mod stub;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use stub::{Stub, said};

const LIMIT: &str = "check --bisect --limit run.user_faults.write_protect=3 --kernel image";

const GOOD: &str = "good: run.user_faults.write_protect: 3, at most 3\n";
const BAD: &str = "BAD: run.user_faults.write_protect: 4, at most 3\n";

/// Each entry has the variables in the stand-in's image, the options and the program, the exit code, and a part of the
/// output. A code of 128 or more stops a bisection. The codes 124, 126 and 127 must not occur, because `git bisect run`
/// would mark the commit as bad.
const ENDS: &[(&str, &str, i32, &str)] = &[
    ("faults=3", "/bin/true", 0, GOOD),
    ("faults=4", "/bin/true", 1, BAD),
    ("faults=3 status=7", "/bin/true", 0, GOOD),
    ("mode=panics", "/bin/true", 125, "panicked: Kernel panic"),
    (
        "mode=panics",
        "--panic bad /bin/true",
        1,
        "panicked: Kernel panic",
    ),
    ("mode=silent", "/bin/true", 125, "without a word"),
    (
        "mode=silent",
        "--panic bad /bin/true",
        125,
        "without a word",
    ),
    (
        "mode=fails",
        "/bin/true",
        195,
        "QEMU failed: qemu: cannot set up",
    ),
    (
        "mode=unseen",
        "--limit run.instructions.kernel=1 /bin/true",
        195,
        "run.instructions.kernel was not measured",
    ),
    (
        "mode=unstable",
        "/bin/true",
        196,
        "this run does not repeat",
    ),
    (
        "mode=hangs",
        "--timeout 1 /bin/true",
        197,
        "--timeout expired",
    ),
    ("faults=3", "/no/such/program", 194, "not found"),
    ("faults=3", "/etc/passwd", 194, "permission denied"),
    (
        "faults=3",
        "--limit x /bin/true",
        194,
        "expected ROW=N or ROW=+P%",
    ),
    (
        "faults=3",
        "--limit run.invlgp=1 /bin/true",
        194,
        "close names: run.invlpg",
    ),
    (
        "faults=3",
        "--limit run.*=1 /bin/true",
        194,
        "a limit is of one row",
    ),
    (
        "faults=3",
        "--limit run.invlpg=+1% /bin/true",
        194,
        "a percentage needs --baseline",
    ),
    (
        "faults=3",
        "--limit region.2.invlpg=1 /bin/true",
        196,
        "marked no such region",
    ),
    (
        "faults=3",
        "--limit region.1.invlpg=0 /bin/true",
        0,
        "good: region.1.invlpg: 0, at most 0",
    ),
    (
        "faults=3",
        "--no-such-option /bin/true",
        194,
        "--no-such-option",
    ),
    ("faults=3", "--native /bin/true", 194, "cannot be used with"),
    (
        "faults=3",
        "--json /no/folder/x /bin/true",
        194,
        "cannot write /no/folder/x",
    ),
    (
        "faults=3",
        "--kernel image /bin/true",
        194,
        "check takes one --kernel",
    ),
];

#[test]
fn each_end_has_a_code() {
    let stub = Stub::new();
    for &(does, options, code, line) in ENDS {
        stub.image("image", does);
        let _ = fs::remove_dir(stub.at("image.seen"));
        let (said, found) = stub.said(&format!("{LIMIT} {options}"));
        assert_eq!(found, code, "{does} {options}: {said}");
        assert!(said.contains(line), "{does} {options}: {said}");
    }
    assert!(stub.is_tidy());
}

#[test]
fn an_image_that_a_build_left_out_is_skipped() {
    let stub = Stub::new();
    let run = || stub.said(&format!("{LIMIT} /bin/true"));
    assert_eq!(run().1, 125);
    fs::write(stub.at("image"), "").unwrap();
    let (said, code) = run();
    assert_eq!(code, 125, "{said}");
    // A suite that Debian does not have cannot be fetched, with or without a network.
    let (said, code) =
        stub.said("check --bisect --limit run.invlpg=1 --kernel debian:nothing /bin/true");
    assert_eq!(code, 195, "{said}");
    fs::remove_file(stub.at("image")).unwrap();
    fs::create_dir(stub.at("image")).unwrap();
    let (said, code) = stub.said("check --bisect --limit run.invlpg=1 --kernel ./image /bin/true");
    assert!(code == 194 && said.contains("is a folder"), "{said}");
}

/// If the host fails, the exit code stops the bisection, so that git marks the commit neither as good nor as bad.
#[test]
fn this_machine_is_no_commit() {
    let stub = Stub::new();
    stub.image("image", "faults=3");
    let words = format!("{LIMIT} /bin/true");
    let (text, code) = said(stub.memwright(&words).env("MEMWRIGHT_QEMU", "/no/qemu"));
    assert!(code == 195 && text.contains("QEMU is missing"), "{text}");
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec '{}' {words}",
        env!("CARGO_BIN_EXE_memwright")
    );
    let mut command = Command::new("bash");
    stub.set(command.args(["-c", &script]));
    let (text, code) = said(&mut command);
    assert!(code == 198 && text.contains("File too large"), "{text}");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let status = stub
        .memwright(&words)
        .stdout(full)
        .stderr(Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(198));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = stub
        .memwright(&words)
        .stdout(writer)
        .stderr(Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(141));
}

#[test]
fn a_signal_ends_the_bisection() {
    let stub = Stub::new();
    stub.image("image", "mode=hangs");
    let mut child = stub.memwright(&format!("{LIMIT} /bin/true"));
    let mut child = child.stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let begun = std::time::Instant::now();
    let runs = || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        // The main thread, the thread for signals and the thread for the time limit start before any guest. A fourth
        // thread runs a guest.
        children.is_ok() && threads > 3
    };
    while !runs() {
        assert!(begun.elapsed().as_secs() < 60);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn percentages_are_of_the_baseline() {
    let stub = Stub::new();
    stub.image("old", "faults=3 kernel=100000");
    let (said, code) = stub.said("run --kernel old --json base.json /bin/true");
    assert_eq!(code, 0, "{said}");
    for (does, program, code, line) in [
        (
            "kernel=100000",
            "/bin/true",
            0,
            "good: run.instructions.kernel: 100,000, at most +0.5% of 100,000",
        ),
        (
            "kernel=100500",
            "/bin/true",
            0,
            "good: run.instructions.kernel: 100,500",
        ),
        (
            "kernel=100501",
            "/bin/true",
            1,
            "BAD: run.instructions.kernel: 100,501",
        ),
        (
            "kernel=100000 status=1",
            "/bin/true",
            196,
            "exited with code 0 before, exited with code 1 now",
        ),
        ("kernel=100000", "/bin/false", 196, "another program"),
    ] {
        stub.image("image", does);
        let (said, found) = stub.said(&format!(
            "check --bisect --baseline base.json --limit run.instructions.kernel=+0.5% --kernel image {program}"
        ));
        assert_eq!(found, code, "{does}: {said}");
        assert!(said.contains(line), "{does}: {said}");
    }
    // Without --bisect, the exit codes are those of `check`.
    for (does, limit, code) in [
        ("kernel=100500", "run.instructions.kernel=+0.5%", 0),
        ("kernel=100501", "run.instructions.kernel=+0.5%", 1),
        ("kernel=100501", "run.instructions.kernel=+0.501%", 0),
        ("kernel=100000", "region.2.invlpg=1", 1),
        ("mode=panics", "run.invlpg=1", 5),
    ] {
        stub.image("image", does);
        let words =
            format!("check --baseline base.json --vary kernel --limit {limit} --kernel image");
        let (said, found) = stub.said(&format!("{words} /bin/true"));
        assert_eq!(found, code, "{does}: {said}");
    }
}

/// Creates a repository with one commit for each element of `images`, the contents of its file `image`. Returns whether
/// git is installed.
fn repository(folder: &Path, images: &[&str]) -> bool {
    let git = |words: &[&str]| {
        let identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"];
        let mut command = Command::new("git");
        command.current_dir(folder).args(identity).args(words);
        command.output()
    };
    if git(&["init", "-q"]).is_err() {
        skipped::skipped("git is missing");
        return false;
    }
    for (index, image) in images.iter().enumerate() {
        fs::write(folder.join("image"), format!("{image}\n{index}\n")).unwrap();
        for words in [
            &["add", "image"][..],
            &["commit", "-q", "-m", &index.to_string()],
        ] {
            let output = git(words).unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    }
    true
}

/// Returns the output and the exit code of `git bisect run`, and the subject of the commit that it reports as the first
/// bad one.
fn bisect(stub: &Stub, folder: &Path, commits: usize, script: &str) -> (String, i32, String) {
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        stub.set(command.args(words));
        command.current_dir(folder);
        said(&mut command)
    };
    let good = format!("HEAD~{}", commits - 1);
    let (text, code) = git(&["bisect", "start", "HEAD", &good]);
    assert_eq!(code, 0, "{text}");
    let (text, code) = git(&["bisect", "run", "sh", "-c", script]);
    let (subject, _) = git(&["log", "-1", "--format=%s", "refs/bisect/bad"]);
    (text, code, subject.trim().to_owned())
}

#[test]
fn git_finds_the_first_bad_commit() {
    let stub = Stub::new();
    for (name, does) in [
        ("A", "faults=3"),
        ("B", "faults=5"),
        ("panics", "mode=panics"),
        ("silent", "mode=silent"),
        ("fails", "mode=fails"),
    ] {
        stub.image(name, does);
    }
    // Instead of building an image, the script copies the one that the commit names.
    let script = format!(
        "rm -f image.built; cp '{0}'/$(head -1 image) image.built 2>/dev/null; \
         '{1}' check --bisect --limit run.user_faults.write_protect=3 --kernel image.built /bin/true",
        stub.at("").display(),
        env!("CARGO_BIN_EXE_memwright")
    );
    let found = |name: &str, images: &[&str], script: &str| {
        let folder = stub.at(&format!("repository-{name}"));
        fs::create_dir(&folder).unwrap();
        repository(&folder, images).then(|| bisect(&stub, &folder, images.len(), script))
    };
    let images = ["A", "A", "none", "panics", "A", "B", "silent", "B", "B"];
    let Some((text, code, subject)) = found("skips", &images, &script) else {
        return;
    };
    assert_eq!((code, subject.as_str()), (0, "5"), "{text}");
    assert!(
        text.contains("good: run.user_faults.write_protect: 3, at most 3"),
        "{text}"
    );
    // A bisection can also search for the commit that panics.
    let panic = script.replace("check --bisect", "check --bisect --panic bad");
    let images = ["A", "A", "A", "panics", "panics", "panics", "panics"];
    let (text, code, subject) = found("panics", &images, &panic).unwrap();
    assert_eq!((code, subject.as_str()), (0, "3"), "{text}");
    // A failure of the host stops the bisection, so that git blames no commit for it.
    let images = ["A", "A", "A", "fails", "B", "B", "B"];
    let (text, code, subject) = found("ends", &images, &script).unwrap();
    assert_ne!(code, 0, "{text}");
    assert!(
        text.contains("195") && !text.contains("is the first bad commit"),
        "{text}"
    );
    assert_eq!(subject, "6", "{text}");
}

/// Bisects with the program of the tutorial, for whose region Linux 6.12 executes more instructions than 6.1.
#[test]
fn git_bisects_real_kernels() {
    let stub = Stub::new();
    let (old, new) = ("debian:bookworm", "debian:trixie");
    let memwright = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
        command
            .args(words)
            .current_dir(stub.at(""))
            .stdin(Stdio::null());
        said(&mut command)
    };
    let (kept, _) = memwright(&["kernels", "list"]);
    for name in [old, new] {
        if !kept
            .lines()
            .any(|line| line.split(' ').next() == Some(name))
        {
            skipped::skipped(&format!("no kernel image: memwright kernels add {name}"));
            return;
        }
    }
    let (_, text) = include_str!("../../../docs/tutorial.md")
        .split_once("```c\n")
        .unwrap();
    fs::write(stub.at("prog.c"), text.split_once("```").unwrap().0).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/memwright");
    let built = Command::new("gcc")
        .args(["-O1", "-static", "-o", "prog", "prog.c", "-I"])
        .arg(include)
        .current_dir(stub.at(""))
        .status();
    assert!(built.unwrap().success());
    let base = [
        "run",
        "--no-verify",
        "--kernel",
        old,
        "--json",
        "base.json",
        "./prog",
    ];
    let (text, code) = memwright(&base);
    assert_eq!(code, 0, "{text}");
    let folder = stub.at("repository");
    fs::create_dir(&folder).unwrap();
    let images = [old, old, old, new, new];
    if !repository(&folder, &images) {
        return;
    }
    // The script starts the program by the same path as the run for the baseline, because `check` compares paths.
    let script = format!(
        "image=$(head -1 image); cd '{0}' && env -u MEMWRIGHT_QEMU '{1}' check --bisect --no-verify --baseline base.json \
         --limit region.1.instructions.kernel=+5% --limit region.1.user_faults.write_protect=0 --kernel $image ./prog",
        stub.at("").display(),
        env!("CARGO_BIN_EXE_memwright")
    );
    let (text, code, subject) = bisect(&stub, &folder, images.len(), &script);
    assert_eq!((code, subject.as_str()), (0, "3"), "{text}");
    assert!(
        text.contains("BAD: region.1.instructions.kernel: "),
        "{text}"
    );
    assert!(
        text.contains("good: region.1.user_faults.write_protect: 0, at most 0"),
        "{text}"
    );
}
