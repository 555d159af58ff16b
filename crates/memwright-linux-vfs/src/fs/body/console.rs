//! Standard input, output and error of the guest, which the `memwright` command on the host forwards.

use crate::{
    fs::{attributes::DeviceNumber, kind::Kind, turn::Turn},
    manifest::Stream,
};
use alloc::{boxed::Box, sync::Arc, vec};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{channel::INPUT_AREA, host::Channel};
use memwright_linux_base::sync::{Lock, Rank};

/// Maximum number of bytes of input that the command returns for one request.
const INPUT: usize = INPUT_AREA;

/// The device number of a standard stream that is a terminal: that of `/dev/console`.
pub const CONSOLE_DEVICE: DeviceNumber = DeviceNumber::new(5, 1);

/// Input that the command has sent and that the guest has not read yet. The input is in `bytes[start..end]`.
pub(in crate::fs) struct Input {
    pub(in crate::fs) bytes: Box<[u8]>,
    pub(in crate::fs) start: usize,
    pub(in crate::fs) end: usize,
    /// Whether the command reported the end of the input.
    pub(in crate::fs) ended: bool,
}

/// The buffered input, which all three standard streams share.
pub struct Console {
    pub(in crate::fs) input: Lock<Input>,
    pub(in crate::fs) reading: Turn,
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

impl Console {
    /// Creates the console with no input buffered.
    #[must_use]
    pub fn new() -> Self {
        #[expect(clippy::disallowed_macros, reason = "before any program runs")]
        let bytes = vec![0; INPUT].into_boxed_slice();
        let input = Input {
            bytes,
            start: 0,
            end: 0,
            ended: false,
        };
        Self {
            input: Lock::new(Rank::File, input),
            reading: Turn::new(),
        }
    }
}

/// One of the three standard streams.
#[derive(Clone)]
pub struct ConsoleStream {
    pub(in crate::fs) console: Arc<Console>,
    /// The output channel of the command; `None` for standard input that is not a terminal.
    pub(in crate::fs) output: Option<Channel>,
    pub(in crate::fs) terminal: bool,
}

impl ConsoleStream {
    /// Creates the stream of descriptor `number`: standard input (0), output (1) or error (2).
    #[must_use]
    pub fn new(console: &Arc<Console>, number: usize, stream: Stream) -> Self {
        let terminal = stream == Stream::Terminal;
        let output = match number {
            0 => terminal.then_some(Channel::Stdout),
            1 => Some(Channel::Stdout),
            _ => Some(Channel::Stderr),
        };
        Self {
            console: console.clone(),
            output,
            terminal,
        }
    }

    /// Returns the file type: a character device if the stream is a terminal, else a FIFO.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        if self.terminal {
            Kind::Character
        } else {
            Kind::Fifo
        }
    }

    /// Returns the device number: that of the terminal, or 0:0 if the stream is not a terminal.
    #[must_use]
    pub const fn special(&self) -> DeviceNumber {
        if self.terminal {
            CONSOLE_DEVICE
        } else {
            DeviceNumber::new(0, 0)
        }
    }

    /// Returns whether the stream is a terminal.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Returns the `O_` flags with which the stream is open in the first program.
    #[must_use]
    pub const fn flags(&self) -> u32 {
        match (self.terminal, self.output) {
            (true, _) => raw::O_RDWR,
            (false, None) => raw::O_RDONLY,
            (false, Some(_)) => raw::O_WRONLY,
        }
    }

    /// Returns whether the stream can be read. A terminal and standard input can be read.
    pub(in crate::fs) fn reads(&self) -> bool {
        self.terminal || self.output.is_none()
    }
}
