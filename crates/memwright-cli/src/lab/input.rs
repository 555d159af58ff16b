//! The inputs that all runs of a command share: standard input, and the results of rehearsals, which list the files
//! that the programs use.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use crate::lab::rehearsal::Rehearsals;
use crate::memwright::input::Source;
use crate::model::failure::{Failure, TIMEOUT};
use crate::model::size::{MemorySize, in_mebibytes};

/// Standard input and the rehearsals, which are determined once for all guests of a command.
#[derive(Debug, Default)]
pub struct Input {
    bytes: OnceLock<Vec<u8>>,
    /// The rehearsals, which determine the files of `--root` that the programs use.
    pub rehearsals: Rehearsals,
}

impl Input {
    /// Returns an empty input. Standard input is not read.
    pub fn none() -> Self {
        Self::of(Vec::new())
    }

    /// Returns an input of these bytes. Standard input is not read.
    pub fn of(bytes: Vec<u8>) -> Self {
        Self {
            bytes: OnceLock::from(bytes),
            rehearsals: Rehearsals::default(),
        }
    }

    /// Returns the source of standard input for a guest with Memwright's kernel, which requests it in pieces. A
    /// terminal is treated as empty input.
    pub fn source(&self) -> Source {
        match self.bytes.get() {
            Some(bytes) => Source::Bytes(bytes.clone()),
            None if io::stdin().is_terminal() => Source::Bytes(Vec::new()),
            None => Source::Descriptor,
        }
    }

    /// Reads standard input completely. A terminal is treated as empty input, because the guest's standard input is a
    /// file.
    ///
    /// # Errors
    /// If the input does not end within `limit`, or does not fit in the guest's memory.
    pub fn read(&self, memory: MemorySize, limit: Duration) -> Result<Vec<u8>, Failure> {
        let input = match self.bytes.get() {
            Some(input) => input,
            None => {
                let input = match io::stdin().is_terminal() {
                    true => Vec::new(),
                    false => read_input(memory, limit)?,
                };
                self.bytes.get_or_init(|| input)
            }
        };
        check_room(input, memory)?;
        Ok(input.clone())
    }
}

/// Reads standard input until its end. It must fit in the guest's memory, and end within `limit`.
fn read_input(memory: MemorySize, limit: Duration) -> Result<Vec<u8>, Failure> {
    let end = Instant::now() + limit;
    let stdin = rustix::stdio::stdin();
    let mut input = Vec::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        let mut events = [PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut events, left.as_ref()));
        if ready == Ok(0) {
            return Err(Failure::Ended(
                TIMEOUT,
                "--timeout expired: standard input has no end yet".to_owned(),
            ));
        }
        // If polling fails, the following read returns the error.
        let got = retry_on_intr(|| rustix::io::read(stdin, &mut piece[..]));
        let got = got.context("cannot read standard input")?;
        if got == 0 {
            return Ok(input);
        }
        input.extend_from_slice(&piece[..got]);
        check_room(&input, memory)?;
    }
}

fn check_room(input: &[u8], memory: MemorySize) -> Result<(), Failure> {
    if input.len() as u64 > memory.bytes() {
        return Err(Failure::Broken(anyhow!(
            "standard input is larger than the guest's memory of {}",
            in_mebibytes(memory.bytes())
        )));
    }
    Ok(())
}
