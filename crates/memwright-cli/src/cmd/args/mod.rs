//! The command line: what may be asked, and how the help reads.

mod help;

use crate::compare::identity::Vary;
use crate::model::machine::Clock;
use crate::model::parameter::Parameter;
use crate::model::plan::{
    Care, Detail, ImagePlan, Measure, OwnPlan, Setup, Terminals, parse_seconds,
};
use crate::model::policy::parse_policies;
use crate::model::profile::{Order, parse_percent};
use crate::render::profile_outputs::ProfileFormats;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cmd::args::help::{AFTER_HELP, BENCH_HELP, CHECK_HELP, CODES_HELP};
use crate::compare::limit::Limit;
use crate::model::plan::TraceFormat;
use crate::model::region_names::RegionId;
use crate::qemu::launch::LaunchArgs;
use crate::render::outputs::{Formats, Shown};

/// Run Linux programs on the Memwright memory manager and account for their memory.
#[derive(Debug, Parser)]
#[command(name = "memwright", version, about, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Run a Linux program on Memwright under QEMU and account for its memory.
    Run(Box<RunArgs>),
    /// Run the experiments on Memwright, and on Linux kernels beside it, and print a table for each.
    Bench(Box<BenchArgs>),
    /// Run a program on several Linux kernels and print what each counted, side by side.
    Compare(Box<CompareArgs>),
    /// Re-run a baseline and fail if its counts changed, or run a program and fail if a count exceeds a limit.
    Check(Box<CheckArgs>),
    /// Render saved JSON documents in another format, or compare several, without running anything.
    Report(ReportArgs),
    /// Keep Linux kernel images under names, for `--kernel`.
    Kernels(KernelsArgs),
    /// Say what is here, what is missing, and the command that mends it; 3 where something needed is missing.
    Doctor,
    /// Print completions for a shell.
    Completions(CompletionsArgs),
    /// Write manual pages into a folder.
    Manual(ManualArgs),
    /// Become QEMU; `run` starts itself this way so that QEMU ends when it does.
    #[command(name = crate::qemu::launch::SUBCOMMAND, hide = true)]
    Launch(LaunchArgs),
}

