//! A stand-in for QEMU in tests. It accepts QEMU's arguments, and acts as a guest that executes the lines of the
//! variable `STAND_IN`.
//!
//! Each line is one step, which consists of a word and its arguments:
//!
//! - `stdout`, `stderr`, `log`, `account`, `trace`, `strace`, `panic TEXT`: write a frame; `\n` ends a line;
//! - `exited N`, `killed N`, `not-started N TEXT`: write a result frame;
//! - `raw HEX`: write bytes outside any frame;
//! - `piecemeal`: from now on write one byte at a time;
//! - `ask N`: request input and print it;
//! - `control`: wait for a control byte;
//! - `nmi`: wait for the monitor's inject-nmi, then print a backtrace;
//! - `flood`: write standard output until it is closed;
//! - `status N`: exit with that status;
//! - `pid FILE`: write the process ID to a file;
//! - `hang`: sleep until killed.

use memwright_linux_abi::channel::{INPUT_AREA, LONGEST_FRAME, OUTPUT_RING, PACE};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::exit;
use std::thread::sleep;
use std::time::Duration;

/// Executes the guest's steps.
pub fn play() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|argument| argument == "--version")
    {
        let version = std::env::var("STAND_IN_VERSION").unwrap_or_else(|_| "7.2.0".to_owned());
        println!("QEMU emulator version {version} (a stand-in)");
        return;
    }
    let mut guest = Guest::new(&arguments);
    for step in std::env::var("STAND_IN").unwrap_or_default().lines() {
        let (word, rest) = step.trim().split_once(' ').unwrap_or((step.trim(), ""));
        guest.step(word, rest);
    }
}

struct Guest {
    input: Socket,
    control: Socket,
    monitor: Socket,
    window: File,
    /// The offset in the window at which the next payload is written.
    at: usize,
    piecemeal: bool,
}

impl Guest {
    fn new(arguments: &[String]) -> Self {
        let socket = |name| Socket::listen(arguments, name);
        Self {
            input: socket("input"),
            control: socket("control"),
            monitor: socket("monitor"),
            window: window(arguments),
            at: 0,
            piecemeal: false,
        }
    }

    fn step(&mut self, word: &str, rest: &str) {
        let text = rest.replace("\\n", "\n");
        match word {
            "" => {}
            "stdout" => self.frame(1, text.as_bytes()),
            "stderr" => self.frame(2, text.as_bytes()),
            "log" => self.frame(3, text.as_bytes()),
            "account" => self.frame(4, text.as_bytes()),
            "trace" => self.frame(5, text.as_bytes()),
            "strace" => self.frame(6, text.as_bytes()),
            "panic" => self.frame(8, text.as_bytes()),
            "exited" => self.result(1, rest),
            "killed" => self.result(2, rest),
            "not-started" => self.result(3, rest),
            "raw" => self.write(&hexadecimal(rest)),
            "piecemeal" => self.piecemeal = true,
            "ask" => self.ask(number(rest)),
            "control" => {
                let byte = self.control.read_exactly(1);
                self.frame(1, format!("control {byte:?}\n").as_bytes());
            }
            "nmi" => self.wait_for_nmi(),
            "flood" => loop {
                self.frame(1, b"flood\n");
            },
            "pid" => std::fs::write(rest, std::process::id().to_string())
                .expect("the file can be written"),
            "hang" => loop {
                sleep(Duration::from_secs(1));
            },
            "status" => exit(number(rest) as i32),
            other => panic!("no step is called {other}"),
        }
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) {
        const PANIC: u8 = 8;
        for part in payload.chunks(LONGEST_FRAME) {
            let mut bytes = vec![kind];
            bytes.extend((part.len() as u32).to_le_bytes());
            if kind == PANIC {
                bytes.extend(part);
            } else {
                self.put(part);
                bytes.resize(bytes.len() + part.len() / PACE, 0);
            }
            self.write(&bytes);
        }
    }

    /// Writes a payload to the window.
    fn put(&mut self, payload: &[u8]) {
        let (first, rest) = payload.split_at(payload.len().min(OUTPUT_RING - self.at));
        for (at, part) in [(self.at, first), (0, rest)] {
            self.window
                .write_all_at(part, at as u64)
                .expect("the window can be written");
        }
        self.at = (self.at + payload.len()) % OUTPUT_RING;
    }

    fn result(&mut self, kind: u8, rest: &str) {
        let (value, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let value: i32 = value.parse().expect("a number");
        let payload = [&[kind], value.to_le_bytes().as_slice(), text.as_bytes()].concat();
        self.frame(9, &payload);
    }

    fn write(&self, bytes: &[u8]) {
        let mut output = io::stdout().lock();
        for piece in bytes.chunks(if self.piecemeal {
            1
        } else {
            bytes.len().max(1)
        }) {
            if output
                .write_all(piece)
                .and_then(|()| output.flush())
                .is_err()
            {
                exit(1);
            }
        }
    }

    fn ask(&mut self, wanted: u32) {
        self.frame(7, &wanted.to_le_bytes());
        let header = self.input.read_exactly(4);
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        if length == u32::MAX {
            return self.frame(1, b"[withdrawn]\n");
        }
        let mut data = vec![0; length as usize];
        assert!(data.len() <= INPUT_AREA, "an answer fits");
        self.window
            .read_exact_at(&mut data, OUTPUT_RING as u64)
            .expect("the window can be read");
        self.frame(1, format!("[{length}]").as_bytes());
        self.frame(1, &data);
    }

    fn wait_for_nmi(&mut self) {
        let stream = self.monitor.stream();
        stream
            .write_all(b"{\"QMP\": {}}\n")
            .expect("the monitor is read");
        let lines = BufReader::new(stream.try_clone().expect("the socket can be shared")).lines();
        for line in lines.map_while(Result::ok) {
            stream
                .write_all(b"{\"event\": \"NOISE\"}\n{\"return\": {}}\n")
                .expect("the monitor is read");
            if line.contains("inject-nmi") {
                break;
            }
        }
        self.frame(8, b"CPU 0\n  at 0x1\n");
    }
}

/// Opens the file that is mapped into the guest's memory.
fn window(arguments: &[String]) -> File {
    let path = arguments
        .iter()
        .find_map(|argument| argument.split_once(",mem-path="))
        .expect("the window is named")
        .1;
    File::options()
        .read(true)
        .write(true)
        .open(path.replace(",,", ","))
        .expect("the window is there")
}

/// A listening socket. It accepts its only connection when a step first needs it.
struct Socket {
    listener: UnixListener,
    stream: Option<UnixStream>,
}

impl Socket {
    fn listen(arguments: &[String], name: &str) -> Self {
        let prefix = format!("socket,id={name},server=on,wait=off,path=");
        let path = arguments
            .iter()
            .find_map(|argument| argument.strip_prefix(&prefix))
            .expect("the socket is named");
        Self {
            listener: UnixListener::bind(path.replace(",,", ",")).expect("the socket can be made"),
            stream: None,
        }
    }

    fn stream(&mut self) -> &mut UnixStream {
        self.stream
            .get_or_insert_with(|| self.listener.accept().expect("someone connects").0)
    }

    fn read_exactly(&mut self, count: usize) -> Vec<u8> {
        let mut data = vec![0; count];
        self.stream().read_exact(&mut data).expect("bytes come");
        data
    }
}

fn number(text: &str) -> u32 {
    text.parse().expect("a number")
}

fn hexadecimal(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).expect("hexadecimal"))
        .collect()
}
