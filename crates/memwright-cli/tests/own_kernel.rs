//! Tests `--kernel memwright`: runs, comparisons and profiles of Memwright's kernel, with the counts that QEMU makes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs the command with the arguments `words` and the standard input `input`.
fn memwright(words: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The write can fail, because a command that rejects its options exits without reading its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Returns the output and the JSON document of `memwright run --kernel memwright` with the arguments `words`.
fn document(words: &[&str], input: &[u8]) -> (Output, Value) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("json");
    let path = json.to_str().unwrap();
    let words = [&["run", "--kernel", "memwright", "--json", path], words].concat();
    let output = memwright(&words, input);
    assert!(json.exists(), "{}", said(&output));
    (output, read(&json))
}

/// A guest of `--kernel memwright` contains the files of the root that the program uses, and the entries of folders
/// that the program lists.
#[test]
fn files_of_the_root_are_carried() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(folder.path().join("listed")).unwrap();
    for (name, text) in [("read", "text\n"), ("unused", "x"), ("listed/one", "")] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let place = folder.path().to_str().unwrap();
    let script = format!("cd {place}; cat read; ls listed; test -e absent || echo none");
    let (output, document) = document(&["busybox", "sh", "-c", &script], b"");
    assert_eq!(output.stdout, b"text\none\nnone\n", "{}", said(&output));
    assert_eq!(document["repeats"], true, "{}", document["differs"]);
    let settings = document["settings"].as_array().unwrap();
    let has = |line: &str| {
        let line = format!("root={place}/{line}");
        let mut settings = settings.iter().filter_map(Value::as_str);
        settings.any(|setting| setting.starts_with(&line))
    };
    assert!(has("read file 644 of 5 bytes sha256 "), "{settings:?}");
    assert!(has("absent absent"), "{settings:?}");
    assert!(!has("unused"), "{settings:?}");
}

/// In a run with processes, pipes, signals and threads, each kernel instruction is in a function, and every call
/// returns. The instructions of the profile add up to the counts of a run without a profile.
#[test]
fn functions_add_up_to_the_run() {
    let script =
        "seq 1 500 | sort -r | wc -l; (sleep 0.2 & kill $!; wait $!) 2>/dev/null; echo done";
    let words = ["busybox", "sh", "-c", script];
    let (plain, counted) = document(&words, b"");
    let (output, profiled) = document(&[&["--functions"], &words[..]].concat(), b"");
    assert_eq!(output.stdout, b"500\ndone\n");
    assert_eq!(plain.stdout, output.stdout);
    for document in [&counted, &profiled] {
        assert_eq!(document["repeats"], true, "{}", document["differs"]);
    }
    assert_eq!(counted["run"], profiled["run"]);
    let profile = &profiled["functions"];
    let instructions = &profiled["run"]["instructions"];
    let of = |kind: &str| instructions[kind].as_u64().unwrap();
    assert_eq!(
        profile["total"].as_u64().unwrap(),
        of("kernel") + of("interrupts")
    );
    assert_eq!(profile["mismatches"], 0);
    let calls = profile["calls"].as_array().unwrap();
    let sum: u64 = calls
        .iter()
        .map(|call| call["instructions"].as_u64().unwrap())
        .sum();
    assert_eq!(profile["total"].as_u64(), Some(sum));
    let names = profile["functions"].as_array().unwrap();
    let has = |part: &str| {
        names
            .iter()
            .any(|name| name.as_str().unwrap().contains(part))
    };
    assert!(
        has("AddressSpace<M>>::fault") && has("system_call_entry"),
        "{names:?}"
    );
}

/// A program that reads standard input receives all of it, and the document contains its hash.
#[test]
fn standard_input_arrives() {
    let input: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
    let (output, document) = document(&["--no-verify", "busybox", "cat"], &input);
    assert!(output.stdout == input, "{} bytes", output.stdout.len());
    let settings = document["settings"].as_array().unwrap();
    let hashed = |one: &Value| one.as_str().unwrap().starts_with("stdin=sha256 ");
    assert!(settings.iter().any(hashed), "{settings:?}");
    assert_eq!(document["kernel"]["name"], "memwright");
    assert!(document.get("init_sha256").is_none());
}

/// Two columns with one kernel and different options have the same kernel hash and program output, and different
/// counts.
#[test]
fn policies_are_columns() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("json");
    let script = "seq 1 50 | sort | wc -l";
    let output = memwright(
        &[
            "compare",
            "--no-verify",
            "--kernel",
            "memwright",
            "--kernel",
            "faults=memwright,policy=write-upgrade=off,thp=never",
            "--json",
            json.to_str().unwrap(),
            "busybox",
            "sh",
            "-c",
            script,
        ],
        b"",
    );
    // The counts differ, because the program takes more faults without huge pages.
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let document = read(&json);
    let columns = document["columns"].as_array().unwrap();
    let settings = |index: usize| columns[index]["settings"].as_array().unwrap().clone();
    let policy = Value::from("policy=write-upgrade=off");
    assert!(!settings(0).contains(&policy) && settings(1).contains(&policy));
    assert_eq!(
        columns[0]["kernel"]["sha256"],
        columns[1]["kernel"]["sha256"]
    );
    assert_eq!(columns[0]["output_sha256"], columns[1]["output_sha256"]);
}

