//! Tests benches that several workers share: the parts of a bench, folders of results, and merging results. The kernels
//! are stand-ins.

mod stub;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest, Sha256};
use stub::{Stub, said};

/// The plan of the benches: two kernels, and three points.
const PLAN: &str = r#"
program = ["/bin/true", "{n}"]
parameter = ["n=1,2,3"]
no-verify = true
rows = ["run.*"]

[[column]]
name = "old"
kernel = "before"

[[column]]
name = "new"
kernel = "after"
"#;

/// Returns a stand-in with the plan and its kernels.
fn stub() -> Stub {
    let stub = Stub::new();
    stub.image("before", "faults=3");
    stub.image("after", "faults=4");
    fs::write(stub.at("plan.toml"), PLAN).unwrap();
    stub
}

/// Runs a part of the plan, which must succeed.
fn run_part(stub: &Stub, shard: &str, folder: &str) -> String {
    let line = format!("bench --plan plan.toml --shard {shard} --results {folder}");
    let (text, code) = stub.said(&line);
    assert_eq!(code, 0, "{text}");
    text
}

/// Returns the files of a folder whose names begin with `beginning`.
fn files(folder: &Path, beginning: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(beginning)
    });
    paths.sort();
    paths
}

/// Removes from a document the parts that depend on the host.
fn without_host(text: &str) -> String {
    let mut document: Value = serde_json::from_str(text).unwrap();
    for point in document["points"].as_array_mut().unwrap() {
        for column in point["columns"].as_array_mut().unwrap() {
            column["host"]["image"] = "".into();
            column["host"]["command"] = "".into();
        }
    }
    serde_json::to_string_pretty(&document).unwrap() + "\n"
}

/// Runs a command that writes its output in every format, to files whose names begin with `name`. Returns the contents
/// of these files. The command must exit with `code`.
fn outputs(stub: &Stub, command: &str, name: &str, code: i32) -> Vec<String> {
    let formats = ["json", "csv", "md", "mail", "html"];
    let options = formats
        .map(|format| format!("--{format} {name}.{format}"))
        .join(" ");
    let output = stub
        .memwright(&format!("{command} {options}"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{errors}");
    let read = |format| fs::read_to_string(stub.at(&format!("{name}.{format}"))).unwrap();
    let mut all: Vec<String> = formats.into_iter().map(read).collect();
    all[0] = without_host(&all[0]);
    all.push(String::from_utf8(output.stdout).unwrap());
    all
}

#[test]
fn parts_print_together_what_one_bench_prints() {
    let stub = stub();
    let serial = outputs(&stub, "bench --plan plan.toml", "serial", 0);
    assert!(serial[5].contains("n=1"), "{}", serial[5]);
    for (shard, folder) in [("2/3", "a"), ("1/3", "b"), ("3/3", "a")] {
        let text = run_part(&stub, shard, folder);
        let line =
            format!("shard {shard}: 2 of 6 runs: 2 made, 0 there before, 0 without a result");
        assert!(text.contains(&line), "{text}");
    }
    for folders in ["a b", "b a", "a b a"] {
        let merged = outputs(&stub, &format!("report {folders}"), "merged", 0);
        assert_eq!(merged, serial, "{folders}");
    }
    // A bench of the complete plan prints the same output as a bench without parts. It uses the results in the folder,
    // and makes only the runs that have no result there.
    let whole = outputs(&stub, "bench --plan plan.toml --results a", "whole", 0);
    assert_eq!(whole, serial);
    assert_eq!(files(&stub.at("a"), "result-").len(), 6);
    let again = run_part(&stub, "1/1", "a");
    assert!(again.contains("0 made, 6 there before"), "{again}");
    assert!(stub.is_tidy());
}

#[test]
fn a_late_part_only_adds() {
    let stub = stub();
    run_part(&stub, "1/2", "a");
    let (text, code) = stub.said("report a");
    assert_eq!(code, 4, "{text}");
    for line in [
        "missing: 3\n",
        " on new\n",
        "not complete: 3 runs are missing",
    ] {
        assert!(text.contains(line), "{text}");
    }
    run_part(&stub, "2/2", "a");
    let (text, code) = stub.said("report a");
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("missing"), "{text}");
}

#[test]
fn a_result_in_two_folders_counts_once() {
    let stub = stub();
    run_part(&stub, "1/1", "a");
    let (alone, _) = stub.said("report a");
    fs::create_dir(stub.at("b")).unwrap();
    for path in [
        files(&stub.at("a"), "plan-"),
        files(&stub.at("a"), "result-")[..2].to_vec(),
    ]
    .concat()
    {
        fs::copy(&path, stub.at("b").join(path.file_name().unwrap())).unwrap();
    }
    let (text, code) = stub.said("report b a");
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("in several folders, and counted once: 2\n"),
        "{text}"
    );
    assert!(text.starts_with(&alone), "{text}");
    symlink(stub.at("a"), stub.at("link")).unwrap();
    let (text, _) = stub.said("report a link");
    assert!(
        text.contains("link is given twice, and is read once"),
        "{text}"
    );
    assert!(text.starts_with(&alone), "{text}");
}

