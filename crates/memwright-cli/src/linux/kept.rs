//! Linux kernel images that are stored in the cache under names.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::host::cache;
use crate::host::host_file::{self, LARGEST_DOCUMENT};
use crate::linux::config_fragment::Lacking;
use crate::linux::modules::{self, LISTS};
use crate::linux::{built_tree, config_fragment};
use crate::model::image::{DEBIAN, MEMWRIGHT};
use crate::model::size::SwapKind;

/// The file name of the image.
pub const IMAGE: &str = "vmlinuz";
/// The file name of its configuration.
pub const CONFIGURATION: &str = "config";
/// The file name of its description.
pub const ABOUT: &str = "about.json";
/// The name of the folder with the modules that are stored with the image.
pub const MODULE_FOLDER: &str = "modules";
/// The file name of the kernel with debug information, if that was downloaded.
pub const DEBUG: &str = "vmlinux.debug";

/// The description of a stored image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The name of the image on the command line.
    pub name: String,
    /// Where the image is from: the package and its version, or the path of the copied file.
    pub source: String,
    /// SHA-256 of the image.
    pub sha256: String,
    /// SHA-256 of its configuration, if the package had one.
    pub config_sha256: Option<String>,
    /// The version text of the image.
    pub version: String,
    /// The version of the lists of modules ([`LISTS`]) with which the package's modules were stored.
    #[serde(default)]
    pub modules: u32,
}

/// Resolves an image given on the command line: the path of an image, the path of a tree in which an image was built,
/// or the name of a stored image.
///
/// # Errors
/// One line if `text` is none of these. The cause is an [`io::Error`] of the kind `NotFound`, unless the name has the
/// prefix [`DEBIAN`].
pub fn resolve(text: &str) -> anyhow::Result<(PathBuf, Option<Kept>)> {
    let path = Path::new(text);
    // No stored image has a name with a slash or with a dot at the beginning.
    if path.is_dir() && (text.contains('/') || text.starts_with('.')) {
        return Ok((built_tree::image(path)?, None));
    }
    if path.is_file() || text.contains('/') {
        return Ok((path.to_owned(), None));
    }
    let folder = place(text)?;
    match read(&folder) {
        Some(kept) => Ok((folder.join(IMAGE), Some(kept))),
        None if path.is_dir() => Ok((built_tree::image(path)?, None)),
        None if text.starts_with(DEBIAN) => {
            bail!("{text} is not here yet: memwright kernels add {text}")
        }
        None => {
            let words = format!(
                "{text}: no such file, and no kernel of that name (memwright kernels list)"
            );
            Err(io::Error::new(io::ErrorKind::NotFound, words).into())
        }
    }
}

/// Reads the configuration given on the command line: a `.config` file, a tree with such a file, or the configuration
/// of a stored image. Returns the options that the configuration lacks.
///
/// # Errors
/// One line if there is no such file, or if it is not a configuration.
pub fn configuration(text: &str) -> anyhow::Result<Lacking> {
    let path = Path::new(text);
    let path = if path.is_dir() {
        path.join(built_tree::CONFIGURATION)
    } else if path.exists() || text.contains('/') {
        path.to_owned()
    } else {
        let stored = place(text)?.join(CONFIGURATION);
        ensure!(
            stored.exists(),
            "{text}: no such file, and no kernel of that name has a configuration (memwright kernels list)"
        );
        stored
    };
    let bytes = host_file::read(&path, LARGEST_DOCUMENT);
    let bytes = bytes.with_context(|| path.display().to_string())?;
    config_fragment::lacking(&bytes)
        .with_context(|| format!("{}: is not a configuration of Linux", path.display()))
}

/// Returns the folder of all stored images.
///
/// # Errors
/// One line if no folder for a cache can be determined.
pub fn folder() -> anyhow::Result<PathBuf> {
    Ok(cache::folder()?.join("kernels"))
}

/// Returns the folder of the image with this name, which must be valid as a folder name.
///
/// # Errors
/// If the name is invalid, or if no folder for a cache can be determined.
pub fn place(name: &str) -> anyhow::Result<PathBuf> {
    // A Debian package can have a version: `debian:SUITE=VERSION`.
    let versioned = name.starts_with(DEBIAN);
    let plain = |byte: u8| {
        byte.is_ascii_alphanumeric() || b"-_.:+~".contains(&byte) || versioned && byte == b'='
    };
    ensure!(
        !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain),
        "{name:?}: a kernel's name is of letters, digits and -_.:+~"
    );
    ensure!(name != MEMWRIGHT, "{name} is Memwright's own kernel");
    Ok(folder()?.join(name))
}

/// Returns the description of the image in a folder. Returns `None` if there is no image, or if a Debian package was
/// stored with an older version of the lists of modules.
fn read(folder: &Path) -> Option<Kept> {
    let text = host_file::read(&folder.join(ABOUT), LARGEST_DOCUMENT);
    let kept: Kept = serde_json::from_slice(&text.ok()?).ok()?;
    let is_current = kept.modules == LISTS || !kept.name.starts_with(DEBIAN);
    is_current.then_some(kept)
}

/// Returns the path where an image's debug information would be: a file next to it, the vmlinux of the tree in which it
/// was built, or the image itself if it is an ELF file.
pub fn debug_file(image: &Path) -> Option<PathBuf> {
    let beside = image.with_file_name(DEBUG);
    let built = || built_tree::debug_file(image);
    if let Some(path) = beside.is_file().then_some(beside).or_else(built) {
        return Some(path);
    }
    let mut magic = [0; 4];
    let mut file = fs::File::open(image).ok()?;
    std::io::Read::read_exact(&mut file, &mut magic).ok()?;
    (magic == object::elf::ELFMAG).then(|| image.to_owned())
}

/// Returns the modules that are stored with an image for this kind of swap, in the order of loading. Returns none if no
/// modules are stored.
///
/// # Errors
/// If a module cannot be read.
pub fn modules(image: &Path, kind: SwapKind) -> anyhow::Result<Vec<PathBuf>> {
    let folder = image.with_file_name(MODULE_FOLDER);
    let Ok(entries) = fs::read_dir(&folder) else {
        return Ok(Vec::new());
    };
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths
        .map_err(|error: std::io::Error| error)
        .with_context(|| folder.display().to_string())?;
    paths.retain(|path| modules::serves(path, kind));
    paths.sort();
    Ok(paths)
}

/// Returns every stored image, sorted by name.
///
/// # Errors
/// One line if no folder for a cache can be determined.
pub fn all() -> anyhow::Result<Vec<Kept>> {
    let entries = fs::read_dir(folder()?).into_iter().flatten().flatten();
    let mut kept: Vec<Kept> = entries.filter_map(|entry| read(&entry.path())).collect();
    kept.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(kept)
}

/// Removes a stored image.
///
/// # Errors
/// If there is no image with this name, or I/O errors of removing its folder.
pub fn remove(name: &str) -> anyhow::Result<()> {
    let folder = place(name)?;
    ensure!(
        folder.join(ABOUT).exists(),
        "no kernel is called {name} (memwright kernels list)"
    );
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for (name, good) in [
            ("debian:trixie", true),
            ("debian:trixie=6.12.1-1~bpo12+1", true),
            ("trixie=6.12", false),
            ("6.12.1+x~1", true),
            ("", false),
            (".hidden", false),
            ("a/b", false),
            ("a b", false),
        ] {
            assert_eq!(place(name).is_ok(), good, "{name}");
        }
    }
}
