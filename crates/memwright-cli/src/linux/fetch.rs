//! Stores a kernel image in the cache under a name. The image is from Debian's archive, or from the user's package, tree
//! or file.

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use rustix::fs::{FlockOperation, flock};

use crate::host::apt::{Archive, mirror};
use crate::host::deb;
use crate::host::folder::PrivateFolder;
use crate::host::host_file::{self, LARGEST_DOCUMENT, LARGEST_IMAGE};
use crate::host::output::say;
use crate::linux::kept::{
    self, ABOUT, CONFIGURATION, DEBUG, IMAGE, Kept, MODULE_FOLDER, folder, place,
};
use crate::linux::modules::{self, LISTS};
use crate::linux::{built_tree, config_fragment, image, unpacked};
use crate::model::failure::Failure;
use crate::model::hash::hexadecimal_hash;
use crate::model::image::{DEBIAN, split_name};

/// The Debian package that always depends on the package with the newest image.
const PACKAGE: &str = "linux-image-cloud-amd64";
/// The prefix of the names of packages with images, and the suffix of the names of packages with the same flavour as
/// [`PACKAGE`].
const IMAGES: &str = "linux-image-";
const FLAVOUR: &str = "-cloud-amd64";
/// The file that is locked while an image is obtained. No image can have its name.
const LOCK: &str = ".lock";

/// Stores an image under a name.
///
/// # Errors
/// A usage error if the argument does not describe an image, or an environment error if the image cannot be downloaded
/// or stored.
pub fn add(text: &str, debug: Option<&Option<PathBuf>>) -> Result<Kept, Failure> {
    let work = work_folder().map_err(Failure::Environment)?;
    let fresh = work.path().join("kernel");
    fs::create_dir(&fresh).context("cannot write to the cache")?;
    let (name, source) = match text.strip_prefix(DEBIAN) {
        Some(suite) => {
            place(text).map_err(Failure::Usage)?;
            let source = fetch(suite, work.path(), &fresh, debug.is_some())?;
            (text.to_owned(), source)
        }
        None => {
            let copied = copy(text, work.path(), &fresh, debug == Some(&None));
            copied.map_err(Failure::Usage)?
        }
    };
    if let Some(Some(path)) = debug {
        let context = || path.display().to_string();
        let bytes = host_file::read(path, LARGEST_IMAGE).with_context(context);
        let bytes = bytes.map_err(Failure::Usage)?;
        fs::write(fresh.join(DEBUG), bytes).context("cannot write to the cache")?;
    }
    let bytes =
        host_file::read(&fresh.join(IMAGE), LARGEST_IMAGE).context("cannot read the image")?;
    image::check(&bytes, text).map_err(|error| Failure::Usage(error.into()))?;
    keep(&fresh, &name, source, &bytes).map_err(Failure::Environment)
}

/// Stores the image of the Debian package to which the name `name` refers, if it is not stored already.
///
/// # Errors
/// The errors of [`add`].
pub fn obtain(name: &str) -> Result<(), Failure> {
    let is_stored = || kept::resolve(name).is_ok();
    if is_stored() {
        return Ok(());
    }
    let lock = lock().map_err(Failure::Environment)?;
    // Another command can have stored the image before this command got the lock. That command may already read the
    // image, so this command does not replace it.
    if !is_stored() {
        add(name, None)?;
    }
    drop(lock);
    Ok(())
}

/// Waits until no other command is obtaining an image. Other commands wait while the returned file is open.
fn lock() -> anyhow::Result<File> {
    let folder = folder()?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join(LOCK);
    let context = || format!("cannot lock {}", path.display());
    let file = File::create(&path).with_context(context)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        say("waiting for another command that fetches a kernel");
        flock(&file, FlockOperation::LockExclusive).with_context(context)?;
    }
    Ok(file)
}

/// Creates a temporary folder in which an image is prepared. An incomplete image therefore never has its final name.
fn work_folder() -> anyhow::Result<PrivateFolder> {
    let parent = folder()?;
    fs::create_dir_all(&parent).with_context(|| format!("cannot create {}", parent.display()))?;
    PrivateFolder::within(&parent).with_context(|| format!("cannot write to {}", parent.display()))
}

/// Writes the description of the prepared image, and renames the folder `fresh` to the image's final folder in the
/// cache.
fn keep(fresh: &Path, name: &str, source: String, bytes: &[u8]) -> anyhow::Result<Kept> {
    let configuration = host_file::read(&fresh.join(CONFIGURATION), LARGEST_DOCUMENT).ok();
    let kept = Kept {
        name: name.to_owned(),
        source,
        sha256: hexadecimal_hash(bytes),
        config_sha256: configuration.map(|bytes| hexadecimal_hash(&bytes)),
        version: image::version(bytes),
        modules: LISTS,
    };
    fs::write(fresh.join(ABOUT), serde_json::to_vec_pretty(&kept)?)?;
    let folder = place(name)?;
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot replace {}", folder.display()))?;
    }
    fs::rename(fresh, &folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(kept)
}

