//! Tests that boot the kernel under QEMU.
//!
//! Two guests run at a time. Every run except those with parallel CPUs is repeated and compared, and its audit must
//! find nothing. The kernel of these tests has debug assertions enabled; one test runs the image that the command
//! embeds. Under `cargo xtask test` and `cargo xtask ci`, only some of the programs run and only some of the runs are
//! repeated (see `tier.rs`).

mod bench;
mod busybox;
mod codes;
mod cpus;
mod crowd;
mod debian;
mod debuggers;
#[path = "../elsewhere/mod.rs"]
mod elsewhere;
mod errors;
mod guest;
mod installed;
mod interrupts;
mod kernel;
mod languages;
mod pages;
mod places;
mod policies;
mod prepare;
mod programs;
mod refusals;
mod room;
mod root;
mod rounds;
mod rows;
mod scale;
mod sequences;
mod shared;
mod stress;
mod stretches;
mod tier;
mod versions;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    if arguments.test_threads.is_none() {
        arguments.test_threads = Some(2);
    }
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(programs::trials());
    trials.extend(cpus::trials());
    trials.extend(crowd::trials());
    trials.extend(stretches::trials());
    trials.extend(rounds::trials());
    trials.extend(rows::trials());
    trials.extend(scale::trials());
    trials.extend(bench::trials());
    trials.extend(busybox::trials());
    trials.extend(debian::trials());
    trials.extend(debuggers::trials());
    trials.extend(languages::trials());
    trials.extend(sequences::trials());
    trials.extend(stress::trials());
    trials.extend(codes::trials());
    trials.extend(refusals::trials());
    trials.extend(policies::trials());
    trials.extend(errors::trials());
    trials.extend(pages::trials());
    trials.extend(room::trials());
    trials.extend(root::trials());
    trials.extend(interrupts::trials());
    trials.extend(kernel::trials());
    trials.extend(installed::trials());
    trials.extend(versions::trials());
    trials.extend(places::trials());
    if let Some(chosen) = tier::chosen() {
        trials.retain(|trial| chosen.iter().any(|name| name == trial.name()));
    }
    if !arguments.list {
        prepare::prepare();
    }
    libtest_mimic::run(&arguments, trials).exit();
}
