//! Reads the frames that the guest writes to its debug console. docs/protocol.md describes them.

use std::io::{self, Read};

use anyhow::{Context, bail};
use memwright_linux::channel::{Channel, FRAME_HEADER, Outcome};

/// No frame is longer; a longer one is a damaged stream.
pub const LONGEST: u32 = 16 << 20;
/// Decodes the payload of a result frame into the outcome and its text.
///
/// # Errors
/// When it is too short or of an unknown kind.
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

/// Takes a stream apart into frames.
#[derive(Debug)]
pub struct Frames<R> {
    input: R,
    payload: Vec<u8>,
}

impl<R: Read> Frames<R> {
    /// Reads frames from `input`, which should be buffered.
    pub fn new(input: R) -> Self {
        Self {
            input,
            payload: Vec::new(),
        }
    }

    /// The next frame; `None` at the end of the stream.
    ///
    /// # Errors
    /// When the stream ends within a frame or holds something else than frames.
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
        let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
        if length > LONGEST {
            bail!("the guest's output is damaged: frame of {length} bytes");
        }
        self.payload.resize(length as usize, 0);
        let got =
            read_up_to(&mut self.input, &mut self.payload).context("cannot read from QEMU")?;
        if got < self.payload.len() {
            bail!("the guest's output ends within a frame");
        }
        Ok(Some((kind, &self.payload)))
    }
}

/// Fills `buffer` unless the end comes first; returns how much there is.
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

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Hands out a stream in pieces of one size.
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
        // A payload that looks like frames is still a payload.
        let inner = [frame(2, b"inner"), frame(9, &[1, 0, 0, 0, 0])].concat();
        let stream = [
            frame(1, b"hello"),
            frame(1, &inner),
            frame(3, b""),
            frame(9, &[1, 7, 0, 0, 0]),
        ]
        .concat();
        for size in 1..stream.len() {
            let mut frames = Frames::new(Pieces(&stream, size));
            let mut seen = Vec::new();
            while let Some((kind, payload)) = frames.next().unwrap() {
                seen.push((kind, payload.to_vec()));
            }
            let expected = [
                (Channel::Stdout, b"hello".to_vec()),
                (Channel::Stdout, inner.clone()),
                (Channel::Log, Vec::new()),
                (Channel::Result, vec![1, 7, 0, 0, 0]),
            ];
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn damaged_streams_are_errors() {
        let whole = frame(1, b"hello");
        for end in 1..whole.len() {
            assert!(Frames::new(&whole[..end]).next().is_err(), "cut at {end}");
        }
        assert!(Frames::new(frame(0, b"").as_slice()).next().is_err());
        assert!(Frames::new(frame(10, b"").as_slice()).next().is_err());
        assert!(
            Frames::new([1, 255, 255, 255, 255].as_slice())
                .next()
                .is_err()
        );
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
