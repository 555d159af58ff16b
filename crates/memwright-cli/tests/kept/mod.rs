//! Kernel images in the cache of this machine.

use std::process::{Command, Stdio};

use crate::skipped;

/// Returns whether a kernel image is kept under this name; if not, reports the caller's test as skipped.
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