/// Copies an image to the folder `fresh`. `text` is `[NAME=]PATH`, where PATH is an image, a Debian package, a folder
/// with unpacked packages, or a tree. With `debug`, also copies the tree's debug information. Returns the name and the
/// absolute path.
///
/// # Errors
/// If `debug` is set although PATH is not a tree, or if PATH cannot be copied.
fn copy(text: &str, work: &Path, fresh: &Path, debug: bool) -> anyhow::Result<(String, String)> {
    let (name, path) = split_name(text);
    let path = Path::new(path);
    let name = name.map_or_else(
        || path.file_name().unwrap_or_default().to_string_lossy(),
        Cow::from,
    );
    place(&name)?;
    let is_tree = path.is_dir() && !unpacked::is_unpacked(path);
    ensure!(
        is_tree || !debug,
        "--debug: name the vmlinux of the same build (--debug=VMLINUX)"
    );
    if is_tree {
        copy_tree(path, fresh, debug)?;
    } else if path.is_dir() {
        copy_unpacked(path, fresh).with_context(|| path.display().to_string())?;
    } else if deb::is_package(path) {
        let root = work.join("root");
        fs::create_dir(&root).context("cannot write to the cache")?;
        deb::unpack(path, &root, unpacked::is_needed)?;
        copy_unpacked(&root, fresh).with_context(|| path.display().to_string())?;
    } else {
        copy_file(path, &fresh.join(IMAGE), LARGEST_IMAGE)?;
    }
    say_what_is_lacking(&name, &fresh.join(CONFIGURATION));
    let source = std::path::absolute(path)?.display().to_string();
    Ok((name.into_owned(), source))
}

/// Copies what a guest needs from a folder with unpacked packages to the folder `fresh`: the image, its configuration,
/// and the modules for swap.
///
/// # Errors
/// If the folder does not contain one image, or I/O errors.
fn copy_unpacked(root: &Path, fresh: &Path) -> anyhow::Result<()> {
    let found = unpacked::find(root)?;
    copy_file(&found.image, &fresh.join(IMAGE), LARGEST_IMAGE)?;
    if let Some(configuration) = &found.configuration {
        copy_file(configuration, &fresh.join(CONFIGURATION), LARGEST_DOCUMENT)?;
    }
    copy_modules(&found.modules, &fresh.join(MODULE_FOLDER))
}

/// Copies a regular file of at most `most` bytes.
///
/// # Errors
/// The errors of [`host_file::read`], with the path, or if the copy cannot be written.
fn copy_file(from: &Path, to: &Path, most: u64) -> anyhow::Result<()> {
    let bytes = host_file::read(from, most).with_context(|| from.display().to_string())?;
    fs::write(to, bytes).context("cannot write to the cache")
}

/// Copies what a guest needs from a tree to the folder `fresh`: the image, its configuration, and the modules for swap;
/// with `debug`, the vmlinux too.
///
/// # Errors
/// The errors of [`built_tree::image`], or I/O errors.
fn copy_tree(tree: &Path, fresh: &Path, debug: bool) -> anyhow::Result<()> {
    let image = built_tree::image(tree).with_context(|| tree.display().to_string())?;
    copy_file(&image, &fresh.join(IMAGE), LARGEST_IMAGE)?;
    let configuration = tree.join(built_tree::CONFIGURATION);
    if configuration.is_file() {
        copy_file(&configuration, &fresh.join(CONFIGURATION), LARGEST_DOCUMENT)?;
    }
    if debug {
        copy_file(
            &tree.join(built_tree::VMLINUX),
            &fresh.join(DEBUG),
            LARGEST_IMAGE,
        )?;
    }
    copy_modules(tree, &fresh.join(MODULE_FOLDER))
}

/// Prints a warning if the configuration of the image with this name lacks options that every run needs. A tree without
/// a configuration gives no warning.
fn say_what_is_lacking(name: &str, configuration: &Path) {
    let bytes = host_file::read(configuration, LARGEST_DOCUMENT).ok();
    let lacking = bytes.and_then(|bytes| config_fragment::lacking(&bytes));
    let options = lacking.map_or_else(Vec::new, |lacking| lacking.names(true));
    if !options.is_empty() {
        say(&format!(
            "{name}: its configuration lacks what every run needs: {} (memwright kernels config {name})",
            options.join(", ")
        ));
    }
}

