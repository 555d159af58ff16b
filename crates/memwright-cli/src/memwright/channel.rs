//! Reads the frames that the guest sends on its debug console. docs/protocol.md describes them.

use std::io::{self, Read};

use anyhow::{Context, bail};
use memwright_linux_abi::channel::{Channel, FRAME_HEADER, LONGEST_FRAME, Outcome, PACE};

use crate::memwright::window::Window;

/// Decodes the payload of a result frame: how PROGRAM ended, and the guest's text about it.
///
/// # Errors
/// If the payload is too short or of an unknown kind.
pub fn decode_result(payload: &[u8]) -> anyhow::Result<(Outcome, String)> {
    let Some(outcome) = Outcome::decode(payload) else {
        bail!(
            "the guest's result is damaged: {} bytes, {:?} first",
            payload.len(),
            payload.first()
        );
    };
    let text = payload.get(Outcome::HEADER..).unwrap_or_default();
    Ok((outcome, String::from_utf8_lossy(text).trim_end().to_owned()))
}

/// Splits a stream from the guest's debug console into frames.
#[derive(Debug)]
pub struct Frames<R> {
    input: R,
    window: Window,
    payload: Vec<u8>,
}

impl<R: Read> Frames<R> {
    /// Returns a reader of frames whose headers are in `input` and whose payloads are in `window`. `input` may be a
    /// buffered reader with a buffer of at most [`STREAM_BUFFER`](memwright_linux_abi::channel::STREAM_BUFFER) bytes.
    pub fn new(input: R, window: Window) -> Self {
        Self {
            input,
            window,
            payload: Vec::new(),
        }
    }

    /// Returns the next frame; `None` at the end of the stream.
    ///
    /// # Errors
    /// If the stream ends within a frame, or contains bytes that are not a frame.
    pub fn next(&mut self) -> anyhow::Result<Option<(Channel, &[u8])>> {
        let mut header = [0; FRAME_HEADER];
        let got = read_up_to(&mut self.input, &mut header).context("cannot read from QEMU")?;
        if got == 0 {
            return Ok(None);
        }
        if got < header.len() {
            bail!("the guest's output ends within a frame");
        }
        let Some(kind) = Channel::from_number(header[0]) else {
            bail!(
                "the guest's output is damaged: frame of unknown kind {}",
                header[0]
            );
        };
        let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]) as usize;
        if length > LONGEST_FRAME {
            bail!("the guest's output is damaged: frame of {length} bytes");
        }
        let follows = if kind.is_inline() {
            length
        } else {
            length / PACE
        };
        self.payload.resize(follows, 0);
        let got =
            read_up_to(&mut self.input, &mut self.payload).context("cannot read from QEMU")?;
        if got < follows {
            bail!("the guest's output ends within a frame");
        }
        if !kind.is_inline() {
            self.payload.resize(length, 0);
            self.window
                .take(&mut self.payload)
                .context("cannot read the guest's output")?;
        }
        Ok(Some((kind, &self.payload)))
    }
}

/// Fills `buffer`, or a part of it if the input ends first. Returns the number of bytes read.
///
/// # Errors
/// I/O errors of reading `input`.
pub fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match input.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes that a guest writes to its debug console for a frame.
    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend((payload.len() as u32).to_le_bytes());
        if kind == Channel::Panic as u8 {
            bytes.extend(payload);
        } else {
            bytes.resize(FRAME_HEADER + payload.len() / PACE, 0);
        }
        bytes
    }

    /// Returns a window that contains these payloads.
    fn window(payloads: &[&[u8]]) -> Window {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("window");
        let window = Window::create(&path).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&payloads.concat(), 0).unwrap();
        window
    }

    /// The rest of a stream, and the maximum number of bytes that one read returns.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(buffer.len()).min(self.0.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn frames_come_whole_however_the_stream_is_cut() {
        let long = vec![b'x'; 3 * PACE + 1];
        // Bytes in a payload that look like frames must not be split.
        let inner = [frame(2, b""), frame(9, b"")].concat();
        let sent: [(Channel, &[u8]); 6] = [
            (Channel::Stdout, b"hello"),
            (Channel::Panic, &inner),
            (Channel::Stdout, &long),
            (Channel::Log, b""),
            (Channel::Trace, &inner),
            (Channel::Result, &[1, 7, 0, 0, 0]),
        ];
        let stream: Vec<u8> = sent
            .iter()
            .flat_map(|(kind, payload)| frame(*kind as u8, payload))
            .collect();
        let shared: Vec<&[u8]> = sent
            .iter()
            .filter(|(kind, _)| !kind.is_inline())
            .map(|(_, payload)| *payload)
            .collect();
        for size in 1..stream.len() {
            let mut frames = Frames::new(Pieces(&stream, size), window(&shared));
            for expected in sent {
                assert_eq!(frames.next().unwrap(), Some(expected));
            }
            assert_eq!(frames.next().unwrap(), None);
        }
    }

    #[test]
    fn damaged_streams_are_errors() {
        let refused = |stream: &[u8]| Frames::new(stream, window(&[])).next().is_err();
        for whole in [frame(8, b"hello"), frame(1, &[0; 2 * PACE])] {
            for end in 1..whole.len() {
                assert!(refused(&whole[..end]), "cut at {end}");
            }
        }
        assert!(refused(&frame(0, b"")) && refused(&frame(11, b"")));
        assert!(refused(&[1, 255, 255, 255, 255]));
    }

    #[test]
    fn results_decode() {
        let failed = decode_result(b"\x03\x08\0\0\0bad format\n").unwrap();
        assert_eq!(failed, (Outcome::NotStarted(8), "bad format".to_owned()));
        assert_eq!(
            decode_result(&[1, 255, 0, 0, 0]).unwrap(),
            (Outcome::Exited(255), String::new())
        );
        assert!(decode_result(&[1, 0, 0]).is_err() && decode_result(&[4, 0, 0, 0, 0]).is_err());
    }
}
