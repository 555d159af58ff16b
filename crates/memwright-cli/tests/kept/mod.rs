//! Kernel images in this machine's cache.

use std::process::{Command, Stdio};

use crate::skipped;

/// Returns whether the cache contains a kernel image with the name `name`. If the cache does not contain it, reports
/// the caller's test as skipped.
pub fn has_kernel(name: &str) -> bool {
    let has = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(["run", "--kernel", name, "--dry-run", "/bin/true"])
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .status
        .success();
    if !has {
        skipped::skipped(&format!("no kernel image: memwright kernels add {name}"));
    }
    has
}
