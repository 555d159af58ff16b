//! Builds the command as one static file.

use std::path::PathBuf;

use anyhow::Result;

use super::Build;
use crate::{install, remap, shell};

/// The target whose C library is linked statically.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Builds the command, and returns its path. It contains no path of this machine.
///
/// # Errors
/// If the Rust target is missing and cannot be installed, or if the command does not build.
pub fn build(build: Build) -> Result<PathBuf> {
    install::rust_target(TARGET)?;
    let (profile, folder) = match build {
        Build::Released => ("dist", "dist"),
        Build::Quick => ("dev", "debug"),
    };
    let mut cargo = shell::cargo(["build", "--locked", "-p", "memwright-cli", "--profile"]);
    cargo
        .args([profile, "--target", TARGET])
        .env_remove("RUSTFLAGS");
    if build == Build::Quick {
        cargo.args(["--config", "profile.dev.strip=\"symbols\""]);
    }
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let flags = remap::flags(&rustc, &shell::root());
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    shell::run(&mut cargo)?;
    let target = shell::target_folder().join(TARGET);
    Ok(target.join(folder).join("memwright"))
}
