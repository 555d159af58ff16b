//! Tests `memwright run --native`, which reports times and the counters of this machine.

mod skipped;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output, Stdio};

/// A script that uses CPU time in user mode, then exits with 7.
const SCRIPT: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; echo printed; exit 7";

fn native(path: Option<&std::path::Path>, script: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
    command.args(["run", "--native", "/bin/sh", "-c", script]);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns the number that follows `title` in the output `said`; `None` if the text after the title is not a number.
fn number(said: &str, title: &str) -> Option<f64> {
    let line = said
        .lines()
        .find(|line| line.trim_start().starts_with(title));
    let line = line.unwrap_or_else(|| panic!("{title}: {said}"));
    let value = line.trim_start().strip_prefix(title).unwrap().trim();
    value.replace(',', "").parse().ok()
}

fn takes_time(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"printed\n", "{said}");
    assert_eq!(output.status.code(), Some(7), "{said}");
    let [wall, user, system] = ["wall clock, ms", "user, ms", "system, ms"]
        .map(|title| number(&said, title).expect(&said));
    assert!(wall > 0.0 && user > 0.0 && system >= 0.0, "{said}");
    // One thread cannot use more CPU time than elapses. The clocks for CPU time and for elapsed time can differ by a
    // timer tick.
    assert!(user + system <= wall + 20.0, "{said}");
}

#[test]
fn without_perf_time_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    symlink("/bin/sh", folder.path().join("sh")).unwrap();
    let output = native(Some(folder.path()), SCRIPT);
    takes_time(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("perf is missing"), "{said}");
    assert_eq!(number(&said, "minor faults"), None, "{said}");
    // If a signal kills the program, the exit code is 128 plus the signal's number, as in a shell.
    let output = native(Some(folder.path()), "kill -9 $$");
    assert_eq!(output.status.code(), Some(137));
}

/// If perf has no permission to count, the program must run nevertheless.
#[test]
fn with_a_perf_that_refuses_time_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let perf = folder.path().join("perf");
    std::fs::write(
        &perf,
        "#!/bin/sh\necho 'Access to performance monitoring is limited' >&2\nexit 255\n",
    )
    .unwrap();
    std::fs::set_permissions(&perf, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = native(Some(folder.path()), SCRIPT);
    takes_time(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("perf: Access to performance monitoring is limited"),
        "{said}"
    );
}

#[test]
fn perf_counts_where_it_is() {
    let output = native(None, SCRIPT);
    takes_time(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("nothing is counted") {
        skipped::skipped(&said);
        return;
    }
    assert!(number(&said, "minor faults") > Some(0.0), "{said}");
}

/// The command rejects a file that `execve` could not start. perf would pass such a file to a shell, which could
/// interpret it, or do nothing and succeed.
#[test]
fn what_is_no_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text");
    for (contents, mode, expected) in [
        ("", 0o755, "neither an ELF file nor a script"),
        ("echo run\n", 0o755, "neither an ELF file nor a script"),
        ("#!/bin/sh\n", 0o644, "not marked executable"),
    ] {
        std::fs::write(&file, contents).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
            .args(["run", "--native"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(126), "{contents:?}: {said}");
        assert!(said.contains(expected), "{contents:?}: {said}");
        assert!(output.stdout.is_empty(), "{contents:?}: {said}");
    }
}
