//! The description of a run: the program, its guest, and what is counted.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::model::faults::By;
use crate::model::image::Image;
use crate::model::machine::{Clock, parse_cpus};
use crate::model::nodes::{Nodes, parse_nodes};
use crate::model::policy::parse_policy;
use crate::model::region_names::RegionId;
use crate::model::size::{
    HugePages, MemorySize, SwapSize, parse_huge_pages, parse_memory_size, parse_swap,
};
use crate::model::thp::{ThpSize, parse_thp_size};

/// A run of a program, which produces one document.
#[derive(Debug, Clone)]
pub enum Plan {
    /// On Memwright's kernel, which reports its own counts.
    Own(OwnPlan),
    /// On a kernel image, with counts measured by QEMU.
    Image(ImagePlan, Image),
}

/// A run on Memwright's kernel, which reports its own counts.
#[derive(Debug, Clone)]
pub struct OwnPlan {
    /// The program and its guest.
    pub setup: Setup,
    /// How the run is supervised.
    pub care: Care,
    /// The clock by which the guest's time advances.
    pub clock: Clock,
    /// Which of the guest's descriptors 0 to 2 are terminals.
    pub terminals: Terminals,
    /// Whether the kernel traces every memory event.
    pub trace: bool,
    /// The kind of cause by which page faults are grouped; `None` if they are not collected. Collecting them makes the
    /// kernel trace every memory event.
    pub faults: Option<By>,
    /// Whether the kernel logs the program's system calls.
    pub strace: bool,
    /// Whether the guest waits for gdb before it boots.
    pub gdb: bool,
    /// The self-test that the kernel runs in place of the program.
    pub selftest: Option<String>,
}

impl OwnPlan {
    /// Returns a run without terminals, traces, gdb and self-tests, whose only result is the account.
    pub fn new(setup: Setup, care: Care) -> Self {
        Self {
            setup,
            care,
            clock: Clock::Instructions,
            terminals: Terminals::default(),
            trace: false,
            faults: None,
            strace: false,
            gdb: false,
            selftest: None,
        }
    }
}

/// A run on a kernel image, Linux's or Memwright's, with counts measured by QEMU.
#[derive(Debug, Clone)]
pub struct ImagePlan {
    /// The program and its guest.
    pub setup: Setup,
    /// How the run is supervised.
    pub care: Care,
    /// What is counted.
    pub measure: Measure,
    /// Whether a second run is compared with the first.
    pub verify: bool,
    /// Whether the kernel boots even if there is a snapshot from which the guest could start. If set, no snapshot is
    /// saved in the cache either.
    pub cold: bool,
}

/// What QEMU counts during a run on a kernel image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measure {
    /// Nothing.
    Nothing,
    /// Events: page faults, interrupts, flushes and instructions.
    Events,
    /// Events, and page faults by what caused them.
    Faults(By),
    /// Events, and instructions by function.
    Functions {
        /// The region to profile; `None` for the complete run.
        region: Option<RegionId>,
        /// What the profile lists separately.
        detail: Detail,
    },
}

impl Measure {
    /// Returns whether the profile needs source lines. Returns `None` if the profile needs no debug information.
    pub fn with_lines(&self) -> Option<bool> {
        match self {
            Self::Functions { detail, .. } => match detail {
                Detail::Functions => None,
                Detail::Inlined => Some(false),
                Detail::Lines => Some(true),
            },
            Self::Nothing | Self::Events | Self::Faults(_) => None,
        }
    }
}

/// What a profile lists separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Only the functions that the compiler emitted.
    Functions,
    /// Inlined functions as well.
    Inlined,
    /// Inlined functions, and the lines of the source.
    Lines,
}

/// Which of the guest's descriptors 0 to 2 are terminals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terminals {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// The number of columns and rows of the first terminal whose size is known; `None` if no size is known.
    pub size: Option<(u16, u16)>,
}

impl Terminals {
    /// Returns the names of the descriptors, and whether each is a terminal.
    pub fn descriptors(&self) -> [(&'static str, bool); 3] {
        [
            ("stdin", self.stdin),
            ("stdout", self.stdout),
            ("stderr", self.stderr),
        ]
    }
}

/// The format of `--trace`. A help text of a value would turn the complete `--help` into its long form, so the option
/// explains the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// One JSON object per line.
    #[value(help = None::<&'static str>)]
    Jsonl,
    /// Chrome trace events in one JSON object, for Perfetto and <chrome://tracing>.
    #[value(help = None::<&'static str>)]
    Chrome,
}

