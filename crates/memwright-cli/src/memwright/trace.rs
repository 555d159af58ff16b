//! The file of `--trace`: memory events in the guest's format, or as Chrome trace events.

use crate::model::plan::TraceFormat;
use std::fs::File;
use std::io::{self, Write};

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The text before the first of the Chrome events.
const BEGINNING: &str = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
/// The text after the last of the Chrome events.
const END: &str = "\n]}\n";

/// A trace that is being written. Dropping the value completes an unfinished JSON document, so that the file of a
/// failed run can also be parsed.
#[derive(Debug)]
pub struct TraceFile {
    file: File,
    format: TraceFormat,
    /// The text to write before the next Chrome event.
    separator: &'static str,
    ended: bool,
}

impl TraceFile {
    /// Begins a trace in an empty file.
    ///
    /// # Errors
    /// I/O errors of writing.
    pub fn begin(file: File, format: TraceFormat) -> anyhow::Result<Self> {
        let mut trace = Self {
            file,
            format,
            separator: "\n",
            ended: false,
        };
        match format {
            TraceFormat::Jsonl => {}
            TraceFormat::Chrome => trace.put(BEGINNING)?,
        }
        Ok(trace)
    }

    /// Writes the events of one frame, one per line. Events are not buffered: if this command is killed, the file
    /// contains every event that it received.
    ///
    /// # Errors
    /// I/O errors of writing. With Chrome's format, also a line that is not an event.
    pub fn write(&mut self, lines: &[u8]) -> anyhow::Result<()> {
        match self.format {
            TraceFormat::Jsonl => {
                let end = if lines.ends_with(b"\n") { "" } else { "\n" };
                self.file.write_all(lines).context(CANNOT_WRITE)?;
                self.put(end)
            }
            TraceFormat::Chrome => {
                let lines = lines.split(|byte| *byte == b'\n');
                for line in lines.filter(|line| !line.is_empty()) {
                    let event = chrome_event(line)
                        .context("the guest's trace has a line that is not an event")?;
                    self.put(&format!("{}{event}", self.separator))?;
                    self.separator = ",\n";
                }
                Ok(())
            }
        }
    }

    /// Completes the trace and closes the file.
    ///
    /// # Errors
    /// I/O errors of writing.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.close().context(CANNOT_WRITE)
    }

    fn put(&mut self, text: &str) -> anyhow::Result<()> {
        self.file.write_all(text.as_bytes()).context(CANNOT_WRITE)
    }

    fn close(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        match self.format {
            TraceFormat::Jsonl => Ok(()),
            TraceFormat::Chrome => self.file.write_all(END.as_bytes()),
        }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        // If `end` was called, the trace is already complete and this call does nothing. Otherwise the run has failed,
        // and the caller reports that failure.
        let _ = self.close();
    }
}

/// The context of I/O errors of writing.
const CANNOT_WRITE: &str = "cannot write the trace";

/// A line of the guest's trace.
#[derive(Debug, Deserialize)]
struct Event {
    /// The time in nanoseconds on the guest's clock.
    clock: u64,
    event: String,
    /// The process that caused the event; 0 for the kernel itself.
    #[serde(default)]
    process: u64,
    #[serde(default)]
    thread: u64,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// Converts one event to a Chrome trace event: an instant, since events have no duration.
///
/// # Errors
/// If the text is not a JSON object with a clock and a name.
fn chrome_event(line: &[u8]) -> serde_json::Result<String> {
    let Event {
        clock,
        event,
        process,
        thread,
        fields,
    } = serde_json::from_slice(line)?;
    // Chrome's unit is the microsecond. The decimals are written as digits, because a floating-point number could lose
    // nanoseconds.
    let (microseconds, nanoseconds) = (clock / 1000, clock % 1000);
    Ok(format!(
        r#"{{"name":{},"cat":"memory","ph":"i","s":"t","ts":{microseconds}.{nanoseconds:03},"pid":{process},"tid":{thread},"args":{}}}"#,
        Value::String(event),
        Value::Object(fields),
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_event_becomes_an_instant() {
        for (line, chrome) in [
            (
                r#"{"clock":1234567,"cpu":1,"process":2,"thread":3,"event":"fault","address":"0x1234","access":"write","kind":"demand_zero","area":["0x1000","0x3000"]}"#,
                r#"{"name":"fault","cat":"memory","ph":"i","s":"t","ts":1234.567,"pid":2,"tid":3,"args":{"cpu":1,"address":"0x1234","access":"write","kind":"demand_zero","area":["0x1000","0x3000"]}}"#,
            ),
            (
                r#"{"clock":1000,"event":"fork","entries":7}"#,
                r#"{"name":"fork","cat":"memory","ph":"i","s":"t","ts":1.000,"pid":0,"tid":0,"args":{"entries":7}}"#,
            ),
            (
                r#"{"clock":9,"event":"remap","old":["0x0","0x1000"],"new":["0x2000","0x3000"]}"#,
                r#"{"name":"remap","cat":"memory","ph":"i","s":"t","ts":0.009,"pid":0,"tid":0,"args":{"old":["0x0","0x1000"],"new":["0x2000","0x3000"]}}"#,
            ),
            (
                r#"{"clock":18446744073709551615,"event":"a\"b"}"#,
                r#"{"name":"a\"b","cat":"memory","ph":"i","s":"t","ts":18446744073709551.615,"pid":0,"tid":0,"args":{}}"#,
            ),
        ] {
            assert_eq!(chrome_event(line.as_bytes()).unwrap(), chrome);
            serde_json::from_str::<Value>(chrome).unwrap();
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            "",
            "fault",
            "7",
            r#"{"event":"fork"}"#,
            r#"{"clock":1}"#,
            r#"{"clock":-1,"event":"fork"}"#,
            r#"{"clock":1,"event":2}"#,
            r#"{"clock":1,"event":"fork"} x"#,
        ] {
            assert!(chrome_event(line.as_bytes()).is_err(), "{line}");
        }
        assert!(chrome_event(b"{\"clock\":1,\"event\":\"\xff\"}").is_err());
    }

    #[test]
    fn a_trace_is_one_document_however_it_ends() {
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("trace");
        let one = b"{\"clock\":1,\"event\":\"fork\"}".as_slice();
        let two =
            b"{\"clock\":1,\"event\":\"map\"}\n{\"clock\":2,\"event\":\"unmap\"}\n".as_slice();
        for (frames, names) in [
            (&[][..], &[][..]),
            (&[one], &["fork"]),
            (&[one, two], &["fork", "map", "unmap"]),
            (&[two, b"no event", one], &["map", "unmap", "fork"]),
        ] {
            for drop_it in [false, true] {
                let file = File::create(&path).unwrap();
                let mut trace = TraceFile::begin(file, TraceFormat::Chrome).unwrap();
                for frame in frames {
                    assert_eq!(trace.write(frame).is_err(), *frame == b"no event");
                }
                if drop_it {
                    drop(trace);
                } else {
                    trace.end().unwrap();
                }
                let document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
                let events = document["traceEvents"].as_array().unwrap();
                let found: Vec<_> = events.iter().map(|event| &event["name"]).collect();
                assert_eq!(found, names);
            }
        }
    }
}