/// Copies the modules for swap from `from`, a tree or the folder of a kernel's modules, to the new folder `to`, under
/// names that sort in the order of loading.
///
/// # Errors
/// I/O errors.
fn copy_modules(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for (index, module) in modules::all().enumerate() {
        let (folder, name) = module.rsplit_once('/').unwrap_or(("", module));
        for suffix in ["ko", "ko.xz", "ko.zst"] {
            let path = from.join(folder).join(format!("{name}.{suffix}"));
            if path.is_file() {
                let place = to.join(format!("{index:02}-{name}.{suffix}"));
                copy_file(&path, &place, LARGEST_IMAGE)?;
            }
        }
    }
    Ok(())
}

/// Downloads and unpacks an image of a suite into the folder `fresh`: that of the version in `SUITE=VERSION`, otherwise
/// the newest. Returns its package and version.
///
/// # Errors
/// A usage error if the suite does not have the version, or an environment error if apt fails or the cache cannot be
/// written.
fn fetch(wanted: &str, work: &Path, fresh: &Path, debug: bool) -> Result<String, Failure> {
    let (suite, version) = match wanted.split_once('=') {
        Some((suite, version)) => (suite, Some(version)),
        None => (wanted, None),
    };
    say(&format!(
        "fetching {PACKAGE} of Debian's {wanted} (nothing is installed)"
    ));
    let open = || Archive::open(work, &mirror()?, suite);
    let archive = open().map_err(Failure::Environment)?;
    let (package, version) = match version {
        None => newest_of(&archive, suite).map_err(Failure::Environment)?,
        Some(version) => {
            let offered = offered_by(&archive).map_err(Failure::Environment)?;
            choose(&offered, suite, version).map_err(Failure::Usage)?
        }
    };
    download(&archive, &package, work, fresh, debug).map_err(Failure::Environment)?;
    Ok(format!("{package} {version}"))
}

/// Returns the package and version of the suite's newest image.
fn newest_of(archive: &Archive<'_>, suite: &str) -> anyhow::Result<(String, String)> {
    let shown = archive.show(&[PACKAGE])?;
    newest(&shown).with_context(|| format!("{PACKAGE} of {suite} depends on no image"))
}

/// Returns the package and version of each image in the suite.
fn offered_by(archive: &Archive<'_>) -> anyhow::Result<Vec<(String, String)>> {
    let names = archive.names(IMAGES)?;
    let images: Vec<&str> = names.lines().filter(|name| is_image(name)).collect();
    if images.is_empty() {
        return Ok(Vec::new());
    }
    Ok(versions(&archive.show(&images)?))
}

