//! The file operations of standard input, output and error, which the `memwright` command on the host forwards.

use crate::fs::{
    abilities::{Polling, Positions, Splices},
    caller::Caller,
    console::{Console, ConsoleStream},
    open_file::{File, OpenFile},
    readiness::Readiness,
    transfer::{Sink, Source, with_buffer},
};
use linux_raw_sys::ioctl;
use memwright_linux_abi::{abi_struct, errno::Errno, host::Channel};
use memwright_linux_sched::scheduler::Work;

impl Console {
    /// Requests input from the command unless input is buffered or has ended. The virtual machine is stopped until the
    /// command answers, so that a wait for input takes no guest time.
    ///
    /// # Errors
    /// `ERESTARTSYS` if a control byte (such as ^C) arrived instead of input.
    fn fetch(&self, caller: &dyn Caller) -> Result<(), Errno> {
        let mut input = self.input.lock();
        if input.start < input.end || input.ended {
            return Ok(());
        }
        let Some(count) = caller.vfs().channels.input(&mut input.bytes) else {
            drop(input);
            caller.task().set_work(Work::CONTROL, true);
            return Err(Errno::ERESTARTSYS);
        };
        input.start = 0;
        input.end = count;
        input.ended = count == 0;
        Ok(())
    }

    /// Copies buffered input into `buffer` without consuming it. Returns the number of bytes copied.
    fn peek(&self, buffer: &mut [u8]) -> usize {
        let input = self.input.lock();
        let count = (input.end - input.start).min(buffer.len());
        buffer[..count].copy_from_slice(&input.bytes[input.start..input.start + count]);
        count
    }

    fn consume(&self, count: usize) {
        self.input.lock().start += count;
    }

    /// Returns the number of buffered bytes, and whether the input has ended.
    fn waiting(&self) -> (usize, bool) {
        let input = self.input.lock();
        (input.end - input.start, input.ended)
    }

    /// Copies buffered input to `sink` through `buffer`. Consumes the bytes that `sink` stored, and returns their
    /// number.
    fn deliver(&self, sink: &mut Sink<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        loop {
            let wanted = sink.left().min(buffer.len());
            let count = self.peek(&mut buffer[..wanted]);
            let put = match sink.put(&buffer[..count]) {
                Ok(put) => put,
                Err(_) if done > 0 => 0,
                Err(error) => return Err(error),
            };
            self.consume(put);
            done += put;
            if put < wanted || sink.left() == 0 {
                return Ok(done);
            }
        }
    }

    fn read(
        &self,
        caller: &dyn Caller,
        terminal: bool,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        if sink.left() == 0 {
            return Ok(0);
        }
        let turn = self.reading.take(caller)?;
        self.fetch(caller)?;
        let done = with_buffer(sink.left(), |buffer| self.deliver(sink, buffer))?;
        if done == 0 && terminal {
            // ^D at a terminal ends one read. More input can follow.
            self.input.lock().ended = false;
        }
        drop(turn);
        Ok(done)
    }
}

abi_struct! {
    /// `struct winsize` of `asm-generic/termios.h`.
    pub struct WindowSize {
        /// Rows of characters.
        pub rows: u16,
        /// Columns of characters.
        pub columns: u16,
        /// Width in pixels; 0, because it is unknown.
        pub width: u16,
        /// Height in pixels; 0, because it is unknown.
        pub height: u16,
    }
}

abi_struct! {
    /// `struct termios` of `asm-generic/termbits.h`.
    pub struct Termios {
        /// Input modes.
        pub input: u32,
        /// Output modes.
        pub output: u32,
        /// Control modes.
        pub control: u32,
        /// Local modes.
        pub local: u32,
        /// Line discipline and the first three control characters.
        pub line: [u8; 4],
        /// The other control characters.
        pub characters: [u8; 16],
    }
}

