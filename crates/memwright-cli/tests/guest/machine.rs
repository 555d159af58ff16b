//! Tests the options for CPUs and clocks: which versions of QEMU they need, and what the account reports about them.

use crate::support::{ends, run};
use libtest_mimic::Trial;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Returns every test of this file.
pub fn trials() -> Vec<Trial> {
    crate::trials![
        several_cpus_mark_what_repeats,
        parallel_cpus_repeat_nothing,
        several_cpus_need_a_later_qemu,
        a_later_qemu_that_cannot_be_had_is_explained,
        a_dry_run_fetches_nothing,
    ]
}

const STEPS: &str =
    "account forks 12\\ninstructions_user 99\\npaging_structure_hits not_observable\\n\nexited 0";

fn document(options: &[&str], version: &str) -> (serde_json::Value, String) {
    let mut command = run(STEPS);
    command.env("STAND_IN_VERSION", version);
    let (code, stdout, stderr) = ends(command.args(["--json", "-"]).args(options).arg("/bin/true"));
    assert_eq!(code, 0, "{stderr}");
    (serde_json::from_str(&stdout).unwrap(), stderr)
}

fn several_cpus_mark_what_repeats() {
    let (json, table) = document(&["--cpus", "4"], "10.0.2");
    assert_eq!(
        (&json["cpus"], &json["clock"]),
        (&4.into(), &"instructions".into())
    );
    assert_eq!(json["repeatable"], true);
    assert_eq!(json["repeating"], serde_json::json!(["forks"]));
    assert_eq!(
        json["account"]["instructions_user"],
        "not observable under TCG"
    );
    for line in [
        "rows marked = are the same on every run",
        "  12= forks",
        "not observable under TCG  instructions: user mode",
        "512 MiB of memory, 4 CPUs, policy default",
    ] {
        assert!(table.contains(line), "{line} is not in\n{table}");
    }
    let (json, table) = document(&[], "7.2.0");
    assert!(json.get("repeating").is_none() && json["account"]["instructions_user"] == 99);
    assert!(
        !table.contains("rows marked") && table.contains("  12  forks"),
        "{table}"
    );
}

fn parallel_cpus_repeat_nothing() {
    for cpus in ["1", "4"] {
        let (json, table) = document(&["--parallel", "--cpus", cpus], "7.2.0");
        assert_eq!(
            (&json["repeatable"], &json["clock"]),
            (&false.into(), &"host".into())
        );
        assert_eq!(json["not_repeatable"], "parallel CPUs");
        assert!(json.get("repeating").is_none());
        assert_eq!(
            json["account"]["instructions_user"],
            "not observable under TCG"
        );
        assert!(
            table.contains("\nnot repeatable: parallel CPUs\n"),
            "{table}"
        );
        assert!(
            !table.contains("rows marked") && table.contains("  12  forks"),
            "{table}"
        );
    }
}

fn several_cpus_need_a_later_qemu() {
    for (options, what) in [
        (&["--cpus", "2"][..], "several CPUs without --parallel"),
        (&["--policy", "apic=x2apic"][..], "the policy apic=x2apic"),
    ] {
        let (code, _, stderr) = ends(
            run("exited 0")
                .env("STAND_IN_VERSION", "9.2.4")
                .args(options)
                .arg("/bin/true"),
        );
        assert_eq!(code, 125);
        let line = format!("is version 9.2.4, 10.0.0 or later is needed for {what}");
        assert!(stderr.contains(&line), "{stderr}");
    }
}

/// Returns a folder that contains only a QEMU of version `version`.
fn only_qemu(version: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qemu-system-x86_64");
    fs::write(
        &path,
        format!("#!/bin/sh\necho 'QEMU emulator version {version} (fake)'\n"),
    )
    .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn a_later_qemu_that_cannot_be_had_is_explained() {
    let (folder, cache) = (only_qemu("7.2.5"), tempfile::tempdir().unwrap());
    let (code, _, stderr) = ends(
        run("")
            .env_remove("MEMWRIGHT_QEMU")
            .env("PATH", folder.path())
            .env("XDG_CACHE_HOME", cache.path())
            .args(["--cpus", "2", "/bin/true"]),
    );
    assert_eq!(code, 125);
    for words in [
        "several CPUs without --parallel",
        "QEMU 10.0.0 or later",
        "qemu-system-x86_64 is 7.2.5",
        "apt-get cannot be started",
        "MEMWRIGHT_QEMU",
        "fetching a later QEMU",
    ] {
        assert!(stderr.contains(words), "{words} is not in {stderr}");
    }
}

fn a_dry_run_fetches_nothing() {
    let (folder, cache) = (only_qemu("7.2.5"), tempfile::tempdir().unwrap());
    for (cpus, begin) in [
        ("1", "qemu-system-x86_64 "),
        ("2", cache.path().to_str().unwrap()),
    ] {
        let (code, stdout, stderr) = ends(
            run("")
                .env_remove("MEMWRIGHT_QEMU")
                .env("PATH", folder.path())
                .env("XDG_CACHE_HOME", cache.path())
                .args(["--dry-run", "--cpus", cpus, "/bin/true"]),
        );
        assert_eq!((code, stderr.as_str()), (0, ""));
        assert!(stdout.starts_with(begin), "{stdout}");
    }
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
}
