//! The number of kernel instructions that a profile covers.

use anyhow::{Context, bail};
use memwright_linux_abi::channel::THE_RUN;

use crate::count::counted::Counted;
use crate::model::image::System;
use crate::model::region_names::RegionNames;

/// Returns the number of kernel instructions that were counted in a region or, if `region` is `None`, in the complete
/// run.
///
/// # Errors
/// If the program did not pass the region, or if the kernel's handlers were not known.
pub fn total(
    counted: &Counted,
    region: Option<u16>,
    system: System,
    names: &RegionNames,
) -> anyhow::Result<u64> {
    let title = || names.title(region.unwrap_or(THE_RUN));
    let counts = match region {
        None => Some(counted.run),
        Some(number) => {
            let mut regions = counted.regions.iter().flatten();
            regions
                .find(|one| one.region == number && one.marks.passes > 0)
                .map(|one| one.counts)
        }
    };
    let counts = counts.with_context(|| format!("the program did not pass {}", title()))?;
    if region.is_some_and(|number| counted.unhandled.contains(&number)) {
        bail!(
            "no profile of {}: the kernel has to take an exception or an interrupt before, which shows where its handlers \
             are",
            title()
        );
    }
    counts
        .instructions
        .and_then(|counted| match system {
            System::Alone => Some(counted.kernel),
            System::Linux | System::Memwright => Some(counted.kernel + counted.interrupts?),
        })
        .context("no profile: the handlers of interrupts are not known")
}