/// `memwright run`.
#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "memwright run [OPTIONS] PROGRAM [ARGS]...",
    after_help = AFTER_HELP,
    args_override_self = true
)]
pub struct RunArgs {
    /// Run on this Linux kernel instead, counted from outside, twice: a bzImage, a vmlinux, or a name of `memwright kernels`.
    /// Behind the image, ,K=V changes an option for it alone: append, cpus, hugetlb, memory, numa, policy, program, swap, thp,
    /// thp-size. The image memwright is Memwright's own kernel, counted in the same way.
    #[arg(long, visible_alias = "column", value_name = "[NAME=]IMAGE[,K=V]",
        conflicts_with_all = ["parallel", "tty", "trace", "strace", "policies", "gdb", "selftest"])]
    pub kernel: Vec<String>,

    /// Run on this machine itself, with its own counters where it has any: to see what a count means in time.
    #[arg(long, conflicts_with_all = ["kernel", "parallel", "swap", "tty", "trace", "strace", "policies", "gdb", "selftest", "keep", "files", "json",
        "memory", "cpus", "thp", "thp_sizes", "hugetlb", "numa", "environment", "timeout", "dry_run", "verbose", "full", "html", "csv", "md", "mail"])]
    pub native: bool,

    /// Take options, columns and PROGRAM from this file (TOML); options that follow count more.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// With --kernel: run once, and do not compare with a second run.
    #[arg(long, requires = "kernel")]
    pub no_verify: bool,

    /// With --kernel: boot the kernel, use no saved state, and keep none.
    #[arg(long, requires = "kernel")]
    pub cold: bool,

    /// With --kernel: count nothing from outside, which takes less time.
    #[arg(long, requires = "kernel")]
    pub no_count: bool,

    /// With --kernel: count the kernel's instructions by function too.
    #[arg(long, requires = "kernel", conflicts_with = "no_count")]
    pub functions: bool,

    /// With --functions: of this region that the program marks, by its number or by its name, not of the whole run.
    #[arg(long, value_name = "N|NAME", requires = "functions")]
    pub region: Option<RegionId>,

    /// With --functions: count functions that the compiler inlined as functions of their own; needs debug information
    /// (memwright kernels add NAME --debug).
    #[arg(long, requires = "functions")]
    pub inlined: bool,

    /// With --functions: count by line of the source too, and functions as with --inlined.
    #[arg(long, requires = "functions")]
    pub lines: bool,

    /// With --functions: sort by what a function executed with those that it called, not by its own.
    #[arg(long, requires = "functions")]
    pub children: bool,

    /// With --functions: leave out functions with less than this part of all instructions.
    #[arg(long, value_name = "PERCENT", requires = "functions", default_value = "0.5",
        allow_hyphen_values = true, value_parser = parse_percent)]
    pub percent_limit: f64,

    /// Files of --functions.
    #[command(flatten)]
    pub profiles: ProfileFormats,

    /// The program and its guest.
    #[command(flatten)]
    pub setup: Setup,

    /// How the run is attended.
    #[command(flatten)]
    pub care: Care,

    /// Run the CPUs in parallel and by the host's clock: no two runs need be the same.
    #[arg(long)]
    pub parallel: bool,

    /// Print every row of the account, with versions and hashes, not only what fits into 24 lines.
    #[arg(long)]
    pub full: bool,

    /// Write the account as JSON ("-" for standard output).
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,

    /// Files for the result.
    #[command(flatten)]
    pub formats: Formats,

    /// Give the program the terminal as its standard input, where it is one; else that is a pipe.
    #[arg(long)]
    pub tty: bool,

    /// Write every memory event, with the instruction clock.
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,

    /// With --trace: one JSON object per line, or Chrome trace events for Perfetto.
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "jsonl",
        requires = "trace"
    )]
    pub trace_format: TraceFormat,

    /// Print system calls to standard error.
    #[arg(long)]
    pub strace: bool,

    /// Wait for gdb; print the gdb line with symbols.
    #[arg(long)]
    pub gdb: bool,

    /// Print the QEMU command line and do not run it.
    #[arg(long)]
    pub dry_run: bool,

    /// Instead of the program: the kernel's tests of itself (1), or a failure whose report is to be seen (panic,
    /// fault, overflow), or user mode for ever (spin).
    #[arg(long, value_name = "WHAT", hide = true)]
    pub selftest: Option<String>,
}

/// `memwright bench`.
#[derive(Debug, Args)]
#[command(
    after_help = BENCH_HELP,
    mut_arg("all", |arg| arg.requires("program")),
    mut_arg("rows", |arg| arg.requires("program"))
)]
pub struct BenchArgs {
    /// Experiments to run; all without a name.
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,

    /// Take options, columns and PROGRAM from this file (TOML); options that follow count more.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// Run this program in place of experiments, counted from outside.
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,

