//! The copy of the tree in which the mistakes are planted.
//!
//! The copy is kept between runs, and a file is written only if it has changed, so that cargo rebuilds as little as
//! possible.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::list::List;
use crate::shell;

/// The source of the module that enables a mistake. It is added to the crate on which every other edited crate depends.
const SWITCH: &str = include_str!("../../mistakes/switch.rs");
const SWITCH_FILE: &str = "crates/memwright-table/src/mistake.rs";
const SWITCH_PARENT: &str = "crates/memwright-table/src/lib.rs";

/// Copies the tracked files, and the untracked files that git does not ignore, with every mistake planted. Returns the
/// path of the copy.
///
/// # Errors
/// If an edit does not apply, if git fails, or if there is an I/O error.
pub fn copy(list: &List) -> Result<PathBuf> {
    let root = shell::root();
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for name in tracked()? {
        let path = root.join(&name);
        // Git lists a removed file until the removal is staged.
        if path.is_file() {
            files.insert(name, read(&path)?);
        }
    }
    for (name, text) in list.edited(&root)? {
        files.insert(name, text.into_bytes());
    }
    let parent = files.get_mut(SWITCH_PARENT).context(SWITCH_PARENT)?;
    parent.extend_from_slice(b"\npub mod mistake;\n");
    files.insert(SWITCH_FILE.to_owned(), SWITCH.as_bytes().to_owned());
    let tree = shell::target_folder().join("mutants/tree");
    let written = write(&tree, &files)?;
    let all = files.len();
    shell::step(&format!(
        "{written} of {all} files changed in {}",
        tree.display()
    ));
    Ok(tree)
}

fn tracked() -> Result<Vec<String>> {
    let names = shell::git([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ])?;
    Ok(names.split_terminator('\0').map(str::to_owned).collect())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Makes `folder` contain exactly `files`. Returns the number of files that were written or removed.
fn write(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<usize> {
    let mut changed = 0;
    for (name, contents) in files {
        let path = folder.join(name);
        if fs::read(&path).is_ok_and(|old| old == *contents) {
            continue;
        }
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, contents))
            .with_context(|| format!("cannot write {}", path.display()))?;
        changed += 1;
    }
    Ok(changed + remove_others(folder, folder, files)?)
}

/// Removes the files below `at` that are not in `files`, because cargo would build tests that no longer exist in the
/// source.
fn remove_others(folder: &Path, at: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<usize> {
    let mut removed = 0;
    let entries = fs::read_dir(at).with_context(|| format!("cannot read {}", at.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            removed += remove_others(folder, &path, files)?;
            continue;
        }
        let name = path.strip_prefix(folder).ok().and_then(Path::to_str);
        if !name.is_some_and(|name| files.contains_key(name)) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            removed += 1;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_only_if_it_changed() {
        let folder = std::env::temp_dir().join(format!("mutants-tree-{}", std::process::id()));
        let files = |list: &[(&str, &str)]| -> BTreeMap<String, Vec<u8>> {
            let owned =
                |(name, text): &(&str, &str)| ((*name).to_owned(), text.as_bytes().to_owned());
            list.iter().map(owned).collect()
        };
        let first = files(&[("a.rs", "1"), ("b/c.rs", "2"), ("b/d/e.rs", "3")]);
        assert_eq!(write(&folder, &first).expect("written"), 3);
        assert_eq!(write(&folder, &first).expect("as it was"), 0);
        let time = |name: &str| {
            fs::metadata(folder.join(name))
                .and_then(|file| file.modified())
                .expect("a time")
        };
        let before = time("a.rs");
        let second = files(&[("a.rs", "1"), ("b/c.rs", "4")]);
        assert_eq!(write(&folder, &second).expect("written"), 2);
        assert_eq!(time("a.rs"), before);
        assert_eq!(read(&folder.join("b/c.rs")).expect("there"), b"4");
        assert!(!folder.join("b/d/e.rs").exists());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
