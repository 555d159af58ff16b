//! The command line: its options and their help.

mod help;

use crate::compare::identity::Vary;
use crate::model::faults::By;
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

use crate::cmd::args::help::{AFTER_HELP, BENCH_HELP, CHECK_HELP, CODES_HELP, CONFIG_HELP};
use crate::compare::limit::Limit;
use crate::model::plan::TraceFormat;
use crate::model::region_names::RegionId;
use crate::model::shard::Choice;
use crate::qemu::launch::LaunchArgs;
use crate::render::outputs::{Formats, Shown};

/// The command line of `memwright`, which counts what memory management costs while a program runs on a kernel.
#[derive(Debug, Parser)]
#[command(name = "memwright", version, about, max_term_width = 100)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub action: Action,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Run a Linux program on Memwright under QEMU and account for its memory.
    Run(Box<RunArgs>),
    /// Run experiments or workloads on Memwright and on Linux kernels, and print tables of their figures.
    Bench(Box<BenchArgs>),
    /// Run a program on several Linux kernels and print their counts side by side.
    Compare(Box<CompareArgs>),
    /// Re-run a baseline and fail if its counts changed, or run a program and fail if a count exceeds a limit.
    Check(Box<CheckArgs>),
    /// Render saved JSON documents in another format, or compare several, without running anything.
    Report(ReportArgs),
    /// Manage named Linux kernel images for `--kernel`.
    Kernels(KernelsArgs),
    /// Check required tools and show how to install them; exits with 3 if one is missing.
    Doctor,
    /// Print completions for a shell.
    Completions(CompletionsArgs),
    /// Write manual pages into a folder.
    Manual(ManualArgs),
    /// Build the C programs that commands need into a folder, for a package.
    Prebuild(PrebuildArgs),
    /// Exec QEMU; `run` starts itself this way so that QEMU exits when it does.
    #[command(name = crate::qemu::launch::SUBCOMMAND, hide = true)]
    Launch(LaunchArgs),
}

/// The group of the options that count by function, or by what caused a page fault. A run has at most one of them.
const PROFILED: &str = "profiled";

