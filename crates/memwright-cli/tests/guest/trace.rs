//! Tests the files that `--trace` writes.

use std::fs;

use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{ends, first_line, interruptible, run, start};

/// Returns every test of this file.
pub fn trials() -> Vec<Trial> {
    crate::trials![
        trace_lines_go_to_their_file,
        a_chrome_trace_is_one_document,
        a_chrome_trace_is_whole_however_the_run_ends,
        a_signal_ends_a_chrome_trace,
        a_format_needs_a_trace,
    ]
}

fn trace_lines_go_to_their_file() {
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("trace");
    let steps = "trace {\"a\":1}\\n\ntrace {\"a\":2}\nexited 0";
    let (_, stdout, _) = ends(run(steps).arg("--trace").arg(&path).arg("/bin/true"));
    assert!(stdout.is_empty());
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"a\":2}\n");
}

/// Two events in the guest's format.
const EVENTS: &str = "trace {\"clock\":1500,\"event\":\"fork\",\"entries\":3}\\n\n\
                      trace {\"clock\":2001,\"event\":\"map\",\"rights\":\"r-x\",\"range\":[\"0x1000\",\"0x3000\"]}\\n\n";

/// Returns the names of the events in a Chrome trace.
fn names(text: &str) -> Vec<String> {
    let document: Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let events = document["traceEvents"].as_array().unwrap();
    let name = |event: &Value| event["name"].as_str().unwrap().to_owned();
    events.iter().map(name).collect()
}

fn a_chrome_trace_is_one_document() {
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("trace");
    let mut command = run(&format!("{EVENTS}exited 0"));
    command.arg("--trace").arg(&path);
    let (code, _, stderr) = ends(command.args(["--trace-format", "chrome", "/bin/true"]));
    assert_eq!(code, 0, "{stderr}");
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(names(&text), ["fork", "map"]);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["traceEvents"][0]["args"]["entries"], 3);
    assert!(text.contains("\"ts\":2.001,"), "{text}");
}

fn a_chrome_trace_is_whole_however_the_run_ends() {
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("trace");
    for (steps, code) in [
        ("", 125),
        ("exited 0", 0),
        ("killed 9", 137),
        // A truncated frame, a frame of an unknown kind, and a line that is not an event.
        ("raw 05ff", 125),
        ("raw 7700000000", 125),
        ("trace {\"clock\":1}", 125),
        // The run ends when its time limit expires.
        ("nmi\nhang", 124),
    ] {
        let mut command = run(&format!("{EVENTS}{steps}"));
        command.arg("--trace").arg(&path);
        let limit = if code == 124 { "2" } else { "100" };
        let options = ["--trace-format", "chrome", "--timeout", limit, "/bin/true"];
        let (found, _, stderr) = ends(command.args(options));
        assert_eq!(found, code, "{steps}: {stderr}");
        let found = names(&fs::read_to_string(&path).unwrap());
        assert_eq!(found, ["fork", "map"], "{steps}");
    }
    // If QEMU is too old, no guest starts, and the trace contains no events.
    let mut command = run("exited 0");
    command.env("STAND_IN_VERSION", "1.0.0");
    command.arg("--trace").arg(&path);
    let (code, _, _) = ends(command.args(["--trace-format", "chrome", "/bin/true"]));
    assert_eq!(code, 125);
    assert!(names(&fs::read_to_string(&path).unwrap()).is_empty());
}

fn a_signal_ends_a_chrome_trace() {
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("trace");
    let mut command = run(&format!("{EVENTS}stdout ready\\n\nhang"));
    command.arg("--trace").arg(&path);
    command.args(["--trace-format", "chrome", "/bin/true"]);
    let mut child = start(&mut interruptible(&command));
    assert_eq!(first_line(child.stdout.as_mut().unwrap()), "ready");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(names(&fs::read_to_string(&path).unwrap()), ["fork", "map"]);
}

fn a_format_needs_a_trace() {
    let (code, _, stderr) = ends(run("exited 0").args(["--trace-format", "chrome", "/bin/true"]));
    assert_eq!(code, 125, "{stderr}");
    assert!(stderr.contains("--trace <PATH>"), "{stderr}");
}
