//! What coverage-guided fuzzing kept, once more: every input of the corpus runs without a finding, and together they
//! reach every call that deals with memory.

use std::fs;
use std::path::{Path, PathBuf};

use memwright_sim::personality::calls::Calls;
use memwright_sim::personality::{program, run_file, run_operations};

/// The inputs of a target, in the order of their names.
fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn every_kept_file_is_executed_or_refused() {
    for file in corpus("elf") {
        let ended = run_file(&fs::read(&file).unwrap());
        assert_eq!(ended.findings, Vec::<String>::new(), "{}", file.display());
    }
}

/// What must have been called with success; commands of `ioctl` are those of userfaultfd and `PAGEMAP_SCAN`.
const MEMORY_CALLS: &[&str] = &[
    "mmap",
    "munmap",
    "mprotect",
    "mremap",
    "brk",
    "msync",
    "mincore",
    "mlock",
    "mlock2",
    "munlock",
    "mlockall",
    "munlockall",
    "mseal",
    "pkey_mprotect",
    "shmget",
    "shmat",
    "shmdt",
    "shmctl",
    "userfaultfd",
    "ioctl:0xc018aa3f",
    "ioctl:0xc020aa00",
    "ioctl:0x8010aa01",
    "ioctl:0x8010aa02",
    "ioctl:0xc028aa03",
    "ioctl:0xc020aa04",
    "ioctl:0xc028aa05",
    "ioctl:0xc018aa06",
    "ioctl:0xc020aa07",
    "ioctl:0xc020aa08",
    "ioctl:0xc0606610",
    "madvise:4",
    "madvise:8",
    "madvise:9",
    "madvise:10",
    "madvise:12",
    "madvise:14",
    "madvise:18",
    "madvise:21",
    "madvise:22",
    "madvise:23",
    "madvise:25",
    "madvise:102",
    "madvise:103",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "mbind",
    "set_mempolicy",
    "get_mempolicy",
    "set_mempolicy_home_node",
    "migrate_pages",
    "move_pages",
    "swapon",
    "swapoff",
    "memfd_create",
    "memfd_secret",
    "fallocate",
    "vmsplice",
    "prctl",
    "fork",
    "clone",
];

#[test]
fn every_kept_program_runs_and_together_they_reach_the_calls_on_memory() {
    let mut calls = Calls::default();
    for file in corpus("syscalls") {
        let ended = run_operations(program::decode(&fs::read(&file).unwrap()));
        assert_eq!(ended.findings, Vec::<String>::new(), "{}", file.display());
        calls.add(&ended.calls);
    }
    for name in MEMORY_CALLS {
        assert!(calls.of(name).succeeded > 0, "{name} never succeeded");
    }
}
