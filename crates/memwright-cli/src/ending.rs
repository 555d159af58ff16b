//! How a run ends: messages, the account, the exit code.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::anyhow;
use memwright_linux::channel::{NO_ROOM, Outcome};

use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, SIGNAL_BASE, TIMEOUT, signal_code};
use crate::output;
use crate::qemu::process::Cut;
use crate::report::Document;
use crate::run::Finished;
use crate::session::{say, show};
use crate::{account_sheet, table};

/// Why the run was cut short, if it was.
pub type End = Option<Cut>;

/// SIGPIPE's number: a run whose output is read no more ends like a program that got this signal.
pub const SIGPIPE: u8 = 13;
/// ENOENT, when PROGRAM vanished or names a missing interpreter.
const NO_ENTRY: i32 = 2;

/// Says how the run ended and returns the exit code.
///
/// # Errors
/// When the guest did not say how it ended: then Memwright failed.
pub fn conclude(run: &Finished<'_>, end: End, qemu_errors: &Path) -> Result<u8, Failure> {
    match end {
        Some(Cut::OutputClosed) => return Ok(SIGNAL_BASE + SIGPIPE),
        Some(Cut::OutputFailed(number)) => {
            return Err(output::failed(io::Error::from_raw_os_error(number)).into());
        }
        Some(Cut::TimedOut) => {
            say("--timeout expired");
            return Ok(TIMEOUT);
        }
        Some(Cut::Signalled(signal)) => {
            say(&format!("ended by signal {signal}"));
            return Ok(signal_code(signal));
        }
        None => {}
    }
    if let Some((Outcome::NotStarted(NO_ROOM), text)) = &run.report.outcome {
        return Err(Failure::Broken(anyhow!(
            "the guest could not start: {text}"
        )));
    }
    let document = Document::new(run);
    if run.report.outcome.is_some() || !run.report.account.rows.is_empty() {
        show(table::render(&document, table::styled()).as_bytes());
    }
    let Some((outcome, text)) = &run.report.outcome else {
        return Err(explain(run, qemu_errors));
    };
    if let Outcome::NotStarted(_) = outcome {
        say(&format!("{}: {text}", run.prepared.program.path.display()));
    }
    let sheet = account_sheet::sheet(&[(account_sheet::COLUMN.to_owned(), &document)]);
    run.outputs
        .write("memwright run", &[sheet], true, &document)?;
    Ok(exit_code(*outcome))
}

/// The exit code for what became of PROGRAM.
pub fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        // An exit status has eight bits, as for wait(2).
        Outcome::Exited(code) => (code & 0xff) as u8,
        Outcome::Killed(signal) => signal_code(signal),
        Outcome::NotStarted(NO_ENTRY) => NOT_FOUND,
        Outcome::NotStarted(_) => NOT_EXECUTABLE,
    }
}

/// Shows what there is to see of a guest that did not say how it ended.
fn explain(run: &Finished<'_>, qemu_errors: &Path) -> Failure {
    let errors = fs::read_to_string(qemu_errors).unwrap_or_default();
    if !run.args.verbose {
        show(&run.report.log);
    }
    show(errors.as_bytes());
    let what = if run.report.backtrace {
        "the kernel panicked"
    } else {
        "the guest ended without a result"
    };
    Failure::Broken(anyhow!("{what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes() {
        for (outcome, code) in [
            (Outcome::Exited(0), 0),
            (Outcome::Exited(255), 255),
            (Outcome::Exited(256), 0),
            (Outcome::Exited(-1), 255),
            (Outcome::Killed(11), 139),
            (Outcome::Killed(64), 192),
            (Outcome::NotStarted(2), 127),
            (Outcome::NotStarted(8), 126),
            (Outcome::NotStarted(13), 126),
        ] {
            assert_eq!(exit_code(outcome), code, "{outcome:?}");
        }
    }
}
