//! Replays the corpus of coverage-guided fuzzing. Every input must run without a finding, and together the inputs must
//! reach every system call that acts on memory.

use std::fs;
use std::path::{Path, PathBuf};

use memwright_linux_sim::calls::Calls;
use memwright_linux_sim::{Forks, program, run_file, run_operations};
use memwright_testkit::chance::Chance;

/// Returns the inputs of a fuzzing target, ordered by name.
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

/// The number of inputs that are derived from the corpus of each target. The environment variable
/// `MEMWRIGHT_GROWN=COUNT,SEED` overrides this number and the seed, which is 1.
const GROWN: u64 = 4000;

/// Derives a new input: joins the start of one input of the corpus with the end of another, and changes up to four
/// places.
fn grow(kept: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let first = &kept[chance.below(kept.len())];
    let second = &kept[chance.below(kept.len())];
    let (upto, from) = (
        chance.below(first.len() + 1),
        chance.below(second.len() + 1),
    );
    let mut input = [&first[..upto], &second[from..]].concat();
    for _ in 0..chance.below(5) {
        let at = chance.below(input.len() + 1);
        match chance.below(4) {
            0 => input.insert(at, chance.draw() as u8),
            1 => drop(input.drain(at..(at + 1 + chance.below(8)).min(input.len()))),
            2 => input[at..]
                .iter_mut()
                .take(1)
                .for_each(|byte| *byte ^= 1 << chance.below(8)),
            _ => {
                let end = (at + chance.below(24)).min(input.len());
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
        }
    }
    input
}

/// Checks that inputs derived from the corpus give no findings. The inputs are the same each time, with any compiler
/// and on any machine. The unlimited search, `cargo xtask fuzz --target`, finds more inputs, which are added to the
/// corpus.
fn run_grown(target: &str, findings: impl Fn(&[u8]) -> Vec<String>) {
    let files = corpus(target);
    let kept: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let (count, seed) = match std::env::var("MEMWRIGHT_GROWN") {
        Ok(words) => words
            .split_once(',')
            .and_then(|(count, seed)| Some((count.parse().ok()?, seed.parse().ok()?)))
            .unwrap_or_else(|| panic!("MEMWRIGHT_GROWN=COUNT,SEED, not {words}")),
        Err(_) => (GROWN, 1),
    };
    for number in 0..count {
        let input = grow(&kept, &mut Chance::new((seed << 32) | number));
        let found = findings(&input);
        assert!(found.is_empty(), "{number} of {seed}: {input:?}: {found:?}");
    }
}

#[test]
fn every_program_grown_from_the_kept_ones_runs() {
    run_grown("syscalls", |input| {
        run_operations(program::decode(input), Forks::of_input(input)).findings
    });
}

#[test]
fn every_file_grown_from_the_kept_ones_is_executed_or_refused() {
    run_grown("elf", |input| run_file(input).findings);
}

/// The calls that must each succeed at least once in the corpus. The commands of `ioctl` are those of userfaultfd and
/// `PAGEMAP_SCAN`.
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
        let operations = program::decode(&fs::read(&file).unwrap());
        for forks in Forks::ALL {
            let ended = run_operations(operations.clone(), forks);
            let name = file.display();
            assert_eq!(ended.findings, Vec::<String>::new(), "{name} {forks:?}");
            calls.add(&ended.calls);
        }
    }
    for name in MEMORY_CALLS {
        assert!(calls.of(name).succeeded > 0, "{name} never succeeded");
    }
}
