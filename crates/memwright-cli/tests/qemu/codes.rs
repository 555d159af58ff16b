//! Tests exit codes, and how programs that misbehave end.

use crate::guest::Guest;
use crate::prepare::program;
use libtest_mimic::{Failed, Trial};

/// The arguments of `bad`, each with the exit code of the run.
const ENDINGS: &[(&str, i32)] = &[
    ("exit 0", 0),
    ("exit 1", 1),
    ("exit 255", 255),
    ("signal 9", 128 + 9),
    ("signal 15", 128 + 15),
    ("jump-to-zero", 128 + 11),
    ("write-kernel", 128 + 11),
    ("overflow-stack", 128 + 11),
    ("write-text", 128 + 11),
    ("execute-data", 128 + 11),
    ("divide", 128 + 8),
    ("illegal", 128 + 4),
    ("privileged", 128 + 11),
    ("beyond-file", 128 + 7),
    ("fork-bomb", 0),
];

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = ENDINGS
        .iter()
        .map(|&(what, code)| {
            Trial::test(format!("codes::{}", what.replace(' ', "_")), move || {
                let words: Vec<&str> = what.split(' ').collect();
                bad(&words).run()?.expect_code(code)
            })
        })
        .collect();
    trials.push(Trial::test("codes::exhausted_memory", exhausted_memory));
    trials.push(Trial::test("codes::timeout", timeout));
    trials.push(Trial::test("codes::a_daemon_is_killed_and_counted", daemon));
    trials
}

fn bad(words: &[&str]) -> Guest {
    Guest::new(program("musl-static", "bad"), words)
}

/// Checks that exhausted memory leads to ENOMEM, or to the OOM kill of the largest process with a message, but never to
/// a hang.
fn exhausted_memory() -> Result<(), Failed> {
    let ending = bad(&["exhaust"])
        .option("--memory", "64M")
        .untraced()
        .run()?;
    if ending.code == Some(0) {
        return Ok(());
    }
    ending.expect_code(128 + 9)?;
    ending.expect_line(&["memory"])
}

/// Checks the time limit. It is in host time, so the run does not repeat exactly.
fn timeout() -> Result<(), Failed> {
    let guest = Guest::shell("while :; do :; done").option("--timeout", "2");
    let ending = guest.run_once(std::path::Path::new(env!("CARGO_BIN_EXE_memwright")))?;
    ending.expect_code(124)?;
    ending.expect_line(&["CPU 0"])?;
    ending.expect_line(&["account, rows"])?;
    ending.expect_line(&["fault_demand_zero"])?;
    ending.expect_line(&["timeout"])
}

/// Checks that the run ends when PROGRAM exits, although processes that it started are still alive.
fn daemon() -> Result<(), Failed> {
    let ending = Guest::shell("(sleep 1000) & (sleep 1000) & echo started; exit 3").run()?;
    ending.expect_code(3)?;
    ending.expect_output(b"started\n")?;
    match &ending.account()?["account"]["processes_killed"] {
        killed if *killed == 2 => Ok(()),
        killed => Err(format!("{killed} processes killed at the end").into()),
    }
}