/// Writes `text` next to `path`, as a second result of the same cell.
fn write_beside(path: &Path, text: &str) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let (address, _) = name.rsplit_once('-').unwrap();
    let hash: String = Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    fs::write(path.with_file_name(format!("{address}-{hash}.json")), text).unwrap();
}

#[test]
fn different_results_of_one_run_are_an_error() {
    let stub = stub();
    run_part(&stub, "1/1", "a");
    let one = &files(&stub.at("a"), "result-")[0];
    let text = fs::read_to_string(one).unwrap();
    write_beside(one, &text.replacen("\"kernel\":1000", "\"kernel\":1001", 1));
    let (text, code) = stub.said("report a");
    assert_eq!(code, 4, "{text}");
    assert!(
        text.contains("contradictory: different results of one run: 1\n"),
        "{text}"
    );
    assert!(
        text.contains("no claim is possible: 1 runs have different results"),
        "{text}"
    );
}

/// Files that are not results are reported and not counted, and are not read to their end. A part that runs again
/// replaces these files.
#[test]
fn damaged_results_are_named_and_made_again() {
    let stub = stub();
    run_part(&stub, "1/1", "a");
    let (whole, _) = stub.said("report a");
    let results = files(&stub.at("a"), "result-");
    let [cut, large, deep, moved, pipe, folder] = results.as_slice() else {
        panic!("{results:?}");
    };
    let set_length = |path: &Path, length| {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(length).unwrap();
    };
    set_length(cut, 100);
    set_length(large, 1 << 30);
    fs::remove_file(deep).unwrap();
    let nested = "[".repeat(1 << 20);
    write_beside(
        deep,
        &format!("{{\"found\":{{\"figures\":{{\"records\":[{{\"x\":{nested}"),
    );
    let text = fs::read_to_string(pipe).unwrap();
    fs::remove_file(moved).unwrap();
    write_beside(moved, &text);
    for path in [pipe, folder] {
        fs::remove_file(path).unwrap();
    }
    assert!(
        std::process::Command::new("mkfifo")
            .arg(pipe)
            .status()
            .unwrap()
            .success()
    );
    fs::create_dir(folder).unwrap();
    let (text, code) = stub.said("report a");
    assert_eq!(code, 4, "{text}");
    for line in [
        "cut short or damaged, and not counted: 6\n",
        "its 100 bytes are not those that were written",
        "is larger than 64 MiB",
        "no result of a cell: recursion limit exceeded",
        "the result of another cell",
        "is a named pipe, not a regular file",
        "is a folder, not a regular file",
        "missing: 6\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    fs::remove_dir(folder).unwrap();
    run_part(&stub, "1/1", "a");
    let (text, code) = stub.said("report a");
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with(&whole), "{text}");
}

#[test]
fn versions_are_not_mixed() {
    let stub = stub();
    run_part(&stub, "1/2", "a");
    stub.image("after", "faults=5");
    run_part(&stub, "2/2", "a");
    let (text, code) = stub.said("report a");
    assert_eq!(code, 4, "{text}");
    for part in [
        "of 6 runs; differs in work.program.columns.1.sha256\n",
        "not comparable: the results are of 2 benches or versions",
    ] {
        assert!(text.contains(part), "{text}");
    }
    run_part(&stub, "1/2", "a");
    for plan in files(&stub.at("a"), "plan-") {
        let name = plan.file_name().unwrap().to_str().unwrap();
        let hash = &name["plan-".len()..][..12];
        let (text, code) = stub.said(&format!("report a --only {hash}"));
        // The results of the second version are complete now. The results of the first version lack the second part on
        // the kernel that changed.
        let is_complete = code == 0 && text.contains("counted: 2 results")
            || code == 4 && text.contains("missing: ");
        assert!(is_complete, "{code} {text}");
    }
    let (text, code) = stub.said("report a --only 0123");
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("--only 0123: no folder has such a plan"),
        "{text}"
    );
}

#[test]
fn a_killed_worker_leaves_nothing_that_counts() {
    let stub = stub();
    let hold = stub.at("hold");
    let does = format!("faults=4; test -e {} && mode=hangs", hold.display());
    stub.image("after", &does);
    let serial = outputs(&stub, "bench --plan plan.toml", "serial", 0);
    fs::write(&hold, "").unwrap();
    let mut worker = stub.memwright("bench --plan plan.toml --shard 1/1 --results a");
    let mut worker = worker
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    // The worker cannot end, because each run on one of the kernels hangs.
    while !stub.at("a").exists() || files(&stub.at("a"), "plan-").is_empty() {
        assert!(Instant::now() < end, "the worker wrote no plan");
        std::thread::sleep(Duration::from_millis(10));
    }
    worker.kill().unwrap();
    worker.wait().unwrap();
    // Create the partial file that a worker leaves behind if it is killed during a write.
    fs::write(stub.at("a/.memwright-abc"), "{\"schema\":1,").unwrap();
    let (text, code) = stub.said("report a");
    assert_eq!(code, 4, "{text}");
    fs::remove_file(&hold).unwrap();
    run_part(&stub, "1/1", "a");
    assert_eq!(outputs(&stub, "report a", "merged", 0), serial);
}

