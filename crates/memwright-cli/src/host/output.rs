//! Writes the command's own output to standard output and standard error, and hides the spinners meanwhile.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{MultiProgress, ProgressBar};

use crate::model::failure::Closed;

/// The spinners of this command, which share the terminal.
static SPINNERS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);
/// The number of spinners that are currently drawn.
static DRAWN: AtomicUsize = AtomicUsize::new(0);

/// Adds a spinner below the others on the terminal.
pub fn add_spinner(spinner: ProgressBar) -> ProgressBar {
    DRAWN.fetch_add(1, Ordering::Relaxed);
    SPINNERS.add(spinner)
}

/// Removes a spinner from the terminal.
pub fn remove_spinner(spinner: &ProgressBar) {
    spinner.finish_and_clear();
    DRAWN.fetch_sub(1, Ordering::Relaxed);
}

/// Calls `write`, which writes to the terminal, and hides the spinners meanwhile. Returns its result.
fn suspended<T>(write: impl FnOnce() -> T) -> T {
    match DRAWN.load(Ordering::Relaxed) {
        0 => write(),
        _ => SPINNERS.suspend(write),
    }
}

/// Writes to standard output.
///
/// # Errors
/// [`Closed`], or I/O errors of writing.
pub fn print(text: &[u8]) -> anyhow::Result<()> {
    suspended(|| write_fully(io::stdout().as_fd(), text)).map_err(failed)
}

/// Converts the error of a write to standard output into the error to report. If the process that reads standard output
/// has closed it, this is [`Closed`].
pub fn failed(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Closed.into(),
        _ => anyhow::Error::new(error).context("cannot write to standard output"),
    }
}

/// Writes to standard error. If standard error is closed, the text is discarded.
pub fn show(text: &[u8]) {
    let _ = suspended(|| write_fully(io::stderr().as_fd(), text));
}

/// Prints one line for the user. Unlike `eprintln!`, does not panic if standard error is closed.
pub fn say(line: &str) {
    show(format!("memwright: {line}\n").as_bytes());
}

/// Writes all bytes without buffering, even if another process has made the descriptor non-blocking.
///
/// # Errors
/// The errors of write(2).
pub fn write_fully(descriptor: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    while !bytes.is_empty() {
        match rustix::io::write(descriptor, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                let mut wait = [PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)];
                // The result does not matter: if a signal interrupted the wait, the write is retried at once.
                let _ = poll(&mut wait, None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::failure::Failure;

    #[test]
    fn a_closed_output_is_seen_below_its_context() {
        use anyhow::Context;
        use std::io::{Error, ErrorKind};
        let write = |kind: ErrorKind| {
            let failed = Err::<(), _>(failed(Error::from(kind)));
            Failure::from(failed.context("a result").unwrap_err())
        };
        assert!(write(ErrorKind::BrokenPipe).is_closed_output());
        let full = write(ErrorKind::StorageFull);
        assert!(!full.is_closed_output());
        assert!(
            full.to_string()
                .starts_with("a result: cannot write to standard output: ")
        );
        assert!(!Failure::Ended(141, String::new()).is_closed_output());
    }
}
