//! The socket on which this command waits for QEMU's monitor, or for the device stream of a snapshot.

use std::io::{self, PipeReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

/// A listening socket to which QEMU connects.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Creates the socket at `path` and listens on it.
    ///
    /// # Errors
    /// Errors of binding the socket.
    pub fn bind(path: PathBuf) -> io::Result<Self> {
        let listener = UnixListener::bind(&path)?;
        Ok(Self { listener, path })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for QEMU to connect. `output` is the pipe that QEMU holds open while it runs.
    ///
    /// # Errors
    /// I/O errors of the socket, and `UnexpectedEof` if QEMU has exited.
    pub fn accept(&self, output: &PipeReader) -> io::Result<UnixStream> {
        let mut events = [
            PollFd::new(&self.listener, PollFlags::IN),
            // For the pipe, poll(2) reports only that the pipe was closed. It does not report available data.
            PollFd::new(output, PollFlags::empty()),
        ];
        retry_on_intr(|| poll(&mut events, None))?;
        if events[0].revents().is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.listener.accept()?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_qemu_that_ends_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::bind(folder.path().join("socket")).unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"words").unwrap();
        let _stream = UnixStream::connect(listener.path()).unwrap();
        assert!(listener.accept(&reader).is_ok());
        drop(writer);
        let error = listener.accept(&reader).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
