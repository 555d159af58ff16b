//! A Linux source tree in which a kernel was built.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::linux::kept::{CONFIGURATION, DEBUG, IMAGE, MODULE_FOLDER};
use crate::linux::modules;

/// The paths of the images that `make` creates, relative to the tree. The second has the debug information.
const BUILT: [&str; 2] = ["arch/x86/boot/bzImage", "vmlinux"];
/// The name of the configuration.
const TREE_CONFIGURATION: &str = ".config";

/// Returns the image that was built in a tree: the bzImage, or else the vmlinux.
///
/// # Errors
/// One line if the tree has neither, whose cause is an [`io::Error`] of the kind `NotFound`; or if the bzImage is older
/// than the vmlinux, from which `make` creates it.
pub fn image(tree: &Path) -> anyhow::Result<PathBuf> {
    let [compressed, plain] = BUILT.map(|path| tree.join(path));
    let built = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    match (built(&compressed), built(&plain)) {
        (Some(time), Some(source)) => {
            ensure!(
                time >= source,
                "{} is older than {}: run make bzImage",
                BUILT[0],
                BUILT[1]
            );
            Ok(compressed)
        }
        (Some(_), None) => Ok(compressed),
        (None, Some(_)) => Ok(plain),
        (None, None) => {
            let [compressed, plain] = BUILT;
            let words =
                format!("a folder with no {compressed} and no {plain} (is the kernel built?)");
            Err(io::Error::new(io::ErrorKind::NotFound, words).into())
        }
    }
}

/// Returns the tree's vmlinux, if `image` is the bzImage of a tree that has one.
pub fn debug_file(image: &Path) -> Option<PathBuf> {
    let [compressed, plain] = BUILT;
    let image = std::path::absolute(image).ok()?;
    let depth = Path::new(compressed).components().count();
    let tree = image.ancestors().nth(depth)?;
    let vmlinux = tree.join(plain);
    (image.ends_with(compressed) && vmlinux.is_file()).then_some(vmlinux)
}

/// Copies what a guest needs from a tree to the folder `fresh`: the image, its configuration, and the modules for swap;
/// with `debug`, the vmlinux too.
///
/// # Errors
/// Those of [`image`], or I/O errors.
pub fn copy(tree: &Path, fresh: &Path, debug: bool) -> anyhow::Result<()> {
    let take = |from: &Path, name: &str| {
        let copied = fs::copy(from, fresh.join(name));
        copied.with_context(|| format!("cannot copy {}", from.display()))
    };
    take(&image(tree)?, IMAGE)?;
    let configuration = tree.join(TREE_CONFIGURATION);
    if configuration.is_file() {
        take(&configuration, CONFIGURATION)?;
    }
    if debug {
        take(&tree.join(BUILT[1]), DEBUG)?;
    }
    copy_modules(tree, &fresh.join(MODULE_FOLDER))
}

/// Copies the modules for swap from `from`, a tree or the folder of a kernel's modules, to the new folder `to`, under
/// names that sort in the order of loading.
///
/// # Errors
/// I/O errors.
pub fn copy_modules(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for (index, module) in modules::all().enumerate() {
        let (folder, name) = module.rsplit_once('/').unwrap_or(("", module));
        for suffix in ["ko", "ko.xz", "ko.zst"] {
            let path = from.join(folder).join(format!("{name}.{suffix}"));
            if path.is_file() {
                let place = to.join(format!("{index:02}-{name}.{suffix}"));
                fs::copy(&path, place)
                    .with_context(|| format!("cannot copy {}", path.display()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn built(tree: &Path, path: &str, age: u64) {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::File::create(path).unwrap();
        let time = SystemTime::now() - Duration::from_secs(age);
        file.set_modified(time).unwrap();
    }

    #[test]
    fn the_compressed_image_comes_first_unless_it_is_stale() {
        let tree = tempfile::tempdir().unwrap();
        let tree = tree.path();
        let missing = image(tree).unwrap_err();
        let kind = missing.downcast_ref::<io::Error>().map(io::Error::kind);
        assert_eq!(kind, Some(io::ErrorKind::NotFound));
        built(tree, "vmlinux", 20);
        assert_eq!(image(tree).unwrap(), tree.join("vmlinux"));
        built(tree, BUILT[0], 10);
        assert_eq!(image(tree).unwrap(), tree.join(BUILT[0]));
        assert_eq!(debug_file(&tree.join(BUILT[0])), Some(tree.join("vmlinux")));
        assert_eq!(debug_file(&tree.join("boot/bzImage")), None);
        built(tree, "vmlinux", 5);
        let stale = image(tree).unwrap_err().to_string();
        assert!(stale.ends_with("run make bzImage"), "{stale}");
    }

    #[test]
    fn a_guest_gets_the_image_its_configuration_and_its_modules() {
        let tree = tempfile::tempdir().unwrap();
        let fresh = tempfile::tempdir().unwrap();
        for path in [
            BUILT[0],
            ".config",
            "mm/zsmalloc.ko",
            "drivers/net/other.ko",
        ] {
            built(tree.path(), path, 0);
        }
        copy(tree.path(), fresh.path(), false).unwrap();
        let modules = fs::read_dir(fresh.path().join(MODULE_FOLDER)).unwrap();
        let modules: Vec<_> = modules.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(modules, ["04-zsmalloc.ko"]);
        assert!(fresh.path().join(IMAGE).is_file() && fresh.path().join(CONFIGURATION).is_file());
        let no_debug = copy(tree.path(), fresh.path(), true).unwrap_err();
        assert!(no_debug.to_string().contains("vmlinux"), "{no_debug}");
    }
}
