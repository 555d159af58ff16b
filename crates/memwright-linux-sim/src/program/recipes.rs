//! Recipes: short sequences of system calls on memory with plausible arguments. Random bytes would form such a sequence
//! about once in a million times.
//!
//! For each argument, one byte of the input chooses among some valid values and a few invalid ones.

use linux_raw_sys::{general as raw, ioctl, prctl};
use memwright_linux::syscall::table;

use super::{ARENA, Argument, Bytes, DATA, DATA_BYTES, NAME_ROOM, NAMES, Operation, uapi};

/// The set of values for an argument. A byte of the input chooses one of them.
#[derive(Clone, Copy)]
enum Choice {
    /// This number.
    Exactly(u64),
    /// One of these numbers.
    OneOf(&'static [u64]),
    /// Any combination of these bits.
    Bits(&'static [u64]),
    /// The address of a page of the arena, or of the start of one of its huge pages.
    Place,
    /// The offset in `/proc/PID/pagemap` of the entry for a `Place`: the page number times eight.
    PlaceInPagemap,
    /// The length of a range.
    Length,
    /// A file descriptor, mostly one of the first that the program opened.
    Descriptor,
    /// The result of an earlier call. 0 is the last call, 1 the one before it, and so on.
    Result(u8),
    /// The address of one of the [`NAMES`] with this prefix. At least one of them must have it.
    Name(&'static str),
    /// An address in the program's data, outside its names.
    Buffer,
    /// The address of the structure that the recipe writes with `Put`.
    Structure,
    /// Eight bytes of text, one of `WORDS`.
    Word,
}

/// One step of a recipe.
enum Part {
    /// Stores eight bytes at this offset of the structure.
    Put(u16, Choice),
    /// Makes the system call with this name. Arguments without a choice are 0.
    Call(&'static str, &'static [Choice]),
}

use Choice::{
    Bits, Buffer, Descriptor, Exactly, Length, Name, OneOf, Place, PlaceInPagemap, Result,
    Structure, Word,
};
use Part::{Call, Put};

/// The offsets in the program's data at which recipes write structures, and at which buffers begin.
const STRUCTURE: u16 = 0x4000;
const BUFFERS: u16 = 0x5000;

const LENGTHS: [u64; 16] = [
    0x1000,
    0x2000,
    0x3000,
    0x4000,
    0x8000,
    0x1_0000,
    0x2_0000,
    0x4_0000,
    0x20_0000,
    0x40_0000,
    0x1f_f000,
    0x1000,
    0x4000,
    0,
    1,
    0xffff_ffff_f000,
];

const RIGHTS: Choice = Bits(&[
    raw::PROT_READ as u64,
    raw::PROT_WRITE as u64,
    raw::PROT_EXEC as u64,
]);

const NO_FILE: Choice = Exactly(u64::MAX);

const PLACED: u64 = (raw::MAP_FIXED | raw::MAP_ANONYMOUS) as u64;

const ADVICE: Choice = OneOf(&[
    raw::MADV_DONTNEED as u64,
    raw::MADV_FREE as u64,
    raw::MADV_REMOVE as u64,
    raw::MADV_DONTFORK as u64,
    raw::MADV_DOFORK as u64,
    raw::MADV_MERGEABLE as u64,
    raw::MADV_UNMERGEABLE as u64,
    raw::MADV_HUGEPAGE as u64,
    raw::MADV_NOHUGEPAGE as u64,
    raw::MADV_WIPEONFORK as u64,
    raw::MADV_KEEPONFORK as u64,
    raw::MADV_COLD as u64,
    raw::MADV_PAGEOUT as u64,
    raw::MADV_POPULATE_READ as u64,
    raw::MADV_POPULATE_WRITE as u64,
    raw::MADV_DONTNEED_LOCKED as u64,
    raw::MADV_COLLAPSE as u64,
    raw::MADV_GUARD_INSTALL as u64,
    raw::MADV_GUARD_REMOVE as u64,
    raw::MADV_WILLNEED as u64,
    raw::MADV_SEQUENTIAL as u64,
    raw::MADV_DONTDUMP as u64,
    raw::MADV_HWPOISON as u64,
    raw::MADV_SOFT_OFFLINE as u64,
    99,
]);

/// Values for the `mode` of `UFFDIO_REGISTER`: combinations of `UFFDIO_REGISTER_MODE_...`.
const WATCH_MODE: Choice = OneOf(&[1, 2, 3, 4, 6, 7]);

/// Modes of NUMA policies (`MPOL_...`), some of them combined with a flag (`MPOL_F_...`).
const MEMORY_POLICY: Choice = OneOf(&[
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    2 | uapi::MPOL_F_STATIC_NODES,
    3 | uapi::MPOL_F_RELATIVE_NODES,
    2 | uapi::MPOL_F_NUMA_BALANCING,
]);
const NODES: Choice = OneOf(&[1, 2, 3, 0, 4]);
const NODE_BITS: Choice = OneOf(&[3, 64, 0, 2]);
const PROCESS: Choice = OneOf(&[0, 1, 2, 3]);

/// Categories of pages for `PAGEMAP_SCAN` (`PAGE_IS_...`).
const CATEGORIES: Choice = Bits(&[1, 2, 4, 8, 16, 32, 64, 128]);

/// Opens a userfaultfd and negotiates its features. Afterwards, the descriptor of the userfaultfd is the result of the
/// last call but one.
const AGREE: [Part; 4] = [
    Call("userfaultfd", &[OneOf(&[0, 1, 0o2_004_000, 0o2_004_001])]),
    Put(0, Exactly(raw::UFFD_API as u64)),
    Put(
        8,
        Bits(&[
            raw::UFFD_FEATURE_SIGBUS as u64,
            raw::UFFD_FEATURE_WP_ASYNC as u64,
            raw::UFFD_FEATURE_WP_UNPOPULATED as u64,
            raw::UFFD_FEATURE_WP_HUGETLBFS_SHMEM as u64,
            raw::UFFD_FEATURE_EVENT_FORK as u64,
            (raw::UFFD_FEATURE_EVENT_REMAP
                | raw::UFFD_FEATURE_EVENT_REMOVE
                | raw::UFFD_FEATURE_EVENT_UNMAP) as u64,
            (raw::UFFD_FEATURE_MINOR_SHMEM | raw::UFFD_FEATURE_MINOR_HUGETLBFS) as u64,
            (raw::UFFD_FEATURE_MOVE | raw::UFFD_FEATURE_POISON | raw::UFFD_FEATURE_THREAD_ID)
                as u64,
        ]),
    ),
    Call(
        "ioctl",
        &[Result(0), Exactly(ioctl::UFFDIO_API as u64), Structure],
    ),
];

/// All recipes. Together they make most of the system calls that act on memory.
const RECIPES: &[&[Part]] = &[
    &[Call(
        "mmap",
        &[
            Place,
            Length,
            RIGHTS,
            OneOf(&[
                PLACED | raw::MAP_PRIVATE as u64,
                PLACED | raw::MAP_SHARED as u64,
                PLACED | (raw::MAP_PRIVATE | raw::MAP_POPULATE) as u64,
                PLACED | (raw::MAP_PRIVATE | raw::MAP_LOCKED) as u64,
                PLACED | (raw::MAP_PRIVATE | raw::MAP_NORESERVE) as u64,
                PLACED | (raw::MAP_PRIVATE | raw::MAP_GROWSDOWN) as u64,
                PLACED | (raw::MAP_PRIVATE | raw::MAP_HUGETLB) as u64,
                PLACED | (raw::MAP_SHARED | raw::MAP_HUGETLB) as u64,
                PLACED | raw::MAP_DROPPABLE as u64,
                (raw::MAP_PRIVATE | raw::MAP_ANONYMOUS) as u64,
                (raw::MAP_PRIVATE | raw::MAP_ANONYMOUS | raw::MAP_FIXED_NOREPLACE) as u64,
            ]),
            NO_FILE,
            Exactly(0),
        ],
    )],
    // Map memory that can be used without a further call: it is readable and writable.
    &[Call(
        "mmap",
        &[
            Exactly(ARENA),
            OneOf(&[0x4_0000, 0x40_0000]),
            Exactly(3),
            OneOf(&[
                PLACED | raw::MAP_PRIVATE as u64,
                PLACED | raw::MAP_SHARED as u64,
            ]),
            NO_FILE,
            Exactly(0),
        ],
    )],
    &[Call(
        "mmap",
        &[
            Place,
            Length,
            RIGHTS,
            OneOf(&[
                (raw::MAP_PRIVATE | raw::MAP_FIXED) as u64,
                (raw::MAP_SHARED | raw::MAP_FIXED) as u64,
                (raw::MAP_SHARED_VALIDATE | raw::MAP_FIXED) as u64,
                (raw::MAP_PRIVATE | raw::MAP_FIXED | raw::MAP_POPULATE) as u64,
                (raw::MAP_SHARED | raw::MAP_FIXED | raw::MAP_POPULATE) as u64,
            ]),
            Descriptor,
            OneOf(&[0, 0x1000, 0x20_0000]),
        ],
    )],
    &[Call("munmap", &[Place, Length])],
    &[Call("mprotect", &[Place, Length, RIGHTS])],
    &[Call(
        "mremap",
        &[Place, Length, Length, OneOf(&[1, 0, 3, 5, 7]), Place],
    )],
    &[Call("madvise", &[Place, Length, ADVICE])],
    &[Call(
        "brk",
        &[OneOf(&[
            0,
            DATA + DATA_BYTES + 0x1000,
            DATA + DATA_BYTES + 0x4_0000,
            DATA + DATA_BYTES + 0x40_0000,
            DATA + DATA_BYTES,
        ])],
    )],
    &[Call("msync", &[Place, Length, OneOf(&[1, 2, 4, 6])])],
    &[Call("mincore", &[Place, Length, Buffer])],
    &[Call("mlock", &[Place, Length])],
    &[Call("munlock", &[Place, Length])],
    &[Call(
        "mlock2",
        &[Place, Length, OneOf(&[0, raw::MLOCK_ONFAULT as u64])],
    )],
    &[Call("mlockall", &[Bits(&[1, 2, 4])])],
    &[Call("munlockall", &[])],
    &[Call("mseal", &[Place, Length, OneOf(&[0, 0, 1])])],
    &[Call("pkey_alloc", &[Exactly(0), OneOf(&[0, 1, 2])])],
    &[Call(
        "pkey_mprotect",
        &[Place, Length, RIGHTS, OneOf(&[u64::MAX, 0, 1, 2])],
    )],
    &[Call("pkey_free", &[OneOf(&[1, 0, 2])])],
    // System V shared memory.
    &[
        Call(
            "shmget",
            &[
                OneOf(&[0, 1, 2]),
                Length,
                OneOf(&[
                    uapi::IPC_CREAT | 0o600,
                    uapi::IPC_CREAT | uapi::IPC_EXCL | 0o600,
                    uapi::IPC_CREAT | uapi::SHM_HUGETLB | 0o600,
                    0,
                ]),
            ],
        ),
        Call(
            "shmat",
            &[
                Result(0),
                Place,
                OneOf(&[
                    0,
                    uapi::SHM_REMAP,
                    uapi::SHM_REMAP | uapi::SHM_RDONLY,
                    uapi::SHM_RND,
                    uapi::SHM_REMAP | uapi::SHM_EXEC,
                ]),
            ],
        ),
    ],
    &[Call("shmat", &[OneOf(&[0, 1, 2]), OneOf(&[0]), Exactly(0)])],
    &[Call("shmdt", &[Place])],
    &[Call(
        "shmctl",
        &[
            OneOf(&[0, 1, 2]),
            OneOf(&[0, 1, 2, 3, 11, 12, 13, 14, 15]),
            Buffer,
        ],
    )],
    // userfaultfd.
    &AGREE,
    &[
        Put(0, Place),
        Put(8, Length),
        Put(16, WATCH_MODE),
        Call(
            "ioctl",
            &[
                Descriptor,
                Exactly(ioctl::UFFDIO_REGISTER as u64),
                Structure,
            ],
        ),
    ],
    &[
        Put(0, Exactly(ARENA)),
        Put(8, OneOf(&[0x4_0000, 0x40_0000])),
        Put(16, WATCH_MODE),
        Call(
            "ioctl",
            &[Result(1), Exactly(ioctl::UFFDIO_REGISTER as u64), Structure],
        ),
    ],
    &[
        Put(0, Place),
        Put(8, Length),
        Call(
            "ioctl",
            &[
                Descriptor,
                OneOf(&[ioctl::UFFDIO_UNREGISTER as u64, ioctl::UFFDIO_WAKE as u64]),
                Structure,
            ],
        ),
    ],
    &[
        Put(0, Place),
        Put(8, OneOf(&[DATA, ARENA, DATA + 0x1000])),
        Put(16, Length),
        Put(24, Bits(&[1, 2])),
        Call(
            "ioctl",
            &[Descriptor, Exactly(ioctl::UFFDIO_COPY as u64), Structure],
        ),
    ],
    &[
        Put(0, Place),
        Put(8, Length),
        Put(16, Bits(&[1, 2])),
        Call(
            "ioctl",
            &[
                Descriptor,
                OneOf(&[
                    ioctl::UFFDIO_ZEROPAGE as u64,
                    ioctl::UFFDIO_CONTINUE as u64,
                    uapi::UFFDIO_POISON,
                    ioctl::UFFDIO_WRITEPROTECT as u64,
                ]),
                Structure,
            ],
        ),
    ],
    &[
        Put(0, Place),
        Put(8, Length),
        Put(16, Bits(&[1, 2])),
        Call(
            "ioctl",
            &[
                Descriptor,
                Exactly(ioctl::UFFDIO_WRITEPROTECT as u64),
                Structure,
            ],
        ),
    ],
    &[
        Put(0, Place),
        Put(8, Place),
        Put(16, Length),
        Put(24, Bits(&[1, 2])),
        Call(
            "ioctl",
            &[Descriptor, Exactly(uapi::UFFDIO_MOVE), Structure],
        ),
    ],
    &[Call("read", &[Descriptor, Buffer, Exactly(64)])],
    // Read or call the interfaces that report the state of memory.
    &[
        Call("open", &[Name("/proc/self/pagemap"), Exactly(0)]),
        Put(0, Exactly(96)),
        Put(8, Bits(&[1, 2])),
        Put(16, Place),
        Put(24, OneOf(&[ARENA + 0x4_0000, ARENA + 0x40_0000, ARENA])),
        Put(32, Exactly(0)),
        Put(40, Exactly(DATA + BUFFERS as u64)),
        Put(48, OneOf(&[8, 1, 64, 0])),
        Put(56, OneOf(&[0, 1, 8])),
        Put(64, CATEGORIES),
        Put(72, CATEGORIES),
        Put(80, CATEGORIES),
        Put(88, CATEGORIES),
        Call(
            "ioctl",
            &[Result(0), Exactly(uapi::PAGEMAP_SCAN), Structure],
        ),
    ],
    &[
        Call("open", &[Name("/proc/self/pagemap"), Exactly(0)]),
        Call(
            "pread64",
            &[
                Result(0),
                Buffer,
                OneOf(&[64, 512, 4096, 7]),
                PlaceInPagemap,
            ],
        ),
    ],
    // Write a word to a setting in `/proc/sys` or `/sys`.
    &[
        Call("open", &[Name(""), OneOf(&[1, 2, 0o101])]),
        Put(0, Word),
        Call("write", &[Result(0), Structure, OneOf(&[1, 2, 5, 8])]),
    ],
    &[
        Call("open", &[Name("/sys"), Exactly(1)]),
        Put(0, Word),
        Call("write", &[Result(0), Structure, OneOf(&[1, 2, 5, 8])]),
    ],
    &[
        Call("open", &[Name("/proc/self/clear_refs"), Exactly(1)]),
        Put(0, OneOf(&[0x34, 0x31, 0x32, 0x33, 0x35])),
        Call("write", &[Result(0), Structure, Exactly(1)]),
    ],
    &[
        Call("open", &[Name("/proc"), Exactly(0)]),
        Call("read", &[Result(0), Buffer, OneOf(&[4096, 100, 0x4000])]),
    ],
    &[
        Call("open", &[Name("/proc/self/mem"), Exactly(2)]),
        Call("pwrite64", &[Result(0), Buffer, OneOf(&[8, 5000]), Place]),
        Call("pread64", &[Result(1), Buffer, OneOf(&[8, 5000]), Place]),
    ],
    &[Call(
        "prctl",
        &[
            OneOf(&[
                prctl::PR_SET_MEMORY_MERGE as u64,
                prctl::PR_GET_MEMORY_MERGE as u64,
                prctl::PR_SET_THP_DISABLE as u64,
                prctl::PR_GET_THP_DISABLE as u64,
                prctl::PR_SET_MDWE as u64,
            ]),
            OneOf(&[1, 0, 3]),
            OneOf(&[0, 2]),
            Exactly(0),
            Exactly(0),
        ],
    )],
    &[Call(
        "prctl",
        &[
            Exactly(prctl::PR_SET_VMA as u64),
            Exactly(0),
            Place,
            Length,
            Name("a"),
        ],
    )],
    // Access the memory of other processes.
    &[
        Put(0, Place),
        Put(8, Length),
        Put(16, Place),
        Put(24, Length),
        Call("pidfd_open", &[PROCESS, Exactly(0)]),
        Call(
            "process_madvise",
            &[Result(0), Structure, OneOf(&[1, 2]), ADVICE, Exactly(0)],
        ),
    ],
    &[
        Put(0, Place),
        Put(8, Length),
        Put(16, Place),
        Put(24, Length),
        Call(
            "process_vm_readv",
            &[
                PROCESS,
                Structure,
                Exactly(1),
                Exactly(DATA + STRUCTURE as u64 + 16),
                Exactly(1),
                Exactly(0),
            ],
        ),
    ],
    &[
        Put(0, Place),
        Put(8, Length),
        Put(16, Place),
        Put(24, Length),
        Call(
            "process_vm_writev",
            &[
                PROCESS,
                Structure,
                Exactly(1),
                Exactly(DATA + STRUCTURE as u64 + 16),
                Exactly(1),
                Exactly(0),
            ],
        ),
    ],
    &[
        Call("pidfd_open", &[PROCESS, Exactly(0)]),
        Call("process_mrelease", &[Result(0), Exactly(0)]),
    ],
    // NUMA policies and migration.
    &[
        Put(0, NODES),
        Call(
            "mbind",
            &[
                Place,
                Length,
                MEMORY_POLICY,
                Structure,
                NODE_BITS,
                Bits(&[1, 2, 4]),
            ],
        ),
    ],
    &[
        Put(0, NODES),
        Call("set_mempolicy", &[MEMORY_POLICY, Structure, NODE_BITS]),
    ],
    &[Call(
        "get_mempolicy",
        &[Buffer, Buffer, NODE_BITS, Place, Bits(&[1, 2, 4])],
    )],
    &[Call(
        "set_mempolicy_home_node",
        &[Place, Length, OneOf(&[0, 1, 2]), Exactly(0)],
    )],
    &[
        Put(0, NODES),
        Put(8, NODES),
        Call(
            "migrate_pages",
            &[
                PROCESS,
                NODE_BITS,
                Structure,
                Exactly(DATA + STRUCTURE as u64 + 8),
            ],
        ),
    ],
    &[
        Put(0, Place),
        Put(8, Place),
        Put(16, OneOf(&[0, 1, 1 << 32, 2])),
        Call(
            "move_pages",
            &[
                PROCESS,
                OneOf(&[1, 2]),
                Structure,
                OneOf(&[DATA + STRUCTURE as u64 + 16, 0]),
                Buffer,
                OneOf(&[2, 4]),
            ],
        ),
    ],
    // Swap.
    &[Call("swapoff", &[Name("/dev/zram0")])],
    &[Call(
        "swapon",
        &[Name("/dev/zram0"), OneOf(&[0, 0x8001, 0x1_0000])],
    )],
    &[Call("swapon", &[Name("/tmp/a"), Exactly(0)])],
    // memfd.
    &[
        Call("memfd_create", &[Name("a"), Bits(&[1, 2, 4])]),
        Call("ftruncate", &[Result(0), Length]),
    ],
    &[
        Call("memfd_secret", &[Exactly(0)]),
        Call("ftruncate", &[Result(0), Length]),
    ],
    &[
        Call("open", &[Name("/tmp/a"), Exactly(0o102), Exactly(0o600)]),
        Call("ftruncate", &[Result(0), Length]),
    ],
    &[Call(
        "fallocate",
        &[
            Descriptor,
            OneOf(&[0, 1, 3, 16]),
            OneOf(&[0, 0x1000, 0x3000]),
            Length,
        ],
    )],
    &[Call("ftruncate", &[Descriptor, Length])],
    &[Call(
        "fcntl",
        &[
            Descriptor,
            Exactly(raw::F_ADD_SEALS as u64),
            Bits(&[1, 2, 4, 8, 16]),
        ],
    )],
    &[Call("write", &[Descriptor, Place, Length])],
    &[Call("read", &[Descriptor, Place, Length])],
    &[
        Call("pipe", &[Exactly(DATA + BUFFERS as u64)]),
        Put(0, Place),
        Put(8, Length),
        Call(
            "vmsplice",
            &[Descriptor, Structure, Exactly(1), OneOf(&[0, 2, 8, 10])],
        ),
    ],
    &[
        Put(0, Place),
        Put(8, Length),
        Call("io_uring_setup", &[OneOf(&[1, 8]), Buffer]),
        Call(
            "io_uring_register",
            &[Result(0), OneOf(&[0, 1]), Structure, Exactly(1)],
        ),
    ],
    // Processes and threads. A new process or thread continues with the operation that follows the call.
    &[Call("fork", &[])],
    &[Call(
        "clone",
        &[
            OneOf(&[
                (raw::CLONE_VM | raw::CLONE_SIGHAND | raw::CLONE_THREAD) as u64,
                raw::CLONE_VM as u64 | 17,
                (raw::CLONE_VM | raw::CLONE_VFORK) as u64 | 17,
            ]),
            Exactly(0),
            Exactly(0),
            Exactly(0),
            Exactly(0),
        ],
    )],
    &[Call(
        "wait4",
        &[Exactly(u64::MAX), Exactly(0), OneOf(&[0, 1])],
    )],
    &[Call(
        "futex",
        &[Place, OneOf(&[0, 1, 128, 129]), OneOf(&[0, 1]), Exactly(0)],
    )],
    &[Call("execve", &[Name("/program"), Exactly(0), Exactly(0)])],
    &[Call("membarrier", &[OneOf(&[0, 1, 2, 8, 16]), Exactly(0)])],
    &[Call("exit", &[Exactly(0)])],
];

/// Values that recipes write to settings, each padded with zeroes to eight bytes. Some settings reject some of them.
const WORDS: [&[u8; 8]; 14] = [
    b"0\n\0\0\0\0\0\0",
    b"1\n\0\0\0\0\0\0",
    b"2\n\0\0\0\0\0\0",
    b"4\n\0\0\0\0\0\0",
    b"100\n\0\0\0\0",
    b"always\n\0",
    b"madvise\n",
    b"never\n\0\0",
    b"inherit\n",
    b"within_s",
    b"advise\n\0",
    b"-1\n\0\0\0\0\0",
    b"99999999",
    b"x\0\0\0\0\0\0\0",
];

/// The number of bytes that the first operation maps at the start of the arena: enough for three huge pages.
const MAPPED: u64 = 0x60_0000;

/// Returns the call that maps the arena as private, readable and writable memory.
pub(super) fn arena() -> Operation {
    let flags = PLACED | raw::MAP_PRIVATE as u64;
    let rights = (raw::PROT_READ | raw::PROT_WRITE) as u64;
    let arguments = [ARENA, MAPPED, rights, flags, u64::MAX, 0];
    Operation::Call(number("mmap"), arguments.map(Argument::Value))
}

/// Appends the operations of a recipe to `operations`. `bytes` selects the recipe and its arguments.
pub(super) fn cook(bytes: &mut Bytes<'_>, operations: &mut Vec<Operation>) {
    let recipe = RECIPES[bytes.number(1) as usize % RECIPES.len()];
    for part in recipe {
        operations.push(match part {
            Put(offset, choice) => {
                let value = match choice.take(bytes) {
                    Argument::Value(value) => value,
                    Argument::Arena(page, _) => ARENA + u64::from(page) * 4096,
                    Argument::Data(_) | Argument::Result(_) => 0,
                };
                Operation::Store(Argument::Data(STRUCTURE + offset), value)
            }
            Call(name, choices) => {
                let mut arguments = [Argument::Value(0); 6];
                for (argument, choice) in arguments.iter_mut().zip(*choices) {
                    *argument = choice.take(bytes);
                }
                Operation::Call(number(name), arguments)
            }
        });
    }
}

/// Returns the number of the system call with the name `name`, or `u16::MAX` if no call has it.
fn number(name: &str) -> u16 {
    let call = table::CALLS.iter().find(|call| call.name == name);
    call.map_or(u16::MAX, |call| call.number)
}

impl Choice {
    /// Chooses an argument by the next byte. A choice with only one possible value consumes no byte.
    fn take(self, bytes: &mut Bytes<'_>) -> Argument {
        let mut byte = || bytes.number(1);
        match self {
            Exactly(value) => Argument::Value(value),
            OneOf(values) => Argument::Value(values[byte() as usize % values.len()]),
            Bits(bits) => {
                let wanted = byte();
                let chosen = bits
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| wanted >> place & 1 != 0);
                Argument::Value(chosen.fold(0, |all, (_, bit)| all | bit))
            }
            Place => Argument::Value(place(byte())),
            PlaceInPagemap => Argument::Value(place(byte()) / 4096 * 8),
            Length => Argument::Value(LENGTHS[byte() as usize % LENGTHS.len()]),
            Descriptor => match byte() {
                number @ 0..=199 => Argument::Value(3 + number % 5),
                number @ 200..=219 => Argument::Value(number % 3),
                number => Argument::Result(number as u8),
            },
            Result(back) => Argument::Result(back),
            Name(beginning) => {
                let fitting: Vec<usize> = (0..NAMES.len())
                    .filter(|&name| NAMES[name].starts_with(beginning))
                    .collect();
                let name = match fitting.as_slice() {
                    [only] => *only,
                    several => several[byte() as usize % several.len()],
                };
                Argument::Data((name as u64 * NAME_ROOM) as u16)
            }
            Buffer => Argument::Data(BUFFERS + (byte() as u16) * 16),
            Structure => Argument::Data(STRUCTURE),
            Word => Argument::Value(u64::from_le_bytes(*WORDS[byte() as usize % WORDS.len()])),
        }
    }
}

/// Returns the address of one of the first pages of the arena, or of the start of one of its first huge pages.
fn place(byte: u64) -> u64 {
    match byte {
        0..=223 => ARENA + byte % 64 * 4096,
        _ => ARENA + byte % 4 * 0x20_0000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_of_calls_that_there_are_and_fits_the_structure() {
        for recipe in RECIPES {
            for part in *recipe {
                match part {
                    Put(offset, _) => assert!(offset % 8 == 0 && offset + 8 <= 0x1000),
                    Call(name, choices) => {
                        assert!(number(name) != u16::MAX && choices.len() <= 6, "{name}");
                    }
                }
            }
        }
        for (at, recipe) in RECIPES.iter().enumerate() {
            for byte in 0..=255 {
                let bytes = [vec![at as u8], vec![byte; 20]].concat();
                let mut operations = Vec::new();
                cook(&mut Bytes(&bytes), &mut operations);
                assert_eq!(operations.len(), recipe.len());
            }
        }
    }
}
