//! Tests `--kernel [NAME=]IMAGE,KEY=VALUE`: the columns of a comparison with different settings.

mod kept;
mod skipped;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use kept::has_kernel;
use serde_json::Value;

const KERNEL: &str = "debian:trixie";

fn memwright(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
    command.args(words).stdin(std::process::Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Compares one kernel in three settings. Each column's document contains its guest's settings, every guest reads the
/// same input, and the printed command reproduces the comparison.
#[test]
fn one_kernel_is_compared_in_several_settings() {
    if !has_kernel(KERNEL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (input, json) = (folder.path().join("input"), folder.path().join("json"));
    std::fs::write(&input, "some input\n").unwrap();
    let appended = format!("{KERNEL},append=init_on_alloc=0");
    let large = format!("large={KERNEL},memory=1G,thp=never,cpus=1,program=/bin/cat");
    let mut command = memwright(&["compare", "--no-verify", "--kernel", KERNEL]);
    command
        .args(["--column", &appended, "--kernel", &large, "--json"])
        .arg(&json)
        .args(["--thp", "always", "/bin/cat"])
        .stdin(File::open(&input).unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let document: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let columns = document["columns"].as_array().unwrap();
    let of = |index: usize, name: &str| columns[index][name].clone();
    let settings =
        |index: usize| -> Vec<String> { serde_json::from_value(of(index, "settings")).unwrap() };
    let has = |index: usize, setting: &str| settings(index).iter().any(|one| one == setting);
    let name = |index: usize| of(index, "kernel")["name"].as_str().unwrap().to_owned();
    assert_eq!(
        [name(0), name(1), name(2)],
        [
            KERNEL.to_owned(),
            format!("{KERNEL} append=init_on_alloc=0"),
            "large".to_owned()
        ]
    );
    assert_eq!(
        [of(0, "memory"), of(1, "memory"), of(2, "memory")],
        [512_u64 << 20, 512 << 20, 1 << 30].map(Value::from)
    );
    assert!(has(0, "thp=always") && has(1, "thp=always") && has(2, "thp=never"));
    assert!(!has(0, "append=init_on_alloc=0") && has(1, "append=init_on_alloc=0"));
    assert_eq!(of(0, "output_sha256"), of(1, "output_sha256"));
    assert_eq!(of(0, "output_sha256"), of(2, "output_sha256"));
    // The kernel of the second column does not clear memory on allocation, which saves instructions.
    let kernel = |index: usize| of(index, "run")["instructions"]["kernel"].as_u64();
    assert!(kernel(1) < kernel(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = "large: memory=1024 MiB thp=never instead of memory=512 MiB thp=always";
    assert!(text.contains(line), "{text}");

    let again = reproduced(&json, &input);
    let counts = |document: &Value| -> Vec<Value> {
        let columns = document["columns"].as_array().unwrap().iter();
        let without_host = columns.map(|column| {
            let mut column = column.clone();
            column.as_object_mut().unwrap().remove("host").unwrap();
            column
        });
        without_host.collect()
    };
    for (again, first) in counts(&again).iter().zip(counts(&document)) {
        for (name, value) in first.as_object().unwrap() {
            assert_eq!(again[name], *value, "{name} of {}", first["kernel"]["name"]);
        }
    }
}

/// Runs the command that the mail of a comparison contains, and returns the document of that second comparison.
fn reproduced(json: &Path, input: &Path) -> Value {
    let report = memwright(&["report", "--mail", "-", json.to_str().unwrap()])
        .output()
        .unwrap();
    let mail = String::from_utf8(report.stdout).unwrap();
    let (_, line) = mail.split_once("To reproduce:").unwrap();
    let line = line.replace("\\\n", " ");
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    let again = json.with_file_name("again");
    let mut command = memwright(&words[..1]);
    command
        .args(["--no-verify", "--json"])
        .arg(&again)
        .args(&words[1..])
        .stdin(File::open(input).unwrap());
    let output = command.output().unwrap();
    assert_eq!(
        (words[0], words.last()),
        ("compare", Some(&"/bin/cat")),
        "{mail}"
    );
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    serde_json::from_slice(&std::fs::read(&again).unwrap()).unwrap()
}

#[test]
fn a_column_that_cannot_be_is_refused_in_words() {
    if !has_kernel(KERNEL) {
        return;
    }
    for (changes, expected) in [
        (",speed=1", "a column has no speed; it has append, cpus,"),
        (",cpus=99", "cpus=99: expected a number from 1 to 64"),
        (",program=/no/such", "/no/such"),
        (",swap=tape:64M", "expected zram:SIZE or disk:SIZE"),
        ("", "two kernels are called"),
    ] {
        let column = format!("{KERNEL}{changes}");
        let words = [
            "compare",
            "--kernel",
            KERNEL,
            "--column",
            &column,
            "/bin/true",
        ];
        let output = memwright(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{changes}");
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
}
