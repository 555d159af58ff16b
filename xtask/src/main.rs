//! The tasks of the workspace, each run by `cargo xtask TASK`. `cargo xtask` without a task lists them.
//!
//! Each task works in a clean clone, because it first installs missing tools and packages. A task prints every step
//! before performing it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod apt;
mod architectures;
mod arrows;
mod block;
mod cases;
mod checks;
mod clock;
mod command;
mod conformance;
mod demo;
mod dist;
mod docs;
mod example;
mod experiments;
mod fuzz;
mod guest;
mod house;
mod install;
mod miri;
mod mutants;
mod number;
mod parallel;
mod programs;
mod prose;
mod release;
#[path = "../../crates/memwright-cli/remap.rs"]
mod remap;
mod room;
mod run;
mod shell;
mod size;
mod suite;
mod tier;
mod tools;
mod unsafe_code;
mod walk;
mod words;
mod workloads;

use std::process::ExitCode;
use suite::Shard;
use tier::{Outcome, Tier};

const USAGE: &str = "\
usage: cargo xtask TASK

  demo      install missing tools, build, run real programs on Memwright, print their accounts
  test      tests of every crate on the host and of every program under QEMU, the long ones in part; 15 minutes on two
            cores from a fresh clone. Ends with the time of each stage, the slowest tests, and a summary line
  test --full [--shard I/N]
            every test in full, or the I-th of N parts; takes hours
  test FOLDER...
            the tests that exercise these folders of crates/memwright/src, in seconds after a change of one line; an
            unknown name prints the list
  test --list
            list the tests that the first tiers leave out, as in docs/correctness.md
  ci        the tests of `test` and more, plus format, lints, documentation, Miri and the oldest compiler; 50 minutes
  conformance [OPTION]... [TEST]...
            run Linux's own mm selftests, all that are expected to run or the named ones; options in
            docs/conformance.md
  conformance --reference KERNEL [TEST]...
            run them on a Linux kernel, and write its column
  conformance --against A,B
            compare two columns: series of Linux, or memwright
  example kernel|kit [x86_64 | aarch64 | riscv64 | riscv64-sv39]
            build the example kernel for bare metal, or the kernel that runs the test kit on the same processors, and
            run it under QEMU
  experiments [NAME]...
            run the command of each page of docs/experiments, or of the named ones, and write the figures into it;
            redis-bgsave, which takes ten minutes, only if it is named
  experiments --memwright [NAME]...
            measure only Memwright's columns, and keep those of Linux
  experiments --check [--all | --seed N | NAME...]
            measure again and fail if a published figure has changed: Memwright's columns of some pages, chosen by
            the commit or by a seed; of the named pages; or every column whose kernel is available
  cases [--check] [NAME]...
            run the commands in the README and the pages of docs/cases, and write their output, or compare it
  docs [--check] [PAGE]...
            write the parts of the pages that are generated from the source, or check them; docs/scaling.md, whose
            figures are measured, only if it is named
  fuzz [--against model|host|host-and-guest|linux=NAME] [--minutes N] [--operations N] [--seed S] [--show N] [--keep DIR]
  fuzz [--against ...] SCRIPT...
            run random programs of memory operations on the memory manager and on its model, on this machine's Linux
            twice, on this machine's Linux and on Memwright (the default), or on a kernel of `memwright kernels` and on
            Memwright, and compare: a difference that no rule in fuzz/rules.rs or fuzz/older.rs covers is shrunk, saved
            and printed; or run saved scripts; with
            --against model, --seeds A,B-C,... or random:N shares the operations among several seeds, and --shard I/N
            runs the I-th of N parts of these
  fuzz --target syscalls|elf [--minutes N] [--keep DIR]
            run random bytes as system calls, or as an executable, guided by coverage; needs a nightly compiler
  fuzz --target sequences [--cpus N] [--memory SIZE] [--calls N] [--seed S]
            run long sequences of mostly valid system calls on live descriptors, memory and children, on Memwright
  architectures [--all] [aarch64 | riscv64 | riscv64-sv39, or one of these with -by-fault]...
            run the tests of the libraries on the named simulated machines, whose page tables are not those of x86-64;
            without a name, on those whose processors set accessed and dirty bits; with --all, the tests of all orders of
            steps too, and without a name on all machines
  mutants [--simulated MACHINE] [NAME]... | mutants --list | mutants --check
            plant mistakes in a copy of the memory manager, one at a time, and print which test detects each; or list
            them; or check that they can be planted in the source as it is
  miri      run unit tests under an interpreter that finds undefined behaviour, if a nightly compiler has one
  release-check [--against REVISION]
            check what has to hold before the libraries are published: packages, licences and sources, compatibility with
            the last release or with a revision; publishes nothing
  dist [--try]
            build a Debian package of the command, which needs no compiler where it is installed, and check its contents;
            or also install it in a bare Debian, which needs root and debootstrap, and compare two kernels there
  unsafe    count the uses of unsafe, and check that each has a comment on why it is sound
  arrows [--show SOURCE]
            check that modules refer only to modules below them, by use and by method call, but for exceptions whose
            number may only fall; or print those of one crate; needs rust-analyzer
  walk [--write | NAME [--tree FOLDER]]
            perform operations, trace their calls, and check the files that each passes against ARCHITECTURE.md and
            the figures, which may only fall; or write ARCHITECTURE.md; or print the walk of one operation, fault,
            mprotect, fork, swap-in or compare, in this source or another
  house [--show NAME | --draw]
            print figures of the structure and of the prose, which may only fall, beside their goals; or the places
            that one figure counts; or 60 paragraphs of the prose, which the commit chooses
  size [--each | --beside | --table [--write] | --functions [FEATURES]]
            measure the memory manager in a program for no operating system, built for size, with all of its features
            and with none; the sizes may only fall, and the symbols of a feature that is off must be gone; or also
            without each feature; or beside other crates; or check or write the tables of docs/embedding.md; or print
            the largest functions
  features [--tests]
            check that the memory manager compiles with no feature, with each alone, with each left out, and with all,
            and that its tests pass with none; with --tests, with each choice, which takes ten minutes
  prose     check the spelling, with typos, and the words of pages and comments, with Vale; both are built once, into
            ~/.cache/memwright/tools, which takes minutes
  workloads [--install] [--memwright] [--releases] [NAME]...
            run the scripts of programs/workloads, or the named ones, on Memwright and on Linux, compare their output,
            and write docs/programs.md and the table of programs in docs/experiments/releases.md; or install their
            packages first; or measure Memwright's columns only; or run only the scripts of docs/experiments/releases.md
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
        ["test", folders @ ..] if !folders.iter().any(|name| name.starts_with('-')) => {
            suite::run_near(folders)
        }
        ["ci"] => run::run(Tier::Ci, Shard::WHOLE),
        ["conformance", rest @ ..] => conformance::run(rest),
        ["example", rest @ ..] => example::run(rest),
        ["experiments", rest @ ..] => experiments::run(rest),
        ["cases", rest @ ..] => cases::run(rest),
        ["docs", rest @ ..] => docs::run(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["architectures", rest @ ..] => architectures::run(rest),
        ["mutants", rest @ ..] => mutants::run(rest),
        ["miri"] => miri::run().map(|outcome| match outcome {
            miri::Outcome::Passed => {}
            miri::Outcome::Skipped(why) => println!("skipped: {why}"),
        }),
        ["unsafe"] => unsafe_code::run(),
        ["arrows", rest @ ..] => arrows::run(rest),
        ["walk", rest @ ..] => walk::run(rest),
        ["house", rest @ ..] => house::run(rest),
        ["size", rest @ ..] => size::run(rest),
        ["features", arguments @ ..] => size::matrix::run(arguments),
        ["prose"] => prose::run().and_then(|outcome| match outcome {
            Outcome::Passed => Ok(()),
            Outcome::Skipped(why) => {
                println!("skipped: {why}");
                Ok(())
            }
            Outcome::Failed(why) => Err(anyhow::anyhow!("{why}")),
        }),
        ["dist", rest @ ..] => dist::run(rest),
        ["release-check"] => release::check(None),
        ["release-check", "--against", revision] => release::check(Some(revision)),
        ["workloads", rest @ ..] => workloads::run(rest),
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
