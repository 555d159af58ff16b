//! `cargo xtask test FOLDER...`: runs the tests that exercise a folder of `crates/memwright/src`, for fast repeated
//! runs while editing. These are the tests in the table `FOLDERS`, and the tests that must notice the mistakes that
//! `xtask/mistakes` plants in the folder.
//!
//! The tests are built without the personality and run in few processes, so that a test of a small change takes
//! seconds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail, ensure};

use super::binaries::{self, Binary};
use crate::tier::Tier;
use crate::{mutants, shell};

/// The folder of the source of the memory manager.
const SOURCE: &str = "crates/memwright/src";

/// A folder of [`SOURCE`], and the tests that exercise it.
struct Folder {
    name: &'static str,
    /// The modules of `crates/memwright/tests/scenarios` that exercise the folder.
    scenarios: &'static [&'static str],
    /// The tests of `crates/memwright-sim` that exercise the folder: a binary, and a prefix of the names of the tests.
    /// An empty prefix means all tests.
    simulated: &'static [(&'static str, &'static str)],
}

#[rustfmt::skip]
const FOLDERS: &[Folder] = &[
    Folder {
        name: "types",
        scenarios: &["faults", "limits", "rows"],
        simulated: &[],
    },
    Folder {
        name: "vma",
        scenarios: &["limits", "protect", "remap", "room"],
        simulated: &[("failures", "areas::changes_across_areas")],
    },
    Folder {
        name: "store",
        scenarios: &["objects", "shared_folio", "swap_objects", "written_back"],
        simulated: &[("failures", "swap::of_shared_memory")],
    },
    Folder {
        name: "swap",
        scenarios: &["swap", "swap_folio", "swap_objects", "swap_shared"],
        simulated: &[("swap", ""), ("swap_wait", ""), ("failures", "swap::"), ("interleavings", "swap::slow_swap_in_and_unmap")],
    },
    Folder {
        name: "mm",
        scenarios: &["cpus", "fork", "limits", "locks", "objects"],
        simulated: &[("cow", ""), ("threads", ""), ("failures", "access::")],
    },
    Folder {
        name: "range",
        scenarios: &["objects", "overlooked", "protect", "remap", "track"],
        simulated: &[("cow", ""), ("notify", ""), ("pending", ""), ("interleavings", "file::clean_and_write")],
    },
    Folder {
        name: "hugetlb",
        scenarios: &["hugetlb"],
        simulated: &[("hugetlb", ""), ("failures", "hugetlb::")],
    },
    Folder {
        name: "ksm",
        scenarios: &["merge"],
        simulated: &[("merge", ""), ("failures", "merge::"), ("interleavings", "merge::merge_and_write")],
    },
    Folder {
        name: "numa",
        scenarios: &["rows"],
        simulated: &[("numa", "a_"), ("numa", "together::a_"), ("numa", "hint_fault_and_protect"), ("numa", "migration_and_write"), ("failures", "nodes::")],
    },
    Folder {
        name: "reclaim",
        scenarios: &["swap", "swap_folio", "swap_objects", "swap_shared"],
        simulated: &[("swap", ""), ("failures", "swap::"), ("interleavings", "swap::shed_and_write")],
    },
    Folder {
        name: "shmem",
        scenarios: &["objects", "shared_folio", "shared_huge", "swap_objects", "swap_shared"],
        simulated: &[("failures", "swap::of_shared_memory")],
    },
    Folder {
        name: "fault",
        scenarios: &["cpus", "faults", "folios", "fork", "objects", "overlooked", "shared_folio", "swap"],
        simulated: &[("cow", ""), ("failures", "access::"), ("interleavings", "folio::discard_and_fill_again"), ("interleavings", "protect::fault_and_protect")],
    },
    Folder {
        name: "huge",
        scenarios: &["huge", "shared_huge", "split"],
        simulated: &[("failures", "huge::collapse"), ("interleavings", "huge::protect_whole_and_fault"), ("interleavings", "huge::split_and_protect")],
    },
    Folder {
        name: "uffd",
        scenarios: &["uffd", "uffd_events", "uffd_huge"],
        simulated: &[("failures", "watch::fills_and_moves"), ("failures", "watch::protection_and_its_end")],
    },
    Folder {
        name: "track",
        scenarios: &["track"],
        simulated: &[("quiet", ""), ("failures", "watch::tracking")],
    },
    Folder {
        name: "ops",
        scenarios: &["advise", "fork", "limits", "locks", "objects", "protect", "remap", "room", "share", "split"],
        simulated: &[("cow", ""), ("threads", ""), ("failures", "access::"), ("failures", "areas::"), ("interleavings", "protect::")],
    },
];

/// Tests that notice a mistake but take many seconds, each as a binary and a name. An empty name means all tests of the
/// binary. `cargo xtask test FOLDER` does not run these tests; `cargo xtask test` does.
const LONG: &[(&str, &str)] = &[
    ("interleavings", "huge::split_of_zeroes_and_write"),
    ("numa", "together::migration_of_shared_memory_and_write"),
    ("programs", ""),
];

