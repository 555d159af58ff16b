//! Finds the names that a program looked up on a Linux kernel and that its guest lacked.
//!
//! The guest has only the files of the tree of `--root` that the run on Memwright used. If the program looks up another
//! file of the tree on this kernel, it does not find the file, although it would find it on a machine with the complete
//! tree.

use std::collections::BTreeSet;

use crate::guestfs::root::{Record, RootTree};
use crate::host::output::say;

/// The maximum number of names that are printed for a kernel.
const MOST_PRINTED: usize = 5;

/// Returns the paths in the tree that the program looked up without success. Paths that the run on Memwright found are
/// omitted: these files are in the guest unless the program has removed them.
pub fn missed(root: &RootTree, seen: &Record, not_found: &[Vec<u8>]) -> Vec<String> {
    let in_tree = not_found.iter().filter_map(|path| {
        // A path that does not exist in the tree either is not missed.
        let path = root.resolve(path).ok().flatten()?;
        let was_found = matches!(seen.node(&path), Some(Some(_)));
        (!was_found && !path.is_empty()).then_some(path)
    });
    let paths: BTreeSet<Vec<u8>> = in_tree.collect();
    let shown = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
    paths.iter().map(shown).collect()
}

/// Prints the names that the program missed on a kernel, if any.
pub fn say_missed(kernel: &str, names: Option<&[String]>) {
    let names = names.unwrap_or_default();
    for name in names.iter().take(MOST_PRINTED) {
        say(&format!(
            "{kernel}: the program did not find {name}, which the run on Memwright did not look up: --file {name} adds it"
        ));
    }
    if let Some(more @ 1..) = names.len().checked_sub(MOST_PRINTED) {
        say(&format!(
            "{kernel}: nor {more} more names of the tree; --json lists them"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guestfs::root::RootNode;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_of_the_tree_that_the_guest_lacks_are_missed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("lib/inner")).unwrap();
        fs::create_dir_all(at("proc")).unwrap();
        for name in ["lib/used", "lib/inner/unused", "proc/own"] {
            fs::write(at(name), name).unwrap();
        }
        symlink("inner", at("lib/link")).unwrap();
        symlink("loop", at("lib/loop")).unwrap();
        let root = RootTree::open(folder.path()).unwrap();
        let mut seen = Record::default();
        seen.found(b"/lib", Some(RootNode::Folder { mode: 0o755 }));
        seen.found(b"/lib/used", root.node(b"/lib/used").unwrap());
        seen.found(b"/lib/absent", None);
        for (looked_up, expected) in [
            ("/lib/inner/unused", Some("/lib/inner/unused")),
            ("/lib/link/unused", Some("/lib/inner/unused")),
            ("/lib/./inner/../inner/unused", Some("/lib/inner/unused")),
            // The program removed this file of the tree from its guest.
            ("/lib/used", None),
            ("/lib/absent", None),
            ("/lib/loop", None),
            ("/proc/own", None),
            ("/", None),
        ] {
            let names = missed(&root, &seen, &[looked_up.as_bytes().to_vec()]);
            assert_eq!(names.first().map(String::as_str), expected, "{looked_up}");
        }
        let twice = ["/lib/inner/unused", "/lib/link/unused"].map(|path| path.as_bytes().to_vec());
        assert_eq!(missed(&root, &seen, &twice).len(), 1);
    }
}