/// A program is run once for each value of a parameter. The values are given by options or by an equivalent plan.
#[test]
fn a_program_is_swept_over_its_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let script = "dd if=/dev/zero of=/tmp/x bs=4096 count={pages} 2>/dev/null";
    let output = memwright(
        &[
            "bench",
            "-L",
            "pages=1,33",
            "--rows",
            "run.instructions.*",
            "--policy",
            "fault-around=1",
            "--json",
            &at("json"),
            "--",
            "busybox",
            "sh",
            "-c",
            script,
        ],
        b"",
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let document = read(Path::new(&at("json")));
    let points = document["points"].as_array().unwrap();
    let kernel = |point: usize, column: usize| {
        let run = &points[point]["columns"][column]["run"];
        run["instructions"]["kernel"].as_u64().unwrap()
    };
    assert_eq!(points.len(), 2);
    for column in [0, 1] {
        // For each of 32 additional pages, the kernel executes at least the instructions that zero the page.
        assert!(kernel(1, column) > kernel(0, column) + 32 * 512);
    }
    assert_ne!(kernel(0, 1), kernel(0, 0), "the policy does nothing");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("pages=1") && table.contains("memwright policy=fault-around=1"));
    let again = memwright(
        &["report", &at("json"), "--rows", "run.instructions.*"],
        b"",
    );
    assert_eq!(
        String::from_utf8_lossy(&again.stdout),
        table,
        "{}",
        said(&again)
    );

    let plan = format!(
        "program = [\"busybox\", \"sh\", \"-c\", \"{script}\"]\n\
         parameter = [\"pages=1,33\"]\n\
         rows = [\"run.instructions.*\"]\n\
         [[column]]\nkernel = \"memwright\"\n\
         [[column]]\nkernel = \"memwright\"\npolicy = \"fault-around=1\"\n"
    );
    fs::write(at("plan"), plan).unwrap();
    let planned = memwright(&["bench", "--plan", &at("plan")], b"");
    let said = said(&planned);
    assert_eq!(String::from_utf8_lossy(&planned.stdout), table, "{said}");
}

/// `check` accepts a baseline, and rejects a run with other settings.
#[test]
fn a_baseline_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("json");
    let path = json.to_str().unwrap();
    let program = ["busybox", "true"];
    let run = ["run", "--kernel", "memwright", "--json", path];
    let output = memwright(&[&run, &program[..]].concat(), b"");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    for (kernel, code) in [("memwright", 0), ("memwright,memory=256M", 4)] {
        let check = ["check", "--baseline", path, "--kernel", kernel];
        let output = memwright(&[&check, &program[..]].concat(), b"");
        assert_eq!(
            output.status.code(),
            Some(code),
            "{kernel}: {}",
            said(&output)
        );
    }
}

#[test]
fn what_the_kernel_does_not_have_is_refused() {
    for (words, expected) in [
        (
            &["--kernel", "memwright", "--append", "x"][..],
            "no command line",
        ),
        (&["--kernel", "memwright,append=x"], "no command line"),
        (
            &["--kernel", "memwright,policy=nonsense=1"],
            "no such policy",
        ),
        (
            &[
                "--kernel",
                "memwright",
                "--swap",
                "disk:16M",
                "--swap",
                "disk:16M",
            ],
            "one disk",
        ),
    ] {
        let words = [&["run"], words, &["busybox", "true"]].concat();
        let output = memwright(&words, b"");
        assert_eq!(output.status.code(), Some(125), "{words:?}");
        assert!(
            said(&output).contains(expected),
            "{words:?}: {}",
            said(&output)
        );
    }
    let output = memwright(&["kernels", "add", "memwright=/bin/true"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("Memwright's own"),
        "{}",
        said(&output)
    );
}

/// The command's exit code reports how the program ended.
#[test]
fn endings_are_codes() {
    for (words, code) in [
        (&["busybox", "sh", "-c", "exit 7"][..], 7),
        (&["busybox", "sh", "-c", "kill -9 $$"], 137),
        (&["--timeout", "2", "busybox", "sleep", "100000000"], 124),
        (&["/nowhere"], 127),
    ] {
        let words = [&["run", "--no-verify", "--kernel", "memwright"], words].concat();
        let output = memwright(&words, b"");
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            said(&output)
        );
    }
}
