//! The connections between this command and a guest that it counts: the guest's memory, QEMU's log, and the pipe with
//! which the command resumes the guest after a mark.

use crate::count::system::{marker, software_bits};
use crate::count::tables;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, MemfdFlags, Mode};

use crate::count::gates;
use crate::count::line;
use crate::count::log::Tally;
use crate::count::raw::{self, Raw};
use crate::count::tables::{Memory, Part};
use crate::model::code::Code;
use crate::model::image::System;
use crate::model::machine::Machine;
use crate::model::page_tables::PageTables;

/// The connections to a guest: its memory, and the pipe with which the command resumes it after a mark.
#[derive(Debug)]
pub struct Wires {
    // One part per NUMA node, in order of addresses.
    memory: Vec<Part>,
    answers: PathBuf,
    // The file to which the plugin writes a profile.
    profile: PathBuf,
    // The pipe, opened for reading and writing, because an open only for writing would block until the plugin opens the
    // pipe.
    answer: File,
}

impl Wires {
    /// Creates the memory of a machine, and the pipe in `folder`.
    ///
    /// # Errors
    /// I/O errors of creating them.
    pub fn make(folder: &Path, machine: &Machine) -> io::Result<Self> {
        let sizes = machine.nodes.sizes(machine.memory).into_iter();
        let part = |size| -> io::Result<Part> {
            let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC)?.into();
            Ok(Part { file, size })
        };
        let memory = sizes.map(part).collect::<io::Result<_>>()?;
        let answers = folder.join("answers");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &answers, FileType::Fifo, mode, 0)?;
        let answer = File::options().read(true).write(true).open(&answers)?;
        Ok(Self {
            memory,
            answers,
            profile: folder.join("profile"),
            answer,
        })
    }

    /// Returns the guest's memory, one file per node.
    pub fn memory(&self) -> &[Part] {
        &self.memory
    }

    /// Returns the path of the pipe from which the plugin reads answers.
    pub fn answers_path(&self) -> &Path {
        &self.answers
    }

    /// Returns the path of the file to which the plugin writes a profile.
    pub fn profile_path(&self) -> &Path {
        &self.profile
    }

    /// Reads the profile that the plugin has written.
    ///
    /// # Errors
    /// If there is no profile, or it is malformed.
    pub fn profile(&self) -> anyhow::Result<Raw> {
        Ok(raw::parse(&fs::read(&self.profile).unwrap_or_default())?)
    }

    /// Returns the paths at which QEMU can open the memory.
    pub fn memory_paths(&self) -> Vec<String> {
        let process = std::process::id();
        let path = |part: &Part| format!("/proc/{process}/fd/{}", part.file.as_raw_fd());
        self.memory.iter().map(path).collect()
    }

    /// Reads QEMU's log until it ends, and answers each mark. `code` is the code of a kernel that runs alone. With
    /// `with_faults`, also collects the page faults of the run.
    ///
    /// # Errors
    /// I/O errors of reading the log and of writing answers.
    pub fn follow(
        &self,
        log: impl Read,
        system: System,
        code: Option<&Code>,
        cpus: u8,
        with_faults: bool,
    ) -> io::Result<Tally> {
        let mut reader = BufReader::with_capacity(1 << 16, log);
        let mut tally = match code {
            Some(code) => Tally::alone(cpus, code),
            None => Tally::new(cpus, marker(system)),
        };
        if with_faults {
            tally = tally.with_faults();
        }
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            if reader.read_until(b'\n', &mut bytes)? == 0 {
                return Ok(tally);
            }
            let Some(line) = line::parse(&bytes) else {
                continue;
            };
            if tally.line(line, |cr3| self.look(system, cr3)) {
                let gates = tally.take_gates();
                let gates = gates.and_then(|(cr3, table)| self.gates(cr3, table));
                let answer = answer(gates.as_ref(), tally.take_end());
                (&self.answer).write_all(&answer)?;
            }
        }
    }

    /// Summarizes the page tables at a value of CR3. Returns `None` for a kernel that runs alone, because the use of
    /// its lower half and the number of levels of its page tables are not known.
    fn look(&self, system: System, cr3: u64) -> Option<PageTables> {
        if system == System::Alone {
            return None;
        }
        tables::read(&Memory(&self.memory), cr3, software_bits(system))
    }

    fn gates(&self, cr3: u64, table: u64) -> Option<[u64; gates::COUNT]> {
        gates::read(&Memory(&self.memory), cr3, table)
    }
}

/// Returns the answer that resumes the guest after a mark. It contains the addresses of the handlers (`gates`), the
/// number of kernel instructions at the end of the run (`end`), or neither.
fn answer(gates: Option<&[u64; gates::COUNT]>, end: Option<u64>) -> Vec<u8> {
    let (letter, words) = match (gates, end) {
        (Some(gates), _) => (b'g', gates.as_slice()),
        (None, Some(end)) => (b'e', &[end][..]),
        (None, None) => (b'.', &[][..]),
    };
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    [letter].into_iter().chain(words).collect()
}
