//! Folders with the results of cells, which several workers write at the same time.
//!
//! The name of a file contains the SHA-256 of its contents. A file that was cut short is therefore recognized and not
//! used. Equal results of two workers become one file, and different results of one cell become two files. A file gets
//! its name only when it is complete and on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use crate::host::host_file::{self, LARGEST_DOCUMENT};
use crate::model::hash::hexadecimal_hash;

/// The prefix of the names of files that are not complete.
const UNFINISHED: &str = ".memwright-";
/// The length of a SHA-256 in hexadecimal digits.
const DIGITS: usize = 64;

/// The name of a file in such a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Name<'a> {
    /// A plan, by its hash.
    Plan(&'a str),
    /// A result, by the address of its cell and its hash.
    Result(&'a str, &'a str),
}

impl<'a> Name<'a> {
    /// Parses a file name. Returns `None` if a file of this name is neither a plan nor a result.
    fn parse(text: &'a str) -> Option<Self> {
        let is_hash = |text: &&str| {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            text.len() == DIGITS && text.bytes().all(is_digit)
        };
        let (kind, hashes) = text.strip_suffix(".json")?.split_once('-')?;
        match (kind, hashes.split_once('-')) {
            ("plan", None) => Some(hashes).filter(is_hash).map(Self::Plan),
            ("result", Some((address, hash))) => {
                let both = is_hash(&address) && is_hash(&hash);
                both.then_some(Self::Result(address, hash))
            }
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Plan(hash) => format!("plan-{hash}.json"),
            Self::Result(address, hash) => format!("result-{address}-{hash}.json"),
        }
    }

    fn hash(&self) -> &str {
        match self {
            Self::Plan(hash) | Self::Result(_, hash) => hash,
        }
    }
}

/// The files of a folder, as their names describe them. Their contents are not read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The hashes of the plans.
    pub plans: BTreeSet<String>,
    /// The hashes of the results of each cell, by the cell's address.
    pub results: BTreeMap<String, BTreeSet<String>>,
    /// Whether the folder has files that are neither plans nor results.
    has_others: bool,
}

/// A folder with the results of cells.
#[derive(Debug, Clone)]
pub struct Results {
    path: PathBuf,
}