    /// Run PROGRAM once with each of these values in place of {NAME} in its words (repeatable: all combinations).
    #[arg(
        short = 'L',
        long = "parameter",
        value_name = "NAME=VALUE,...",
        requires = "program"
    )]
    pub parameters: Vec<Parameter>,

    /// Which rows of PROGRAM's counts.
    #[command(flatten)]
    pub shown: Shown,

    /// Add a column: this Linux kernel (a bzImage, a vmlinux, or a name of `memwright kernels`), in the same QEMU (repeatable).
    /// For PROGRAM, with the keys of compare.
    #[arg(
        long = "kernel",
        visible_alias = "column",
        value_name = "[NAME=]IMAGE[,K=V]"
    )]
    pub kernels: Vec<String>,

    /// Add a column: Memwright with these policies (repeatable).
    #[arg(long = "policy", value_name = "K=V[,K=V]", value_parser = parse_policies)]
    pub policies: Vec<String>,

    /// Add a column for every --kernel: the same image with these words on its command line (repeatable).
    #[arg(
        long,
        value_name = "WORDS",
        requires = "kernels",
        allow_hyphen_values = true
    )]
    pub append: Vec<String>,

    /// Of experiments with several runs, make only the one of this label (repeatable).
    #[arg(long = "run", value_name = "LABEL")]
    pub labels: Vec<String>,

    /// Host seconds for each run, after which the bench fails.
    #[arg(long, value_name = "SECS", default_value = "900",
        allow_hyphen_values = true, value_parser = parse_seconds)]
    pub timeout: Duration,

    /// Run everything once, and do not compare with a second run.
    #[arg(long)]
    pub no_verify: bool,

    /// Boot Linux kernels for each run, use no saved states, and keep none.
    #[arg(long)]
    pub cold: bool,

    /// Print the QEMU command line of every run, and run nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Write everything as JSON ("-" for standard output, instead of the tables).
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,

    /// Files for the result.
    #[command(flatten)]
    pub formats: Formats,

    /// Print the experiments and their questions.
    #[arg(long)]
    pub list: bool,
}

/// `memwright compare`.
#[derive(Debug, Args)]
#[command(
    override_usage = "memwright compare --kernel NAME=IMAGE --kernel NAME=IMAGE [OPTIONS] PROGRAM [ARGS]...",
    after_help = CODES_HELP,
    // What conflicts with `--kernel` as it is, and what has no meaning here.
    mut_arg("native", |arg| arg.hide(true)),
    mut_arg("full", |arg| arg.hide(true).conflicts_with("kernel")),
    mut_arg("parallel", |arg| arg.hide(true)),
    mut_arg("no_count", |arg| arg.hide(true).conflicts_with("kernel")),
    mut_arg("tty", |arg| arg.hide(true)),
    mut_arg("trace", |arg| arg.hide(true)),
    mut_arg("trace_format", |arg| arg.hide(true)),
    mut_arg("strace", |arg| arg.hide(true)),
    mut_arg("policies", |arg| arg.hide(true)),
    mut_arg("callgrind", |arg| arg.hide(true).conflicts_with("kernel")),
    mut_arg("pprof", |arg| arg.hide(true).conflicts_with("kernel")),
    mut_arg("gdb", |arg| arg.hide(true))
)]
pub struct CompareArgs {
    /// With --functions: show the functions that not every kernel has below the one that they are counted with.
    #[arg(long, requires = "functions")]
    pub ungroup: bool,

    /// Which rows of the result.
    #[command(flatten)]
    pub shown: Shown,
    /// The program and its guest.
    #[command(flatten)]
    pub run: RunArgs,
}

