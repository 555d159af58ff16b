//! Every system call: number, name, arguments, handler.
//!
//! The table drives dispatch, `--strace`, the lists of missing calls and of stubs in the account,
//! and the bad-pointer test.

use super::{
    Handler, file, futex, identity, keys, membarrier, memory, process, protect, ptrace,
    remap_pages, scheduling, semaphores, shared_memory, signal, swap, system, time,
};
use linux_raw_sys::general as raw;

/// What one argument is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A signed number.
    Int,
    /// An unsigned number.
    Unsigned,
    /// A number best read in hexadecimal, or an address that is not accessed.
    Hex,
    /// File-permission bits, octal.
    Mode,
    /// A file descriptor.
    Fd,
    /// A directory descriptor or `AT_FDCWD`.
    DirFd,
    /// A NUL-terminated path that is read.
    Path,
    /// A NUL-terminated string that is read.
    Text,
    /// A NULL-terminated array of strings that is read.
    Strings,
    /// This many bytes that are read.
    In(u16),
    /// This many bytes that are written.
    Out(u16),
    /// This many bytes that are read and written.
    InOut(u16),
    /// Bytes that are read; the argument with this index is their number.
    InBuffer(u8),
    /// Bytes that are written; the argument with this index is their number.
    OutBuffer(u8),
    /// `struct iovec`s; the argument with this index is their number.
    Vectors(u8),
    /// A signal number.
    Signal,
    /// Bits with names.
    Flags(&'static [(u64, &'static str)]),
}

/// How honest a call is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// It does what Linux does.
    Real,
    /// It returns success without effect; the account lists it.
    Stub,
    /// It is known by name only and returns `ENOSYS`; the account lists it.
    Missing,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub struct SystemCall {
    /// The number in RAX.
    pub number: u16,
    /// The name in the manual.
    pub name: &'static str,
    /// The arguments, as many as there are.
    pub arguments: &'static [Kind],
    /// How honest it is.
    pub status: Status,
    /// The code.
    pub handler: Handler,
}

const fn real(
    number: u16,
    name: &'static str,
    arguments: &'static [Kind],
    handler: Handler,
) -> SystemCall {
    SystemCall {
        number,
        name,
        arguments,
        status: Status::Real,
        handler,
    }
}

const fn stub(
    number: u16,
    name: &'static str,
    arguments: &'static [Kind],
    handler: Handler,
) -> SystemCall {
    SystemCall {
        number,
        name,
        arguments,
        status: Status::Stub,
        handler,
    }
}

const fn missing(number: u16, name: &'static str) -> SystemCall {
    let handler = super::missing;
    SystemCall {
        number,
        name,
        arguments: &[],
        status: Status::Missing,
        handler,
    }
}

