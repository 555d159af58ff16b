//! The layers of the modules of each crate, from the lowest up. A module may refer only to modules in lower layers.

/// A crate whose modules are in layers. A module is a top-level folder of the source, a top-level file, or a top-level
/// folder and file with the same name.
pub struct Crate {
    /// The source folder, relative to the root of the workspace.
    pub source: &'static str,
    /// The modules, from the lowest layer up. Each may refer only to those before it.
    pub modules: &'static [&'static str],
    /// The maximum number of references to a later module. It may only be lowered; the goal is 0.
    pub upward: usize,
    /// The maximum number of folders in cycles. It may only be lowered; the goal is 0.
    pub circles: usize,
    /// The maximum number of files in cycles of ten files or more. It may only be lowered; the goal is 0.
    pub large_circles: usize,
}

/// The crates that are checked. A crate with exceptions lists its modules in the order that causes the fewest
/// exceptions.
#[rustfmt::skip]
pub const CRATES: &[Crate] = &[
    Crate {
        source: "crates/memwright-table/src",
        modules: &[
            "handle", "addr", "sync", "entry", "arch", "machine", "frame", "root", "gather", "table", "tags", "linked", "rising", "grow", "tests", "lib",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright/src",
        modules: &[
            "types", "vma", "store", "swap", "mm", "range", "hugetlb", "ksm", "numa", "reclaim", "shmem", "fault", "huge", "uffd", "track", "ops", "audit", "lib",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-linux-base/src",
        modules: &[
            "draws", "sync", "sweep", "references", "short", "paged", "short_list", "batch", "flags", "ordered", "lib",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-linux-abi/src",
        modules: &[
            "errno", "channel", "abi", "signal", "arch", "host", "lib", "protection_keys",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-linux-sched/src",
        modules: &[
            "wait", "scheduler", "time", "lib",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-linux-vfs/src",
        modules: &[
            "identity", "user", "direct_reclaim", "cpio", "manifest", "random", "changes", "fs", "lib",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-linux-tasks/src",
        modules: &[
            "uname", "call_counts", "reclaim_cursor", "process", "file_signal", "probes", "signalfd", "perf_event", "pidfd", "lib",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-linux-memory/src",
        modules: &[
            "hand", "swap", "huge_scan", "merge_scan", "numa", "oom", "futex", "reclaim", "cgroup", "ipc", "semaphores", "userfault", "memory", "faults", "lib",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-linux-procfs/src",
        modules: &[
            "procfs", "lib",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-linux/src",
        modules: &[
            "lib", "current", "thread_registers", "restartable", "ptrace", "probe_step", "exec", "kernel", "parts", "faulted_in", "context", "io_uring", "lifecycle", "deliver", "syscall", "trace", "audit", "run", "account", "events", "boot",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-kernel/src",
        modules: &[
            "logic", "arch", "trace", "boot", "memory", "percpu", "heap", "tlb", "trap", "usercopy", "control", "apic", "clock", "ipi", "context", "pci", "window", "report", "exception", "input", "disk", "machine", "smp", "host", "selftest", "start", "main",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-testkit/src",
        modules: &[
            "chance", "terms", "script", "script_text", "saved", "generate", "leak", "machine", "process", "preflight", "noted_file", "host_swap", "model", "lockstep", "judge", "run", "lib",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-sim/src",
        modules: &[
            "tlb", "locked", "schedule", "cost", "mistake", "memory_type", "format", "machine", "walk", "mmu", "audit", "adversary", "programs", "lib",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-linux-sim/src",
        modules: &["calls", "contexts", "program", "archive", "host", "user", "lib"],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "examples/adapters/src",
        modules: &["flags", "leaf", "kernel_table", "managed", "mapper", "set", "lib"],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "xtask/src",
        modules: &[
            "remap", "shell", "block", "words", "number", "apt", "tools", "arrows", "walk", "command", "clock", "miri", "tier", "unsafe_code", "room", "parallel", "programs", "architectures", "mutants", "install", "size", "dist", "cases", "house", "prose", "guest", "release", "suite", "fuzz", "experiments", "workloads", "demo", "conformance", "docs", "example", "checks", "run", "main",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
    Crate {
        source: "crates/memwright-cli/src",
        modules: &[
            "model", "host", "sheet", "compare", "render", "guestfs", "qemu", "count", "memwright", "linux", "alone", "states", "lab", "cmd", "main",
        ],
        upward: 0,
        circles: 0,
        large_circles: 0,
    },
];

/// Returns the layer of a file of the crate, or `None` if the file belongs to another crate.
///
/// # Errors
/// If the module of the file is in no layer.
pub fn layer(one: &Crate, file: &str) -> Option<Result<usize, String>> {
    let inside = file.strip_prefix(one.source)?.strip_prefix('/')?;
    let first = inside.split_once('/').map_or(inside, |(folder, _)| folder);
    let module = first.strip_suffix(".rs").unwrap_or(first);
    let place = one.modules.iter().position(|known| *known == module);
    Some(place.ok_or_else(|| format!("{}/{module} is in no layer", one.source)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_in_the_layer_of_their_module() {
        let one = Crate {
            source: "a/src",
            modules: &["low", "high", "main"],
            upward: 0,
            circles: 0,
            large_circles: 0,
        };
        assert_eq!(layer(&one, "a/src/low/x.rs"), Some(Ok(0)));
        assert_eq!(layer(&one, "a/src/low.rs"), Some(Ok(0)));
        assert_eq!(layer(&one, "a/src/high/y/x.rs"), Some(Ok(1)));
        assert_eq!(layer(&one, "a/src/main.rs"), Some(Ok(2)));
        assert_eq!(layer(&one, "a/tests/x.rs"), None);
        assert_eq!(layer(&one, "b/src/low/x.rs"), None);
        assert!(layer(&one, "a/src/other/x.rs").unwrap().is_err());
    }
}