/// The program and its guest, the same on every kernel.
#[derive(Debug, Clone, Args)]
pub struct Setup {
    /// With --kernel: add to the kernel's command line (repeatable).
    #[arg(
        long,
        value_name = "WORDS",
        requires = "kernel",
        allow_hyphen_values = true
    )]
    pub append: Vec<String>,

    /// Guest memory: a number with K, M or G.
    #[arg(long, value_name = "SIZE", default_value_t = MemorySize::usual(),
        allow_hyphen_values = true, value_parser = parse_memory_size)]
    pub memory: MemorySize,

    /// CPUs of the guest, 1 to 64. Several CPUs run in turns by the instruction clock.
    #[arg(long, value_name = "N", default_value_t = 1,
        allow_hyphen_values = true, value_parser = parse_cpus)]
    pub cpus: u8,

    /// Which anonymous memory gets 2 MiB pages: all, areas with MADV_HUGEPAGE, or none.
    #[arg(long, value_name = "WHICH", default_value = "madvise",
        value_parser = ["always", "madvise", "never"])]
    pub thp: String,

    /// Which anonymous memory gets pages of one size from 16K to 2M: WHICH is always, madvise, never, or inherit, which
    /// means the value of --thp (repeatable).
    #[arg(long = "thp-size", value_name = "SIZE:WHICH", value_parser = parse_thp_size)]
    pub thp_sizes: Vec<ThpSize>,

    /// Add swap to the guest: zram:SIZE is compressed memory for SIZE of pages, disk:SIZE is a disk, at most one
    /// (repeatable).
    #[arg(long, value_name = "KIND:SIZE", value_parser = parse_swap)]
    pub swap: Vec<SwapSize>,

    /// Memory reserved for hugetlb pages: a number with K, M or G, rounded up to 2 MiB.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = parse_huge_pages)]
    pub hugetlb: Option<HugePages>,

    /// NUMA nodes of the guest: a number of nodes that share CPUs and memory evenly, or the memory and CPUs of each,
    /// separated by commas
    #[arg(long, value_name = "N|SIZE:CPUS", default_value = "1",
        allow_hyphen_values = true, value_parser = parse_nodes)]
    pub numa: Nodes,

    /// Put a file or folder into the guest's file system (repeatable).
    #[arg(long = "file", value_name = "HOST[:GUEST]")]
    pub files: Vec<OsString>,

    /// Show a folder or a tar archive as the guest's root, read-only: what the program writes stays in the guest. The
    /// default is / for a program found through PATH, and none for others.
    #[arg(long, value_name = "DIR|TAR|none")]
    pub root: Option<OsString>,

    /// Whether the guest's root is independent of this command's working folder and of the host's `/tmp`: PROGRAM then
    /// starts in the root folder, and `/tmp` is empty.
    #[arg(skip)]
    pub fresh: bool,

    /// Add to the guest's environment (repeatable).
    #[arg(long = "env", value_name = "K=V", value_parser = parse_assignment)]
    pub environment: Vec<String>,

    /// Choose policies, for example aslr=7 (repeatable).
    #[arg(long = "policy", value_name = "K=V[,K=V]", value_delimiter = ',', value_parser = parse_policy)]
    pub policies: Vec<String>,

    /// The program, a path on this machine, and its arguments. A kernel that is not Linux has none.
    #[arg(
        required_unless_present = "kernel",
        trailing_var_arg = true,
        value_name = "PROGRAM"
    )]
    pub command: Vec<OsString>,
}

impl Setup {
    /// Returns the setup with this program and default options.
    pub fn of(command: Vec<OsString>) -> Self {
        Self {
            append: Vec::new(),
            memory: MemorySize::usual(),
            cpus: 1,
            thp: "madvise".to_owned(),
            thp_sizes: Vec::new(),
            swap: Vec::new(),
            hugetlb: None,
            numa: Nodes::even(1),
            files: Vec::new(),
            root: None,
            fresh: false,
            environment: Vec::new(),
            policies: Vec::new(),
            command,
        }
    }

    /// Returns the guest's memory.
    pub fn memory(&self) -> MemorySize {
        self.numa.memory().unwrap_or(self.memory)
    }

    /// Returns the number of the guest's CPUs.
    pub fn cpus(&self) -> u8 {
        self.numa.cpus().unwrap_or(self.cpus)
    }

    /// Returns the guest's settings other than memory, CPUs and policies, as pairs of an option's name and its value.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![("thp", self.thp.clone())];
        let sizes = self.thp_sizes.iter();
        settings.extend(sizes.map(|size| ("thp-size", size.to_string())));
        settings.extend(self.swap.iter().map(|swap| ("swap", swap.to_string())));
        let pool = |pages: HugePages| ("hugetlb", format!("{}M", 2 * pages.count()));
        settings.extend(self.hugetlb.map(pool));
        settings.push(("numa", self.numa.to_string()));
        settings
    }
}

/// How a run is supervised. None of these options changes a count.
#[derive(Debug, Clone, Args)]
pub struct Care {
    /// Time limit in host seconds; on expiry, print every CPU's backtrace and exit with 124.
    #[arg(long, value_name = "SECS", allow_hyphen_values = true, value_parser = parse_seconds)]
    pub timeout: Option<Duration>,

    /// Keep the kernel, the initrd and the log in this folder.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,

    /// Print the kernel's log and the QEMU command line to standard error.
    #[arg(long)]
    pub verbose: bool,
}

/// Parses `K=V`. The name must not be empty.
fn parse_assignment(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(text.to_owned()),
        Some(_) | None => Err("expected K=V".to_owned()),
    }
}

/// Parses a positive number of seconds, including fractions.
///
/// # Errors
/// The expected format, if `text` is not such a number.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        // A value below one nanosecond would round to zero.
        Ok(seconds) if (1e-9..=1e9).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) | Err(_) => Err("expected a positive number of seconds".to_owned()),
    }
}

#[cfg(test)]
pub mod tests {
    use clap::Parser;

    use super::*;

    /// A command line with the options of a guest, and with `--kernel`, which `--append` requires.
    #[derive(Debug, Parser)]
    struct Options {
        #[arg(long)]
        kernel: Option<String>,
        #[command(flatten)]
        setup: Setup,
    }

    /// Returns the setup that a command line with these options gives, with `x` as the program.
    pub fn setup(options: &str) -> Setup {
        let words = format!("memwright --kernel k {options} x");
        let words = words.split_ascii_whitespace();
        Options::try_parse_from(words).unwrap().setup
    }
}
