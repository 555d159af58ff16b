//! One boot of a Linux kernel image that runs one program: its inputs and outputs.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::count::counting::Counting;
use crate::count::wires::Wires;
use crate::model::image::System;
use crate::model::machine::Machine;
use crate::qemu::command::{machine_arguments, option};
use crate::qemu::disk;
use crate::qemu::nodes::Backing;

/// The kernel's command line without `--append`. It disables mitigations, because TCG does not have the hardware bugs,
/// and the mitigations would add instructions to code paths. It disables layout randomization and the random offset of
/// the kernel stack, so that runs repeat. The kernel takes the offset from the time-stamp counter at each system call.
/// When the guest goes idle, QEMU's main loop and its CPU thread can advance the guest's clock by a few nanoseconds
/// more or less. With the random offset, the stack therefore differed between runs, and `memcpy` copied forward in one
/// run and backward in another.
const COMMAND_LINE: &str = "mitigations=off nokaslr norandmaps randomize_kstack_offset=off \
    quiet panic=-1 console=ttyS0 rdinit=/.memwright/init";

/// A Linux kernel, a program and a machine. All runs of a program on a kernel image use the same `Guest`.
#[derive(Debug, Clone)]
pub struct Guest {
    /// The path of QEMU.
    pub qemu: OsString,
    /// The kernel: a bzImage, or a vmlinux.
    pub image: PathBuf,
    /// The initrd from which the kernel boots: the init process, and modules.
    pub boot: PathBuf,
    /// The archive with the program and its files, which the init process unpacks.
    pub program: PathBuf,
    /// Whether the init process reports the names that the program looked up without success. For this, the program
    /// runs under a seccomp filter, which changes its counts.
    pub reports_names: bool,
    /// Whether the page faults of the run are collected, with the system calls in which the kernel takes them.
    pub with_faults: bool,
    /// Words that are appended to the kernel's command line.
    pub append: String,
    /// The CPUs, memory and clock of the guest.
    pub machine: Machine,
    /// The QEMU features that count the run.
    pub counting: Counting,
    /// The region that the plugin profiles, or [`THE_RUN`](memwright_linux_abi::channel::THE_RUN) for the complete run;
    /// `None` for no profile.
    pub profile: Option<u16>,
}

/// How a guest starts, and whether it stops at the save point. The save point is the last point of the boot at which
/// the guest's state does not depend on the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start<'a> {
    /// The guest boots, and continues past the save point.
    Boot,
    /// The guest boots, and stops at the save point for a snapshot. QEMU connects its monitor to this socket.
    Stop { monitor: &'a Path },
    /// The guest starts at the save point from a snapshot, which QEMU receives through the monitor on this socket.
    Saved { monitor: &'a Path },
}

/// The maximum length of the command line of an x86-64 kernel in bytes (COMMAND_LINE_SIZE without the terminator). The
/// kernel silently ignores the rest.
const LONGEST_COMMAND_LINE: usize = 2047;

/// Returns the path of the file that backs the disk of a guest. The file is in the folder of `serial`, the file of the
/// guest's serial line.
pub fn disk_beside(serial: &Path) -> PathBuf {
    serial.with_file_name("disk")
}

/// Returns the kernel's command line with the appended words.
fn command_line(append: &str) -> String {
    match append {
        "" => COMMAND_LINE.to_owned(),
        more => format!("{COMMAND_LINE} {more}"),
    }
}

/// Checks that the kernel's command line does not exceed the length that kernels read.
///
/// # Errors
/// One line with the length of the command line.
pub fn check_command_line(append: &str) -> anyhow::Result<()> {
    let length = command_line(append).len();
    anyhow::ensure!(
        length <= LONGEST_COMMAND_LINE,
        "--append: the kernel's command line has {length} bytes, and kernels read {LONGEST_COMMAND_LINE}"
    );
    Ok(())
}

impl Guest {
    /// Returns QEMU's arguments. The output of the guest's serial line is written to the file `serial`, and its disk is
    /// in the same folder. `wires` is `None` for a command line that is printed for the user to run.
    pub fn arguments(
        &self,
        serial: &Path,
        wires: Option<&Wires>,
        start: Start<'_>,
    ) -> Vec<OsString> {
        let memory = wires.map(Wires::memory_paths);
        let mut line = machine_arguments(&self.machine, &Backing::of(memory.as_deref()));
        let mut add = |words: &[&OsStr]| line.extend(words.iter().map(|word| (*word).to_owned()));
        let word = OsStr::new;
        add(&[word("-kernel"), self.image.as_os_str()]);
        add(&[word("-initrd"), self.boot.as_os_str()]);
        add(&[word("-append"), word(&self.command_line())]);
        add(&[word("-chardev"), word("file,id=output,path=/dev/stdout")]);
        add(&[
            word("-device"),
            word("isa-debugcon,iobase=0xe9,chardev=output"),
        ]);
        add(&[word("-device"), word("isa-debug-exit,iobase=0xf4,iosize=4")]);
        add(&[word("-chardev"), &option("file,id=serial,path=", serial)]);
        add(&[word("-serial"), word("chardev:serial")]);
        if self.machine.disk.is_some() {
            line.extend(disk::arguments(&disk_beside(serial)));
        }
        line.extend(self.start(start));
        let cpus = self.machine.cpus;
        let counting = &self.counting;
        line.extend(counting.arguments(
            System::Linux,
            None,
            cpus,
            wires,
            self.profile,
            self.with_faults,
        ));
        line
    }

    /// Returns the arguments that depend on how the guest starts.
    fn start(&self, start: Start<'_>) -> Vec<OsString> {
        let program = match start {
            // The fw_cfg file exists even though there is no program yet, so that the snapshot does not depend on the
            // program, and the guest that starts from the snapshot has the same fw_cfg files.
            Start::Stop { .. } => "name=opt/memwright/program,string=none".into(),
            Start::Boot | Start::Saved { .. } => {
                let name = match self.reports_names {
                    false => "name=opt/memwright/program,file=",
                    true => "name=opt/memwright/watched-program,file=",
                };
                option(name, &self.program)
            }
        };
        let (panic, monitor) = match start {
            Start::Boot => ("panic=none", None),
            Start::Stop { monitor } => ("panic=pause", Some(monitor)),
            Start::Saved { monitor } => ("panic=none", Some(monitor)),
        };
        let mut line: Vec<OsString> = ["-device", "pvpanic", "-action", panic, "-fw_cfg"]
            .map(OsString::from)
            .to_vec();
        line.push(program);
        if let Some(monitor) = monitor {
            line.extend([
                "-chardev".into(),
                option("socket,id=monitor,path=", monitor),
            ]);
            line.extend(["-mon", "chardev=monitor,mode=control"].map(OsString::from));
        }
        if matches!(start, Start::Saved { .. }) {
            line.extend(["-incoming", "defer"].map(OsString::from));
        }
        line
    }

    /// Returns the kernel's command line.
    pub fn command_line(&self) -> String {
        command_line(&self.append)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_that_a_kernel_would_cut_is_refused() {
        let room = LONGEST_COMMAND_LINE - command_line("").len() - 1;
        assert!(check_command_line(&"x".repeat(room)).is_ok());
        let error = check_command_line(&"x".repeat(room + 1)).unwrap_err();
        assert!(error.to_string().contains("has 2048 bytes"), "{error}");
    }
}
