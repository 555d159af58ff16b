//! Runs threads that continuously change one address space on several CPUs. The CPUs take turns, or run in parallel on
//! a host with fewer cores.

use crate::guest::Ending;
use crate::shared::{Boot, boot, interleaved};
use libtest_mimic::{Failed, Trial};

pub fn trials() -> Vec<Trial> {
    let of = || Boot::of("crowd", "musl-static", &["crowd 60"]);
    let boots = vec![of().cpus(2), of().cpus(4), of().parallel(2)];
    let mut trials = interleaved(boots);
    trials.push(Trial::test("crowd::parallel_cpus_halt", parallel_cpus_halt));
    trials
}

/// Checks that the program terminates, and that a CPU that waits long halts. Long waits are certain on a host with
/// fewer than eight cores, because the CPU for which another CPU waits does not always run.
fn parallel_cpus_halt() -> Result<(), Failed> {
    let guest = boot("musl-static", &["crowd 300"]);
    let ending = guest.cpus(8).parallel().run()?;
    ending.expect_code(0)?;
    let contended = count(&ending, "locks_contended")?;
    let halted = count(&ending, "locks_halted")?;
    let for_answers = count(&ending, "flush_waits_halted")?;
    let told = format!("{contended} contended, {halted} halted, {for_answers} for answers");
    if contended == 0 || halted > contended {
        return Err(told.into());
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 8 && halted + for_answers == 0 {
        return Err(format!("no CPU halted in a wait: {told}").into());
    }
    Ok(())
}

fn count(ending: &Ending, row: &str) -> Result<u64, Failed> {
    let account = ending.account()?;
    let value = account["account"][row].as_u64();
    value.ok_or_else(|| format!("the account has no count {row}").into())
}