const PROT: Kind = Kind::Flags(&[
    (0, "PROT_NONE"),
    (raw::PROT_READ as u64, "PROT_READ"),
    (raw::PROT_WRITE as u64, "PROT_WRITE"),
    (raw::PROT_EXEC as u64, "PROT_EXEC"),
]);
const MAP: Kind = Kind::Flags(&[
    (raw::MAP_SHARED_VALIDATE as u64, "MAP_SHARED_VALIDATE"),
    (raw::MAP_SHARED as u64, "MAP_SHARED"),
    (raw::MAP_PRIVATE as u64, "MAP_PRIVATE"),
    (raw::MAP_FIXED as u64, "MAP_FIXED"),
    (raw::MAP_ANONYMOUS as u64, "MAP_ANONYMOUS"),
    (raw::MAP_GROWSDOWN as u64, "MAP_GROWSDOWN"),
    (raw::MAP_LOCKED as u64, "MAP_LOCKED"),
    (raw::MAP_NORESERVE as u64, "MAP_NORESERVE"),
    (raw::MAP_POPULATE as u64, "MAP_POPULATE"),
    (raw::MAP_STACK as u64, "MAP_STACK"),
    (raw::MAP_FIXED_NOREPLACE as u64, "MAP_FIXED_NOREPLACE"),
    (raw::MAP_DENYWRITE as u64, "MAP_DENYWRITE"),
]);
const MREMAP: Kind = Kind::Flags(&[
    (raw::MREMAP_MAYMOVE as u64, "MREMAP_MAYMOVE"),
    (raw::MREMAP_FIXED as u64, "MREMAP_FIXED"),
    (raw::MREMAP_DONTUNMAP as u64, "MREMAP_DONTUNMAP"),
]);
const HOW: Kind = Kind::Flags(&[
    (raw::SIG_BLOCK as u64, "SIG_BLOCK"),
    (raw::SIG_SETMASK as u64, "SIG_SETMASK"),
    (raw::SIG_UNBLOCK as u64, "SIG_UNBLOCK"),
]);
const CLONE: Kind = Kind::Flags(&[
    (raw::CLONE_VM as u64, "CLONE_VM"),
    (raw::CLONE_FS as u64, "CLONE_FS"),
    (raw::CLONE_FILES as u64, "CLONE_FILES"),
    (raw::CLONE_SIGHAND as u64, "CLONE_SIGHAND"),
    (raw::CLONE_VFORK as u64, "CLONE_VFORK"),
    (raw::CLONE_THREAD as u64, "CLONE_THREAD"),
    (raw::CLONE_SETTLS as u64, "CLONE_SETTLS"),
    (raw::CLONE_PARENT_SETTID as u64, "CLONE_PARENT_SETTID"),
    (raw::CLONE_CHILD_CLEARTID as u64, "CLONE_CHILD_CLEARTID"),
    (raw::CLONE_CHILD_SETTID as u64, "CLONE_CHILD_SETTID"),
]);
/// Every number of x86-64 Linux 7.2, with the calls that are no file's. Calls on files are rows of
/// [`file::GROUPS`] and take the place of the rows that only name them.
const NUMBERS: &[SystemCall] = &[
    missing(0, "read"),
    missing(1, "write"),
    missing(2, "open"),
    missing(3, "close"),
    missing(4, "stat"),
    missing(5, "fstat"),
    missing(6, "lstat"),
    missing(7, "poll"),
    missing(8, "lseek"),
    real(
        9,
        "mmap",
        &[Kind::Hex, Kind::Unsigned, PROT, MAP, Kind::Fd, Kind::Hex],
        memory::mmap,
    ),
    real(
        10,
        "mprotect",
        &[Kind::Hex, Kind::Unsigned, PROT],
        protect::mprotect,
    ),
    real(11, "munmap", &[Kind::Hex, Kind::Unsigned], memory::munmap),
    real(12, "brk", &[Kind::Hex], memory::brk),
    real(
        13,
        "rt_sigaction",
        &[Kind::Signal, Kind::In(32), Kind::Out(32), Kind::Unsigned],
        signal::rt_sigaction,
    ),
    real(
        14,
        "rt_sigprocmask",
        &[HOW, Kind::In(8), Kind::Out(8), Kind::Unsigned],
        signal::rt_sigprocmask,
    ),
    real(15, "rt_sigreturn", &[], signal::rt_sigreturn),
    missing(16, "ioctl"),
    missing(17, "pread64"),
    missing(18, "pwrite64"),
    missing(19, "readv"),
    missing(20, "writev"),
    missing(21, "access"),
    missing(22, "pipe"),
    missing(23, "select"),
    real(24, "sched_yield", &[], scheduling::sched_yield),
    real(
        25,
        "mremap",
        &[Kind::Hex, Kind::Unsigned, Kind::Unsigned, MREMAP, Kind::Hex],
        memory::mremap,
    ),
    real(
        26,
        "msync",
        &[Kind::Hex, Kind::Unsigned, Kind::Hex],
        memory::msync,
    ),
    real(
        27,
        "mincore",
        &[Kind::Hex, Kind::Unsigned, Kind::Out(1)],
        memory::mincore,
    ),
    real(
        28,
        "madvise",
        &[Kind::Hex, Kind::Unsigned, Kind::Int],
        memory::madvise,
    ),
    real(
        29,
        "shmget",
        &[Kind::Hex, Kind::Unsigned, Kind::Hex],
        shared_memory::shmget,
    ),
    real(
        30,
        "shmat",
        &[Kind::Int, Kind::Hex, Kind::Hex],
        shared_memory::shmat,
    ),
    real(
        31,
        "shmctl",
        &[Kind::Int, Kind::Int, Kind::Hex],
        shared_memory::shmctl,
    ),
    missing(32, "dup"),
    missing(33, "dup2"),
    real(34, "pause", &[], signal::pause),
    real(
        35,
        "nanosleep",
        &[Kind::In(16), Kind::Out(16)],
        time::nanosleep,
    ),
    real(
        36,
        "getitimer",
        &[Kind::Int, Kind::Out(32)],
        time::getitimer,
    ),
    real(37, "alarm", &[Kind::Unsigned], time::alarm),
    real(
        38,
        "setitimer",
        &[Kind::Int, Kind::In(32), Kind::Out(32)],
        time::setitimer,
    ),
    real(39, "getpid", &[], process::getpid),
    missing(40, "sendfile"),
    missing(41, "socket"),
    missing(42, "connect"),
    missing(43, "accept"),
    missing(44, "sendto"),
    missing(45, "recvfrom"),
    missing(46, "sendmsg"),
    missing(47, "recvmsg"),
    missing(48, "shutdown"),
    missing(49, "bind"),
    missing(50, "listen"),
    missing(51, "getsockname"),
    missing(52, "getpeername"),
    missing(53, "socketpair"),
    missing(54, "setsockopt"),
    missing(55, "getsockopt"),
    real(
        56,
        "clone",
        &[CLONE, Kind::Hex, Kind::Out(4), Kind::Out(4), Kind::Hex],
        process::clone,
    ),
    real(57, "fork", &[], process::fork),
    real(58, "vfork", &[], process::vfork),
    real(
        59,
        "execve",
        &[Kind::Path, Kind::Strings, Kind::Strings],
        process::execve,
    ),
    real(60, "exit", &[Kind::Int], process::exit),
    real(
        61,
        "wait4",
        &[Kind::Int, Kind::Out(4), Kind::Hex, Kind::Out(144)],
        process::wait4,
    ),
    real(62, "kill", &[Kind::Int, Kind::Signal], signal::kill),
    real(63, "uname", &[Kind::Out(390)], system::uname),
    real(
        64,
        "semget",
        &[Kind::Hex, Kind::Int, Kind::Hex],
        semaphores::semget,
    ),
    real(
        65,
        "semop",
        &[Kind::Int, Kind::In(6), Kind::Unsigned],
        semaphores::semop,
    ),
    real(
        66,
        "semctl",
        &[Kind::Int, Kind::Int, Kind::Int, Kind::Hex],
        semaphores::semctl,
    ),
    real(67, "shmdt", &[Kind::Hex], shared_memory::shmdt),
    missing(68, "msgget"),
    missing(69, "msgsnd"),
    missing(70, "msgrcv"),
    missing(71, "msgctl"),
    missing(72, "fcntl"),
    missing(73, "flock"),
    missing(74, "fsync"),
    missing(75, "fdatasync"),
    missing(76, "truncate"),
    missing(77, "ftruncate"),
    missing(78, "getdents"),
    missing(79, "getcwd"),
    missing(80, "chdir"),
    missing(81, "fchdir"),
    missing(82, "rename"),
    missing(83, "mkdir"),
    missing(84, "rmdir"),
    missing(85, "creat"),
    missing(86, "link"),
    missing(87, "unlink"),
    missing(88, "symlink"),
    missing(89, "readlink"),
    missing(90, "chmod"),
    missing(91, "fchmod"),
    missing(92, "chown"),
    missing(93, "fchown"),
    missing(94, "lchown"),
    missing(95, "umask"),
    real(
        96,
        "gettimeofday",
        &[Kind::Out(16), Kind::Out(8)],
        time::gettimeofday,
    ),
    real(
        97,
        "getrlimit",
        &[Kind::Int, Kind::Out(16)],
        system::getrlimit,
    ),
    real(
        98,
        "getrusage",
        &[Kind::Int, Kind::Out(144)],
        system::getrusage,
    ),
    real(99, "sysinfo", &[Kind::Out(112)], system::sysinfo),
    real(100, "times", &[Kind::Out(32)], system::times),
    real(
        101,
        "ptrace",
        &[Kind::Int, Kind::Int, Kind::Hex, Kind::Hex],
        ptrace::ptrace,
    ),
    real(102, "getuid", &[], identity::getuid),
    missing(103, "syslog"),
    real(104, "getgid", &[], identity::getgid),
    real(105, "setuid", &[Kind::Int], identity::setuid),
    real(106, "setgid", &[Kind::Int], identity::setgid),
    real(107, "geteuid", &[], identity::geteuid),
    real(108, "getegid", &[], identity::getegid),
    real(109, "setpgid", &[Kind::Int, Kind::Int], process::setpgid),
    real(110, "getppid", &[], process::getppid),
    real(111, "getpgrp", &[], process::getpgrp),
    real(112, "setsid", &[], process::setsid),
    real(113, "setreuid", &[Kind::Int, Kind::Int], identity::setreuid),
    real(114, "setregid", &[Kind::Int, Kind::Int], identity::setregid),
    real(
        115,
        "getgroups",
        &[Kind::Int, Kind::Out(4)],
        identity::getgroups,
    ),
    real(
        116,
        "setgroups",
        &[Kind::Int, Kind::In(4)],
        identity::setgroups,
    ),
    real(
        117,
        "setresuid",
        &[Kind::Int, Kind::Int, Kind::Int],
        identity::setresuid,
    ),
    real(
        118,
        "getresuid",
        &[Kind::Out(4), Kind::Out(4), Kind::Out(4)],
        identity::getresuid,
    ),
    real(
        119,
        "setresgid",
        &[Kind::Int, Kind::Int, Kind::Int],
        identity::setresgid,
    ),
    real(
        120,
        "getresgid",
        &[Kind::Out(4), Kind::Out(4), Kind::Out(4)],
        identity::getresgid,
    ),
    real(121, "getpgid", &[Kind::Int], process::getpgid),
    real(122, "setfsuid", &[Kind::Int], identity::setfsuid),
    real(123, "setfsgid", &[Kind::Int], identity::setfsgid),
    real(124, "getsid", &[Kind::Int], process::getsid),
    real(
        125,
        "capget",
        &[Kind::InOut(8), Kind::Out(24)],
        identity::capget,
    ),
    real(
        126,
        "capset",
        &[Kind::InOut(8), Kind::In(24)],
        identity::capset,
    ),
    real(
        127,
        "rt_sigpending",
        &[Kind::Out(8), Kind::Unsigned],
        signal::rt_sigpending,
    ),
    real(
        128,
        "rt_sigtimedwait",
        &[Kind::In(8), Kind::Out(128), Kind::In(16), Kind::Unsigned],
        signal::rt_sigtimedwait,
    ),
    real(
        129,
        "rt_sigqueueinfo",
        &[Kind::Int, Kind::Signal, Kind::In(128)],
        signal::rt_sigqueueinfo,
    ),
    real(
        130,
        "rt_sigsuspend",
        &[Kind::In(8), Kind::Unsigned],
        signal::rt_sigsuspend,
    ),
    real(
        131,
        "sigaltstack",
        &[Kind::In(24), Kind::Out(24)],
        signal::sigaltstack,
    ),
    missing(132, "utime"),
    missing(133, "mknod"),
    missing(134, "uselib"),
    real(135, "personality", &[Kind::Hex], system::personality),
    missing(136, "ustat"),
    missing(137, "statfs"),
    missing(138, "fstatfs"),
    missing(139, "sysfs"),
    real(
        140,
        "getpriority",
        &[Kind::Int, Kind::Int],
        scheduling::getpriority,
    ),
    stub(
        141,
        "setpriority",
        &[Kind::Int, Kind::Int, Kind::Int],
        scheduling::setpriority,
    ),
    real(
        142,
        "sched_setparam",
        &[Kind::Int, Kind::In(4)],
        scheduling::sched_setparam,
    ),
    real(
        143,
        "sched_getparam",
        &[Kind::Int, Kind::Out(4)],
        scheduling::sched_getparam,
    ),
    real(
        144,
        "sched_setscheduler",
        &[Kind::Int, Kind::Int, Kind::In(4)],
        scheduling::sched_setscheduler,
    ),
    real(
        145,
        "sched_getscheduler",
        &[Kind::Int],
        scheduling::sched_getscheduler,
    ),
    real(
        146,
        "sched_get_priority_max",
        &[Kind::Int],
        scheduling::sched_get_priority_max,
    ),
    real(
        147,
        "sched_get_priority_min",
        &[Kind::Int],
        scheduling::sched_get_priority_min,
    ),
    real(
        148,
        "sched_rr_get_interval",
        &[Kind::Int, Kind::Out(16)],
        scheduling::sched_rr_get_interval,
    ),
    real(149, "mlock", &[Kind::Hex, Kind::Unsigned], memory::mlock),
    real(
        150,
        "munlock",
        &[Kind::Hex, Kind::Unsigned],
        memory::munlock,
    ),
    real(151, "mlockall", &[Kind::Hex], memory::mlockall),
    real(152, "munlockall", &[], memory::munlockall),
    missing(153, "vhangup"),
    missing(154, "modify_ldt"),
    missing(155, "pivot_root"),
    missing(156, "_sysctl"),
    real(
        157,
        "prctl",
        &[Kind::Int, Kind::Hex, Kind::Hex, Kind::Hex, Kind::Hex],
        process::prctl,
    ),
    real(
        158,
        "arch_prctl",
        &[Kind::Hex, Kind::Hex],
        process::arch_prctl,
    ),
    missing(159, "adjtimex"),
    real(
        160,
        "setrlimit",
        &[Kind::Int, Kind::In(16)],
        system::setrlimit,
    ),
    missing(161, "chroot"),
    missing(162, "sync"),
    missing(163, "acct"),
    missing(164, "settimeofday"),
    missing(165, "mount"),
    missing(166, "umount2"),
    real(
        167,
        "swapon",
        &[Kind::Path, Kind::Flags(swap::FLAGS)],
        swap::swapon,
    ),
    real(168, "swapoff", &[Kind::Path], swap::swapoff),
    missing(169, "reboot"),
    missing(170, "sethostname"),
    missing(171, "setdomainname"),
    missing(172, "iopl"),
    missing(173, "ioperm"),
    missing(174, "create_module"),
    missing(175, "init_module"),
    missing(176, "delete_module"),
    missing(177, "get_kernel_syms"),
    missing(178, "query_module"),
    missing(179, "quotactl"),
    missing(180, "nfsservctl"),
    missing(181, "getpmsg"),
    missing(182, "putpmsg"),
    missing(183, "afs_syscall"),
    missing(184, "tuxcall"),
    missing(185, "security"),
    real(186, "gettid", &[], process::gettid),
    missing(187, "readahead"),
    missing(188, "setxattr"),
    missing(189, "lsetxattr"),
    missing(190, "fsetxattr"),
    missing(191, "getxattr"),
    missing(192, "lgetxattr"),
    missing(193, "fgetxattr"),
    missing(194, "listxattr"),
    missing(195, "llistxattr"),
    missing(196, "flistxattr"),
    missing(197, "removexattr"),
    missing(198, "lremovexattr"),
    missing(199, "fremovexattr"),
    real(200, "tkill", &[Kind::Int, Kind::Signal], signal::tkill),
    real(201, "time", &[Kind::Out(8)], time::time),
    real(
        202,
        "futex",
        &[
            Kind::Hex,
            Kind::Hex,
            Kind::Unsigned,
            Kind::Hex,
            Kind::Hex,
            Kind::Hex,
        ],
        futex::futex,
    ),
    real(
        203,
        "sched_setaffinity",
        &[Kind::Int, Kind::Unsigned, Kind::In(8)],
        scheduling::sched_setaffinity,
    ),
    real(
        204,
        "sched_getaffinity",
        &[Kind::Int, Kind::Unsigned, Kind::Out(8)],
        scheduling::sched_getaffinity,
    ),
    missing(205, "set_thread_area"),
    missing(206, "io_setup"),
    missing(207, "io_destroy"),
    missing(208, "io_getevents"),
    missing(209, "io_submit"),
    missing(210, "io_cancel"),
    missing(211, "get_thread_area"),
    missing(212, "lookup_dcookie"),
    missing(213, "epoll_create"),
    missing(214, "epoll_ctl_old"),
    missing(215, "epoll_wait_old"),
    real(
        216,
        "remap_file_pages",
        &[
            Kind::Hex,
            Kind::Unsigned,
            Kind::Hex,
            Kind::Unsigned,
            Kind::Hex,
        ],
        remap_pages::remap_file_pages,
    ),
    missing(217, "getdents64"),
    real(
        218,
        "set_tid_address",
        &[Kind::Hex],
        process::set_tid_address,
    ),
    real(219, "restart_syscall", &[], time::restart_syscall),
    real(
        220,
        "semtimedop",
        &[Kind::Int, Kind::In(6), Kind::Unsigned, Kind::In(16)],
        semaphores::semtimedop,
    ),
    missing(221, "fadvise64"),
    missing(222, "timer_create"),
    missing(223, "timer_settime"),
    missing(224, "timer_gettime"),
    missing(225, "timer_getoverrun"),
    missing(226, "timer_delete"),
    missing(227, "clock_settime"),
    real(
        228,
        "clock_gettime",
        &[Kind::Int, Kind::Out(16)],
        time::clock_gettime,
    ),
    real(
        229,
        "clock_getres",
        &[Kind::Int, Kind::Out(16)],
        time::clock_getres,
    ),
    real(
        230,
        "clock_nanosleep",
        &[Kind::Int, Kind::Hex, Kind::In(16), Kind::Out(16)],
        time::clock_nanosleep,
    ),
    real(231, "exit_group", &[Kind::Int], process::exit_group),
    missing(232, "epoll_wait"),
    missing(233, "epoll_ctl"),
    real(
        234,
        "tgkill",
        &[Kind::Int, Kind::Int, Kind::Signal],
        signal::tgkill,
    ),
    missing(235, "utimes"),
    missing(236, "vserver"),
    missing(237, "mbind"),
    missing(238, "set_mempolicy"),
    missing(239, "get_mempolicy"),
    missing(240, "mq_open"),
    missing(241, "mq_unlink"),
    missing(242, "mq_timedsend"),
    missing(243, "mq_timedreceive"),
    missing(244, "mq_notify"),
    missing(245, "mq_getsetattr"),
    missing(246, "kexec_load"),
    real(
        247,
        "waitid",
        &[
            Kind::Int,
            Kind::Int,
            Kind::Out(128),
            Kind::Hex,
            Kind::Out(144),
        ],
        process::waitid,
    ),
    missing(248, "add_key"),
    missing(249, "request_key"),
    missing(250, "keyctl"),
    missing(251, "ioprio_set"),
    missing(252, "ioprio_get"),
    missing(253, "inotify_init"),
    missing(254, "inotify_add_watch"),
    missing(255, "inotify_rm_watch"),
    missing(256, "migrate_pages"),
    missing(257, "openat"),
    missing(258, "mkdirat"),
    missing(259, "mknodat"),
    missing(260, "fchownat"),
    missing(261, "futimesat"),
    missing(262, "newfstatat"),
    missing(263, "unlinkat"),
    missing(264, "renameat"),
    missing(265, "linkat"),
    missing(266, "symlinkat"),
    missing(267, "readlinkat"),
    missing(268, "fchmodat"),
    missing(269, "faccessat"),
    missing(270, "pselect6"),
    missing(271, "ppoll"),
    missing(272, "unshare"),
    real(
        273,
        "set_robust_list",
        &[Kind::Hex, Kind::Unsigned],
        futex::set_robust_list,
    ),
    real(
        274,
        "get_robust_list",
        &[Kind::Int, Kind::Out(8), Kind::Out(8)],
        futex::get_robust_list,
    ),
    missing(275, "splice"),
    missing(276, "tee"),
    missing(277, "sync_file_range"),
    missing(278, "vmsplice"),
    missing(279, "move_pages"),
    missing(280, "utimensat"),
    missing(281, "epoll_pwait"),
    missing(282, "signalfd"),
    missing(283, "timerfd_create"),
    missing(284, "eventfd"),
    missing(285, "fallocate"),
    missing(286, "timerfd_settime"),
    missing(287, "timerfd_gettime"),
    missing(288, "accept4"),
    missing(289, "signalfd4"),
    missing(290, "eventfd2"),
    missing(291, "epoll_create1"),
    missing(292, "dup3"),
    missing(293, "pipe2"),
    missing(294, "inotify_init1"),
    missing(295, "preadv"),
    missing(296, "pwritev"),
    missing(297, "rt_tgsigqueueinfo"),
    missing(298, "perf_event_open"),
    missing(299, "recvmmsg"),
    missing(300, "fanotify_init"),
    missing(301, "fanotify_mark"),
    real(
        302,
        "prlimit64",
        &[Kind::Int, Kind::Int, Kind::In(16), Kind::Out(16)],
        system::prlimit64,
    ),
    missing(303, "name_to_handle_at"),
    missing(304, "open_by_handle_at"),
    missing(305, "clock_adjtime"),
    missing(306, "syncfs"),
    missing(307, "sendmmsg"),
    missing(308, "setns"),
    real(
        309,
        "getcpu",
        &[Kind::Out(4), Kind::Out(4)],
        scheduling::getcpu,
    ),
    missing(310, "process_vm_readv"),
    missing(311, "process_vm_writev"),
    missing(312, "kcmp"),
    missing(313, "finit_module"),
    missing(314, "sched_setattr"),
    missing(315, "sched_getattr"),
    missing(316, "renameat2"),
    missing(317, "seccomp"),
    real(
        318,
        "getrandom",
        &[Kind::OutBuffer(1), Kind::Unsigned, Kind::Hex],
        system::getrandom,
    ),
    missing(319, "memfd_create"),
    missing(320, "kexec_file_load"),
    missing(321, "bpf"),
    missing(322, "execveat"),
    missing(323, "userfaultfd"),
    real(
        324,
        "membarrier",
        &[Kind::Int, Kind::Hex, Kind::Int],
        membarrier::membarrier,
    ),
    real(
        325,
        "mlock2",
        &[Kind::Hex, Kind::Unsigned, Kind::Hex],
        memory::mlock2,
    ),
    missing(326, "copy_file_range"),
    missing(327, "preadv2"),
    missing(328, "pwritev2"),
    real(
        329,
        "pkey_mprotect",
        &[Kind::Hex, Kind::Unsigned, PROT, Kind::Int],
        keys::pkey_mprotect,
    ),
    real(330, "pkey_alloc", &[Kind::Hex, Kind::Hex], keys::pkey_alloc),
    real(331, "pkey_free", &[Kind::Int], keys::pkey_free),
    missing(332, "statx"),
    missing(333, "io_pgetevents"),
    missing(334, "rseq"),
    missing(335, "uretprobe"),
    missing(424, "pidfd_send_signal"),
    missing(425, "io_uring_setup"),
    missing(426, "io_uring_enter"),
    missing(427, "io_uring_register"),
    missing(428, "open_tree"),
    missing(429, "move_mount"),
    missing(430, "fsopen"),
    missing(431, "fsconfig"),
    missing(432, "fsmount"),
    missing(433, "fspick"),
    missing(434, "pidfd_open"),
    real(
        435,
        "clone3",
        &[Kind::In(88), Kind::Unsigned],
        process::clone3,
    ),
    missing(436, "close_range"),
    missing(437, "openat2"),
    missing(438, "pidfd_getfd"),
    missing(439, "faccessat2"),
    missing(440, "process_madvise"),
    missing(441, "epoll_pwait2"),
    missing(442, "mount_setattr"),
    missing(443, "quotactl_fd"),
    missing(444, "landlock_create_ruleset"),
    missing(445, "landlock_add_rule"),
    missing(446, "landlock_restrict_self"),
    missing(447, "memfd_secret"),
    missing(448, "process_mrelease"),
    missing(449, "futex_waitv"),
    missing(450, "set_mempolicy_home_node"),
    missing(451, "cachestat"),
    missing(452, "fchmodat2"),
    real(
        453,
        "map_shadow_stack",
        &[Kind::Hex, Kind::Unsigned, Kind::Hex],
        remap_pages::map_shadow_stack,
    ),
    missing(454, "futex_wake"),
    missing(455, "futex_wait"),
    missing(456, "futex_requeue"),
    missing(457, "statmount"),
    missing(458, "listmount"),
    missing(459, "lsm_get_self_attr"),
    missing(460, "lsm_set_self_attr"),
    missing(461, "lsm_list_modules"),
    real(
        462,
        "mseal",
        &[Kind::Hex, Kind::Unsigned, Kind::Hex],
        memory::mseal,
    ),
    missing(463, "setxattrat"),
    missing(464, "getxattrat"),
    missing(465, "listxattrat"),
    missing(466, "removexattrat"),
    missing(467, "open_tree_attr"),
    missing(468, "file_getattr"),
    missing(469, "file_setattr"),
];

