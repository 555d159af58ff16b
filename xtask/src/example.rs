//! `cargo xtask example`: builds an example kernel for bare metal, and runs it under QEMU.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::install::{
    self, ARM_TARGET, KERNEL_TARGET, Need, QEMU, QEMU_ARM, QEMU_RISCV, RISCV_TARGET,
};
use crate::{clock, shell};

/// The time limit of a run. On an idle machine, a run of the kernel takes less than a second, and one of the kit ten.
const LIMIT: Duration = Duration::from_secs(240);

/// The interval at which the end of QEMU is polled.
const PAUSE: Duration = Duration::from_millis(3);

/// The end of the account of a kernel that succeeds.
const PASSED: &str = "\nPASSED\n";

/// A program for bare metal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// The example kernel.
    Kernel,
    /// The test kit on the machine of the example kernel.
    Kit,
}

impl Program {
    /// Returns the program with this name on the command line.
    fn named(name: &str) -> Option<Self> {
        match name {
            "kernel" => Some(Self::Kernel),
            "kit" => Some(Self::Kit),
            _ => None,
        }
    }

    /// Returns the name of the image.
    fn image(self) -> &'static str {
        match self {
            Self::Kernel => "memwright-example-kernel",
            Self::Kit => "memwright-example-kit",
        }
    }

    /// Returns the first line of the account. The firmware of a machine may print other lines before it.
    fn first_line(self) -> &'static str {
        match self {
            Self::Kernel => "traps  taken by\n",
            Self::Kit => "the test kit: ",
        }
    }
}

/// An architecture for which the example kernel exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arch {
    X86_64,
    Aarch64,
    Riscv64,
    /// RISC-V with page tables of three levels.
    Riscv64Sv39,
}

impl Arch {
    const ALL: [Self; 4] = [
        Self::X86_64,
        Self::Aarch64,
        Self::Riscv64,
        Self::Riscv64Sv39,
    ];

    /// Returns the name on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Riscv64 => "riscv64",
            Self::Riscv64Sv39 => "riscv64-sv39",
        }
    }

    /// Returns the Rust target for bare metal.
    fn target(self) -> &'static str {
        match self {
            Self::X86_64 => KERNEL_TARGET,
            Self::Aarch64 => ARM_TARGET,
            Self::Riscv64 | Self::Riscv64Sv39 => RISCV_TARGET,
        }
    }

    /// Returns cargo's features for the package of the programs. All programs have the same features, because they
    /// share the libraries.
    fn features(self) -> &'static str {
        match self {
            Self::X86_64 | Self::Aarch64 | Self::Riscv64 => "bare,kit",
            Self::Riscv64Sv39 => "bare,kit,sv39",
        }
    }

    /// Returns the program that emulates the machine.
    fn emulator(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86_64",
            Self::Aarch64 => "qemu-system-aarch64",
            Self::Riscv64 | Self::Riscv64Sv39 => "qemu-system-riscv64",
        }
    }

    /// Returns the packages that contain the emulator of the machine, and its firmware.
    fn packages(self) -> &'static [Need] {
        match self {
            Self::X86_64 => QEMU,
            Self::Aarch64 => QEMU_ARM,
            Self::Riscv64 | Self::Riscv64Sv39 => QEMU_RISCV,
        }
    }

    /// Returns the arguments of QEMU that describe the machine.
    fn machine(self) -> &'static [&'static str] {
        match self {
            // The kernel maps pages of 1 GiB, which the default CPU does not have.
            Self::X86_64 => &[
                "-machine",
                "q35",
                "-cpu",
                "max",
                "-device",
                "isa-debug-exit,iobase=0xf4,iosize=4",
            ],
            Self::Aarch64 => &["-machine", "virt", "-cpu", "max", "-semihosting"],
            Self::Riscv64 | Self::Riscv64Sv39 => {
                &["-machine", "virt", "-cpu", "rv64", "-bios", "default"]
            }
        }
    }

    /// Returns how QEMU runs the CPUs: in turn, or in one thread per CPU. A waiting CPU gives up its turn by an
    /// instruction that QEMU recognises. The firmware of RISC-V executes no such instruction while it waits for a fence
    /// of another CPU, so there the CPUs run in threads.
    fn accelerator(self) -> &'static str {
        match self {
            Self::X86_64 | Self::Aarch64 => "tcg,thread=single",
            Self::Riscv64 | Self::Riscv64Sv39 => "tcg,thread=multi",
        }
    }

    /// Returns QEMU's exit code when the kernel succeeds.
    fn success(self) -> i32 {
        match self {
            Self::X86_64 => 33,
            Self::Aarch64 | Self::Riscv64 | Self::Riscv64Sv39 => 0,
        }
    }
}

/// Builds and runs the named program, for the named architecture or for all.
///
/// # Errors
/// If there is no such program or architecture, if a package or the Rust target cannot be installed, or if the program
/// does not build or fails.
pub fn run(arguments: &[&str]) -> Result<()> {
    let usage = "example kernel | kit [x86_64 | aarch64 | riscv64 | riscv64-sv39]";
    let (program, name) = match arguments {
        [program] => (*program, None),
        [program, name] => (*program, Some(*name)),
        _ => bail!(usage),
    };
    let program = Program::named(program).context(usage)?;
    let is_wanted = |arch: &Arch| name.is_none_or(|name| arch.name() == name);
    let wanted: Vec<Arch> = Arch::ALL.into_iter().filter(is_wanted).collect();
    ensure!(!wanted.is_empty(), usage);
    for arch in wanted {
        install::rust_target(arch.target())?;
        install::install_packages(arch.packages())?;
        print!("{}", boot(program, arch, &build(program, arch)?)?);
    }
    Ok(())
}

