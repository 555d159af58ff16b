//! Builds the C programs and a kernel with debug assertions, which the QEMU tests boot.

use crate::{install, programs, shell};
use anyhow::Result;
use std::path::PathBuf;

/// Builds those programs that are out of date, and the kernel.
///
/// # Errors
/// If a program or the kernel does not build.
pub fn build() -> Result<()> {
    programs::build_all()?;
    build_kernel().map(drop)
}

/// Builds the kernel with debug assertions, and returns the path of its image.
///
/// # Errors
/// If the kernel does not build.
pub fn build_kernel() -> Result<PathBuf> {
    let folder = shell::target_folder().join("checked");
    let mut command = shell::cargo([
        "build",
        "-q",
        "-p",
        "memwright-kernel",
        "--target",
        install::KERNEL_TARGET,
        "--profile",
        "checked",
    ]);
    // Build in a separate folder, because the flags differ from those of the host's crates: in one folder, each build
    // would replace the artifacts of the other.
    command.arg("--target-dir").arg(&folder);
    for name in ["RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", "-Cforce-frame-pointers=yes");
    shell::run(&mut command)?;
    let image = format!("{}/checked/memwright-kernel", install::KERNEL_TARGET);
    Ok(folder.join(image))
}
