//! Builds the C programs and a kernel with debug assertions, which the QEMU tests boot.

use crate::{install, programs, shell};
use anyhow::Result;

/// Builds those programs that are out of date, and the kernel.
///
/// # Errors
/// If a program or the kernel does not build.
pub fn build() -> Result<()> {
    programs::build_all()?;
    build_kernel()
}

/// Builds the kernel with debug assertions.
///
/// # Errors
/// If the kernel does not build.
pub fn build_kernel() -> Result<()> {
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
    command
        .arg("--target-dir")
        .arg(shell::target_folder().join("checked"));
    for name in ["RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", "-Cforce-frame-pointers=yes");
    shell::run(&mut command)
}
