//! The experiments: each has a question, a program, and the descriptions of its runs.

use crate::model::size::MemorySize;

/// A question about a kernel's memory management, and the program whose measurements answer it.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The question, in one line.
    pub question: &'static str,
    /// The C source of the program.
    pub source: &'static str,
    /// The runs of the program.
    pub runs: &'static [Run],
}

/// One run of an experiment's program.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// The text that distinguishes the run from the experiment's other runs; empty if the experiment has one run.
    pub label: &'static str,
    /// The program's arguments.
    pub arguments: &'static [&'static str],
    /// The number of the guest's CPUs.
    pub cpus: u8,
    /// The number of NUMA nodes, which divide CPUs and memory evenly.
    pub nodes: u8,
    /// The guest's memory.
    pub memory: MemorySize,
    /// Swap of the guest in the syntax of `--swap`; empty for none.
    pub swap: &'static str,
}

/// A run with the default values.
const RUN: Run = Run {
    label: "",
    arguments: &[],
    cpus: 1,
    nodes: 1,
    memory: MemorySize::of_bench(),
    swap: "",
};

const ONCE: &[Run] = &[RUN];

/// Two nodes, each with a CPU and 128 MiB.
const TWO_NODES: Run = Run {
    cpus: 2,
    nodes: 2,
    memory: MemorySize::from_mebibytes(256),
    ..RUN
};