/// `memwright run`.
#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "memwright run [OPTIONS] PROGRAM [ARGS]...\n       \
        memwright run --kernel IMAGE [OPTIONS]",
    after_help = AFTER_HELP,
    args_override_self = true
)]
pub struct RunArgs {
    /// Run on this Linux kernel instead, counted from outside, twice: a bzImage, a vmlinux, or a name of `memwright
    /// kernels`. After the image, ,K=V changes an option for this column alone: append, cpus, hugetlb, memory, numa,
    /// policy, program, swap, thp, thp-size. The image memwright is Memwright's own kernel, counted in the same way. A
    /// kernel that is not Linux (an ELF file with a PVH note, or multiboot 1) boots without PROGRAM.
    #[arg(long, visible_alias = "column", value_name = "[NAME=]IMAGE[,K=V]",
        conflicts_with_all = ["parallel", "tty", "trace", "strace", "policies", "gdb", "selftest"])]
    pub kernel: Vec<String>,

    /// Run on this machine itself, with its perf counters if available, to relate counts to time.
    #[arg(long, conflicts_with_all = ["kernel", "parallel", "swap", "tty", "trace", "strace", "policies", "gdb", "selftest", "keep", "files", "json",
        "memory", "cpus", "thp", "thp_sizes", "hugetlb", "numa", "environment", "timeout", "dry_run", "verbose", "full", "html", "csv", "md", "benchmark_json", "mail"])]
    pub native: bool,

    /// Take options, columns and PROGRAM from this file (TOML); later options override it.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// With --kernel: run once, and do not compare with a second run.
    #[arg(long, requires = "kernel")]
    pub no_verify: bool,

    /// With --kernel: boot the kernel, and neither use nor keep a saved state.
    #[arg(long, requires = "kernel")]
    pub cold: bool,

    /// With --kernel: do not count from outside, which is faster.
    #[arg(long, requires = "kernel")]
    pub no_count: bool,

    /// With --kernel: also count the kernel's instructions by function.
    #[arg(
        long,
        requires = "kernel",
        conflicts_with = "no_count",
        group = PROFILED
    )]
    pub functions: bool,

    /// Count page faults by what caused them: the symbol, that is the function of the program or of a library, the line
    /// of its source, the area of memory, or the process.
    #[arg(long, value_name = "WHAT", value_enum, group = PROFILED, conflicts_with_all = ["no_count", "native"])]
    pub faults_by: Option<By>,

    /// With --functions: count only this marked region, given by number or name, instead of the whole run.
    #[arg(long, value_name = "N|NAME", requires = "functions")]
    pub region: Option<RegionId>,

    /// With --functions: list inlined functions separately; needs debug information (memwright kernels add NAME
    /// --debug).
    #[arg(long, requires = "functions")]
    pub inlined: bool,

    /// With --functions: also count by source line; implies --inlined.
    #[arg(long, requires = "functions")]
    pub lines: bool,

    /// With --functions: sort by instructions including callees, not by a function's own.
    #[arg(long, requires = "functions")]
    pub children: bool,

    /// With --functions or --faults-by: group rows with less than this percentage of the total in one row.
    #[arg(long, value_name = "PERCENT", requires = PROFILED, default_value = "0.5",
        allow_hyphen_values = true, value_parser = parse_percent)]
    pub percent_limit: f64,

    /// The output files of --functions.
    #[command(flatten)]
    pub profiles: ProfileFormats,

    /// The program and its guest.
    #[command(flatten)]
    pub setup: Setup,

    /// How the run is supervised.
    #[command(flatten)]
    pub care: Care,

    /// Run the CPUs in parallel on the host's clock: runs do not repeat.
    #[arg(long)]
    pub parallel: bool,

    /// Print every row of the account, with versions and hashes, not only what fits into 24 lines.
    #[arg(long)]
    pub full: bool,

    /// Write the account as JSON ("-" for standard output).
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,

    /// Output files for the result.
    #[command(flatten)]
    pub formats: Formats,

    /// Connect the program's standard input to the terminal, if there is one, instead of a pipe.
    #[arg(long)]
    pub tty: bool,

    /// Write every memory event to this file, with the instruction clock.
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

    /// Run the kernel's self-tests (1) instead of the program, or provoke a failure to see its report (panic, fault,
    /// overflow), or loop in user mode for ever (spin).
    #[arg(long, value_name = "WHAT", hide = true)]
    pub selftest: Option<String>,
}

/// `memwright bench`.
#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP)]
pub struct BenchArgs {
    /// Experiments or workloads to run; without a name, all experiments.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    /// Take options, columns and PROGRAM from this file (TOML); later options override it.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// Run this program instead of experiments, counted from outside.
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,

    /// Run PROGRAM once for each value, which replaces {NAME} in its command line (repeatable: all combinations).
    #[arg(
        short = 'L',
        long = "parameter",
        value_name = "NAME=VALUE,...",
        requires = "program"
    )]
    pub parameters: Vec<Parameter>,

    /// Selects rows of the counts of PROGRAM or of a workload.
    #[command(flatten)]
    pub shown: Shown,

    /// Add a column: this Linux kernel (a bzImage, a vmlinux, or a name of `memwright kernels`), in the same QEMU
    /// (repeatable). With PROGRAM or a workload, the keys of compare are accepted.
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

    /// Of experiments with several runs, make only the one with this label (repeatable).
    #[arg(long = "run", value_name = "LABEL")]
    pub labels: Vec<String>,

    /// Keep the result of each run in this folder, and make only the runs without a result there.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dry_run", "list"])]
    pub results: Option<PathBuf>,

    /// Make only the I-th of N parts of the runs, which memwright report DIR merges; auto takes I and N from an array
    /// of Slurm, auto/N takes I from Slurm or Kubernetes.
    #[arg(long, value_name = "I/N|auto[/N]", requires = "results",
        conflicts_with_all = ["json", "html", "csv", "md", "mail"])]
    pub shard: Option<Choice>,

    /// Time limit of each run in host seconds, after which the bench fails.
    #[arg(long, value_name = "SECS", default_value = "900",
        allow_hyphen_values = true, value_parser = parse_seconds)]
    pub timeout: Duration,

    /// Run everything once, and do not compare with a second run.
    #[arg(long)]
    pub no_verify: bool,

    /// Boot Linux kernels for each run, and neither use nor keep a saved state.
    #[arg(long)]
    pub cold: bool,

    /// Print the QEMU command line of every run, and run nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Write everything as JSON ("-" for standard output, instead of the tables).
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,

    /// Output files for the result.
    #[command(flatten)]
    pub formats: Formats,

    /// Print the experiments and their questions, and the workloads and their packages.
    #[arg(long)]
    pub list: bool,
}

