//! `memwright run` on Memwright's kernel: forwards the program's output, then prints the account.

use std::io;
use std::path::Path;

use anyhow::{Context, anyhow};
use memwright_linux_abi::channel::{NO_ROOM, Outcome};

use crate::cmd::args::RunArgs;
use crate::compare::account_sheet;
use crate::host::output::{self, say, show};
use crate::memwright::input::Source;
use crate::memwright::run::{Attendance, Finished, Run, Wiring};
use crate::memwright::session::Streams;
use crate::memwright::trace::TraceFile;
use crate::memwright::watch::SignalWatch;
use crate::model::failure::{Failure, SIGNAL_BASE, SIGPIPE, TIMEOUT, exit_code, signal_code};
use crate::qemu::process::Cut;
use crate::render::outputs::Outputs;
use crate::render::profile_outputs::ProfileOutputs;
use crate::render::{account, faults, short};

/// Runs the program and returns the exit code.
///
/// # Errors
/// Anything that prevents the run. A failure inside the guest determines the exit code.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let plan = args.own_plan();
    let run = Run::open(&plan)?;
    if args.dry_run {
        output::print(format!("{}\n", run.line()?).as_bytes())?;
        return Ok(0);
    }
    let mut taken = run.taken();
    let outputs = Outputs::open(args.json.as_deref(), &args.formats, &mut taken)?;
    let profiles = ProfileOutputs::open(&args.profiles, &mut taken)?;
    let trace = args.trace.as_deref();
    let trace = trace
        .map(|path| {
            let file = taken.create("the file of --trace", path)?;
            TraceFile::begin(file, args.trace_format)
        })
        .transpose()?;
    let signals = SignalWatch::start().context("cannot receive signals")?;
    let wiring = Wiring {
        source: Source::Descriptor,
        streams: Streams::Forward,
        trace,
        taken: &taken,
    };
    let finished = run.run(&Attendance::Alone(&signals), wiring)?;
    let code = conclude(&finished, run.program(), args, &outputs)?;
    if finished.document.faults.is_some() {
        let command = finished.document.arguments.join(" ");
        profiles.write_faults(&finished.fault_stacks, account_sheet::COLUMN, &command)?;
    }
    Ok(code)
}

/// Prints how the run ended and returns the exit code.
///
/// # Errors
/// If the guest did not report how the program ended, which is a failure of Memwright.
fn conclude(
    run: &Finished,
    program: &Path,
    args: &RunArgs,
    outputs: &Outputs,
) -> Result<u8, Failure> {
    match run.cut {
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
    let (report, document) = (&run.report, &run.document);
    if let Some((Outcome::NotStarted(NO_ROOM), text)) = &report.outcome {
        return Err(Failure::Broken(anyhow!(
            "the guest could not start: {text}"
        )));
    }
    if report.outcome.is_some() || !report.account.rows.is_empty() {
        let text = match args.full {
            true => account::render(document, account::styled()),
            false => short::own(document),
        };
        show(text.as_bytes());
        if let Some(faults) = &document.faults {
            show(faults::text(faults, args.order()).as_bytes());
        }
    }
    let Some((outcome, text)) = &report.outcome else {
        // The guest did not report how the program ended. The kernel's log and QEMU's messages can show why.
        if !args.care.verbose {
            show(&report.log);
        }
        show(run.errors.as_bytes());
        return Err(Failure::Broken(anyhow!("{}", report.silence())));
    };
    if let Outcome::NotStarted(_) = outcome {
        say(&format!("{}: {text}", program.display()));
    }
    let sheet = account_sheet::sheet(&[(account_sheet::COLUMN.to_owned(), document)]);
    outputs.write("memwright run", &[sheet], true, document)?;
    Ok(exit_code(*outcome))
}