/// `memwright check`.
#[derive(Debug, Args)]
#[command(
    override_usage = "memwright check --baseline FILE [OPTIONS] PROGRAM [ARGS]...\n       \
        memwright check --bisect --limit ROW=N|+P% [--baseline FILE] --kernel IMAGE [OPTIONS] PROGRAM [ARGS]...",
    after_help = CHECK_HELP,
    // A check that left out what it was asked for would say something else than it seems to.
    mut_arg("native", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("full", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("parallel", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("no_count", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("tty", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("trace", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("trace_format", |arg| arg.hide(true)),
    mut_arg("strace", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("functions", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("region", |arg| arg.hide(true)),
    mut_arg("inlined", |arg| arg.hide(true)),
    mut_arg("lines", |arg| arg.hide(true)),
    mut_arg("children", |arg| arg.hide(true)),
    mut_arg("percent_limit", |arg| arg.hide(true)),
    mut_arg("folded", |arg| arg.hide(true)),
    mut_arg("flamegraph", |arg| arg.hide(true)),
    mut_arg("callgrind", |arg| arg.hide(true)),
    mut_arg("pprof", |arg| arg.hide(true)),
    mut_arg("gdb", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("dry_run", |arg| arg.hide(true).conflicts_with_all(JUDGES))
)]
pub struct CheckArgs {
    /// What `memwright run --json FILE` wrote, with --kernel or without.
    #[arg(long, value_name = "FILE", required_unless_present = "limits")]
    pub baseline: Option<PathBuf>,

    /// What makes the check fail.
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value = "increase",
        conflicts_with = "limits"
    )]
    pub fail_on: FailOn,

    /// What a row may be at most: a count, or so much more than the baseline's. Then nothing else of the counts makes the
    /// check fail (repeatable).
    #[arg(long = "limit", value_name = "ROW=N|+P%")]
    pub limits: Vec<Limit>,

    /// Exit as `git bisect run` expects: 0 good, 1 bad, 125 if the image is absent, does not boot or panics, 128 or more
    /// for anything else, which ends the bisection.
    #[arg(long, requires = "limits", requires = "kernel")]
    pub bisect: bool,

    /// With --bisect: what a kernel panic makes of a commit.
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value = "skip",
        requires = "bisect"
    )]
    pub panic: OnPanic,

    /// What may be another than the baseline's: what is being tested (repeatable).
    #[arg(long, value_name = "WHAT", value_enum)]
    pub vary: Vec<Vary>,

    /// Which rows of the result.
    #[command(flatten)]
    pub shown: Shown,

    /// The program and its guest.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What a check judges by.
const JUDGES: [&str; 2] = ["baseline", "limits"];

/// What a kernel panic says of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnPanic {
    /// Nothing: the commit is skipped.
    Skip,
    /// It is bad.
    Bad,
}

/// What makes a check fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A count that is larger than it was.
    Increase,
    /// A count that is not what it was.
    Difference,
}

/// `memwright report`.
#[derive(Debug, Args)]
#[command(after_help = CODES_HELP)]
pub struct ReportArgs {
    /// What --json wrote: of run or check, of either kind, of compare, of bench. Several documents of run are compared.
    #[arg(required = true, value_name = "[NAME=]FILE")]
    pub files: Vec<String>,

    /// Write the documents as JSON ("-" for standard output).
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,

    /// Files for the result.
    #[command(flatten)]
    pub formats: Formats,

    /// Which rows of it.
    #[command(flatten)]
    pub shown: Shown,
}

/// `memwright kernels`.
#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// What to do with them.
    #[command(subcommand)]
    pub action: KernelsAction,
}

/// What can be done with kernel images.
#[derive(Debug, Subcommand)]
pub enum KernelsAction {
    /// Add one: debian:SUITE (the newest of that suite, fetched through apt), or [NAME=]IMAGE.
    Add {
        /// For example debian:trixie, debian:bookworm-backports, debian:unstable, patched=./bzImage.
        #[arg(value_name = "debian:SUITE|[NAME=]IMAGE")]
        name: String,
        /// Fetch its debug information too, several hundred megabytes; of an IMAGE of your own, keep this vmlinux of the
        /// same build.
        #[arg(long, value_name = "VMLINUX", num_args = 0..=1, require_equals = true)]
        debug: Option<Option<PathBuf>>,
    },
    /// List them: name, beginning of the hash, version.
    List,
    /// Remove one.
    Remove {
        /// Its name.
        name: String,
    },
}

/// `memwright completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Which one.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `memwright manual`.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// The folder, made where it is missing.
    pub folder: PathBuf,
}

impl RunArgs {
    /// What time is in the guest.
    pub fn clock(&self) -> Clock {
        match self.parallel {
            true => Clock::Host,
            false => Clock::Instructions,
        }
    }

    /// The run on Memwright's kernel that they ask for.
    pub fn own_plan(&self) -> OwnPlan {
        OwnPlan {
            clock: self.clock(),
            terminals: terminals(self.tty),
            trace: self.trace.is_some(),
            strace: self.strace,
            gdb: self.gdb,
            selftest: self.selftest.clone(),
            ..OwnPlan::new(self.setup.clone(), self.care.clone())
        }
    }