/// The terminal modes that `TCGETS` returns. The terminal on the host performs line editing, echo and signal
/// characters.
const COOKED: Termios = Termios {
    // ICRNL | IXON
    input: 0o400 | 0o2000,
    // OPOST | ONLCR
    output: 0o1 | 0o4,
    // B38400 | CS8 | CREAD
    control: 0o17 | 0o60 | 0o200,
    // ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN
    local: 0o1 | 0o2 | 0o10 | 0o20 | 0o40 | 0o1000 | 0o4000 | 0o100_000,
    // N_TTY; VINTR ^C, VQUIT ^\, VERASE DEL
    line: [0, 3, 0x1c, 0x7f],
    // VKILL ^U, VEOF ^D, VTIME, VMIN, VSWTC, VSTART ^Q, VSTOP ^S, VSUSP ^Z, VEOL, VREPRINT ^R,
    // VDISCARD ^O, VWERASE ^W, VLNEXT ^V, VEOL2
    characters: [
        0x15, 4, 0, 1, 0, 0x11, 0x13, 0x1a, 0, 0x12, 0xf, 0x17, 0x16, 0, 0, 0,
    ],
};

impl File for ConsoleStream {
    fn splices(&self) -> Splices {
        Splices::Both
    }

    fn positions(&self) -> Positions {
        Positions::Refused
    }

    fn read(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        _position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        if self.reads() {
            self.console.read(caller, self.terminal, sink)
        } else {
            Err(Errno::EBADF)
        }
    }

    fn write(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        _position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let channel = self.output.ok_or(Errno::EBADF)?;
        write_channel(caller, channel, source)
    }

    fn polling(&self) -> Polling {
        Polling::Look
    }

    fn readiness(&self, caller: &dyn Caller, _open: &OpenFile) -> Readiness {
        let mut ready = Readiness::empty();
        if self.reads() {
            // An error means that a control byte arrived. The stream is then not ready, and the signal that the control
            // byte generates interrupts the caller's wait.
            let _ = self.console.fetch(caller);
            let (waiting, ended) = self.console.waiting();
            ready.set(Readiness::READ, waiting > 0 || (ended && self.terminal));
            ready.set(Readiness::HANGUP, waiting == 0 && ended && !self.terminal);
        }
        ready.set(Readiness::WRITE, self.output.is_some());
        ready
    }

    fn control(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        if command == ioctl::FIONREAD && self.reads() {
            let (waiting, _) = self.console.waiting();
            return caller
                .memory()
                .write_value(argument, &(waiting as u32))
                .map(|()| 0);
        }
        if !self.terminal {
            return Err(Errno::ENOTTY);
        }
        match command {
            ioctl::TCGETS => caller.memory().write_value(argument, &COOKED).map(|()| 0),
            // The command controls the terminal's modes. Setting the current modes succeeds, and setting other modes
            // fails.
            ioctl::TCSETS | ioctl::TCSETSW | ioctl::TCSETSF => {
                let wanted: Termios = caller.memory().read_value(argument)?;
                if wanted == COOKED {
                    Ok(0)
                } else {
                    Err(Errno::EINVAL)
                }
            }
            ioctl::TIOCGWINSZ => {
                let (rows, columns) = caller.vfs().terminal_size;
                let size = WindowSize {
                    rows,
                    columns,
                    ..WindowSize::default()
                };
                caller.memory().write_value(argument, &size).map(|()| 0)
            }
            _ => Err(Errno::ENOTTY),
        }
    }
}

/// Writes all of `source` to a channel. Returns the number of bytes written, which is less than the length of `source`
/// only after a fault.
///
/// # Errors
/// `EFAULT` if the first byte cannot be read.
pub fn write_channel(
    caller: &dyn Caller,
    channel: Channel,
    source: &mut Source<'_>,
) -> Result<usize, Errno> {
    with_buffer(source.left(), |buffer| {
        let mut done = 0;
        while source.left() > 0 {
            let wanted = source.left().min(buffer.len());
            let count = match source.take(&mut buffer[..wanted]) {
                Ok(count) => count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            caller.vfs().channels.output(channel, &buffer[..count]);
            done += count;
            if count < wanted {
                break;
            }
        }
        Ok(done)
    })
}
