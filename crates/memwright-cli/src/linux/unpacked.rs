//! The files of a kernel's packages, unpacked into a folder.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{bail, ensure};

use crate::linux::built_tree;
use crate::linux::kept::{CONFIGURATION, IMAGE};
use crate::linux::modules;

/// The folder with the images and their configurations.
const BOOT: &str = "boot";
/// The possible folders of modules, each with a subfolder for every version. Since Debian's Linux 7.2, the subfolder
/// also has the image and its configuration.
const MODULES: [&str; 2] = ["usr/lib/modules", "lib/modules"];

/// The files of a kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// The kernel image.
    pub image: PathBuf,
    /// The configuration of the kernel, if the packages have it.
    pub configuration: Option<PathBuf>,
    /// The folder of its modules, which need not exist.
    pub modules: PathBuf,
}

/// A file of a kernel, in a folder with unpacked packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part<'a> {
    /// The image of this version.
    Image(&'a str),
    /// The configuration of this version.
    Configuration(&'a str),
    /// A module that guests load.
    Module,
}

/// Returns whether a folder has the folders of unpacked packages and is not a source tree of Linux.
pub fn is_unpacked(folder: &Path) -> bool {
    let mut folders = MODULES.iter().chain([&BOOT]);
    !built_tree::is_tree(folder) && folders.any(|name| folder.join(name).is_dir())
}

/// Returns whether a guest or [`find`] needs the file at this path. The path is relative to the root of a system.
pub fn is_needed(path: &Path) -> bool {
    part(path).is_some()
}

/// Returns which part of a kernel the file at this path is; `None` if no guest needs it. The path is relative to the
/// root of a system.
fn part(path: &Path) -> Option<Part<'_>> {
    let named = |name: &str, version| match name {
        IMAGE => Some(Part::Image(version)),
        CONFIGURATION => Some(Part::Configuration(version)),
        _ => None,
    };
    if let Ok(rest) = path.strip_prefix(BOOT) {
        let (name, version) = rest.to_str()?.split_once('-')?;
        return named(name, version);
    }
    let mut rests = MODULES.iter();
    let rest = rests.find_map(|folder| path.strip_prefix(folder).ok())?;
    let mut components = rest.components();
    let Component::Normal(version) = components.next()? else {
        return None;
    };
    let rest = components.as_path().to_str()?;
    match rest.strip_prefix("kernel/") {
        Some(module) => modules::all()
            .any(|known| {
                let suffix = module.strip_prefix(known);
                suffix.is_some_and(|suffix| suffix.starts_with(".ko"))
            })
            .then_some(Part::Module),
        None => named(rest, version.to_str()?),
    }
}

/// Returns the files of the kernel in a folder with unpacked packages.
///
/// # Errors
/// One line if the folder contains no image, or images of several versions. Also I/O errors.
pub fn find(folder: &Path) -> anyhow::Result<Unpacked> {
    let (mut images, mut configurations) = (Vec::new(), Vec::new());
    for path in candidates(folder)? {
        let relative = path.strip_prefix(folder).unwrap_or(&path);
        match part(relative) {
            Some(Part::Image(version)) => images.push((version.to_owned(), path)),
            Some(Part::Configuration(version)) => configurations.push((version.to_owned(), path)),
            Some(Part::Module) | None => {}
        }
    }
    let versions: BTreeSet<&str> = images.iter().map(|(version, _)| version.as_str()).collect();
    ensure!(
        versions.len() < 2,
        "has several images, of {}: name one of them",
        versions.into_iter().collect::<Vec<_>>().join(", ")
    );
    let Some((version, image)) = images.into_iter().next() else {
        bail!("has no image of Linux, {BOOT}/{IMAGE}-VERSION or lib/modules/VERSION/{IMAGE}");
    };
    let mut configurations = configurations.into_iter();
    let configuration = configurations.find(|(other, _)| *other == version);
    let modules = MODULES.map(|name| folder.join(name).join(&version).join("kernel"));
    let [usual, older] = modules;
    Ok(Unpacked {
        image,
        configuration: configuration.map(|(_, path)| path),
        modules: if usual.is_dir() { usual } else { older },
    })
}

/// Returns the files that can be an image or a configuration, sorted.
fn candidates(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut folders = vec![folder.join(BOOT)];
    for name in MODULES {
        let versions = fs::read_dir(folder.join(name)).into_iter().flatten();
        for version in versions {
            folders.push(version?.path());
        }
    }
    let mut found = Vec::new();
    for entry in folders.iter().flat_map(fs::read_dir).flatten() {
        let path = entry?.path();
        let is_module_folder = path.file_name() == Some(OsStr::new("kernel"));
        if !is_module_folder {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_file_says_what_it_is() {
        for (path, expected) in [
            (
                "boot/vmlinuz-6.1.0-9-amd64",
                Some(Part::Image("6.1.0-9-amd64")),
            ),
            ("boot/config-6.1", Some(Part::Configuration("6.1"))),
            ("boot/System.map-6.1", None),
            ("boot/vmlinuz", None),
            ("boot/grub/vmlinuz-6.1", None),
            ("usr/lib/modules/7.2/vmlinuz", Some(Part::Image("7.2"))),
            ("lib/modules/7.2/config", Some(Part::Configuration("7.2"))),
            (
                "lib/modules/7.2/kernel/mm/zsmalloc.ko.xz",
                Some(Part::Module),
            ),
            ("lib/modules/7.2/kernel/mm/zsmalloc.ko", Some(Part::Module)),
            ("lib/modules/7.2/kernel/mm/zsmalloc2.ko", None),
            ("lib/modules/7.2/kernel/drivers/net/tun.ko.xz", None),
            ("lib/modules/7.2", None),
            ("vmlinuz-6.1", None),
            ("", None),
        ] {
            assert_eq!(part(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn one_image_is_found_with_what_belongs_to_it() {
        for (files, expected) in [
            (
                &[
                    "boot/vmlinuz-6.1",
                    "boot/config-6.1",
                    "lib/modules/6.1/kernel/x",
                ][..],
                Ok((
                    "boot/vmlinuz-6.1",
                    Some("boot/config-6.1"),
                    "lib/modules/6.1/kernel",
                )),
            ),
            (
                &[
                    "usr/lib/modules/7.2/vmlinuz",
                    "usr/lib/modules/7.2/kernel/x",
                ],
                Ok((
                    "usr/lib/modules/7.2/vmlinuz",
                    None,
                    "usr/lib/modules/7.2/kernel",
                )),
            ),
            (
                &["boot/vmlinuz-6", "lib/modules/6/vmlinuz", "boot/config-5"],
                Ok(("boot/vmlinuz-6", None, "lib/modules/6/kernel")),
            ),
            (
                &["boot/vmlinuz-6", "boot/vmlinuz-5"],
                Err("has several images, of 5, 6"),
            ),
            (&["boot/config-6"], Err("has no image of Linux")),
            (&["usr/bin/true"], Err("has no image of Linux")),
        ] {
            let folder = tempfile::tempdir().unwrap();
            for file in files {
                let path = folder.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "x").unwrap();
            }
            let found = find(folder.path());
            match expected {
                Ok((image, configuration, modules)) => {
                    let at = |path: &str| folder.path().join(path);
                    let expected = Unpacked {
                        image: at(image),
                        configuration: configuration.map(at),
                        modules: at(modules),
                    };
                    assert_eq!(found.unwrap(), expected);
                }
                Err(words) => {
                    let error = found.unwrap_err().to_string();
                    assert!(error.starts_with(words), "{error}");
                }
            }
        }
    }
}
