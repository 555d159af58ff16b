//! The fixed entries of `/proc` and `/sys`, which do not depend on processes, CPUs, NUMA nodes or cgroups.

use crate::procfs::{
    node::view::shows,
    node::{FixedDirectory, FrameWord, ProcNode, ROOT_NUMBERS},
    system::{balance, cpu, file_limits, general, huge, hugetlb, lock_stat, vm},
};
use memwright_linux_vfs::fs::generated::SETTING_NUMBERS;

use ProcNode::{
    Cgroups, Fixed, Frames, Nodes, PathLink, Processors, SelfLink, SystemControl, SystemEvents,
    SystemText, ThreadSelfLink,
};

/// The fixed entries of `/proc`.
pub static ROOT: FixedDirectory = FixedDirectory {
    first: ROOT_NUMBERS,
    entries: &[
        ("self", 0o777, SelfLink),
        ("thread-self", 0o777, ThreadSelfLink),
        ("mounts", 0o777, PathLink("self/mounts")),
        ("net", 0o777, PathLink("self/net")),
        ("sys", 0o555, Fixed(&CONTROLS)),
        (
            "cpuinfo",
            0o444,
            SystemText(shows!(cpu::cpuinfo, cpus, all_cpus)),
        ),
        (
            "filesystems",
            0o444,
            SystemText(shows!(general::filesystems)),
        ),
        (
            "lock_stat",
            0o644,
            SystemControl(&lock_stat::LOCK_STATISTICS),
        ),
        ("kpagecount", 0o400, Frames(FrameWord::Count)),
        ("kpageflags", 0o400, Frames(FrameWord::Flags)),
        (
            "interrupts",
            0o444,
            SystemText(shows!(cpu::interrupts, cpus, all_cpus)),
        ),
        (
            "loadavg",
            0o444,
            SystemText(shows!(cpu::load, clock, scheduler, tasks)),
        ),
        (
            "meminfo",
            0o444,
            SystemText(shows!(general::meminfo, memory, tasks)),
        ),
        (
            "stat",
            0o444,
            SystemText(|view, text| {
                let parts = view.parts;
                let (made, epoch) = (parts.processes_made(), parts.vfs().epoch);
                cpu::stat(parts.cpus(), parts.scheduler(), made, epoch, text)
            }),
        ),
        (
            "swaps",
            0o444,
            SystemEvents(shows!(general::swaps, memory, swaps), |parts| {
                &parts.swaps().changes
            }),
        ),
        (
            "uptime",
            0o444,
            SystemText(shows!(cpu::uptime, clock, cpus, all_cpus)),
        ),
        ("version", 0o444, SystemText(shows!(general::version))),
        (
            "vmstat",
            0o444,
            SystemText(shows!(vm::statistics, memory, tasks, oom)),
        ),
    ],
};

static CONTROLS: FixedDirectory = FixedDirectory {
    first: SETTING_NUMBERS.start,
    entries: &[
        ("fs", 0o555, Fixed(&CONTROLS_FS)),
        ("kernel", 0o555, Fixed(&CONTROLS_KERNEL)),
        ("vm", 0o555, Fixed(&CONTROLS_VM)),
    ],
};

static CONTROLS_FS: FixedDirectory = FixedDirectory {
    first: 0x300,
    entries: &[
        ("epoll", 0o555, Fixed(&CONTROLS_EPOLL)),
        ("file-max", 0o644, SystemControl(&file_limits::OPEN_FILES)),
        (
            "file-nr",
            0o444,
            SystemText(shows!(file_limits::open_files, vfs)),
        ),
        (
            "nr_open",
            0o444,
            SystemText(shows!(general::most_descriptors)),
        ),
        (
            "pipe-max-size",
            0o644,
            SystemControl(&file_limits::LARGEST_PIPE),
        ),
        (
            "pipe-user-pages-hard",
            0o644,
            SystemControl(&file_limits::PIPE_PAGES_HARD),
        ),
        (
            "pipe-user-pages-soft",
            0o644,
            SystemControl(&file_limits::PIPE_PAGES_SOFT),
        ),
    ],
};

static CONTROLS_EPOLL: FixedDirectory = FixedDirectory {
    first: 0x380,
    entries: &[(
        "max_user_watches",
        0o644,
        SystemControl(&file_limits::WATCHES),
    )],
};

