//! `cargo xtask size`: measures the size of the memory manager in a program without an operating system.
//!
//! The program is `crates/memwright-size`. It is built for `x86_64-unknown-none` by the profile `size`: for size, with
//! LTO across all crates, and with panics that abort. The figure is the sum of its `.text` and `.rodata`, minus that
//! sum of the same program without the memory manager. Each figure has a ceiling, which may only be lowered.

mod ceilings;
mod cost;
mod image;
pub mod matrix;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use self::ceilings::{CEILINGS, Ceiling, FEATURES, Feature};
use self::image::Image;
use crate::install::{self, KERNEL_TARGET};
use crate::number::grouped;
use crate::shell;

/// The package, and the name of its program.
const PACKAGE: &str = "memwright-size";
/// The number of functions that `--functions` prints.
const LARGEST: usize = 60;

/// Prints the size with all features and with none, and checks both against their ceilings. Checks that the symbols of
/// each feature are in the program with all features, and that the program without features has none of them. With
/// `--each`, also prints the size without each single feature. With `--functions`, prints the largest functions
/// instead, with all features or with those named in a list separated by commas; `none` is the empty list. With
/// `--beside`, prints the sizes of Memwright and of other crates. With `--table`, measures everything that the tables
/// of `docs/embedding.md` contain, and compares it with the tables; `--write` writes the tables instead.
///
/// # Errors
/// If the program cannot be built, if a figure is not at its ceiling or not that of the page, if the symbols of a feature
/// are missing or remain, or if an argument is unknown.
pub fn run(arguments: &[&str]) -> Result<()> {
    install::rust_target(KERNEL_TARGET)?;
    match arguments {
        [] => check(false),
        ["--each"] => check(true),
        ["--beside"] => cost::print_beside(),
        ["--table"] => cost::tables(false),
        ["--table", "--write"] => cost::tables(true),
        ["--functions"] => functions(&names()),
        ["--functions", "none"] => functions(&[]),
        ["--functions", list] => functions(&list.split(',').collect::<Vec<_>>()),
        _ => bail!(
            "size takes no argument, --each, --beside, --table [--write], or --functions and a list of features"
        ),
    }
}

/// Returns the names of all features.
fn names() -> Vec<&'static str> {
    FEATURES.iter().map(|feature| feature.name).collect()
}

fn check(each: bool) -> Result<()> {
    let empty = built(&[])?.0.bytes;
    let all = built(&memory_manager(&names()))?;
    cost::check("all features", &all, empty)?;
    let none = built(&memory_manager(&[]))?;
    cost::check("no feature", &none, empty)?;
    let (all, none) = (all.0, none.0);
    let mut complaints = Vec::new();
    println!("{:<28} {:>9} {:>9} {:>6}", "", "bytes", "KB", "most");
    for (ceiling, image) in CEILINGS.iter().zip([&all, &none]) {
        let bytes = image.bytes.saturating_sub(empty);
        let kilobytes = Ceiling::kilobytes(bytes);
        let Ceiling { title, most } = ceiling;
        println!("{title:<28} {:>9} {kilobytes:>9} {most:>6}", grouped(bytes));
        complaints.extend(ceiling.complaint(bytes));
    }
    for feature in FEATURES {
        let modules = feature.modules;
        if !modules.is_empty() && !modules.iter().any(|module| all.has(module)) {
            complaints.push(format!("{} has no symbols", modules.join(", ")));
        }
        complaints.extend(remaining(feature, &none));
    }
    if each {
        complaints.extend(without_each(all.bytes)?);
    }
    if complaints.is_empty() {
        return Ok(());
    }
    bail!("{}", complaints.join("\n"))
}

/// Prints how much smaller the program is without each feature. Returns an error message for each remaining symbol of
/// such a feature.
fn without_each(all: u64) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for feature in FEATURES {
        let without = feature.without(FEATURES);
        let (image, _) = built(&memory_manager(&without))?;
        let saved = i128::from(all) - i128::from(image.bytes);
        println!("without {:<20} {:>9}", feature.name, -saved);
        complaints.extend(remaining(feature, &image));
    }
    Ok(complaints)
}

/// Returns an error message for each symbol of the feature in a program without it.
fn remaining(feature: &Feature, image: &Image) -> Vec<String> {
    let symbols = feature
        .modules
        .iter()
        .flat_map(|module| image.symbols_of(module));
    symbols
        .map(|symbol| format!("without {}: the symbol {symbol}", feature.name))
        .collect()
}

fn functions(features: &[&str]) -> Result<()> {
    let (image, _) = built(&memory_manager(features))?;
    for (name, bytes) in image.functions.iter().take(LARGEST) {
        println!("{bytes:>7} {name}");
    }
    Ok(())
}

/// Returns the features of the program that includes the memory manager with `features`.
fn memory_manager<'a>(features: &[&'a str]) -> Vec<&'a str> {
    [&["manager", "fork"], features].concat()
}

/// Builds the program with `features`, and reads its image. Without a feature, the program is empty.
fn built(features: &[&str]) -> Result<(Image, PathBuf)> {
    let folder = shell::target_folder().join("size");
    let mut command = shell::cargo(["build", "-q", "--locked", "-p", PACKAGE]);
    command
        .args(["--profile", "size", "--target", KERNEL_TARGET])
        .args(["--features", &features.join(","), "--target-dir"])
        .arg(&folder);
    shell::run(&mut command)?;
    let path: PathBuf = [KERNEL_TARGET, "size", PACKAGE].iter().collect();
    let path = folder.join(path);
    let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
    let image = Image::read(&bytes)?;
    ensure!(!image.functions.is_empty(), "{PACKAGE} has no symbols");
    Ok((image, path))
}
