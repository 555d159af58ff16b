//! The tools and packages that the tasks need, and their installation.

use crate::shell::{self, output, step, succeeds, which};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// The target for which the kernel is built.
pub const KERNEL_TARGET: &str = "x86_64-unknown-none";

/// The Rust target of the example kernel for AArch64.
pub const ARM_TARGET: &str = "aarch64-unknown-none-softfloat";
/// The Rust target of the example kernel for RISC-V.
pub const RISCV_TARGET: &str = "riscv64gc-unknown-none-elf";

/// A tool or library of a Debian package, with a function that detects it.
pub struct Need {
    package: &'static str,
    present: fn() -> bool,
}

/// The emulator of x86-64 machines.
pub const QEMU: &[Need] = &[Need {
    package: "qemu-system-x86",
    present: || which("qemu-system-x86_64").is_some(),
}];

/// The emulator of AArch64 machines.
pub const QEMU_ARM: &[Need] = &[Need {
    package: "qemu-system-arm",
    present: || which("qemu-system-aarch64").is_some(),
}];

/// The emulator of RISC-V machines, and the firmware of its machines.
pub const QEMU_RISCV: &[Need] = &[
    Need {
        package: "qemu-system-misc",
        present: || which("qemu-system-riscv64").is_some(),
    },
    Need {
        package: "opensbi",
        present: || Path::new("/usr/share/qemu/opensbi-riscv64-generic-fw_dynamic.bin").exists(),
    },
];

/// xz, which unpacks Debian's archive of the kernel sources.
pub const XZ: Need = Need {
    package: "xz-utils",
    present: || which("xz").is_some(),
};

/// make, which runs the makefiles of the kernel sources.
pub const MAKE: Need = Need {
    package: "make",
    present: || which("make").is_some(),
};

/// libcap, statically linked.
pub const LIBCAP: Need = Need {
    package: "libcap-dev",
    present: || has_library("libcap.a"),
};

/// libnuma, statically linked.
pub const LIBNUMA: Need = Need {
    package: "libnuma-dev",
    present: || has_library("libnuma.a"),
};

/// liburing, statically linked.
pub const LIBURING: Need = Need {
    package: "liburing-dev",
    present: || has_library("liburing.a"),
};

/// The manual pages of system calls, with the errors of each.
pub const MANPAGES: Need = Need {
    package: "manpages-dev",
    present: || Path::new("/usr/share/man/man2/mmap.2.gz").exists(),
};

/// man, which renders the command's manual pages.
pub const MAN: Need = Need {
    package: "man-db",
    present: || which("man").is_some(),
};

/// The C compiler.
pub const GCC: Need = Need {
    package: "gcc",
    present: || which("gcc").is_some(),
};

/// Chromium, which renders the pages of results for inspection.
pub const CHROMIUM: Need = Need {
    package: "chromium",
    present: || which("chromium").is_some(),
};

/// Slurm, which runs an array of jobs on one machine.
pub const SLURM: &[Need] = &[
    Need {
        package: "munge",
        present: || Path::new("/usr/sbin/munged").exists(),
    },
    Need {
        package: "slurmctld",
        present: || Path::new("/usr/sbin/slurmctld").exists(),
    },
    Need {
        package: "slurmd",
        present: || Path::new("/usr/sbin/slurmd").exists(),
    },
    Need {
        package: "slurm-client",
        present: || which("sbatch").is_some(),
    },
];

const NEEDS: &[Need] = &[
    Need {
        package: "busybox-static",
        present: || which("busybox").is_some_and(|file| is_static(&file)),
    },
    Need {
        package: "musl-tools",
        present: || which("musl-gcc").is_some(),
    },
    GCC,
    Need {
        package: "libc6-dev",
        present: || has_library("libc.a"),
    },
    Need {
        package: "stress-ng",
        present: || Path::new("/usr/bin/stress-ng").exists(),
    },
    Need {
        package: "perl",
        present: || Path::new("/usr/bin/perl").exists(),
    },
    Need {
        package: "python3",
        present: || Path::new("/usr/bin/python3").exists(),
    },
];

/// Installs the Rust target and the missing packages, and prints each step.
///
/// # Errors
/// If a package is missing and this user may not install packages. The error names the missing packages.
pub fn install() -> Result<()> {
    rust_target(KERNEL_TARGET)?;
    install_packages(QEMU)?;
    install_packages(NEEDS)
}