#[test]
fn two_workers_with_the_same_runs_end_with_one_result_each() {
    let stub = stub();
    let worker = || {
        let mut worker = stub.memwright("bench --plan plan.toml --shard 1/1 --results a");
        worker
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    for mut worker in [worker(), worker(), worker()] {
        assert!(worker.wait().unwrap().success());
    }
    assert_eq!(files(&stub.at("a"), "").len(), 7);
    let (text, code) = stub.said("report a");
    assert_eq!(code, 0, "{text}");
}

/// If a guest gives no result, its part continues with the other runs.
#[test]
fn a_guest_without_a_result_is_missing() {
    let stub = stub();
    stub.image("after", "mode=panics");
    let (text, code) = stub.said("bench --plan plan.toml --shard 1/1 --results a");
    assert_eq!(code, 5, "{text}");
    for part in [
        "n=2 on new: ",
        "shard 1/1: 6 of 6 runs: 3 made, 0 there before, 3 without a result",
        "3 runs gave no result",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let (text, code) = stub.said("report a");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("missing: 3\n"), "{text}");
}

#[test]
fn equal_columns_share_their_results() {
    let stub = stub();
    fs::copy(stub.at("before"), stub.at("copy")).unwrap();
    fs::write(stub.at("plan.toml"), PLAN.replace("\"after\"", "\"copy\"")).unwrap();
    let serial = outputs(&stub, "bench --plan plan.toml", "serial", 0);
    let text = run_part(&stub, "1/1", "a");
    assert!(
        text.contains("6 of 6 runs: 3 made, 3 there before"),
        "{text}"
    );
    assert_eq!(outputs(&stub, "report a", "merged", 0), serial);
}

#[test]
fn what_cannot_be_a_part_or_a_folder_is_refused() {
    let stub = stub();
    fs::create_dir(stub.at("other")).unwrap();
    fs::write(stub.at("other/notes.txt"), "").unwrap();
    fs::create_dir(stub.at("empty")).unwrap();
    let bench = "bench --plan plan.toml";
    for (line, part) in [
        (
            format!("{bench} --shard 0/0 --results a"),
            "expected I/N with I from 1 to N",
        ),
        (
            format!("{bench} --shard 5/3 --results a"),
            "expected I/N with I from 1 to N",
        ),
        (format!("{bench} --shard 1/2"), "--results <DIR>"),
        (
            format!("{bench} --shard 1/2 --results a --json x"),
            "cannot be used with",
        ),
        (
            format!("{bench} --shard auto --results a"),
            "SLURM_ARRAY_TASK_ID is not set",
        ),
        (
            format!("{bench} --results other"),
            "other is not empty, and no folder of results",
        ),
        (
            format!("{bench} --results plan.toml"),
            "cannot make the folder plan.toml",
        ),
        ("report other".to_owned(), "other is no folder of results"),
        ("report empty".to_owned(), "empty is no folder of results"),
        (
            "report empty plan.toml".to_owned(),
            "are not mixed with documents",
        ),
        (
            "report plan.toml --only 1".to_owned(),
            "no folder of results is given",
        ),
    ] {
        let mut command = stub.memwright(&line);
        for name in ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"] {
            command.env_remove(name);
        }
        let (text, code) = said(&mut command);
        assert_eq!(code, 2, "{line}: {text}");
        assert!(text.contains(part), "{line}: {text}");
    }
    // A limit on file sizes prevents writing to any file.
    let script = format!(
        "trap '' XFSZ; ulimit -f 0; exec {} bench --plan plan.toml --results full",
        env!("CARGO_BIN_EXE_memwright")
    );
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", &script]);
    stub.set(&mut shell);
    let (text, code) = said(&mut shell);
    assert_eq!(code, 70, "{text}");
    assert!(
        text.contains("cannot write full/plan-") && text.contains("File too large"),
        "{text}"
    );
    assert!(files(&stub.at("full"), "").is_empty());
}

#[test]
fn the_environment_names_the_part_if_it_is_asked_for() {
    let stub = stub();
    for (shard, variables, part) in [
        (
            "auto",
            "SLURM_ARRAY_TASK_ID=0 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_MAX=1 SLURM_ARRAY_TASK_COUNT=2",
            "shard 1/2: 3 of 6",
        ),
        ("auto/2", "JOB_COMPLETION_INDEX=1", "shard 2/2: 3 of 6"),
    ] {
        let mut command = stub.memwright(&format!(
            "bench --plan plan.toml --shard {shard} --results a"
        ));
        for variable in variables.split(' ') {
            let (name, value) = variable.split_once('=').unwrap();
            command.env(name, value);
        }
        let (text, code) = said(&mut command);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(stub.said("report a").1, 0);
}