/// Returns a run that creates many objects of one kind.
const fn things(label: &'static str, arguments: &'static [&'static str]) -> Run {
    Run {
        label,
        arguments,
        memory: MemorySize::from_mebibytes(1024),
        ..RUN
    }
}

/// Every experiment, in the order in which they run.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "basics",
        question: "What do a system call, a fault, a mapping and a fork cost?",
        source: include_str!("../../../../../programs/experiments/basics.c"),
        runs: ONCE,
    },
    Experiment {
        name: "operations",
        question: "What does each operation of memory management cost?",
        source: include_str!("../../../../../programs/experiments/operations.c"),
        runs: &[Run {
            swap: "zram:256M",
            ..RUN
        }],
    },
    Experiment {
        name: "write-after-protect",
        question: "What does a write cost after mprotect removed and restored write permission?",
        source: include_str!("../../../../../programs/experiments/write_after_protect.c"),
        runs: ONCE,
    },
    Experiment {
        name: "protect-loop",
        question: "What do mprotect(R), mprotect(RW) and a write cost, in a loop?",
        source: include_str!("../../../../../programs/experiments/protect_loop.c"),
        runs: &[
            Run {
                label: "1 thread",
                arguments: &["1"],
                ..RUN
            },
            Run {
                label: "2 threads on 2 CPUs, one busy",
                arguments: &["2"],
                cpus: 2,
                ..RUN
            },
        ],
    },
    Experiment {
        name: "protect-bulk",
        question: "What does mprotect cost per page of a large populated mapping?",
        source: include_str!("../../../../../programs/experiments/protect_bulk.c"),
        runs: ONCE,
    },
    Experiment {
        name: "huge-protect",
        question: "What does mprotect cost per 2 MiB page, and is one split?",
        source: include_str!("../../../../../programs/experiments/huge_protect.c"),
        runs: ONCE,
    },
    Experiment {
        name: "many-areas",
        question: "One mprotect over 64 areas: how much work, how many flushes?",
        source: include_str!("../../../../../programs/experiments/many_areas.c"),
        runs: ONCE,
    },
    Experiment {
        name: "growth",
        question: "How does the cost of an operation grow with what there is?",
        source: include_str!("../../../../../programs/experiments/growth.c"),
        runs: &[
            Run {
                label: "areas",
                arguments: &["areas"],
                ..RUN
            },
            Run {
                label: "memory",
                arguments: &["memory"],
                memory: MemorySize::of_large_bench(),
                ..RUN
            },
            Run {
                label: "descriptors",
                arguments: &["descriptors"],
                ..RUN
            },
            Run {
                label: "directory",
                arguments: &["directory"],
                ..RUN
            },
            Run {
                label: "processes",
                arguments: &["processes"],
                ..RUN
            },
            Run {
                label: "depth",
                arguments: &["depth"],
                ..RUN
            },
            Run {
                label: "mappers",
                arguments: &["mappers"],
                nodes: 2,
                swap: "zram:64M",
                ..RUN
            },
            Run {
                label: "waiters",
                arguments: &["waiters"],
                ..RUN
            },
            Run {
                label: "swapped",
                arguments: &["swapped"],
                swap: "zram:256M",
                ..RUN
            },
            Run {
                label: "merged",
                arguments: &["merged"],
                nodes: 2,
                ..RUN
            },
            Run {
                label: "cgroups",
                arguments: &["cgroups"],
                ..RUN
            },
            Run {
                label: "limit",
                arguments: &["limit"],
                swap: "zram:256M",
                ..RUN
            },
            Run {
                label: "mounts",
                arguments: &["mounts"],
                ..RUN
            },
            Run {
                label: "connections",
                arguments: &["connections"],
                ..RUN
            },
            Run {
                label: "levels",
                arguments: &["levels"],
                ..RUN
            },
        ],
    },
    Experiment {
        name: "fork-reuse",
        question: "Does the parent reuse its pages after the child has exited?",
        source: include_str!("../../../../../programs/experiments/fork_reuse.c"),
        runs: ONCE,
    },
    Experiment {
        name: "fork-tables",
        question: "What do a fork, the child's exit and the first writes cost as memory grows?",
        source: include_str!("../../../../../programs/experiments/fork_tables.c"),
        runs: ONCE,
    },
    Experiment {
        name: "wp-unpopulated",
        question: "What does it cost to write-protect 10 GiB of untouched memory, and to use it later?",
        source: include_str!("../../../../../programs/experiments/wp_unpopulated.c"),
        runs: ONCE,
    },
    Experiment {
        name: "write-after-clear",
        question: "What does a write cost after the kernel starts to track writes?",
        source: include_str!("../../../../../programs/experiments/write_after_clear.c"),
        runs: ONCE,
    },
    Experiment {
        name: "async-scan",
        question: "What does it cost to find the pages written since the last scan, and to write a page?",
        source: include_str!("../../../../../programs/experiments/async_scan.c"),
        runs: ONCE,
    },
    Experiment {
        name: "unprotect",
        question: "What does a write cost after userfaultfd write-protected the page and removed the protection?",
        source: include_str!("../../../../../programs/experiments/unprotect.c"),
        runs: ONCE,
    },
    Experiment {
        name: "snapshot-pause",
        question: "How long is a program paused while its memory is write-protected?",
        source: include_str!("../../../../../programs/experiments/snapshot_pause.c"),
        runs: &[Run {
            memory: MemorySize::of_large_bench(),
            ..RUN
        }],
    },
    Experiment {
        name: "live-snapshot",
        question: "What does it cost to snapshot a running program at one instant?",
        source: include_str!("../../../../../programs/live_snapshot.c"),
        runs: ONCE,
    },
    Experiment {
        name: "write-watch",
        question: "What does it cost to query written pages like GetWriteWatch?",
        source: include_str!("../../../../../programs/write_watch.c"),
        runs: ONCE,
    },
    Experiment {
        name: "access-scan",
        question: "What does it cost to find the pages accessed since the last scan, and to access a page?",
        source: include_str!("../../../../../programs/experiments/access_scan.c"),
        runs: &[
            Run {
                label: "1 GiB",
                ..RUN
            },
            Run {
                label: "64 MiB, a thread on another CPU",
                arguments: &["4", "64", "1"],
                cpus: 2,
                ..RUN
            },
        ],
    },
    Experiment {
        name: "working-set",
        question: "What does it cost to find the pages that a program uses, and to page out the rest?",
        source: include_str!("../../../../../programs/working_set.c"),
        runs: &[Run {
            swap: "zram:256M",
            ..RUN
        }],
    },
    Experiment {
        name: "incremental-checkpoint",
        question: "How much of a program does each checkpoint save, and is the restored memory equal?",
        source: include_str!("../../../../../programs/incremental_checkpoint.c"),
        runs: ONCE,
    },
    Experiment {
        name: "swapin-reuse",
        question: "A load swaps a page in: does the following store fault again?",
        source: include_str!("../../../../../programs/experiments/swapin_reuse.c"),
        runs: &[Run {
            swap: "zram:256M",
            ..RUN
        }],
    },
    Experiment {
        name: "swap",
        question: "What does a program pay that uses one and a half times the available memory?",
        source: include_str!("../../../../../programs/experiments/swap_scan.c"),
        runs: &[Run {
            memory: MemorySize::of_small_bench(),
            swap: "zram:256M",
            ..RUN
        }],
    },
    Experiment {
        name: "numa-hint",
        question: "A program writes while NUMA hint entries are installed: which faults does it take?",
        source: include_str!("../../../../../programs/experiments/numa_hint.c"),
        runs: &[
            Run {
                label: "pages on the own node",
                arguments: &["own"],
                ..TWO_NODES
            },
            Run {
                label: "pages on the other node",
                arguments: &["other"],
                ..TWO_NODES
            },
            Run {
                label: "pages on the other node, and the own is full",
                arguments: &["full"],
                ..TWO_NODES
            },
        ],
    },
    Experiment {
        name: "autonuma",
        question: "Does memory follow the threads that use it, and do two runs agree?",
        source: include_str!("../../../../../programs/experiments/autonuma.c"),
        runs: &[
            Run {
                label: "numa01",
                arguments: &["numa01"],
                cpus: 4,
                ..TWO_NODES
            },
            Run {
                label: "numa02",
                arguments: &["numa02"],
                cpus: 4,
                ..TWO_NODES
            },
        ],
    },
    Experiment {
        name: "merge",
        question: "What does it cost to merge 100 MiB of equal pages, and to write to them again?",
        source: include_str!("../../../../../programs/experiments/merge_equal.c"),
        runs: ONCE,
    },
    Experiment {
        name: "metadata",
        question: "How many bytes of kernel memory does each thing take that a program creates?",
        source: include_str!("../../../../../programs/experiments/metadata.c"),
        runs: &[
            things("area", &["area"]),
            things("area of a file", &["file-area"]),
            things("page table", &["table"]),
            things("page of shared memory", &["shared-page"]),
            things("process", &["process"]),
            things("thread", &["thread"]),
            things("descriptor", &["descriptor"]),
            things("open file", &["open-file"]),
            things("pipe", &["pipe"]),
            things("sockets", &["sockets"]),
            things("file in an epoll", &["watched"]),
            things("file of a tmpfs", &["file"]),
        ],
    },
];

