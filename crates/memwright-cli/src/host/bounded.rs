//! Runs another program with a limit on its time and its output.
//!
//! The first executable in `PATH` with the program's name can be an unrelated program. If such a program never exits,
//! or never stops printing, it must not block this command.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// The time limit for a program that prints its version or its options.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Returns the time limit for a program's answer: the shorter of [`PATIENCE`] and `limit`, the time limit of this
/// command.
pub fn patience(limit: Option<Duration>) -> Duration {
    limit.map_or(PATIENCE, |limit| limit.min(PATIENCE))
}

/// The maximum size of a program's output in bytes.
pub const LONGEST_ANSWER: usize = 1 << 20;

/// Why a program gave no usable answer.
#[derive(Debug)]
pub enum Unanswered {
    /// It could not be started, or its output could not be read.
    Failed(io::Error),
    /// It did not exit within this time limit.
    Late(Duration),
    /// It printed more than [`LONGEST_ANSWER`] bytes.
    Endless,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(formatter),
            Self::Late(limit) => {
                write!(formatter, "did not end within {} s", limit.as_secs_f64())
            }
            Self::Endless => formatter.write_str("does not stop printing"),
        }
    }
}

impl std::error::Error for Unanswered {}

impl From<io::Error> for Unanswered {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Runs a program without input until it exits, and returns its output.
///
/// The program runs in a new process group, which is killed if this function returns an error before the program has
/// exited.
///
/// # Errors
/// See [`Unanswered`].
pub fn output(command: &mut Command, limit: Duration) -> Result<Output, Unanswered> {
    let end = Instant::now() + limit;
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let mut group = Group(child);
    let streams = [
        collect(group.0.stdout.take()),
        collect(group.0.stderr.take()),
    ];
    let [stdout, stderr] = streams.map(|stream| receive(&stream, end, limit));
    let (stdout, stderr) = (stdout?, stderr?);
    // The program can still run, although it has closed its output.
    while group.0.try_wait()?.is_none() {
        if Instant::now() >= end {
            return Err(Unanswered::Late(limit));
        }
        thread::sleep(Duration::from_millis(1));
    }
    let status = group.0.wait()?;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// A process group with a program and its descendants. Dropping this value kills them.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.0.try_wait() {
            return;
        }
        let id = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            // The ID of the group is not reused before the command has waited for the group's first process.
            let _ = kill_process_group(id, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

type Collected = Result<Vec<u8>, Unanswered>;

/// Reads a stream in a new thread, which stops at the end of the stream or at the maximum size.
fn collect(stream: Option<impl Read + Send + 'static>) -> Receiver<Collected> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut data = Vec::new();
        let read = stream.map_or(Ok(0), |stream| {
            let most = LONGEST_ANSWER as u64 + 1;
            stream.take(most).read_to_end(&mut data)
        });
        let collected = match read {
            Ok(length) if length > LONGEST_ANSWER => Err(Unanswered::Endless),
            Ok(_) => Ok(data),
            Err(error) => Err(error.into()),
        };
        // Sending fails if the program exceeded the time limit, because the receiver is then dropped.
        let _ = sender.send(collected);
    });
    receiver
}

fn receive(stream: &Receiver<Collected>, end: Instant, limit: Duration) -> Collected {
    match stream.recv_timeout(end.saturating_duration_since(Instant::now())) {
        Ok(collected) => collected,
        Err(RecvTimeoutError::Timeout) => Err(Unanswered::Late(limit)),
        Err(RecvTimeoutError::Disconnected) => {
            Err(io::Error::other("the thread that reads its output panicked").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<Output, Unanswered> {
        output(Command::new("/bin/sh").args(["-c", script]), limit)
    }

    #[test]
    fn what_ends_is_answered() {
        let output = shell("echo one; echo two >&2; exit 3", PATIENCE).unwrap();
        assert_eq!(
            (&*output.stdout, &*output.stderr),
            (&b"one\n"[..], &b"two\n"[..])
        );
        assert_eq!(output.status.code(), Some(3));
        let missing = crate::host::bounded::output(&mut Command::new("/no/such/program"), PATIENCE);
        assert!(matches!(
            missing,
            Err(Unanswered::Failed(error)) if error.kind() == io::ErrorKind::NotFound
        ));
    }

    #[test]
    fn what_does_not_end_is_killed_with_what_it_started() {
        let host = tempfile::tempdir().unwrap();
        let file = host.path().join("pid");
        let short = Duration::from_millis(300);
        for (script, wanted) in [
            (
                "sleep 1000 & echo $! > FILE; wait",
                "did not end within 0.3 s",
            ),
            ("exec >&- 2>&-; sleep 1000", "did not end within 0.3 s"),
        ] {
            let script = script.replace("FILE", &file.display().to_string());
            let error = shell(&script, short).unwrap_err();
            assert_eq!(error.to_string(), wanted, "{script}");
        }
        let error = shell("yes", PATIENCE).unwrap_err();
        assert!(matches!(error, Unanswered::Endless), "{error}");
        let started = std::fs::read_to_string(&file).unwrap();
        let stat = std::path::Path::new("/proc")
            .join(started.trim())
            .join("stat");
        let ended = || {
            std::fs::read_to_string(&stat).map_or(true, |text| {
                let rest = text.rsplit(')').next().unwrap_or_default();
                rest.trim_start().starts_with('Z')
            })
        };
        let patience = Instant::now() + Duration::from_secs(20);
        while !ended() {
            assert!(Instant::now() < patience, "its child still runs");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
