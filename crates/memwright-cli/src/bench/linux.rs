//! A Linux kernel image as a column: boots it in the same QEMU with an archive of three files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::folder::private_folder;
use crate::guest::cpio::{self, Writer};
use crate::guest::initrd::EPOCH;
use crate::qemu::command::machine_arguments;
use crate::qemu::launch;
use crate::qemu::machine::Machine;
use crate::qemu::process::{Cut, Process};

/// No mitigation of hardware that TCG is not, and no random layout: runs repeat, and the paths are the bare ones.
const COMMAND_LINE: &str =
    "mitigations=off nokaslr norandmaps quiet panic=-1 console=ttyS0 rdinit=/init";
/// The most of a failed guest's log that is shown.
const LOG_TAIL: usize = 2000;

/// What a Linux guest is to do.
#[derive(Debug)]
pub struct Guest<'a> {
    /// The kernel: a bzImage.
    pub image: &'a Path,
    /// Modules that its first process loads.
    pub modules: Vec<PathBuf>,
    /// Its first process.
    pub init: &'a Path,
    /// The program to run, and its arguments.
    pub program: &'a Path,
    /// The arguments, without the program's name.
    pub arguments: &'a [&'a str],
    /// The machine.
    pub machine: &'a Machine,
    /// Host time after which it is given up.
    pub limit: Duration,
}

impl Guest<'_> {
    /// Boots, runs the program, and returns what it printed.
    ///
    /// # Errors
    /// When the kernel does not boot, the program fails, or the time is over: one line, with the end of the kernel's log.
    pub fn run(&self, qemu: &OsString) -> anyhow::Result<String> {
        let folder = private_folder().context("cannot make a folder for the guest")?;
        let (archive, log) = (folder.path().join("initrd.cpio"), folder.path().join("log"));
        self.pack(&archive)?;
        let errors = folder.path().join("qemu.log");
        let line = self.line(&archive, &log);
        let (mut output, child) = launch::start(qemu, &line, Stdio::from(File::create(&errors)?))?;
        let process = Arc::new(Process::new(child));
        let (ended, over) = mpsc::channel::<()>();
        let watched = process.clone();
        let limit = self.limit;
        let watch = thread::spawn(move || {
            if over.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                watched.cut(Cut::TimedOut);
            }
        });
        let mut bytes = Vec::new();
        let read = output.read_to_end(&mut bytes);
        drop(ended);
        let _ = watch.join();
        read.context("cannot read from QEMU")?;
        process.wait().context("cannot wait for QEMU")?;
        if process.was_cut().is_some() {
            bail!(
                "not done after {} s{}",
                self.limit.as_secs(),
                tail(&[&log, &errors])
            );
        }
        let Some(said) = parse_frames(&bytes) else {
            bail!("the guest ended without a result{}", tail(&[&log, &errors]));
        };
        ensure!(
            said.status == 0,
            "the program failed (wait status {:#x}): {}",
            said.status,
            said.errors.trim()
        );
        Ok(said.output)
    }

    fn line(&self, archive: &Path, log: &Path) -> Vec<OsString> {
        let mut line = machine_arguments(self.machine);
        let mut add = |words: &[&OsStr]| line.extend(words.iter().map(|word| (*word).to_owned()));
        let word = OsStr::new;
        add(&[word("-kernel"), self.image.as_os_str()]);
        add(&[word("-initrd"), archive.as_os_str()]);
        add(&[word("-append"), word(COMMAND_LINE)]);
        add(&[word("-chardev"), word("file,id=output,path=/dev/stdout")]);
        add(&[
            word("-device"),
            word("isa-debugcon,iobase=0xe9,chardev=output"),
        ]);
        add(&[word("-device"), word("isa-debug-exit,iobase=0xf4,iosize=4")]);
        add(&[word("-serial"), word(&format!("file:{}", log.display()))]);
        line
    }

    fn pack(&self, archive: &Path) -> anyhow::Result<()> {
        let context = || format!("cannot write {}", archive.display());
        let file = File::create(archive).with_context(context)?;
        let mut writer = Writer::new(BufWriter::new(file), EPOCH);
        let mut strings = Vec::new();
        for text in [&"program"].into_iter().chain(self.arguments) {
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
        }
        for (name, mode, bytes) in [
            ("init", 0o755, fs::read(self.init)?),
            ("program", 0o755, fs::read(self.program)?),
            ("arguments", 0o644, strings),
        ] {
            writer
                .entry(name.as_bytes(), cpio::FILE | mode, &bytes)
                .with_context(context)?;
        }
        if !self.modules.is_empty() {
            writer
                .entry(b"modules", cpio::FOLDER | 0o755, &[])
                .with_context(context)?;
        }
        for module in &self.modules {
            let name = module.file_name().unwrap_or_default().as_encoded_bytes();
            let path = [b"modules/", name].concat();
            let bytes = fs::read(module).with_context(|| module.display().to_string())?;
            writer
                .entry(&path, cpio::FILE | 0o644, &bytes)
                .with_context(context)?;
        }
        writer.finish().map(drop).with_context(context)
    }
}

/// What the first process handed over.
#[derive(Debug, PartialEq)]
struct Said {
    output: String,
    errors: String,
    status: u32,
}

/// Reads its frames; `None` if one is missing or cut short.
fn parse_frames(mut bytes: &[u8]) -> Option<Said> {
    let (mut output, mut errors, mut status) = (None, None, None);
    while let Some((kind, rest)) = bytes.split_first() {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let text = || Some(String::from_utf8_lossy(body).into_owned());
        match kind {
            b'o' => output = text(),
            b'e' => errors = text(),
            b'x' => status = Some(u32::from_le_bytes(body.try_into().ok()?)),
            _ => return None,
        }
        bytes = rest;
    }
    Some(Said {
        output: output?,
        errors: errors?,
        status: status?,
    })
}

/// The end of what the kernel and QEMU said, each indented, for a message.
fn tail(logs: &[&Path]) -> String {
    let mut text = String::new();
    for log in logs {
        let said = fs::read(log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said[said.len().saturating_sub(LOG_TAIL)..]);
        for line in said.lines().filter(|line| !line.trim().is_empty()) {
            text.push_str("\n  ");
            text.push_str(line.trim_end());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_parse() {
        let mut bytes = Vec::new();
        for (kind, body) in [(b'o', &b"record\n"[..]), (b'e', b""), (b'x', &[0, 1, 0, 0])] {
            bytes.push(kind);
            bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
            bytes.extend_from_slice(body);
        }
        let said = parse_frames(&bytes).unwrap();
        assert_eq!((said.output.as_str(), said.status), ("record\n", 256));
        for length in 0..bytes.len() {
            assert_eq!(parse_frames(&bytes[..length]), None, "cut at {length}");
        }
        assert_eq!(parse_frames(b"SeaBIOS"), None);
    }
}
