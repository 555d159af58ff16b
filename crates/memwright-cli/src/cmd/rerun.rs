//! Runs the program of `memwright check`.

use anyhow::{Context, anyhow};

use crate::cmd::args::RunArgs;
use crate::host::output::show;
use crate::lab::column::Column;
use crate::lab::columns;
use crate::lab::input::Input;
use crate::lab::laboratory::USUAL_LIMIT;
use crate::lab::run::Ready;
use crate::linux::image::is_absent_or_broken;
use crate::model::failure::Failure;
use crate::model::plan::{OwnPlan, Plan};
use crate::model::saved::Saved;
use crate::qemu::runs::Runs;

/// Runs the program with the options `args`, on the kernel image that they name or else on Memwright. A baseline must
/// be a run on the same kind of kernel: an image, or Memwright.
///
/// # Errors
/// If the usage is wrong, if a tool is missing, or if a guest gives no result.
pub fn run(args: &RunArgs, baseline: Option<&Saved>) -> Result<Saved, Failure> {
    let plan = plan(args, baseline)?;
    let input = Input::default();
    let ready = Ready::open(&plan, &input, false)?;
    let limit = args.care.timeout.unwrap_or(USUAL_LIMIT);
    let runs = Runs::start(limit).context("cannot receive signals")?;
    let answer = ready.run(&runs)?;
    match answer.document {
        Saved::Memwright(_) if !args.care.verbose => {}
        Saved::Memwright(_) | Saved::Kernel(_) => show(&answer.errors),
    }
    Ok(answer.document)
}

fn plan(args: &RunArgs, baseline: Option<&Saved>) -> Result<Plan, Failure> {
    match (baseline, args.kernel.as_slice()) {
        (Some(Saved::Kernel(document)), []) => Err(Failure::Usage(anyhow!(
            "the baseline was made on {:?}: name the kernel with --kernel",
            document.kernel.name
        ))),
        (Some(Saved::Memwright(_)), [_, ..]) => Err(Failure::Usage(anyhow!(
            "the baseline was made on Memwright, not on a kernel image"
        ))),
        (Some(Saved::Memwright(_)) | None, []) => {
            let (setup, care) = (args.setup.clone(), args.care.clone());
            Ok(Plan::Own(OwnPlan::new(setup, care)))
        }
        (Some(Saved::Kernel(_)) | None, [image]) => {
            columns::fetch(&args.kernel, args.dry_run)?;
            let column =
                Column::open(image).map_err(|error| match is_absent_or_broken(&error) {
                    true => Failure::NoImage(error),
                    false => Failure::Usage(error),
                })?;
            let plan = column.plan(&args.image_plan()).map_err(Failure::Usage)?;
            Ok(Plan::Image(plan, column.image))
        }
        (Some(Saved::Kernel(_)) | None, [_, _, ..]) => Err(Failure::Usage(anyhow!(
            "check takes one --kernel; memwright compare compares several"
        ))),
    }
}