static CONTROLS_KERNEL: FixedDirectory = FixedDirectory {
    first: 0x400,
    entries: &[
        (
            "cap_last_cap",
            0o444,
            SystemText(shows!(general::last_capability)),
        ),
        ("domainname", 0o644, SystemControl(&general::DOMAIN_NAME)),
        ("hostname", 0o644, SystemControl(&general::HOST_NAME)),
        (
            "ngroups_max",
            0o444,
            SystemText(shows!(general::most_groups)),
        ),
        ("numa_balancing", 0o644, SystemControl(&balance::BALANCING)),
        ("osrelease", 0o444, SystemText(shows!(general::release))),
        ("ostype", 0o444, SystemText(shows!(general::system_name))),
        ("pid_max", 0o444, SystemText(shows!(general::largest_id))),
        ("random", 0o555, Fixed(&CONTROLS_RANDOM)),
        ("shmall", 0o644, SystemControl(&vm::MOST_SEGMENT_PAGES)),
        ("shmmax", 0o644, SystemControl(&vm::MOST_SEGMENT_BYTES)),
        ("shmmni", 0o444, SystemText(shows!(vm::most_segments))),
        (
            "threads-max",
            0o444,
            SystemText(shows!(general::most_threads, contexts)),
        ),
        ("version", 0o444, SystemText(shows!(general::build))),
    ],
};

static CONTROLS_RANDOM: FixedDirectory = FixedDirectory {
    first: 0x500,
    entries: &[
        ("boot_id", 0o444, SystemText(shows!(general::boot_id, seed))),
        ("uuid", 0o444, SystemText(shows!(general::uuid, vfs))),
    ],
};

static CONTROLS_VM: FixedDirectory = FixedDirectory {
    first: 0x600,
    entries: &[
        ("drop_caches", 0o200, SystemControl(&vm::DROP_CACHES)),
        ("max_map_count", 0o644, SystemControl(&vm::MOST_AREAS)),
        (
            "mmap_min_addr",
            0o444,
            SystemText(shows!(vm::lowest_address)),
        ),
        (
            "nr_hugepages",
            0o644,
            SystemControl(&hugetlb::PAGES_SETTING),
        ),
        (
            "nr_overcommit_hugepages",
            0o644,
            SystemControl(&hugetlb::MOST_SURPLUS_SETTING),
        ),
        (
            "overcommit_kbytes",
            0o644,
            SystemControl(&vm::OVERCOMMIT_KIBIBYTES),
        ),
        ("overcommit_memory", 0o644, SystemControl(&vm::OVERCOMMIT)),
        (
            "overcommit_ratio",
            0o644,
            SystemControl(&vm::OVERCOMMIT_RATIO),
        ),
        (
            "unprivileged_userfaultfd",
            0o644,
            SystemControl(&vm::UNPRIVILEGED_USERFAULTFD),
        ),
    ],
};

/// The root of `/sys`: devices, file systems and kernel settings.
pub static SYS: FixedDirectory = FixedDirectory {
    first: 0x700,
    entries: &[
        ("bus", 0o555, Fixed(&BUS)),
        ("devices", 0o555, Fixed(&DEVICES)),
        ("fs", 0o555, Fixed(&FILE_SYSTEMS)),
        ("kernel", 0o555, Fixed(&KERNEL)),
    ],
};

/// `/sys/fs`: mount points of file systems.
pub static FILE_SYSTEMS: FixedDirectory = FixedDirectory {
    first: 0x1f40,
    entries: &[("cgroup", 0o755, Cgroups)],
};

static BUS: FixedDirectory = FixedDirectory {
    first: 0x1f00,
    entries: &[("event_source", 0o555, Fixed(&EVENT_SOURCE))],
};

static EVENT_SOURCE: FixedDirectory = FixedDirectory {
    first: 0x1f10,
    entries: &[("devices", 0o555, Fixed(&EVENT_SOURCES))],
};

static EVENT_SOURCES: FixedDirectory = FixedDirectory {
    first: 0x1f20,
    entries: &[("uprobe", 0o555, Fixed(&UPROBE))],
};

/// `/sys/bus/event_source/devices/uprobe`: the only event source that `perf_event_open` supports.
static UPROBE: FixedDirectory = FixedDirectory {
    first: 0x1f30,
    entries: &[("type", 0o444, SystemText(shows!(general::probe_type)))],
};

static DEVICES: FixedDirectory = FixedDirectory {
    first: 0x800,
    entries: &[("system", 0o555, Fixed(&SYSTEM))],
};

static KERNEL: FixedDirectory = FixedDirectory {
    first: 0x1000,
    entries: &[
        ("debug", 0o555, Fixed(&balance::DEBUG)),
        ("mm", 0o555, Fixed(&huge::MEMORY)),
    ],
};

static SYSTEM: FixedDirectory = FixedDirectory {
    first: 0x900,
    entries: &[("cpu", 0o555, Processors), ("node", 0o555, Nodes)],
};
