//! One boot of a Linux kernel image that runs one program: what goes in, and what comes out.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, anyhow, bail};
use memwright_linux::channel::Outcome;

use crate::count::counting::Counting;
use crate::count::said::Said;
use crate::count::wires::Wires;
use crate::host::folder::private_folder;
use crate::linux::no_result::NoResult;
use crate::linux::state::{Listener, State};
use crate::model::hash::hexadecimal;
use crate::model::image::System;
use crate::model::machine::Machine;
use crate::qemu::command::{machine_arguments, option};
use crate::qemu::launch;
use crate::qemu::nodes::Backing;
use crate::qemu::process::Process;
use crate::qemu::runs::Runs;

/// No mitigation of hardware that TCG is not, and no random layout: runs repeat, and the paths are the bare ones.
const COMMAND_LINE: &str =
    "mitigations=off nokaslr norandmaps quiet panic=-1 console=ttyS0 rdinit=/.memwright/init";

/// A kernel, a program and a machine, the same for every run of them.
#[derive(Debug, Clone)]
pub struct Guest {
    /// The QEMU to use.
    pub qemu: OsString,
    /// The kernel: a bzImage, or a vmlinux.
    pub image: PathBuf,
    /// The archive that it boots from: the first process, and modules.
    pub boot: PathBuf,
    /// The archive of the program and its files, which the first process unpacks.
    pub program: PathBuf,
    /// Added to the kernel's command line.
    pub append: String,
    /// The machine.
    pub machine: Machine,
    /// What counts.
    pub counting: Counting,
    /// The region, or [`THE_RUN`](memwright_linux::channel::THE_RUN), of which the plugin makes a profile.
    pub profile: Option<u16>,
}

