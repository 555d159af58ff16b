//! Runs a guest with Memwright's kernel, which reports its own counts, as one of the guests that a command runs.

use anyhow::anyhow;
use memwright_linux_abi::channel::{NO_ROOM, Outcome};

use crate::host::output::show;
use crate::lab::input::Input;
use crate::memwright::run::{Attendance, Finished, Run, Wiring};
use crate::memwright::session::Streams;
use crate::model::failure::Failure;
use crate::qemu::runs::Runs;

/// Runs the guest and captures the program's output. Also returns how the program ended, with the guest's text.
///
/// # Errors
/// If the guest could not start, or if it gave no result.
pub fn run(
    run: &Run<'_>,
    input: &Input,
    runs: &Runs,
) -> Result<(Finished, (Outcome, String)), Failure> {
    let wiring = Wiring {
        source: input.source(),
        streams: Streams::Keep,
        trace: None,
        taken: &run.taken(),
    };
    let mut finished = run.run(&Attendance::Among(runs), wiring)?;
    runs.check()?;
    let report = &mut finished.report;
    let failed = |why: String| Err(Failure::Guest(anyhow!(why)));
    match report.outcome.take() {
        Some((Outcome::NotStarted(NO_ROOM), text)) => {
            failed(format!("the guest could not start: {text}"))
        }
        Some(ending) => Ok((finished, ending)),
        None => {
            for text in [&*report.errors, &*report.log, finished.errors.as_bytes()] {
                show(text);
            }
            failed(format!(
                "{}, and gave no account",
                finished.report.silence()
            ))
        }
    }
}
