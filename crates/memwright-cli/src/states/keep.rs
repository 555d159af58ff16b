//! Limits the total size of the snapshots in the cache.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// The maximum total size of the snapshots, in bytes.
pub const MOST: u64 = 2 << 30;
/// The suffix of the file names of snapshots.
pub const SUFFIX: &str = ".state";

/// A snapshot file in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    name: String,
    size: u64,
    used: SystemTime,
}

/// Returns the names of the files to remove, least recently used first. The files that remain have at most `most` bytes
/// in total.
fn excess(mut files: Vec<Kept>, most: u64) -> Vec<String> {
    let mut total: u64 = files.iter().map(|file| file.size).sum();
    files.sort_by(|one, other| (one.used, &one.name).cmp(&(other.used, &other.name)));
    let mut gone = Vec::new();
    for file in files {
        if total <= most {
            break;
        }
        total -= file.size;
        gone.push(file.name);
    }
    gone
}

/// Removes the least recently used snapshots in a folder until the files that remain have at most `most` bytes in
/// total.
///
/// # Errors
/// I/O errors of listing the folder. Errors of removing a file are ignored, because another command may be removing it.
pub fn bound(folder: &Path, most: u64) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(about) = entry.metadata() else {
            continue;
        };
        if name.ends_with(SUFFIX) && about.is_file() {
            files.push(Kept {
                name,
                size: about.len(),
                used: about.modified()?,
            });
        }
    }
    for name in excess(files, most) {
        let _ = fs::remove_file(folder.join(name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let file = |name: &str, size, used| Kept {
            name: name.to_owned(),
            size,
            used: at(used),
        };
        let files = vec![
            file("new", 40, 9),
            file("old", 30, 1),
            file("middle", 50, 5),
        ];
        for (most, expected) in [
            (120, &[][..]),
            (119, &["old"]),
            (90, &["old"]),
            (89, &["old", "middle"]),
            (39, &["old", "middle", "new"]),
        ] {
            assert_eq!(excess(files.clone(), most), expected, "{most}");
        }
    }

    #[test]
    fn a_folder_is_bounded_and_other_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        for (name, used) in [("a.state", 3), ("b.state", 1), ("other", 0)] {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_len(100).unwrap();
            file.set_modified(at(used)).unwrap();
        }
        bound(folder.path(), 150).unwrap();
        let left = |name: &str| folder.path().join(name).exists();
        assert!(left("a.state") && !left("b.state") && left("other"));
    }
}