/// Every call, by number.
pub static CALLS: [SystemCall; NUMBERS.len()] = {
    let mut calls = [NUMBERS[0]; NUMBERS.len()];
    let mut row = 0;
    while row < NUMBERS.len() {
        calls[row] = NUMBERS[row];
        row += 1;
    }
    let mut group = 0;
    while group < file::GROUPS.len() {
        let mut member = 0;
        while member < file::GROUPS[group].len() {
            let call = file::GROUPS[group][member];
            calls[INDEX[call.number as usize] as usize - 1] = call;
            member += 1;
        }
        group += 1;
    }
    calls
};

/// Numbers that may be looked up in one step.
const INDEXED: usize = 512;

/// Where each number stands in [`CALLS`], plus one; 0 for a number without a call.
const INDEX: [u16; INDEXED] = {
    let mut index = [0; INDEXED];
    let mut position = 0;
    while position < NUMBERS.len() {
        index[NUMBERS[position].number as usize] = position as u16 + 1;
        position += 1;
    }
    index
};

/// The row of each number, so that a call costs one load.
static BY_NUMBER: [Option<&SystemCall>; INDEXED] = {
    let mut rows = [None; INDEXED];
    let mut row = 0;
    while row < NUMBERS.len() {
        rows[NUMBERS[row].number as usize] = Some(&CALLS[row]);
        row += 1;
    }
    rows
};

