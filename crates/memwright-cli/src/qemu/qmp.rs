//! The part of QEMU's monitor protocol (QMP) that a run needs.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// The time limit for QEMU's answer to a command.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a command failed.
#[derive(Debug)]
pub enum QmpError {
    /// The socket failed. The kind is `UnexpectedEof` if QEMU has exited.
    Io(io::Error),
    /// QEMU sent a line that is not valid JSON.
    Parse(serde_json::Error),
    /// QEMU rejected the command with this message.
    Refused(String),
}

impl fmt::Display for QmpError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(formatter, "QEMU's monitor: {error}"),
            Self::Parse(error) => write!(formatter, "QEMU's monitor: {error}"),
            Self::Refused(words) => write!(formatter, "QEMU refuses: {words}"),
        }
    }
}

impl std::error::Error for QmpError {}

impl From<io::Error> for QmpError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<serde_json::Error> for QmpError {
    fn from(error: serde_json::Error) -> Self {
        Self::Parse(error)
    }
}

/// An event that QEMU reported.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct Event {
    /// The name of the event.
    #[serde(rename = "event")]
    pub name: String,
    /// The data of the event.
    #[serde(default)]
    pub data: Value,
}

/// A connection to QEMU's monitor.
#[derive(Debug)]
pub struct Monitor {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    // Events that arrived before the answer to a command, the oldest first.
    events: Vec<Event>,
}

impl Monitor {
    /// Negotiates the protocol's capabilities on a connected socket.
    ///
    /// # Errors
    /// Every [`QmpError`].
    pub fn open(stream: UnixStream) -> Result<Self, QmpError> {
        let lines = BufReader::new(stream.try_clone()?);
        let mut monitor = Self {
            stream,
            lines,
            events: Vec::new(),
        };
        monitor.read()?; // the greeting
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Executes a command and returns its answer.
    ///
    /// # Errors
    /// Every [`QmpError`].
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, QmpError> {
        let line = json!({ "execute": command, "arguments": arguments });
        self.stream.write_all(format!("{line}\n").as_bytes())?;
        loop {
            let mut answer = self.read()?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                let words = error["desc"].as_str().unwrap_or_default();
                return Err(QmpError::Refused(words.to_owned()));
            }
            self.events.extend(serde_json::from_value(answer).ok());
        }
    }

    /// Waits for the first event that `wanted` accepts, and returns it. Earlier events are discarded.
    ///
    /// # Errors
    /// [`QmpError::Io`] and [`QmpError::Parse`].
    pub fn wait_for(&mut self, wanted: impl Fn(&Event) -> bool) -> Result<Event, QmpError> {
        loop {
            for event in std::mem::take(&mut self.events) {
                if wanted(&event) {
                    return Ok(event);
                }
            }
            let message = self.read()?;
            self.events.extend(serde_json::from_value(message).ok());
        }
    }

    fn read(&mut self) -> Result<Value, QmpError> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err(QmpError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(serde_json::from_str(&line)?)
    }
}

/// Injects a non-maskable interrupt into the guest's CPUs.
///
/// # Errors
/// Every [`QmpError`]; the I/O error is `TimedOut` or `WouldBlock` if QEMU does not answer.
pub fn inject_nmi(socket: &Path) -> Result<(), QmpError> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Monitor::open(stream)?
        .execute("inject-nmi", &json!({}))
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Returns a monitor whose peer sends one of these lines for each line that it receives after the greeting.
    fn monitor(answers: &'static [&'static str]) -> (Monitor, thread::JoinHandle<Vec<Value>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let served = thread::spawn(move || {
            let mut theirs = theirs;
            let mut lines = BufReader::new(theirs.try_clone().unwrap()).lines();
            theirs.write_all(b"{\"QMP\": {}}\n").unwrap();
            let mut received = Vec::new();
            for answer in [&["{\"return\": {}}"], answers].concat() {
                let line = lines.next().unwrap().unwrap();
                received.push(serde_json::from_str(&line).unwrap());
                theirs.write_all(format!("{answer}\n").as_bytes()).unwrap();
            }
            received
        });
        (Monitor::open(ours).unwrap(), served)
    }

    #[test]
    fn answers_are_told_from_events_and_refusals() {
        let (mut monitor, served) = monitor(&[
            "{\"event\": \"STOP\", \"timestamp\": {}}\n{\"event\": \"MIGRATION\", \"data\": {\"status\": \"setup\"}}\n{\"return\": {\"running\": false}}",
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no such thing\"}}",
        ]);
        let answer = monitor.execute("query-status", &json!({})).unwrap();
        assert_eq!(answer["running"], false);
        let event = monitor.wait_for(|event| event.name == "MIGRATION").unwrap();
        assert_eq!(event.data["status"], "setup");
        let error = monitor
            .execute("migrate", &json!({ "uri": "x" }))
            .unwrap_err();
        assert_eq!(error.to_string(), "QEMU refuses: no such thing");
        let received = served.join().unwrap();
        assert_eq!(
            received[2],
            json!({ "execute": "migrate", "arguments": { "uri": "x" } })
        );
        // The peer has closed the connection.
        let error = monitor.wait_for(|_| true).unwrap_err();
        assert!(matches!(error, QmpError::Io(_)), "{error}");
    }
}
