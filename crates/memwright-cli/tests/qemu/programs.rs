//! Runs the C programs of `programs/`, linked in four ways. One boot runs all programs that are linked in the same way.
//! Programs that need other options, more CPUs or little memory have boots of their own.

use crate::shared::{Boot, boot, interleaved};
use libtest_mimic::{Failed, Trial};

const VARIANTS: &[&str] = &["glibc-static", "musl-static", "static-pie", "dynamic"];

/// The programs, with their arguments.
const PROGRAMS: &[&str] = &[
    "hello",
    "fork_protect",
    "cow",
    "huge",
    "huge_shared",
    "split",
    "hugetlb",
    "hugetlbfs",
    "map",
    "advise",
    "seal",
    "memfd_seals",
    "running",
    "keys",
    "trace",
    "trace_calls",
    "trace_events",
    "trace_seize",
    "trace_ends",
    "trace_notices",
    "watchpoints",
    "forced",
    "probes",
    "merge",
    "ksm",
    "ksm_share",
    "lend",
    "rings",
    "limits",
    "privilege",
    "faults",
    "signals",
    "forged_frames",
    "wait",
    "privileges",
    "personality",
    "threads",
    "exec_thread",
    "shared_handlers",
    "signals_threads",
    "group_exit",
    "futexes",
    "pthreads 40",
    "races all 50",
    "barriers 500",
    "affinity",
    "area_names",
    "forkbomb",
    "pipes",
    "splice",
    "polled_files",
    "semaphores",
    "eventfd",
    "epoll",
    "timerfd",
    "posix_timers",
    "host_name",
    "file_signals",
    "signalfd",
    "pidfd",
    "remote",
    "sockets",
    "loopback",
    "tcp_urgent",
    "loopback_datagrams",
    "loopback_list",
    "ancillary",
    "netlink",
    "unix_list",
    "proc_cpu",
    "files",
    "group_folders",
    "xattrs",
    "record_locks",
    "refused_calls",
    "set_ids",
    "system_limits",
    "proc",
    "memory_files",
    "memory_totals alone",
    "memory_calls",
    "soft_dirty no-faults",
    "userfault",
    "userfault_bad",
    "userfault_calls",
    "uffd_rwp",
    "fpu",
];

/// The programs that take longest. Their behaviour does not depend on how they are linked, so each runs in only one
/// boot, but in every tier.
const LONG: &[&str] = &[
    "cpu_limit",
    "cpu_timers",
    "nice",
    "threadbomb",
    "epoll_paths",
    "mount",
    "rseq",
    "live_snapshot 8",
    "write_watch 8",
    "incremental_checkpoint 8",
    "userfault_matrix dirty-bit",
    "many_processes",
    "badptr --every",
];

/// Programs that nest objects as deeply as possible.
const NESTING: &[&str] = &["nested_sockets", "deep_folders"];

/// Programs that make the kernel allocate more memory than a small machine has.
const FILLING: &[&str] = &["socket_cycles", "kernel_memory", "kernel_lists"];

/// Programs that do not free their objects, which the kernel frees at the end of the run.
const LEAVING: &[&str] = &["deep_folders leave 20000"];

/// Programs that track stores, with the arguments for a kernel on which a tracked store takes a fault.
const TRACKED_BY_FAULTS: &[&str] = &[
    "soft_dirty faults",
    "userfault",
    "userfault_bad alone",
    "uffd_rwp",
    "write_watch 8",
    "incremental_checkpoint 8",
    "userfault_matrix faults",
];

/// Programs that fork, and programs that misuse calls on memory. They also run under a policy with which a fork shares
/// every page table that it can, even a single one.
const SHARING_TABLES: &[&str] = &[
    "fork_protect",
    "cow",
    "huge",
    "split",
    "map",
    "advise",
    "trace",
    "trace_calls",
    "watchpoints",
    "forced",
    "probes",
    "merge",
    "ksm",
    "lend",
    "rings",
    "faults",
    "signals",
    "forged_frames",
    "limits",
    "threads",
    "races all 50",
    "forkbomb",
    "splice",
    "remote",
    "proc",
    "memory_files",
    "memory_calls",
    "soft_dirty no-faults",
    "userfault",
    "userfault_bad",
    "uffd_rwp",
    "userfault_matrix dirty-bit",
    "badptr --every",
    "many_processes",
];

/// Programs that fork while other CPUs use the same memory. They also run under the policy with which forks share page
/// tables.
const RACING_FORKS: &[&str] = &["threads", "races all 50", "pthreads 40", "forkbomb"];

/// Programs that swap. They also run under the policy with which forks share page tables.
const SHARING_SWAPPED_TABLES: &[&str] = &["swap", "swap_calls", "swap_forked 16 12 50", "swap_off"];

/// Programs that use as many areas, arguments, descriptors or nested directories as possible.
const LARGE: &[&str] = &["large_proc", "large_exec", "large_poll", "deep_paths"];

/// Programs that need swap, and some programs whose results must be the same with swap as without it.
const SWAPPING: &[&str] = &[
    "swap",
    "swap_shared",
    "swap_calls",
    "swap_figures",
    "swap_off",
    "advise",
    "cow",
    "userfault",
    "uffd_rwp",
    "working_set 8",
    "userfault_matrix dirty-bit",
];

