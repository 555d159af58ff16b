//! `memwright run --native`: the program on this machine itself, with the counters that it has.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use anyhow::{Context, anyhow};

use crate::args::RunArgs;
use crate::failure::{Failure, SIGNAL_BASE};
use crate::folder::private_folder;
use crate::guest::program;
use crate::session::{say, show};
use crate::sheet::{self, Cell, Row, Section, Sheet};

/// What perf is asked for, and what kind of number each is.
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
const KERNEL_COUNT: &str = "counted by this machine's kernel: exact, but for what else runs here";
const COUNTER: &str = "hardware counters: no two runs need be the same";

/// Runs the program and prints what perf counted; the exit code is the program's.
///
/// # Errors
/// The program or perf is missing.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let name = args
        .command
        .first()
        .ok_or_else(|| anyhow!("PROGRAM is missing"))?;
    let path = program::locate(name, std::env::var_os("PATH").as_deref())?;
    let folder = private_folder().context("cannot make a temporary folder")?;
    let file = folder.path().join("perf");
    let events: Vec<&str> = EVENTS.iter().map(|(event, ..)| *event).collect();
    let mut command = Command::new("perf");
    command.args(["stat", "-x", ";", "-e", &events.join(","), "-o"]);
    command
        .arg(&file)
        .arg("--")
        .arg(&path)
        .args(&args.command[1..]);
    let status = match command.status() {
        Ok(status) => status,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            say("perf is missing: nothing is counted (on Debian: apt install linux-perf)");
            let mut command = Command::new(&path);
            let status = command.args(&args.command[1..]).status();
            status.with_context(|| path.display().to_string())?
        }
        Err(error) => return Err(anyhow!(error).context("perf cannot be started").into()),
    };
    let said = fs::read_to_string(&file).unwrap_or_default();
    let title = format!("{} on this machine itself", path.display());
    show(sheet::text(&sheet(title, &said)).as_bytes());
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    Ok(match (status.code(), signal) {
        (Some(code), _) => (code & 0xff) as u8,
        (None, signal) => SIGNAL_BASE.saturating_add(signal.unwrap_or(0)),
    })
}

/// Reads `VALUE;UNIT;EVENT;...`; what was not counted has no number.
fn sheet(heading: String, said: &str) -> Sheet {
    let value = |wanted: &str| {
        said.lines().find_map(|line| {
            let mut fields = line.split(';');
            let value = fields.next()?;
            let event = fields.nth(1)?;
            (event == wanted)
                .then(|| value.parse::<u64>().ok())
                .flatten()
        })
    };
    let rows = EVENTS.iter().map(|(event, title, kind)| Row {
        group: (*kind).to_owned(),
        title: (*title).to_owned(),
        cells: vec![Cell::count(value(event))],
    });
    Sheet {
        heading,
        columns: vec!["this machine".to_owned()],
        compares: false,
        sections: vec![Section {
            title: String::new(),
            rows: rows.collect(),
        }],
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_perf_did_not_count_is_not_measured() {
        let said = "# started on x\n\n12;;minor-faults;100;100.00;;\n<not supported>;;cycles:u;0;100.00;;\n";
        let sheet = sheet("x".to_owned(), said);
        let texts: Vec<&str> = sheet.sections[0]
            .rows
            .iter()
            .map(|row| row.cells[0].text.as_str())
            .collect();
        assert_eq!(texts[0], "12");
        assert!(texts[1..].iter().all(|text| *text == "not measured"));
    }
}
