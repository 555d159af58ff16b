//! Builds what the QEMU tests boot: the programs, and a kernel with debug assertions.

use crate::{install, programs, shell};
use anyhow::Result;

/// Builds what is not up to date.
///
/// # Errors
/// When a program or the kernel does not build.
pub fn build() -> Result<()> {
    programs::build_all()?;
    let mut command = shell::cargo([
        "build",
        "-q",
        "-p",
        "memwright-kernel",
        "--target",
        install::KERNEL_TARGET,
        // Without optimisation, the functions of this package need too much of the kernel's small stacks.
        "--config",
        "profile.dev.package.yaxpeax-x86.opt-level=1",
    ]);
    // The flags differ from those of the host's crates: a separate folder, so that neither build replaces the other's
    // artifacts.
    command
        .arg("--target-dir")
        .arg(shell::target_folder().join("checked"));
    for name in ["RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", "-Cforce-frame-pointers=yes");
    shell::run(&mut command)
}