/// How a guest starts, and what becomes of it at the point where nothing depends on the program yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start<'a> {
    /// It boots, and goes on.
    Boot,
    /// It boots, and stops there; QEMU connects its monitor to this socket.
    Stop { monitor: &'a Path },
    /// It goes on from there with a state that it gets by its monitor.
    Saved { monitor: &'a Path },
}

/// Bytes of a command line that x86-64 kernels read (COMMAND_LINE_SIZE, without the end): they leave out the rest, and say
/// nothing.
const LONGEST_COMMAND_LINE: usize = 2047;

/// The kernel's command line with what is appended.
fn command_line(append: &str) -> String {
    match append {
        "" => COMMAND_LINE.to_owned(),
        more => format!("{COMMAND_LINE} {more}"),
    }
}

/// Checks that a kernel reads all of its command line.
///
/// # Errors
/// One line that says how long it is.
pub fn check_command_line(append: &str) -> anyhow::Result<()> {
    let length = command_line(append).len();
    anyhow::ensure!(
        length <= LONGEST_COMMAND_LINE,
        "--append: the kernel's command line has {length} bytes, and kernels read {LONGEST_COMMAND_LINE}"
    );
    Ok(())
}

impl Guest {
    /// QEMU's arguments, with the guest's serial line in this file. A run of this command adds [`Wires`].
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
        line.extend(self.start(start));
        let cpus = self.machine.cpus;
        let counting = &self.counting;
        line.extend(counting.arguments(System::Linux, cpus, wires, self.profile));
        line
    }

    /// The arguments that depend on how the guest starts.
    fn start(&self, start: Start<'_>) -> Vec<OsString> {
        let program = match start {
            // Every guest has the file; a state is the same whatever the program is.
            Start::Stop { .. } => "name=opt/memwright/program,string=none".into(),
            Start::Boot | Start::Saved { .. } => {
                option("name=opt/memwright/program,file=", &self.program)
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

    /// The kernel's command line.
    pub fn command_line(&self) -> String {
        command_line(&self.append)
    }

    /// Runs the program, from a saved state where there is one, and returns what came of it.
    ///
    /// # Errors
    /// When the guest gives no result: one line that says what is known of it.
    pub fn run(&self, runs: &Runs, state: Option<&State>) -> anyhow::Result<Said> {
        let folder = private_folder().context("cannot make a folder for the guest")?;
        let (serial, errors) = (folder.path().join("serial"), folder.path().join("qemu.log"));
        let wires =
            Wires::make(folder.path(), &self.machine).context("cannot make the guest's memory")?;
        let monitor = folder.path().join("monitor.sock");
        let listener = state.map(|_| Listener::bind(monitor.clone())).transpose();
        let listener = listener.context("cannot make a socket")?;
        let start = match state {
            Some(_) => Start::Saved { monitor: &monitor },
            None => Start::Boot,
        };
        if let Some(state) = state
            && let Err(error) = state.fill(wires.memory())
        {
            state.say_unusable(&error);
            return self.run(runs, None);
        }
        let line = self.arguments(&serial, Some(&wires), start);
        let (log, writer) = io::pipe().context("cannot make a pipe")?;
        let create = || File::create(&errors).context("cannot write to the guest's folder");
        let (mut output, child) = launch::start(
            &self.qemu,
            &line,
            Stdio::from(writer),
            Stdio::from(create()?),
        )?;
        let process = Arc::new(Process::new(child));
        runs.add(&process);
        if let (Some(state), Some(listener)) = (state, listener) {
            let stream = listener.accept(&output).context("QEMU does not answer");
            let resumed = stream.and_then(|stream| state.resume(stream, folder.path()));
            if let Err(error) = resumed
                && runs.was_cut().is_none()
            {
                process.kill();
                process.wait().context("cannot wait for QEMU")?;
                state.say_unusable(&error.context(NoResult::read(&serial, &errors, None)));
                return self.run(runs, None);
            }
        }
        let (read, tally) = thread::scope(|scope| {
            let following = scope.spawn(|| wires.follow(log, System::Linux, self.machine.cpus));
            let mut bytes = Vec::new();
            let read = output.read_to_end(&mut bytes).map(|_| bytes);
            (read, following.join())
        });
        let bytes = read.context("cannot read from QEMU")?;
        let tally = tally
            .map_err(|_| anyhow!("following QEMU's log panicked"))?
            .context("cannot read QEMU's log")?;
        let status = process.wait().context("cannot wait for QEMU")?;
        let Some(said) = parse_frames(&bytes) else {
            if bytes.ends_with(NOT_UNPACKED) {
                bail!("the program and its files do not fit into the guest's memory");
            }
            return Err(NoResult::read(&serial, &errors, status.signal()).into());
        };
        Ok(Said {
            counted: self.counting.result(tally)?,
            profile: self.profile.map(|_| wires.profile()).transpose()?,
            ..said
        })
    }
}

/// What the first process says last where it cannot unpack the program: an empty frame.
const NOT_UNPACKED: &[u8] = b"f\0\0\0\0";

/// What the first process handed over; `None` if a part is missing.
fn parse_frames(mut bytes: &[u8]) -> Option<Said> {
    let (mut output, mut errors, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    let mut notes = Vec::new();
    let (mut refusal, mut status) = (None, None);
    while let Some((kind, rest)) = bytes.split_first() {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let number = || Some(i32::from_le_bytes(body.try_into().ok()?));
        match kind {
            b'o' => output.extend_from_slice(body),
            b'e' => errors.extend_from_slice(body),
            b'w' => warnings.extend_from_slice(body),
            b'b' => notes.extend_from_slice(body),
            // What its clock read where it could be saved.
            b'r' => {}
            b'n' => refusal = Some(number()?),
            b'x' => status = Some(number()?),
            _ => return None,
        }
        bytes = rest;
    }
    // A wait status: a signal in the low seven bits, else the exit code above (wait(2)).
    let status = status?;
    let outcome = match (refusal, status & 0x7f) {
        (Some(number), _) => Outcome::NotStarted(number),
        (None, 0) => Outcome::Exited(status >> 8 & 0xff),
        (None, signal) => Outcome::Killed(signal),
    };
    Some(Said {
        output,
        errors,
        warnings,
        build_id: build_id(&notes),
        outcome,
        counted: None,
        profile: None,
    })
}

/// The build ID among the notes of an ELF file: of type 3, by GNU.
fn build_id(mut notes: &[u8]) -> Option<String> {
    let whole = |length: u32| Some(usize::try_from(length).ok()?.next_multiple_of(4));
    loop {
        let (header, rest) = notes.split_first_chunk::<12>()?;
        let word = |at: usize| Some(u32::from_le_bytes(header[at..at + 4].try_into().ok()?));
        let (name, rest) = rest.split_at_checked(whole(word(0)?)?)?;
        let (bytes, rest) = rest.split_at_checked(whole(word(4)?)?)?;
        if name == b"GNU\0" && word(8)? == 3 {
            return Some(hexadecimal(bytes));
        }
        notes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_command_line_that_a_kernel_would_cut_is_refused() {
        let room = LONGEST_COMMAND_LINE - command_line("").len() - 1;
        assert!(check_command_line(&"x".repeat(room)).is_ok());
        let error = check_command_line(&"x".repeat(room + 1)).unwrap_err();
        assert!(error.to_string().contains("has 2048 bytes"), "{error}");
    }

    #[test]
    fn frames_parse() {
        let parts = [
            frame(b'r', &[0; 8]),
            frame(b'o', b"one "),
            frame(b'o', b"two"),
            frame(b'e', b"error"),
            frame(b'w', b"no swap\n"),
            frame(b'b', b"\x04\0\0\0\x05\0\0\0\x06\0\0\0Xen\0linux\0\0\0"),
            frame(b'b', b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0\x01\xab\0\x10"),
            frame(b'x', &[0, 7, 0, 0]),
        ];
        let bytes = parts.concat();
        let said = parse_frames(&bytes).unwrap();
        assert_eq!(
            (&*said.output, &*said.errors),
            (&b"one two"[..], &b"error"[..])
        );
        assert_eq!(
            (&*said.warnings, said.outcome),
            (&b"no swap\n"[..], Outcome::Exited(7))
        );
        assert_eq!(said.build_id.as_deref(), Some("01ab0010"));
        for length in 0..bytes.len() {
            assert_eq!(parse_frames(&bytes[..length]), None, "cut at {length}");
        }
        assert_eq!(parse_frames(b"SeaBIOS"), None);
    }

    #[test]
    fn wait_statuses_are_outcomes() {
        for (refusal, status, expected) in [
            (None, 0x0000, Outcome::Exited(0)),
            (None, 0xff00, Outcome::Exited(255)),
            (None, 0x000b, Outcome::Killed(11)),
            (None, 0x008b, Outcome::Killed(11)),
            (Some(8), 0x7f00, Outcome::NotStarted(8)),
        ] {
            let mut bytes = Vec::new();
            if let Some(number) = refusal {
                bytes.extend(frame(b'n', &i32::to_le_bytes(number)));
            }
            bytes.extend(frame(b'x', &i32::to_le_bytes(status)));
            assert_eq!(parse_frames(&bytes).unwrap().outcome, expected);
        }
    }
}