/// `memwright compare`.
#[derive(Debug, Args)]
#[command(
    override_usage = "memwright compare --kernel NAME=IMAGE --kernel NAME=IMAGE [OPTIONS] PROGRAM [ARGS]...",
    after_help = CODES_HELP,
    // Hides the options of `run` that conflict with `--kernel` or have no meaning for this command.
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
    /// With --functions: list functions that some kernels lack below the function with which they are counted.
    #[arg(long, requires = "functions")]
    pub ungroup: bool,

    /// Selects rows of the result.
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
    // Rejects these options of `run`. A check that ignored one of them would judge another run than the user requested.
    mut_arg("native", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("full", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("parallel", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("no_count", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("tty", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("trace", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("trace_format", |arg| arg.hide(true)),
    mut_arg("strace", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("functions", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
    mut_arg("faults_by", |arg| arg.hide(true).conflicts_with_all(JUDGES)),
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
    /// A document written by `memwright run --json FILE`, with or without --kernel.
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

    /// Upper limit of a row: a count, or a percentage above the baseline's. With limits, other counts do not make the
    /// check fail (repeatable).
    #[arg(long = "limit", value_name = "ROW=N|+P%")]
    pub limits: Vec<Limit>,

    /// Exit as `git bisect run` expects: 0 good, 1 bad, 125 if the image is absent, does not boot or panics, 128 or
    /// more for anything else, which stops the bisection.
    #[arg(long, requires = "limits", requires = "kernel")]
    pub bisect: bool,

    /// With --bisect: how to judge a commit if its kernel panics.
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value = "skip",
        requires = "bisect"
    )]
    pub panic: OnPanic,

    /// What may differ from the baseline: the subject of the test (repeatable).
    #[arg(long, value_name = "WHAT", value_enum)]
    pub vary: Vec<Vary>,

    /// Selects rows of the result.
    #[command(flatten)]
    pub shown: Shown,

    /// The program and its guest.
    #[command(flatten)]
    pub run: RunArgs,
}

/// The options that determine the verdict of a check.
const JUDGES: [&str; 2] = ["baseline", "limits"];

/// How `check --bisect` judges a commit if its kernel panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnPanic {
    /// Skip the commit.
    Skip,
    /// The commit is bad.
    Bad,
}

/// Which counts make a check fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A count that is larger than the baseline's.
    Increase,
    /// A count that differs from the baseline's.
    Difference,
}

/// `memwright report`.
#[derive(Debug, Args)]
#[command(after_help = CODES_HELP)]
pub struct ReportArgs {
    /// Documents written by --json of run, check, compare or bench, of which several of run are compared; or folders
    /// written by bench --results, which are merged.
    #[arg(required = true, value_name = "[NAME=]FILE|DIR")]
    pub files: Vec<String>,

    /// If folders have the results of several benches or versions, report those whose plan has this hash, or a hash
    /// that begins so.
    #[arg(long, value_name = "HASH")]
    pub only: Option<String>,

    /// Write the documents as JSON ("-" for standard output).
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,

    /// Output files for the result.
    #[command(flatten)]
    pub formats: Formats,

    /// Selects rows of the result.
    #[command(flatten)]
    pub shown: Shown,
}

/// `memwright kernels`.
#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// The action.
    #[command(subcommand)]
    pub action: KernelsAction,
}

/// The actions on kernel images.
#[derive(Debug, Subcommand)]
pub enum KernelsAction {
    /// Add an image: debian:SUITE (the newest kernel of that suite, fetched through apt), debian:SUITE=VERSION (that one),
    /// [NAME=]IMAGE, [NAME=]TREE (a folder in which a kernel was built), or [NAME=]PACKAGE (a .deb file, or a folder into
    /// which it was unpacked).
    Add {
        /// For example debian:trixie, debian:trixie=6.12.117-1, debian:unstable, patched=./bzImage, patched=../linux,
        /// patched=linux-image.deb.
        #[arg(value_name = "debian:SUITE[=VERSION]|[NAME=]IMAGE|[NAME=]TREE|[NAME=]PACKAGE")]
        name: String,
        /// Also fetch its debug information, several hundred megabytes, or keep the vmlinux of the TREE; for an IMAGE of
        /// your own, keep this vmlinux of the same build.
        #[arg(long, value_name = "VMLINUX", num_args = 0..=1, require_equals = true)]
        debug: Option<Option<PathBuf>>,
    },
    /// List the images: name, beginning of the hash, version.
    List,
    /// Print the Kconfig options that a kernel of your own needs, or those that a configuration lacks.
    #[command(after_help = CONFIG_HELP)]
    Config {
        /// Print only the options that this configuration lacks: a .config file, a TREE that has one, or the name of an
        /// image.
        #[arg(value_name = "FILE|TREE|NAME")]
        of: Option<String>,
    },
    /// Remove an image.
    Remove {
        /// The name of the image.
        name: String,
    },
}

/// `memwright completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `memwright manual`.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// The folder; created if it is missing.
    pub folder: PathBuf,
}

/// `memwright prebuild`.
#[derive(Debug, Args)]
pub struct PrebuildArgs {
    /// The folder; created if it is missing. A command in PREFIX/bin finds the programs in PREFIX/lib/memwright.
    pub folder: PathBuf,
}

impl RunArgs {
    /// Returns the guest's clock.
    pub fn clock(&self) -> Clock {
        match self.parallel {
            true => Clock::Host,
            false => Clock::Instructions,
        }
    }

    /// Returns the run on Memwright's kernel that the options describe.
    pub fn own_plan(&self) -> OwnPlan {
        OwnPlan {
            clock: self.clock(),
            terminals: terminals(self.tty),
            trace: self.trace.is_some(),
            faults: self.faults_by,
            strace: self.strace,
            gdb: self.gdb,
            selftest: self.selftest.clone(),
            ..OwnPlan::new(self.setup.clone(), self.care.clone())
        }
    }

    /// Returns the run on a kernel image that the options describe.
    pub fn image_plan(&self) -> ImagePlan {
        let detail = match (self.lines, self.inlined) {
            (true, _) => Detail::Lines,
            (false, true) => Detail::Inlined,
            (false, false) => Detail::Functions,
        };
        ImagePlan {
            setup: self.setup.clone(),
            care: self.care.clone(),
            measure: match (self.no_count, self.faults_by, self.functions) {
                (true, _, _) => Measure::Nothing,
                (false, Some(by), _) => Measure::Faults(by),
                (false, None, false) => Measure::Events,
                (false, None, true) => Measure::Functions {
                    region: self.region.clone(),
                    detail,
                },
            },
            verify: !self.no_verify,
            cold: self.cold,
        }
    }

    /// Returns which functions of a profile are printed, and in which order.
    pub fn order(&self) -> Order {
        Order {
            children: self.children,
            percent_limit: self.percent_limit,
        }
    }
}

/// Returns which of this command's descriptors 0 to 2 are terminals. The same descriptors are terminals in the guest.
/// Standard input counts as a terminal only with `--tty`.
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
        // A terminal whose size is not known reports 0 columns or 0 rows.
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
