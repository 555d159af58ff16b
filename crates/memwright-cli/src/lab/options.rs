//! The options of a guest that each kind of kernel supports.

use anyhow::{anyhow, ensure};

use crate::guestfs::prepare::check_swap;
use crate::model::image::System;
use crate::model::plan::{ImagePlan, Measure, Setup};
use crate::model::size::SwapSize;

/// Checks that kernels of this kind support the options of the guest. Returns the swap device of a Linux guest.
///
/// # Errors
/// If kernels of this kind do not support one of the options.
pub(super) fn checked(plan: &ImagePlan, system: System) -> anyhow::Result<Option<SwapSize>> {
    let setup = &plan.setup;
    match system {
        System::Linux => only_swap(&setup.swap),
        System::Memwright => own_kernel_takes(setup).map(|()| None),
        System::Alone => {
            let is_whole = matches!(plan.measure, Measure::Functions { region: None, .. });
            ensure!(
                !is_whole,
                "--functions: of a kernel that is not Linux, functions are counted in a region: --region N"
            );
            alone_takes(setup).map(|()| None)
        }
    }
}

/// Returns an error for options that Memwright's kernel does not support.
fn own_kernel_takes(setup: &Setup) -> anyhow::Result<()> {
    if !setup.append.is_empty() {
        return Err(anyhow!(
            "Memwright's kernel has no command line; give --append to the others: --kernel IMAGE,append=WORD"
        ));
    }
    check_swap(&setup.swap)
}

/// Returns an error for options that a kernel without a program does not support.
fn alone_takes(setup: &Setup) -> anyhow::Result<()> {
    if let Some(program) = setup.command.first() {
        return Err(anyhow!(
            "{}: a kernel that is not Linux runs no PROGRAM; it boots alone",
            program.display()
        ));
    }
    let usual = Setup::of(Vec::new());
    let given = [
        ("--env", !setup.environment.is_empty()),
        ("--file", !setup.files.is_empty()),
        ("--hugetlb", setup.hugetlb.is_some()),
        ("--policy", !setup.policies.is_empty()),
        ("--root", setup.root.is_some()),
        ("--swap", !setup.swap.is_empty()),
        ("--thp", setup.thp != usual.thp),
        ("--thp-size", !setup.thp_sizes.is_empty()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(anyhow!(
            "{option}: a kernel that is not Linux boots alone, and does not have this"
        )),
        None => Ok(()),
    }
}

/// Returns the swap device of a Linux guest, which can have at most one.
fn only_swap(wanted: &[SwapSize]) -> anyhow::Result<Option<SwapSize>> {
    match wanted {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        [..] => Err(anyhow!("a Linux kernel takes one --swap")),
    }
}
