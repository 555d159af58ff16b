//! A Linux source tree in which a kernel was built.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::ensure;

/// The paths of the images that `make` creates, relative to the tree.
const BUILT: [&str; 2] = ["arch/x86/boot/bzImage", VMLINUX];
/// A folder by which a source tree is recognised.
const ARCHITECTURE: &str = "arch/x86";
/// The path of the kernel with debug information, relative to the tree.
pub const VMLINUX: &str = "vmlinux";
/// The path of the configuration, relative to the tree.
pub const CONFIGURATION: &str = ".config";

/// Returns the image that was built in a tree: the bzImage, or else the vmlinux.
///
/// # Errors
/// One line if the folder is no source tree, or if the bzImage is older than the vmlinux, from which `make` creates the
/// bzImage. Also one line if the tree has neither image; the cause is then an [`io::Error`] of the kind `NotFound`.
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
            ensure!(is_tree(tree), "is a folder, but no source tree of Linux");
            let [compressed, plain] = BUILT;
            let words = format!("no {compressed} and no {plain}: the kernel is not built");
            Err(io::Error::new(io::ErrorKind::NotFound, words).into())
        }
    }
}

/// Returns whether a folder is a source tree of Linux.
pub fn is_tree(folder: &Path) -> bool {
    folder.join(ARCHITECTURE).is_dir()
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
        let other = image(tree).unwrap_err();
        assert!(other.downcast_ref::<io::Error>().is_none(), "{other}");
        fs::create_dir_all(tree.join(ARCHITECTURE)).unwrap();
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
}