/// The headers for the experiments' programs.
pub const HEADERS: &[(&str, &str)] = &[
    (
        "experiment.h",
        include_str!("../../../../../programs/experiments/experiment.h"),
    ),
    (
        "growth.h",
        include_str!("../../../../../programs/experiments/growth.h"),
    ),
    (
        "growth_pages.h",
        include_str!("../../../../../programs/experiments/growth_pages.h"),
    ),
    (
        "growth_relatives.h",
        include_str!("../../../../../programs/experiments/growth_relatives.h"),
    ),
    (
        "growth_network.h",
        include_str!("../../../../../programs/experiments/growth_network.h"),
    ),
    (
        "growth_system.h",
        include_str!("../../../../../programs/experiments/growth_system.h"),
    ),
    (
        "mark.h",
        include_str!("../../../../../include/memwright/mark.h"),
    ),
    (
        "numa.h",
        include_str!("../../../../../programs/experiments/numa.h"),
    ),
    (
        "swap.h",
        include_str!("../../../../../programs/experiments/swap.h"),
    ),
    (
        "access.h",
        include_str!("../../../../../programs/experiments/access.h"),
    ),
    (
        "track.h",
        include_str!("../../../../../programs/experiments/track.h"),
    ),
    (
        "write_after.h",
        include_str!("../../../../../programs/experiments/write_after.h"),
    ),
];

impl Experiment {
    /// Returns the runs with these labels, or all runs if there are no labels.
    pub fn runs_of(&self, labels: &[String]) -> Vec<&'static Run> {
        let wanted = |run: &&Run| labels.is_empty() || labels.iter().any(|one| one == run.label);
        self.runs.iter().filter(wanted).collect()
    }
}

/// Returns the first label that belongs to no run of these experiments.
pub fn unknown_label<'a>(chosen: &[&Experiment], labels: &'a [String]) -> Option<&'a String> {
    let is_known = |label: &String| {
        let mut runs = chosen.iter().flat_map(|one| one.runs);
        runs.any(|run| run.label == label)
    };
    labels.iter().find(|label| !is_known(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_select() {
        let is_chosen = |one: &&Experiment| matches!(one.name, "autonuma" | "basics");
        let chosen: Vec<_> = EXPERIMENTS.iter().filter(is_chosen).collect();
        let wanted = |labels: &[&str]| -> Vec<String> {
            labels.iter().map(|label| (*label).to_owned()).collect()
        };
        let one = wanted(&["numa02"]);
        let runs = |labels: &[String]| -> Vec<usize> {
            let counts = chosen.iter().map(|one| one.runs_of(labels).len());
            counts.collect()
        };
        assert_eq!(runs(&one), [0, 1]);
        assert_eq!(runs(&[]), [1, 2]);
        assert_eq!(unknown_label(&chosen, &one), None);
        let odd = wanted(&["numa02", "numa03"]);
        assert_eq!(unknown_label(&chosen, &odd), Some(&odd[1]));
    }
}
