//! Installs the package in a bare Debian, and compares two kernels there: `cargo xtask dist --try`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::package::SAMPLE;
use crate::tier::Outcome;
use crate::{apt, shell};

/// The release that is installed.
const RELEASE: &str = "bookworm";
/// The kernels that are compared.
const KERNELS: [&str; 2] = ["a=debian:bookworm", "b=debian:trixie"];
/// The exit code of a comparison of kernels whose counts differ.
const DIFFERENCE: i32 = 1;
/// The programs that the bare system must not have.
const ABSENT: [&str; 4] = ["gcc", "cc", "musl-gcc", "cargo"];

/// A bare system in a folder, with `/proc` mounted.
struct System {
    root: PathBuf,
}

impl System {
    /// Installs the essential packages of the release into a new folder.
    fn install(root: PathBuf) -> Result<Self> {
        if root.exists() {
            fs::remove_dir_all(&root).with_context(|| root.display().to_string())?;
        }
        let mirror = apt::mirror()?;
        let mut debootstrap = Command::new("debootstrap");
        debootstrap
            .args(["--variant=minbase", RELEASE])
            .arg(&root)
            .arg(mirror);
        shell::run(&mut debootstrap)?;
        shell::run(
            Command::new("mount")
                .args(["-t", "proc", "proc"])
                .arg(root.join("proc")),
        )?;
        Ok(Self { root })
    }

    /// Returns a command that runs in the system, as root and with root's usual environment.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.root).arg(program).env_clear().envs([
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", "/root"),
            ("DEBIAN_FRONTEND", "noninteractive"),
        ]);
        command
    }

    /// Runs a command in the system, and prints how long it took. `code` is the expected exit code.
    fn timed(&self, words: &[&str], code: i32) -> Result<f64> {
        let begun = Instant::now();
        let status = shell::status(self.command(words[0]).args(&words[1..]))?;
        ensure!(status.code() == Some(code), "{} failed: {status}", words[0]);
        let seconds = begun.elapsed().as_secs_f64();
        shell::step(&format!("{seconds:.0} s: {}", words.join(" ")));
        Ok(seconds)
    }
}

impl Drop for System {
    fn drop(&mut self) {
        // A folder in which something is still mounted is left as it is.
        let unmounted = shell::succeeds(Command::new("umount").arg(self.root.join("proc")));
        if unmounted {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// Installs the package with apt in a bare system, which has no compiler, and runs a comparison that fetches its kernels.
/// Prints the time of both commands.
///
/// # Errors
/// If a command fails.
pub fn run(package: &Path) -> Result<Outcome> {
    if shell::output(Command::new("id").arg("-u")).as_deref() != Some("0") {
        return Ok(skipped("it needs root"));
    }
    if shell::which("debootstrap").is_none() {
        return Ok(skipped("debootstrap is not installed"));
    }
    let system = System::install(std::env::temp_dir().join("dist-chroot"))?;
    for program in ABSENT {
        let mut which = system.command("sh");
        which.args(["-c", &format!("command -v {program}")]);
        ensure!(
            !shell::succeeds(&mut which),
            "the bare system has {program}"
        );
    }
    let name = package.file_name().context("a package has a name")?;
    fs::copy(package, system.root.join("root").join(name))?;
    let place = format!("/root/{}", name.to_string_lossy());
    system.timed(&["apt-get", "update"], 0)?;
    let sample = format!("/{SAMPLE}");
    let [one, other] = KERNELS;
    let compare = [
        "memwright",
        "compare",
        "--kernel",
        one,
        "--kernel",
        other,
        &sample,
    ];
    // Debian's QEMU recommends 300 packages, such as those of a desktop, which a guest without a screen does not need.
    let install = [
        "apt-get",
        "install",
        "-y",
        "--no-install-recommends",
        &place,
    ];
    let installing = system.timed(&install, 0)?;
    let comparing = system.timed(&compare, DIFFERENCE)?;
    shell::run(system.command("memwright").arg("doctor"))?;
    println!(
        "from a bare Debian to the first comparison: {:.0} s ({installing:.0} s to install, {comparing:.0} s to compare)",
        installing + comparing
    );
    Ok(Outcome::Passed)
}

fn skipped(why: &str) -> Outcome {
    Outcome::Skipped(format!("the package was not tried in a bare system: {why}"))
}
