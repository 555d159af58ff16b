//! The window: a file that is mapped into the guest's memory. It contains the payloads of the guest's frames, and the
//! answers to its requests.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memwright_linux_abi::channel::{OUTPUT_RING, WINDOW};

/// The window's file, and the position of the next payload in the file's ring.
#[derive(Debug)]
pub struct Window {
    file: File,
    at: usize,
}

impl Window {
    /// Creates the file and writes all of it, so that its blocks are allocated. If the disk became full later, a write
    /// of the guest to the mapped file could not report this.
    ///
    /// # Errors
    /// I/O errors of writing a file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        file.write_all_at(&vec![0; WINDOW], 0)?;
        Ok(Self { file, at: 0 })
    }

    /// Fills `payload` with the next payload. The length of `payload` must be the length in the frame's header.
    ///
    /// # Errors
    /// I/O errors of reading the file.
    pub fn take(&mut self, payload: &mut [u8]) -> io::Result<()> {
        let (first, rest) = payload.split_at_mut(payload.len().min(OUTPUT_RING - self.at));
        self.file.read_exact_at(first, self.at as u64)?;
        self.file.read_exact_at(rest, 0)?;
        self.at = (self.at + payload.len()) % OUTPUT_RING;
        Ok(())
    }

    /// Returns the area of the window for answers.
    ///
    /// # Errors
    /// If no descriptor can be duplicated.
    pub fn answers(&self) -> io::Result<AnswerArea> {
        self.file.try_clone().map(AnswerArea)
    }
}

/// The part of the window for answers.
#[derive(Debug)]
pub struct AnswerArea(File);

impl AnswerArea {
    /// Writes an answer, which must fit in the area.
    ///
    /// # Errors
    /// I/O errors of writing the file.
    pub fn put(&self, answer: &[u8]) -> io::Result<()> {
        self.0.write_all_at(answer, OUTPUT_RING as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a payload as a guest does.
    fn put(path: &Path, at: &mut usize, payload: &[u8]) {
        let file = File::options().write(true).open(path).unwrap();
        for byte in payload {
            file.write_all_at(&[*byte], *at as u64).unwrap();
            *at = (*at + 1) % OUTPUT_RING;
        }
    }

    #[test]
    fn payloads_go_around_the_ring() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("window");
        let mut window = Window::create(&path).unwrap();
        // The position is just before the end of the ring, so that the payloads continue at its beginning.
        let mut at = OUTPUT_RING - 3;
        window.at = at;
        for text in ["abc", "", "defgh", "i"] {
            put(&path, &mut at, text.as_bytes());
            let mut payload = vec![0; text.len()];
            window.take(&mut payload).unwrap();
            assert_eq!(payload, text.as_bytes());
        }
        assert_eq!((at, window.at), (6, 6));
    }

    #[test]
    fn answers_stand_behind_the_ring() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("window");
        let window = Window::create(&path).unwrap();
        let answer = vec![7; memwright_linux_abi::channel::INPUT_AREA];
        window.answers().unwrap().put(&answer).unwrap();
        let file = std::fs::read(&path).unwrap();
        assert_eq!(file.len(), WINDOW);
        assert!(file[..OUTPUT_RING].iter().all(|byte| *byte == 0));
        assert_eq!(file[OUTPUT_RING..], answer);
    }
}
