//! Finds the names of a kernel's functions, in the image itself or in `/proc/kallsyms` of a separate boot.
//!
//! The boot is separate from the counted one, because reading `/proc/kallsyms` changes counts. The list of functions is
//! stored in the cache under the image's hash. With `nokaslr`, the addresses are the same in every boot.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use memwright_linux_abi::channel::Outcome;

use crate::count::counting::Counting;
use crate::count::source::Source;
use crate::count::symbols::Symbols;
use crate::guestfs::initrd::{self, Manifest};
use crate::guestfs::tree::Tree;
use crate::host::cache;
use crate::host::folder::{PrivateFolder, private_folder};
use crate::host::host_file::{self, LARGEST_DOCUMENT, LARGEST_IMAGE};
use crate::host::output::say;
use crate::host::progress::Stage;
use crate::lab::linux_run;
use crate::linux::guest::Guest;
use crate::linux::kept;
use crate::model::hash::hexadecimal_hash;
use crate::model::image::Image;
use crate::qemu::runs::Runs;
use crate::states::State;

/// The functions of a kernel, and the hash of their list.
pub struct Names {
    /// The functions, with debug information if it was requested.
    pub source: Source,
    /// SHA-256 of the list of functions; `None` if the list is empty.
    pub sha256: Option<String>,
}

impl Names {
    fn new(symbols: Symbols, source: &[u8]) -> Self {
        let sha256 = (!symbols.is_empty()).then(|| hexadecimal_hash(source));
        Self {
            source: Source::of(symbols),
            sha256,
        }
    }
}

/// Returns the path of an image's debug information: a file next to the image, or the image itself.
///
/// # Errors
/// If the image has no debug information.
pub fn debug_file(image: &Image) -> anyhow::Result<PathBuf> {
    kept::debug_file(&image.path).with_context(|| {
        let name = &image.name;
        format!("{name}: there is no debug information (memwright kernels add {name} --debug)")
    })
}

/// Reads the functions of Memwright's kernel from its image.
///
/// # Errors
/// If the image cannot be read.
pub fn of_own_kernel(path: &Path) -> anyhow::Result<Names> {
    let bytes = host_file::read(path, LARGEST_IMAGE).with_context(|| path.display().to_string())?;
    Ok(Names::new(Symbols::of_elf(&bytes), &bytes))
}

/// Reads the functions of a kernel that runs alone from its image. If the image has none, prints a message.
///
/// # Errors
/// If the image cannot be read.
pub fn of_alone(image: &Image) -> anyhow::Result<Names> {
    let bytes = host_file::read(&image.path, LARGEST_IMAGE)
        .with_context(|| image.path.display().to_string())?;
    let symbols = Symbols::of_alone(&bytes);
    if symbols.is_empty() {
        say(&format!(
            "{}: the image has no symbol table (.symtab): all is unattributed",
            image.name
        ));
    }
    Ok(Names::new(symbols, &bytes))
}

/// Finds the functions of an image. `guest` has the configuration of the counted guests, and `state` is the snapshot
/// from which they start.
///
/// # Errors
/// If the image cannot be read, or if a boot is needed and gives no result.
pub fn find(
    image: &Image,
    guest: &Guest,
    state: Option<&State>,
    runs: &Runs,
) -> anyhow::Result<Names> {
    let bytes = host_file::read(&image.path, LARGEST_IMAGE)
        .with_context(|| image.path.display().to_string())?;
    let own = Symbols::of_elf(&bytes);
    if !own.is_empty() {
        return Ok(Names::new(own, &bytes));
    }
    let place = cache::folder()?.join("names").join(&image.sha256);
    let text = match host_file::read(&place, LARGEST_DOCUMENT) {
        Ok(text) => text,
        Err(_) => {
            let stage = format!("asking {} once for the names of its functions", image.name);
            let stage = Stage::begin(&stage);
            let text = boot(guest, state, runs).with_context(|| image.name.clone())?;
            stage.done();
            if !text.is_empty() {
                keep(&place, &text).with_context(|| place.display().to_string())?;
            }
            text
        }
    };
    let symbols = Symbols::of_kallsyms(&String::from_utf8_lossy(&text));
    if symbols.is_empty() {
        say(&format!(
            "{}: neither the image nor the kernel (CONFIG_KALLSYMS) has a list of functions: all is unattributed",
            image.name
        ));
    }
    Ok(Names::new(symbols, &text))
}

/// Boots a guest whose only program prints `/proc/kallsyms`, and returns the printed text.
fn boot(guest: &Guest, state: Option<&State>, runs: &Runs) -> anyhow::Result<Vec<u8>> {
    let folder = private_folder().context("cannot make a temporary folder")?;
    let archive = folder.path().join("initrd.cpio");
    write_archive(&archive)?;
    let guest = Guest {
        program: archive,
        reports_names: false,
        with_faults: false,
        counting: Counting::Nothing,
        profile: None,
        ..guest.clone()
    };
    let said = linux_run::run(&guest, runs, state)?;
    match said.outcome {
        Outcome::Exited(0) => Ok(said.output),
        // The kernel was built without `/proc/kallsyms`, so there are no names.
        Outcome::Exited(_) | Outcome::Killed(_) | Outcome::NotStarted(_) => Ok(Vec::new()),
    }
}

fn write_archive(archive: &Path) -> anyhow::Result<()> {
    let place = PathBuf::from("/.memwright/init");
    let mut tree = Tree::default();
    tree.add_bytes(Path::new("/.memwright/input"), 0o600, Vec::new());
    tree.add_bytes(Path::new("/.memwright/folder"), 0o600, b"/".to_vec());
    let manifest = Manifest {
        arguments: vec![place.clone().into(), place.into(), "functions".into()],
        environment: Vec::new(),
        options: Vec::new(),
    };
    initrd::write(archive, &manifest, &tree).map(drop)
}

/// Writes the list of functions atomically: another command finds the complete list or none.
fn keep(place: &Path, text: &[u8]) -> anyhow::Result<()> {
    let parent = place.parent().context("the cache has no folder")?;
    fs::create_dir_all(parent)?;
    let work = PrivateFolder::within(parent)?;
    let fresh = work.path().join("names");
    fs::write(&fresh, text)?;
    Ok(fs::rename(&fresh, place)?)
}
