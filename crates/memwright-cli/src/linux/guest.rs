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

/// No mitigations for hardware bugs that TCG does not have, and no randomized layout: runs repeat, and the code paths
/// have no extra steps.
const COMMAND_LINE: &str =
    "mitigations=off nokaslr norandmaps quiet panic=-1 console=ttyS0 rdinit=/.memwright/init";

/// A kernel, a program and a machine, the same for every run.
#[derive(Debug, Clone)]
pub struct Guest {
    /// The QEMU to use.
    pub qemu: OsString,
    /// The kernel: a bzImage, or a vmlinux.
    pub image: PathBuf,
    /// The archive from which it boots: the first process, and modules.
    pub boot: PathBuf,
    /// The archive of the program and its files, which the first process unpacks.
    pub program: PathBuf,
    /// Whether the first process reports the names that the program looks up in vain. The program then runs under a
    /// filter, and its counts are not those of other runs.
    pub reports_names: bool,
    /// Words that are appended to the kernel's command line.
    pub append: String,
    /// The machine.
    pub machine: Machine,
    /// The means by which it is counted.
    pub counting: Counting,
    /// The region, or [`THE_RUN`](memwright_linux_abi::channel::THE_RUN), that the plugin profiles.
    pub profile: Option<u16>,
}

/// How a guest starts, and what happens at the save point: the last point that does not depend on the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start<'a> {
    /// It boots, and continues past the save point.
    Boot,
    /// It boots, and stops at the save point; QEMU connects its monitor to this socket.
    Stop { monitor: &'a Path },
    /// It starts at the save point with a saved state, which QEMU receives through the monitor on this socket.
    Saved { monitor: &'a Path },
}

/// The number of bytes of a command line that x86-64 kernels read (COMMAND_LINE_SIZE, without the terminator): they
/// silently ignore the rest.
const LONGEST_COMMAND_LINE: usize = 2047;

/// Returns the file of the disk of the guest whose serial line is in this file.
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

/// Checks that a kernel reads all of its command line.
///
/// # Errors
/// One line with the length.
pub fn check_command_line(append: &str) -> anyhow::Result<()> {
    let length = command_line(append).len();
    anyhow::ensure!(
        length <= LONGEST_COMMAND_LINE,
        "--append: the kernel's command line has {length} bytes, and kernels read {LONGEST_COMMAND_LINE}"
    );
    Ok(())
}

impl Guest {
    /// Returns QEMU's arguments, with the guest's serial line in this file, and its disk, if there is one, beside it. A run
    /// by this command adds [`Wires`].
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
        line.extend(counting.arguments(System::Linux, cpus, wires, self.profile));
        line
    }

    /// Returns the arguments that depend on how the guest starts.
    fn start(&self, start: Start<'_>) -> Vec<OsString> {
        let program = match start {
            // Every guest has the file, so that a state does not depend on the program.
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