/// Returns whether a package contains an image. A metapackage only depends on a package that contains one.
fn is_image(package: &str) -> bool {
    let version = package.strip_prefix(IMAGES);
    let version = version.and_then(|rest| rest.strip_suffix(FLAVOUR));
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

/// Returns the package and version of each stanza.
fn versions(shown: &str) -> Vec<(String, String)> {
    let stanza = |stanza: &str| {
        let value = |field: &str| stanza.lines().find_map(|line| line.strip_prefix(field));
        Some((
            value("Package: ")?.to_owned(),
            value("Version: ")?.to_owned(),
        ))
    };
    shown.split("\n\n").filter_map(stanza).collect()
}

/// Returns the package and version of the image with this version.
///
/// # Errors
/// If the suite does not have the version. The error lists the versions that the suite has.
fn choose(
    offered: &[(String, String)],
    suite: &str,
    version: &str,
) -> anyhow::Result<(String, String)> {
    if let Some(found) = offered.iter().find(|(_, one)| one == version) {
        return Ok(found.clone());
    }
    let mut others: Vec<&str> = offered.iter().map(|(_, one)| one.as_str()).collect();
    others.sort_by_key(|version| numbers(version));
    ensure!(
        !others.is_empty(),
        "Debian's {suite} has no kernel {version}, and no other one for the cloud"
    );
    bail!(
        "Debian's {suite} has no kernel {version}; it has {} (memwright kernels add {DEBIAN}{suite}=VERSION)",
        others.join(", ")
    )
}

/// Returns the numbers in a version text, which are the key by which versions are sorted.
fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split(|letter: char| !letter.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// Downloads a package with an image, and unpacks what a guest needs of it into the folder `fresh`.
fn download(
    archive: &Archive<'_>,
    package: &str,
    work: &Path,
    fresh: &Path,
    debug: bool,
) -> anyhow::Result<()> {
    let parts = parts(&archive.show(&[package])?);
    let mut packages = vec![package];
    packages.extend(parts.iter().map(String::as_str));
    archive.unpack(&packages, unpacked::is_needed)?;
    copy_unpacked(&work.join("root"), fresh).with_context(|| package.to_owned())?;
    if debug {
        let package = format!("{package}-dbg");
        say(&format!("fetching {package}: this takes a while"));
        archive.unpack_one(&package, "vmlinux", &fresh.join(DEBUG))?;
    }
    Ok(())
}

/// Returns the packages with the other parts of the kernel, if Debian splits the package of the first stanza into
/// several.
fn parts(shown: &str) -> Vec<String> {
    let depends = shown
        .lines()
        .find_map(|line| line.strip_prefix("Depends: "));
    let names = depends.unwrap_or_default().split(',').filter_map(|name| {
        let name = name.split_whitespace().next()?;
        let part = ["linux-base-", "linux-binary-", "linux-modules-"];
        let is_part = part.iter().any(|prefix| name.starts_with(prefix));
        is_part.then(|| name.to_owned())
    });
    names.collect()
}

/// Returns the name and version of the image package on which the package of the first stanza depends.
fn newest(shown: &str) -> Option<(String, String)> {
    let value = |field: &str| shown.lines().find_map(|line| line.strip_prefix(field));
    let depends = value("Depends: ")?.split(',');
    let image = depends
        .map(str::trim)
        .find(|name| name.starts_with(IMAGES))?;
    let name = image.split_whitespace().next()?;
    Some((name.to_owned(), value("Version: ")?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_what_the_newest_depends_on() {
        let shown = "Package: linux-image-cloud-amd64\nVersion: 6.12.107-1\n\
            Depends: linux-image-6.12.107+deb13-cloud-amd64 (= 6.12.107-1)\n\nVersion: 5\n";
        let expected = ("linux-image-6.12.107+deb13-cloud-amd64", "6.12.107-1");
        let found = newest(shown).unwrap();
        assert_eq!((found.0.as_str(), found.1.as_str()), expected);
        assert_eq!(newest("Version: 1\nDepends: other\n"), None);
    }

    #[test]
    fn a_version_that_the_suite_lacks_is_answered_with_those_that_it_has() {
        let shown = "Package: linux-image-6.12.107+deb13-cloud-amd64\nSource: linux\nVersion: 6.12.107-1\n\n\
            Package: linux-image-6.12.94+deb13-cloud-amd64\nVersion: 6.12.94-1\n";
        let offered = versions(shown);
        let found = choose(&offered, "trixie", "6.12.107-1").unwrap();
        assert_eq!(found.0, "linux-image-6.12.107+deb13-cloud-amd64");
        for version in ["6.12.1-1", "", "6.12.117"] {
            let error = choose(&offered, "trixie", version).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "Debian's trixie has no kernel {version}; it has 6.12.94-1, 6.12.107-1 \
                     (memwright kernels add debian:trixie=VERSION)"
                )
            );
        }
        let none = choose(&[], "sid", "7").unwrap_err().to_string();
        assert!(none.contains("no other one"), "{none}");
        for (name, expected) in [
            ("linux-image-6.12.107+deb13-cloud-amd64", true),
            ("linux-image-cloud-amd64", false),
            ("linux-image-6.12.107+deb13-cloud-amd64-dbg", false),
            ("linux-image-6.12.107+deb13-amd64", false),
            ("linux-headers-6.12.107+deb13-cloud-amd64", false),
        ] {
            assert_eq!(is_image(name), expected, "{name}");
        }
    }

    #[test]
    fn an_image_may_be_spread_over_packages() {
        let shown = "Package: linux-image-7\nDepends: dracut | initramfs-tools (>= 0.120), linux-base-7 (= 7-1), \
            linux-binary-7 (= 7-1), linux-modules-7 (= 7-1)\n";
        let expected = ["linux-base-7", "linux-binary-7", "linux-modules-7"];
        assert_eq!(parts(shown), expected);
        assert!(parts("Package: x\nDepends: kmod, linux-base (>= 4.3~)\n").is_empty());
    }

    #[test]
    fn a_guest_gets_the_image_its_configuration_and_its_modules() {
        let tree = tempfile::tempdir().unwrap();
        let fresh = tempfile::tempdir().unwrap();
        for path in [
            "arch/x86/boot/bzImage",
            ".config",
            "mm/zsmalloc.ko",
            "drivers/net/other.ko",
        ] {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "built").unwrap();
        }
        copy_tree(tree.path(), fresh.path(), false).unwrap();
        let modules = fs::read_dir(fresh.path().join(MODULE_FOLDER)).unwrap();
        let modules: Vec<_> = modules.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(modules, ["04-zsmalloc.ko"]);
        assert!(fresh.path().join(IMAGE).is_file() && fresh.path().join(CONFIGURATION).is_file());
        let no_debug = copy_tree(tree.path(), fresh.path(), true).unwrap_err();
        assert!(no_debug.to_string().contains("vmlinux"), "{no_debug}");
    }
}