/// Returns one test for each program and each way of linking it.
pub fn trials() -> Vec<Trial> {
    let boots = VARIANTS
        .iter()
        .map(|variant| Boot::of("programs", variant, PROGRAMS));
    let long = Boot::of("long", "musl-static", LONG);
    let by_faults = Boot::of("programs", "musl-static", TRACKED_BY_FAULTS).policy("track=fault");
    let swapping = Boot::of("swap", "musl-static", SWAPPING).option("--swap", "zram:64M");
    let sharing = [
        Boot::of("programs", "musl-static", SHARING_TABLES).policy("fork=1"),
        Boot::of("programs", "musl-static", RACING_FORKS)
            .policy("fork=1")
            .cpus(4),
        Boot::of("swap", "musl-static", SHARING_SWAPPED_TABLES)
            .option("--swap", "zram:64M")
            .policy("fork=1"),
    ];
    let grouped = |cpus| {
        Boot::of("groups", "musl-static", &["group_limits", "group_nesting"])
            .option("--swap", "zram:64M")
            .cpus(cpus)
    };
    let boots = boots
        .chain([long, by_faults, swapping])
        .chain(sharing)
        .chain(under_pressure());
    let boots = boots.chain([grouped(1), grouped(4)]);
    // This program changes system-wide settings, so it is the only one of its boot.
    let sleeping = Boot::of("khugepaged", "musl-static", &["khugepaged_sleep"]);
    let boots = boots.chain([sleeping]);
    let counting = Boot::of("counts", "musl-static", &["fault_counts"])
        .option("--thp", "madvise")
        .option("--hugetlb", "8M");
    // This program merges pages of the complete system, so it is the only one of its boot.
    let events = Boot::of("events", "musl-static", &["event_counts"]).option("--swap", "zram:64M");
    let boots = boots.chain([counting, events]);
    let large = Boot::of("large", "musl-static", LARGE);
    let boots = boots.chain([large]);
    let filling = |cpus| {
        Boot::of("filling", "musl-static", FILLING)
            .option("--memory", "64M")
            .cpus(cpus)
    };
    let nesting = Boot::of("nesting", "musl-static", NESTING);
    let boots = boots.chain([nesting, filling(1), filling(4)]);
    let boots = boots.chain([Boot::of("left", "musl-static", LEAVING)]);
    let mut trials = interleaved(boots.collect());
    trials.push(Trial::test("programs::same_trace_twice", same_trace));
    trials.push(Trial::test("programs::fork_storm", fork_storm));
    trials.push(Trial::test(
        "programs::swap_for_a_minute",
        swap_for_a_minute,
    ));
    trials
}

/// Returns the boots with programs that use more memory than the machine has.
fn under_pressure() -> Vec<Boot> {
    let pressed = |cpus| {
        let mut programs = vec![
            "swap_pressure",
            "swap_forked",
            "swap_tracked",
            "swap_off 80",
            "swap_shared 4 96 20000",
            "swap_calls 128",
        ];
        if cpus > 1 {
            // The program starts a process that uses one CPU most of the time, so it runs only on several CPUs.
            programs.push("swap_during 24");
        }
        Boot::of("pressure", "musl-static", &programs)
            .option("--swap", "zram:256M")
            .option("--memory", "64M")
            .cpus(cpus)
    };
    // This boot creates memory pressure like the boots above, but with less memory and less swap, so that it is short
    // enough for the first tier.
    let pressed_briefly = Boot::of("pressure", "musl-static", &["swap_during 3"])
        .option("--swap", "zram:64M")
        .option("--memory", "19M")
        .cpus(2);
    let failing = Boot::of("errors", "musl-static", &["swap_errors 2 40 8000"])
        .option("--swap", "zram:256M")
        .option("--memory", "64M")
        .policy("swap-errors=1000");
    let disk_programs = &[
        "swap",
        "swap_off",
        "swap_pressure 2 40 4000",
        "swap_forked 16 12 50",
        "swap_shared 2 80 4000",
        "swap_tracked 2 40",
        "swap_calls 128",
        "swap_figures",
    ];
    let on_disk = Boot::of("disk", "musl-static", disk_programs)
        .option("--swap", "disk:256M")
        .option("--memory", "64M");
    let failing_disk = Boot::of("disk-errors", "musl-static", &["swap_errors 2 40 8000"])
        .option("--swap", "disk:256M")
        .option("--memory", "64M")
        .policy("swap-errors=1000");
    vec![
        pressed(1),
        pressed(4),
        pressed_briefly,
        failing,
        on_disk,
        failing_disk,
    ]
}

/// Checks that programs that share, protect, copy and move memory cause the same events in the same order in both runs.
fn same_trace() -> Result<(), Failed> {
    let programs = ["fork_protect", "faults", "advise", "files", "fpu"];
    boot("musl-static", &programs).run()?.expect_code(0)
}

/// Checks that hundreds of threads that run out of memory at the same time terminate. In an earlier version, each
/// thread scanned all memory, one thread after another.
fn fork_storm() -> Result<(), Failed> {
    let guest = boot("musl-static", &["fork_storm"]);
    let guest = guest.option("--swap", "zram:64M");
    guest.option("--memory", "48M").run()?.expect_code(0)
}

/// Runs four processes on four CPUs that use twice the memory of the machine, for a minute of guest time. Every byte
/// must be right, and every scan must report the pages that were written.
fn swap_for_a_minute() -> Result<(), Failed> {
    let guest = boot("musl-static", &["swap_tracked 4 32 60"]);
    let guest = guest
        .option("--swap", "zram:256M")
        .option("--memory", "64M");
    guest.cpus(4).parallel().run()?.expect_code(0)
}