/// What serves each number below [`INDEXED`]: an ordinary call costs one load.
pub(crate) type Handlers = [Handler; INDEXED];

/// The calls that do what Linux does go to their handlers at once, the others by way of the account.
static DIRECT: Handlers = {
    let mut handlers = OBSERVED;
    let mut row = 0;
    while row < CALLS.len() {
        if let Status::Real = CALLS[row].status {
            handlers[CALLS[row].number as usize] = CALLS[row].handler;
        }
        row += 1;
    }
    handlers
};

/// Every call goes by way of the account and the trace.
static TRACED: Handlers = OBSERVED;
const OBSERVED: Handlers = [super::observed; INDEXED];

/// What serves a thread's system calls, with or without a trace of them.
pub(crate) fn handlers(traced: bool) -> &'static Handlers {
    if traced { &TRACED } else { &DIRECT }
}

/// The call with this number.
#[inline]
pub fn find(number: u64) -> Option<&'static SystemCall> {
    *BY_NUMBER.get(usize::try_from(number).ok()?)?
}

/// Writes the table as lines `number name status arguments`, as `docs/` and the bad-pointer test
/// use it.
///
/// # Errors
/// Those of `out`.
pub fn write_listing(out: &mut dyn core::fmt::Write) -> core::fmt::Result {
    for call in &CALLS {
        let status = match call.status {
            Status::Real => "real",
            Status::Stub => "stub",
            Status::Missing => "missing",
        };
        write!(out, "{} {} {status}", call.number, call.name)?;
        for kind in call.arguments {
            match kind {
                Kind::Int | Kind::Unsigned | Kind::Hex => write!(out, " number")?,
                Kind::Mode => write!(out, " mode")?,
                Kind::Fd => write!(out, " fd")?,
                Kind::DirFd => write!(out, " dirfd")?,
                Kind::Path => write!(out, " path")?,
                Kind::Text => write!(out, " text")?,
                Kind::Strings => write!(out, " strings")?,
                Kind::In(size) => write!(out, " in:{size}")?,
                Kind::Out(size) => write!(out, " out:{size}")?,
                Kind::InOut(size) => write!(out, " inout:{size}")?,
                Kind::InBuffer(length) => write!(out, " inbuffer:{length}")?,
                Kind::OutBuffer(length) => write!(out, " outbuffer:{length}")?,
                Kind::Vectors(count) => write!(out, " vectors:{count}")?,
                Kind::Signal => write!(out, " signal")?,
                Kind::Flags(_) => write!(out, " flags")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{CALLS, INDEXED, Status, find, write_listing};
    use alloc::string::String;

    #[test]
    fn calls_are_found_by_number() {
        for call in &CALLS {
            assert!(usize::from(call.number) < INDEXED);
            let found = find(call.number.into()).expect("indexed");
            assert_eq!(found.name, call.name);
            assert!(call.arguments.len() <= 6, "{}", call.name);
        }
        assert!(find(400).is_none());
        assert!(find(u64::MAX).is_none());
        assert_eq!(find(39).map(|call| call.name), Some("getpid"));
    }

    #[test]
    fn numbers_rise() {
        assert!(CALLS.windows(2).all(|pair| pair[0].number < pair[1].number));
    }

    #[test]
    fn the_listing_has_a_line_per_call() {
        let mut listing = String::new();
        write_listing(&mut listing).expect("a string");
        assert_eq!(listing.lines().count(), CALLS.len());
        assert!(listing.contains("9 mmap real number number flags flags fd number\n"));
        assert!(CALLS.iter().any(|call| call.status == Status::Stub));
    }
}
