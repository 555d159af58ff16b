//! `memwright run --native`: runs the program on this machine itself, and prints its times and the counters that are
//! available.

use crate::render;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::cmd::args::RunArgs;
use crate::guestfs::program;
use crate::host::folder::private_folder;
use crate::host::output::{say, show};
use crate::model::failure::{Failure, SIGNAL_BASE};
use crate::sheet::{Row, Section, Sheet, Value};

/// The events that perf counts, each with the title and the group of its row.
const EVENTS: &[(&str, &str, &str)] = &[
    ("minor-faults", "minor faults", KERNEL_COUNT),
    ("major-faults", "major faults", KERNEL_COUNT),
    ("context-switches", "context switches", KERNEL_COUNT),
    ("instructions:u", "instructions, user", COUNTER),
    ("instructions:k", "instructions, kernel", COUNTER),
    ("cycles:u", "cycles, user", COUNTER),
    ("cycles:k", "cycles, kernel", COUNTER),
    ("dTLB-load-misses", "dTLB load misses", COUNTER),
];
/// The times that perf measures, in nanoseconds. They do not include the time that perf itself takes.
const TIMES: [&str; 3] = ["duration_time", "user_time", "system_time"];
const TIME: &str = "Time: no two runs need be the same";
const KERNEL_COUNT: &str = "Counted by this machine's kernel: exact, but for what else runs here";
const COUNTER: &str = "Hardware counters: no two runs need be the same";

/// The times that the program took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    wall: Duration,
    user: Duration,
    system: Duration,
}

/// Runs the program, and prints its times and perf's counts. The exit code is the program's.
///
/// # Errors
/// If the program does not exist, or cannot be started.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let name = args.setup.command.first().context("PROGRAM is missing")?;
    let path = program::locate(name, std::env::var_os("PATH").as_deref())?;
    program::check_native(&path)?;
    let folder = private_folder().context("cannot make a temporary folder")?;
    let file = folder.path().join("perf");
    let rest = args.setup.command[1..].iter().map(AsRef::as_ref);
    let command: Vec<&OsStr> = [path.as_os_str()].into_iter().chain(rest).collect();
    let (status, times, counted) = match perf_works(&file) {
        Ok(()) => {
            let status = perf(&file, &command).status();
            let status = status.context("perf cannot be started")?;
            let counted = fs::read_to_string(&file).unwrap_or_default();
            (status, perf_times(&counted), counted)
        }
        Err(why) => {
            say(&format!("nothing is counted, time alone is taken: {why}"));
            let (status, times) = timed(&command)?;
            (status, Some(times), String::new())
        }
    };
    let title = format!("{} on this machine itself", path.display());
    show(render::text(&sheet(title, times, &counted), true).as_bytes());
    Ok(exit_code(status))
}

/// Runs the program and measures its times without perf.
fn timed(command: &[&OsStr]) -> anyhow::Result<(ExitStatus, Times)> {
    let used = || getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot take the time");
    let before = used()?;
    let begun = Instant::now();
    let status = Command::new(command[0]).args(&command[1..]).status();
    let status = status.with_context(|| command[0].display().to_string())?;
    let wall = begun.elapsed();
    let after = used()?;
    let times = Times {
        wall,
        user: between(before.user_time(), after.user_time()),
        system: between(before.system_time(), after.system_time()),
    };
    Ok((status, times))
}

fn between(before: TimeVal, after: TimeVal) -> Duration {
    let microseconds = |time: TimeVal| {
        let whole = u64::try_from(time.tv_sec()).unwrap_or(0);
        1_000_000 * whole + u64::try_from(time.tv_usec()).unwrap_or(0)
    };
    Duration::from_micros(microseconds(after).saturating_sub(microseconds(before)))
}

/// Returns the `perf stat` command that runs `command` and writes its result to `file`.
fn perf(file: &Path, command: &[&OsStr]) -> Command {
    let events = EVENTS.iter().map(|(event, ..)| *event).chain(TIMES);
    let events: Vec<&str> = events.collect();
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ";", "-e", &events.join(","), "-o"])
        .arg(file)
        .arg("--")
        .args(command);
    perf
}