    /// The run on a kernel image that they ask for.
    pub fn image_plan(&self) -> ImagePlan {
        let detail = match (self.lines, self.inlined) {
            (true, _) => Detail::Lines,
            (false, true) => Detail::Inlined,
            (false, false) => Detail::Functions,
        };
        ImagePlan {
            setup: self.setup.clone(),
            care: self.care.clone(),
            measure: match (self.no_count, self.functions) {
                (true, _) => Measure::Nothing,
                (false, false) => Measure::Events,
                (false, true) => Measure::Functions {
                    region: self.region.clone(),
                    detail,
                },
            },
            verify: !self.no_verify,
            cold: self.cold,
        }
    }

    /// Which functions are shown of a profile, and in which order.
    pub fn order(&self) -> Order {
        Order {
            children: self.children,
            percent_limit: self.percent_limit,
        }
    }
}

/// Which of this command's descriptors 0 to 2 are terminals, standard input only with `--tty`: those are in the guest too.
fn terminals(tty: bool) -> Terminals {
    let is = [
        tty && io::stdin().is_terminal(),
        io::stdout().is_terminal(),
        io::stderr().is_terminal(),
    ];
    let [stdin, stdout, stderr] = is;
    let size = [
        (stdout, rustix::stdio::stdout()),
        (stderr, rustix::stdio::stderr()),
        (stdin, rustix::stdio::stdin()),
    ]
    .into_iter()
    .filter(|(terminal, _)| *terminal)
    .find_map(|(_, descriptor)| rustix::termios::tcgetwinsize(descriptor).ok());
    Terminals {
        stdin,
        stdout,
        stderr,
        // A terminal that does not know its size says 0.
        size: size
            .map(|size| (size.ws_col, size.ws_row))
            .filter(|(columns, rows)| *columns > 0 && *rows > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_after_the_program_belong_to_it() {
        let cli =
            Cli::try_parse_from(["memwright", "run", "--strace", "/bin/ls", "--verbose", "-l"])
                .unwrap();
        let Action::Run(run) = cli.action else {
            panic!("not a run")
        };
        assert!(run.strace && !run.care.verbose);
        assert_eq!(run.setup.command, ["/bin/ls", "--verbose", "-l"]);
    }

    #[test]
    fn values_that_do_not_parse_are_refused() {
        for (option, value) in [
            ("--timeout", "0"),
            ("--timeout", "-3"),
            ("--timeout", "soon"),
            ("--env", "=x"),
            ("--env", "HOME"),
            ("--policy", "aslr"),
            ("--policy", "aslr=random"),
            ("--policy", "speed=fast"),
            ("--policy", "write-upgrade=sometimes"),
            ("--memory", "12Q"),
            ("--memory", "-1"),
            ("--cpus", "0"),
            ("--cpus", "65"),
            ("--cpus", "-1"),
            ("--cpus", "x"),
            ("--policy", "apic=8259"),
            ("--numa", "0"),
            ("--numa", "9"),
            ("--numa", "1G,1G:2"),
            ("--numa", "1G:0"),
            ("--numa", "1G:63,1G:2"),
        ] {
            assert!(
                Cli::try_parse_from(["memwright", "run", option, value, "/bin/ls"]).is_err(),
                "{option} {value}"
            );
        }
    }

    #[test]
    fn policies_are_lists() {
        let cli = Cli::try_parse_from([
            "memwright",
            "run",
            "--policy",
            "aslr=1,fault-around=4",
            "--policy",
            "write-upgrade=off",
            "x",
        ])
        .unwrap();
        let Action::Run(run) = cli.action else {
            panic!("not a run")
        };
        assert_eq!(
            run.setup.policies,
            ["aslr=1", "fault-around=4", "write-upgrade=off"]
        );
    }
}
