//! Builds the kernel for bare metal and passes its path to the compilation of the command, which embeds it.
//!
//! `MEMWRIGHT_BUILD_KERNEL=0` omits the kernel; the command then requires `MEMWRIGHT_KERNEL` at run time. That setting
//! is only for quick checks of the workspace.

mod remap;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const TARGET: &str = "x86_64-unknown-none";
const PROFILE: &str = "kernel";

/// Environment variables that Cargo sets for a build script and that must not reach the kernel's build, whose target is
/// different.
const OUTER_SETTINGS: &[&str] = &[
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_TARGET_DIR",
    "CARGO_MAKEFLAGS",
    "MAKEFLAGS",
    "MFLAGS",
    "__CARGO_DEFAULT_LIB_METADATA",
    "TARGET",
    "PROFILE",
    "DEBUG",
    "OPT_LEVEL",
    "NUM_JOBS",
];

fn main() {
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let crates = package.parent().expect("the package is in a folder");
    let workspace = crates.parent().unwrap_or(crates);
    build_guest_program(workspace, "init", &["unpack.h", "names.h"], &out);
    build_guest_program(workspace, "maps", &[], &out);
    println!("cargo::rerun-if-env-changed=MEMWRIGHT_BUILD_KERNEL");
    if env::var("MEMWRIGHT_BUILD_KERNEL").is_ok_and(|value| value == "0") {
        let empty = out.join("no-kernel");
        std::fs::write(&empty, []).expect("the output folder can be written");
        println!(
            "cargo::rustc-env=MEMWRIGHT_KERNEL_IMAGE={}",
            empty.display()
        );
        return;
    }
    watch(crates);
    let image = build(&package, crates, &kernel_folder(&out));
    println!(
        "cargo::rustc-env=MEMWRIGHT_KERNEL_IMAGE={}",
        image.display()
    );
}

/// Compiles a program of `programs/lab` for Linux guests, or writes an empty file if no compiler can link a static
/// program. `MEMWRIGHT_GUEST_NAME` is its path.
fn build_guest_program(workspace: &Path, name: &str, included: &[&str], out: &Path) {
    let folder = workspace.join("programs/lab");
    let to = &out.join(format!("guest-{name}"));
    let (source, headers) = (
        folder.join(name).with_extension("c"),
        workspace.join("include/memwright"),
    );
    let own: Vec<PathBuf> = included.iter().map(|name| folder.join(name)).collect();
    for path in [&source, &headers].into_iter().chain(&own) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let variable = name.to_uppercase();
    println!(
        "cargo::rustc-env=MEMWRIGHT_GUEST_{variable}={}",
        to.display()
    );
    let built = ["musl-gcc", "cc", "gcc", "clang"].iter().any(|compiler| {
        let mut command = Command::new(compiler);
        command.args([
            "-std=gnu11",
            "-O2",
            "-static",
            "-s",
            "-Wl,--build-id=none",
            "-I",
        ]);
        let status = command.arg(&headers).arg("-o").args([to, &source]).status();
        status.is_ok_and(|status| status.success())
    });
    if !built {
        println!(
            "cargo::warning=no C compiler links a static program: no Linux kernel image will run"
        );
        std::fs::write(to, []).expect("the output folder can be written");
    }
}

/// Makes Cargo rerun this script when a crate of the kernel changes, or a file of the workspace that affects its build.
fn watch(crates: &Path) {
    for name in [
        "memwright-table",
        "memwright",
        "memwright-linux-base",
        "memwright-linux-abi",
        "memwright-linux-sched",
        "memwright-linux-vfs",
        "memwright-linux-tasks",
        "memwright-linux-memory",
        "memwright-linux-procfs",
        "memwright-linux",
        "memwright-kernel",
    ] {
        println!("cargo::rerun-if-changed={}", crates.join(name).display());
    }
    let workspace = crates.parent().unwrap_or(crates);
    for name in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"] {
        println!("cargo::rerun-if-changed={}", workspace.join(name).display());
    }
}

/// Returns the folder in which the kernel is built, given the folder of this script's output. The folder is the same
/// for all targets and profiles of the command, because they all embed the same kernel, and the kernel takes longer to
/// build than the command.
fn kernel_folder(out: &Path) -> PathBuf {
    // The output is in TARGET_FOLDER[/TRIPLE]/PROFILE/build/PACKAGE/out.
    let profiles = out.ancestors().nth(4).unwrap_or(out);
    let triple = variable("TARGET");
    let target = match profiles.file_name() {
        Some(name) if *name == *triple => profiles.parent().unwrap_or(profiles),
        Some(_) | None => profiles,
    };
    target.join("kernel")
}

/// Builds the kernel and returns the path of its image.
fn build(package: &Path, crates: &Path, target_folder: &Path) -> PathBuf {
    let workspace = crates.parent().unwrap_or(crates);
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(package)
        .args([
            "build",
            "--locked",
            "-p",
            "memwright-kernel",
            "--profile",
            PROFILE,
            "--target",
            TARGET,
        ])
        .arg("--target-dir")
        .arg(target_folder);
    for name in OUTER_SETTINGS {
        cargo.env_remove(name);
    }
    // The kernel's backtraces follow frame pointers.
    let mut flags = remap::flags(variable("RUSTC").as_ref(), workspace);
    flags.push("-Cforce-frame-pointers=yes".to_owned());
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    match cargo.status() {
        Ok(status) if status.success() => target_folder
            .join(TARGET)
            .join(PROFILE)
            .join("memwright-kernel"),
        Ok(_) => fail(&format!(
            "the kernel did not build. If the target {TARGET} is missing, `rustup target add {TARGET}` installs it."
        )),
        Err(error) => fail(&format!(
            "Cargo could not be started to build the kernel: {error}"
        )),
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| fail(&format!("Cargo did not set {name}")))
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
