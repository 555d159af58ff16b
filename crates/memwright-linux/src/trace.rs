//! Writes memory events as lines of JSON.

use alloc::string::String;
use core::fmt::Write;
use memwright::{Event, TraceSink};
use memwright_linux_abi::host::{Channel, Host};

/// Writes every event to the trace channel with its time on the instruction clock.
pub struct Trace {
    host: &'static dyn Host,
}

impl Trace {
    /// Creates a trace that writes to the trace channel of `host`.
    pub fn new(host: &'static dyn Host) -> Self {
        Self { host }
    }
}

impl TraceSink for Trace {
    #[expect(clippy::disallowed_methods, reason = "an event is a line")]
    fn event(&self, event: &Event) {
        let now = self.host.now();
        self.host.pause_clock();
        let mut line = String::new();
        // Writing to a `String` cannot fail.
        let _ = write!(line, "{{\"clock\":{now},");
        let mut inner = String::new();
        let _ = event.write_json(&mut inner);
        line.push_str(inner.strip_prefix('{').unwrap_or(&inner));
        line.push('\n');
        self.host.output(Channel::Trace, line.as_bytes());
        self.host.resume_clock();
    }
}