/// Checks that perf is installed and has permission to count. Without permission, perf would not run the program at
/// all.
fn perf_works(file: &Path) -> Result<(), String> {
    let output = perf(file, &[OsStr::new("true")])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let line = said.lines().find(|line| !line.trim().is_empty());
            Err(format!("perf: {}", line.unwrap_or("it failed").trim()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("perf is missing (on Debian: apt install linux-perf)".to_owned())
        }
        Err(error) => Err(format!("perf: {error}")),
    }
}

/// Returns the value of an event in lines of the form `VALUE;UNIT;EVENT;...`.
fn field<'a>(counted: &'a str, wanted: &str) -> Option<&'a str> {
    counted.lines().find_map(|line| {
        let mut fields = line.split(';');
        let value = fields.next()?;
        (fields.nth(1)? == wanted).then_some(value)
    })
}

/// Returns the times that perf measured; `None` if it measured none.
fn perf_times(counted: &str) -> Option<Times> {
    let time = |name: &str| match field(counted, name)? {
        // No timer tick hit the program in this mode (user or kernel), so no time is attributed to the mode.
        "<not counted>" => Some(Duration::ZERO),
        value => value.parse().ok().map(Duration::from_nanos),
    };
    let [wall, user, system] = TIMES.map(time);
    Some(Times {
        wall: wall?,
        user: user?,
        system: system?,
    })
}

/// Returns the sheet of the run. A row that was not counted has no value.
fn sheet(heading: String, times: Option<Times>, counted: &str) -> Sheet {
    let row = |group: &str, title: &str, unit: &str, value| Row {
        name: String::new(),
        group: group.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        statistic: None,
        is_state: false,
        absent: crate::sheet::NOT_MEASURED,
        cells: vec![value],
    };
    let time = |title, pick: fn(Times) -> Duration| {
        let milliseconds = times.map(|times| 1000.0 * pick(times).as_secs_f64());
        row(TIME, title, "ms", milliseconds.map(Value::Statistic))
    };
    let mut rows = vec![
        time("wall clock, ms", |times| times.wall),
        time("user, ms", |times| times.user),
        time("system, ms", |times| times.system),
    ];
    rows.extend(EVENTS.iter().map(|(event, title, kind)| {
        let value = field(counted, event).and_then(|text| text.parse().ok());
        row(kind, title, "", value.map(Value::Count))
    }));
    Sheet {
        heading,
        columns: vec!["this machine".to_owned()],
        compares: false,
        sections: vec![Section {
            title: String::new(),
            remark: String::new(),
            is_ranked: false,
            rows,
        }],
        notes: Vec::new(),
        commands: Vec::new(),
        kernels: Vec::new(),
        verdict: None,
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    match (status.code(), signal) {
        (Some(code), _) => (code & 0xff) as u8,
        (None, signal) => SIGNAL_BASE.saturating_add(signal.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::cell_text;

    fn texts(times: Option<Times>, counted: &str) -> Vec<String> {
        let sheet = sheet("x".to_owned(), times, counted);
        let rows = sheet.sections[0].rows.iter();
        rows.map(|row| cell_text(row.cells[0])).collect()
    }

    #[test]
    fn what_perf_did_not_count_is_not_measured() {
        let counted = "# started on x\n\n12;;minor-faults;100;100.00;;\n\
             1500000;ns;duration_time;1500000;100.00;;\n1200000;ns;user_time;1200000;100.00;;\n\
             <not counted>;ns;system_time;0;100.00;;\n<not supported>;;cycles:u;0;100.00;;\n";
        let found = texts(perf_times(counted), counted);
        assert_eq!(found[..4], ["1.5", "1.2", "0", "12"]);
        assert!(found[4..].iter().all(|text| text == "not measured"));
        assert_eq!(perf_times("12;;minor-faults;100;100.00;;\n"), None);
        assert!(texts(None, "").iter().all(|text| text == "not measured"));
    }

    #[test]
    fn times_are_differences() {
        use nix::sys::time::TimeValLike;
        let (before, after) = (
            TimeVal::microseconds(1_999_000),
            TimeVal::microseconds(3_500_000),
        );
        assert_eq!(between(before, after), Duration::from_micros(1_501_000));
        assert_eq!(between(after, before), Duration::ZERO);
    }
}
