//! The tasks of the workspace: `cargo xtask demo | test | ci | conformance | experiments | fuzz | mutants | programs |
//! guest`.
//!
//! Each works from a clean clone: what is missing is installed first, and every step is printed before it runs.

#![forbid(unsafe_code)]

mod arrows;
mod cases;
mod checks;
mod clock;
mod command;
mod conformance;
mod demo;
mod experiments;
mod fuzz;
mod guest;
mod install;
mod miri;
mod mutants;
mod programs;
mod room;
mod run;
mod shell;
mod suite;
mod tier;
mod unsafe_code;

use std::process::ExitCode;
use suite::Shard;
use tier::Tier;

const USAGE: &str = "\
usage: cargo xtask TASK

  demo      install what is missing, build, run real programs on Memwright, print their accounts
  test      tests of every crate on the host and of every program under QEMU, the long ones in part; 15 minutes on two
            cores from a fresh clone. Closes with the time of each stage, the slowest tests, and one line for all
  test --full [--shard I/N]
            every test, whole, or the I-th of N parts; takes hours
  test --list
            which tests the first tiers leave out, as docs/correctness.md has it
  ci        what test runs and more of it, plus format, lints, documentation, Miri and the oldest compiler; 50 minutes
  conformance [OPTION]... [TEST]...
            run Linux's own mm selftests, all that are expected to run or those that are named; options in
            docs/conformance.md
  experiments [NAME]...
            run the command of each page of docs/experiments, or of those that are named, and write the figures into it
  experiments --memwright [NAME]...
            measure Memwright's columns alone, and keep those of Linux
  experiments --check [--all | --seed N | NAME...]
            measure again and fail where a published figure is another now: Memwright's columns of some pages, chosen by
            the commit or by a seed; of the pages that are named; or every column whose kernel is to be had
  cases [--check] [NAME]...
            run the commands that the README and the pages of docs/cases show, and write what they print, or compare it
  fuzz [--against model|host|host-and-guest] [--minutes N] [--operations N] [--seed S] [--show N] [--keep DIR]
  fuzz [--against ...] SCRIPT...
            run random programs of memory operations on the memory manager and on its model, on this machine's Linux
            twice, or on this machine's Linux and on Memwright (if nothing is said), and compare: what differs and is not
            one of the rules in fuzz/rules.rs is shrunk, kept and shown; or scripts that were kept; with
            --against model, --seeds A,B,... or random:N shares the operations among several seeds
  fuzz --target syscalls|elf [--minutes N] [--keep DIR]
            any bytes as system calls, or as a file that is executed, guided by coverage; with a nightly compiler
  fuzz --target sequences [--cpus N] [--memory SIZE] [--calls N] [--seed S]
            long sequences of mostly right system calls on live descriptors, memory and children, on Memwright
  mutants [NAME]... | mutants --list | mutants --check
            plant mistakes in a copy of the memory manager, each in turn, and show which test notices; or list them; or
            check that they can be planted in the source as it is
  miri      unit tests under an interpreter that finds undefined behaviour, if a nightly compiler has one
  unsafe    count the uses of unsafe, and check that each says why it is sound
  arrows    check that each folder refers to folders below it alone, by use and by method call; with rust-analyzer
  programs  build programs/*.c into programs/build
  guest     the same, and the kernel with debug assertions that the tests boot
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["demo"] => demo::run(),
        ["test"] => run::run(Tier::Test, Shard::WHOLE),
        ["test", "--full"] => run::run(Tier::Full, Shard::WHOLE),
        ["test", "--full", "--shard", part] => match Shard::parse(part) {
            Some(shard) => run::run(Tier::Full, shard),
            None => Err(anyhow::anyhow!(
                "--shard I/N, with I from 1 to N, not {part}"
            )),
        },
        ["test", "--list"] => {
            print!("{}", suite::markdown());
            Ok(())
        }
        ["ci"] => run::run(Tier::Ci, Shard::WHOLE),
        ["conformance", rest @ ..] => conformance::run(rest),
        ["experiments", rest @ ..] => experiments::run(rest),
        ["cases", rest @ ..] => cases::run(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["mutants", rest @ ..] => mutants::run(rest),
        ["miri"] => miri::run().map(|outcome| match outcome {
            miri::Outcome::Passed => {}
            miri::Outcome::Skipped(why) => println!("skipped: {why}"),
        }),
        ["unsafe"] => unsafe_code::run(),
        ["arrows"] => arrows::run(),
        ["programs"] => programs::build_all(),
        ["guest"] => guest::build(),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
