//! Prepares what the tests need: the C programs, and a kernel with debug assertions enabled.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Builds the programs and the kernel with `cargo xtask guest` if they are out of date. Does nothing if `cargo xtask`
/// built them before it started this process.
pub fn prepare() {
    if std::env::var_os("MEMWRIGHT_PREPARED").is_some() {
        return;
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status = cargo
        .args(["run", "-q", "-p", "xtask", "--", "guest"])
        .current_dir(workspace())
        .status()
        .expect("cargo starts");
    assert!(status.success(), "`cargo xtask guest` failed");
}

/// Returns whether the later QEMU of Debian's backports is available. If it is not, prints the reason once, and the
/// tests that need it are ignored.
pub fn later_qemu() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| {
        // `cargo xtask` searches for the later QEMU once for all of its processes.
        if let Ok(answer) = std::env::var("MEMWRIGHT_LATER_QEMU") {
            return answer == "yes";
        }
        let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
            .args(["run", "--timeout", "60"])
            .arg(busybox())
            .arg("true")
            .env("MEMWRIGHT_QEMU", "backports")
            .env("MEMWRIGHT_KERNEL", kernel())
            .stdin(Stdio::null())
            .output()
            .expect("the command starts");
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            eprintln!(
                "no later QEMU, tests that need it are ignored: {}",
                reason.trim()
            );
        }
        output.status.success()
    })
}

/// Returns the root of the workspace.
pub fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(2)
        .expect("the package stands two folders down")
        .to_owned()
}

/// Returns the path of a C program. `variant` selects one of the four ways in which the program is linked.
pub fn program(variant: &str, name: &str) -> PathBuf {
    workspace().join("programs/build").join(variant).join(name)
}

/// Returns the path of the kernel with debug assertions enabled.
pub fn kernel() -> PathBuf {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => workspace().join(folder),
        None => workspace().join("target"),
    };
    target.join("checked/x86_64-unknown-none/checked/memwright-kernel")
}

/// Returns the path of Debian's statically linked busybox.
pub fn busybox() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("busybox"))
        .find(|file| file.is_file())
        .expect("busybox is in PATH; `cargo xtask test` installs it")
}