impl Results {
    /// Opens a folder for a worker, and creates it if it does not exist.
    ///
    /// # Errors
    /// I/O errors, and an error if the folder has other files but no plan.
    pub fn create(path: &Path) -> anyhow::Result<(Self, Listing)> {
        fs::create_dir_all(path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        let results = Self {
            path: path.to_owned(),
        };
        let listing = results.list()?;
        if listing.has_others && listing.plans.is_empty() {
            bail!(
                "{} is not empty, and no folder of results: it has no plan-*.json",
                path.display()
            );
        }
        Ok((results, listing))
    }

    /// Opens a folder that workers have written.
    ///
    /// # Errors
    /// I/O errors, and an error if the folder has no plan.
    pub fn open(path: &Path) -> anyhow::Result<(Self, Listing)> {
        let results = Self {
            path: path.to_owned(),
        };
        let listing = results.list()?;
        if listing.plans.is_empty() {
            bail!(
                "{} is no folder of results: it has no plan-*.json",
                path.display()
            );
        }
        Ok((results, listing))
    }

    fn list(&self) -> anyhow::Result<Listing> {
        let context = || format!("cannot list {}", self.path.display());
        let mut listing = Listing::default();
        for entry in fs::read_dir(&self.path).with_context(context)? {
            let name = entry.with_context(context)?.file_name();
            let name = name.to_string_lossy();
            match Name::parse(&name) {
                Some(Name::Plan(hash)) => {
                    listing.plans.insert(hash.to_owned());
                }
                Some(Name::Result(address, hash)) => {
                    let hashes = listing.results.entry(address.to_owned()).or_default();
                    hashes.insert(hash.to_owned());
                }
                None => listing.has_others |= !name.starts_with(UNFINISHED),
            }
        }
        Ok(listing)
    }

    /// Writes a plan, and returns its hash.
    ///
    /// # Errors
    /// I/O errors of writing.
    pub fn write_plan(&self, text: &[u8]) -> anyhow::Result<String> {
        let hash = hexadecimal_hash(text);
        self.write(&Name::Plan(&hash), text)?;
        Ok(hash)
    }

    /// Writes the result of the cell with this address.
    ///
    /// # Errors
    /// I/O errors of writing.
    pub fn write_result(&self, address: &str, text: &[u8]) -> anyhow::Result<()> {
        self.write(&Name::Result(address, &hexadecimal_hash(text)), text)
    }

    /// Writes a file, which gets its name after its contents are on the disk.
    fn write(&self, name: &Name<'_>, text: &[u8]) -> anyhow::Result<()> {
        let path = self.path.join(name.text());
        let write = || -> std::io::Result<()> {
            let mut file = tempfile::Builder::new()
                .prefix(UNFINISHED)
                // Files are usually created with these permissions. Another user can then merge the results.
                .permissions(Permissions::from_mode(0o666))
                .tempfile_in(&self.path)?;
            file.write_all(text)?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            File::open(&self.path)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the path of a result by the address of its cell and its hash.
    pub fn result_path(&self, address: &str, hash: &str) -> PathBuf {
        self.path.join(Name::Result(address, hash).text())
    }

    /// Reads the plan with this hash.
    ///
    /// # Errors
    /// One line with the file's path if it cannot be read or was cut short.
    pub fn read_plan(&self, hash: &str) -> anyhow::Result<Vec<u8>> {
        self.read(&Name::Plan(hash))
    }

    /// Reads a result by the address of its cell and its hash.
    ///
    /// # Errors
    /// One line with the file's path if it cannot be read or was cut short.
    pub fn read_result(&self, address: &str, hash: &str) -> anyhow::Result<Vec<u8>> {
        self.read(&Name::Result(address, hash))
    }

    fn read(&self, name: &Name<'_>) -> anyhow::Result<Vec<u8>> {
        let path = self.path.join(name.text());
        let read = || -> anyhow::Result<Vec<u8>> {
            let text = host_file::read(&path, LARGEST_DOCUMENT)?;
            ensure!(
                hexadecimal_hash(&text) == name.hash(),
                "its {} bytes are not those that were written",
                text.len()
            );
            Ok(text)
        };
        read().with_context(|| path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(letter: &str) -> String {
        letter.repeat(DIGITS)
    }

    #[test]
    fn names_are_plans_and_results() {
        let (one, other) = (hash("a"), hash("0"));
        let names = [Name::Plan(&one), Name::Result(&one, &other)];
        for name in names {
            assert_eq!(Name::parse(&name.text()), Some(name));
        }
        for text in [
            "",
            "plan-.json",
            "plan-abc.json",
            "readme.json",
            &format!("plan-{one}"),
            &format!("plan-{}.json", hash("A")),
            &format!("plan-{one}-{other}.json"),
            &format!("result-{one}.json"),
            &format!("result-{one}-{other}-{one}.json"),
            &format!("{UNFINISHED}{one}"),
        ] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
    }

    #[test]
    fn equal_results_are_one_file_and_different_ones_two() {
        let host = tempfile::tempdir().unwrap();
        let (folder, _) = Results::create(&host.path().join("a/b")).unwrap();
        folder.write_plan(b"plan").unwrap();
        for text in ["x", "y", "x"] {
            folder.write_result(&hash("a"), text.as_bytes()).unwrap();
        }
        let (folder, listing) = Results::open(&folder.path).unwrap();
        assert_eq!((listing.plans.len(), listing.results.len()), (1, 1));
        let hashes = &listing.results[&hash("a")];
        let read = |hash_of: &String| folder.read_result(&hash("a"), hash_of).unwrap();
        let mut read: Vec<Vec<u8>> = hashes.iter().map(read).collect();
        read.sort();
        assert_eq!(read, [b"x", b"y"]);
        let mode = |entry: std::io::Result<fs::DirEntry>| {
            entry.unwrap().metadata().unwrap().permissions().mode()
        };
        let umask = mode(fs::read_dir(host.path()).unwrap().next().unwrap()) & 0o666;
        for entry in fs::read_dir(&folder.path).unwrap() {
            assert_eq!(mode(entry) & 0o777, umask);
        }
    }

    #[test]
    fn what_was_cut_short_is_not_read() {
        let host = tempfile::tempdir().unwrap();
        let (folder, _) = Results::create(host.path()).unwrap();
        folder.write_result(&hash("a"), b"a long result").unwrap();
        let path = fs::read_dir(host.path())
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let listing = folder.list().unwrap();
        let of_it = listing.results[&hash("a")].first().unwrap().clone();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(3)
            .unwrap();
        let error = folder.read_result(&hash("a"), &of_it).unwrap_err();
        assert!(
            format!("{error:#}").contains("its 3 bytes are not those"),
            "{error:#}"
        );
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        let error = folder.read_result(&hash("a"), &of_it).unwrap_err();
        assert!(
            format!("{error:#}").contains("larger than 64 MiB"),
            "{error:#}"
        );
        // Writing the same result again repairs the file.
        folder.write_result(&hash("a"), b"a long result").unwrap();
        assert_eq!(
            folder.read_result(&hash("a"), &of_it).unwrap(),
            b"a long result"
        );
    }

    #[test]
    fn other_folders_are_refused() {
        let host = tempfile::tempdir().unwrap();
        fs::write(
            host.path().join(format!("{UNFINISHED}x")),
            "of a worker that begins",
        )
        .unwrap();
        assert!(Results::create(host.path()).is_ok());
        assert!(Results::open(host.path()).is_err());
        fs::write(host.path().join("notes.txt"), "").unwrap();
        for error in [
            Results::create(host.path()).unwrap_err(),
            Results::open(host.path()).unwrap_err(),
            Results::open(&host.path().join("absent")).unwrap_err(),
            Results::create(&host.path().join("notes.txt")).unwrap_err(),
        ] {
            assert!(!error.to_string().is_empty());
        }
        let (folder, _) = Results::create(&host.path().join("new")).unwrap();
        folder.write_plan(b"plan").unwrap();
        fs::write(folder.path.join("slurm-1.out"), "").unwrap();
        assert!(Results::create(&folder.path).is_ok());
    }
}
