//! Tests extreme options: every configuration that the command accepts must boot and have enough memory.

use crate::guest::Guest;
use crate::prepare::later_qemu;
use libtest_mimic::{Completion, Failed, Trial};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Sets of options with hardly more memory than the minimum that the command accepts for the other options.
const TIGHT: &[(&str, &[&str])] = &[
    ("swap", &["--memory", "32M", "--swap", "zram:1G"]),
    (
        "pool",
        &["--memory", "64M", "--hugetlb", "44M", "--thp", "always"],
    ),
    (
        "nodes",
        &["--memory", "24M", "--numa", "8", "--hugetlb", "4M"],
    ),
];

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = TIGHT
        .iter()
        .map(|&(name, options)| Trial::test(format!("room::{name}"), move || starts(options)))
        .collect();
    trials.push(Trial::ignorable_test("room::cpus", cpus));
    trials.push(Trial::test("room::odd_names", odd_names));
    trials
}

fn starts(options: &[&str]) -> Result<(), Failed> {
    let mut guest = Guest::shell("echo started");
    for word in options {
        guest = guest.word(word);
    }
    let ending = guest.run()?;
    ending.expect_code(0)?;
    ending.expect_output(b"started\n")
}

/// Boots the maximum number of CPUs with little memory.
fn cpus() -> Result<Completion, Failed> {
    if !later_qemu() {
        return Ok(Completion::ignored_with("no later QEMU"));
    }
    starts(&["--memory", "24M", "--cpus", "64"])?;
    Ok(Completion::Completed)
}

/// Checks names that could be mistaken for the end of an archive, a line or the text, and the longest possible name.
fn odd_names() -> Result<(), Failed> {
    let host = tempfile::tempdir()?;
    let long = [b'n'; 255];
    let names: [&[u8]; 6] = [
        b"TRAILER!!!",
        b"two\nlines",
        b"\xff\xfe",
        b" ",
        b"-x",
        &long,
    ];
    for name in names {
        fs::write(host.path().join(OsStr::from_bytes(name)), "contents")?;
    }
    let script = "cd /names; for name in *; do cat -- \"$name\"; echo; done; ls -A | wc -c; cat '/TRAILER!!!' /zzz";
    let ending = Guest::shell(script)
        .file(host.path(), "/names")
        .file(&host.path().join("TRAILER!!!"), "/TRAILER!!!")
        .file(&host.path().join("-x"), "/zzz")
        .run()?;
    ending.expect_code(0)?;
    let length: usize = names.iter().map(|name| name.len() + 1).sum();
    let expected = format!("{}{length}\ncontentscontents", "contents\n".repeat(6));
    ending.expect_output(expected.as_bytes())
}
