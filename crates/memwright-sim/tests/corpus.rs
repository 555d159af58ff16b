//! What coverage-guided fuzzing kept, once more: every input of the corpus runs without a finding.

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

#[test]
fn every_kept_program_runs() {
    let mut calls = Calls::default();
    for file in corpus("syscalls") {
        let ended = run_operations(program::decode(&fs::read(&file).unwrap()));
        assert_eq!(ended.findings, Vec::<String>::new(), "{}", file.display());
        calls.add(&ended.calls);
    }
    println!("{calls}");
}
