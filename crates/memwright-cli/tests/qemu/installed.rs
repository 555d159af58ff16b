//! Tests the command that `cargo install` creates, which is one file and does not need the checkout.

use crate::guest::Guest;
use crate::prepare;
use libtest_mimic::{Failed, Trial};
use std::path::Path;
use std::process::Command;

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("installed::works_outside_the_checkout", outside),
        Trial::test("installed::embedded_kernel_repeats", embedded),
    ]
}

fn outside() -> Result<(), Failed> {
    let root = tempfile::tempdir()?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status = cargo
        .args(["install", "--quiet", "--debug", "--locked", "--no-track"])
        .arg("--path")
        .arg(env!("CARGO_MANIFEST_DIR"))
        .arg("--root")
        .arg(root.path())
        .current_dir(prepare::workspace())
        .status()?;
    if !status.success() {
        return Err("cargo install failed".into());
    }
    let binary = root.path().join("bin/memwright");
    let output = Guest::new(prepare::busybox(), &["echo", "from", "afar"])
        .embedded_kernel()
        .command(&binary)
        .current_dir(Path::new("/"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()?;
    if output.status.code() == Some(0) && output.stdout == b"from afar\n" {
        return Ok(());
    }
    Err(format!(
        "{}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
    .into())
}

/// Runs a script on the kernel that users run, which is optimised and has debug assertions disabled.
fn embedded() -> Result<(), Failed> {
    let ending = Guest::shell("seq 1 5000 | sort -rn | tail -1; (exit 4)")
        .embedded_kernel()
        .run()?;
    ending.expect_output(b"1\n")?;
    ending.expect_code(4)
}
