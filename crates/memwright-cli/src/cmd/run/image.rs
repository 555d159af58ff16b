//! `memwright run --kernel IMAGE`: runs a program on that kernel and prints its account.

use std::{io, slice};

use anyhow::anyhow;
use memwright_linux_abi::channel::Outcome;

use crate::cmd::args::RunArgs;
use crate::compare::side_by_side;
use crate::host::output::{print, say, show};
use crate::lab::column::Column;
use crate::lab::columns;
use crate::lab::input::Input;
use crate::lab::laboratory::{Laboratory, Measured};
use crate::model::failure::{BROKEN, Failure, exit_code};
use crate::render::outputs::Outputs;
use crate::render::profile_outputs::ProfileOutputs;
use crate::render::{self, faults, functions, short};

/// Runs the program on a kernel image.
///
/// # Errors
/// Anything that prevents the run. How the program itself ended determines the exit code.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let [image] = args.kernel.as_slice() else {
        return Err(anyhow!("run takes one --kernel; memwright compare compares several").into());
    };
    columns::fetch(&args.kernel, args.dry_run)?;
    let column = Column::open(image)?;
    let plan = column.plan(&args.image_plan()).map_err(Failure::Usage)?;
    let image = column.image;
    let laboratory = Laboratory::open(&plan, &Input::default(), image.system, args.dry_run)?;
    if args.dry_run {
        print(format!("{}\n", laboratory.line(&image)).as_bytes())?;
        return Ok(0);
    }
    let mut taken = laboratory.taken(&image);
    let outputs = Outputs::open(args.json.as_deref(), &args.formats, &mut taken)?;
    let profiles = ProfileOutputs::open(&args.profiles, &mut taken)?;
    let measured = laboratory.measure(&image, &laboratory.runs()?)?;
    let code = conclude(&measured, args, &outputs)?;
    if let Some(profile) = &measured.document.functions {
        let command = measured.document.arguments.join(" ");
        profiles.write(profile, &image.name, &command)?;
    }
    if measured.document.faults.is_some() {
        let command = measured.document.arguments.join(" ");
        profiles.write_faults(&measured.fault_stacks, &image.name, &command)?;
    }
    Ok(code)
}

/// Prints the program's output and the account, and returns the exit code.
fn conclude(measured: &Measured, args: &RunArgs, outputs: &Outputs) -> Result<u8, Failure> {
    let Measured { said, document, .. } = measured;
    show(&said.errors);
    print(&said.output)?;
    let sheet = side_by_side::account(document);
    let text = match args.full {
        true => render::text(&sheet, true),
        false => short::image(document),
    };
    show(text.as_bytes());
    if let Some(profile) = &document.functions {
        show(functions::text(profile, args.order()).as_bytes());
    }
    // With `--full`, the printed table already contains the faults.
    if let Some(found) = document.faults.as_ref().filter(|_| !args.full) {
        show(faults::text(found, args.order()).as_bytes());
    }
    if let Outcome::NotStarted(number) = said.outcome {
        let error = io::Error::from_raw_os_error(number);
        let program = document.program.as_ref();
        let program = program.map_or("", |file| file.path.as_str());
        say(&format!("{program}: {error}"));
    }
    outputs.write("memwright run", slice::from_ref(&sheet), true, document)?;
    if said.triple_fault {
        say(&format!(
            "{}: the kernel ended in a triple fault",
            document.kernel.name
        ));
        return Ok(BROKEN);
    }
    Ok(exit_code(said.outcome))
}