/// Builds and runs the tests of these folders.
///
/// # Errors
/// If a folder is not in the table (the error lists the folders of the table), if the tests do not build, or if a test
/// fails.
pub fn run(folders: &[&str]) -> Result<()> {
    let chosen = filters(folders)?;
    let started = Instant::now();
    let mut arguments = vec!["-p", "memwright", "-p", "memwright-sim"];
    for name in chosen.keys() {
        match name.rsplit_once('/') {
            Some((_, test)) => arguments.extend(["--test", test]),
            None => arguments.push("--lib"),
        }
    }
    let built = binaries::build_chosen(&arguments)?;
    let took = started.elapsed();
    let started = Instant::now();
    let mut failed = Vec::new();
    for (name, filters) in &chosen {
        let Some(binary) = built.iter().find(|binary| binary.name == *name) else {
            bail!("cargo built no tests named {name}");
        };
        if !passes(binary, filters)? {
            failed.push(name.clone());
        }
    }
    println!(
        "built in {:.1} s, ran in {:.1} s; `cargo xtask test` runs every test",
        took.as_secs_f64(),
        started.elapsed().as_secs_f64()
    );
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Runs the tests of a binary whose names begin with one of the filters. Returns whether they passed.
fn passes(binary: &Binary, filters: &[String]) -> Result<bool> {
    let tests = binary.list()?;
    let names = tests.iter().map(|test| test.name.as_str());
    let names: Vec<&str> = names
        .filter(|name| {
            filters
                .iter()
                .any(|filter| name.starts_with(filter.as_str()))
        })
        .collect();
    ensure!(
        !names.is_empty(),
        "{} has no test {}",
        binary.name,
        filters.join(" or ")
    );
    println!("{}", binary.name);
    let mut command = binary.command();
    command.args(["-q", "--exact"]).args(names);
    command.envs(Tier::Test.environment().iter().copied());
    Ok(command.status()?.success())
}

/// Returns the prefixes of the names of the tests that exercise `folders`, by the name of the binary.
fn filters(folders: &[&str]) -> Result<BTreeMap<String, Vec<String>>> {
    let mut chosen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in folders {
        let Some(folder) = FOLDERS.iter().find(|folder| folder.name == *name) else {
            let known: Vec<&str> = FOLDERS.iter().map(|folder| folder.name).collect();
            bail!(
                "no folder of {SOURCE} is named {name}: there are {}",
                known.join(", ")
            );
        };
        if has_unit_tests(&shell::root().join(SOURCE).join(name))? {
            chosen
                .entry("memwright".to_owned())
                .or_default()
                .push(format!("{name}::"));
        }
        for module in folder.scenarios {
            let binary = "memwright/scenarios".to_owned();
            chosen
                .entry(binary)
                .or_default()
                .push(format!("{module}::"));
        }
        for (test, beginning) in folder.simulated {
            let binary = format!("memwright-sim/{test}");
            let beginning = (*beginning).to_owned();
            chosen.entry(binary).or_default().push(beginning);
        }
        for (binary, test) in mutants::tests_of(&format!("{SOURCE}/{name}"))? {
            let mut long = LONG.iter();
            if long.any(|(of, beginning)| binary == *of && test.starts_with(beginning)) {
                continue;
            }
            let package = match binary.as_str() {
                "scenarios" => "memwright",
                _ => "memwright-sim",
            };
            let binary = format!("{package}/{binary}");
            chosen.entry(binary).or_default().push(test);
        }
    }
    Ok(chosen)
}

/// Returns whether a file in a folder of the source, or in its subfolders, has unit tests.
fn has_unit_tests(folder: &Path) -> Result<bool> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let has = match path.is_dir() {
            true => has_unit_tests(&path)?,
            false => fs::read_to_string(&path)?.contains("#[test]"),
        };
        if has {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_of_the_memory_manager_has_tests() {
        let mut folders: Vec<String> = fs::read_dir(shell::root().join(SOURCE))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        folders.sort();
        let mut known: Vec<&str> = FOLDERS.iter().map(|folder| folder.name).collect();
        known.sort_unstable();
        assert_eq!(folders, known);
        for folder in FOLDERS {
            assert!(!folder.scenarios.is_empty(), "{}", folder.name);
        }
    }

    #[test]
    fn the_files_of_the_tests_exist() {
        let crates = shell::root().join("crates");
        for folder in FOLDERS {
            for module in folder.scenarios {
                let file = format!("memwright/tests/scenarios/{module}.rs");
                assert!(crates.join(&file).is_file(), "{}: {file}", folder.name);
            }
            for (test, beginning) in folder.simulated {
                let tests = crates.join("memwright-sim/tests");
                let module = beginning.split_once("::").map(|(module, _)| module);
                let file = match module {
                    Some(module) => format!("{test}/{module}.rs"),
                    None if tests.join(test).is_dir() => format!("{test}/main.rs"),
                    None => format!("{test}.rs"),
                };
                let text = fs::read_to_string(tests.join(&file));
                let text = text.unwrap_or_else(|_| panic!("{}: {file}", folder.name));
                let name = beginning.rsplit("::").next().unwrap_or_default();
                assert!(
                    text.contains(&format!("fn {name}")),
                    "{}: {beginning}",
                    folder.name
                );
            }
        }
    }

    #[test]
    fn folders_have_filters_and_unknown_ones_are_refused() {
        let chosen = filters(&["fault", "hugetlb"]).unwrap();
        assert_eq!(chosen["memwright"], ["fault::"]);
        assert!(chosen["memwright/scenarios"].contains(&"hugetlb::".to_owned()));
        assert_eq!(chosen["memwright-sim/hugetlb"][0], "");
        let of_mistake = "fork::fork_and_write".to_owned();
        assert!(chosen["memwright-sim/interleavings"].contains(&of_mistake));
        assert!(!chosen.contains_key("memwright-sim/programs"));
        let error = filters(&["faults"]).unwrap_err().to_string();
        assert!(
            error.contains("named faults") && error.contains("fault, "),
            "{error}"
        );
    }
}