/// Returns the first of these packages that is missing.
#[cfg(test)]
pub fn missing(needs: &[Need]) -> Option<&'static str> {
    let need = needs.iter().find(|need| !(need.present)())?;
    Some(need.package)
}

/// Installs a Rust target if it is missing, and prints the step.
///
/// # Errors
/// If the target is missing and rustup cannot install it.
pub fn rust_target(target: &str) -> Result<()> {
    if has_rust_target(target)? {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup
        .args(["target", "add", target])
        .current_dir(shell::root());
    shell::run(&mut rustup)
        .with_context(|| format!("the Rust target {target} is missing; it comes with rustup"))
}

/// Returns whether a Rust target is installed.
///
/// # Errors
/// If no compiler is installed.
pub fn has_rust_target(target: &str) -> Result<bool> {
    let mut rustc = Command::new("rustc");
    rustc
        .args(["--print", "sysroot"])
        .current_dir(shell::root());
    let sysroot =
        output(&mut rustc).context("rustc is missing: install Rust from https://rustup.rs")?;
    let libraries = Path::new(&sysroot).join("lib/rustlib").join(target);
    Ok(libraries.is_dir())
}

/// Installs those of the needed packages that are missing, and prints each step.
///
/// # Errors
/// If a package is missing and this user may not install packages. The error names the missing packages.
pub fn install_packages(needs: &[Need]) -> Result<()> {
    let missing: Vec<&str> = needs
        .iter()
        .filter(|need| !(need.present)())
        .map(|need| need.package)
        .collect();
    install_named(&missing)?;
    for need in needs.iter().filter(|need| missing.contains(&need.package)) {
        if !(need.present)() {
            bail!(
                "the package {} was installed, but what it should provide is not found",
                need.package
            );
        }
    }
    Ok(())
}

/// Installs these packages, and prints each step.
///
/// # Errors
/// If a package is missing and this user may not install packages. The error names the missing packages.
pub fn install_named(missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    let refusal = format!(
        "these packages are missing: {names}\n       install them with: apt-get install {names}"
    );
    if which("apt-get").is_none() {
        bail!(
            "{refusal}\n       (no apt-get here: use the packages of the same content of this system)"
        );
    }
    let Some(prefix) = right_to_install() else {
        bail!("{refusal}")
    };
    step(&format!("installing {names}"));
    let install = || {
        let mut command = apt(prefix);
        command
            .args(["install", "-y", "--no-install-recommends"])
            .args(missing);
        command
    };
    // If the installation fails, fetch the package lists, which may be absent or old on a new machine, and retry.
    if !shell::status(&mut install())?.success() {
        shell::run(apt(prefix).arg("update")).with_context(|| refusal.clone())?;
        shell::run(&mut install()).with_context(|| refusal.clone())?;
    }
    Ok(())
}

/// Returns the words that must precede a command to run it as root, or `None` if this user cannot run commands as root.
fn right_to_install() -> Option<&'static [&'static str]> {
    if output(Command::new("id").arg("-u")).as_deref() == Some("0") {
        return Some(&[]);
    }
    let sudo: &[&str] = &["sudo", "-n"];
    succeeds(Command::new("sudo").args(["-n", "true"])).then_some(sudo)
}

fn apt(prefix: &[&str]) -> Command {
    let words = [
        prefix,
        &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"],
    ]
    .concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// Returns whether a file is a statically linked ELF program: one without an interpreter.
pub fn is_static(file: &Path) -> bool {
    let Ok(bytes) = std::fs::read(file) else {
        return false;
    };
    let number = |at: usize, size: usize| {
        let field = bytes.get(at..at + size)?;
        Some(
            field
                .iter()
                .rev()
                .fold(0usize, |value, byte| value << 8 | usize::from(*byte)),
        )
    };
    let interpreter = || {
        let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        // 3 is PT_INTERP.
        Some((0..count).any(|index| number(start + index * size, 4) == Some(3)))
    };
    bytes.starts_with(b"\x7fELF\x02\x01") && interpreter() == Some(false)
}

fn has_library(file: &str) -> bool {
    // gcc prints the path of the file if it finds it, otherwise the name only.
    output(Command::new("gcc").arg(format!("-print-file-name={file}")))
        .is_some_and(|path| path.starts_with('/'))
}
