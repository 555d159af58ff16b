//! Runs that find the causes of a program's page faults: on Linux, a run that reports the maps of the program's
//! processes; on Memwright, a run whose kernel traces every fault. These runs are separate from the counted ones, so
//! that they do not change counts.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use crate::count::fault_causes::causes;
use crate::count::fault_log::FaultLog;
use crate::count::fault_maps::Maps;
use crate::guestfs::initrd::{self, Manifest};
use crate::guestfs::prepare::Prepared;
use crate::lab::input::Input;
use crate::lab::own_run;
use crate::memwright::run::Run;
use crate::model::counts::Counts;
use crate::model::failure::Failure;
use crate::model::faults::{By, Faults, Stacks};
use crate::model::plan::{ImagePlan, OwnPlan, Setup};
use crate::qemu::runs::Runs;

/// The program that traces another one and reports its maps. It is built together with this command; empty if it could
/// not be built.
static TRACER: &[u8] = include_bytes!(env!("MEMWRIGHT_GUEST_MAPS"));
/// The path of the tracer in the guest.
const PLACE: &str = "/.memwright/maps";
/// The note that explains the number before a process's name on Linux.
const SPACES: &str =
    "a number before a name is that of an address space, in the order of their first use";

/// Writes the archive of a guest that runs the tracer with the program.
///
/// # Errors
/// I/O errors, and an error if the tracer could not be built.
pub fn write_archive(archive: &Path, prepared: &mut Prepared) -> anyhow::Result<()> {
    anyhow::ensure!(
        !TRACER.is_empty(),
        "this command was built without the program that reads maps: no C compiler linked a static program then"
    );
    let place = Path::new(PLACE);
    prepared.tree.add_bytes(place, 0o755, TRACER.to_vec());
    let own = [place.into(), place.into()].into_iter();
    let given = prepared.manifest.arguments.iter().cloned();
    let manifest = Manifest {
        arguments: own.chain(given).collect(),
        ..prepared.manifest.clone()
    };
    initrd::write(archive, &manifest, &prepared.tree).map(drop)
}

/// Returns the page faults of a counted run on Linux by their causes. `frames` are the maps from the run with the
/// tracer.
///
/// # Errors
/// If the log has more faults than the run counted.
pub fn on_linux(
    log: &FaultLog,
    frames: &[Vec<u8>],
    counts: &Counts,
    by: By,
    find: &dyn Fn(&Path) -> Option<PathBuf>,
) -> anyhow::Result<(Faults, Stacks)> {
    let mut maps = Maps::default();
    for frame in frames {
        maps.add(frame);
    }
    let sites = log.sites(&maps, counts)?;
    let (mut faults, stacks) = causes(&sites, by, find);
    if by == By::Process {
        faults.notes.push(SPACES.to_owned());
    }
    Ok((faults, stacks))
}

/// Runs the program on Memwright's kernel once more, and returns its page faults by their causes.
///
/// # Errors
/// If the run gives no result.
pub fn on_memwright(
    plan: &ImagePlan,
    by: By,
    input: &[u8],
    runs: &Runs,
) -> Result<(Faults, Stacks), Failure> {
    let setup = Setup {
        append: Vec::new(),
        ..plan.setup.clone()
    };
    let mut care = plan.care.clone();
    care.keep = None;
    let plan = OwnPlan {
        faults: Some(by),
        ..OwnPlan::new(setup, care)
    };
    let run = Run::open(&plan)?;
    let (finished, _) = own_run::run(&run, &Input::of(input.to_vec()), runs)?;
    let faults = finished.document.faults;
    let faults = faults.context("the run that traces page faults gave no account");
    Ok((faults.map_err(Failure::Guest)?, finished.fault_stacks))
}

/// Returns an error for a machine on which the causes of page faults cannot be determined.
///
/// # Errors
/// If the machine has several CPUs and the kernel is Linux, because QEMU's log does not state which CPU makes a system
/// call.
pub fn check_cpus(cpus: u8) -> Result<(), Failure> {
    if cpus > 1 {
        return Err(Failure::Usage(anyhow!(
            "--faults-by: on Linux, faults are attributed with one CPU, and this guest has {cpus}"
        )));
    }
    Ok(())
}