/// Checks that clippy reports no warning for the programs.
///
/// # Errors
/// If clippy reports a warning or an error, or if the deadline passes.
pub fn lint(deadline: Instant) -> Result<()> {
    for arch in Arch::ALL {
        let mut command = cargo("clippy", arch);
        command.args(["-p", "memwright-example-boot", "--", "-D", "warnings"]);
        shell::run_until(&mut command, deadline)?;
    }
    Ok(())
}

/// Returns a command of cargo for the package of the programs.
fn cargo(command: &str, arch: Arch) -> Command {
    let mut command = shell::cargo([command, "-q", "--target", arch.target()]);
    command.args([
        "-p",
        "memwright-example-kernel",
        "--features",
        arch.features(),
    ]);
    command
}

/// Builds a program with debug assertions, and returns the path of its image.
fn build(program: Program, arch: Arch) -> Result<PathBuf> {
    // Build in a separate folder for each architecture, so that no build waits for another one.
    let folder = shell::target_folder().join("example").join(arch.name());
    let mut command = cargo("build", arch);
    command.args(["--bin", program.image()]);
    command.arg("--target-dir").arg(&folder);
    for name in ["RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"] {
        command.env_remove(name);
    }
    shell::run(&mut command)?;
    Ok(folder
        .join(arch.target())
        .join("debug")
        .join(program.image()))
}

/// Runs a program on two CPUs with 64 MiB of memory, and returns what it printed.
///
/// # Errors
/// If QEMU cannot be started, or if the program fails or is still running at the time limit. The error contains what it
/// printed.
fn boot(program: Program, arch: Arch, image: &Path) -> Result<String> {
    let mut command = Command::new(arch.emulator());
    command
        .args(arch.machine())
        .args(["-accel", arch.accelerator()])
        .args(["-smp", "2", "-m", "64M", "-no-reboot"])
        .args([
            "-display", "none", "-monitor", "none", "-serial", "stdio", "-kernel",
        ])
        .arg(image);
    shell::step(&shell::line(&command));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start QEMU")?;
    let deadline = Instant::now() + LIMIT;
    // The program prints less than a pipe holds, so QEMU never waits for a reader.
    while !clock::has_ended(child.id()) {
        if Instant::now() >= deadline {
            child.kill()?;
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let output = child.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let account = printed
        .find(program.first_line())
        .map(|start| &printed[start..]);
    match account {
        Some(account)
            if output.status.code() == Some(arch.success()) && account.ends_with(PASSED) =>
        {
            Ok(account.to_owned())
        }
        _ => bail!("the program failed, {}:\n{printed}", output.status),
    }
}

#[cfg(test)]
#[path = "../../crates/memwright-cli/tests/skipped/mod.rs"]
mod skipped;

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../docs/embedding-steps.md");

    /// Builds and runs a program, and returns its account. Without the compiler or QEMU, the test is skipped.
    fn account(program: Program, arch: Arch) -> Option<String> {
        if let Some(package) = install::missing(arch.packages()) {
            skipped::skipped(&format!("{package} is not installed"));
            return None;
        }
        let target = arch.target();
        if !install::has_rust_target(target).expect("a compiler") {
            skipped::skipped(&format!("the Rust target {target} is not installed"));
            return None;
        }
        let image = build(program, arch).expect("an image");
        Some(boot(program, arch, &image).expect("an account"))
    }

    /// Compares the account with the one that the page shows for this architecture.
    fn prints_what_its_page_shows(arch: Arch) {
        let Some(account) = account(Program::Kernel, arch) else {
            return;
        };
        let command = "```text\n$ cargo xtask example kernel";
        let (_, rest) = PAGE.split_once(command).expect("the command");
        let (_, shown) = rest.split_once('\n').expect("the account");
        let (shown, _) = shown.split_once("```").expect("the end of the account");
        assert_eq!(account, shown);
    }

    #[test]
    fn the_kernel_prints_what_its_page_shows_on_x86_64() {
        prints_what_its_page_shows(Arch::X86_64);
    }

    #[test]
    fn the_kernel_prints_what_its_page_shows_on_aarch64() {
        prints_what_its_page_shows(Arch::Aarch64);
    }

    #[test]
    fn the_kernel_prints_what_its_page_shows_on_riscv64() {
        prints_what_its_page_shows(Arch::Riscv64);
    }

    #[test]
    fn the_kernel_prints_what_its_page_shows_on_riscv64_sv39() {
        prints_what_its_page_shows(Arch::Riscv64Sv39);
    }

    #[test]
    fn the_kit_passes_on_x86_64() {
        account(Program::Kit, Arch::X86_64);
    }

    #[test]
    fn the_kit_passes_on_aarch64() {
        account(Program::Kit, Arch::Aarch64);
    }

    #[test]
    fn the_kit_passes_on_riscv64() {
        account(Program::Kit, Arch::Riscv64);
    }

    #[test]
    fn the_kit_passes_on_riscv64_sv39() {
        account(Program::Kit, Arch::Riscv64Sv39);
    }
}
