//! Constants of the protocol between the guest and the `memwright` command.
//!
//! The guest writes the header of each frame (the kind, and the payload length as four little-endian bytes) to the
//! output channel. The payloads are in a window of memory that both sides map. `docs/protocol.md` describes the
//! complete protocol.

pub mod lower;

/// The kind of payload of a frame on the output channel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Channel {
    /// Standard output of the program.
    Stdout = 1,
    /// Standard error of the program.
    Stderr = 2,
    /// A line of kernel text, printed when the run is verbose.
    Log = 3,
    /// Lines of the form `name value` for the report of the run.
    Account = 4,
    /// A memory event of the trace, as a line of JSON.
    Trace = 5,
    /// A line of the system-call trace.
    SystemCalls = 6,
    /// A request for input. The payload is the maximum number of bytes to send, as four little-endian bytes.
    InputRequest = 7,
    /// Panic and backtrace text.
    Panic = 8,
    /// The outcome of the run; the last frame.
    Result = 9,
    /// A request for a part of the lower tree.
    LowerRequest = 10,
}

impl Channel {
    /// Returns whether a frame's payload follows its header on the output channel itself. This is the case for the
    /// frames of a panic, which must not depend on the window.
    pub const fn is_inline(self) -> bool {
        matches!(self, Self::Panic)
    }

    /// Returns the kind with the number `number`; `None` if there is none.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Stdout,
            2 => Self::Stderr,
            3 => Self::Log,
            4 => Self::Account,
            5 => Self::Trace,
            6 => Self::SystemCalls,
            7 => Self::InputRequest,
            8 => Self::Panic,
            9 => Self::Result,
            10 => Self::LowerRequest,
            _ => return None,
        })
    }
}

/// The number of the region that spans the complete run of the program. A region is the part of an execution between
/// two marks. Tools outside the machine recognise the marks and count events in the region. The regions that programs
/// mark have lower numbers.
pub const THE_RUN: u16 = 32767;
/// The displacement of the NOP that marks the beginning of region `THE_RUN`. The NOP that marks its end has a
/// displacement that is larger by 1 (`include/memwright/mark.h`).
pub const RUN_BEGINS: u32 = 0x4d57_0000 | (THE_RUN as u32) << 1;

/// The size in bytes of a frame's header: its kind and the payload length.
pub const FRAME_HEADER: usize = 5;
/// The maximum payload of a frame in bytes.
pub const LONGEST_FRAME: usize = 64 << 10;
/// The number of payload bytes per pacing byte: after the header of a payload in the window, the guest sends one byte
/// on the output channel for every `PACE` payload bytes.
pub const PACE: usize = 128;

/// The size in bytes of the window: memory that the guest and the command share through a PCI device (`ivshmem-plain`).
pub const WINDOW: usize = 2 << 20;
/// The device number of the window on the first bus.
pub const WINDOW_SLOT: u8 = 4;
/// The device number of the disk, if there is one (legacy virtio-blk with a queue of [`DISK_QUEUE`] descriptors).
pub const DISK_SLOT: u8 = 5;
/// The number of descriptors in the disk's queue.
pub const DISK_QUEUE: usize = 128;
/// The size in bytes of the output ring at the start of the window. Payloads are written to the ring one after another.
pub const OUTPUT_RING: usize = WINDOW - INPUT_AREA;
/// The size in bytes of the input area: the rest of the window, which contains the reply to a request.
pub const INPUT_AREA: usize = 64 << 10;

/// The maximum number of bytes of the output channel that QEMU has written and the command has not yet read. When this
/// number is reached, QEMU blocks until the command reads.
pub const STREAM_PIPE: usize = 4096;
/// The maximum number of bytes of the output channel that the command has read and not yet handled.
pub const STREAM_BUFFER: usize = 4096;
// Before the guest overwrites a payload in the ring, it has sent more bytes on the output channel since that payload
// than the pipe and the command's buffer hold together. So the command has read the payload by then.
const _: () =
    assert!((OUTPUT_RING - 2 * LONGEST_FRAME) / PACE > STREAM_PIPE + STREAM_BUFFER + FRAME_HEADER);

/// The length in the reply to an input request that was withdrawn because a control byte arrived first. No input
/// follows.
pub const INPUT_WITHDRAWN: u32 = u32::MAX;
/// The I/O port of the output channel (`isa-debugcon`).
pub const OUTPUT_PORT: u16 = 0xe9;
/// The first I/O port of the input channel (first serial port).
pub const INPUT_PORT: u16 = 0x3f8;
/// The first I/O port of the control channel (second serial port).
pub const CONTROL_PORT: u16 = 0x2f8;
/// The I/O port that ends the run (`isa-debug-exit`).
pub const EXIT_PORT: u16 = 0xf4;
/// The control byte that requests SIGINT to the program.
pub const CONTROL_INTERRUPT: u8 = 0x03;

/// The value of [`Outcome::NotStarted`] if the machine has too little memory for the requested run. It is not an error
/// number, because error numbers are positive.
pub const NO_ROOM: i32 = 0;

/// The outcome of a run. The payload of [`Channel::Result`] consists of the number of the variant, the value as four
/// little-endian bytes, and text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The program exited with the contained code.
    Exited(i32),
    /// This signal killed the program.
    Killed(i32),
    /// The program could not be started; the value is an error number.
    NotStarted(i32),
}

impl Outcome {
    /// The number of bytes in the payload of [`Channel::Result`] before the text.
    pub const HEADER: usize = 5;

    /// Encodes the part of the payload before the text: the number of the variant, and the value.
    pub fn encode(self) -> [u8; Self::HEADER] {
        let (kind, value) = match self {
            Self::Exited(code) => (1, code),
            Self::Killed(signal) => (2, signal),
            Self::NotStarted(errno) => (3, errno),
        };
        let value = value.to_le_bytes();
        [kind, value[0], value[1], value[2], value[3]]
    }

    /// Decodes a payload that begins with the output of [`encode`](Self::encode). Returns `None` if the number of the
    /// variant is unknown or bytes are missing.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let header: [u8; Self::HEADER] = payload.get(..Self::HEADER)?.try_into().ok()?;
        let value = i32::from_le_bytes([header[1], header[2], header[3], header[4]]);
        match header[0] {
            1 => Some(Self::Exited(value)),
            2 => Some(Self::Killed(value)),
            3 => Some(Self::NotStarted(value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Channel, Outcome};

    #[test]
    fn outcomes_survive_the_channel() {
        for outcome in [
            Outcome::Exited(255),
            Outcome::Killed(9),
            Outcome::NotStarted(-1),
        ] {
            assert_eq!(Outcome::decode(&outcome.encode()), Some(outcome));
        }
        assert_eq!(Outcome::decode(&[1, 0, 0]), None);
        assert_eq!(Outcome::decode(&[9, 0, 0, 0, 0]), None);
    }

    #[test]
    fn channel_numbers_are_dense() {
        for number in 1..=10 {
            assert_eq!(Channel::from_number(number).map(|c| c as u8), Some(number));
        }
        assert_eq!(Channel::from_number(0), None);
        assert_eq!(Channel::from_number(11), None);
    }
}
